"""Several wefts, and several sessions of one, on one target: each function has one owner.

The program counts its own calls (``tests/lockstep.py``), so every owner's values are known; and
whatever comes and goes in whatever order, its code is what it was in the end.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import weft
from tests.clone import session_of
from tests.e2e.harness import Background, code, eventually, status
from tests.invariants import invariants
from tests.lockstep import Lockstep, lockstep
from tests.others import Other
from tests.probing import COUNTER
from weft import _native, debug
from weft.errors import AlreadyTraced, InvalidArgument, UnsupportedTarget

Build = Callable[[str], Path]

NORMAL, TINY, SWITCHING = (f"/Code/counts/{name}" for name in ("normal", "tiny", "switching"))
FOUR = "/Code/counts/four_bytes"
OWNED = "has probes in this function"


@contextmanager
def left_as_it_was(build: Build, threads: int = 2) -> Iterator[Lockstep]:
    """Run a program; its code must be the same in the end, and it has to work."""
    with lockstep(build("counts"), threads) as program:
        program.batch(1)
        before = code(program.pid)
        yield program
        assert code(program.pid) == before
        program.batch(10)


# --- Two wefts ----------------------------------------------------------------------------------


@pytest.mark.parametrize("first_to_leave", ["first", "second"])
def test_a_function_has_one_owner(build: Build, first_to_leave: str) -> None:
    with left_as_it_was(build) as program, Other.attached(program.pid) as other:
        assert other.say("insert", NORMAL) == "inserted"
        session = weft.attach(program.pid)
        with pytest.raises(AlreadyTraced, match=f"process {other.process.pid}"):
            session.insert(NORMAL, COUNTER)
        tiny = session.insert(TINY, COUNTER)
        counts = program.batch(10)
        assert int(other.say("value", NORMAL)) == counts["normal"]
        assert tiny.value() == counts["tiny"]
        if first_to_leave == "first":
            assert other.say("detach") == "detached"
            program.batch(10)
            # It is free now.
            normal = session.insert(NORMAL, COUNTER)
            assert program.batch(10)["normal"] == normal.value() != 0
            session.detach()
        else:
            session.detach()
            program.batch(10)
            assert other.say("insert", TINY) == "inserted"
            assert int(other.say("value", TINY)) == 0
            assert program.batch(10)["tiny"] == int(other.say("value", TINY))
            assert other.say("detach") == "detached"


def test_neighbours_and_whole_programs(build: Build) -> None:
    """Tiny functions one right behind the other; and what is free of a whole program."""
    with left_as_it_was(build) as program, Other.attached(program.pid) as other:
        assert other.say("insert", "/Code/counts/f*_bytes") == "inserted"
        with weft.attach(program.pid) as session:
            probe = session.insert("/Code/counts/*", COUNTER)
            reasons = {r.point.function: r.reason for r in probe.refused}
            assert OWNED in reasons["four_bytes"]
            assert OWNED in reasons["five_bytes"]
            counts = program.batch(10)
            found = {point.function: value for point, value in probe.values().items()}
            wrong = {
                name: (found[name], count)
                for name, count in counts.items()
                if name in found and found[name] != count
            }
            assert wrong == {}
            assert "normal" in found
            assert other.say("detach") == "detached"
            program.batch(10)


def test_a_disabled_probe_keeps_its_function(build: Build) -> None:
    with left_as_it_was(build) as program, Other.attached(program.pid) as other:
        assert other.say("insert", NORMAL) == "inserted"
        assert other.say("disable", NORMAL) == "disabled"
        with weft.attach(program.pid) as session:
            with pytest.raises(AlreadyTraced):
                session.insert(NORMAL, COUNTER)
            assert other.say("enable", NORMAL) == "enabled"
            assert program.batch(10)["normal"] == int(other.say("value", NORMAL))
            assert other.say("remove", NORMAL) == "removed"
            # Nobody is in it any more, so it is free.
            probe = session.insert(NORMAL, COUNTER)
            assert program.batch(10)["normal"] == probe.value() != 0
        assert other.say("detach") == "detached"


def test_a_probe_that_cannot_come_back_says_so(build: Build) -> None:
    """While it is disabled, another weft may take the padding that it needs."""
    with left_as_it_was(build) as program, Other.attached(program.pid) as other:
        with weft.attach(program.pid) as session:
            probe = session.insert(FOUR, COUNTER)
            assert probe.completeness.is_exact
            counts = program.batch(10)
            probe.disable()
            assert other.say("insert", "/Code/counts/*") == "inserted"
            probe.enable()
            (refusal,) = probe.refused
            assert refusal.point.function == "four_bytes"
            assert not probe.completeness.is_exact
            assert list(probe.values().values()) == [counts["four_bytes"]] != [0]
        assert other.say("detach") == "detached"


def test_a_metric_that_the_budget_cannot_bring_back_says_so(build: Build) -> None:
    with left_as_it_was(build) as program, Other.attached(program.pid) as other:
        with weft.attach(program.pid) as session:
            metric = session.metric("calls", FOUR)
            counts = program.batch(10)
            session.metrics.sample()
            assert metric.history()[-1].completeness.is_exact
            assert metric.value == counts["four_bytes"] != 0
            assert metric.node is not None
            # As the budget does.
            session._target.set_probes_enabled(metric.node.numbers, False)
            assert other.say("insert", "/Code/counts/*") == "inserted"
            session._target.set_probes_enabled(metric.node.numbers, True)
            session.metrics.sample()
            newest = metric.history()[-1].completeness
            assert [one.where for one in newest.missing] == [FOUR]
            assert metric.completeness == newest
        assert other.say("detach") == "detached"


def test_a_killed_weft_gives_its_functions_to_one_that_is_there(build: Build) -> None:
    with left_as_it_was(build) as program, weft.attach(program.pid) as session:
        with Other.attached(program.pid) as other:
            assert other.say("insert", NORMAL) == "inserted"
            with pytest.raises(AlreadyTraced):
                session.insert(NORMAL, COUNTER)
            other.kill()
        probe = session.insert(NORMAL, COUNTER)
        assert program.batch(10)["normal"] == probe.value() != 0
        # What is left of its agent is for the next that attaches.
        with weft.attach(program.pid):
            pass


def _has_living_threads(pid: int) -> bool:
    found = status(pid)
    return not found["State"].startswith("Z") or found["Threads"] != "1"


def test_a_killed_weft_that_nobody_waits_for_is_dead(build: Build) -> None:
    """Its parent may not ask for its exit code for long, or never."""
    with left_as_it_was(build) as program, Other.attached(program.pid) as other:
        assert other.say("insert", NORMAL) == "inserted"
        other.process.kill()
        # Its first thread may have ended before the others.
        eventually(lambda: not _has_living_threads(other.process.pid))
        with weft.attach(program.pid) as session:
            probe = session.insert(NORMAL, COUNTER)
            assert program.batch(10)["normal"] == probe.value() != 0
        assert "weft-" not in Path(f"/proc/{program.pid}/maps").read_text().replace(
            str(build("counts")), ""
        )


def test_busy_threads_and_quick_wefts(build: Build) -> None:
    """Two wefts at the same time: neither fails because the other holds the process."""
    with left_as_it_was(build, 4) as program, Other.attached(program.pid) as other:
        program.go()
        with weft.attach(program.pid) as session:
            for _ in range(10):
                assert other.say("insert", NORMAL) == "inserted"
                probe = session.insert(TINY, COUNTER)
                assert other.say("remove", NORMAL) == "removed"
                probe.remove()
        program.rest()
        assert other.say("detach") == "detached"


@pytest.mark.parametrize("command", ["clone", "debug"])
def test_no_clone_of_a_program_with_probes(build: Build, command: str) -> None:
    with left_as_it_was(build) as program, Other.attached(program.pid) as other:
        assert other.say("insert", NORMAL) == "inserted"
        with pytest.raises(AlreadyTraced, match=f"process {other.process.pid}"):
            if command == "clone":
                weft.attach(program.pid, weaver="clone")
            else:
                debug.attach(program.pid)
        assert program.batch(10)["normal"] == int(other.say("value", NORMAL))
        assert other.say("detach") == "detached"


def test_no_probes_in_a_clone_of_another(build: Build) -> None:
    with left_as_it_was(build) as program, weft.attach(program.pid, weaver="clone") as cloned:
        done = subprocess.run(
            [sys.executable, "-m", "weft", "attach", str(program.pid), "-m", f"calls@{NORMAL}"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 3
        assert f"process {os.getpid()}" in done.stderr
        assert cloned.stats().blocks > 0


def test_a_clone_after_a_killed_weft(build: Build) -> None:
    with left_as_it_was(build) as program:
        with Other.attached(program.pid) as other:
            assert other.say("insert", NORMAL) == "inserted"
            other.kill()
        with weft.attach(program.pid, weaver="clone") as cloned:
            program.batch(10)
            assert cloned.stats().blocks > 0


# --- A process that is a weft itself --------------------------------------------------------------


OWN_WEAVERS = pytest.mark.parametrize("own_weaver", ["attach", "take_over"])


@OWN_WEAVERS
def test_a_weft_is_a_target_like_any_other(build: Build, own_weaver: str) -> None:
    """It maps what it shares with its target, too, and needs it."""
    with left_as_it_was(build) as program, Other() as other:
        assert other.say(own_weaver, str(program.pid)) == "attached"
        assert other.say("insert", NORMAL) == "inserted"
        with weft.attach(other.process.pid) as session:
            calls = session.insert("/Code/libc.so.6/malloc", COUNTER)
            program.batch(10)
            assert other.say("value", NORMAL).isdigit()
            assert calls.value() != 0
        counts = program.batch(10)
        assert int(other.say("value", NORMAL)) >= counts["normal"] > 0
        # For this it has its target do something.
        assert other.say("insert", TINY) == "inserted"
        counts = program.batch(10)
        assert int(other.say("value", TINY)) == counts["tiny"]
        # What it shares with its targets has the names of what a clone would leave.
        with pytest.raises(UnsupportedTarget, match="is a weft"):
            weft.attach(other.process.pid, weaver="clone")
        assert other.say("detach") == "detached"


@OWN_WEAVERS
def test_a_child_of_a_killed_weft_loses_nothing(build: Build, own_weaver: str) -> None:
    """It was forked with what its parent shared with a target, which is nothing in its own code."""
    with left_as_it_was(build) as program, Other() as other:
        assert other.say(own_weaver, str(program.pid)) == "attached"
        assert other.say("insert", NORMAL) == "inserted"
        child = int(other.say("bear"))
        try:
            other.kill()
            maps = Path(f"/proc/{child}/maps")
            before = [line for line in maps.read_text().splitlines() if "/memfd:weft" in line]
            assert before
            weft.attach(child).detach()
            after = [line for line in maps.read_text().splitlines() if "/memfd:weft" in line]
            assert after == before
        finally:
            os.kill(child, signal.SIGKILL)
        # What the killed one has left in its own target goes all the same.
        weft.attach(program.pid).detach()


# --- A thread that sleeps in the code of a weft that was killed ----------------------------------


@pytest.mark.parametrize("weaver", ["patch", "clone"])
def test_who_sleeps_in_the_code_of_a_killed_weft_is_in_nobodys_way(
    build: Build, weaver: str
) -> None:
    """It may do so for ever; the next weft does not wait for it, and leaves what it will need.

    In Go the functions that make system calls are so short that they are moved as a whole, and a
    thread waits in one for the program's input.
    """
    with Background([build("goroutines")]) as program:
        before = code(program.pid)
        with Other.attached(program.pid) as other:
            assert other.say("measure", "syscalls") == "measured"
            other.kill()
        for _ in range(2):
            with session_of(program.pid, weaver) as session:
                # They are changed no more, and belong to whoever is still to wake there.
                if weaver == "patch":
                    with pytest.raises(AlreadyTraced, match="a weft that was killed"):
                        session.metric("syscalls", allow_incomplete=True)
                else:
                    again = session.metric("syscalls", allow_incomplete=True)
                    time.sleep(0.1)
                    assert again.value
            assert code(program.pid) == before
        # Nobody is told that nothing is left.
        done = subprocess.run(
            [sys.executable, "-m", "weft", "attach", str(program.pid)],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0 and "another weft's" in done.stdout
        assert program.finish() == (7, "ready\nall goroutines are home\n")


# --- A clone whose weft was killed ---------------------------------------------------------------

CLONER = """
import sys, weft
cloned = weft.attach(int(sys.argv[1]), weaver="clone", records=sys.argv[2])
cloned.session.insert("/Code/counts/normal", "counter calls; calls += 1")
print("ready", flush=True)
sys.stdin.read()
"""


def kill_a_cloner(pid: int, records: str = "nothing") -> None:
    """Have a weft take a process over, measure it, and be killed."""
    command = [sys.executable, "-c", CLONER, str(pid), records]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.kill()


@pytest.mark.parametrize("records", ["nothing", "counts"])
@pytest.mark.parametrize("next_one", ["patch", "clone", "debug"])
def test_the_next_weft_gives_it_back(build: Build, next_one: str, records: str) -> None:
    with lockstep(build("counts"), 2) as program:
        program.batch(1)
        maps = Path(f"/proc/{program.pid}/maps")
        before = maps.read_text()
        kill_a_cloner(program.pid, records)
        program.batch(10)
        assert "weft-clone" in maps.read_text()
        if next_one == "patch":
            with weft.attach(program.pid) as session:
                probe = session.insert(NORMAL, COUNTER)
                assert program.batch(10)["normal"] == probe.value() != 0
        elif next_one == "clone":
            with weft.attach(program.pid, weaver="clone") as cloned:
                probe = cloned.session.insert(NORMAL, COUNTER)
                assert program.batch(10)["normal"] == probe.value() != 0
        else:
            with debug.attach(program.pid):
                pass
        # Memory of the program's own may have grown or been split meanwhile.
        assert "weft" not in maps.read_text().replace(before, "")
        program.batch(10)


def test_a_killed_clone_is_shown(build: Build) -> None:
    with lockstep(build("counts"), 1) as program:
        kill_a_cloner(program.pid)
        (seen,) = (one for one in _native.processes() if one["pid"] == program.pid)
        assert seen["attachable"]
        assert "clone of a weft that was killed" in seen["wefts"]
        (check,) = (c for c in _native.doctor(program.pid) if "other wefts" in c["name"])
        assert check["status"] == "ok"
        assert "clone of a weft that was killed" in check["detail"]
        with weft.attach(program.pid):
            (seen,) = (one for one in _native.processes() if one["pid"] == program.pid)
            assert "another session of this process" in seen["wefts"]
        program.batch(1)


# --- A weft that is killed while it takes a process over ------------------------------------------

TAKING_OVER = """
import os, signal, sys, weft
for line in sys.stdin:
    victim = os.fork()
    if victim == 0:
        kept = weft.attach(int(line), weaver="clone")
        print("taken", flush=True)
        signal.pause()
    print(victim, flush=True)
    os.waitpid(victim, 0)
    print("dead", flush=True)
