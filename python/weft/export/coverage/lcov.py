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
    for function in functions:
        yield f"FN:{function.line or 0},{function.name}"
    for function in functions:
        yield f"FNDA:{function.count},{function.name}"
    share = Share.of(function.count for function in functions)
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
