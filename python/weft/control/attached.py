"""A process that weft is attached to: what it is, what it does, and its memory."""

from __future__ import annotations

import os
import select
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal, ParamSpec, TypeVar

from weft import _native
from weft.base.names import program_name
from weft.errors import BadFile, InvalidArgument, TargetError, TargetGone

if TYPE_CHECKING:
    from typing_extensions import Self

    from weft.model.program import (
        Mapping,
        Module,
        Pause,
        Pong,
        Processor,
        Registers,
        Thread,
    )
    from weft.model.thread_stacks import Stacks
    from weft.program.live_modules import Paths
    from weft.program.resources import ResourceTree
    from weft.program.stacks import StackReader

# What describes a program is loaded by the methods that return it: a command that has not begun
# with its work yet does without.

__all__ = ["Attached", "of_target"]

#: Arguments of system calls are as wide as this.
_WORD = (1 << 64) - 1
#: Results below zero and above this are errors.
_LARGEST_ERRNO = 4095

_AGAIN = "attach again"
_GONE = "list the processes: weft ps"

_Method = ParamSpec("_Method")
_Result = TypeVar("_Result")

_PATIENCE = 0.25
"""How long to wait for children that end together with the target, in seconds."""


def of_target(method: Callable[_Method, _Result]) -> Callable[_Method, _Result]:
    """Make a method of a session require a target that has not ended, and was not left."""

    @wraps(method)
    def checked(*args: _Method.args, **options: _Method.kwargs) -> _Result:
        session = args[0]
        assert isinstance(session, Attached)
        with session._living():
            return method(*args, **options)

    return checked