"""


class Takeovers:
    """Wefts that take a process over, one after the other; each is killed."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._orders, self._answers = process.stdin, process.stdout

    def kill_one(self, pid: int, after: float | None) -> float:
        """Have one take a process over, and kill it after a time, or when it is done.

        Returns how long it had.
        """
        self._orders.write(f"{pid}\n")
        self._orders.flush()
        victim = int(self._answers.readline())
        begin = time.perf_counter()
        if after is None:
            assert self._answers.readline() == "taken\n"
        while after is not None and time.perf_counter() < begin + after:
            pass
        duration = time.perf_counter() - begin
        os.kill(victim, signal.SIGKILL)
        while self._answers.readline() != "dead\n":
            pass
        return duration


@contextmanager
def takeovers() -> Iterator[Takeovers]:
    """Have such wefts for as long as the block takes."""
    with subprocess.Popen(
        [sys.executable, "-c", TAKING_OVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield Takeovers(process)
        finally:
            process.kill()


def typical(pid: int, wefts: Takeovers) -> float:
    """Return how long it takes to take a process over that no weft has left anything in."""
    durations = []
    for _ in range(3):
        durations.append(wefts.kill_one(pid, None))
        with weft.attach(pid, weaver="clone"):
            pass
    return sorted(durations)[1]


def mapped(pid: int) -> int:
    """How much memory a process has mapped that is not its heap; fail if some of it is weft's."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    assert not [line for line in lines if "/memfd:weft" in line]
    ranges = (line.split()[0].split("-") for line in lines if "[" not in line)
    return sum(int(end, 16) - int(start, 16) for start, end in ranges)


@pytest.mark.watchdog(300)
@pytest.mark.parametrize("next_one", ["clone", "patch"])
def test_a_takeover_can_be_killed_at_any_moment(build: Build, next_one: str) -> None:
    """With all its threads in the clone or none, the program works on, and can be attached to."""
    moments = int(os.environ.get("WEFT_MOMENTS", "20"))
    with left_as_it_was(build, 3) as program, takeovers() as wefts:
        with weft.attach(program.pid, weaver="clone"):
            program.batch(1)
        before = mapped(program.pid)
        duration = typical(program.pid, wefts)
        for moment in range(moments):
            program.go()
            wefts.kill_one(program.pid, duration * moment / moments)
            (check,) = (c for c in _native.doctor(program.pid) if "other wefts" in c["name"])
            assert check["status"] == "ok", check
            program.rest()
            program.batch(1)
            if next_one == "clone":
                with weft.attach(program.pid, weaver="clone") as cloned:
                    probe = cloned.session.insert(NORMAL, COUNTER)
                    assert program.batch(10)["normal"] == probe.value() != 0
            else:
                with weft.attach(program.pid) as session:
                    probe = session.insert(NORMAL, COUNTER)
                    assert program.batch(10)["normal"] == probe.value() != 0
            assert mapped(program.pid) == before, f"after moment {moment} of {moments}"


def test_a_killed_takeover_disturbs_nobody(build: Build) -> None:
    """No sleep is cut short, and no signal finds a thread that is neither here nor there."""
    moments = int(os.environ.get("WEFT_MOMENTS", "10"))
    with invariants(build("invariants"), 8, 0) as target, takeovers() as wefts:
        duration = typical(target.pid, wefts)
        for moment in range(moments):
            # One that was not killed puts it in order, so that the next is killed in a takeover.
            with weft.attach(target.pid, weaver="clone"):
                target.check()
            wefts.kill_one(target.pid, duration * moment / moments)
            target.check()
        with weft.attach(target.pid, weaver="clone"):
            target.check()
        target.rest()
        mapped(target.pid)
        target.go()
        target.stop()


# --- A weft that is killed while it gives a process back ------------------------------------------

GIVING_BACK = """
import os, sys, weft
for line in sys.stdin:
    victim = os.fork()
    if victim == 0:
        with weft.attach(int(line), weaver="clone"):
            print(os.getpid(), flush=True)
        os._exit(0)
    os.waitpid(victim, 0)
    print("dead", flush=True)
"""


@pytest.mark.watchdog(300)
def test_giving_back_can_be_killed_at_any_moment(build: Build) -> None:
    """Threads in the clone and out of it get on, with their signals; the next weft ends it."""
    moments = int(os.environ.get("WEFT_MOMENTS", "20"))
    with (
        invariants(build("invariants"), 8, 0) as target,
        subprocess.Popen(
            [sys.executable, "-c", GIVING_BACK],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as wefts,
    ):
        assert wefts.stdin is not None and wefts.stdout is not None
        duration = 0.0
        for moment in range(-3, moments):
            wefts.stdin.write(f"{target.pid}\n")
            wefts.stdin.flush()
            victim = int(wefts.stdout.readline())
            begin = time.perf_counter()
            if moment >= 0:
                while time.perf_counter() < begin + duration * moment / moments:
                    pass
                with suppress(ProcessLookupError):
                    os.kill(victim, signal.SIGKILL)
            assert wefts.stdout.readline() == "dead\n"
            if moment < 0:
                duration = max(duration, time.perf_counter() - begin)
            target.check()
            with weft.attach(target.pid, weaver="clone"):
                target.check()
        wefts.stdin.close()
        target.rest()
        mapped(target.pid)
        target.go()
        target.stop()


# --- Two sessions of one process ----------------------------------------------------------------


def test_a_cell_that_is_run_twice(build: Build) -> None:
    with left_as_it_was(build) as program:
        session = weft.attach(program.pid)
        first = session.insert(NORMAL, COUNTER)
        session = weft.attach(program.pid)
        # The first session is still there: its probe is.
        with pytest.raises(AlreadyTraced, match="another session of this process"):
            session.insert(NORMAL, COUNTER)
        assert program.batch(10)["normal"] == first.value() != 0
        del first
        again = session.insert(NORMAL, COUNTER)
        assert program.batch(10)["normal"] == again.value() != 0
        session.detach()


# --- Forked children of the measuring process ---------------------------------------------------


def in_child(act: Callable[[], None]) -> int:
    """Do something in a forked child, and return its exit code."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            act()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.parametrize("how", ["detach", "drop", "exit"])
def test_a_forked_child_takes_nothing_out(build: Build, how: str) -> None:
    with left_as_it_was(build) as program, weft.attach(program.pid) as session:
        probe = session.insert(NORMAL, COUNTER)
        metric = session.metric("calls", TINY)
        held = [session]

        def act() -> None:
            if how == "detach":
                session.detach()
            elif how == "drop":
                del held[:]
                session.__dict__.clear()
                probe.__dict__.clear()
                metric.__dict__.clear()
            else:
                with session:
                    pass

        assert in_child(act) == 0
        counts = program.batch(10)
        assert probe.value() == counts["normal"] != 0
        session.metrics.sample()
        assert metric.value == counts["tiny"] != 0
        late = session.insert(SWITCHING, COUNTER)
        assert program.batch(10)["switching"] == late.value() != 0


def test_a_forked_child_cannot_use_the_session(build: Build) -> None:
    with left_as_it_was(build) as program, weft.attach(program.pid) as session:
        probe = session.insert(NORMAL, COUNTER)
        metric = session.metric("calls", TINY)

        def act() -> None:
            message = f"belongs to process {os.getppid()}"
            for use in (
                lambda: session.insert(TINY, COUNTER),
                lambda: probe.value(),
                lambda: probe.remove(),
                lambda: metric.value,
                lambda: session.metrics.sample(),
                lambda: session.metric("calls", SWITCHING),
                lambda: session.ping(),
                lambda: session.move_to_clone(),
            ):
                with pytest.raises(InvalidArgument, match=message):
                    use()

        assert in_child(act) == 0
        assert program.batch(10)["normal"] == probe.value() != 0


def test_a_forked_child_leaves_the_clone(build: Build) -> None:
    with left_as_it_was(build) as program, weft.attach(program.pid, weaver="clone") as cloned:
        probe = cloned.session.insert(NORMAL, COUNTER)

        def act() -> None:
            with pytest.raises(InvalidArgument):
                cloned.release()
            with pytest.raises(InvalidArgument):
                cloned.stats()
            with cloned:
                pass
            cloned.__dict__.clear()

        assert in_child(act) == 0
        assert program.batch(10)["normal"] == probe.value() != 0


def test_a_held_program_is_not_let_go_by_a_child(build: Build) -> None:
    with weft.run([build("counts"), "1", "10"], stdout=subprocess.DEVNULL) as session:
        session.run_to_entry()
        probe = session.insert(NORMAL, COUNTER)
        assert in_child(session.detach) == 0
        assert session.wait() == 7
        assert probe.value() != 0


def test_exporters_end_with_their_process(build: Build) -> None:
    from weft.export.metrics import prometheus
    from weft.export.metrics.values import Subject
    from weft.model.measured import TargetFacts

    with left_as_it_was(build) as program, weft.attach(program.pid) as session:
        metric = session.metric("calls", NORMAL)
        subject = Subject.of_process(TargetFacts(program.pid, session.program(), ()))
        with prometheus.serve("127.0.0.1:0", lambda: [(subject, [metric])]) as server:
            assert in_child(server.close) == 0
            import urllib.request

            assert "weft_calls_total" in urllib.request.urlopen(server.url).read().decode()


def test_a_signalled_weft_leaves_others_alone(build: Build) -> None:
    """A weft that ends by a signal in the middle of its turn keeps nobody waiting."""
    with left_as_it_was(build, 4) as program:
        program.go()
        for _ in range(5):
            with Other.attached(program.pid) as other:
                assert other.process.stdin is not None
                other.process.stdin.write(f"insert {NORMAL}\n" * 1)
                other.process.stdin.flush()
                other.process.send_signal(signal.SIGKILL)
            with weft.attach(program.pid) as session:
                session.insert(NORMAL, COUNTER)
        program.rest()
