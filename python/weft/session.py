"""Starting, attaching and detaching: one :class:`Session` owns one target."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from collections.abc import Mapping as MappingType
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import (
    IO,
    TYPE_CHECKING,
    Literal,
    SupportsIndex,
    TypeAlias,
    overload,
)

from weft import _native
from weft.base.patience import patiently
from weft.control.attached import of_target
from weft.control.clone import ClonedProgram, Records
from weft.control.probing import Probing
from weft.errors import InvalidArgument, NoSuchProcess
from weft.model.points import Point

if TYPE_CHECKING:
    from typing_extensions import Self

    from weft.control.debugged import Debugged
    from weft.control.visits import Visits
    from weft.metrics.engine import Engine
    from weft.metrics.metric import Metric
    from weft.model.answers import Answers
    from weft.sampling import Kind, SampledProfile

#: What ``subprocess.DEVNULL`` is; importing that module takes longer than starting a program.
_DEVNULL = -3

#: What can be a program's standard stream: a file, a descriptor, ``subprocess.DEVNULL``, or nothing
#: for weft's own.
Stream: TypeAlias = "IO[bytes] | IO[str] | int | None"


_HIGHEST_PID = (1 << 22) - 1
"""The highest process id that the kernel gives: see proc(5), ``pid_max``."""


@overload
def attach(pid: int, *, weaver: Literal["patch"] = "patch") -> Session: ...


@overload
def attach(
    pid: int,
    *,
    weaver: Literal["clone"],
    cache_size: int | None = None,
    follows: bool = True,
    records: Records = "nothing",
) -> Cloned: ...


def attach(
    pid: int,
    *,
    weaver: Literal["patch", "clone"] = "patch",
    cache_size: int | None = None,
    follows: bool = True,
    records: Records = "nothing",
) -> Session | Cloned:
    """Attach to a running process.

    The process runs on: its threads stand still for a few milliseconds while weft's agent is
    loaded, and nothing holds them afterwards. If anything is in the way, nothing has happened to
    the process and the error says what it is and what to do.

    ```python
    with weft.attach(pid) as session:
        print(session.threads())
    ```

    With the clone weaver all its threads go on from a clone of its code, until it is released.
    ``cache_size`` is how many bytes of clone a process may have, 256 MiB if it is not given;
    without ``follows`` other programs that it starts run natively. ``records`` is what to record of
    what it executes from now on: see :meth:`Cloned.flow`.

    ```python
    with weft.attach(pid, weaver="clone") as program:
        print(program.stats().blocks)
    ```
    """
    if not isinstance(pid, SupportsIndex) or isinstance(pid, bool):
        why, advice = "process ids are positive numbers", "list the processes: weft ps"
        raise InvalidArgument(f"{pid!r} is no process id", why, advice)
    _check_weaver(weaver)
    if pid > _HIGHEST_PID:
        why, advice = f"ids go up to {_HIGHEST_PID}", "list the processes: weft ps --all"
        raise NoSuchProcess(f"there is no process {pid}", why, advice)
    if weaver == "clone":
        return Cloned.attach(pid, cache_size=cache_size, follows=follows, records=records)
    return Session(_native.Target.attach(pid))


@overload
def run(
    command: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    weaver: Literal["patch"] = "patch",
    env: MappingType[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    stdin: Stream = None,
    stdout: Stream = None,
    stderr: Stream = None,
) -> Session: ...


@overload
def run(
    command: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    weaver: Literal["clone"],
    env: MappingType[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    stdin: Stream = None,
    stdout: Stream = None,
    stderr: Stream = None,
    cache_size: int | None = None,
    sees_changes: bool = True,
    follows: bool = True,
    is_held: bool = False,
    records: Records = "nothing",
) -> Cloned: ...


def run(
    command: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    weaver: Literal["patch", "clone"] = "patch",
    env: MappingType[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    stdin: Stream = None,
    stdout: Stream = None,
    stderr: Stream = None,
    cache_size: int | None = None,
    sees_changes: bool = True,
    follows: bool = True,
    is_held: bool = False,
    records: Records = "nothing",
) -> Session | Cloned:
    """Start a program with weft in it.

    ``command`` is the program and its arguments; a program without any may stand alone. No shell
    is involved.

    With the patch weaver it stands before its first instruction, with weft's agent loaded:
    :meth:`Session.resume` or :meth:`Session.wait` let it run; so does leaving the session, which
    takes weft out of the program but does not end it.

    ```python
    with weft.run(["ls", "-l"]) as session:
        code = session.wait()
    ```

    With the clone weaver it runs at once, from a clone of its code; with ``is_held`` it stands at
    its entry, with its libraries loaded, to be measured: see :attr:`Cloned.session`. ``cache_size``
    is how many bytes of clone a process may have, 256 MiB if it is not given. Without
    ``sees_changes`` code that changes itself goes wrong, and without ``follows`` other programs
    that it starts run natively: both are for tests. ``records`` is what to record of what it
    executes: see :meth:`Cloned.flow`.
    """
    command = _words(command)
    _check_weaver(weaver)
    environment = None if env is None else [(str(key), str(value)) for key, value in env.items()]
    directory = None if cwd is None else os.fspath(cwd)
    with ExitStack() as opened:

        def found(stream: Stream) -> int | None:
            return _descriptor(stream, opened)

        streams = (found(stdin), found(stdout), found(stderr))
        if weaver == "clone":
            return Cloned.launch(
                command,
                environment=environment,
                directory=directory,
                streams=streams,
                cache_size=cache_size,
                sees_changes=sees_changes,
                follows=follows,
                is_held=is_held,
                records=records,
            )
        return Session(_native.Target.launch(command, environment, directory, streams))


def _words(command: object) -> list[str]:
    """The words of a command; a name alone is a program without arguments."""
    if isinstance(command, str) and len(split := command.split()) > 1:
        import shutil

        # It may be a program whose name has spaces.
        if not shutil.which(command):
            raise InvalidArgument(
                f"no program is called {command!r}",
                "a text is taken for the name of a program; no shell splits it into words",
                f"give the words one by one: weft.run({split!r})",
            )
    if isinstance(command, str | os.PathLike):
        command = [command] if command else []
    found: list[str] = []
    for word in command if isinstance(command, Iterable) else [command]:
        if not isinstance(word, str | os.PathLike):
            raise InvalidArgument(
                f"{command!r} is no command",
                f"{word!r} is no text",
                "give a program and its arguments: weft.run(['ls', '-l'])",
            )
        found.append(os.fsdecode(word))
    return found


def _check_weaver(weaver: str) -> None:
    if weaver not in ("patch", "clone"):
        raise InvalidArgument(f"there is no weaver {weaver!r}", advice="it is 'patch' or 'clone'")


class Session(Probing):
    """One target with weft in it; made by :func:`attach` and :func:`run`.

    A session is a context manager. Leaving it detaches: everything that weft brought into the
    target is gone then, its mappings, its descriptors and its code, and the target runs on.

    Several sessions, of one process or of several, may measure a target at once, each in functions
    of its own: where another has probes, points are refused.

    A session is over when it was left, or when the target has ended. From then on whatever asks
    something of the target raises :class:`weft.errors.TargetGone`; what was measured until then can
    still be read from probes and metrics.
    """

    def __init__(
        self,
        target: _native.Target,
        weaver: Literal["patch", "clone"] = "patch",
        clone: _native.Cloned | None = None,
    ) -> None:
        super().__init__(target, weaver, clone)
        self._engine: Engine | None = None

    @classmethod
    def of_clone(cls, target: _native.Target) -> Self:
        """Make the session of a program that runs from a clone for a debugger."""
        return cls(target, "clone")

    @property
    def metrics(self) -> Engine:
        """The metrics of this session, and the library that they are taken from."""
        if self._engine is None:
            from weft.metrics.engine import Engine

            self._engine = Engine(self)
        return self._engine

    def metric(
        self,
        name: str,
        focus: str = "",
        *,
        by_function: bool = False,
        by: str | None = None,
        allow_incomplete: bool = False,
        wait: bool = False,
    ) -> Metric:
        """Begin to measure a metric of the library, narrowed to a focus.

        ```python
        latency = session.metric("latency", "/Code/redis-server/processCommand")
        for sample in latency.stream(interval=1.0, limit=10):
            print(sample.time, sample.rate)
        ```

        A focus is a path of the resource tree, or several of different hierarchies joined by
        commas: ``/Code/server/handle,/Thread/worker-*``. The name of a function stands for the only
        one that the program and its libraries have of this name: ``handle``; if there are several,
        it is refused. ``weft metrics`` lists the library; :meth:`load_metrics` adds to it.

        With ``by`` its value is a map, by ``function`` or ``module`` in which it was measured, by
        ``caller``, ``stack`` or ``thread``, by ``lock`` (``lock_wait`` and ``lock_contention``), or
        by any expression of the language, as ``$arg[0]``. Of times, recursion counts every call
        then.

        :attr:`weft.Metric.completeness` says whether all of it is measured. A time, a distribution
        of times or a constraint that would begin in a function and never end, since an exit of that
        cannot be woven, is refused by :class:`weft.errors.IncompleteMetric`, unless
        ``allow_incomplete`` is set.

        A focus that matches nothing is refused, unless ``wait`` is set: then it is measured when a
        library comes that has it. What that does before it is noticed, at the next sample, is
        missing.
        """
        return self.metrics.request(
            name,
            focus,
            by_function=by_function,
            by=by,
            allow_incomplete=allow_incomplete,
            wait=wait,
        )

    def load_metrics(self, *sources: str | Path) -> None:
        """Add metrics of MDL files, or of texts, to those that can be asked for."""
        self.metrics.load(*sources)

    @of_target
    def why(
        self,
        seconds: float = 10.0,
        *,
        budget: float = 0.02,
        hypotheses: Sequence[str | os.PathLike[str]] = (),
    ) -> Answers:
        """Find out why the process is slow.

        It is watched for ``seconds``, from outside; ``budget`` is the share of its time that this
        may take. ``hypotheses`` are folders with further hypotheses.

        ```python
        first = session.why(5).answers[0]
        print(first.hypothesis, first.focus, first.text)
        ```
        """
        from weft.why.search import why

        return why(self.pid, seconds=seconds, budget=budget, folders=[*map(Path, hypotheses)])

    def sample(
        self,
        seconds: float | None = None,
        kind: Kind = "cpu",
        *,
        rate: float = 99.0,
        budget: float = 0.01,
        keep: bool = False,
    ) -> SampledProfile:
        """Look where the threads of the target are for some seconds; see :func:`weft.sample`.

        ```python
        session.sample(10, "off-cpu").write_stacks("waits.svg")
        ```
        """
        from weft.sampling import sample

        return sample(self.pid, seconds, kind, rate=rate, budget=budget, keep=keep)

    @of_target
    def move_to_clone(self, *, cache_size: int | None = None) -> Cloned:
        """Take everything out of the target, and have it run from a clone of its code instead.

        This session is over then; the clone has its own, :attr:`Cloned.session`. A program that
        stands still, because :func:`run` has just started it, does so until that one resumes it.
        """
        self._target.check_here()
        if self._engine is not None:
            self._engine.close()
        is_held = self._target.is_stopped()
        cloned = self._target.move_to_clone(cache_size, True, True, "nothing")
        self._detached = True
        return Cloned(cloned, is_attached=not is_held)

    @of_target
    def refresh(self) -> list[Point]:
        """Weave probes into code that has come since they were inserted, and return the new points.

        Probes that were inserted by paths are woven into the functions that the paths name now: in
        libraries that were loaded meanwhile, also again, and, when the target has replaced its
        program by ``execve``, in the new program. Metrics are woven into libraries. The values go
        on. Where nothing new matches, nothing happens. What a library did before is not measured:
        :attr:`weft.Probe.completeness` says so.
        """
        fresh = super().refresh()
        return fresh if self._engine is None else fresh + self._engine.refresh()

    def detach(self) -> None:
        """Take everything out of the target that weft brought, and let it run.

        A session belongs to the process that has made it. In a child that was forked since, this
        does nothing: the parent goes on to measure.
        """
        if self._engine is not None and self._target.is_here():
            self._engine.close()
        super().detach()


class Cloned(ClonedProgram):
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
        super().__init__(target, is_attached=is_attached, command=command, records=records)
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
            self._session = Session(self._target.target(), "clone", self._target)
        return self._session

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

    def debugged(self) -> Debugged:
        """Stop the program for a debugger, while it goes on to be measured.

        ```python
        with weft.attach(pid, weaver="clone") as program, program.debugged() as stopped:
            stopped.serve(connection)  # until the debugger goes
        ```
        """
        from weft.control.debugged import Debugged
        from weft.metrics.debugging import DebugOwner

        owner = DebugOwner(Session.of_clone, joined=lambda: self.session)
        target = _native.Debugger.join(self._target, owner)
        return Debugged(target, owner, self, is_attached=True)

    def _close_visits(self) -> None:
        if self._visits is not None:
            self._visits.close()
            self._visits = None

    def __enter__(self) -> Self:
        """Have `weft debug PID` find the program as well, as long as it is measured."""
        from weft.control.visits import Visits

        self._visits = Visits(self.pid, self.debugged)
        return self

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


def _descriptor(stream: Stream, opened: ExitStack) -> int | None:
    if stream == _DEVNULL:
        descriptor = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        opened.callback(os.close, descriptor)
        return descriptor
    if stream is None or isinstance(stream, int):
        return stream
    return stream.fileno()
