"""One run of a program with probes in it, by one weaver, in a process of its own."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import shutil
import signal
import time
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import weft
import weft.session  # what is loaded late cannot be loaded by nobody
from tests.patch_against_clone.model import Name, Place, Weaver, Work
from weft.control.probes import Probe
from weft.model.points import Point

NOBODY = 65534
NO_RANDOM_ADDRESSES = 0x0040000
SET_DUMPABLE = 4

ENTERED = "counter hits; at entry { hits += 1 }"

BETWEEN = """
counter hits; counter between; local events
at entry { hits += 1; between -= events; events += 1 }
at exit { hits += 1; between += events }
"""
"""Counts entries and exits, and what a function and all that it calls have entered: for a call that
returns, that is the difference of the events at its exit and at its entry."""

TIMED = """
timer took wall
at entry { start took }
at exit { stop took }
"""


@dataclass
class Run:
    """What was measured in one run. Places are those that were woven."""

    status: int | None = None
    seconds: float = 0.0
    threads: int = 1
    """How many have measured something."""
    functions: dict[Place, Name] = field(default_factory=dict)
    """The function of each place that was asked for."""
    sharing: set[Name] = field(default_factory=set)
    """Functions with a place that is another one's, too, as where one jumps into the other."""
    hits: dict[Place, int] = field(default_factory=dict)
    between: dict[Place, int] = field(default_factory=dict)
    refused: dict[Place, str] = field(default_factory=dict)
    timings: dict[Name, tuple[int, int, int]] = field(default_factory=dict)
    """Of each function how many were completed, their nanoseconds, and how many were given up."""
    growing: list[Name] = field(default_factory=list)
    """Whose time grows although the program has ended."""


class Failed(Exception):
    """A run that did not end as it should."""


def apart(
    work: Work,
    folder: Path,
    weaver: Weaver,
    measure: Callable[[Measured], None],
    pause: float | None = 0.0,
) -> Run:
    """Run a program in a copy of its folder, with what ``measure`` weaves into it.

    A client waits for so many seconds before it asks for anything, and in between. Without a number
    of them the program does not run, and only what is refused is known.

    That is done by a forked process: it may be given up, have other rights, and what the program
    finds as its surroundings does not depend on what was done before.
    """
    here = folder.parent / "run"
    shutil.rmtree(here, ignore_errors=True)
    shutil.copytree(folder, here, symlinks=True)
    if work.is_unprivileged and os.geteuid() == 0:
        for path in [here, *here.rglob("*")]:
            os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    forks = multiprocessing.get_context("fork")
    receiver, sender = forks.Pipe(duplex=False)
    arguments = (work, here, weaver, measure, pause, sender)
    process = forks.Process(target=_run_apart, args=arguments)
    process.start()
    sender.close()
    try:
        answer: Run | str = receiver.recv()
    except EOFError:
        answer = "the process that measures has died"
    process.join()
    if isinstance(answer, str):
        raise Failed(f"{weaver}: {answer}")
    if pause is not None and answer.status not in work.statuses:
        raise Failed(f"{weaver}: the program ended with {answer.status}")
    return answer


def _run_apart(
    work: Work,
    folder: Path,
    weaver: Weaver,
    measure: Callable[[Measured], None],
    pause: float | None,
    sender: Connection,
) -> None:
    try:
        ctypes.CDLL(None).personality(NO_RANDOM_ADDRESSES)
        if work.is_unprivileged and os.geteuid() == 0:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            # Or else nobody could trace what this process forks, until it is another program.
            ctypes.CDLL(None).prctl(SET_DUMPABLE, 1)
        os.chdir(folder)
        with _started(work, weaver) as measured:
            measure(measured)
            if pause is not None:
                measured.finish(pause)
        sender.send(measured.run)
    except BaseException as error:
        sender.send(f"{''.join(traceback.format_exception(error))}")


