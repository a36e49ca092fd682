"""Traces: what a program has executed and touched, in order.

A trace holds only what cannot be computed again; everything else is computed while it is read. So
its tables are streams: batches of rows, one after the other, however large the whole is.

.. code-block:: python

    trace = weft.trace.open("run.weft-trace")
    for batch in trace.accesses():
        print(batch.num_rows, batch.column("address")[0])
"""

from __future__ import annotations

import bisect
import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from weft import _native
from weft.base.extras import needed
from weft.errors import BadFile
from weft.model.losses import sentences
from weft.model.program import Module

if TYPE_CHECKING:
    import pyarrow

__all__ = [
    "VIEWS",
    "Code",
    "MappedFile",
    "Table",
    "ThreadTotal",
    "Trace",
    "View",
    "open",
    "program_of",
]

View = Literal["accesses", "blocks", "branches", "calls", "system_calls", "events"]
"""The name of a table."""

VIEWS: tuple[View, ...] = ("accesses", "blocks", "branches", "calls", "system_calls", "events")
"""All tables of a trace."""

_ROWS = 1 << 18
"""About how many rows a batch has: some megabytes."""

_KINDS = {
    "accesses": {1: "load", 2: "store", 3: "update"},
    "branches": {
        1: "conditional",
        2: "jump",
        3: "indirect jump",
        4: "call",
        5: "indirect call",
        6: "return",
    },
    "events": {1: "thread", 2: "interrupted", 7: "lost", 8: "end", 9: "signal"},
}
_KINDS["calls"] = _KINDS["branches"]


@dataclass(frozen=True, slots=True)
class MappedFile:
    """A file whose code was mapped into a program."""

    program: int
    """Which program: 0 is the first, the others are what processes have become."""
    path: str
    start: int
    """Its first address."""
    end: int
    """The one behind its last."""
    offset: int
    """Where in the file it begins."""
    time: int
    """Since when, in nanoseconds; 0 if from the beginning."""


@dataclass(frozen=True, slots=True)
class ThreadTotal:
    """How much a thread has executed."""

    thread: int
    process: int
    """Its process; like the thread's, its id is that which the program itself knows."""
    program: int
    """The program that it has executed last: see :class:`MappedFile`."""
    name: str
    """The name that it had last, as the kernel has it (15 bytes); empty if that is not known.

    Threads that are made have the name of who makes them. A name that another thread gives is not
    known.
    """
    blocks: int
    """Its blocks and events."""
    accesses: int
    """Its accesses, at most: blocks that were interrupted count as whole."""
    bytes: int
    """What it takes in the file."""


@dataclass(frozen=True, slots=True)
class Code:
    """A block of code that was executed."""

    number: int
    address: int
    size: int
    instructions: int
    program: int
    """Which program: see :class:`MappedFile`."""


_BLOCK_BITS = 21
_LOST = "lost "
"""How notes begin that say what is missing."""


def program_of(block: int) -> int:
    """The program that a block is of, by its number: 0 is the first."""
    return block >> _BLOCK_BITS


def open(path: str | os.PathLike[str]) -> Trace:
    """Open a trace. Raises :class:`weft.errors.BadFile`."""
    return Trace(Path(path), _native.Trace.open(Path(path)))


@dataclass(frozen=True)
class Table:
    """One table of a trace, which can be gone through any number of times.

    It is what other libraries take as a stream of Arrow: ``duckdb``, ``polars``,
    ``pyarrow.table(...)``. Needs ``weft[arrow]``.
    """

    view: View
    threads: tuple[int, ...] = ()
    _native: _native.Trace = field(kw_only=True, repr=False)

    def __iter__(self) -> Iterator[pyarrow.RecordBatch]:
        return self.batches()

    def batches(self, rows: int = _ROWS) -> Iterator[pyarrow.RecordBatch]:
        """The rows, about so many at a time."""
        rest = self._native.table(self.view, list(self.threads))
        while True:
            count, columns = rest.next(rows)
            if not count:
                return
            yield _batch(self.view, count, columns)

    @property
    def schema(self) -> pyarrow.Schema:
        """The names and types of its columns."""
        none: list[int] = [_NOBODY]
        return _batch(self.view, *self._native.table(self.view, none).next(1)).schema

    def reader(self) -> pyarrow.RecordBatchReader:
        """The rows, as Arrow streams them."""
        with needed("arrow", "reading a trace"):
            import pyarrow
        return pyarrow.RecordBatchReader.from_batches(self.schema, self.batches())

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.reader().__arrow_c_stream__(requested_schema)


