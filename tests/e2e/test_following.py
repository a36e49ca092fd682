"""Probes follow their target: into libraries that it loads, programs that it becomes, children."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

import weft
from tests.e2e.harness import code, eventually
from tests.e2e.test_probes import Build
from tests.lockstep import lockstep

COUNTER = "counter calls; calls += 1"


def test_a_library_that_is_loaded_later(build: Build) -> None:
    with lockstep(build("plugging"), 2) as program, weft.attach(program.pid) as session:
        probe = session.insert(["/Code/plugging/main", "/Code/plugging.so/plugged*"], COUNTER)
        assert [point.function for point in probe.points] == ["main"]
        assert session.refresh() == []
        assert program.say("load") == "loaded"
        assert {point.function for point in session.refresh()} == {"plugged", "plugged_leaf"}
        counts = program.batch(50)
        values = {point.function: n for point, n in probe.values().items()}
        assert values == {name: counts[name] for name in ("plugged", "plugged_leaf")} | {"main": 0}
        # Again, after it was away: nobody falls into what was there, and nothing is counted twice.
        assert program.say("unload") == "unloaded"
        assert session.refresh() == []
        assert program.say("load") == "loaded"
        assert session.refresh()
        assert program.batch(50) == counts
        value = probe.value()
        assert value == 2 * sum(n for name, n in values.items() if name != "main")


def test_a_program_that_becomes_another() -> None:
    script = "read; exec sleep 60"
    with subprocess.Popen(["bash", "-c", script], stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        with weft.attach(process.pid) as session:
            probe = session.insert(["/Code/bash/main", "/Code/sleep/*"], COUNTER)
            assert {point.module for point in probe.points} == {"bash"}
            process.stdin.write(b"\n")
            process.stdin.close()
            eventually(lambda: session.program().endswith("/sleep"))
            assert {point.module for point in session.refresh()} == {"sleep"}
            probe.disable()
            probe.enable()
            probe.remove()
        process.send_signal(signal.SIGKILL)


@pytest.mark.parametrize("threads", [1, 4])
def test_what_children_measure_is_their_own(threads: int, build: Build) -> None:
    with lockstep(build("forks"), threads) as program, weft.attach(program.pid) as session:
        names = ["in_family", "in_child", "in_parent"]
        known = [f"/Code/forks/{name}" for name in names]
        probe = session.insert(known, COUNTER)
        counts = program.batch(20)
        by_function = {point.function: n for point, n in probe.values().items()}
        assert by_function == {name: counts.get(name, 0) for name in by_function}
        children = [pid for pid in probe.processes() if pid != program.pid]
        assert children
        forked = {name: counts.get(f"forked_{name}", 0) for name in by_function}
        measured = dict.fromkeys(by_function, 0)
        for child in children:
            for point, n in probe.values(process=child).items():
                measured[point.function] += n
        assert measured == forked


def test_children_can_be_left() -> None:
    script = "(while :; do x=$((x + 1)); done) & echo $!; read; kill $!"
    with subprocess.Popen(
        ["bash", "-c", f"read; {script}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        with weft.attach(process.pid) as session:
            probe = session.insert("/Code/bash/*", COUNTER)
            process.stdin.write(b"\n")
            process.stdin.flush()
            child = int(process.stdout.readline())
            eventually(lambda: bool(probe.value(process=child)))
            assert is_woven(child)
            session.leave_children()
            assert not is_woven(child)
            last = probe.value(process=child)
            assert code(child).keys() <= code(process.pid).keys()
            assert probe.value(process=child) == last
            assert is_woven(process.pid)
        assert not is_woven(process.pid)
        process.stdin.write(b"\n")
        process.stdin.flush()
        assert process.wait() == 0


def test_values_outlive_the_target() -> None:
    with weft.run(["bash", "-c", "exit 3"]) as session:
        probe = session.insert("/Code/bash/main", COUNTER)
        assert session.wait() == 3
        assert probe.value() == 1
    assert probe.value() == 1


def is_woven(pid: int) -> bool:
    return "/memfd:weft-probes" in Path(f"/proc/{pid}/maps").read_text()
