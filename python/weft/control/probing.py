"""Probes in a process: where they can be, weaving them, and following code that comes later."""

from __future__ import annotations

import time
import weakref
from collections import deque
from collections.abc import Iterable, Sequence
from collections.abc import Mapping as MappingType
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from weft import _native
from weft.control.attached import Attached, of_target
from weft.control.libraries import Reload, steadily
from weft.control.probes import Probe, refuse_anothers
from weft.errors import AlreadyTraced, BadFile, CodeGone, InvalidArgument, WeftError
from weft.model.points import Point, PointSelection, is_of_kernel, kind_of
from weft.program.system_calls import matching

if TYPE_CHECKING:
    from weft.model.program import Procedures

__all__ = ["Probing"]

#: What paths of system calls begin with.
_SYSTEM_CALLS = "/Syscall/"


@dataclass
class _Followed:
    """A probe that was inserted by paths, and where it is."""

    probe: Probe
    paths: list[str]
    snippet: str
    order: str
    known: set[Point]


class Probing(Attached):
    """A target that probes are woven into."""

    def __init__(
        self,
        target: _native.Target,
        weaver: Literal["patch", "clone"] = "patch",
        clone: _native.Cloned | None = None,
    ) -> None:
        super().__init__(target, weaver, clone)
        self._followed: list[_Followed] = []
        self._loaded: set[tuple[str, int]] = set()
        self._reloads: list[Reload] = []
        """Libraries with probes that were loaded again at the same place, as that was noticed."""
        self._went: set[str] = set()
        """Libraries that were seen to be gone since the last time that probes were woven again."""
        self._refreshed = 0
        """How many of them the probes were woven into again."""
        self._forgotten: deque[tuple[_native.Target, int]] = deque()
        """Probes that were removed and whose values nothing can read any more."""

    @of_target
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

    @of_target
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

    @of_target
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
        """Make functions, or system calls, return a value at once, without executing them.

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

    @of_target
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

    @of_target
    def refresh(self) -> list[Point]:
        """Weave probes that were inserted by paths into what these name now; return new points."""
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
        return fresh

    @of_target
    def leave_children(self) -> None:
        """Take the probes out of the children that the target has forked.

        A child goes on with the probes of its parent and measures into values of its own, see
        :meth:`weft.Probe.processes`. This takes weft out of all children that exist now.
        """
        self._target.leave_children()

    def _functions(self, paths: Iterable[str]) -> Procedures:
        """The addresses of functions, each with its name and that of its module."""
        from weft.model.program import Function
        from weft.program.ifuncs import Implementations, by_address, unbound

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


def _kinds(snippet: str, paths: Iterable[str]) -> Sequence[PointSelection]:
    """The kinds of points that a snippet is for; where it has no sections, where things begin."""
    are_calls = all(path.startswith(_SYSTEM_CALLS) for path in paths)
    begins: PointSelection = "syscall" if are_calls else "entry"
    return _native.snippet_points(snippet) or [begins]
