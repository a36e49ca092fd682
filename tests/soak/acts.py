"""What the random driver does: each act is chosen by dice, done to a real program, and judged.

The dice choose everything that can be chosen, so an act can be done again by its seed. Verdicts are
those of :mod:`tests.matrix`.
"""

from __future__ import annotations

import json
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.e2e.builder import Builder
from tests.e2e.harness import PROGRAMS, Background, answers, code, free_port, server, status
from tests.lockstep import Lockstep, lockstep, parse_counts
from tests.matrix.cells import (
    REFUSALS,
    Verdict,
    When,
    Wrong,
    at_moment,
    check_output,
    first_error,
    on_full_disk,
    time_to_begin,
    under_limit,
)
from tests.matrix.commands import COMMANDS, Command, Running, covered, profiled, traced
from tests.matrix.situations import MOMENTS, SITUATIONS
from tests.matrix.target import Harmed
from tests.zoo.exhibits import EXHIBITS
from tests.zoo.running import compare

COUNTING = ("counts", "counts_static", "counts_musl", "counts_cpp", "counts_rs", "counts_go")
"""Programs that count their own calls."""
PLAIN = ("normal", "floats", "big_result", "many_arguments", "red_zone")
"""Functions of ``counts.c`` that every tool counts alike."""
ANIMALS = ("pie", "static", "musl", "musl_static", "goroutines", "exceptions", "python", "perl")
"""Programs that check themselves until their input ends."""
SHOWN = (
    *("sqlite3", "bash", "dash", "gcc", "git", "busybox", "python", "redis", "sort", "sed", "tar"),
    *("mawk", "diff and patch", "timers and pipes", "io_uring", "true", "hashes"),
)
"""Programs of the zoo, natively and by weft."""
KEYS = ("t", "b", "c", "l", "s", "r", "\r", "\x1b", "\t", "?", "\x1b[B", "\x1b[A", "/a\r", "q")
FILES = ("cov", "profile", "trace")
BUSY = 0.3
"""For how long a program works while something else happens, in seconds, at most."""


@dataclass
class World:
    """What acts have in common."""

    folder: Path
    said: list[str] = field(default_factory=list)
    """What the act that goes on does, for whoever reads what came of it."""
    _spans: dict[str, float] = field(default_factory=dict)
    _alone: dict[str, tuple[int, str]] = field(default_factory=dict)

    def build(self, name: str) -> Path:
        return Builder(self.folder).build(name)

    def say(self, *words: object) -> None:
        """Note what is about to be done."""
        self.said.append(" ".join(map(str, words)))

    def span(self, command: Command) -> float:
        """How long a command takes until it measures."""
        if command.name not in self._spans:
            self._spans[command.name] = time_to_begin(self.build("limited"), command)
        return self._spans[command.name]

    def alone(self, name: str) -> tuple[int, str]:
        """What comes of an animal that weft never saw."""
        if name not in self._alone:
            with Background(animal(self, name)) as background:
                self._alone[name] = background.finish()
        return self._alone[name]


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder for the files of an act, which others may enter."""
    with tempfile.TemporaryDirectory(prefix="random-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict about several things: that of the worst."""
    order = ("wrong", "harmed", "marked", "refused", "right")
    return min(verdicts, key=lambda verdict: order.index(verdict.kind))


def finished(exit_code: int, output: str) -> Verdict:
    """Judge a command that was let end: it did what it should, or said why not."""
    check_output(exit_code, output)
    if exit_code == 0:
        return Verdict("right")
    if exit_code not in REFUSALS or not first_error(output):
        raise Wrong(f"exit code {exit_code}, and it says {output[-300:]!r}")
    return Verdict("refused", first_error(output))


# A command in a situation, on a program that sets limits for itself.


def limited(world: World, dice: random.Random) -> Verdict:
    """A command on a target under a limit, a policy or in a namespace."""
    command = dice.choice(COMMANDS)
    situation = dice.choice(SITUATIONS)
    world.say(command.name, "under", situation.name)
    return under_limit(world.build("limited"), command, situation)


def full(world: World, dice: random.Random) -> Verdict:
    """A command that writes a file where there is no room."""
    command = dice.choice([command for command in COMMANDS if command.name in FILES])
    world.say(command.name, "on a full disk")
    return on_full_disk(world.build("limited"), command)


