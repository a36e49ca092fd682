"""Programs that run from a clone of their code.

Everything that such a program executes is a copy that weft makes as it goes, and changes as it
likes; the program's own code, its stack and what it sees of itself stay as they are.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal

from weft import _native
from weft._files import Draft
from weft._patience import patiently
from weft._visits import Visits
from weft.errors import WeftError
from weft.flow import NO_FILE, Block, CodeModule, Edge, Flow
from weft.losses import sentences

if TYPE_CHECKING:
    from typing_extensions import Self

    from weft.debug import Debugged
    from weft.session import Session

__all__ = ["CloneStats", "Cloned", "Records", "Tracing", "attach", "launch"]

Records = Literal["nothing", "hits", "counts", "every block", "trace", "trace with values"]
"""What to record of what a program executes: nothing; which blocks and edges, each the first time;
how often, exactly; the same by a counter in every block, to hold that against; all of it, in order:
see :mod:`weft.trace`."""


def launch(
    command: Sequence[str | os.PathLike[str]],
    *,
    environment: list[tuple[str, str]] | None = None,
    directory: str | None = None,
    streams: tuple[int | None, int | None, int | None] = (None, None, None),
    cache_size: int | None = None,
    sees_changes: bool = True,
    follows: bool = True,
    is_held: bool = False,
    records: Records = "nothing",
) -> Cloned:
    """Start a program that runs from a clone of its code: see :func:`weft.run`."""
    words = [os.fspath(word) for word in command]
    options = (cache_size, sees_changes, follows, records)
    if not is_held:
        started = _native.Cloned.launch(words, environment, directory, streams, *options)
        return Cloned(started, command=words, records=records)
    target = _native.Target.launch(words, environment, directory, streams)
    try:
        target.run_to_entry()
        return Cloned(target.move_to_clone(*options), command=words, records=records)
    except WeftError:
        # It has done nothing yet: as good as never started.
        os.kill(target.pid, signal.SIGKILL)
        target.wait(None)
        raise


def attach(
    pid: int,
    *,
    cache_size: int | None = None,
    follows: bool = True,
    records: Records = "nothing",
) -> Cloned:
    """Take over a running process: see :func:`weft.attach`."""
    taken = _native.Cloned.attach(pid, cache_size, follows, records)
    return Cloned(taken, is_attached=True, records=records)


@dataclass(frozen=True)
class CloneStats:
    """What the engine has done, in all processes of a program."""

    seconds: float
    """Since the program was started, or taken over."""
    blocks: int
    """Blocks of code that were translated."""
    bytes: int
    """Bytes of clone that were written for them."""
    record_bytes: int
    """Bytes of records, by which the program's state is found at any place of the clone."""
    links: int
    """Branches that were tied to the block that they lead to."""
    lookups: int
    """How often the agent was asked where code is."""
    misses: int
    """How often that code had not been translated yet."""
    protection_faults: int
    """Writes to pages from which code was translated."""
    flushes: int
    """How often the whole clone was thrown away."""
    agent_entries: int
    """How often a thread left the clone for the agent."""
    signals: int
    """Signals that were passed on to the program."""
    system_calls: int
    """System calls that the program made."""
    agent_seconds: float
    """Time that all threads spent in the agent, system calls left out."""
    threads: int
    """Threads that were started."""
    forks: int
    """Processes that were forked."""


class Tracing:
    """A trace that is being written; made by :meth:`Cloned.trace_to`."""

    def __init__(self, draft: Draft, writer: _native.Tracer) -> None:
        self._draft = draft
        self._writer = writer

    def finish(self) -> list[tuple[str, int]]:
        """Take what is left, and give the file its name; returns what was lost, and how much."""
        try:
            lost = self._writer.finish()
        except BaseException:
            self._draft.discard()
            raise
        self._draft.complete()
        return lost