_NOBODY = (1 << 32) - 1
"""No thread has this number."""


def _batch(view: View, count: int, columns: list[_native.TraceColumn]) -> pyarrow.RecordBatch:
    with needed("arrow", "reading a trace"):
        import pyarrow
    types = {
        "u8": pyarrow.uint8(),
        "u32": pyarrow.uint32(),
        "u64": pyarrow.uint64(),
        "i64": pyarrow.int64(),
    }
    arrays, fields = [], []
    for name, kind, values, known in columns:
        buffers = [known and pyarrow.py_buffer(known), pyarrow.py_buffer(values)]
        array = pyarrow.Array.from_buffers(types[kind], count, buffers)
        if name == "kind":
            array = _named(array, _KINDS[view])
        elif name == "taken":
            array = array.cast(pyarrow.bool_())
        arrays.append(array)
        fields.append(pyarrow.field(name, array.type))
    return pyarrow.RecordBatch.from_arrays(arrays, schema=pyarrow.schema(fields))


def _named(numbers: Any, names: dict[int, str]) -> Any:
    """Numbers as the words that they stand for, each of which is there once."""
    import pyarrow

    words = [names.get(number, "?") for number in range(max(names) + 1)]
    return pyarrow.DictionaryArray.from_arrays(
        numbers.cast(pyarrow.int8()), pyarrow.array(words, pyarrow.string())
    )


