"""Attach to a running process, ask every thread, and leave it as it was."""

from __future__ import annotations

from typing import Any

import click

import weft
from weft.cli.output import console, format_option, print_json


@click.command()
@click.argument("pid", type=int)
@format_option
def command(pid: int, output_format: str) -> None:
    """Attach to a running process, ask every thread, and leave it as it was.

    Loads weft's agent into the process PID, has each of its threads answer from inside, takes the
    agent out again and says how long the process stood still.

    \b
    Examples:
      weft attach 4711
      weft attach "$(pidof redis-server)" --format json
    """
    with weft.attach(pid) as session:
        pongs = {pong.tid: pong for pong in session.ping()}
        # A thread that was born since the ping has not been asked.
        threads = [thread for thread in session.threads() if thread.tid in pongs]
        processor = session.processor()
        program = session.program()
    pauses = session.pauses()
    if output_format == "json":
        document: dict[str, Any] = {
            "schema": 1,
            "target": {"pid": pid, "program": program},
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

    screen = console()
    answered = sum(pongs[thread.tid].answered for thread in threads)
    screen.print(f"[bold]{program}[/] (process {pid})")
    screen.print(f"  threads    {answered} of {len(threads)} answered from inside")
    for thread in threads:
        if reason := pongs[thread.tid].unasked:
            screen.print(f"             {thread.tid} {thread.name}: not asked, {reason}")
    features = " ".join(processor.features)
    screen.print(f"  processor  {features}; {processor.vector_state_size} bytes of vector state")
    times = ", ".join(f"{1000 * pause.seconds:.1f} ms" for pause in pauses)
    screen.print(f"  stood still for {times} (to load, to ask, to leave)")
    screen.print("  [green]detached[/]: nothing of weft is left in it")
