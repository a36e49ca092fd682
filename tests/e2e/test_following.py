"""Probes follow their target: into libraries that it loads, programs that it becomes, children."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import weft
from tests.e2e.harness import Background, code, eventually
from tests.e2e.test_probes import Build
from tests.lockstep import lockstep
from tests.probing import Kind
from weft import errors

COUNTER = "counter calls; calls += 1"
KINDS: list[Kind] = ["entry", "exit", "call", "after", "block"]


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


def test_more_children_than_are_kept_apart(build: Build) -> None:
    snippet = """
        counter calls; histogram sizes log2; map by_size[1] 8; map pairs[2] 8
        calls += 1; sizes << arg(0) & 1; by_size[arg(0) & 1] += 1; pairs[arg(0) & 1, 7] += 1
    """
    with lockstep(build("forks"), 2) as program, weft.attach(program.pid) as session:
        family = session.insert("/Code/forks/in_family", snippet)
        timed = session.insert("/Code/forks/in_family", "timer t wall\nstart t; stop t")
        counted: Counter[str] = Counter()
        for _ in range(6):
            counted.update(program.batch(150))
            own, all_of_it = counted["in_family"], counted["forked_in_family"]
            all_of_it += own
            assert family.value("calls") == own
            assert family.value("calls", process="all") == all_of_it
            assert sum(family.values("calls", process="all").values()) == all_of_it
            sizes = family.value("sizes", process="all")
            assert isinstance(sizes, weft.Histogram)
            assert sizes.count == all_of_it
            by_size = family.value("by_size", process="all")
            pairs = family.value("pairs", process="all")
            assert isinstance(by_size, dict) and isinstance(pairs, dict)
            assert sum(by_size.values()) == sum(pairs.values()) == all_of_it
            assert by_size.keys() == {0, 1} and pairs.keys() == {(0, 7), (1, 7)}
            timer = timed.value(process="all")
            assert isinstance(timer, weft.Timer)
            assert timer.count == all_of_it
        assert counted["forked_in_family"] > 5 * 1024
        assert len(family.processes()) < 1024
        assert not family.is_crowded
        with pytest.raises(errors.InvalidArgument, match="a thread is one process's"):
            family.value("calls", process="all", thread=1)


def test_more_threads_than_there_is_room_for() -> None:
    start = "threading.Thread(target=lambda: [time.sleep(0.1) for _ in range(600)]).start()"
    script = f"import threading, time\nthreading.stack_size(1 << 16)\nfor _ in range(1100): {start}"
    with subprocess.Popen(
        [sys.executable, "-c", f"{script}\nprint()"], stdout=subprocess.PIPE
    ) as busy:
        assert busy.stdout is not None
        busy.stdout.readline()
        with weft.attach(busy.pid) as session:
            probe = session.insert("/Code/libc.so.6/clock_nanosleep", COUNTER)
            eventually(lambda: probe.is_crowded)
            # A thread that has found room may not have begun to count.
            eventually(lambda: len(probe.threads()) == 1022)
        busy.kill()


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


LATER = {
    "in other code": ("/Code/libc.so.6/*", COUNTER),
    "with many values": ("/Code/bash/*", "map words[1] 65536; words[1] += 1"),
}
"""Probes that need memory which counters in bash do not need: where, and what they do."""


@pytest.mark.parametrize("what", LATER)
def test_a_child_without_the_memory_of_later_probes(what: str) -> None:
    """A child that was forked before memory came must not be led there."""
    pattern, snippet = LATER[what]
    script = "(while :; do x=$((x + 1)); printf -v y %s $x; done) & echo $!; read; kill $!"
    with subprocess.Popen(
        ["bash", "-c", f"read; {script}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        with weft.attach(process.pid) as session:
            first = session.insert("/Code/bash/*", COUNTER)
            process.stdin.write(b"\n")
            process.stdin.flush()
            child = int(process.stdout.readline())

            def counted() -> int:
                return sum(first.values(process=child).values())

            def goes_on_counting() -> bool:
                before = counted()
                eventually(lambda: counted() > before)
                return True

            assert goes_on_counting()
            later = session.insert(pattern, snippet)
            for probe in (later, first):
                probe.disable()
                probe.enable()
            later.remove()
            assert goes_on_counting(), "there is nothing left that the child has not the memory for"
        # It fails if the child has ended.
        process.stdin.write(b"\n")
        process.stdin.flush()
        assert process.wait() == 0


TENANT = """
import ctypes, os
FIXED_NOREPLACE, ANONYMOUS, PRIVATE = 0x100000, 0x20, 2
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, *[ctypes.c_size_t] * 3, ctypes.c_int, ctypes.c_size_t]
print("ready", flush=True)
os.read(0, 100)
if child := os.fork():
    print(child, flush=True)
    os._exit(os.waitstatus_to_exitcode(os.wait()[1]))
