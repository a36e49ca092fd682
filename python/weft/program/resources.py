"""The resource tree: everything that a measurement can be narrowed to, by its path.

::

    /Code/<module>/<function>      /Code/libc.so.6/malloc
    /Code/<source file>/<function> /Code/test.c/func1, where debug information exists
    /Process/<pid>                 /Process/4711
    /Thread/<name or tid>          /Thread/worker
    /Machine/<host>                /Machine/db1

A pattern is a path whose parts may contain ``*``, ``?`` and ``[...]``: ``/Code/libc*/mem*``. The
tree is a view: it holds the modules, processes and threads that it was given, and makes a
:class:`~weft.model.program.Resource` of what a caller asks for, when it is asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Final

from weft.errors import InvalidArgument
from weft.model.program import Function, Module, Process, Resource, SourceFile, Thread

__all__ = ["ResourceTree"]

ROOTS: Final = ("Code", "Process", "Thread", "Machine")

_SPECIAL: Final = frozenset("*?[")


class ResourceTree:
    """The resources of one target, or of several.

    ``program_names`` are other names that the first module, the program, goes by; the last is what
    it was started as.

    Names need not be unique (two threads of one name, two libraries of one name in different
    directories): a path stands for all that it names, and :meth:`match` gives each of them.
    """

    def __init__(
        self,
        *,
        modules: Iterable[Module] = (),
        processes: Iterable[Process] = (),
        threads: Iterable[Thread] = (),
        machine: str = "",
        program_names: Iterable[str] = (),
    ) -> None:
        self.modules = tuple(modules)
        self.processes = tuple(processes)
        self.threads = tuple(threads)
        self.machine = machine
        names = list(program_names)
        self._program_names = frozenset(names)
        self._started_as = names[-1] if names else ""

    def roots(self) -> list[Resource]:
        """``/Code``, ``/Process``, ``/Thread`` and ``/Machine``."""
        return [Resource(f"/{name}", "root", name) for name in ROOTS]

    def match(self, pattern: str) -> Iterator[Resource]:
        """The resources that a path or pattern stands for, found as they are taken.

        A module part that matches no module is looked for among the source files: only then is
        debug information read. Raises :class:`~weft.errors.InvalidArgument` when the pattern is no
        path of this tree; one that merely matches nothing gives nothing.
        """
        root, parts = _split(pattern)
        if root is None:
            return iter(
                [found for found in self.roots() if fnmatchcase(found.path[1:], pattern[1:])]
            )
        if not parts:
            return iter([Resource(f"/{root}", "root", root)])
        if root == "Code":
            return self._match_code(*parts)
        if root == "Process":
            return (found for found in self._processes() if _matches(found, parts[0]))
        if root == "Thread":
            return (found for found in self._threads() if _thread_matches(found, parts[0]))
        return (found for found in self._machines() if _matches(found, parts[0]))

    def has_module(self, pattern: str) -> bool:
        """Whether a module, or the program by another of its names, matches."""
        return pattern in self._program_names or any(
            module.is_called(pattern) for module in self.modules
        )

    def path_of(self, function: Function) -> str:
        """The path of a function, in which the program is called what it was started as."""
        module = function.module
        name = module.name
        others = {one.name for one in self.modules}
        if module.is_program and self._program_names and not self._program_names & others:
            name = self._started_as or name
        return f"/Code/{name}/{function.name}"

    def children(self, resource: Resource | str) -> Iterator[Resource]:
        """What is directly below a resource, or below all that a path or pattern stands for.

        Source files are not among the children of ``/Code``, which would have every function twice:
        see :meth:`sources`.
        """
        parents = self.match(resource) if isinstance(resource, str) else iter([resource])
        for parent in parents:
            if isinstance(parent.value, Module):
                yield from _of_module(parent.path, parent.value.functions())
            elif isinstance(parent.value, SourceFile):
                yield from _in_source(parent.value, "*")
            elif parent.kind == "root":
                yield from self.match(f"{parent.path}/*")

    def get(self, path: str) -> Resource:
        """The one resource of that path.

        Raises :class:`~weft.errors.InvalidArgument` when there is none, or more than one.
        """
        found = list(self.match(path))
        if len(found) == 1:
            return found[0]
        if not found:
            raise InvalidArgument(
                f"there is no resource {path}",
                advice="`weft points` lists the modules and functions of a program",
            )
        raise InvalidArgument(
            f"{path} stands for {len(found)} resources",
            why="this takes exactly one",
            advice="name it in full",
        )

    def sources(self) -> Iterator[Resource]:
        """The source files of all modules; reads their debug information."""
        for source in self._source_files:
            yield Resource(f"/Code/{source.name}", "source", source)

    def _match_code(self, module: str, function: str | None = None) -> Iterator[Resource]:
        matching = [found for found in self.modules if _name_matches(found.name, module)]
        if not matching:
            matching = [found for found in self.modules if found.is_called(module)]
        if not matching and module in self._program_names:
            # The kernel has followed the links by which people know the program.
            matching = list(self.modules[:1])
        for found in matching:
            path = f"/Code/{found.name}"
            if function is None:
                yield Resource(path, "module", found)
            else:
                yield from _of_module(path, _functions(found, function))
        if matching:
            return
        for source in self._source_files:
            if _name_matches(source.name, module):
                if function is None:
                    yield Resource(f"/Code/{source.name}", "source", source)
                else:
                    yield from _in_source(source, function)

    @cached_property
    def _source_files(self) -> list[SourceFile]:
        modules_of: dict[str, list[Module]] = {}
        for module in self.modules:
            for file in module.source_files:
                modules_of.setdefault(file, []).append(module)
        return [SourceFile(file, tuple(modules)) for file, modules in modules_of.items()]

    def _processes(self) -> Iterator[Resource]:
        for process in self.processes:
            yield Resource(f"/Process/{process.pid}", "process", process)

    def _threads(self) -> Iterator[Resource]:
        names = Counter(thread.name for thread in self.threads)
        for thread in self.threads:
            is_named = thread.name and names[thread.name] == 1
            name = thread.name if is_named else str(thread.tid)
            yield Resource(f"/Thread/{name}", "thread", thread)

    def _machines(self) -> Iterator[Resource]:
        if self.machine:
            yield Resource(f"/Machine/{self.machine}", "machine", self.machine)


def _split(pattern: str) -> tuple[str | None, list[str]]:
    """The root and what follows it; no root when that part is itself a pattern."""
    if not pattern.startswith("/") or pattern == "/":
        raise InvalidArgument(
            f"{pattern!r} is no path of a resource",
            why="a path begins with a slash and a name",
            advice="for example /Code/libc.so.6/malloc",
        )
    root, *rest = pattern[1:].rstrip("/").split("/", 1) if pattern != "/" else [""]
    if root not in ROOTS:
        if not rest and _SPECIAL & set(root):
            return None, []
        raise InvalidArgument(
            f"there are no resources below /{root}",
            advice="paths begin with " + ", ".join(f"/{name}" for name in ROOTS),
        )
    # What follows a module is the name of a function, slashes and all: Go has them.
    return root, rest[0].split("/", 1) if rest and root == "Code" else rest


def _name_matches(name: str, pattern: str) -> bool:
    return name == pattern or fnmatchcase(name, pattern)


def _matches(resource: Resource, pattern: str) -> bool:
    return _name_matches(resource.path.split("/", 2)[2], pattern)


def _thread_matches(resource: Resource, pattern: str) -> bool:
    thread = resource.value
    assert isinstance(thread, Thread)
    return _name_matches(thread.name, pattern) or _name_matches(str(thread.tid), pattern)


def _functions(module: Module, pattern: str) -> Iterable[Function]:
    """Those that match, or else those of this very name: C++ names may look like patterns."""
    if not _SPECIAL & set(pattern):
        return module.find(pattern)
    found = module.functions(pattern)
    first = next(found, None)
    if first is None:
        return module.find(pattern)
    return _chain(first, found)


def _chain(first: Function, others: Iterator[Function]) -> Iterator[Function]:
    yield first
    yield from others


def _of_module(path: str, functions: Iterable[Function]) -> Iterator[Resource]:
    for function in functions:
        yield Resource(f"{path}/{function.name}", "function", function)


def _in_source(source: SourceFile, pattern: str) -> Iterator[Resource]:
    for module in source.modules:
        for function in module.functions_in(source.path):
            names = (function.name, function.display_name, *function.aliases)
            if any(_name_matches(name, pattern) for name in names):
                yield Resource(f"/Code/{source.name}/{function.name}", "function", function)
