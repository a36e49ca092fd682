"""Starting, attaching and detaching: one :class:`Session` owns one target."""

from __future__ import annotations

import os
import platform
import select
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Mapping as MappingType
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from types import TracebackType
from typing import (
    IO,
    TYPE_CHECKING,
    Literal,
    ParamSpec,
    SupportsIndex,
    TypeAlias,
    TypeVar,
    overload,
)

from weft import _native, clone
from weft._ifuncs import Implementations, by_address, unbound
from weft._libraries import Reload, steadily
from weft._live_modules import Paths, live_modules
from weft.clone import Cloned
from weft.errors import (
    AlreadyTraced,
    BadFile,
    CodeGone,
    InvalidArgument,
    NoSuchProcess,
    TargetError,
    TargetGone,
    WeftError,
)
from weft.model import (
    Function,
    Mapping,
    Module,
    Pause,
    Pong,
    Procedures,
    Process,
    Processor,
    Registers,
    Thread,
)
from weft.probes import Point, PointSelection, Probe, is_of_kernel, kind_of, refuse_anothers
from weft.resources import ResourceTree
from weft.system_calls import matching

if TYPE_CHECKING:
    from typing_extensions import Self

    from weft.metrics.engine import Engine
    from weft.metrics.metric import Metric

#: Arguments of system calls are as wide as this.
_WORD = (1 << 64) - 1
#: Results below zero and above this are errors.
_LARGEST_ERRNO = 4095

#: What paths of system calls begin with.
_SYSTEM_CALLS = "/Syscall/"

#: What ``subprocess.DEVNULL`` is; importing that module takes longer than starting a program.
_DEVNULL = -3

_AGAIN = "attach again"

_Method = ParamSpec("_Method")
_Result = TypeVar("_Result")

#: What can be a program's standard stream: a file, a descriptor, ``subprocess.DEVNULL``, or nothing
#: for weft's own.
Stream: TypeAlias = "IO[bytes] | IO[str] | int | None"


_PATIENCE = 0.25
"""How long to wait for children that end together with the target, in seconds."""

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
    records: clone.Records = "nothing",
) -> Cloned: ...