at = int(os.read(0, 100))
assert libc.mmap(at, 4096, 3, FIXED_NOREPLACE | ANONYMOUS | PRIVATE, -1, 0) == at
ctypes.memset(at, 7, 4096)
print("mapped", flush=True)
os.read(0, 100)
os._exit(0 if ctypes.string_at(at, 4096) == bytes([7]) * 4096 else 1)
"""


def test_what_a_child_has_mapped_itself_is_left_to_it() -> None:
    """Where the parent has memory of weft's that came later, the child may have its own."""
    with subprocess.Popen(
        [sys.executable, "-c", TENANT], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        stdin, stdout = parent.stdin, parent.stdout
        assert stdin is not None and stdout is not None

        def say(text: str) -> str:
            stdin.write(text.encode())
            stdin.flush()
            return stdout.readline().decode().strip()

        assert say("") == "ready"
        with weft.attach(parent.pid) as session:
            session.insert("/Code/libc.so.6/getppid", COUNTER)
            child = int(say("fork"))
            session.insert("/Code/libc.so.6/getppid", LATER["with many values"][1])
            [at] = values(parent.pid) - values(child)
            assert say(str(at)) == "mapped"
        assert not values(parent.pid) | values(child)
        stdin.close()
        assert parent.wait() == 0


def change_and_change(session: weft.Session, chance: random.Random) -> None:
    """Weave some functions of a program and of its library, over and over.

    Its children are born with all the memory that is needed.
    """
    points = [
        point
        for pattern in ("/Code/broods/*", "/Code/libc.so.6/*fork*", "/Code/libc.so.6/epoll*")
        for kind in KINDS
        for point in session.points(pattern, kind)
    ]
    session.insert(points, COUNTER)
    for _ in range(5):
        probe = session.insert(chance.sample(points, len(points) // 2), COUNTER)
        probe.disable()
        probe.enable()
        probe.remove()


@pytest.mark.watchdog(300)
@pytest.mark.parametrize(("megabytes", "rounds"), [(0, 8), (300, 10)])
def test_children_are_born_while_code_changes(build: Build, megabytes: int, rounds: int) -> None:
    """At whatever moment of a change a child is born, its code is whole."""
    chance = random.Random(1)
    with Background([build("broods"), str(megabytes)]) as parent:
        try:
            for _ in range(rounds):
                with weft.attach(parent.pid) as session:
                    change_and_change(session, chance)
        finally:
            # What it says of itself is the better message, should it have ended too soon.
            status, output = parent.finish()
            assert status == 0, output


def test_children_are_left_while_others_are_born(build: Build) -> None:
    """A child that is not asked for keeps its probes, and what they need."""
    with Background([build("broods")]) as parent:
        with weft.attach(parent.pid) as session:
            session.insert("/Code/broods/*", COUNTER)
            for _ in range(50):
                session.leave_children()
        status, output = parent.finish()
        assert status == 0, output


def test_values_outlive_the_target() -> None:
    with weft.run(["bash", "-c", "exit 3"]) as session:
        probe = session.insert("/Code/bash/main", COUNTER)
        assert session.wait() == 3
        assert probe.value() == 1
    assert probe.value() == 1


def test_a_target_that_has_ended_is_gone() -> None:
    """It is not that its files are missing, or that it has no such code."""
    with subprocess.Popen(["bash", "-c", "read"], stdin=subprocess.PIPE) as process:
        session = weft.attach(process.pid)
        points = session.points("/Code/bash/*")
        process.kill()
        process.wait()
        with pytest.raises(errors.TargetGone):
            session.program()
        with pytest.raises(errors.TargetError):
            session.points("/Code/bash/*")
        with pytest.raises(errors.TargetError):
            session.insert(points, COUNTER)
        session.detach()


def values(pid: int) -> set[int]:
    """Return where a process has memory that probes measure into."""
    maps = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return {int(line.split("-")[0], 16) for line in maps if "/memfd:weft-values" in line}


def is_woven(pid: int) -> bool:
    return "/memfd:weft-probes" in Path(f"/proc/{pid}/maps").read_text()
