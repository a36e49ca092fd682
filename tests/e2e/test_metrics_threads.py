"""Metrics of the thread that has the least, or the most."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import weft
from tests.lockstep import lockstep

Build = Callable[[str], Path]

LEAST_AND_MOST = "".join(
    f"""
    metric {name} {{
      units calls;
      aggregateOperator {operator};
      base is counter {{
        foreach func in $focus.funcs append preInsn func.entry (* {name}++; *)
      }}
    }}
    """
    for name, operator in (("least", "min"), ("most", "max"))
)


def test_threads_that_have_no_value_do_not_take_part(build: Build) -> None:
    """The first thread says what is to be done, the workers do it."""
    focus = "/Code/counts/tiny"
    with lockstep(build("counts"), 3) as program, weft.attach(program.pid) as session:
        session.load_metrics(LEAST_AND_MOST)
        least, most = session.metric("least", focus), session.metric("most", focus)
        session.metric("calls", "/Code/libc.so.6/pthread_mutex_lock")
        each = program.batch(20)["tiny"] // 3
        probe = session.insert("/Code/counts/tiny", "counter calls; calls += 1")
        assert (program.pid, program.pid) in probe.threads(), "the first one measures nothing"
        assert (least.value, most.value) == (each, each)
        # It begins anew for whoever asks later.
        later = session.metric("least", focus), session.metric("most", focus)
        assert [metric.value for metric in later] == [0, 0]
        program.batch(10)
        assert [metric.value for metric in later] == [each // 2, each // 2]
        assert (least.value, most.value) == (each + each // 2, each + each // 2)
