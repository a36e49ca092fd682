"""Runs a program by both weavers, and finds what they do not agree on."""

from __future__ import annotations

import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from tests.patch_against_clone.measuring import BETWEEN, ENTERED, Failed, Measured, Run, apart
from tests.patch_against_clone.model import (
    WEAVERS,
    Difference,
    Name,
    Place,
    Refused,
    Subject,
    Verdict,
    Weaver,
)
from weft.model.points import Point

AGAIN = 2
"""How often each weaver measures again where the two differ, to see what is not the same by
itself."""
CONFIRMED = 3
"""How often that is done: what a server does by the clock may be the same for a while."""

ROUNDS = 4
"""How often it is tried to find functions that all do the same each time."""
PAUSE = 0.6
"""How many seconds more a client waits each time, for what a server does by the clock."""

Key = TypeVar("Key", bound=Place | Name)
Runs = dict[Weaver, list[Run]]


def compare(subject: Subject, folder: Path, timed: int) -> Verdict:
    """Compare a program by both weavers; at most ``timed`` of its functions are timed as well."""
    verdict = Verdict(subject)
    missing = [program for program in subject.needs if not shutil.which(program)]
    if missing:
        verdict.missing = ", ".join(missing)
        return verdict
    began = time.monotonic()
    prepared = folder / "prepared"
    prepared.mkdir(parents=True)
    try:
        _Comparison(verdict, prepared, timed).run()
    except Failed as error:
        verdict.failure = str(error)
    verdict.seconds = time.monotonic() - began
    return verdict


