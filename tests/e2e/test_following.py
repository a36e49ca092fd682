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


PLUGGED = "/Code/plugging*/*plug*"
"""A function of the program that is there at once, and two of the library."""


@pytest.mark.parametrize("by_function", [False, True])
def test_metrics_of_a_library_that_is_loaded_later(by_function: bool, build: Build) -> None:
    with lockstep(build("plugging"), 2) as program, weft.attach(program.pid) as session:
        calls = session.metric("calls", PLUGGED, by_function=by_function)
        latency = session.metric("latency", PLUGGED, by_function=by_function)
        assert session.metrics.refresh() == []
        names = ("calls_plugin", "plugged", "plugged_leaf")
        expected = dict.fromkeys(names, 0)
        # It comes again after it was away: at the same place or not, nothing counts twice.
        for _ in range(3):
            assert program.say("load") == "loaded"
            points = session.metrics.refresh()
            assert {point.function for point in points} == {"plugged", "plugged_leaf"}
            counts = program.batch(50)
            expected = {name: expected[name] + counts[name] for name in names}
            assert calls.value == sum(expected.values())
            assert isinstance(latency.value, weft.Histogram)
            assert latency.value.count == sum(expected.values())
            session.metrics.sample()
            assert calls.history()[-1].value == sum(expected.values())
            assert program.say("unload") == "unloaded"
            assert session.metrics.refresh() == []
        if by_function:
            by = {path.split("/")[-1]: count for path, count in calls.by_function().items()}
            assert by == expected
        calls.remove()
        latency.remove()
        assert calls.value == sum(expected.values())


def test_a_part_of_the_program_that_is_loaded_later(build: Build) -> None:
    constrained = """
        import "constraints.mdl";
        list leaves is procedure { items { "plugged_leaf", "calls_plugin" }; }
        metric leaf_calls {
          constraint procedure;
          base is counter {
            foreach func in leaves append preInsn func.entry constrained (* leaf_calls++; *)
          }
        }
    """
    with lockstep(build("plugging"), 2) as program, weft.attach(program.pid) as session:
        session.load_metrics(constrained)
        inside = session.metric("leaf_calls", PLUGGED)
        assert program.batch(10)["calls_plugin"] == inside.value
        assert program.say("load") == "loaded"
        assert session.metrics.refresh()
        before = inside.value
        counts = program.batch(50)
        assert isinstance(inside.value, int) and isinstance(before, int)
        assert inside.value - before == counts["plugged_leaf"] + counts["calls_plugin"]


def test_a_sample_looks_for_libraries(build: Build) -> None:
    with lockstep(build("plugging"), 1) as program, weft.attach(program.pid) as session:
        calls = session.metric("calls", PLUGGED)
        assert program.say("load") == "loaded"
        for _ in calls.stream(interval=0.3, limit=2):
            pass
        counts = program.batch(20)
        assert calls.value == sum(counts.values())


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
