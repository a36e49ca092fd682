"""The frames of CPython's interpreter: where they are in its memory, and which line each is at.

Versions differ in where things are. From 3.13 on the interpreter has a table of that itself; for
3.11 and 3.12 the offsets stand here, as their header files have them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from weft import _native
from weft.errors import WeftError
from weft.model.program import Module, SourceLocation
from weft.model.stacks import StackFrame

__all__ = ["EVALUATES", "PythonRuntime", "find_python", "line_at", "mixed"]

EVALUATES = "_PyEval_EvalFrameDefault"
"""The function that interprets Python's code: each call of it runs one or more frames."""

_OLDEST, _NEWEST = (3, 11), (3, 14)
_COOKIE = b"xdebugpy"
_KNOWN: dict[tuple[int, int], _native.PythonLayout] = {
    (3, 11): {
        "runtime": 0,
        "interpreters": 40,
        "next_interpreter": 0,
        "threads": 16,
        "next_thread": 8,
        "tid": 160,
        "frame": 56,
        "frame_behind": 8,
        "code": 32,
        "previous": 48,
        "instruction": 56,
        "owner": 68,
        "has_entry_frames": False,
        "file": 112,
        "name": 128,
        "first_line": 72,
        "line_table": 136,
        "first_instruction": 184,
        "ascii": 48,
        "compact": 72,
    },
    (3, 12): {
        "runtime": 0,
        "interpreters": 40,
        "next_interpreter": 0,
        "threads": 72,
        "next_thread": 8,
        "tid": 144,
        "frame": 56,
        "frame_behind": 0,
        "code": 0,
        "previous": 8,
        "instruction": 56,
        "owner": 70,
        "has_entry_frames": True,
        "file": 112,
        "name": 128,
        "first_line": 68,
        "line_table": 136,
        "first_instruction": 192,
        "ascii": 40,
        "compact": 56,
    },
}
_WORDS = 56
"""How many words of the interpreter's own table are looked at."""


@dataclass(frozen=True)
class PythonRuntime:
    """An interpreter in a process."""

    version: tuple[int, int, int]
    layout: _native.PythonLayout | None
    """Where its frames are; none if this version is not known."""

    @property
    def problem(self) -> str | None:
        """Why its frames cannot be read."""
        if self.layout is not None:
            return None
        version = ".".join(map(str, self.version))
        oldest, newest = (".".join(map(str, one)) for one in (_OLDEST, _NEWEST))
        return f"the frames of Python {version} are not known: {oldest} to {newest} are"


def find_python(pid: int, modules: Sequence[Module]) -> PythonRuntime | None:
    """Find the interpreter of a process."""
    for module in modules:
        if not (module.is_program or module.name.startswith("libpython3")):
            continue
        with suppress(WeftError):
            addresses = [
                module.bias + module.symbols.variables(name)[0][0]
                for name in ("_PyRuntime", "Py_Version")
                if module.symbols.variables(name)
            ]
            if len(addresses) == 2:
                return _runtime(pid, *addresses)
    return None


def _runtime(pid: int, runtime: int, version: int) -> PythonRuntime | None:
    words = _native.read_words(pid, [version, *(runtime + 8 * at for at in range(_WORDS))])
    if words[0] is None:
        return None
    number = words[0] >> 24 & 0xFF, words[0] >> 16 & 0xFF, words[0] >> 8 & 0xFF
    layout = _KNOWN.get(number[:2])
    if layout is not None:
        layout = {**layout, "runtime": runtime}
    elif (3, 13) <= number[:2] <= _NEWEST:
        layout = _described(runtime, number[:2], words[1:])
    return PythonRuntime(number, layout)


