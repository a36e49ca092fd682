"""Tables of a fleet: its hosts, its requests, and what was measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from weft.base.numbers import exact, percent, printable, quantity, shortened
from weft.export.metrics.values import QUANTILES
from weft.fleet.fetching import HostFiles
from weft.fleet.folding import number
from weft.fleet.front import Running
from weft.fleet.measuring import FleetHost
from weft.fleet.results import FleetResult, FleetTotal, HostResult
from weft.model.completeness import SIGNS
from weft.model.values import Histogram

__all__ = ["files", "hosts", "quantiles", "requests", "result"]

_MOST_KEYS = 20
_MOST_NOTES = 10
_STYLES = {
    "done": "green",
    "measuring": "green",
    "idle": "dim",
    "asked": "dim",
    "weaving": "yellow",
    "stopped": "yellow",
}


def result(found: FleetResult, *, most_hosts: int | None = None) -> RenderableType:
    """What was measured: all totals, each host, and what is missing."""
    parts: list[RenderableType] = [_totals(found.totals)]
    for total in found.totals:
        if details := _details(total):
            parts += [Text(), Text(_title(total), style="bold"), *details]
    shown = found.hosts if most_hosts is None else found.hosts[:most_hosts]
    parts += [Text(), _of_hosts(shown, found.totals)]
    if len(shown) < len(found.hosts):
        parts.append(Text(f"and {len(found.hosts) - len(shown)} more hosts", style="dim"))
    notes = [f"{one.host}: {note}" for one in found.hosts for note in one.notes]
    if notes:
        parts.append(Text())
        parts += [Text(f"! {printable(note)}", style="yellow") for note in notes[:_MOST_NOTES]]
    if len(notes) > _MOST_NOTES:
        parts.append(Text(f"! and {len(notes) - _MOST_NOTES} more notes: see json", style="yellow"))
    return Group(*parts)


def _title(total: FleetTotal) -> str:
    return f"{total.metric}  {total.focus}".rstrip()


def _number(total: FleetTotal) -> str:
    if total.value is None:
        return "-"
    return f"{SIGNS[total.status]}{exact(number(total.value))}"


def _unit(total: FleetTotal) -> str:
    return "values" if isinstance(total.value, Histogram) else total.unit


def _totals(totals: Iterable[FleetTotal]) -> Table:
    table = _table("METRIC", "FOCUS", ">TOTAL", "", ">HOSTS")
    for one in totals:
        table.add_row(
            printable(one.metric),
            printable(one.focus),
            Text(_number(one), style="" if one.complete else "yellow"),
            _unit(one),
            str(one.hosts),
        )
    return table


def _details(total: FleetTotal) -> list[RenderableType]:
    value, found = total.value, list[RenderableType]()
    if (interval := total.interval) is not None:
        low, high = exact(round(interval.low)), exact(round(interval.high))
        sure = percent(interval.confidence)
        found.append(Text(f"~ from {low} to {high} with {sure} confidence", style="yellow"))
    if isinstance(value, Histogram) and value.count:
        found.append(Text(quantiles(value, total.unit)))
    by = total.by if total.by is not None else value
    if isinstance(by, Mapping):
        largest = sorted(by.items(), key=lambda item: (-number(item[1]), item[0]))
        table = _table(">", "", "")
        for key, one in largest[:_MOST_KEYS]:
            more = quantiles(one, total.unit) if isinstance(one, Histogram) and one.count else ""
            table.add_row(exact(number(one)), printable(shortened(key, 200)), more)
        found.append(table)
        if len(largest) > _MOST_KEYS:
            found.append(Text(f"and {len(largest) - _MOST_KEYS} more: see json", style="dim"))
    return found


def quantiles(value: Histogram, unit: str) -> str:
    """The quantiles of a distribution, on a line."""
    is_time = unit == "ns"
    found = {name: value.quantile(share) for name, share in QUANTILES.items()}
    return "  ".join(
        f"{name} {quantity(one / 1e9, 's') if is_time else exact(one)}"
        for name, one in found.items()
    )


def _of_hosts(found: Sequence[HostResult], totals: Sequence[FleetTotal]) -> Table:
    names = [f">{one.metric}" for one in totals]
    table = _table("HOST", "STATE", ">PROCESSES", *names)
    for host in found:
        own = {(one.metric, one.focus): one for one in host.totals}
        cells = [own.get((one.metric, one.focus)) for one in totals]
        table.add_row(
            printable(host.host),
            Text(host.state, style=_STYLES.get(host.state, "red")),
            str(host.processes),
            *("-" if one is None else _number(one) for one in cells),
        )
    return table


def hosts(found: Sequence[FleetHost]) -> Table:
    """The hosts that are there, with what most processes run."""
    table = _table("HOST", "LABELS", ">SEEN", ">PROCESSES", "PROGRAMS")
    for one in found:
        record = one.record
        names: dict[str, int] = {}
        for program in record.programs:
            names[program.name] = names.get(program.name, 0) + program.processes
        listed = sorted(names.items(), key=lambda item: (-item[1], item[0]))
        table.add_row(
            printable(record.host),
            printable(",".join(f"{name}={value}" for name, value in record.labels.items())),
            f"{one.silent_for:.0f} s ago",
            "-" if one.problem else str(sum(names.values())),
            Text(printable(one.problem), style="red")
            if one.problem
            else printable(shortened(" ".join(f"{name}({count})" for name, count in listed), 120)),
        )
    return table


def files(found: Sequence[HostFiles]) -> RenderableType:
    """The files that hosts offer, and why some offer none."""
    table = _table("HOST", "FILE", ">SIZE", "WRITTEN")
    for host in found:
        for one in host.files:
            written = datetime.fromtimestamp(one.modified, timezone.utc)
            table.add_row(
                printable(host.host),
                printable(one.name),
                f"{one.size:,}",
                f"{written:%Y-%m-%d %H:%M:%SZ}",
            )
    notes = [
        Text(f"! {printable(f'{one.host}: {one.note}')}", "yellow") for one in found if one.note
    ]
    return Group(table, *([Text(), *notes] if notes else []))


def requests(found: Sequence[Running]) -> Table:
    """The requests that there are, and how far they are."""
    table = _table(
        "REQUEST", "REQUESTER", ">AGE", ">FOR", "STATE", ">HOSTS", ">PROCESSES", "METRICS", "WHERE"
    )
    for one in found:
        request = one.request
        asked = [*map(str, request.metrics), *request.probes]
        table.add_row(
            request.id,
            printable(request.requester),
            f"{one.age:.0f} s",
            "-" if one.problem else f"{request.seconds:g} s",
            printable(_states(one)),
            str(len(one.result.hosts)),
            str(sum(host.processes for host in one.result.hosts)),
            printable(one.problem or shortened(", ".join(asked), 60)),
            printable(shortened(request.where, 60)),
        )
    return table


def _states(one: Running) -> str:
    """What its hosts do, each state with how many are in it if there are several."""
    counts = Counter(host.state for host in one.result.hosts)
    if len(counts) < 2:
        return next(iter(counts), "-" if one.problem else "asked")
    return " ".join(f"{state}({count})" for state, count in counts.most_common())


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        table.add_column(
            name.removeprefix(">"), justify="right" if name.startswith(">") else "left"
        )
    return table
