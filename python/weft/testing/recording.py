"""The process that records: it starts pytest in a clone, and looks whenever a test begins."""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from types import FrameType

import pytest

import weft
from weft.base.files import check
from weft.cli.output import console, deliver
from weft.errors import CoverageTooLow, InvalidArgument
from weft.model.flow import Flow
from weft.testing.channel import CHANNEL, INSIDE
from weft.tools.coverage import Context, Coverage, Executed, check_limit, cover
from weft.tools.coverage.between import between
from weft.tools.coverage.choice import matches
from weft.tools.coverage.covering import ModuleReaders

__all__ = ["Wish", "command_of", "record"]

_ROUND = 0.2
"""How often to look whether the tests have ended, in seconds."""
_NAMES = 8
"""How many libraries are named."""
_FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""Signals that ask this process to end are for the tests to answer."""


@dataclass(frozen=True)
class Wish:
    """What is to be recorded, and what becomes of it."""

    libraries: tuple[str, ...]
    report: str | None
    format: str
    fail_under: float | None

    def is_wanted(self, path: str) -> bool:
        """Whether a module is one of the libraries."""
        return any(_is_called(path, library) for library in self.libraries)


def _is_called(path: str, library: str) -> bool:
    if matches(path, [library]):
        return True
    if "/" in library:
        return path == os.path.realpath(library)
    # An extension of Python's: _speed.so is _speed.cpython-311-x86_64-linux-gnu.so.
    return library.endswith(".so") and matches(path, [library.removesuffix("so") + "*.so"])


def command_of(config: pytest.Config) -> list[str]:
    """Return the command that runs the same tests again."""
    given = config.invocation_params
    if given.plugins:
        raise InvalidArgument(
            "plugins that are objects cannot be given to another process",
            "pytest.main() was called with plugins",
            "name them with -p",
        )
    is_pytest = Path(sys.argv[0]).name in ("pytest", "py.test") or (
        Path(sys.argv[0]).parts[-2:] == ("pytest", "__main__.py")
    )
    if is_pytest and list(given.args) == sys.argv[1:]:
        # With the options of the interpreter.
        return [sys.executable, *sys.orig_argv[1:]]
    return [sys.executable, "-m", "pytest", *map(str, given.args)]


def record(command: Sequence[str], wish: Wish) -> int:
    """Run the tests to their end, write what they have executed, and return the exit code.

    Raises :class:`weft.errors.WeftError` if they cannot be recorded, before they begin.
    """
    if wish.report is not None:
        check(wish.report)
    elif wish.format == "drcov":
        raise InvalidArgument("drcov is not for reading", advice="name a file: --weft-cov-report")
    if wish.fail_under is not None and wish.format == "drcov":
        raise InvalidArgument("drcov has blocks only, and a limit is about lines")
    here, there = socket.socketpair()
    with here:
        there.set_inheritable(True)
        environment = {**os.environ, CHANNEL: str(there.fileno()), INSIDE: "1"}
        sys.stdout.flush()
        with (
            there,
            weft.run(command, weaver="clone", env=environment, records="counts") as program,
        ):
            there.close()
            with _signals_for(program.pid):
                recorder = _Recorder(here, program.flow, wish.is_wanted)
                code = recorder.follow(program.wait)
            for file in program.reports():
                print(f"weft: something went wrong in the clone engine: {file}", file=sys.stderr)
            paths = [module.path for module in program.flow().modules]
            covered = recorder.coverage()
    return _deliver(covered, wish, code, paths)


class _Recorder:
    """Keeps what each test has executed."""

    def __init__(
        self,
        channel: socket.socket,
        flow: Callable[[Callable[[str], bool]], Flow],
        is_wanted: Callable[[str], bool],
    ) -> None:
        self._channel = channel
        self._flow = flow
        self._is_wanted = is_wanted
        self._last = Flow((), (), True, ())
        self._name = ""
        self._parts: dict[str, list[Flow]] = {}
        self._readers = ModuleReaders()
        self._unread = b""
        self.has_ended = False
        """Whether pytest has come to the end of its tests."""
        self.seconds = 0.0
        """How long the tests have waited."""

    def follow(self, wait: Callable[[float | None], int | None]) -> int:
        """Look at each boundary between tests until the program ends; return its exit code."""
        is_open = True
        while (code := wait(0.0 if is_open else None)) is None:
            readable, _, _ = select.select([self._channel], [], [], _ROUND)
            if not readable:
                continue
            received = self._channel.recv(1 << 16)
            is_open = received != b""
            *lines, self._unread = (self._unread + received).split(b"\n")
            for line in lines:
                began = time.monotonic()
                self._look()
                self._name = json.loads(line)
                self.has_ended = not self._name
                self.seconds += time.monotonic() - began
                with suppress(OSError):
                    self._channel.sendall(b".")
        self._look()
        return code

    def _look(self) -> None:
        """Give what was executed since the last time to the test that ran meanwhile."""
        now = self._flow(self._is_wanted)
        for module in now.modules:
            # A file that a test has made may be gone in the end.
            self._readers.of(module)
        part = between(self._last, now)
        if any(module.blocks for module in part.modules) or self._name:
            self._parts.setdefault(self._name, []).append(part)
        self._last = now

    def coverage(self) -> Coverage:
        """Return what was executed, with each test as a context."""
        flow = self._last
        always = flow.lost
        if not self.has_ended:
            where = f"in {self._name}" if self._name else "outside of tests"
            text = f"the tests did not come to their end: it came {where}"
            flow = replace(flow, lost=(*always, text))
        paths = [module.path for module in flow.modules]
        covered = cover(flow, patterns=paths, readers=self._readers)
        known: dict[tuple[object, ...], Coverage] = {}
        numbers = {(one.path, one.build_id): place for place, one in enumerate(flow.modules)}
        contexts = []
        for name, parts in self._parts.items():
            executed = [Executed(frozenset(), {}) for _ in flow.modules]
            for part in parts:
                key = part.modules, part.edges
                if key not in known:
                    # Tests that execute the same are many.
                    known[key] = cover(part, patterns=paths, readers=self._readers)
                for module, details in zip(part.modules, known[key].modules, strict=True):
                    number = numbers[module.path, module.build_id]
                    executed[number] = _together(executed[number], Executed.of(details))
            if not name and not any(one.functions for one in executed):
                # What a linker adds to a library is executed when it is loaded.
                continue
            # The test that never ended has executed less than it would have, the others have not.
            lost = flow.lost if name == self._name else always
            contexts.append(Context(name, tuple(executed), lost))
        return replace(covered, contexts=tuple(contexts))


def _together(one: Executed, other: Executed) -> Executed:
    paths = one.lines.keys() | other.lines.keys()
    nothing: frozenset[int] = frozenset()
    return Executed(
        one.functions | other.functions,
        {path: one.lines.get(path, nothing) | other.lines.get(path, nothing) for path in paths},
    )


@contextmanager
def _signals_for(pid: int) -> Iterator[None]:
    """Let the tests answer signals; Ctrl-C reaches them directly."""

    def forward(number: int, _frame: FrameType | None) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, number)

    before = {number: signal.signal(number, forward) for number in _FORWARDED}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _deliver(coverage: Coverage, wish: Wish, code: int, paths: Sequence[str]) -> int:
    """Write the coverage, and return the exit code: that of the tests, if they have failed."""
    if not any(module.blocks for module in coverage.flow.modules):
        loaded = sorted({Path(path).name for path in paths if ".so" in Path(path).suffixes})
        wanted = [Path(library).name.partition(".")[0] for library in wish.libraries]
        near = [name for name in loaded if any(get_close_matches(name.partition(".")[0], wanted))]
        shown = ", ".join((near or loaded)[:_NAMES])
        print(
            f"ERROR: no coverage: nothing of {', '.join(wish.libraries)} was executed\n"
            f"  why: of {len(loaded)} libraries that were, none is called so: {shown}"
            f"{', ...' if len(near or loaded) > _NAMES else ''}",
            file=sys.stderr,
        )
        return code or int(pytest.ExitCode.USAGE_ERROR)
    format_ = importlib.import_module(f"weft.export.coverage.{wish.format}")
    if wish.report is None and wish.format == "text":
        print()
        format_.show(console(), coverage)
    else:
        deliver(lambda file: format_.write(file, coverage), wish.report)
    if wish.report is not None:
        tests = sum(bool(context.name) for context in coverage.contexts)
        print(f"weft: native coverage of {tests} tests is in {wish.report}")
        for text in (*coverage.flow.lost, *coverage.remarks()):
            print(f"note: {text}", file=sys.stderr)
    if wish.format in ("lcov", "cobertura", "sarif", "drcov"):
        print(f"note: {wish.format} has no place for tests: json and html do", file=sys.stderr)
    if wish.fail_under is None:
        return code
    try:
        print(f"weft: {check_limit(coverage, wish.fail_under)}")
    except CoverageTooLow as error:
        print(f"ERROR: {error}", file=sys.stderr)
        return code or error.exit_code
    return code