class Attached:
    """A target with weft in it, until it is left or has ended.

    It is a context manager; leaving it detaches.
    """

    def __init__(
        self,
        target: _native.Target,
        weaver: Literal["patch", "clone"] = "patch",
        clone: _native.Cloned | None = None,
    ) -> None:
        self.weaver = weaver
        """How probes and metrics are woven."""
        self._clone = clone
        """What the target runs from, where that is known."""
        self._target = target
        self._detached = False
        self._paths: Paths = {}
        self.resumed = 0.0
        """When a target that stood still was last let go, by the monotonic clock."""
        self._was_patient = False
        self._stack_reader: StackReader | None = None
        self._process: int | None = None
        with suppress(ProcessLookupError):
            self._process = _native.pidfd_open(target.pid)
            weakref.finalize(self, os.close, self._process)

    @property
    def pid(self) -> int:
        """The process id of the target."""
        return self._target.pid

    @property
    def left_clones(self) -> int:
        """How many processes have left their clone and gone on natively, without any probes."""
        return 0 if self._clone is None else dict(self._clone.losses()).get("left", 0)

    @property
    def has_ended(self) -> bool:
        """Whether the target has ended. What it has executed instead (``execve``) is no end."""
        if self._process is None:
            return True
        poll = select.poll()
        poll.register(self._process, select.POLLIN)
        return bool(poll.poll(0))

    def survivors(self) -> int:
        """Return how many children measure on although the target has ended; none while it runs.

        Those that end together with it are waited for, once.
        """
        if self._detached or not self.has_ended:
            return 0
        patience, self._was_patient = 0.0 if self._was_patient else _PATIENCE, True
        return len(self._target.survivors(patience))

    def require(self) -> None:
        """Raise an error if the session is over, or is another process's."""
        self._target.check_here()
        if self._detached:
            raise TargetGone(f"weft has left process {self.pid}", "the session is over", _AGAIN)
        if self.has_ended:
            raise TargetGone(f"process {self.pid} has ended", advice=_GONE)

    @contextmanager
    def _living(self) -> Iterator[None]:
        """Do what needs a target. That it is gone is the error, not what is missing since then."""
        self.require()
        try:
            yield
        except (InvalidArgument, BadFile, TargetError):
            self.require()
            raise

    @of_target
    def program(self) -> str:
        """Return the path of the program that the target runs, as the target sees it.

        Its file may have been removed since, or replaced by another.
        """
        path = _native.program(self.pid)
        if path is None:
            raise TargetGone(f"process {self.pid} has ended", advice=_GONE)
        return path

    def is_current(self) -> bool:
        """Whether the target still runs the program that weft was brought into.

        It does not when it has ended, or has become another program by ``execve``. What happens to
        the program's file does not matter.
        """
        return self._target.is_current()

    @of_target
    def command(self) -> tuple[str, ...]:
        """Return the words that the target was started with; some servers write others there."""
        with self._looking():
            text = Path(f"/proc/{self.pid}/cmdline").read_bytes()
        return tuple(os.fsdecode(word) for word in text.rstrip(b"\0").split(b"\0") if word)

    def proc_file(self, name: str) -> str:
        """Return what a file of the target's below ``/proc/PID`` says.

        Of a program that weft has started and waited for, ``io``, ``limits``, ``stat`` and
        ``status`` are kept as they were at its end.
        """
        started = self._target if self._clone is None else self._clone
        last = started.last_words(name)
        return Path(f"/proc/{self.pid}/{name}").read_text() if last is None else last

    @contextmanager
    def _looking(self) -> Iterator[None]:
        """Look at what only a process that has not ended has."""
        try:
            yield
        except (FileNotFoundError, ProcessLookupError):
            raise TargetGone(f"process {self.pid} has ended", advice=_GONE) from None

    @of_target
    def ping(self) -> list[Pong]:
        """Run every thread of the target through the agent, and return their answers.

        Raises an error if a thread that was asked did not answer.
        """
        from weft.model.program import Pong

        return [Pong(tid, unasked) for tid, unasked in self._target.ping()]

    @of_target
    def syscall(self, number: int, *args: int) -> int:
        """Make a system call in a thread of the target, and return its result.

        Raises :class:`OSError` when the call fails. It must not block: all threads that are in the
        program stand still until it returns.
        """
        if len(args) > 6:
            raise InvalidArgument(
                "a system call takes at most six arguments",
                f"there are {len(args)}",
                "see syscall(2) for what it takes",
            )
        result = self._target.syscall(number, [arg & _WORD for arg in args])
        if -_LARGEST_ERRNO <= result < 0:
            raise OSError(-result, os.strerror(-result))
        return result

    @of_target
    def threads(self) -> list[Thread]:
        """Return the threads that exist now."""
        from weft.model.program import Thread

        return [Thread(*thread, self.pid) for thread in _native.threads(self.pid)]

    @of_target
    def modules(self) -> list[Module]:
        """The program, its libraries and the vDSO; their functions are read when asked for."""
        from weft.program.live_modules import live_modules

        return live_modules(self.pid, paths=self._paths)

    @of_target
    def stacks(self) -> Stacks:
        """Return the calls that all threads are in now, what they wait for, and deadlocks.

        Threads that sleep are read where they sleep; those that run stand still, for some 70
        microseconds each. So may threads of processes that the target waits for.

        Functions that are inlined, files and lines are there if there is debug information.
        """
        if self._stack_reader is None:
            from weft.program.stacks import StackReader

            self._stack_reader = StackReader(self.pid)
        return self._stack_reader.read()

    @of_target
    def resources(self) -> ResourceTree:
        """The resource tree of the target as it is now: its code, its process and its threads."""
        import platform

        from weft.model.program import Process
        from weft.program.resources import ResourceTree

        return ResourceTree(
            # The program itself comes first.
            modules=sorted(self.modules(), key=lambda module: not module.is_program),
            processes=[Process(self.pid, program_name(self.command(), self.program()))],
            threads=self.threads(),
            machine=platform.node(),
            program_names=self._program_names(),
        )

    def _program_names(self) -> list[str]:
        """What the program was started as: by a link, perhaps, as redis-server is."""
        with self._looking():
            name = Path(f"/proc/{self.pid}/comm").read_text().rstrip("\n")
        return [name, program_name(self.command(), "")]

    @of_target
    def maps(self) -> list[Mapping]:
        """Return the memory map of the target, weft's own mappings included."""
        from weft.model.program import Mapping

        return [Mapping(**mapping) for mapping in _native.maps(self.pid)]

    @of_target
    def processor(self) -> Processor:
        """Return what the agent saw of the processor."""
        from weft.model.program import Processor

        features, size = self._target.cpu()
        return Processor(tuple(features), size)

    @of_target
    def registers(self, tid: int | None = None) -> Registers:
        """Return the registers of a thread (by default the main one), with all vector state."""
        from weft.model.program import Registers

        values = self._target.registers(self.pid if tid is None else tid)
        return Registers(
            general={name: value for name, value in values.items() if isinstance(value, int)},
            zmm=tuple(values["zmm"]),
            opmask=tuple(values["opmask"]),
            xsave=values["xsave"],
        )

    @of_target
    def read(self, address: int, size: int) -> bytes:
        """Read the target's memory."""
        return self._target.read(address, size)

    @of_target
    def read_many(self, pieces: Sequence[tuple[int, int]]) -> list[bytes | None]:
        """Read many pieces, each an address and a size, with few system calls.

        A piece that is not wholly there comes back as ``None``.
        """
        return self._target.read_many(list(pieces))

    @of_target
    def write(self, address: int, data: bytes) -> None:
        """Write to memory that the target itself could write to."""
        self._target.write(address, data)

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Keep every thread of the target stopped for as long as the block takes."""
        with self._living():
            already = self._target.is_stopped()
            self._target.stop()
        try:
            yield
        finally:
            if not already:
                self._target.resume()

    @of_target
    def run_to_entry(self) -> bool:
        """Let a program that :func:`run` has started load its libraries, and stop it again.

        It then stands before its own first instruction, so that probes can be woven into libraries
        before the program uses them; what the libraries themselves did to get ready is past.
        Returns false if the program has ended instead.
        """
        return self._target.run_to_entry()

    def resume(self) -> None:
        """Let a program run that :func:`run` has started."""
        if self._target.is_stopped():
            self.resumed = time.monotonic()
        self._target.resume()

    def wait(self, timeout: float | None = None) -> int | None:
        """Let a program that :func:`run` has started run to its end, and return its exit code.

        As in a shell, a program that a signal ended has the code 128 plus the signal's number.
        Returns ``None`` when it still runs after ``timeout`` seconds.
        """
        self.resume()
        return self._target.wait(timeout)

    def pauses(self, first: int = 0) -> list[Pause]:
        """Return every time that threads of the target stood still because of weft.

        ``first`` is how many of them one knows already.
        """
        from weft.model.program import Pause

        return [Pause(*pause) for pause in self._target.pauses(first)]

    def detach(self) -> None:
        """Leave the target; nothing happens in a child that was forked since."""
        if not self._target.is_here():
            return
        self._target.detach()
        self._detached = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.detach()

    def __repr__(self) -> str:
        state = "detached" if self._detached else "attached"
        return f"<weft.Session pid={self.pid} {state}>"