class _Comparison:
    """The comparison of one program."""

    def __init__(self, verdict: Verdict, prepared: Path, timed: int) -> None:
        self.verdict = verdict
        self.prepared = prepared
        self.timed = timed
        self.work = verdict.subject.prepare(prepared)
        self.varying: set[Name] = set()
        self.refused: dict[Weaver, dict[Place, tuple[Name, str]]] = {"patch": {}, "clone": {}}

    def run(self) -> None:
        calls = self._calls()
        executed = {name for name, number in calls.items() if number}
        wanted = self._between(executed - self.varying)
        left_out = self.varying | self._refused_names()
        compared = {name for name in executed if name not in left_out}
        self._times(wanted, compared)
        verdict = self.verdict
        verdict.functions = len(calls)
        verdict.executed = len(executed)
        verdict.compared = len(compared)
        verdict.calls = sum(calls.values())
        verdict.varying = sorted(executed & self.varying)
        for weaver in WEAVERS:
            found: dict[Name, list[tuple[str, str]]] = defaultdict(list)
            for place, (name, reason) in self.refused[weaver].items():
                if name in executed:
                    found[name].append((place[0], reason))
            verdict.refused[weaver] = [
                Refused(
                    name,
                    tuple(sorted({kind for kind, _ in points})),
                    tuple(sorted({reason for _, reason in points})),
                    calls[name],
                )
                for name, points in sorted(found.items())
            ]

    def _runs(self, measure: Callable[[Measured], None], number: int, into: Runs) -> None:
        for _ in range(number):
            for weaver in WEAVERS:
                pause = PAUSE * len(into[weaver])
                into[weaver].append(self._measured(weaver, measure, pause))

    def _confirmed(
        self,
        measure: Callable[[Measured], None],
        into: Runs,
        *values: Callable[[Run], Mapping[Key, int]],
    ) -> None:
        """Measure by both, and again as long as they differ in what each finds every time."""
        self._runs(measure, 1, into)
        for _ in range(CONFIRMED):
            if not any(differing(into, one) for one in values):
                return
            self._runs(measure, AGAIN, into)

    def _measured(
        self, weaver: Weaver, measure: Callable[[Measured], None], pause: float | None
    ) -> Run:
        run = apart(self.work, self.prepared, weaver, measure, pause)
        for place, reason in run.refused.items():
            self.refused[weaver][place] = run.functions[place], reason
        return run

    def _refused_names(self) -> set[Name]:
        return {name for places in self.refused.values() for name, _ in places.values()}

    def _calls(self) -> dict[Name, int]:
        """Count where all functions are entered; return how often each was."""

        def measure(measured: Measured) -> None:
            measured.count(measured.points("entry"), ENTERED, "hits")

        runs: Runs = {"patch": [], "clone": []}
        self._confirmed(measure, runs, lambda run: run.hits)
        names = {place: name for run in runs["clone"] for place, name in run.functions.items()}
        for place in varying(runs, lambda run: run.hits):
            self.varying.add(names[place])
        for place in differing(runs, lambda run: run.hits):
            self._differ("calls", names[place], place, runs, lambda run: run.hits)
        calls: dict[Name, int] = defaultdict(int)
        for place, name in names.items():
            hits = [run.hits.get(place, 0) for weaver in WEAVERS for run in runs[weaver]]
            calls[name] += max(hits)
        return calls

    def _between(self, wanted: set[Name]) -> set[Name]:
        """Count where functions are entered and left, and what happens between the two.

        Each counts the events of others; so only functions count that do the same each time, and
        of which neither weaver refuses anything. Return these.
        """
        for _ in range(ROUNDS):
            wanted -= self.varying | self._refused_names()
            names = frozenset(wanted)

            def measure(measured: Measured, names: Collection[Name] = names) -> None:
                points = measured.points("entry", names) + measured.points("exit", names)
                measured.count(points, BETWEEN, "hits", "between")

            for weaver in WEAVERS:
                self._measured(weaver, measure, None)
            if self._refused_names() & wanted:
                continue
            runs: Runs = {"patch": [], "clone": []}
            self._confirmed(measure, runs, lambda run: run.hits, lambda run: run.between)
            functions = runs["clone"][0].functions
            uneven = {functions[place] for place in varying(runs, lambda run: run.hits)}
            self.varying |= uneven
            # What happens between has in it what varies.
            self.verdict.is_between_compared = not uneven
            if not uneven:
                break
        for place in differing(runs, lambda run: run.hits):
            what = "calls" if place[0] == "entry" else "returns"
            self._differ(what, functions[place], place, runs, lambda run: run.hits)
        if self.verdict.is_between_compared:
            for place in differing(runs, lambda run: run.between):
                what = "what is between"
                self._differ(what, functions[place], place, runs, lambda run: run.between)
        self._exits(runs["clone"][0])
        return wanted

    def _exits(self, run: Run) -> None:
        """See which functions are not left as often as entered."""
        self.calls_left: dict[Name, tuple[int, int]] = {}
        for place, hits in run.hits.items():
            name = run.functions[place]
            calls, exits = self.calls_left.get(name, (0, 0))
            is_entry = place[0] == "entry"
            self.calls_left[name] = calls + hits * is_entry, exits + hits * (not is_entry)
        self.verdict.unbalanced = sorted(
            name for name, (calls, exits) in self.calls_left.items() if calls != exits
        )

    def _times(self, wanted: set[Name], compared: set[Name]) -> None:
        """Time functions, and see that every call that returns is timed once."""
        some = sorted(wanted & compared)
        some = some[:: -(-len(some) // self.timed)] if self.timed and some else []
        self.verdict.timed = len(some)
        if not some:
            return

        def measure(measured: Measured) -> None:
            by_name: dict[Name, list[Point]] = {}
            for kind in ("entry", "exit"):
                for point in measured.points(kind, frozenset(some)):
                    by_name.setdefault((point.module, point.function), []).append(point)
            measured.time(by_name)

        runs: Runs = {"patch": [], "clone": []}
        self._confirmed(measure, runs, _completed)
        self.varying |= set(varying(runs, _completed))
        for name in differing(runs, _completed):
            self._differ("timings", name, None, runs, _completed)
        # A thread may be in a function when the program ends; not every time.
        if any(any(self._wrong(weaver, run)) for weaver in WEAVERS for run in runs[weaver]):
            self._runs(measure, AGAIN, runs)
        for weaver in WEAVERS:
            wrong = [{one[:2]: one for one in self._wrong(weaver, run)} for run in runs[weaver]]
            for key in set(wrong[0]).intersection(*wrong):
                what, name, first, second = wrong[0][key]
                if name not in self.varying:
                    self.verdict.differences.append(Difference(what, name, None, first, second))

    def _wrong(self, weaver: Weaver, run: Run) -> Iterator[tuple[str, Name, int, int]]:
        """What cannot be of a run's times: what it is, the function, what is, and the limit."""
        for name, (completed, nanoseconds, _) in run.timings.items():
            if name not in self.calls_left or name in run.sharing:
                continue
            calls, exits = self.calls_left[name]
            if completed > exits:
                yield f"more timings by {weaver} than returns", name, completed, exits
            # What has not returned is timed until it is asked for, which is later.
            if calls == exits and nanoseconds > run.seconds * 1e9 * run.threads:
                whole = int(run.seconds * 1e9 * run.threads)
                yield f"more nanoseconds by {weaver} than passed", name, nanoseconds, whole
            if name in run.growing and calls == exits:
                yield f"a timer of {weaver} that is left open", name, completed, exits

    def _differ(
        self,
        what: str,
        name: Name,
        place: Place | None,
        runs: Runs,
        values: Callable[[Run], Mapping[Key, int]],
    ) -> None:
        if name in self.varying:
            return
        if self.verdict.subject.varies_by_mappings:
            self.varying.add(name)
            return
        key: Key = place or name  # type: ignore[assignment]
        patch, clone = (values(runs[weaver][0])[key] for weaver in WEAVERS)
        self.verdict.differences.append(Difference(what, name, place, patch, clone))


def _completed(run: Run) -> Mapping[Name, int]:
    return {name: timing[0] for name, timing in run.timings.items()}


def differing(runs: Runs, values: Callable[[Run], Mapping[Key, int]]) -> list[Key]:
    """What both weavers have woven, each counting the same in all its runs, but not the same."""
    patch, clone = (_settled(map(values, runs[weaver])) for weaver in WEAVERS)
    return sorted(key for key in patch.keys() & clone.keys() if patch[key] != clone[key])


def varying(runs: Runs, values: Callable[[Run], Mapping[Key, int]]) -> list[Key]:
    """What is not the same in all runs by one weaver."""
    found: set[Key] = set()
    for weaver in WEAVERS:
        all_runs = [values(run) for run in runs[weaver]]
        settled = _settled(all_runs)
        found |= {key for run in all_runs for key in run if key not in settled}
    return sorted(found)


def _settled(runs: Iterable[Mapping[Key, int]]) -> dict[Key, int]:
    first, *rest = runs
    return {
        key: value for key, value in first.items() if all(run.get(key) == value for run in rest)
    }
