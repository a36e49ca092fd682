"""Attach to a running process and measure it."""

from __future__ import annotations

from typing import Any

import click

import weft
from weft.base.numbers import printable
from weft.cli import clone, measure
from weft.cli.inputs import Pid
from weft.cli.output import console, left_in, print_json


@click.command()
@click.argument("pid", type=Pid(), metavar="PID|NAME")
@clone.options
@measure.options
def command(pid: int, **options: Any) -> None:
    """Attach to a running process and measure it.

    With -m or -e, shows what is measured until Ctrl-C, and leaves the process as it was. Without,
    has each thread of the process answer from inside and says how long it stood still. With
    --weaver clone, has all its threads run from a clone of its code until Ctrl-C, and measures
    there: at any place, and without a change to the process' own code.

    \b
    Examples:
      weft attach 4711 -m calls@/Code/libc.so.6/malloc
      weft attach redis-server -m latency@processCommand --budget 1%
      weft attach 4711 -m io_bytes -m lock_wait --for 10 -o out.json
      weft attach 4711 -m alloc_bytes --by stack --for 10 -o flame.html
      weft attach 4711 -e 'return read { if ($return > 0) got += $return }'
      weft attach redis-server
      weft attach 4711 --weaver clone --stats --for 10
      weft attach 4711 --weaver clone -m calls@/Code/redis-server/dictFind
    """
    weaver = options.pop("weaver")
    if weaver == "clone":
        clone.attach(pid, clone.wish(options), options)
        return
    others = options if weaver == "patch" else dict(options)
    clone.refuse(others)
    wanted = measure.wish(others)
    if wanted.is_empty:
        _ask(pid, wanted.output_format)
        return
    from weft.model.measured import TargetFacts

    with weft.attach(pid) as session, measure.waiting_for(pid) as wait:
        facts = TargetFacts(pid, session.program(), session.command())
        metrics = measure.begin_or_clone(session, wanted, weaver)
        if metrics is not None:
            measure.measure(session, metrics, wanted, facts, wait)
            return
    clone.attach(pid, wanted, options)


def _ask(pid: int, output_format: str) -> None:
    """Have every thread answer from inside, and leave."""
    from weft.model.measured import TargetFacts

    with weft.attach(pid) as session:
        pongs = {pong.tid: pong for pong in session.ping()}
        # A thread that was born since the ping has not been asked.
        threads = [thread for thread in session.threads() if thread.tid in pongs]
        processor = session.processor()
        facts = TargetFacts(pid, session.program(), session.command())
    pauses = session.pauses()
    if output_format == "json":
        document: dict[str, Any] = {
            "schema": 1,
            "target": {"pid": pid, "name": facts.name, "program": facts.program},
            "threads": [
                {
                    "tid": thread.tid,
                    "name": thread.name,
                    "answered": pongs[thread.tid].answered,
                    "reason": pongs[thread.tid].unasked,
                }
                for thread in threads
            ],
            "processor": {
                "features": list(processor.features),
                "vector_state_size": processor.vector_state_size,
            },
            "pauses": [{"seconds": pause.seconds, "threads": pause.threads} for pause in pauses],
        }
        print_json(document)
        return

    from rich.text import Text

    screen = console()
    answered = sum(pongs[thread.tid].answered for thread in threads)
    screen.print(Text.assemble((printable(facts.name), "bold"), f" (process {pid})"))
    screen.print(f"  threads    {answered} of {len(threads)} answered from inside")
    for thread in threads:
        if reason := pongs[thread.tid].unasked:
            screen.print(f"             {thread.tid} {thread.name}: not asked, {reason}")
    features = " ".join(processor.features)
    screen.print(f"  processor  {features}; {processor.vector_state_size} bytes of vector state")
    times = ", ".join(f"{1000 * pause.seconds:.1f} ms" for pause in pauses)
    screen.print(f"  stood still for {times} (to load, to ask, to leave)")
    screen.print(f"  [green]detached[/]: {left_in(pid)}")
