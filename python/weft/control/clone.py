"""Programs that run from a clone of their code.

Everything that such a program executes is a copy that weft makes as it goes, and changes as it
likes; the program's own code, its stack and what it sees of itself stay as they are.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from weft import _native
from weft.base.files import Draft
from weft.control.kept import open_folder
from weft.errors import WeftError
from weft.model.losses import sentences

if TYPE_CHECKING:
    from typing_extensions import Self

    from weft.model.flow import Flow
    from weft.model.thread_stacks import Stacks

__all__ = ["CloneStats", "ClonedProgram", "Records", "Tracing"]

Records = Literal["nothing", "hits", "counts", "every block", "trace", "trace with values"]
"""What to record of what a program executes: nothing; which blocks and edges, each the first time;
how often, exactly; the same by a counter in every block, to hold that against; all of it, in order:
see :mod:`weft.trace`."""


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
    """Branches that were linked to the block that they lead to."""
    lookups: int
    """How often the agent was asked where code is."""
    misses: int
    """How often that code had not been translated yet."""
    protection_faults: int
    """Writes to pages from which code was translated."""
    flushes: int
    """How often the whole clone was flushed."""
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
    files: int
    """Clones that were mapped from files: see :mod:`weft.control.kept`."""
    file_blocks: int
    """How many blocks those have."""


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


class ClonedProgram:
    """A program that runs from a clone of its code, and what the engine knows of it."""

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
        self._not_kept: str | None = None

    @classmethod
    def launch(
        cls,
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
        keeps: bool = True,
    ) -> Self:
        """Start a program that runs from a clone of its code: see :func:`weft.run`."""
        words = [os.fspath(word) for word in command]
        options = (cache_size, sees_changes, follows, records)
        if not is_held:
            # What is recorded is part of the code, so that is another one.
            folder = open_folder() if keeps and records == "nothing" else None
            native = folder.native if folder is not None else None
            started = _native.Cloned.launch(
                words, environment, directory, streams, *options, native
            )
            return cls(started, command=words, records=records)
        target = _native.Target.launch(words, environment, directory, streams)
        try:
            target.run_to_entry()
            return cls(target.move_to_clone(*options), command=words, records=records)
        except WeftError:
            # It has done nothing yet: as good as never started.
            os.kill(target.pid, signal.SIGKILL)
            target.wait(None)
            raise

    @classmethod
    def attach(
        cls,
        pid: int,
        *,
        cache_size: int | None = None,
        follows: bool = True,
        records: Records = "nothing",
    ) -> Self:
        """Take over a running process: see :func:`weft.attach`."""
        taken = _native.Cloned.attach(pid, cache_size, follows, records)
        return cls(taken, is_attached=True, records=records)

    @property
    def pid(self) -> int:
        """The process id of the program."""
        return self._target.pid

    def stats(self) -> CloneStats:
        """Return what the engine has done so far."""
        counts = dict(self._target.stats())
        seconds = time.monotonic() - self._began
        cycles = counts.pop("agent_cycles")
        # What a cycle takes is known from how many have passed.
        passed = max(1, self._target.cycles() - self._cycles)
        return CloneStats(seconds=seconds, agent_seconds=cycles * seconds / passed, **counts)

    def stacks(self) -> Stacks:
        """Return the calls that all threads are in now: the program's, not the engine's.

        Threads that sleep are read where they sleep; those that run stand still meanwhile. A thread
        whose place in the program cannot be told has no frames, and says why.
        """
        from weft.program.stacks import read_stacks

        return read_stacks(self.pid)

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

    def flow(self, is_wanted: Callable[[str], bool] | None = None) -> Flow:
        """Return what has been executed so far, at any time: nothing stands still for it.

        It needs ``records`` when the program is started, or taken over. What threads are in the
        middle of may count already. ``is_wanted`` chooses modules by their paths; the edges are
        then those between chosen ones.
        """
        from weft.model.flow import NO_FILE, CodeModule, Flow, blocks_of, edges_of

        modules, rows, counted, lost = self._target.flow()
        wanted = [
            place
            for place, (path, *_) in enumerate(modules)
            if is_wanted is None or is_wanted(path or NO_FILE)
        ]
        if len(wanted) < len(modules):
            rows = rows.only(wanted)
        return Flow(
            modules=tuple(
                CodeModule(path or NO_FILE, build_id, bias, start, size, blocks_of(rows, number))
                for number, (path, build_id, bias, start, size) in enumerate(
                    modules[place] for place in wanted
                )
            ),
            edges=edges_of(rows),
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

    def not_kept(self) -> str | None:
        """Say why what was translated could not be kept for the next time, once it has ended."""
        return self._not_kept

    def reports(self) -> list[Path]:
        """Return the files in which the engine has said what went wrong in it.

        A file says what happened, where the program was, what its registers held and what code was
        there; its first line says what has become of the process.
        """
        return self._target.reports()