@dataclass(frozen=True)
class Trace:
    """A trace that was written to a file.

    All tables have a column ``thread``. Addresses are those of the process. ``clock`` is how many
    instructions the thread had executed before; ``time``, ``start`` and ``end`` are nanoseconds,
    exact for system calls, and interpolated between them for calls.
    """

    path: Path
    _native: _native.Trace = field(repr=False)

    @property
    def is_cut(self) -> bool:
        """Whether the end of the file is missing: weft was killed while it wrote."""
        return self._native.is_cut

    @property
    def has_values(self) -> bool:
        """Whether what was read and written is part of it."""
        return self._native.has_values

    @cached_property
    def notes(self) -> dict[str, str]:
        """What was noted when it was recorded: ``command``, for one."""
        return {key: text for key, text in self._native.notes if not key.startswith(_LOST)}

    @cached_property
    def lost(self) -> tuple[str, ...]:
        """What is missing from it, in words; nothing if it is complete, or has no end."""
        notes = self._native.notes
        return sentences(
            (key.removeprefix(_LOST), int(count)) for key, count in notes if key.startswith(_LOST)
        )

    @cached_property
    def modules(self) -> tuple[MappedFile, ...]:
        """The files whose code was mapped; those of each program begin with its own."""
        return tuple(
            MappedFile(program, path, start, end, offset, time)
            for program, time, start, end, offset, path in self._native.modules
        )

    @cached_property
    def threads(self) -> tuple[ThreadTotal, ...]:
        """How much each thread has executed."""
        return tuple(ThreadTotal(*row) for row in self._native.totals())

    @cached_property
    def code(self) -> tuple[Code, ...]:
        """All blocks that were executed, by their numbers."""
        return tuple(Code(*row) for row in self._native.blocks())

    def bytes_of(self, block: int) -> bytes:
        """The instructions of a block; empty if there is no such block."""
        return self._native.code(block) or b""

    def table(self, view: View, threads: Sequence[int] = ()) -> Table:
        """One of :data:`VIEWS`, of some threads or of all."""
        return Table(view, tuple(threads), _native=self._native)

    def accesses(self, threads: Sequence[int] = ()) -> Table:
        """Every load and store, in columns.

        They are ``thread``, ``sequence``, ``block``, ``ip``, ``kind``, ``size``, ``address``. The
        sequence is the access's number among those of its thread. One that has faulted is a row:
        it is the last one before the event of the signal.

        An address is null where the trace cannot tell: gathers, for instance. A size is 0 if it
        depends on more than the instruction. A repeated string instruction is one row.

        A trace that :attr:`has_values` also has ``value``: what was read or, by a store or an
        update, written; of more than eight bytes the first eight. It is null where the trace
        cannot tell: repeated string instructions, for instance.
        """
        return self.table("accesses", threads)

    def blocks(self, threads: Sequence[int] = ()) -> Table:
        """Every block as it was executed: ``block``, ``address``, ``instructions``, ``clock``."""
        return self.table("blocks", threads)

    def branches(self, threads: Sequence[int] = ()) -> Table:
        """Every branch: ``block``, ``ip``, ``kind``, ``target`` and whether it was ``taken``."""
        return self.table("branches", threads)

    def calls(self, threads: Sequence[int] = ()) -> Table:
        """Every call and return: ``block``, ``ip``, ``kind``, ``target``, ``clock``, ``time``."""
        return self.table("calls", threads)

    def system_calls(self, threads: Sequence[int] = ()) -> Table:
        """Every system call: ``number``, ``a0`` to ``a5``, ``result``, ``start``, ``end``."""
        return self.table("system_calls", threads)

    def events(self, threads: Sequence[int] = ()) -> Table:
        """Threads, signals and losses: ``kind``, ``time`` and a ``value`` (the signal's number)."""
        return self.table("events", threads)

    def place(self, address: int, program: int = 0) -> tuple[str, str]:
        """The file and the function that an address of code is in; empty where there is none."""
        file = self._file_at(address, program)
        if file is None:
            return "", ""
        module = self._module(file.path)
        offset = _file_address(file, address, self._segments(file.path))
        function = None
        if module is not None and offset is not None:
            function = module.function_at(offset)
        return file.path, function.display_name if function else ""

    @cached_property
    def _files(self) -> list[MappedFile]:
        return sorted(self.modules, key=lambda file: (file.program, file.start, file.time))

    def _file_at(self, address: int, program: int) -> MappedFile | None:
        key = program, address
        index = bisect.bisect_right(self._files, key, key=lambda file: (file.program, file.start))
        file = self._files[index - 1] if index else None
        is_it = file is not None and file.program == program and address < file.end
        return file if is_it else None

    @cached_property
    def _modules(self) -> dict[str, Module | None]:
        return {}

    def _module(self, path: str) -> Module | None:
        if path not in self._modules:
            module: Module | None = Module(path)
            try:
                _ = module and module.symbols
            except BadFile:
                module = None
            self._modules[path] = module
        return self._modules[path]

    @cached_property
    def _loaded(self) -> dict[str, list[tuple[int, int, int]]]:
        return {}

    def _segments(self, path: str) -> list[tuple[int, int, int]]:
        if path not in self._loaded:
            self._loaded[path] = _segments(path)
        return self._loaded[path]


def _segments(path: str) -> list[tuple[int, int, int]]:
    """What an ELF file has loaded: where that is in the file, its address there, its length."""
    header = struct.Struct("<32xQ14xHH")
    entry = struct.Struct("<I4xQQ8xQ")
    try:
        with Path(path).open("rb") as file:
            start, size, count = header.unpack(file.read(header.size))
            file.seek(start)
            table = file.read(size * count)
    except (OSError, struct.error):
        return []
    found = []
    for at in range(0, len(table) - entry.size + 1, size or 56):
        kind, offset, address, length = entry.unpack_from(table, at)
        if kind == 1:
            found.append((offset, address, length))
    return found


def _file_address(
    file: MappedFile, address: int, segments: Sequence[tuple[int, int, int]]
) -> int | None:
    """An address of a process as the file states it."""
    offset = address - file.start + file.offset
    for start, stated, length in segments:
        if start <= offset < start + length:
            return offset - start + stated
    return None