class Cloned:
    """A program that runs from a clone of its code; made by :func:`weft.run`, :func:`weft.attach`.

    It is a context manager. Leaving it does not end the program. One that weft has started goes on
    from its clone, but other programs that it starts from then on run natively; one that weft was
    attached to is given back to its own code, as by :meth:`release`.

    ```python
    with weft.run(["ls", "-l"], weaver="clone") as program:
        code = program.wait()
        print(program.stats().blocks)
    ```
    """

    def __init__(
        self,
        target: _native.Cloned,
        *,
        is_attached: bool = False,
        command: Sequence[str] = (),
        records: Records = "nothing",
    ) -> None:
        self._target = target
        self._is_attached = is_attached
        self._command = tuple(command)
        self._records = records
        self._began = time.monotonic()
        self._cycles = target.cycles()
        self._session: Session | None = None
        self._visits: Visits | None = None

    @property
    def session(self) -> Session:
        """The session in which the program is measured, with probes and metrics in its clone.

        Points can be anywhere: nothing of the program's code is changed, so none is too tight.
        What belongs to the agent of the patch weaver (``ping``, ``syscall``) is not there. A
        program that was started with ``is_held`` goes on with :meth:`wait` or ``session.resume()``.
        """
        if self._session is None:
            # The two modules need each other.
            from weft.session import Session

            self._session = Session(self._target.target(), "clone", self._target)
        return self._session

    @property
    def pid(self) -> int:
        """The process id of the program."""
        return self._target.pid

    def wait(self, timeout: float | None = None) -> int | None:
        """Wait for the program's end, and return its exit code.

        As in a shell, a program that a signal ended has the code 128 plus the signal's number.
        Returns ``None`` when it still runs after ``timeout`` seconds. The exit code of a program
        that weft has not started cannot be known. One that stands at its entry goes on.
        """
        if self._session is not None:
            self._session.resume()
        return self._target.wait(timeout)

    def release(self) -> None:
        """Give the program, and what it has forked, back to its own code.

        All threads stand still for a few milliseconds. Then they go on natively, where they would
        be without weft, and nothing of weft is left in the program. If that cannot be done, the
        program goes on from its clone and the error says why.
        """
        self._target.check_here()
        self._close_visits()
        self._leave_session()
        patiently(self._target.release)
        self._is_attached = False

    def _leave_session(self) -> None:
        if self._session is not None:
            self._session.detach()
            self._session = None

    def stats(self) -> CloneStats:
        """Return what the engine has done so far."""
        counts = dict(self._target.stats())
        seconds = time.monotonic() - self._began
        cycles = counts.pop("agent_cycles")
        # What a cycle takes is known from how many have passed.
        passed = max(1, self._target.cycles() - self._cycles)
        return CloneStats(seconds=seconds, agent_seconds=cycles * seconds / passed, **counts)

    def trace_to(self, path: Path) -> Tracing:
        """Write all that it executes to a file: see :func:`weft.trace.record`.

        It needs ``records="trace"`` when the program is started, or taken over. The file gets its
        name when the trace is finished. What holds values is for its owner only.
        """
        draft = Draft(path, is_private=self._records == "trace with values")
        notes = [("command", " ".join(self._command))]
        try:
            native = self._target.trace_to(draft.file.fileno(), path, notes)
        except BaseException:
            draft.discard()
            raise
        return Tracing(draft, native)

    def flow(self) -> Flow:
        """Return what has been executed so far, at any time: nothing stands still for it.

        It needs ``records`` when the program is started, or taken over. What threads are in the
        middle of may count already.
        """
        modules, blocks, edges, counted, lost = self._target.flow()
        by_module: list[list[Block]] = [[] for _ in modules]
        for module, offset, size, instructions, count in blocks:
            by_module[module].append(Block(offset, size, instructions, count))
        return Flow(
            modules=tuple(
                CodeModule(path or NO_FILE, build_id, bias, start, size, tuple(found))
                for (path, build_id, bias, start, size), found in zip(
                    modules, by_module, strict=True
                )
            ),
            edges=tuple(Edge(*edge) for edge in edges),
            is_counted=self._records != "hits",
            command=self._command,
            lost=sentences(lost),
            counters_executed=counted,
        )

    def lost(self) -> tuple[str, ...]:
        """Say what is missing from what is known of the program: nothing, if all is well.

        Programs that it has started and weft could not follow, for example, ran natively. What
        has left its clone has a report of its own, and is missing only from what is recorded.
        """
        is_recorded = self._records != "nothing"
        losses = self._target.last_losses() if is_recorded else self._target.losses()
        return sentences(row for row in losses if is_recorded or row[0] == "native")

    def reports(self) -> list[Path]:
        """Return the files in which the engine has said what went wrong in it.

        A file says what happened, where the program was, what its registers held and what code was
        there; its first line says what has become of the process.
        """
        return self._target.reports()

    def __enter__(self) -> Self:
        """Have `weft debug PID` find the program as well, as long as it is measured."""
        self._visits = Visits(self.pid, self.debugged)
        return self

    def debugged(self) -> Debugged:
        """Stop the program for a debugger, while it goes on to be measured.

        ```python
        with weft.attach(pid, weaver="clone") as program, program.debugged() as stopped:
            stopped.serve(connection)  # until the debugger goes
        ```
        """
        # The two modules need each other.
        from weft import debug

        return debug.join(self)

    def _close_visits(self) -> None:
        if self._visits is not None:
            self._visits.close()
            self._visits = None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self._target.is_here():
            # A forked child leaves it to its parent.
            return
        self._close_visits()
        if self._is_attached:
            self.release()
        self._leave_session()
        self._target.leave()

    def __repr__(self) -> str:
        return f"<weft.Cloned pid={self.pid}>"
