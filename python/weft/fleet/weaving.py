"""The sessions of a host: one for each process, whoever asks.

All of it is done by one thread: attaching takes milliseconds, and reading microseconds.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeAlias

from weft import _native
from weft.errors import InvalidArgument, WeftError
from weft.fleet.dividing import PROCESS
from weft.fleet.folding import Aggregate, Series, cut, fold
from weft.fleet.machine import Cleaned, Reading, RequestKey
from weft.fleet.plan import Identity
from weft.fleet.protocol import LONGEST_KEY, MOST_KEYS, Ask, Request
from weft.fleet.texts import Texts
from weft.fleet.worth import of_metric
from weft.mdl import ast
from weft.metrics.lookup import is_elsewhere
from weft.metrics.metric import Metric
from weft.metrics.sampling import RunTime
from weft.model.measured import Value
from weft.model.stacks import TRUNCATED
from weft.session import Session
from weft.starting import attach

__all__ = ["Weaver", "said"]

_LONGEST = 2.0
"""For how long to begin with more metrics in a process, in seconds of a processor."""

_Owner: TypeAlias = "tuple[Identity, RequestKey | None]"
"""A process; and a request that brings definitions of its own, whose names others may have, too."""


@dataclass
class _Woven:
    """A session, and what is measured in it for which request."""

    session: Session
    run_time: RunTime
    metrics: dict[RequestKey, list[tuple[Ask, Metric]]] = field(default_factory=dict)
    failed: dict[RequestKey, dict[Ask, str]] = field(default_factory=dict)
    """What could not be measured, and why not."""
    shares: dict[RequestKey, float] = field(default_factory=dict)
    ran: float = 0.0


class Weaver:
    """Measures in processes of this machine."""

    def __init__(self) -> None:
        self._woven: dict[_Owner, _Woven] = {}
        self._leaving: list[Session] = []
        """What could not be left yet: a process may wait in the kernel for long."""

    def clean(self, pids: Collection[int]) -> Cleaned:
        """Take out of these processes what a weft has left that was killed."""
        found = [one for one in _native.processes() if "killed" in one["wefts"]]
        cleaned = []
        for process in found:
            if process["attachable"] and (pid := process["pid"]) in pids:
                with suppress(WeftError):
                    attach(pid).detach()
                    cleaned.append(pid)
        left = (one["pid"] for one in found if one["pid"] not in cleaned)
        return Cleaned(tuple(cleaned), tuple(left))

    def begin(
        self, identity: Identity, key: RequestKey, request: Request, texts: Texts, share: float
    ) -> None:
        """Begin to measure in a process all that can be measured there.

        ``share`` is what part of its time the process may lose. If nothing can be measured, this
        raises an error, and the process is as before.
        """
        owner = _owner(identity, key, texts)
        woven = self._woven.get(owner)
        if woven is None:
            self._leave_others()
            session = attach(identity[0])
            try:
                session.metrics.keep_within(share)
                session.metrics.load(*texts.files)
            except BaseException:
                self._detach(session)
                raise
            woven = self._woven[owner] = _Woven(session, RunTime(identity[0]))
        woven.shares[key] = share
        self._set_share(woven)
        try:
            woven.metrics[key], woven.failed[key] = _requested(woven.session, request, texts)
        except BaseException:
            self._leave(owner, key)
            raise

    def read(self, identity: Identity, key: RequestKey, texts: Texts) -> Reading:
        """Read what has been measured in a process for a request."""
        woven = self._woven.get(_owner(identity, key, texts))
        if woven is None:
            return Reading()
        with suppress(WeftError):
            woven.session.metrics.sample()
        return _reading(woven, key)

    def end(self, identity: Identity, key: RequestKey, texts: Texts) -> Reading:
        """Read it for the last time, and measure it no more."""
        owner = _owner(identity, key, texts)
        woven = self._woven.get(owner)
        if woven is None:
            return Reading()
        with suppress(WeftError):
            woven.session.metrics.sample()
        metrics = [metric for _, metric in woven.metrics.get(key, [])]
        with suppress(WeftError):
            woven.session.metrics.remove(metrics)
        found = _reading(woven, key, is_over=True)
        self._leave(owner, key)
        return found

    def load(self) -> float:
        """What all processes lose to being measured, in seconds of processors since last asked."""
        self._leave_others()
        lost = 0.0
        for woven in self._woven.values():
            ran = woven.run_time.seconds()
            lost += max(ran - woven.ran, 0.0) * (woven.session.metrics.overhead or 0.0)
            woven.ran = ran
        return lost

    def close(self) -> None:
        """Leave all processes."""
        self._leave_others()
        for woven in self._woven.values():
            self._detach(woven.session)
        self._woven.clear()

    def _leave(self, owner: _Owner, key: RequestKey) -> None:
        woven = self._woven[owner]
        for known in (woven.metrics, woven.failed, woven.shares):
            known.pop(key, None)
        if woven.shares:
            self._set_share(woven)
            return
        del self._woven[owner]
        self._detach(woven.session)

    def _detach(self, session: Session) -> None:
        """Leave a process; if that cannot be done now, it is done later."""
        try:
            session.detach()
        except WeftError:
            if not session.has_ended:
                self._leaving.append(session)

    def _leave_others(self) -> None:
        leaving, self._leaving = self._leaving, []
        for session in leaving:
            self._detach(session)

    def _set_share(self, woven: _Woven) -> None:
        budget = woven.session.metrics.budget
        assert budget is not None
        budget.set_share(min(woven.shares.values()))


def _owner(identity: Identity, key: RequestKey, texts: Texts) -> _Owner:
    return identity, key if texts.files else None


def _requested(
    session: Session, request: Request, texts: Texts
) -> tuple[list[tuple[Ask, Metric]], dict[Ask, str]]:
    """Begin to measure, and say what cannot be.

    What is about a module that the process does not have happens nowhere in it.
    """
    engine = session.metrics
    by = None if request.by in ("", PROCESS) else request.by
    failed: dict[Ask, str] = {}
    wanted: list[tuple[Ask, ast.Metric]] = []
    elsewhere: list[Ask] = []
    with engine.lock:
        engine.look()
        tree = engine.program.tree
    for ask in request.metrics:
        if is_elsewhere(tree, ask.focus):
            elsewhere.append(ask)
            continue
        try:
            wanted.append((ask, engine.definition(ask.metric)))
        except InvalidArgument as error:
            failed[ask] = error.what
    engine.define(texts.lists)
    wanted += [(Ask(metric.name), metric) for metric in texts.metrics]
    found: list[tuple[Ask, Metric]] = []
    last, began = None, time.thread_time()
    # One that cannot be measured keeps no other from it; nor do those that are many keep the host
    # from all else: what is asked of a whole program is probes by the hundred thousand.
    for ask, definition in wanted:
        if (took := time.thread_time() - began) > _LONGEST:
            failed[ask] = f"weaving the others has taken {took:.0f} s: ask for less at once"
            continue
        try:
            found.append((ask, engine.request_all([(definition, ask.focus)], by=by)[0]))
        except WeftError as error:
            last = error
            failed[ask] = said(error)
    if not found and last is not None:
        raise last
    if not found:
        why = [f"{ask}: {text}" for ask, text in failed.items()]
        why += [f"{ask}: the process has no such module" for ask in elsewhere]
        raise InvalidArgument("; ".join(why) or "nothing is to be measured")
    return found, failed


def said(error: WeftError) -> str:
    """What an error says, on one line."""
    return f"{error.what}: {error.why}" if error.why else error.what


def _reading(woven: _Woven, key: RequestKey, *, is_over: bool = False) -> Reading:
    series: list[Series] = []
    notes: list[str] = []
    for ask, why in woven.failed.get(key, {}).items():
        notes.append(f"{ask}: {why}")
        series.append(Series(ask.metric, ask.focus, "", None, complete=False))
    for ask, metric in woven.metrics.get(key, []):
        completeness = metric.completeness
        if completeness.missing:
            notes.append(f"{ask}: {completeness.summary()}")
        elif completeness.interval is not None:
            notes.append(f"{ask}: an estimate, measured now and then to stay within the budget")
        aggregate = _aggregate(metric.definition)
        value = cut(_plain(metric.value, aggregate), MOST_KEYS, aggregate)
        series.append(
            Series(
                ask.metric,
                ask.focus,
                metric.unit,
                value,
                aggregate,
                completeness.is_exact,
                interval=None if completeness.missing else completeness.interval,
                worth=of_metric(metric, is_over=is_over),
            )
        )
    return Reading(tuple(series), tuple(notes), woven.session.has_ended)


def _plain(value: Value, aggregate: Aggregate) -> Value | None:
    """A value as it travels: keys that are stacks are their texts."""
    if not isinstance(value, dict):
        return value
    # Of those that are too long several may be the same then.
    return fold(aggregate, [{}, *({_key(str(key)): one} for key, one in value.items())])


def _key(text: str) -> str:
    room = LONGEST_KEY - len(TRUNCATED)
    return text if len(text) <= LONGEST_KEY else f"{TRUNCATED}{text[-room:]}"


def _aggregate(definition: ast.Metric) -> Aggregate:
    if definition.aggregate == "min":
        return "min"
    return "max" if definition.aggregate == "max" else "sum"
