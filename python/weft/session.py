"""Starting, attaching and detaching: one :class:`Session` owns one target."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Mapping as MappingType
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Literal, TypeAlias, overload

from weft import _native, clone
from weft._live_modules import live_modules
from weft.clone import Cloned
from weft.errors import BadFile, InvalidArgument, TargetGone
from weft.model import Function, Mapping, Module, Pause, Pong, Process, Processor, Registers, Thread
from weft.probes import Point, PointSelection, Probe, is_of_kernel, kind_of
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

#: What can be a program's standard stream: a file, a descriptor, ``subprocess.DEVNULL``, or nothing
#: for weft's own.
Stream: TypeAlias = "IO[bytes] | IO[str] | int | None"


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
    if weaver == "clone":
        return clone.attach(pid, cache_size=cache_size, follows=follows, records=records)
    return Session(_native.Target.attach(pid))


@overload
def run(
    command: Sequence[str | os.PathLike[str]],
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
    command: Sequence[str | os.PathLike[str]],
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
    command: Sequence[str | os.PathLike[str]],
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
        words = [os.fspath(word) for word in command]
        return Session(_native.Target.launch(words, environment, directory, streams))


@dataclass
class _Followed:
    """A probe that was inserted by paths, and where it is."""

    probe: Probe
    paths: list[str]
    snippet: str
    order: str
    known: set[Point]


class Session:
    """One target with weft in it; made by :func:`attach` and :func:`run`.

    A session is a context manager. Leaving it detaches: everything that weft brought into the
    target is gone then, its mappings, its descriptors and its code, and the target runs on.
    """

    def __init__(self, target: _native.Target) -> None:
        self._target = target
        self._detached = False
        self._followed: list[_Followed] = []
        self._loaded: set[tuple[str, int]] = set()
        self._engine: Engine | None = None

    @property
    def pid(self) -> int:
        """The process id of the target."""
        return self._target.pid

    @contextmanager
    def _unless_gone(self) -> Iterator[None]:
        """Say that the target has ended where its files or its code are missing because of it."""
        try:
            yield
        except (InvalidArgument, BadFile):
            self.program()
            raise

    def program(self) -> str:
        """Return the path of the program that the target runs, as the target sees it."""
        with self._looking():
            return str(Path(f"/proc/{self.pid}/exe").readlink())

    def command(self) -> tuple[str, ...]:
        """Return the words that the target was started with; some servers write others there."""
        with self._looking():
            text = Path(f"/proc/{self.pid}/cmdline").read_bytes()
        return tuple(os.fsdecode(word) for word in text.rstrip(b"\0").split(b"\0") if word)

    @contextmanager
    def _looking(self) -> Iterator[None]:
        """Look at what only a process that has not ended has."""
        try:
            yield
        except (FileNotFoundError, ProcessLookupError):
            raise TargetGone(f"process {self.pid} has ended") from None

    def ping(self) -> list[Pong]:
        """Have every thread of the target run through the agent and answer.

        Raises an error if a thread that was asked did not answer.
        """
        return [Pong(tid, unasked) for tid, unasked in self._target.ping()]

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

    def threads(self) -> list[Thread]:
        """Return the threads that exist now."""
        return [Thread(*thread, self.pid) for thread in _native.threads(self.pid)]

    def modules(self) -> list[Module]:
        """The program, its libraries and the vDSO; their functions are read when asked for."""
        return live_modules(self.pid)

    def resources(self) -> ResourceTree:
        """The resource tree of the target as it is now: its code, its process and its threads."""
        program = self.program()
        return ResourceTree(
            # The program itself comes first.
            modules=sorted(self.modules(), key=lambda module: module.path != program),
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
        with self._unless_gone():
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

    def insert(
        self,
        where: str | Iterable[str | Point],
        snippet: str,
        *,
        order: Literal["append", "prepend"] = "append",
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

        Points that cannot be woven are in the probe's ``refused``, with the reason. Where weft does
        not see all points of the functions, the probe's ``uncertain`` says so.
        """
        places = [where] if isinstance(where, str) else list(where)
        paths = [place for place in places if isinstance(place, str)]
        points = [place for place in places if isinstance(place, Point)]
        uncertain: dict[Point, None] = {}
        if paths:
            for kind in _kinds(snippet, paths):
                found, unknown = self._points(paths, kind)
                points.extend(found)
                uncertain.update(dict.fromkeys(unknown))
        if not points:
            raise InvalidArgument("there is nothing to weave the snippet into", f"{where!r}")
        probe = Probe(self._target, self._weave(points, snippet, order), points, uncertain)
        if paths:
            self._followed.append(_Followed(probe, paths, snippet, order, set(points)))
        return probe

    def _weave(self, points: Sequence[Point], snippet: str, order: str) -> int:
        with self._unless_gone():
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
        """
        paths = [where] if isinstance(where, str) else list(where)
        are_calls = {path.startswith(_SYSTEM_CALLS) for path in paths}
        if len(are_calls) != 1:
            raise InvalidArgument(
                "there is nothing to replace, or functions and system calls are mixed",
                f"{where!r}",
                advice="replace them one after the other",
            )
        kind = "syscall" if are_calls.pop() else "entry"
        return self.insert(paths, f"at {kind} {{ return {value} }}")

    def refresh(self) -> list[Point]:
        """Weave probes into code that has come since they were inserted, and return the new points.

        Probes that were inserted by paths are woven into the functions that the paths name now: in
        libraries that were loaded meanwhile, and, when the target has replaced its program by
        ``execve``, in the new program. Metrics are woven into libraries. The values go on. Where
        nothing new matches, nothing happens.
        """
        if not self._target.is_current():
            self._target = _native.Target.attach(self.pid)
        here = {(module.name, module.bias) for module in self.modules()}
        fresh: list[Point] = []
        for followed in self._followed:
            # What was unloaded may come back at the same place.
            gone = self._loaded - here
            names = {name for name, _ in gone}
            followed.known -= {point for point in followed.known if point.module in names}
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
                followed.known.update(new)
                fresh.extend(new)
        self._loaded = here
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

    def metric(self, name: str, focus: str = "", *, by_function: bool = False) -> Metric:
        """Begin to measure a metric of the library, narrowed to a focus.

        ```python
        latency = session.metric("latency", "/Code/redis-server/processCommand")
        for sample in latency.stream(interval=1.0, limit=10):
            print(sample.time, sample.rate)
        ```

        A focus is a path of the resource tree, or several of different hierarchies joined by
        commas: ``/Code/server/handle,/Thread/worker-*``. ``weft metrics`` lists the library;
        :meth:`load_metrics` adds to it.
        """
        return self.metrics.request(name, focus, by_function=by_function)

    def load_metrics(self, *sources: str | Path) -> None:
        """Add metrics of MDL files, or of texts, to those that can be asked for."""
        self.metrics.load(*sources)

    def leave_children(self) -> None:
        """Take the probes out of the children that the target has forked.

        A child goes on with the probes of its parent and measures into values of its own, see
        :meth:`weft.Probe.processes`. This takes weft out of all children that exist now.
        """
        self._target.leave_children()

    def _functions(self, paths: Iterable[str]) -> dict[int, tuple[str, str]]:
        """The addresses of functions, each with its name and that of its module."""
        tree = self.resources()
        found: dict[int, tuple[str, str]] = {}
        paths = list(paths)
        for path in paths:
            for resource in tree.match(path):
                is_whole = resource.kind in ("module", "source")
                for inner in tree.children(resource) if is_whole else [resource]:
                    function = inner.value
                    # Stubs of the linkage table are not what one means by "all functions".
                    if isinstance(function, Function) and (
                        function.kind != "plt" or "@plt" in path
                    ):
                        address = function.module.bias + function.offset
                        found[address] = (function.name, function.module.name)
        if not found:
            raise InvalidArgument(
                f"no function matches {' or '.join(paths)}",
                advice=f"`weft points {self.pid}` lists what there is",
            )
        return found

    def maps(self) -> list[Mapping]:
        """Return the memory map of the target, weft's own mappings included."""
        return [Mapping(**mapping) for mapping in _native.maps(self.pid)]

    def processor(self) -> Processor:
        """Return what the agent saw of the processor."""
        features, size = self._target.cpu()
        return Processor(tuple(features), size)

    def registers(self, tid: int | None = None) -> Registers:
        """Return the registers of a thread (by default the main one), with all vector state."""
        values = self._target.registers(self.pid if tid is None else tid)
        return Registers(
            general={name: value for name, value in values.items() if isinstance(value, int)},
            zmm=tuple(values["zmm"]),
            opmask=tuple(values["opmask"]),
            xsave=values["xsave"],
        )

    def read(self, address: int, size: int) -> bytes:
        """Read the target's memory."""
        return self._target.read(address, size)

    def read_many(self, pieces: Sequence[tuple[int, int]]) -> list[bytes | None]:
        """Read many pieces, each an address and a size, with few system calls.

        A piece that is not wholly there comes back as ``None``.
        """
        return self._target.read_many(list(pieces))

    def write(self, address: int, data: bytes) -> None:
        """Write to memory that the target itself could write to."""
        self._target.write(address, data)

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Keep every thread of the target stopped for as long as the block takes."""
        already = self._target.is_stopped()
        self._target.stop()
        try:
            yield
        finally:
            if not already:
                self._target.resume()

    def run_to_entry(self) -> bool:
        """Let a program that :func:`run` has started load its libraries, and stop it again.

        It then stands before its own first instruction, so that probes can be woven into libraries
        before the program uses them; what the libraries themselves did to get ready is past.
        Returns false if the program has ended instead.
        """
        return self._target.run_to_entry()

    def resume(self) -> None:
        """Let a program run that :func:`run` has started."""
        self._target.resume()

    def wait(self, timeout: float | None = None) -> int | None:
        """Let a program that :func:`run` has started run to its end, and return its exit code.

        As in a shell, a program that a signal ended has the code 128 plus the signal's number.
        Returns ``None`` when it still runs after ``timeout`` seconds.
        """
        self._target.resume()
        return self._target.wait(timeout)

    def pauses(self, first: int = 0) -> list[Pause]:
        """Return every time that threads of the target stood still because of weft.

        ``first`` is how many of them one knows already.
        """
        return [Pause(*pause) for pause in self._target.pauses(first)]

    def move_to_clone(self, *, cache_size: int | None = None) -> Cloned:
        """Take everything out of the target, and have it run from a clone of its code instead.

        This session is over then; the clone has its own, :attr:`Cloned.session`. A program that
        stands still, because :func:`run` has just started it, does so until that one resumes it.
        """
        if self._engine is not None:
            self._engine.close()
        is_held = self._target.is_stopped()
        cloned = self._target.move_to_clone(cache_size, True, True, "nothing")
        self._detached = True
        return Cloned(cloned, is_attached=not is_held)

    def detach(self) -> None:
        """Take everything out of the target that weft brought, and let it run."""
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
