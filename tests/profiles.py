"""A profile that was not recorded but thought up: of a program that counts words."""

from __future__ import annotations

from weft.model.flow import Edge, EdgeKind
from weft.tools.profile import (
    Profile,
    ProfiledBlock,
    ProfiledFunction,
    ProfiledModule,
    SourceLine,
)

_SOURCE = "/src/words.c"
_PROGRAM, _LIBC = 0, 1

_MODULES = (
    ProfiledModule("/usr/bin/words", "5eed0123456789abcdef5eed0123456789abcdef", 0x555555554000),
    ProfiledModule("/lib/libc.so.6", "c0ffee6789abcdef0123c0ffee6789abcdef0123", 0x7FFFF7C00000),
)

MAIN, NEXT_WORD, LOOK_UP, HASH, PRINT, PRINT_SIDE, COMPARE, STUB, MALLOC, READ, SORT = range(11)


def _function(
    name: str, offset: int, size: int, line: int | None = None, local: int = 0, module: int = 0
) -> ProfiledFunction:
    file = _SOURCE if line else None
    return ProfiledFunction(module, name, None, offset, size, local, file, line, None)


_FUNCTIONS = (
    _function("main", 0x1100, 0x40, 60),
    _function("next_word", 0x1180, 0x30, 20, local=1),
    _function("look_up", 0x1200, 0x30, 30, local=1),
    _function("hash", 0x1280, 0x20, 10, local=1),
    _function("print", 0x1300, 0x20, 40, local=1),
    _function("print_side", 0x1340, 0x10, 46, local=1),
    _function("compare", 0x1380, 0x10, 52, local=1),
    ProfiledFunction(_PROGRAM, "malloc@plt", None, 0x1030, 16, 1, None, None, MALLOC),
    _function("malloc", 0x9_0000, 0x40, module=_LIBC),
    _function("read", 0xF_0000, 0x20, module=_LIBC),
    _function("qsort", 0x4_0000, 0x40, module=_LIBC),
)

_BLOCKS = (
    # function, offset, code, count, lines (how many bytes each)
    (STUB, 0x1030, "ff25e22f0000", 5_000, ()),
    (MAIN, 0x1100, "554889e5", 1, ((4, 60),)),
    (MAIN, 0x1104, "e877000000", 100_000, ((5, 62),)),
    (MAIN, 0x1109, "4889c7e8ef000000", 100_000, ((3, 62), (5, 63))),
    (MAIN, 0x1111, "85c075ef", 100_000, ((4, 61),)),
    (MAIN, 0x1115, "e8e6010000", 1, ((5, 65),)),
    (MAIN, 0x111A, "5dc3", 1, ((2, 66),)),
    (NEXT_WORD, 0x1180, "53", 100_000, ((1, 20),)),
    (NEXT_WORD, 0x1181, "0fb60783c00183f82075f5", 600_000, ((3, 22), (8, 23))),
    (NEXT_WORD, 0x118C, "5bc3", 100_000, ((2, 25),)),
    (LOOK_UP, 0x1200, "4154e879000000", 100_000, ((2, 30), (5, 31))),
    (LOOK_UP, 0x1207, "488b00483b0775f8", 250_000, ((3, 33), (5, 34))),
    (LOOK_UP, 0x120F, "7405", 100_000, ((2, 35),)),
    (LOOK_UP, 0x1211, "e81afeffff", 5_000, ((5, 36),)),
    (LOOK_UP, 0x1216, "415cc3", 100_000, ((3, 38),)),
    (HASH, 0x1280, "31c0", 100_000, ((2, 10),)),
    (HASH, 0x1282, "6bc01f0fb61701d048ffc775f3", 500_000, ((3, 12), (10, 13))),
    (HASH, 0x128F, "c3", 100_000, ((1, 15),)),
    (PRINT, 0x1300, "53e83a000000", 4_000, ((6, 41),)),
    (PRINT, 0x1306, "5bc3", 4_000, ((2, 43),)),
    (PRINT_SIDE, 0x1340, "e8bbffffff", 3_999, ((5, 47),)),
    (PRINT_SIDE, 0x1345, "c3", 3_999, ((1, 48),)),
    (COMPARE, 0x1380, "8b072b06c3", 60_000, ((5, 53),)),
    (SORT, 0x4_0000, "4889f0ffd1c3", 30_000, ()),
    (MALLOC, 0x9_0000, "4889f8488d04c0c3", 5_000, ()),
    (READ, 0xF_0000, "31c00f05c3", 200, ()),
)