def attach(
    pid: int,
    *,
    weaver: Literal["patch", "clone"] = "patch",
    cache_size: int | None = None,
    follows: bool = True,
    records: clone.Records = "nothing",
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
        return clone.attach(pid, cache_size=cache_size, follows=follows, records=records)
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
    records: clone.Records = "nothing",
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
    records: clone.Records = "nothing",
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
            return clone.launch(
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


@dataclass
class _Followed:
    """A probe that was inserted by paths, and where it is."""

    probe: Probe
    paths: list[str]
    snippet: str
    order: str
    known: set[Point]


def _of_target(method: Callable[_Method, _Result]) -> Callable[_Method, _Result]:
    """Have a method of a session need a target that has not ended, and was not left."""

    @wraps(method)
    def checked(*args: _Method.args, **options: _Method.kwargs) -> _Result:
        session = args[0]
        assert isinstance(session, Session)
        with session._living():
            return method(*args, **options)

    return checked


class Session:
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
        self.weaver = weaver
        """How probes and metrics are woven."""
        self._clone = clone
        """What the target runs from, where that is known."""
        self._target = target
        self._detached = False
        self._followed: list[_Followed] = []
        self._loaded: set[tuple[str, int]] = set()
        self._reloads: list[Reload] = []
        """Libraries with probes that were loaded again at the same place, as that was noticed."""
        self._went: set[str] = set()
        """Libraries that were seen to be gone since the last time that probes were woven again."""
        self._refreshed = 0
        """How many of them the probes were woven into again."""
        self._paths: Paths = {}
        self._engine: Engine | None = None
        self.resumed = 0.0
        """When a target that stood still was last let go, by the monotonic clock."""
        self._forgotten: deque[tuple[_native.Target, int]] = deque()
        """Probes that were removed and that nobody can ask for values any more."""
        self._was_patient = False
        self._process: int | None = None
        with suppress(ProcessLookupError):
            self._process = os.pidfd_open(target.pid)
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
            raise TargetGone(f"process {self.pid} has ended")

    @contextmanager
    def _living(self) -> Iterator[None]:
        """Do what needs a target. That it is gone is the error, not what is missing since then."""
        self.require()
        try:
            yield
        except (InvalidArgument, BadFile, TargetError):
            self.require()
            raise

    @_of_target
    def program(self) -> str:
        """Return the path of the program that the target runs, as the target sees it.

        Its file may have been removed since, or replaced by another.
        """
        path = _native.program(self.pid)
        if path is None:
            raise TargetGone(f"process {self.pid} has ended")
        return path

    def is_current(self) -> bool:
        """Whether the target still runs the program that weft was brought into.

        It does not when it has ended, or has become another program by ``execve``. What happens to
        the program's file does not matter.
        """
        return self._target.is_current()

    @_of_target
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
            raise TargetGone(f"process {self.pid} has ended") from None

    @_of_target
    def ping(self) -> list[Pong]:
        """Have every thread of the target run through the agent and answer.

        Raises an error if a thread that was asked did not answer.
        """
        return [Pong(tid, unasked) for tid, unasked in self._target.ping()]

    @_of_target
    def syscall(self, number: int, *args: int) -> int:
        """Have a thread of the target make a system call, and return its result.

        Raises :class:`OSError` when the call fails. It must not block: all threads that are in the
        program stand still until it returns.
        """
        if len(args) > 6:
            raise InvalidArgument("a system call takes at most six arguments")
        result = self._target.syscall(number, [arg & _WORD for arg in args])
        if -_LARGEST_ERRNO <= result < 0:
            raise OSError(-result, os.strerror(-result))
        return result

    @_of_target
    def threads(self) -> list[Thread]:
        """Return the threads that exist now."""
        return [Thread(*thread, self.pid) for thread in _native.threads(self.pid)]

    @_of_target
    def modules(self) -> list[Module]:
        """The program, its libraries and the vDSO; their functions are read when asked for."""
        return live_modules(self.pid, paths=self._paths)

    @_of_target
    def resources(self) -> ResourceTree:
        """The resource tree of the target as it is now: its code, its process and its threads."""
        program = self.program()
        return ResourceTree(
            # The program itself comes first.
            modules=sorted(self.modules(), key=lambda module: not module.is_program),
            processes=[Process(self.pid, Path(program).name)],
            threads=self.threads(),
            machine=platform.node(),
            program_names=self._program_names(),
        )

    def _program_names(self) -> list[str]:
        """What the program was started as: by a link, perhaps, as redis-server is."""
        with self._looking():
            name = Path(f"/proc/{self.pid}/comm").read_text().rstrip("\n")
        # Servers write other things there, after a space or a colon.
        started_as = "".join(self.command()[:1]).split(" ")[0].rstrip(":")
        return [name, Path(started_as).name]

    @_of_target
    def points(self, where: str | Iterable[str], kind: PointSelection = "entry") -> list[Point]:
        """Return the points of one kind that functions, or system calls, have.

        ``where`` is a path of the resource tree, or several: ``/Code/libc.so.6/malloc``,
        ``/Code/redis-server/*``. A module alone stands for all of its functions. System calls are
        ``/Syscall/openat``, ``/Syscall/*``, and have points of the kinds ``syscall`` and
        ``sysreturn``, which can be woven where the program runs from a clone. ``kind`` may also
        name some of the points of a kind: ``loads``, ``stores`` and ``syscalls`` are instructions,
        ``loops`` are the blocks that loops begin with, ``taken`` the edges that jumps take, and
        ``returns`` the exits that lead to the caller, by no detour. Functions may have more points
        than weft can see: :meth:`uncertain` says which.
        """
        return self._points(where, kind)[0]

    @_of_target
    def uncertain(self, where: str | Iterable[str], kind: PointSelection = "exit") -> list[Point]:
        """Return instructions behind which functions may have points that :meth:`points` lacks.

        They are jumps that weft could not follow and bytes that it could not read; for ``loops``
        also the first instruction of a function with cycles that are entered in several places.
        Where a function is entered is always known.
        """
        return self._points(where, kind)[1]

    def _points(
        self, where: str | Iterable[str], selection: PointSelection
    ) -> tuple[list[Point], list[Point]]:
        paths = [where] if isinstance(where, str) else list(where)
        of_kernel = [path for path in paths if path.startswith(_SYSTEM_CALLS)]
        if is_of_kernel(selection):
            names = [path.removeprefix(_SYSTEM_CALLS) for path in of_kernel]
            calls = {call: number for name in names for call, number in matching(name).items()}
            kind = kind_of(selection)
            return [Point(kind, number, name, "") for name, number in calls.items()], []
        functions = self._functions([path for path in paths if path not in of_kernel])
        return self._points_of(functions, selection)

    def _points_of(
        self, functions: MappingType[int, tuple[str, str]], selection: PointSelection
    ) -> tuple[list[Point], list[Point]]:
        """Points of functions, given by address with name and module; and where more may be."""
        found = self._target.points(list(functions), selection)
        names = list(functions.values())
        kind = kind_of(selection)
        points = [
            Point(kind, address, *names[index], target)
            for index, address, target in zip(*found[:3], strict=True)
        ]
        return points, [Point("insn", address, *names[index]) for index, address in found[3]]

    @_of_target
    def insert(
        self,
        where: str | Iterable[str | Point],
        snippet: str,
        *,
        order: Literal["append", "prepend"] = "append",
        wait: bool = False,
    ) -> Probe:
        """Weave a snippet into the running target.

        ``where`` is a path of the resource tree or points from :meth:`points`, or several of
        them. For a path, the snippet says at which points: those of its ``at`` sections, or where
        the functions are entered, or the system calls made. All points are woven in one stop of a
        few milliseconds.

        ```python
        calls = session.insert("/Code/libc.so.6/malloc", "counter calls; calls += 1")
        print(calls.value())
        ```

        Points that cannot be woven are in the probe's ``refused``, with the reason. If that is all
        of them because another weft, or another session, has probes in their functions,
        :class:`~weft.errors.AlreadyTraced` is raised. Where weft does not see all points of the
        functions, the probe's ``uncertain`` says so.

        With ``wait``, paths may name functions of libraries that are not loaded yet: the probe has
        no points there until :meth:`refresh` finds them.
        """
        places = [where] if isinstance(where, str) else list(where)
        if not _native.snippet_points(snippet) and not _native.Target.snippet_cost(snippet):
            raise InvalidArgument(
                "the snippet does nothing",
                "it has no statement",
                "say what to do, for example: counter calls; calls += 1",
            )
        if any(isinstance(place, str) for place in places):
            return steadily(lambda: self._insert(places, snippet, order, wait=wait))
        return self._insert(places, snippet, order, wait=wait)

    def _insert(
        self, places: Sequence[str | Point], snippet: str, order: str, *, wait: bool
    ) -> Probe:
        paths = [place for place in places if isinstance(place, str)]
        points = [place for place in places if isinstance(place, Point)]
        uncertain: dict[Point, None] = {}
        # Whether there are others later is seen by what there is now.
        here = {(module.name, module.bias) for module in self.modules()} if paths else set()
        for kind in _kinds(snippet, paths) if paths else ():
            for some in [[path] for path in paths] if wait else [paths]:
                with suppress(InvalidArgument) if wait else nullcontext():
                    found, unknown = self._points(some, kind)
                    points.extend(found)
                    uncertain.update(dict.fromkeys(unknown))
        if not points and not (wait and paths):
            given = ", ".join(map(str, places))
            raise InvalidArgument("there is nothing to weave the snippet into", given)
        self._forget()
        number = self._weave(points, snippet, order)
        # A probe does not keep its session: one that nobody has any more leaves the target.
        reloaded = weakref.WeakMethod(self._reloaded)
        probe = Probe(
            *(self._target, number, points, uncertain, self._forgotten),
            lambda: method() if (method := reloaded()) is not None else (),
        )
        try:
            refuse_anothers(", ".join(map(str, places)), [probe])
        except AlreadyTraced:
            probe.remove()
            raise
        if paths:
            self._loaded = self._loaded or here
            self._followed.append(_Followed(probe, paths, snippet, order, set(points)))
        return probe

    def _forget(self) -> None:
        """Give up what is kept of probes that were removed."""
        self._followed = [one for one in self._followed if not one.probe.is_removed]
        while self._forgotten:
            target, number = self._forgotten.popleft()
            # What was in a library that has gone is kept by the core: it may come back.
            with suppress(InvalidArgument):
                target.discard_probe(number)

    def _weave(self, points: Sequence[Point], snippet: str, order: str) -> int:
        return self._target.insert(
            snippet,
            [point.kind for point in points],
            [point.address for point in points],
            [point.target for point in points],
            order == "prepend",
        )

    def replace(self, where: str | Iterable[str], value: int | str) -> Probe:
        """Have functions, or system calls, give a value at once, in place of doing anything.

        ``value`` is a number, or an expression of the snippet language, which may name the
        arguments. It is what the caller finds as an integer or a pointer. What calls them does not
        matter, pointers and the program's own static functions included. Remove the probe, and
        they are what they were.

        ```python
        probe = session.replace("/Code/server/is_licensed", 1)
        probe = session.replace("/Syscall/getuid", 1000)
        ```

        What is to be done in between, or only sometimes, is said by a snippet: ``return``,
        ``arg(0) = ...`` and ``result = ...`` in the reference of the snippet language.

        A function that gives something else, as a floating-point number or a structure, is refused
        by :class:`weft.errors.InvalidArgument`. Only debug information tells what it gives: where
        there is none, its caller finds what happens to be where it looks.
        """
        paths = [where] if isinstance(where, str) else list(where)
        are_calls = {path.startswith(_SYSTEM_CALLS) for path in paths}
        if len(are_calls) != 1:
            raise InvalidArgument(
                "there is nothing to replace, or functions and system calls are mixed",
                f"{where!r}",
                advice="replace them one after the other",
            )
        if are_calls.pop():
            return self.insert(paths, f"at syscall {{ return {value} }}")
        self._refuse_other_results(paths)
        return self.insert(paths, f"at entry {{ return {value} }}")

    @_of_target
    def _refuse_other_results(self, paths: list[str]) -> None:
        """Raise an error if a function gives something that is not returned as an integer is."""
        functions = self._functions(paths)
        for module in self.modules():
            names = {
                address - module.bias: name
                for address, (name, of) in functions.items()
                if of == module.name
            }
            if not names:
                continue
            results: list[str | None] = []
            # What cannot be read tells nothing.
            with suppress(BadFile):
                results = module.symbols.other_results(list(names))
            for name, what in zip(names.values(), results, strict=False):
                if what is not None:
                    raise InvalidArgument(
                        f"/Code/{module.name}/{name} cannot be replaced: it gives {what}",
                        "a value is handed to the caller in rax, which is not where it looks",
                        "replace a function that calls it and gives an integer or a pointer, or "
                        "change its arguments by a snippet: arg(0) = ...",
                    )

    def _see_reloaded(self) -> list[Reload]:
        """All libraries with probes that were loaded again at the same place until now."""
        now = time.monotonic()
        found = self._target.see_reloaded()
        self._reloads += [Reload(start, end, now) for start, end in found]
        return self._reloads

    def _loaded_now(self) -> tuple[set[tuple[str, int]], list[Reload]]:
        """The names and places of all modules, and what was loaded again, of one moment."""
        here = {(module.name, module.bias) for module in self.modules()}
        reloads = self._see_reloaded()
        if here != {(module.name, module.bias) for module in self.modules()}:
            # What was seen to be gone may have been forgotten: it is new when it is back.
            self._went |= {name for name, _ in self._loaded - here}
            raise CodeGone("a library came or went while weft looked at what is loaded")
        return here, reloads

    def _reloaded(self) -> list[Reload]:
        """The same, as far as it can be known."""
        if not self._detached:
            with suppress(WeftError):
                return self._see_reloaded()
        return self._reloads

    @_of_target
    def refresh(self) -> list[Point]:
        """Weave probes into code that has come since they were inserted, and return the new points.

        Probes that were inserted by paths are woven into the functions that the paths name now: in
        libraries that were loaded meanwhile, also again, and, when the target has replaced its
        program by ``execve``, in the new program. Metrics are woven into libraries. The values go
        on. Where nothing new matches, nothing happens. What a library did before is not measured:
        :attr:`weft.Probe.completeness` says so.
        """
        if not self.is_current():
            self._target = _native.Target.attach(self.pid)
        here, reloads = steadily(self._loaded_now)
        again = reloads[self._refreshed :]
        fresh: list[Point] = []
        for followed in self._followed:
            # What was unloaded may come back at the same place.
            gone = self._loaded - here
            names = {name for name, _ in gone} | self._went

            def is_new(point: Point, names: set[str] = names) -> bool:
                return point.module in names or any(one.has(point.address) for one in again)

            followed.known -= {point for point in followed.known if is_new(point)}
            if not followed.probe.is_removed:
                followed.known -= followed.probe._retire(is_new)
            found: list[Point] = []
            uncertain: dict[Point, None] = {}
            for kind in _kinds(followed.snippet, followed.paths):
                for path in followed.paths:
                    with suppress(InvalidArgument):
                        points, unknown = self._points(path, kind)
                        found.extend(points)
                        uncertain.update(dict.fromkeys(unknown))
            new = [point for point in found if point not in followed.known]
            if new and not followed.probe.is_removed:
                number = self._weave(new, followed.snippet, followed.order)
                known = set(followed.probe.uncertain)
                unknown = [point for point in uncertain if point not in known]
                followed.probe._grow(self._target, number, new, unknown)
                came = {name for name, _ in here - self._loaded} | names
                followed.probe._arrivals.note({point.module for point in new} & came)
                followed.known.update(set(new) - followed.probe._not_there)
                fresh.extend(new)
        self._loaded, self._refreshed, self._went = here, len(reloads), set()
        if self._engine is not None:
            fresh += self._engine.refresh()
        return fresh

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
        commas: ``/Code/server/handle,/Thread/worker-*``. ``weft metrics`` lists the library;
        :meth:`load_metrics` adds to it.

        :attr:`weft.Metric.completeness` says whether all of it is measured. A time, a distribution
        of times or a constraint that would begin in a function and never end, since an exit of that
        cannot be woven, is refused by :class:`weft.errors.IncompleteMetric`, unless
        ``allow_incomplete`` is set.

        A focus that matches nothing is refused, unless ``wait`` is set: then it is measured when a
        library comes that has it. What that does before it is noticed, at the next sample, is
        missing.
        """
        return self.metrics.request(
            name, focus, by_function=by_function, allow_incomplete=allow_incomplete, wait=wait
        )

    def load_metrics(self, *sources: str | Path) -> None:
        """Add metrics of MDL files, or of texts, to those that can be asked for."""
        self.metrics.load(*sources)

    @_of_target
    def leave_children(self) -> None:
        """Take the probes out of the children that the target has forked.

        A child goes on with the probes of its parent and measures into values of its own, see
        :meth:`weft.Probe.processes`. This takes weft out of all children that exist now.
        """
        self._target.leave_children()

    def _functions(self, paths: Iterable[str]) -> Procedures:
        """The addresses of functions, each with its name and that of its module."""
        tree = self.resources()
        found: Procedures = {}
        listed: list[Function] = []
        paths = list(paths)
        for path in paths:
            for resource in tree.match(path):
                is_whole = resource.kind in ("module", "source")
                for inner in tree.children(resource) if is_whole else [resource]:
                    function = inner.value
                    if not isinstance(function, Function):
                        continue
                    listed.append(function)
                    # Stubs of the linkage table are not what one means by "all functions".
                    if function.kind == "plt" and "@plt" in path:
                        address = function.module.bias + function.offset
                        found[address] = (function.name, function.module.name)
        implementations = Implementations(self.pid, tree.modules)
        found.update(by_address(listed, implementations))
        if not found and listed and implementations.names:
            raise unbound(next(iter(implementations.names)))
        if not found:
            raise InvalidArgument(
                f"no function matches {' or '.join(paths)}",
                advice=f"`weft points {self.pid}` lists what there is",
            )
        return found

    @_of_target
    def maps(self) -> list[Mapping]:
        """Return the memory map of the target, weft's own mappings included."""
        return [Mapping(**mapping) for mapping in _native.maps(self.pid)]

    @_of_target
    def processor(self) -> Processor:
        """Return what the agent saw of the processor."""
        features, size = self._target.cpu()
        return Processor(tuple(features), size)

    @_of_target
    def registers(self, tid: int | None = None) -> Registers:
        """Return the registers of a thread (by default the main one), with all vector state."""
        values = self._target.registers(self.pid if tid is None else tid)
        return Registers(
            general={name: value for name, value in values.items() if isinstance(value, int)},
            zmm=tuple(values["zmm"]),
            opmask=tuple(values["opmask"]),
            xsave=values["xsave"],
        )

    @_of_target
    def read(self, address: int, size: int) -> bytes:
        """Read the target's memory."""
        return self._target.read(address, size)

    @_of_target
    def read_many(self, pieces: Sequence[tuple[int, int]]) -> list[bytes | None]:
        """Read many pieces, each an address and a size, with few system calls.

        A piece that is not wholly there comes back as ``None``.
        """
        return self._target.read_many(list(pieces))

    @_of_target
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

    @_of_target
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
        return [Pause(*pause) for pause in self._target.pauses(first)]

    @_of_target
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

    def detach(self) -> None:
        """Take everything out of the target that weft brought, and let it run.

        A session belongs to the process that has made it. In a child that was forked since, this
        does nothing: the parent goes on to measure.
        """
        if not self._target.is_here():
            return
        if self._engine is not None:
            self._engine.close()
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


def _kinds(snippet: str, paths: Iterable[str]) -> Sequence[PointSelection]:
    """The kinds of points that a snippet is for; where it has no sections, where things begin."""
    are_calls = all(path.startswith(_SYSTEM_CALLS) for path in paths)
    begins: PointSelection = "syscall" if are_calls else "entry"
    return _native.snippet_points(snippet) or [begins]


def _descriptor(stream: Stream, opened: ExitStack) -> int | None:
    if stream == _DEVNULL:
        descriptor = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        opened.callback(os.close, descriptor)
        return descriptor
    if stream is None or isinstance(stream, int):
        return stream
    return stream.fileno()
