"""What weft knows about a program and its processes, as plain values that never change.

Nothing here is read before it is asked for: a :class:`Module` of a hundred thousand functions costs
nothing until its functions are wanted, and then only those that are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import islice
from pathlib import PurePath
from typing import Literal, TypeAlias

from weft._native import ModuleSymbols, soname

__all__ = [
    "Frame",
    "Function",
    "FunctionKind",
    "Mapping",
    "Module",
    "Pause",
    "Pong",
    "Process",
    "Processor",
    "Registers",
    "Resource",
    "ResourceKind",
    "SourceFile",
    "SourceLocation",
    "Thread",
]

Procedures: TypeAlias = "dict[int, tuple[str, str]]"
"""Functions by their address in a process, each with its name and that of its module."""

FunctionKind: TypeAlias = Literal["function", "ifunc", "plt"]
"""An ordinary function; one that chooses at start-up which function its name stands for; an entry
of the procedure linkage table, which jumps to a function of another module."""

ResourceKind: TypeAlias = Literal[
    "root", "module", "source", "function", "process", "thread", "machine"
]
"""What stands at a place of the resource tree."""

#: How many functions are turned into Python objects at a time.
_BATCH = 1024


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """A place in a source file. ``line`` and ``column`` are ``None`` where they are not known."""

    file: str
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        return self.file if self.line is None else f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Function:
    """A function of a module.

    ``offset`` is its address as the file states it: adding the module's load bias gives the address
    in a process. ``size`` is 0 where nothing tells. ``name`` is the linker's, or ``sub_<offset>``
    for code that has lost its name; ``demangled`` is the C++ or Rust name where that differs.
    ``aliases`` are other names of the same code. ``origin`` says which part of the file named it.
    """

    module: Module
    name: str
    offset: int
    size: int
    demangled: str | None = None
    kind: FunctionKind = "function"
    binding: str = "local"
    visibility: str = "default"
    origin: str = "symtab"
    aliases: tuple[str, ...] = ()
    index: int = field(default=0, repr=False, compare=False)

    @property
    def display_name(self) -> str:
        """The name to show to people."""
        return self.demangled or self.name

    @property
    def source(self) -> SourceLocation | None:
        """Where it is written; needs debug information."""
        (place,) = self.module.symbols.sources([self.index])
        if place is None:
            return None
        file, line = place
        return SourceLocation(file, line or None)


@dataclass(frozen=True, slots=True)
class Frame:
    """A function at an address of code, and the place in its source.

    ``inlined`` says that its code stands within the function of the frame that follows.
    """

    function: str | None
    location: SourceLocation | None
    inlined: bool


@dataclass(frozen=True)
class Module:
    """A program or a shared library, as a file or as part of a process.

    ``path`` is what the program that has loaded it calls it. ``open_path`` and ``root`` lead to it
    and to its debug files from here, when that program lives in another mount namespace. ``image``
    holds its bytes where there is no file to open: those of a file, or with ``image_bias`` its
    segments as they lie in memory. ``bias`` is what the loader has added to its addresses, and
    ``is_program`` says that it is the program itself that a process runs.
    """

    path: str
    open_path: str | None = None
    root: str | None = None
    bias: int = 0
    image: bytes | None = field(default=None, repr=False)
    image_bias: int | None = None
    is_program: bool = False
    use_cache: bool = field(default=True, repr=False)

    @property
    def name(self) -> str:
        """The last part of the path, which is its name in the resource tree.

        A file that was replaced while it is in use is called what it was called.
        """
        name = self.path.rstrip("/").rpartition("/")[2] or self.path
        return name.removesuffix(" (deleted)") or name

    def is_called(self, pattern: str) -> bool:
        """Whether a pattern is like its name, or like the one that programs ask for it by.

        The former is mostly more exact, and the latter a link to it: ``libz.so.1``.
        """
        if self.name == pattern or fnmatchcase(self.name, pattern):
            return True
        if ".so" not in pattern or self.is_program or self.image is not None:
            return False
        return fnmatchcase(self._soname, pattern)

    @cached_property
    def _soname(self) -> str:
        return soname(self.open_path or self.path)

    @cached_property
    def symbols(self) -> ModuleSymbols:
        """The native table of its functions. Raises :class:`weft.errors.BadFile`."""
        if self.image is not None:
            return ModuleSymbols.from_image(
                self.path,
                self.image,
                bias=self.image_bias,
                root=self.root,
                use_cache=self.use_cache,
            )
        return ModuleSymbols.open(
            self.path, open_path=self.open_path, root=self.root, use_cache=self.use_cache
        )

    @property
    def build_id(self) -> str | None:
        """The identifier that the linker gave to this build, in hexadecimal digits."""
        return self.symbols.build_id

    @property
    def problems(self) -> tuple[str, ...]:
        """What could not be read, in words."""
        return tuple(self.symbols.problems)

    def functions(self, names: str = "*") -> Iterator[Function]:
        """The functions with a name (the linker's, demangled, an alias) that matches a pattern."""
        return self._functions(self.symbols.select(names))

    def find(self, name: str) -> list[Function]:
        """The functions of exactly this name; a demangled name may lack its parameters."""
        return list(self._functions(self.symbols.find(name)))

    def variables(self, name: str) -> list[tuple[int, int]]:
        """The variables of exactly this name, also a demangled one: the offset and size of each.

        As with functions, adding :attr:`bias` to an offset gives the address in a process. Several
        variables have one name when they are ``static`` in different files. Those
        that each thread has for itself are left out: they have no address of their own.
        """
        return self.symbols.variables(name)

    def variable_at(self, offset: int) -> tuple[str, int] | None:
        """The variable that contains an offset: its name, demangled, and where it starts."""
        return self.symbols.variable_at(offset)

    def function_at(self, offset: int) -> Function | None:
        """The function whose code contains an offset."""
        (index,) = self.symbols.containing([offset])
        return None if index is None else next(self._functions([index]))

    def code(self, offset: int, size: int) -> bytes:
        """The bytes of code at an offset; none if they are not all code."""
        return self.symbols.code([(offset, size)])[0] if offset >= 0 else b""

    def disassemble(self, pieces: Sequence[tuple[int, int]]) -> list[list[tuple[int, str]]]:
        """The instructions of pieces of code, each an offset and a size: offsets and texts."""
        return self.symbols.disassemble(pieces)

    def frames_at(self, offset: int) -> list[Frame]:
        """The source lines at an offset (needs debug information), innermost function first."""
        _, rows = self.symbols.at(offset)
        return [
            Frame(function, None if file is None else SourceLocation(file, line, column), inlined)
            for function, file, line, column, inlined in rows
        ]

    @cached_property
    def source_files(self) -> tuple[str, ...]:
        """The source files that its functions are written in; needs debug information."""
        return tuple(self.symbols.source_files())

    def functions_in(self, source_file: str) -> Iterator[Function]:
        """The functions that are written in one of :attr:`source_files`."""
        return self._functions(self.symbols.in_source(self.source_files.index(source_file)))

    def _functions(self, indexes: list[int]) -> Iterator[Function]:
        remaining = iter(indexes)
        while batch := list(islice(remaining, _BATCH)):
            for index, row in zip(batch, self.symbols.rows(batch), strict=True):
                name, demangled, offset, size, kind, binding, visibility, origin, aliases = row
                yield Function(
                    module=self,
                    name=name,
                    offset=offset,
                    size=size,
                    demangled=demangled,
                    kind=kind,
                    binding=binding,
                    visibility=visibility,
                    origin=origin,
                    aliases=tuple(aliases),
                    index=index,
                )


@dataclass(frozen=True, slots=True)
class Process:
    """A process, by its id and the name of its program."""

    pid: int
    name: str = ""


@dataclass(frozen=True, slots=True)
class Thread:
    """A thread, by its id and its name, which may be empty and need not be unique.

    ``state`` is the kernel's letter for what it did when it was looked at: ``R`` for running, ``S``
    for sleeping, and the others of proc(5).
    """

    tid: int
    name: str = ""
    state: str = ""
    pid: int | None = None


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A source file, with the modules that have functions from it."""

    path: str
    modules: tuple[Module, ...]

    @property
    def name(self) -> str:
        """The last part of the path, which is its name in the resource tree."""
        return PurePath(self.path).name


@dataclass(frozen=True, slots=True)
class Resource:
    """A place in the resource tree, and what stands there."""

    path: str
    kind: ResourceKind
    value: Module | Function | Process | Thread | SourceFile | str

    def __str__(self) -> str:
        return self.path


@dataclass(frozen=True, slots=True)
class Pong:
    """A thread's answer to a ping."""

    tid: int
    """The thread."""
    unasked: str | None = None
    """Why it was not asked, or nothing when it was asked and answered. weft does not disturb a
    thread that sleeps in a call which an interruption would cut short: a half-done ``write``."""

    @property
    def answered(self) -> bool:
        """Whether the thread answered from inside the target."""
        return self.unasked is None


@dataclass(frozen=True, slots=True)
class Pause:
    """A time for which threads of the target stood still because of weft."""

    seconds: float
    """From when the first thread stood still until the last one ran again."""
    threads: int
    """How many threads."""
    began: float
    """When, on the clock of :func:`time.monotonic`."""


@dataclass(frozen=True, slots=True)
class Processor:
    """What the agent saw of the processor, from inside the target."""

    features: tuple[str, ...]
    """The names of the features that matter to weft."""
    vector_state_size: int
    """How many bytes the vector registers of one thread take."""


@dataclass(frozen=True, slots=True)
class Mapping:
    """A range of the target's memory."""

    start: int
    end: int
    permissions: str
    """Four letters as in ``/proc/PID/maps``: ``r-xp``."""
    offset: int
    """Where in the file it starts."""
    inode: int
    path: str
    """The file's path in the target's own mount namespace, a name in brackets, or nothing."""


@dataclass(frozen=True, slots=True)
class Registers:
    """The registers of a thread."""

    general: dict[str, int]
    """By name: ``rax`` to ``r15``, ``rip``, ``eflags``, the segments and their bases."""
    zmm: tuple[bytes, ...]
    """The 32 vector registers, 64 bytes each; their low 16 bytes are ``xmm``, their low 32 ``ymm``.
    What the processor does not have is zero."""
    opmask: tuple[int, ...]
    """The eight mask registers of AVX-512."""
    xsave: bytes
    """The whole extended state, as the ``xsave`` instruction lays it out."""

    def __getitem__(self, name: str) -> int:
        return self.general[name]