def interrupted(world: World, dice: random.Random) -> Verdict:
    """A signal to weft, or the death of weft or of the target, at any moment."""
    command, moment = dice.choice(COMMANDS), dice.choice(MOMENTS)
    is_taken, part = dice.random() < 0.5, dice.random()
    seconds = part * (0.06 if is_taken else 1.1 * world.span(command))
    when = When(seconds, is_taken=is_taken)
    after = "it is taken" if is_taken else "the start"
    world.say(command.name, moment.name, f"{seconds:.3f} s after {after}")
    return at_moment(world.build("limited"), command, moment, when)


# A program that counts its calls.


def measured(world: World, dice: random.Random) -> Verdict:
    """Calls of a program that runs, by metrics and one-liners, with any options."""
    name = dice.choice(COUNTING)
    with scratch(), lockstep(world.build(name), dice.randrange(1, 4)) as target:
        functions = sorted(target.batch(1))
        before = code(target.pid)
        chosen = dice.sample(functions, min(len(functions), dice.randrange(1, 4)))
        is_one_liner = dice.random() < 0.3
        words = ["attach", str(target.pid), "--interval", dice.choice(["0.05", "1", "3600"])]
        words += ["--weaver", dice.choice(["patch", "patch", "clone", "auto"])]
        words += dice.choice([[], [], ["--budget", "2%"], ["--budget", "30%"]])
        for number, function in enumerate(chosen):
            one_liner = ["-e", f"entry {function} {{ n{number} += 1 }}"]
            metric = ["-m", f"calls@/Code/{name}/{function}"]
            words += one_liner if is_one_liner else metric
        world.say(name, *words)
        running = Running(words)
        truth: Counter[str] = Counter()
        try:
            if running.read_until("time="):
                work(target, dice, truth)
                running.stop()
            exit_code = running.end()
        finally:
            running.kill()
        verdict = finished(exit_code, running.output)
        target.batch(5)
        check_left(target.pid, before)
    if verdict.kind == "refused":
        return verdict
    verdicts = []
    for number, function in enumerate(chosen):
        shown = rf"n{number} +" if is_one_liner else rf"calls +/Code/{name}/{re.escape(function)} +"
        verdicts.append(counted(running.output, shown, truth[function]))
    return worst(verdicts)


def work(target: Lockstep, dice: random.Random, truth: Counter[str]) -> None:
    """Have a program work, in batches or for a time, and add up what it counts."""
    for _ in range(dice.randrange(1, 5)):
        if dice.random() < 0.6:
            truth.update(target.batch(dice.randrange(1, 300)))
        else:
            target.go()
            time.sleep(dice.uniform(0, BUSY))
            truth.update(target.rest())


def counted(output: str, shown: str, truth: int) -> Verdict:
    """Compare a number of a table with the program's own."""
    found = re.search(rf"^{shown}([~!]?)([\d,.]+[kMGTP]?)", output, re.MULTILINE)
    if found is None:
        raise Wrong(f"no value of {shown!r}: {output[-500:]!r}")
    mark, number = found[1], found[2].replace(",", "")
    if mark:
        return Verdict("marked", found[0])
    if number != str(truth):
        raise Wrong(f"{found[0]!r} instead of {truth}: {output[-500:]!r}")
    return Verdict("right")