def _described(
    runtime: int, version: tuple[int, int], words: Sequence[int | None]
) -> _native.PythonLayout | None:
    """Take the offsets from the interpreter's own table."""
    table = [word for word in words if word is not None]
    if len(table) < _WORDS or struct.pack("<Q", table[0]) != _COOKIE or table[2]:
        # Without the interpreter lock, objects are laid out otherwise.
        return None
    # 3.14 has three more words about interpreters, and two more about frames.
    thread, frame, code = (19, 28, 34) if version == (3, 13) else (22, 31, 39)
    return {
        "runtime": runtime,
        "interpreters": table[5],
        "next_interpreter": table[8],
        "threads": table[9],
        "next_thread": table[thread + 2],
        "tid": table[thread + 6],
        "frame": table[thread + 4],
        "frame_behind": None,
        "code": table[frame + 2],
        "previous": table[frame + 1],
        "instruction": table[frame + 3],
        "owner": table[frame + 5],
        "has_entry_frames": True,
        "file": table[code + 1],
        "name": table[code + 3],
        "first_line": table[code + 5],
        "line_table": table[code + 4],
        "first_instruction": table[code + 9],
        "ascii": 40,
        "compact": 56,
    }


def line_at(table: bytes, first_line: int, offset: int) -> int | None:
    """Return the line of an instruction; none if it has none.

    The table is that of PEP 626 as 3.11 and later have it: entries of a first byte, with a kind and
    how many code units of two bytes they cover, and then what the kind needs.
    """
    line, covered, at = first_line, 0, 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while at < len(table):
            byte = table[at]
            at += 1
            value |= (byte & 63) << shift
            if not byte & 64:
                break
            shift += 6
        return value

    def difference() -> int:
        value = number()
        return -(value >> 1) if value & 1 else value >> 1

    while at < len(table):
        first = table[at]
        at += 1
        kind, units = first >> 3 & 15, (first & 7) + 1
        if kind == 14:
            line += difference()
            for _ in range(3):
                number()
        elif kind == 13:
            line += difference()
        elif 10 <= kind <= 12:
            line += kind - 10
            at += 2
        elif kind < 10:
            at += 1
        covered += 2 * units
        if offset < covered:
            return None if kind == 15 else line
    return None


def mixed(
    frames: Sequence[StackFrame],
    rows: Sequence[tuple[int, int, bool]],
    codes: dict[int, _native.PythonCode],
    *,
    is_whole: bool,
) -> tuple[list[StackFrame], int]:
    """Put the interpreter's frames in the place of the native ones that run them.

    Return all frames, and how many of the interpreter's have no place among them.

    One call of the interpreter runs all frames up to one that C code has called. The outermost
    calls belong together: the innermost may not have linked its frame yet. When the outermost
    native frames are not known, the innermost belong together.
    """
    runs = list(_runs(rows))
    places = [
        place
        for place, frame in enumerate(frames)
        if not frame.inlined and (frame.function or "").startswith(EVALUATES)
    ]
    count = min(len(runs), len(places))
    if is_whole:
        pairs = dict(zip(places[len(places) - count :], runs[len(runs) - count :], strict=True))
    else:
        pairs = dict(zip(places[:count], runs[:count], strict=True))
    result: list[StackFrame] = []
    for place, frame in enumerate(frames):
        if place not in pairs:
            result.append(frame)
            continue
        # What is inlined into the interpreter says nothing of the program.
        while result and result[-1].inlined and result[-1].address == frame.address:
            result.pop()
        result += [_frame(frame, row, codes) for row in pairs[place]]
    if is_whole:
        return result, sum(map(len, runs[: len(runs) - count]))
    last = frames[-1] if frames else StackFrame(0, None, None, None, None)
    return result + [_frame(last, row, codes) for run in runs[count:] for row in run], 0


def _runs(rows: Sequence[tuple[int, int, bool]]) -> Iterator[list[tuple[int, int, bool]]]:
    run: list[tuple[int, int, bool]] = []
    for row in rows:
        run.append(row)
        if row[2]:
            yield run
            run = []
    if run:
        yield run


def _frame(
    native: StackFrame, row: tuple[int, int, bool], codes: dict[int, _native.PythonCode]
) -> StackFrame:
    address, offset, _ = row
    found = codes.get(address)
    python = replace(native, offset=None, inlined=False, language="python")
    if found is None:
        return replace(python, function=None, location=None)
    name, file, first_line, table = found
    line = line_at(table, first_line, offset) if offset >= 0 else first_line
    return replace(python, function=name, location=SourceLocation(file, line or None))
