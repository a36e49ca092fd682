"""Functions without room for a jump at their exits are laid out anew, and counted exactly."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import weft
from tests.clone import session_of
from tests.e2e.harness import Background, code, eventually
from weft.control.probes import Probe
from weft.model.values import Timer

Build = Callable[[str], Path]

BUILDS = [f"cramped_{compiler}{level}" for compiler in "gc" for level in "0123s"]
NAMES = (
    *("leaf", "twice", "last", "choose", "recurse", "sum", "pass", "throw_some", "catch_all"),
    *("blocked", "calls_back"),
)
COUNTER = "counter n; n += 1"
TIMER = "timer t wall; at entry { start t }; at exit { stop t }"

every_build = pytest.mark.parametrize("name", BUILDS)


class Cramped(Background):
    """The program, see ``tests/programs/cramped.cpp``."""

    def ask(self, command: object) -> list[str]:
        """Give it a command, and return what it prints."""
        assert self.process.stdin
        self.output = b""
        self.process.stdin.write(f"{command}\n".encode())
        self.process.stdin.flush()
        self.wait_for_line(b"done")
        return self.output.decode().splitlines()[:-1]

    def counts(self, rounds: int) -> dict[str, tuple[int, int]]:
        """Have it work, and return how often each function has been entered and left so far."""
        lines = (line.split() for line in self.ask(rounds))
        return {name: (int(calls), int(exits)) for name, calls, exits in lines}


@contextmanager
def cramped(program: Path) -> Iterator[Cramped]:
    """Start the program; in the end its code must be what it was, and all of its sums right."""
    running = Cramped([program])
    with running:
        before = code(running.pid)
        yield running
        assert code(running.pid) == before
        status, _ = running.finish()
        assert status == 0


def insert(session: weft.Session, kind: str) -> Probe:
    module = Path(session.program()).name
    points = session.points([f"/Code/{module}/{name}" for name in NAMES], kind)  # type: ignore[arg-type]
    return session.insert(points, COUNTER)


def by_function(probe: Probe) -> Counter[str]:
    counts: Counter[str] = Counter()
    for point, count in probe.values("n").items():
        counts[point.function] += count
    return counts


def refused(probe: Probe) -> set[str]:
    return {refusal.point.function for refusal in probe.refused}


@every_build
def test_what_is_entered_is_seen_to_be_left(name: str, build: Build) -> None:
    with cramped(build(name)) as program:
        with weft.attach(program.pid) as session:
            entries = insert(session, "entry")
            exits = insert(session, "exit")
            calls = insert(session, "call")
            afters = insert(session, "after")
            insert(session, "block")
            assert not entries.refused
            # One byte behind a call, and the next function begins: `call leaf; ret`.
            tight = {"last"} if name == "cramped_g1" else set()
            for probe in (exits, calls):
                assert refused(probe) <= tight
            assert refused(afters) <= tight | {"choose"}
            if name in ("cramped_g1", "cramped_gs"):
                assert exits.tactics["relocated"] > 0
            truth = program.counts(500)
            for function in set(NAMES) - tight:
                seen = by_function(entries)[function], by_function(exits)[function]
                assert seen == truth[function], function
            called = 2 * truth["twice"][0]
            assert by_function(calls)["twice"] == by_function(afters)["twice"] == called
        again = program.counts(1)
        assert again["sum"][0] == truth["sum"][0] + 1


@pytest.mark.parametrize("weaver", ["patch", "clone"])
@pytest.mark.parametrize("is_alone", [True, False])
@every_build
def test_only_returns_are_counted_behind_calls(
    name: str, is_alone: bool, weaver: str, build: Build
) -> None:
    with cramped(build(name)) as program:
        # What has been translated already leads there as well.
        before = program.counts(7)
        with session_of(program.pid, weaver) as session:
            if not is_alone:
                insert(session, "block")
            calls = insert(session, "call")
            afters = insert(session, "after")
            truth = program.counts(500)
            called, returned = by_function(calls), by_function(afters)
            # The table of a `switch` may lead to where a call returns to.
            mixed = {one.point.function for one in afters.refused if "told apart" in one.reason}
            assert mixed <= {"choose"}
            tight = (refused(calls) | refused(afters)) - mixed
            assert tight <= ({"last"} if name == "cramped_g1" else set())

        def threw(function: str) -> int:
            entered, left = (
                now - then for now, then in zip(truth[function], before[function], strict=True)
            )
            return entered - left

        # What a function calls to throw does not return, nor does a function that throws.
        thrown = {"throw_some": "throw_some", "pass": "throw_some", "catch_all": "pass"}
        assert any(returned.values())
        for function in set(NAMES) - tight - mixed:
            expected = called[function] - (threw(thrown[function]) if function in thrown else 0)
            assert returned[function] == expected, function


def test_time_inside_is_that_of_the_calls(build: Build) -> None:
    with cramped(build("cramped_g1")) as program, weft.attach(program.pid) as session:
        module = Path(session.program()).name
        names = [name for name in NAMES if name not in ("last", "blocked")]
        timers = {name: session.insert(f"/Code/{module}/{name}", TIMER) for name in names}
        assert not any(timer.refused for timer in timers.values())
        used = Counter(tactic for timer in timers.values() for tactic in timer.tactics)
        assert used["relocated"] > 0
        truth = program.counts(500)
        busy = {name: timer.value() for name, timer in timers.items()}
        rest = {name: timer.value() for name, timer in timers.items()}
        assert busy == rest, "a timer runs though nobody is inside"
        for name, timer in busy.items():
            assert isinstance(timer, Timer)
            if name not in ("recurse", "throw_some", "pass"):
                assert timer.count == truth[name][1], name


@pytest.mark.parametrize("kind", ["exit", "block"])
def test_a_thread_waits_inside_while_probes_come_and_go(kind: str, build: Build) -> None:
    with cramped(build("cramped_g1")) as program:

        def block() -> None:
            program.ask("block")
            eventually(lambda: _is_reading(program.pid))

        block()
        with weft.attach(program.pid) as session:
            entries, exits = insert(session, "entry"), insert(session, kind)
            program.ask("unblock")
            assert by_function(entries)["blocked"] == 0
            assert by_function(exits)["blocked"] > 0
            if kind == "exit":
                assert by_function(exits)["blocked"] == 1
            block()
            assert by_function(entries)["blocked"] == 1
            exits.remove()
            program.ask("unblock")
            block()
        program.ask("unblock")


def _is_reading(pid: int) -> bool:
    """Whether a second thread sleeps in ``read``."""
    others = [task for task in Path(f"/proc/{pid}/task").iterdir() if int(task.name) != pid]
    calls = ((task / "syscall").read_text() for task in others)
    return any(call.startswith("0 ") for call in calls)


def test_signals_do_not_disturb_a_count(build: Build) -> None:
    with cramped(build("cramped_g1")) as program, weft.attach(program.pid) as session:
        entries, exits = insert(session, "entry"), insert(session, "exit")
        done = threading.Event()

        def disturb() -> None:
            while not done.is_set():
                os.kill(program.pid, signal.SIGUSR1)

        thread = threading.Thread(target=disturb)
        thread.start()
        try:
            truth = program.counts(3000)
        finally:
            done.set()
            thread.join()
        for function in set(NAMES) - {"last"}:
            seen = by_function(entries)[function], by_function(exits)[function]
            assert seen == truth[function], function


@pytest.mark.parametrize("name", ["cramped_g1", "cramped_gs", "cramped_c1"])
def test_probes_come_and_go_while_it_works(name: str, build: Build) -> None:
    random_ = random.Random(name)
    with cramped(build(name)) as program:
        program.counts(1)
        with weft.attach(program.pid) as session:
            entries = insert(session, "entry")
            enough = threading.Event()
            truth: dict[str, tuple[int, int]] = {}

            def work() -> None:
                # The program works until there were enough changes, however slow those are.
                while not enough.is_set():
                    truth.update(program.counts(1_000))

            thread = threading.Thread(target=work)
            thread.start()
            try:
                probes: list[Probe] = []
                for _ in range(20):
                    if len(probes) > 3 or (probes and random_.random() < 0.4):
                        probes.pop(random_.randrange(len(probes))).remove()
                    else:
                        kind = random_.choice(["exit", "call", "after", "block", "insn", "edge"])
                        probes.append(insert(session, kind))
            finally:
                enough.set()
                thread.join()
            # The first round was before the probe.
            assert by_function(entries)["sum"] == truth["sum"][0] - 1
            assert by_function(entries)["leaf"] == truth["leaf"][0] - FIRST_LEAVES


FIRST_LEAVES = 2 + 1 + 1 + 0 + 0 + 1 + 2
"""How often one round, the first, calls `leaf`: see ``round_of``."""