def _sleeps_in(pid: int, ranges: list[tuple[int, int]]) -> bool:
    """Whether a thread sleeps in code there."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        place = (task / "syscall").read_text().split()
        if len(place) > 1 and any(start <= int(place[-1], 16) < end for start, end in ranges):
            return True
    return False


def check_left(pid: int, before: dict[str, str] | None, *, is_killed: bool = False) -> None:
    """Fail if something of weft is left in a process that a weft has left, or was killed in."""
    left = [
        (int(start, 16), int(end, 16))
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines()
        if "memfd:weft" in line
        for start, end in [line.split()[0].split("-")]
    ]
    # What a thread sleeps in stays, if the weft was killed that had it there.
    if left and not (is_killed and _sleeps_in(pid, left)):
        raise Harmed("something of weft is left in it")
    after = code(pid)
    if before is not None and any(after.get(line) != digest for line, digest in before.items()):
        raise Harmed("its code has changed")
    if status(pid)["TracerPid"] != "0":
        raise Harmed("it is traced")


def debugged(world: World, dice: random.Random) -> Verdict:
    """How often a breakpoint was hit, by GDB."""
    name = dice.choice(("counts", "counts_static", "counts_musl"))
    with lockstep(world.build(name), dice.randrange(1, 4)) as target:
        target.batch(1)
        before = code(target.pid)
        function = dice.choice(PLAIN)
        commands = [f"break {function}", "ignore 1 1000000", "echo GDB-IS-READY\\n", "continue"]
        commands += ["info breakpoints", "detach"]
        arguments = "-q -batch " + " ".join(f"-ex {shlex.quote(one)}" for one in commands)
        words = ["debug", "--gdb-args", arguments, str(target.pid)]
        world.say(name, *words)
        running = Running(words)
        truth: Counter[str] = Counter()
        try:
            if running.read_until("GDB-IS-READY"):
                for _ in range(dice.randrange(1, 4)):
                    truth.update(target.batch(dice.randrange(1, 30)))
                running.press_until_end(signal.SIGINT)
            exit_code = running.end()
        finally:
            running.kill()
        verdict = finished(exit_code, running.output)
        target.batch(5)
        check_left(target.pid, before)
    if verdict.kind == "refused":
        return verdict
    hits = re.search(r"already hit (\d+) time", running.output)
    if hits is None or int(hits[1]) != truth[function]:
        raise Wrong(f"not {truth[function]} hits: {running.output[-500:]!r}")
    return Verdict("right")


def started(world: World, dice: random.Random) -> Verdict:
    """A program that weft starts: its output and exit code, and what a tool says of it."""
    name = dice.choice(COUNTING)
    program = [str(world.build(name)), str(dice.randrange(1, 4)), str(dice.randrange(1, 60))]
    native = subprocess.run(program, stdout=subprocess.PIPE, text=True, check=False)
    truth = parse_counts(native.stdout)
    is_c = name in ("counts", "counts_static", "counts_musl")
    function = dice.choice(PLAIN) if is_c else dice.choice(sorted(truth))
    tool = dice.choice(["run -m", "run -e", "clone -m", *FILES])
    with scratch() as folder:
        file = folder / "result"
        words = {
            "run -m": ["run", "-m", f"calls@/Code/{name}/{function}", "--format", "json"],
            "run -e": ["run", "-e", f"entry {function} {{ n += 1 }}", "--format", "json"],
            "clone -m": [
                *("run", "--weaver", "clone", "--format", "json"),
                *("-m", f"calls@/Code/{name}/{function}"),
            ],
            "cov": ["cov", "--counts", "--format", "json"],
            "profile": ["profile", "--format", "json"],
            "trace": ["trace"],
        }[tool]
        command = [*words, "-o", str(file), "--", *program]
        world.say(*command)
        done = subprocess.run(
            [sys.executable, "-m", "weft", *command], capture_output=True, text=True, check=False
        )
        check_output(done.returncode, done.stderr)
        if done.returncode in REFUSALS and first_error(done.stderr):
            return Verdict("refused", first_error(done.stderr))
        if done.returncode != native.returncode:
            raise Harmed(f"it ended with {done.returncode}: {done.stderr[-300:]!r}")
        if parse_counts(done.stdout) != truth:
            raise Harmed(f"it printed {done.stdout!r} instead of {native.stdout!r}")
        return told(tool, file, function, truth[function], is_c)


def told(tool: str, file: Path, function: str, truth: int, is_c: bool) -> Verdict:
    """Judge what a tool has written about the calls of a function."""
    if tool in FILES:
        if not is_c:
            return Verdict("right", "its count was not compared")
        reader: Callable[[Path, str], int] = {
            "cov": covered,
            "profile": profiled,
            "trace": traced,
        }[tool]
        if (count := reader(file, function)) != truth:
            raise Wrong(f"{tool} counted {count} of {function} instead of {truth}")
        return Verdict("right")
    [total] = json.loads(file.read_text())["totals"]
    if total["status"] != "exact":
        return Verdict("marked", str(total))
    if total["value"] != truth:
        raise Wrong(f"{total} instead of {truth}")
    return Verdict("right")


# Programs that have to do the same with weft as without.


def exhibited(world: World, dice: random.Random) -> Verdict:
    """A program of the distribution, by weft: its output, files and exit code."""
    name = dice.choice(SHOWN)
    [exhibit] = [exhibit for exhibit in EXHIBITS if exhibit.name == name]
    with scratch() as folder:
        file = str(folder / "result")
        prefixes = [
            ["run"],
            ["run", "-m", "syscalls", "-o", file, "--format", "json", "--allow-incomplete"],
            ["run", "-m", "calls@/Code/libc.so.6/malloc", "-o", file, "--format", "json"],
            ["run", "--weaver", "clone"],
            ["cov", "-o", file, "--format", "json"],
            ["cov", "--counts", "-o", file, "--format", "json"],
            ["profile", "-o", file, "--format", "json"],
        ]
        prefix = [*dice.choice(prefixes), "--"]
        world.say(name, "by weft", *prefix)
        # What weft has to say goes to standard error, and what it keeps goes elsewhere.
        cache = {"XDG_CACHE_HOME": str(folder / "cache")}
        quiet = replace(exhibit, stderr=False, environment={**exhibit.environment, **cache})
        verdict = compare(quiet, [sys.executable, "-m", "weft", *prefix], limit=240)
    if verdict.missing or verdict.broken:
        raise LookupError(verdict.why)
    for difference in verdict.differences:
        is_refused = "error: " in difference and "code 3" in difference
        # A program that is linked statically has no C library to look into.
        if is_refused or "no function matches" in difference:
            return Verdict("refused", difference)
        if "error: " in difference:
            raise Wrong(difference)
        raise Harmed("; ".join(verdict.differences)[:600])
    return Verdict("right")


def animal(world: World, name: str) -> list[str | Path]:
    """How an animal is started."""
    if name == "python":
        return [sys.executable, PROGRAMS / "workload.py"]
    if name == "perl":
        return ["perl", PROGRAMS / "workload.pl"]
    return [world.build(name)]


def visited(world: World, dice: random.Random) -> Verdict:
    """A program that checks itself, with wefts that come, go and are killed."""
    name = dice.choice(ANIMALS)
    expected = world.alone(name)
    verdicts = []
    with scratch() as folder, Background(animal(world, name)) as background:
        before = code(background.pid)
        for number in range(dice.randrange(1, 4)):
            verdicts.append(visit(world, dice, background.pid, folder / str(number)))
        is_killed = any(verdict.detail == "killed" for verdict in verdicts)
        if is_killed:
            # What those have left that were killed, the next one takes out.
            world.say("attach")
            running = Running(["attach", str(background.pid)])
            finished(running.end(), running.output)
        check_left(background.pid, before, is_killed=is_killed)
        outcome = background.finish()
    if outcome != expected:
        raise Harmed(f"{name}: {outcome} instead of {expected}")
    return worst(verdicts)


def visit(world: World, dice: random.Random, pid: int, file: Path) -> Verdict:
    """One weft on a process, which ends by itself, by a key, by a signal, or is killed."""
    kinds = ["attach", "clone", "clone -m", "-m", "-e", *FILES, "debug", "top", "doctor"]
    kind = dice.choice(kinds)
    words, ready = {
        "attach": (["attach", str(pid)], None),
        "clone": (["attach", str(pid), "--weaver", "clone"], "runs from a clone"),
        "clone -m": (["attach", str(pid), "--weaver", "clone", "-m", "syscalls"], "time="),
        "-m": (["attach", str(pid), "-m", "syscalls", "--allow-incomplete"], "time="),
        "-e": (["attach", str(pid), "-e", "entry write { n += 1 }"], "time="),
        "cov": (["cov", str(pid), "-o", str(file), "--format", "json"], "recording process"),
        "profile": (["profile", str(pid), "-o", str(file)], "recording process"),
        "trace": (["trace", str(pid), "--for", "0.2", "-o", str(file)], None),
        "debug": (
            [
                *("debug", "--gdb-args"),
                "-q -batch -ex 'info threads' -ex 'bt 3' -ex detach",
                str(pid),
            ],
            None,
        ),
        "top": (["top", str(pid), "--budget", dice.choice(["2%", "none"])], "calls/s"),
        "doctor": (["doctor", str(pid)], None),
    }[kind]
    terminal = kind == "top"
    ending = dice.choice(["well", "well", "well", "SIGINT", "SIGTERM", "SIGHUP", "SIGKILL"])
    moment = dice.uniform(0, 1.5)
    keys = [dice.choice(KEYS) for _ in range(dice.randrange(8))] if terminal else []
    world.say(*words, *map(repr, keys), "" if ending == "well" else f"{ending} at {moment:.3f} s")
    running = Running(words, needs_terminal=terminal)
    try:
        if ending != "well":
            with suppress(TimeoutError):
                running.read_until("\0", patience=moment)
            running.signal(signal.Signals[ending])
            if kind == "debug" and ending == "SIGINT":
                running.press_until_end(signal.SIGINT)
            exit_code = running.end()
            if ending == "SIGKILL":
                return Verdict("right", "killed")
            check_output(exit_code, running.output)
            return Verdict("right", f"exit code {exit_code} by {ending}")
        if ready is not None and running.read_until(ready):
            for key in keys:
                running.press(key)
                with suppress(TimeoutError):
                    running.read_until("\0", patience=0.2)
            with suppress(TimeoutError):
                running.read_until("\0", patience=BUSY)
            if terminal:
                # Whatever the keys have opened, it can be left.
                running.leave()
            else:
                running.stop()
        exit_code = running.end()
    finally:
        running.kill()
    if kind == "doctor" and exit_code == 1:
        return Verdict("right", "it has advice")
    return finished(exit_code, running.output)


def served(world: World, dice: random.Random) -> Verdict:
    """How many commands redis-server has done, while clients ask it."""
    port = free_port()
    load = ["redis-benchmark", "-p", str(port), "-q", "-n", str(dice.randrange(100, 20000))]
    load += ["-c", str(dice.randrange(1, 30)), "-P", str(dice.choice([1, 1, 16])), "-t", "set,get"]
    with scratch() as folder:
        quiet = ["--save", "", "--appendonly", "no", "--loglevel", "warning"]
        address = ["--bind", "127.0.0.1", "--port", str(port), "--dir", str(folder)]
        command = ["redis-server", *address, *quiet]
        with server(command, lambda: answers(port), stdout=subprocess.DEVNULL) as pid:
            before = code(pid)
            words = ["attach", str(pid), "-m", "calls@/Code/redis-server/processCommand"]
            words += ["--interval", dice.choice(["0.05", "1"])]
            words += ["--weaver", dice.choice(["patch", "patch", "clone"])]
            words += dice.choice([[], [], ["--budget", "2%"]])
            world.say(*words, "and", *load)
            running = Running(words)
            truth = 0
            try:
                if running.read_until("time="):
                    first = commands_of(port)
                    client = subprocess.run(load, capture_output=True, text=True, check=False)
                    if client.returncode or "rror" in client.stdout + client.stderr:
                        raise Harmed(f"a client saw {client.stdout}{client.stderr}")
                    # The first question is among those, the second is not.
                    truth = commands_of(port) - first + 1
                    running.stop()
                exit_code = running.end()
            finally:
                running.kill()
            verdict = finished(exit_code, running.output)
            commands_of(port)
            check_left(pid, before)
    if verdict.kind == "refused":
        return verdict
    return counted(running.output, "calls +/Code/redis-server/processCommand +", truth)


def commands_of(port: int) -> int:
    """How many commands a redis-server says that it has done."""
    ask = ["redis-cli", "-p", str(port), "info", "stats"]
    done = subprocess.run(ask, capture_output=True, text=True, check=False, timeout=60)
    found = re.search(r"total_commands_processed:(\d+)", done.stdout)
    if found is None:
        raise Harmed(f"it does not answer: {done.stdout}{done.stderr}")
    return int(found[1])


def listed(world: World, dice: random.Random) -> Verdict:
    """What looks at all processes, or at the machine."""
    choices = (["ps"], ["ps", "--format", "json"], ["doctor"], ["metrics"], ["metrics", "calls"])
    words = dice.choice(choices)
    world.say(*words)
    running = Running(words)
    try:
        exit_code = running.end()
    finally:
        running.kill()
    if words == ["doctor"] and exit_code == 1:
        return Verdict("right", "it has advice")
    return finished(exit_code, running.output)


@dataclass(frozen=True)
class Act:
    """Something to do, and how often of a hundred times."""

    do: Callable[[World, random.Random], Verdict]
    weight: int
    needs: Sequence[str] = ()

    @property
    def is_possible(self) -> bool:
        """Whether what it takes is installed."""
        return all(map(shutil.which, self.needs))


ACTS = (
    Act(limited, 16, ("unshare", "gdb")),
    Act(full, 3, ("unshare",)),
    Act(interrupted, 16, ("gdb",)),
    Act(measured, 22, ("musl-gcc", "rustc", "go")),
    Act(debugged, 4, ("gdb", "musl-gcc")),
    Act(started, 14, ("musl-gcc", "rustc", "go")),
    Act(exhibited, 10),
    Act(visited, 10, ("musl-gcc", "go", "gdb")),
    Act(served, 4, ("redis-server", "redis-benchmark")),
    Act(listed, 1),
)
