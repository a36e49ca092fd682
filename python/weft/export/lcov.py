"""The format of lcov: functions, branches and lines of each source file, with counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import BinaryIO

from weft.tools.coverage import Branch, Coverage, FileCoverage, FunctionCoverage, Share


def write(file: BinaryIO, coverage: Coverage) -> None:
    """Write a coverage to a file."""
    for source, functions in coverage.files():
        lines = ["TN:", f"SF:{source.path}", *_functions(functions), *_branches(source.branches)]
        lines += [f"DA:{line},{count}" for line, count in source.lines.items()]
        share = source.line_share
        lines += [f"LF:{share.total}", f"LH:{share.hit}", "end_of_record", ""]
        file.write("\n".join(lines).encode(errors="surrogateescape"))


def _functions(functions: Sequence[FunctionCoverage]) -> Iterator[str]:
    # A name is there once: instances of a template, and copies of an inlined function, are one.
    counts: Counter[tuple[int, str]] = Counter()
    for function in functions:
        counts[function.line or 0, function.name] += function.count
    for line, name in sorted(counts):
        yield f"FN:{line},{name}"
    for (_, name), count in sorted(counts.items()):
        yield f"FNDA:{count},{name}"
    share = Share.of(counts.values())
    yield f"FNF:{share.total}"
    yield f"FNH:{share.hit}"


def _branches(branches: Sequence[Branch]) -> Iterator[str]:
    numbers: Counter[int] = Counter()
    for branch in branches:
        number = numbers[branch.line]
        numbers[branch.line] += 1
        is_reached = any(branch.outcomes)
        for way, count in enumerate(branch.outcomes):
            yield f"BRDA:{branch.line},{number},{way},{count if is_reached else '-'}"
    if branches:
        share = FileCoverage("", {}, tuple(branches)).branch_share
        yield f"BRF:{share.total}"
        yield f"BRH:{share.hit}"
