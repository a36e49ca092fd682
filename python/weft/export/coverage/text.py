"""Coverage for a terminal: what was not executed first, then how much of each module and file."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, BinaryIO

from weft.base.numbers import printable
from weft.tools.coverage import (
    Change,
    Coverage,
    FileCoverage,
    FunctionCoverage,
    ModuleCoverage,
    Place,
    Share,
)
from weft.tools.coverage.contexts import extent, only_in

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

_UNLIMITED = 1_000_000
_BAR = 10
_FUNCTIONS = 20
"""How many functions that were not executed are named."""
_FILES = 40
_RANGES = 8
"""How many places of a file are named."""
_CONTEXTS = 20
"""How many contexts are listed."""
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def write(file: BinaryIO, coverage: Coverage) -> None:
    """Write a coverage to a file, without colours."""
    from rich.console import Console

    text = io.StringIO()
    show(Console(file=text, width=_UNLIMITED, highlight=False, emoji=False), coverage)
    lines = [line.rstrip() for line in text.getvalue().splitlines()]
    file.write("\n".join([*lines, ""]).encode(errors="surrogateescape"))


def show(screen: Console, coverage: Coverage) -> None:
    """Print a coverage for people."""
    for part in _parts(coverage):
        is_text = isinstance(part, str)
        screen.print(printable(part) if isinstance(part, str) else part, soft_wrap=is_text)


def show_changes(screen: Console, changes: list[Change]) -> None:
    """Print what only one of two runs has executed."""
    from rich.text import Text

    if not changes:
        screen.print("both have executed the same functions and lines")
        return
    gained = sum(change.is_gained for change in changes)
    screen.print(f"{gained} gained, {len(changes) - gained} lost")
    for first, last in _ranges(changes):
        sign, style = ("+", "green") if first.is_gained else ("-", "red")
        where = _short(first.file)
        if first.line is not None:
            where += f":{first.line}" if first == last else f":{first.line}-{last.line}"
        function = f"  {first.function}" if first.function else ""
        screen.print(Text(printable(f"{sign} {where}{function}"), style), soft_wrap=True)


def show_places(screen: Console, places: list[Place], total: int) -> None:
    """Print which contexts have executed lines or functions; ``total`` is how many there are."""
    from rich.text import Text

    for place in places:
        where = _short(place.file) + (f":{place.line}" if place.line is not None else "")
        function = f"  {place.function}" if place.function else ""
        if place.contexts:
            number = len(place.contexts)
            told = f"executed in {number} of {total} context{'s' if total != 1 else ''}"
        else:
            told = "executed in no context" if place.count else "not executed"
        screen.print(Text(printable(f"{where}{function}: {told}")), soft_wrap=True)
        for context in place.contexts:
            screen.print(Text(printable(f"  {context.shown_name}"), "green"), soft_wrap=True)


def _contexts(coverage: Coverage) -> Iterable[RenderableType]:
    """The contexts, and how much each has executed; those first that have most of their own."""
    from rich.table import Table

    own = only_in(coverage)
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column(f"CONTEXT ({len(coverage.contexts)})", overflow="fold")
    has_lines = any(source.lines for source, _ in coverage.files())
    for title in ("FUNCTIONS", *(["LINES"] if has_lines else []), "ONLY HERE"):
        table.add_column(title, justify="right")
    ordered = sorted(coverage.contexts, key=lambda one: (-own[one.shown_name], one.name))
    for context in ordered[:_CONTEXTS]:
        functions, lines = extent(coverage, context)
        name = context.shown_name + (" (incomplete)" if context.lost else "")
        numbers = [functions, *([lines] if has_lines else []), own[context.shown_name]]
        table.add_row(_plain(name), *(f"{number:,}" for number in numbers))
    yield table
    if len(ordered) > _CONTEXTS:
        yield f"  and {len(ordered) - _CONTEXTS} contexts more"
    yield ""


def _ranges(changes: list[Change]) -> list[tuple[Change, Change]]:
    """Lines that follow each other, the same become of them: the first and the last of each."""
    found: list[tuple[Change, Change]] = []
    for change in changes:
        last = found[-1][1] if found else None
        is_next = (
            last is not None
            and last.line is not None
            and change == replace(last, line=last.line + 1)
            and not change.function
        )
        if is_next:
            found[-1] = found[-1][0], change
        else:
            found.append((change, change))
    return found


def _parts(coverage: Coverage) -> Iterable[RenderableType]:
    missed = [(module, one) for module, one in coverage.functions() if not one.count]
    if missed:
        yield _missed(missed)
        yield ""
    files = [source for source, _ in coverage.files() if source.lines]
    if files:
        files.sort(key=lambda source: (source.line_share.ratio, source.path))
        table = _table("FILE", "LINES", "BRANCHES")
        table.add_column("NOT EXECUTED", overflow="fold")
        for source in files[:_FILES]:
            table.add_row(
                _plain(_short(source.path)),
                *_cells(source.line_share),
                *_cells(source.branch_share),
                _plain(_missed_lines(source)),
            )
        yield table
        if len(files) > _FILES:
            yield f"  and {len(files) - _FILES} files more, of which more was executed"
        yield ""
    if coverage.contexts:
        yield from _contexts(coverage)
    table = _table("MODULE", "FUNCTIONS", *(["LINES"] if files else []))
    shown = coverage.named_modules()
    rows = [(name, module.function_share, module.line_share) for name, module in shown]
    if sum(module.is_detailed for _, module in shown) > 1:
        functions, all_lines, _ = coverage.totals()
        rows.append(("TOTAL in detail", functions, all_lines))
    for name, functions, lines in rows:
        cells = _cells(lines) if lines.total else (_plain(""), _plain(""))
        table.add_row(_plain(name), *_cells(functions), *(cells if files else ()))
    yield table
    unused = sum(module.function_total > 0 for module in coverage.modules) - len(shown)
    if unused:
        yield f"and {unused} of which nothing was executed"
    blocks = sum(len(module.blocks) for module in coverage.flow.modules)
    what = f"{blocks:,} blocks" if blocks else "functions"
    how = "with counts" if coverage.is_counted else "executed or not"
    yield f"{' '.join(coverage.flow.command)}: {what}, {how}"
    for text in (*coverage.flow.lost, *coverage.remarks()):
        yield f"note: {text}"


def _missed_lines(source: FileCoverage) -> str:
    """The lines that were not executed, those that follow each other as one."""
    ranges: list[list[int]] = []
    is_missed = False
    for line, count in source.lines.items():
        if not count and is_missed:
            ranges[-1][1] = line
        elif not count:
            ranges.append([line, line])
        is_missed = not count
    shown = [f"{a}" if a == b else f"{a}-{b}" for a, b in ranges[:_RANGES]]
    return ", ".join([*shown, "..."] if len(ranges) > _RANGES else shown)


def _missed(missed: list[tuple[ModuleCoverage, FunctionCoverage]]) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column(f"NOT EXECUTED ({len(missed)})", overflow="fold")
    table.add_column("BYTES", justify="right")
    table.add_column("SOURCE", overflow="fold")
    # The largest first: there is most to find.
    missed.sort(key=lambda pair: (-pair[1].size, pair[1].name))
    for module, function in missed[:_FUNCTIONS]:
        where = _short(function.file) + f":{function.line}" if function.file else module.name
        name = _plain(function.name)
        name.stylize("red")
        table.add_row(name, f"{function.size:,}", _plain(where))
    if len(missed) > _FUNCTIONS:
        table.add_row(_plain(f"and {len(missed) - _FUNCTIONS} smaller ones"), "", "")
    return table


def _table(*titles: str) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column(titles[0], overflow="fold")
    for title in titles[1:]:
        table.add_column(title, no_wrap=True)
        table.add_column("", justify="right", no_wrap=True)
    return table


def _cells(share: Share) -> tuple[Text, Text]:
    """A bar, and the numbers."""
    from rich.text import Text

    if not share.total:
        return Text(""), Text("-", "dim")
    style = "green" if share.ratio >= 0.9 else "yellow" if share.ratio >= 0.5 else "red"
    eighths = round(share.ratio * _BAR * 8)
    full, rest = divmod(eighths, 8)
    bar = "█" * full + (_EIGHTHS[rest] if rest else "")
    # All is said only of all, and nothing only of nothing.
    percent = min(
        max(share.ratio, 0.001 if share.hit else 0), 1 if share.hit == share.total else 0.999
    )
    numbers = f"{percent:6.1%} {share.hit:,}/{share.total:,}"
    return Text.assemble((bar, style), ("·" * (_BAR - len(bar)), "dim")), Text(numbers)


def _plain(text: str) -> Text:
    from rich.text import Text

    return Text(printable(text))


def _short(path: str) -> str:
    """The path from the working directory, if it is in it."""
    inside = os.path.relpath(path)
    return path if inside.startswith("..") else inside