_INSTRUCTIONS = (1, 2, 1, 2, 2, 1, 2, 1, 4, 2, 2, 3, 1, 1, 2, 1, 5, 1, 2, 2, 1, 1, 3, 3, 3, 3)

_WAYS: tuple[tuple[int, int, int, int, EdgeKind, int], ...] = (
    (_PROGRAM, 0x1101, _PROGRAM, 0x1104, "fall", 1),
    (_PROGRAM, 0x1104, _PROGRAM, 0x1180, "call", 100_000),
    (_PROGRAM, 0x110C, _PROGRAM, 0x1200, "call", 100_000),
    (_PROGRAM, 0x1113, _PROGRAM, 0x1104, "taken", 99_999),
    (_PROGRAM, 0x1113, _PROGRAM, 0x1115, "fall", 1),
    (_PROGRAM, 0x1115, _PROGRAM, 0x1300, "call", 1),
    (_PROGRAM, 0x1180, _PROGRAM, 0x1181, "fall", 100_000),
    (_PROGRAM, 0x118A, _PROGRAM, 0x1181, "taken", 500_000),
    (_PROGRAM, 0x118A, _PROGRAM, 0x118C, "fall", 100_000),
    (_PROGRAM, 0x1202, _PROGRAM, 0x1280, "call", 100_000),
    (_PROGRAM, 0x120D, _PROGRAM, 0x1207, "taken", 150_000),
    (_PROGRAM, 0x120D, _PROGRAM, 0x120F, "fall", 100_000),
    (_PROGRAM, 0x120F, _PROGRAM, 0x1216, "taken", 95_000),
    (_PROGRAM, 0x120F, _PROGRAM, 0x1211, "fall", 5_000),
    (_PROGRAM, 0x1211, _PROGRAM, 0x1030, "call", 5_000),
    (_PROGRAM, 0x1280, _PROGRAM, 0x1282, "fall", 100_000),
    (_PROGRAM, 0x128D, _PROGRAM, 0x1282, "taken", 400_000),
    (_PROGRAM, 0x128D, _PROGRAM, 0x128F, "fall", 100_000),
    (_PROGRAM, 0x1301, _PROGRAM, 0x1340, "call", 3_999),
    (_PROGRAM, 0x1340, _PROGRAM, 0x1300, "call", 3_999),
)


def _block(
    function: int, offset: int, code: str, count: int, instructions: int, sizes: object
) -> ProfiledBlock:
    lines, at = [], offset
    assert isinstance(sizes, tuple)
    for size, line in sizes:
        lines.append(SourceLine(at, _SOURCE, line))
        at += size
    content = bytes.fromhex(code)
    return ProfiledBlock(function, offset, len(content), instructions, count, content, tuple(lines))


def words() -> Profile:
    """Return the profile of the program that counts words."""
    return Profile(
        command=("words", "war-and-peace.txt"),
        modules=_MODULES,
        functions=_FUNCTIONS,
        blocks=tuple(
            _block(function, offset, code, count, instructions, sizes)
            for (function, offset, code, count, sizes), instructions in zip(
                _BLOCKS, _INSTRUCTIONS, strict=True
            )
        ),
        edges=tuple(Edge(*way) for way in _WAYS),
        problems=(),
    )
