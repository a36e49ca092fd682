"""Code that is changed while something waits in the middle of it: what will go on there, unseen."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import weft
from tests.probing import IS_LONG
from weft.model.points import PointKind

COUNTER = "counter hits\nhits += 1"
SECONDS = 8.0 if IS_LONG else 3.0
"""For how long they do; ``WEFT_CASES=1000000`` is the long form."""


@pytest.mark.watchdog(120)
@pytest.mark.parametrize(
    ("program", "function"),
    [
        # Goroutines that the runtime has interrupted.
        ("preempted", "main.spin"),
        ("preempted", "main.many"),
        # A thread whose signal handler takes its time.
        ("dozing", "spin"),
    ],
)
def test_probes_come_and_go_where_others_will_return_to(
    build: Callable[[str], Path], program: str, function: str
) -> None:
    with subprocess.Popen(
        [build(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout and process.stdout.readline() == "here\n"
            with weft.attach(process.pid) as session:
                path = f"/Code/{program}/{function}"
                kinds: list[PointKind] = ["insn", "entry", "exit"]
                points = [point for kind in kinds for point in session.points(path, kind)]
                end = time.monotonic() + SECONDS
                woven = 0
                while time.monotonic() < end:
                    for point in points:
                        probe = session.insert([point], COUNTER)
                        woven += not probe.refused
                        time.sleep(0.003)
                        probe.remove()
                assert woven > 0
            output, _ = process.communicate("\n", timeout=30)
        finally:
            process.kill()
    assert (process.returncode, output) == (0, "well\n")
