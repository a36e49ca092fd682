"""Metrics by lock: which one it is, is known where a procedure is entered only."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

from weft.errors import InvalidArgument, WeftError
from weft.mdl import ast
from weft.mdl.passes.scope import inserts, places
from weft.program.live_modules import live_modules
from weft.program.variables import Variables

__all__ = ["LOCK", "LockNames", "by_lock"]

_LIST = "lock_calls"
_DEPTH = 3
"""How many calls within each other are told apart. More than one is rare: a wrapper of the same
name, or an allocator that a wrapper calls and that has a lock of its own."""

LOCK = ast.Name("by_lock")
_NESTED = 0
"""The key of what was not told apart."""

_FRAME = ast.Variable("frame")
_NOTHING = ast.Number(0)


_MOST = 16
"""How many looks at what was loaded are kept."""


class LockNames:
    """The variables that locks are, also when their module or the process has gone."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._looks: list[Variables] = []
        self.see()

    def see(self) -> None:
        """Take note of what is loaded now."""
        with suppress(WeftError):
            now = Variables(self._pid, live_modules(self._pid, may_end=True))
            if now.maps:
                self._looks = [now, *self._looks[: _MOST - 1]]

    def shown(self, address: int) -> str:
        """What a lock is called: its variable, if it has one, and its address."""
        if address == _NESTED:
            return "(locks taken within the taking of others)"
        look = next((one for one in self._looks if one.place(address)), None)
        return hex(address) if look is None else look.shown(address)


def by_lock(metric: ast.Metric) -> ast.Metric:
    """Return the same metric with the lock kept from entry to return, in the variable of LOCK."""
    named = {place.name for place in places(metric.base.body)} - _loops(metric.base.body)
    kinds = {insert.point.kind for insert in inserts(metric.base.body)}
    if named != {_LIST} or not kinds <= {"entry", "return"}:
        raise InvalidArgument(
            f"{metric.name} cannot be divided by lock",
            f"only what is measured at the procedures of the list {_LIST} is about a lock",
            "-m lock_wait or -m lock_contention; or --by '$arg[0]', if that is what you mean",
        )
    levels = range(_DEPTH)
    own = (LOCK.name, *(name for level in levels for name in (_frame(level), _lock(level))))
    return replace(
        metric,
        base=replace(metric.base, body=tuple(map(_kept, metric.base.body))),
        locals=(*metric.locals, *own),
    )


def _loops(body: Iterable[ast.Where]) -> set[str]:
    """The variables of loops."""
    loops = [one for one in body if isinstance(one, ast.Foreach)]
    return {one.variable for one in loops}.union(*(_loops(one.body) for one in loops))


def _frame(level: int) -> str:
    return f"by_lock_frame_{level}"


def _lock(level: int) -> str:
    return f"by_lock_lock_{level}"


def _kept(where: ast.Where) -> ast.Where:
    if isinstance(where, ast.Foreach):
        return replace(where, body=tuple(map(_kept, where.body)))
    body = where.code.body
    if where.point.kind == "entry":
        body = (*_keep(0), *body)
    else:
        body = (_set(LOCK.name, ast.Number(_NESTED)), *_find(0), *body)
    return replace(where, code=replace(where.code, body=body))


def _keep(level: int) -> tuple[ast.Statement, ...]:
    """Keep the lock of a call in the first place that is free.

    A call from where another was, or above, tells that the other was left without returning.
    """
    if level == _DEPTH:
        return ()
    name = ast.Name(_frame(level))
    is_free = ast.Binary("==", name, _NOTHING)
    is_stale = ast.Binary(">=", _FRAME, name)
    kept = (_set(_frame(level), _FRAME), _set(_lock(level), ast.Variable("arg", 0)))
    inner = tuple(_set(_frame(one), _NOTHING) for one in range(level + 1, _DEPTH))
    return (ast.If(ast.Binary("||", is_free, is_stale), (*kept, *inner), _keep(level + 1)),)


def _find(level: int) -> tuple[ast.Statement, ...]:
    if level == _DEPTH:
        return ()
    is_own = ast.Binary("==", ast.Name(_frame(level)), _FRAME)
    found = (_set(LOCK.name, ast.Name(_lock(level))), _set(_frame(level), _NOTHING))
    return (ast.If(is_own, found, _find(level + 1)),)


def _set(name: str, value: ast.Expression) -> ast.Assign:
    return ast.Assign(name, "=", value)
