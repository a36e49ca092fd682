"""A profile as text: functions, lines and hot blocks, for a person to read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import BinaryIO

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from weft.base.numbers import percent, printable, shortened
from weft.export.metrics.draw import bar
from weft.export.tables import BAR, table, write_plain
from weft.model.flow import Edge
from weft.tools.profile import NOTE, Change, Profile, ProfiledBlock

_NAME = 40
_LONG, _HEAD, _TAIL = 20, 12, 4
"""Of a block with more instructions than the first, so many are shown of its beginning and end."""


def write(file: BinaryIO, profile: Profile, top: int) -> None:
    """Write it without colour; no name is shortened."""
    write_plain(file, summary(profile, top))


def write_changes(file: BinaryIO, changes: list[Change], top: int) -> None:
    """Write what has changed without colour."""
    write_plain(file, comparison(changes, top))


def summary(profile: Profile, top: int, width: int | None = None) -> RenderableType:
    """Return the functions and lines that executed most, so many of each, and half as many blocks.

    ``width`` is that of the screen that it must fit; without one, no name is shortened.
    """
    parts: list[RenderableType] = [_heading(profile), Text()]
    if not profile.total:
        return Group(*parts, Text("nothing was executed"))
    parts += [_functions(profile, top, width), Text(NOTE, style="dim")]
    if cycles := _cycles(profile, top):
        parts += [Text(), *cycles]
    if any(line for _, _, line in profile.line_counts):
        parts += [Text(), _lines(profile, top, width)]
    parts += [Text(), Text("HOT BLOCKS", style="bold")]
    # A block takes as many lines as it has instructions.
    for block in profile.hottest_blocks((top + 1) // 2):
        parts += _block(profile, block)
    if profile.problems:
        parts += [Text(), *(Text(printable(f"note: {problem}")) for problem in profile.problems)]
    return Group(*parts)


def comparison(changes: list[Change], top: int, width: int | None = None) -> RenderableType:
    """Return the functions whose own instructions have changed most."""
    before, after = sum(one.before for one in changes), sum(one.after for one in changes)
    heading = Text(f"{after - before:+,} instructions", style="bold")
    heading.append(f"  from {before:,} to {after:,}, {_growth(before, after)}", style="not bold")
    differing = [
        one for one in changes if one.after != one.before or one.calls_after != one.calls_before
    ]
    if not differing:
        return Group(heading, Text(), Text("no function has changed"))
    rows = [
        (
            f"{one.after - one.before:+,}",
            _growth(one.before, one.after),
            f"{one.before:,}",
            f"{one.after:,}",
            f"{one.calls_after - one.calls_before:+,}",
            f"{one.inclusive_after - one.inclusive_before:+,}",
            one.name,
            one.module,
        )
        for one in differing[:top]
    ]
    titles = ("CHANGE", "", "BEFORE", "AFTER", "CALLS", "INCLUSIVE", "FUNCTION", "MODULE")
    return Group(heading, Text(), table(titles, rows, width), Text(NOTE, style="dim"))


def _growth(before: int, after: int) -> str:
    if not before:
        return "new" if after else ""
    if not after:
        return "gone"
    change = (after - before) / before
    return f"{'-' if change < 0 else '+'}{percent(abs(change))}"


def _heading(profile: Profile) -> Text:
    functions = sum(1 for count in profile.self_counts if count)
    modules = sum(1 for count in profile.module_counts if count)
    heading = Text(printable(" ".join(profile.command)), style="bold")
    facts = f"{_many(functions, 'function')} of {_many(modules, 'module')}"
    heading.append(f"  {profile.total:,} instructions, in {facts}", style="not bold")
    return heading


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _functions(profile: Profile, top: int, width: int | None) -> Table:
    highest = max(profile.self_counts)
    rows = []
    for place in profile.hottest_functions()[:top]:
        function, own = profile.functions[place], profile.self_counts[place]
        cycle = profile.graph.cycle_number(place)
        rows.append(
            (
                f"{own:,}",
                percent(own / profile.total),
                bar(own / highest, BAR),
                percent(profile.inclusive_counts[place] / profile.total),
                f"{profile.calls[place]:,}",
                function.display_name + (f" <cycle {cycle + 1}>" if cycle is not None else ""),
                profile.modules[function.module].name,
            )
        )
    titles = ("SELF", "", "BAR", "INCLUSIVE", "CALLS", "FUNCTION", "MODULE")
    return table(titles, rows, width)


def _cycles(profile: Profile, top: int) -> list[Text]:
    """The groups of functions that call each other, each as a line; first what cost most."""
    lines = []
    costs = [
        profile.graph.inclusive_of_cycle(number) for number in range(len(profile.graph.cycles))
    ]
    for number in sorted(range(len(costs)), key=lambda number: -costs[number])[:top]:
        members = profile.graph.cycles[number]
        own = profile.self_counts
        names = [
            shortened(profile.functions[member].display_name, _NAME)
            for member in sorted(members, key=lambda member: -own[member])
        ]
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        share = percent(costs[number] / profile.total)
        listed = ", ".join(names[:3]) + more
        lines.append(
            Text(printable(f"<cycle {number + 1}>  {share} inclusive: {listed} call each other"))
        )
    return lines


def _lines(profile: Profile, top: int, width: int | None) -> Table:
    known = {place: count for place, count in profile.line_counts.items() if place[2]}
    highest = max(known.values())
    ranked = sorted(known.items(), key=lambda entry: (-entry[1], entry[0]))
    rows = [
        (
            f"{count:,}",
            percent(count / profile.total),
            bar(count / highest, BAR),
            f"{file.rpartition('/')[2] if width is not None else file}:{line}",
            profile.functions[function].display_name,
        )
        for (function, file, line), count in ranked[:top]
    ]
    return table(("LINES", "", "BAR", "SOURCE", "FUNCTION"), rows, width)


def _block(profile: Profile, block: ProfiledBlock) -> Iterator[Text]:
    module = profile.module_of(block)
    ways: dict[int, list[Edge]] = defaultdict(list)
    for edge in profile.ways_on(block):
        ways[edge.source].append(edge)
    instructions = _many(block.instructions, "instruction")
    share = percent(block.cost / profile.total)
    title = Text(f"\n{printable(_place(profile, module, block.offset))}", style="bold")
    title.append(f"  {printable(profile.modules[module].name)}", style="not bold cyan")
    title.append(f"  {share}: {instructions}, executed {block.count:,} times", style="not bold")
    yield title
    digits = len(f"{block.count:,}")
    shown = None
    listing = block.listing()
    for number, (offset, _, text) in enumerate(listing):
        if len(listing) > _LONG and _HEAD <= number < len(listing) - _TAIL:
            if number == _HEAD:
                yield Text(f"  ... {len(listing) - _HEAD - _TAIL} more", style="dim")
            continue
        line = block.line_at(offset)
        source = f"{line.file.rpartition('/')[2]}:{line.line}" if line else None
        row = Text(f"  {block.count:>{digits},}  {offset:#10x}  {text:40}")
        if source is not None and source != shown:
            row.append(f"  {printable(source)}", style="yellow")
        shown = source or shown
        yield row
        for edge in sorted(ways[offset], key=lambda edge: -edge.count):
            if edge.kind == "fall":
                where = "goes on"
            else:
                how = "calls" if edge.kind == "call" else "jumps to"
                where = f"{how} {_place(profile, edge.to_module, edge.target)}"
            yield Text(f"  {edge.count:>{digits},}  {'':10}  -> {printable(where)}", style="dim")
    if not block.code:
        yield Text("  its code is not known", style="dim")


def _place(profile: Profile, module: int, offset: int) -> str:
    block = profile.block_at(module, offset)
    if block is None:
        return f"{offset:#x}"
    function = profile.functions[block.function]
    distance = offset - function.offset
    return printable(function.display_name) + (f"+{distance:#x}" if distance else "")