@contextmanager
def _started(work: Work, weaver: Weaver) -> Iterator[Measured]:
    """A program that stands at its entry, with its libraries loaded."""
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C", "HOME": "/nonexistent"}
    environment |= work.environment
    with (
        Path(work.stdin or os.devnull).open("rb") as stdin,
        Path("output").open("wb") as output,
    ):
        streams: dict[str, Any] = {
            "env": environment,
            "stdin": stdin,
            "stdout": output,
            "stderr": output,
        }
        if weaver == "clone":
            cloned = weft.run(list(work.command), weaver="clone", is_held=True, **streams)
            measured = Measured(work, cloned.session, cloned.wait)
        else:
            patched = weft.run(list(work.command), **streams)
            patched.run_to_entry()
            measured = Measured(work, patched, patched.wait)
    try:
        yield measured
    finally:
        if not measured.session.has_ended:
            os.kill(measured.session.pid, signal.SIGKILL)


class Measured:
    """A program that was started to be measured, and what was measured of it."""

    def __init__(
        self,
        work: Work,
        session: weft.Session,
        wait: Callable[[float | None], int | None],
        patience: float = 600.0,
    ) -> None:
        self.run = Run()
        self.session = session
        self._work = work
        self._wait = wait
        self._patience = patience
        self._probes: list[tuple[Probe, tuple[str, ...]]] = []
        self._timers: dict[Name, Probe] = {}
        modules = [module for module in session.modules() if module.name != "[vdso]"]
        self._biases = {module.name: module.bias for module in modules}
        self._entries = [
            point
            for point in session.points([f"/Code/{module.name}/*" for module in modules])
            # Some functions of the C library are the kernel's.
            if point.module in self._biases
            and (not work.prefixes or point.function.startswith(work.prefixes))
        ]

    def points(self, kind: weft.PointKind, wanted: Collection[Name] | None = None) -> list[Point]:
        """The points of a kind, of all functions that are looked at, or of some."""
        entries = [
            point
            for point in self._entries
            if wanted is None or (point.module, point.function) in wanted
        ]
        if kind == "entry":
            return entries
        functions = {point.address: (point.function, point.module) for point in entries}
        # By their names, all functions would be looked through for a few.
        return self.session._points_of(functions, kind)[0]

    def place(self, point: Point) -> Place:
        """What a point is called in every run."""
        return point.kind, point.module, point.address - self._biases[point.module]

    def count(self, points: list[Point], snippet: str, *names: str) -> Probe:
        """Weave a snippet whose counters, of these names, are read in the end."""
        probe = self.session.insert(points, snippet)
        self._probes.append((probe, names))
        self._note(probe)
        return probe

    def forget(self, probe: Probe) -> None:
        """Take out what was woven to see what is refused."""
        self._probes = [kept for kept in self._probes if kept[0] is not probe]
        probe.remove()

    def time(self, points: Mapping[Name, list[Point]]) -> None:
        """Time functions, each by itself."""
        for name, its_points in points.items():
            self._timers[name] = self.session.insert(its_points, TIMED)
            self._note(self._timers[name])

    def _note(self, probe: Probe) -> None:
        for point in probe.points:
            name = point.module, point.function
            other = self.run.functions.setdefault(self.place(point), name)
            if other != name:
                self.run.sharing |= {name, other}
        for refusal in probe.refused:
            self.run.refused[self.place(refusal.point)] = refusal.reason

    def finish(self, pause: float) -> None:
        """Let the program do its work, and read what was measured."""
        began = time.monotonic()
        self.session.resume()
        if self._work.client:
            self._work.client(Path.cwd(), self.session.pid, pause)
        self.run.status = self._wait(self._patience)
        self.run.seconds = time.monotonic() - began
        for probe, names in self._probes:
            for name in names:
                values = probe.values(name)
                into = self.run.hits if name == "hits" else self.run.between
                into.update({self.place(point): value for point, value in values.items()})
        for probe in [*(probe for probe, _ in self._probes), *self._timers.values()][:1]:
            self.run.threads = max(1, len(probe.threads()))
        read = {name: _timing(probe) for name, probe in self._timers.items()}
        self.run.timings = read
        later = {name: _timing(probe) for name, probe in self._timers.items()}
        self.run.growing = [name for name in read if later[name] != read[name]]


def _timing(probe: Probe) -> tuple[int, int, int]:
    value = probe.value("took")
    assert isinstance(value, weft.Timer)
    return value.count, value.ns, probe.lost("took")
