"""Metrics of one target: what is woven for them, who needs it, and reading it.

A request for a metric and a focus is lowered to instruments. Those that are woven already are used
again; what nobody needs any more is taken out.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from weft import _native
from weft.control.libraries import Code, Loader, arrived, mapped_code, steadily
from weft.control.probes import Probe, refuse_anothers, remove_all
from weft.errors import BadSnippet, CodeGone, InvalidArgument, LimitReached, WeftError
from weft.mdl import ast
from weft.mdl.loader import Library, load
from weft.mdl.lower import lower
from weft.mdl.plan import Focus, Instrument, Key, Plan, Weaving
from weft.metrics import kernel
from weft.metrics.births import Births, needs_births
from weft.metrics.budget import Budget
from weft.metrics.catalogue import library_files, metrics_in, shipped, unknown_metric
from weft.metrics.grouping import By, Symbols
from weft.metrics.locking import by_lock
from weft.metrics.lookup import full_focus
from weft.metrics.metric import Metric, Reading
from weft.metrics.missing import CLONE_HELPS, incomplete_metric
from weft.metrics.nodes import Item, Node, add_scouts, item, places
from weft.metrics.owners import refuse_nobody
from weft.metrics.program import TargetProgram
from weft.metrics.successor import Successor
from weft.model.points import Point

if TYPE_CHECKING:
    from weft.control.probing import Probing

__all__ = ["Engine"]

_Wish: TypeAlias = "tuple[ast.Metric, str, tuple[int, int]]"
"""A metric, its focus, and which part of the functions of the focus it is about."""

_PART = 64
"""How many functions are measured or shed together."""

_LOOK_AGAIN = 0.2
"""How long at least between two looks at what is loaded, in seconds."""

_JUST_NOW = 0.01
"""The same where completeness is requested, and the loader reports nothing."""


class Engine:
    """The metrics of a session; made when the first is asked for."""

    def __init__(self, session: Probing) -> None:
        self.session = session
        self._sources: list[str | Path] = [*library_files()]
        self._known = Library()
        """What has been read of the library."""
        self.metrics: list[Metric] = []
        self._nodes: dict[Key, Node] = {}
        """The newest of each key."""
        self._sampler: _native.Sampler | None = None
        self._readings: list[Reading] = []
        self._others: list[Metric] = []
        self._lists: dict[str, ast.ListDefinition] = {}
        self.budget: Budget | None = None
        """What keeps the target's losses within bounds, if anything does."""
        self._is_over = False
        """Whether the last values that there will be have been noted."""
        self.ended: float | None = None
        """When it was noticed that the target has ended, by the monotonic clock."""
        self._mapped: frozenset[Code] = frozenset()
        self._reloads = 0
        """How many libraries were loaded again that is known of here."""
        self._looked = 0.0
        self._loader: Loader | None = None
        self._refusals = 0
        self.shows_lines = False
        """Whether keys that are addresses have the source line with them."""
        self.unnoticed: float | None = None
        """When libraries were last found to have come and gone, by the monotonic clock."""
        self.outlived = 0
        """How many children still ran when the target had ended, and measured on."""
        self.successor = Successor(session)
        self.births: Births | None = None
        """The threads that are started, where it matters which thread has measured what."""
        self._lock = threading.RLock()

    @cached_property
    def library(self) -> Library:
        """The definitions that metrics are taken from."""
        self._known = load(*self._sources)
        return self._known

    def definition(self, name: str) -> ast.Metric:
        """Return the definition of a metric; only the file that has it is read."""
        is_whole = "library" in self.__dict__
        if name not in self._known.metrics and not is_whole:
            for file in library_files():
                if name in metrics_in(file):
                    self._known = self._known.plus(shipped(file))
        metric = self._known.metrics.get(name) or self.library.metrics.get(name)
        if metric is None:
            raise unknown_metric(name, self.library)
        return metric

    def load(self, *sources: str | Path) -> None:
        """Add definitions of files or texts."""
        if sources:
            self.__dict__["library"] = self._known = load(*self._sources, *sources)
            self._sources += sources

    def define(self, lists: Iterable[ast.ListDefinition]) -> None:
        """Add lists that one-liners use."""
        self._lists.update({one.name: one for one in lists})

    @cached_property
    def program(self) -> TargetProgram:
        """The target's functions as they were at the last look at what is loaded."""
        return TargetProgram(self.session)

    def implementations(self) -> dict[str, tuple[str, ...]]:
        """The indirect functions that were asked for by name, and what they stand for.

        ``/Code/libc.so.6/memcpy`` may be ``__memmove_avx_unaligned_erms``. There are several names
        where modules have been given different ones, or none has been given one yet.
        """
        focuses = (Focus.parse(metric.focus).of("Code") for metric in self.metrics)
        asked = {"/Code/" + "/".join(part) for part in focuses if part}
        asked |= {item.pattern for one in self._lists.values() for item in one.items}
        return {
            path: names
            for path, names in self.program.implementations.names.items()
            if names and not asked.isdisjoint((path, path.rpartition("/")[2]))
        }

    @cached_property
    def symbols(self) -> Symbols:
        """The functions at addresses that are keys of values."""
        symbols = Symbols(lines=self.shows_lines)
        symbols.see(self.session.modules())
        return symbols

    @property
    def target(self) -> _native.Target:
        """The compiled core's side of the session."""
        return self.session._target

    @property
    def lock(self) -> threading.RLock:
        """What one has to have who weaves or samples.

        In a forked child it cannot be taken: a thread of the parent may have held it.
        """
        self.target.check_here()
        return self._lock

    def request(
        self,
        name: str,
        focus: str = "",
        *,
        by_function: bool = False,
        by: str | None = None,
        allow_incomplete: bool = False,
        wait: bool = False,
    ) -> Metric:
        """Begin to measure a metric of the library."""
        return self.request_all(
            [(self.definition(name), focus)],
            by_function=by_function,
            by=by,
            allow_incomplete=allow_incomplete,
            wait=wait,
        )[0]

    def full_focus(self, focus: str, *, waits: bool = False) -> str:
        """Return a focus whose names of functions are paths: see :mod:`weft.metrics.lookup`."""
        if not focus or focus.startswith("/"):
            return focus
        with self.lock:
            self.look()
            return full_focus(self.program.tree, focus, waits=waits)

    def request_all(
        self,
        wanted: Sequence[tuple[ast.Metric, str]],
        *,
        by_function: bool = False,
        by: str | None = None,
        allow_incomplete: bool = False,
        wait: bool = False,
    ) -> list[Metric]:
        """Begin to measure several metrics, all woven in one stop of the target.

        With ``by`` each is divided: see :meth:`weft.Session.metric`.

        Unless ``allow_incomplete`` is set, none is measured if one of them would begin something in
        a function that never ends: see :class:`weft.errors.IncompleteMetric`. With ``wait``, what
        they are about may be in libraries that are not loaded yet.
        """
        with self.session._living():
            wanted = [(metric, self.full_focus(focus, waits=wait)) for metric, focus in wanted]
            wishes = [(metric, focus, (0, 1)) for metric, focus in wanted]
            for _, focus in wanted:
                refuse_nobody(self.session, Focus.parse(focus))
        key = None if by is None else By.parse(by)
        if self.births is None and any(
            needs_births(metric, Focus.parse(focus), key) for metric, focus in wanted
        ):
            self.births = Births(self)
        return self._request(
            wishes,
            by_function=by_function,
            by=key,
            allow_incomplete=allow_incomplete,
            waits=wait,
        )

    def refuse_incomplete(self, metrics: Iterable[Metric]) -> None:
        """Raise an error if a metric begins something in a function that never ends."""
        advice = "" if self.in_clone else CLONE_HELPS
        for metric in metrics:
            if metric.node is not None and (missing := metric.node.left_open(advice)):
                raise incomplete_metric(metric.path, missing)

    @property
    def in_clone(self) -> bool:
        """Whether the target runs from a clone of its code."""
        return self.session.weaver == "clone"

    def request_parts(self, name: str, focus: str) -> list[Metric]:
        """Begin to measure a metric of each function of a focus: several metrics, of some each.

        Where there is a budget, those that cost too much can be shed without the others.
        """
        metric, parts = self.definition(name), 1
        if self.budget is not None:
            with self.lock:
                self.refresh()
                path = Focus.parse(focus).of("Code") or ()
                count = len(self.program.procedures("/".join(["/Code", *path])))
                parts = max(1, -(-count // _PART))
        wishes = [(metric, focus, (number, parts)) for number in range(parts)]
        return self._request(wishes, by_function=True, allow_incomplete=True)

    def _request(
        self,
        wishes: Sequence[_Wish],
        *,
        by_function: bool,
        allow_incomplete: bool,
        by: By | None = None,
        waits: bool = False,
    ) -> list[Metric]:
        def attempt() -> list[Metric]:
            self.look()
            plans = [
                self.plan(
                    metric, focus, by_function=by_function, by=by, portion=portion, waits=waits
                )
                for metric, focus, portion in wishes
            ]
            return self._make(wishes, plans, waits, by)

        def again() -> list[Metric]:
            try:
                return attempt()
            except CodeGone:
                self.__dict__.pop("program", None)
                raise

        with self.lock, self.session._living():
            with self._preparing():
                made = steadily(again)
                self.metrics += made
                self.forget_sampler()
                if self._loader is None and any(map(self.is_of_libraries, made)):
                    self._loader = Loader(self.target, self.session.modules())
                if not allow_incomplete:
                    try:
                        self.refuse_incomplete(made)
                    except BaseException:
                        self.remove(made)
                        raise
            if self.budget is not None:
                self.budget.admit()
        return made

    def is_of_libraries(self, metric: Metric) -> bool:
        """Whether what a metric is about is said to be elsewhere than in the program itself."""
        used = self._known.used_by(metric.definition)
        paths = metric.code_paths({**used.lists, **self._lists})
        return any(path.split("/")[2] != self._program_name for path in paths)

    @cached_property
    def _program_name(self) -> str:
        """What the module is called that is the program itself."""
        return Path(self.session.program()).name

    def _preparing(self) -> AbstractContextManager[None]:
        """Leave what is prepared once out of what measuring costs."""
        return nullcontext() if self.budget is None else self.budget.ledger.own.preparing()

    def _make(
        self,
        wishes: Sequence[_Wish],
        plans: Sequence[Plan | None],
        waits: bool,
        by: By | None,
    ) -> list[Metric]:
        planned = [one for one, plan in zip(wishes, plans, strict=True) if plan is not None]
        woven = [plan for plan in plans if plan is not None]
        try:
            nodes = self._weave(woven)
        except (InvalidArgument, BadSnippet) as error:
            if not isinstance(error, CodeGone):
                error.what = f"{self._refused(planned, woven, type(error))}{error.what}"
            raise
        rest = iter(nodes)
        try:
            for (metric, focus, _), node in zip(planned, nodes, strict=True):
                refuse_anothers(f"{metric.name}@{focus}", node.probes)
            return [
                Metric(
                    self,
                    metric,
                    Focus.parse(focus),
                    plan,
                    next(rest) if plan else None,
                    portion,
                    waits,
                    by,
                )
                for (metric, focus, portion), plan in zip(wishes, plans, strict=True)
            ]
        except BaseException:
            self._release_all(nodes)
            raise

    def _refused(
        self, wishes: Sequence[_Wish], plans: Sequence[Plan], kind: type[WeftError]
    ) -> str:
        """Name the metric that is refused when all are woven together: the first that is, alone."""
        for (metric, focus, _), plan in zip(wishes, plans, strict=True):
            path = f"{metric.name}@{focus}" if focus else metric.name
            if len(plans) == 1:
                return f"{path}: "
            try:
                self._release_all(self._weave([plan]))
            except kind:
                return f"{path}: "
        return ""

    def keep_within(self, share: float, *, counts_process: bool = False) -> None:
        """Keep what the target loses below a part of its time, for all metrics asked for later.

        The processor time that weft uses itself counts. With ``counts_process`` that is all that
        this process uses.
        """
        self.budget = Budget(self, share, counts_process=counts_process)

    def pace(self, interval: float) -> float:
        """Return how long to wait before the next sample that is taken every ``interval`` seconds.

        It is longer where there is a budget and sampling and showing values takes too much of it.
        """
        return interval if self.budget is None else self.budget.pace(interval)

    @property
    def overhead(self) -> float | None:
        """What the target loses at the moment, from 0 to 1; not known without a budget."""
        return None if self.budget is None else self.budget.overhead

    def bases(self) -> list[Node]:
        """The instruments that metrics measure with, without the predicates that these need."""
        found = {id(metric.node): metric.node for metric in self.metrics if metric.node}
        return list(found.values())

    def _all_nodes(self) -> list[Node]:
        """All that is woven, predicates before what uses them."""
        bases = self.bases()
        needed = {id(node): node for base in bases for node in base.needs}
        return [*needed.values(), *bases]

    @property
    def wanted(self) -> list[Metric]:
        """The metrics that somebody has asked for, without those that weft needs itself."""
        own = self.births.started if self.births else None
        return [metric for metric in self.metrics if metric is not own]

    def forget_sampler(self) -> None:
        """What is read at each sample has changed."""
        self._sampler = None

    def plan(
        self,
        metric: ast.Metric,
        focus_text: str,
        *,
        by_function: bool = False,
        by: By | None = None,
        portion: tuple[int, int] = (0, 1),
        waits: bool = False,
    ) -> Plan | None:
        """Say what a metric needs; nothing is woven. The kernel's counters need nothing."""
        focus = Focus.parse(focus_text)
        if metric.base.process:
            kernel.refuse(self.session, metric, focus, by)
            return None
        if by is not None and metric.base.type == "record":
            raise InvalidArgument(
                f"{metric.name} cannot be divided by {by.name}", "it is made of records"
            )
        used = self._known.used_by(metric)
        if by is not None and by.name == "lock":
            metric = by_lock(metric)
        try:
            return lower(
                metric,
                focus,
                self.program,
                {**used.lists, **self._lists},
                used.constraints,
                by_function=by_function,
                by=None if by is None else by.key,
                portion=portion,
                waits=waits,
            )
        except InvalidArgument as error:
            # Of several metrics of one name, the focus says which it is about.
            if focus_text and error.what.startswith(f"{metric.name} finds nothing"):
                error.what = f"{metric.name}@{focus_text}{error.what[len(metric.name) :]}"
            raise

    def _weave(self, plans: Sequence[Plan]) -> list[Node]:
        """Weave what is not woven yet; return the node of each plan, which has one more user."""
        try:
            return self._insert(plans, self._nodes)
        except CodeGone:
            raise
        except (LimitReached, InvalidArgument) as error:
            # What uses a predicate must measure into the same memory, and that may be full; two
            # predicates may be in different memory. Then they are woven once more.
            new = (plan for plan in plans if plan.base.key not in self._nodes)
            shared = {one.key for plan in new for one in plan.predicates} & self._nodes.keys()
            is_too_much = isinstance(error, LimitReached) and len(plans) > 1
            if not shared and not is_too_much:
                raise
        if shared:
            others = self._nodes.copy()
            for key in shared:
                del others[key]
            try:
                return self._insert(plans, others)
            except LimitReached:
                if len(plans) == 1:
                    raise
        # It is too much for one piece of memory.
        half = len(plans) // 2
        first = self._weave(plans[:half])
        try:
            return first + self._weave(plans[half:])
        except BaseException:
            self._release_all(first)
            raise

    def _insert(self, plans: Sequence[Plan], known: dict[Key, Node]) -> list[Node]:
        """Weave plans as far as their instruments are not known, predicates before their users.

        From then on, what is new is what others with the same key find.
        """
        new: dict[Key, Instrument] = {}
        for plan in plans:
            if plan.base.key not in known:
                new.update({one.key: one for one in plan.predicates if one.key not in known})
                new[plan.base.key] = plan.base
        # Where there is a budget, one must know how often each is hit.
        has_hits = self.budget is not None
        numbers = iter(self.target.reserve_probes(sum(len(one.weavings) for one in new.values())))
        items: list[Item] = []
        woven: dict[Key, list[int]] = {}
        for key, instrument in new.items():
            own = woven[key] = [next(numbers) for _ in instrument.weavings]
            imported = [
                woven[other][0] if other in woven else known[other].number
                for other, _ in instrument.imports
            ]
            for number, weaving in zip(own, instrument.weavings, strict=True):
                owner = None if number == own[0] else own[0]
                items.append(item(number, instrument, weaving, owner, imported, has_hits))
        if items:
            # Under a budget nothing is put into the code before it is known what that costs.
            self.target.insert_many(items, not has_hits)
        nodes = known.copy()
        for key, instrument in new.items():
            probes = [
                Probe(self.target, number, weaving.points)
                for number, weaving in zip(woven[key], instrument.weavings, strict=True)
            ]
            needs = [nodes[other] for other, _ in instrument.imports]
            for predicate in needs:
                predicate.users += 1
            node = Node(instrument, probes, needs, is_on=not has_hits, has_hits=has_hits)
            nodes[key] = self._nodes[key] = node
        if has_hits:
            bases = [nodes[plan.base.key] for plan in plans if plan.base.key in new]
            add_scouts(self.target, bases)
        bases = [nodes[plan.base.key] for plan in plans]
        for base in bases:
            base.users += 1
        return bases

    def refresh(self) -> list[Point]:
        """Weave what is measured into libraries that have come since, and return the new points.

        Values go on. It is done at each sample, so one needs it only to be sure of a moment. What
        a library does before is not measured, and the metrics say so; nor is one measured that only
        a forked child has loaded.
        """
        with self.lock:
            return steadily(self._refresh)

    def _refresh(self) -> list[Point]:
        self._looked = time.monotonic()
        loader = self._loader
        count = loader.count() if loader else 0
        mapped = mapped_code(self.session.pid)
        has_changed = mapped != self._mapped
        if not mapped or not self.target.is_current():
            if loader is not None and loader.has_any(count):
                self._has_missed()
            return []
        # A clone keeps its probes while a library is away.
        reloads = self.session._reloads
        if self._nodes and (has_changed or not self.in_clone):
            reloads = self.session._see_reloaded()
        again = reloads[self._reloads :]
        came = arrived(self._mapped, mapped) + [Code(one.start, one.end, "") for one in again]
        went = arrived(mapped, self._mapped)
        now: dict[Key, Instrument] = {}
        if has_changed or again:
            self.__dict__.pop("program", None)
            if "symbols" in self.__dict__:
                self.symbols.see(self.session.modules())
            now = self._lowered_again() if self._nodes else {}
        # What is woven twice would be counted twice: all that was seen has to be of one moment.
        if mapped_code(self.session.pid) != mapped or (loader and loader.count() != count):
            # What was seen to be gone may have been forgotten: it is new when it is back.
            self._mapped &= mapped
            raise CodeGone("a library came or went while weft looked at what is loaded")
        if loader and loader.has_more(count, len(came) + len(went) + len(again)):
            self._has_missed()
        if not has_changed and not again:
            return []
        fresh = self._grow(came, now) if self._nodes else []
        self._mapped, self._reloads = mapped, len(reloads)
        is_there = not any(probe._not_there for node in self._all_nodes() for probe in node.probes)
        if fresh and (not is_there or (loader and loader.count() != count)):
            # It may have gone while it was woven, and be back without it.
            self._mapped = frozenset(arrived(came, self._mapped, by_place=True))
        return fresh

    def see_refused(self) -> None:
        """Take note of points that were refused when what was woven there was woven anew."""
        refusals = self.target.refusals()
        if refusals != self._refusals:
            self._refusals = refusals
            for metric in self.metrics:
                metric.forget_points()

    def _has_missed(self) -> None:
        """Take note that libraries came and went that were not seen."""
        self.unnoticed = time.monotonic()
        for metric in self.metrics:
            metric.forget_points()

    def _grow(self, came: Sequence[Code], now: Mapping[Key, Instrument]) -> list[Point]:
        """Weave every instrument at the points that it has now and had not before.

        What has come is new, also where the same was before. ``now`` is what there is.
        """

        def is_new(point: Point) -> bool:
            return any(one.start <= point.address < one.end for one in came)

        fresh: list[tuple[Node, Weaving]] = []
        for node in self._all_nodes():
            instrument = now.get(node.instrument.key)
            gone = {point for probe in node.probes for point in probe._retire(is_new)}
            node.known = {place: known - gone for place, known in node.known.items()}
            for weaving in instrument.weavings if instrument else ():
                known = node.known.get(weaving.place, set())
                points = tuple(
                    point for point in weaving.points if point not in known or is_new(point)
                )
                if points:
                    fresh.append((node, replace(weaving, points=points)))
        numbers = self.target.reserve_probes(len(fresh))
        # Those that are off first: if the others fail, all are woven again at the next look, and
        # what is off counts nothing twice.
        for is_on in (False, True):
            items = [
                item(
                    number,
                    node.instrument,
                    weaving,
                    node.number,
                    [one.number for one in node.needs],
                    node.has_hits,
                )
                for number, (node, weaving) in zip(numbers, fresh, strict=True)
                if node.is_on == is_on
            ]
            if items:
                self.target.insert_many(items, is_on)
        for node in self._all_nodes():
            # What was unloaded may come back at the same place.
            instrument = now.get(node.instrument.key)
            node.known = places(instrument) if instrument else {}
            if instrument:
                node.unseen = instrument.unseen
        late: dict[int, set[str]] = {}
        for number, (node, weaving) in zip(numbers, fresh, strict=True):
            node.take(self.target, number, weaving)
            modules = {point.module for point in weaving.points}
            late.setdefault(id(node), set()).update(modules)
        for node in self._all_nodes():
            node.arrivals.note(late.get(id(node), ()))
        for metric in self.metrics:
            metric.forget_points()
        self.forget_sampler()
        return [point for _, weaving in fresh for point in weaving.points]

    def _lowered_again(self) -> dict[Key, Instrument]:
        """The instruments of all metrics, as they are with the modules that there are now."""
        found: dict[Key, Instrument] = {}
        for metric in self.metrics:
            # What a metric was narrowed to may have been unloaded.
            with suppress(InvalidArgument):
                if plan := metric.plan_again():
                    found.update({one.key: one for one in (*plan.predicates, plan.base)})
        return found

    def remove(self, metrics: Sequence[Metric]) -> None:
        """Stop measuring metrics, all in one stop. Their last values can still be read."""
        with self.lock:
            there = [metric for metric in metrics if metric in self.metrics]
            if self.births and not any(
                metric.needs_births for metric in self.metrics if metric not in there
            ):
                there += [self.births.started] if self.births.started else []
                self.births = None
            for metric in there:
                metric.freeze()
            self._forget(there)

    def _forget(self, metrics: Sequence[Metric]) -> None:
        """Take out what metrics needed and no other does."""
        for metric in metrics:
            self.metrics.remove(metric)
        self.forget_sampler()
        nodes = [metric.node for metric in metrics if metric.node is not None]
        needed = {id(node) for node in self._all_nodes()}
        gone = {id(one): one for node in nodes for one in (node, *node.needs)}
        numbers = [
            number for key, node in gone.items() if key not in needed for number in node.own_numbers
        ]
        if numbers and self.target.is_current():
            self.target.set_probes_enabled(numbers, False)
        self._release_all(nodes)
        if self._loader is not None and not any(map(self.is_of_libraries, self.metrics)):
            self._loader.leave()
            self._loader = None

    def _release_all(self, nodes: Iterable[Node]) -> None:
        """Take out what has no more users, in one stop; and what that needs."""
        probes = [
            probe
            for node in self._unused(nodes)
            for probe in (*node.probes, *(scout for scout, _ in node.scouts))
        ]
        remove_all(probes)
        for probe in reversed(probes):
            for number in probe.numbers:
                # What was in a library that has gone is kept by the core: it may come back.
                with suppress(InvalidArgument):
                    self.target.discard_probe(number)

    def _unused(self, nodes: Iterable[Node]) -> Iterator[Node]:
        """Count a user less of each, and yield those without any, before what they need."""
        for node in nodes:
            node.users -= 1
            if node.users:
                continue
            if self._nodes.get(node.instrument.key) is node:
                del self._nodes[node.instrument.key]
            yield node
            yield from self._unused(node.needs)

    def sample(self) -> float:
        """Note the value of every metric, and return the time of it, in seconds since 1970.

        When the target has ended, its last values are noted once; then the session is over.
        """
        with self.lock:
            if self._is_over:
                self.session.require()
            if self.session.has_ended:
                self._is_over, self.ended = True, time.monotonic()
                self._see_survivors()
            self.successor.see()
            return self._sample()

    def look(self) -> None:
        """Do as :meth:`refresh`; if it cannot be done just now, the next look does it.

        A library may go while it is looked at. Where the target has just ended, its last values are
        still to be had.
        """
        with suppress(WeftError):
            self.refresh()

    def _see_survivors(self) -> None:
        """Take note of children that the target has left behind. They may yet end."""
        if self.session.has_ended and any(metric.node for metric in self.metrics):
            with suppress(WeftError):
                self.outlived = self.session.survivors()

    def look_again(self) -> None:
        """Do as :meth:`look`, if something may have changed since; not when the session is over."""
        self._see_survivors()
        self.successor.see()
        if self._is_over:
            return
        is_known = time.monotonic() - self._looked < _JUST_NOW
        if self._loader is not None and self.is_told:
            is_known = not self._loader.has_called()
        if not is_known:
            self.look()

    @property
    def is_told(self) -> bool:
        """Whether the loader tells when there is something to look at."""
        return self._loader is not None and self._loader.is_there

    def _sample(self) -> float:
        is_long_ago = time.monotonic() - self._looked >= _LOOK_AGAIN
        if is_long_ago or (self._loader is not None and self._loader.has_called()):
            self.look()
        if self._sampler is None:
            simple = [metric for metric in self.metrics if metric.is_simple]
            self._readings = [metric.reading() for metric in simple]
            self._others = [metric for metric in self.metrics if not metric.is_simple]
            self._sampler = _native.Sampler(
                self.target,
                [(metric.node.number, metric.datum) for metric in simple if metric.node],
            )
        now = time.time()
        numbers = self._sampler.read()
        place = 0
        for metric, width, scale, first in self._readings:
            metric.note(now, numbers[place] * scale - first)
            place += width
        for metric in self._others:
            metric.note_value(now)
        return now

    def close(self) -> None:
        """Keep the last values, for the session ends."""
        self.look()
        self._see_survivors()
        self.successor.see(is_last=True)
        if self.budget is not None:
            self.budget.close()
        for metric in self.metrics:
            metric.freeze()
        self._is_over = True
