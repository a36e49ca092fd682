"""From a metric and a focus to snippets and their points.

The *where* part of a definition is evaluated here, against a program's functions; its *what* part
becomes text of the snippet language. Nothing is woven: an :class:`Instrument` says what is to be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal

from weft.errors import InvalidArgument
from weft.mdl import ast, leaving
from weft.mdl.code import ADDRESS, Code, left_name
from weft.mdl.functions import FUNCTIONS
from weft.mdl.passes.scope import expressions, places, statements
from weft.mdl.passes.texts import columns, kind_of
from weft.mdl.placing import Places, instance
from weft.mdl.plan import Focus, Instrument, Plan, Program, Role, Unseen, Weaving
from weft.model.points import Point, PointSelection
from weft.model.program import Procedures

__all__ = ["RESULTS_UNSEEN", "TAKES_PART", "lower", "takes_code"]

TAKES_PART = "weft_takes_part"
"""The counter that tells which threads have a value, where that of one of them is wanted."""
MAP_CAPACITY = 1024
MOSTADDRESSES = 1 << 16
RING_CAPACITY = 4096
RESULTS_UNSEEN = "weft_results_unseen"
"""The counter of calls whose result the code of a metric wants, and has not seen."""
_LEAVING: Mapping[str, int] = {"thrown": -1, "caught": -2, "jump": -3, "end": -4}
"""The places of weavings that are in no definition: where calls end that do not return."""
_JUMPS = -5
"""The same: where functions jump to others, which alone know the result."""

_ROOTS = ("Code", "Process", "Thread", "Machine", "SyncObject")

_POINT_KINDS: Mapping[str, PointSelection] = {
    "entry": "entry",
    "return": "exit",
    "blocks": "block",
    "edges": "edge",
    "taken": "taken",
    "insns": "insn",
    "loops": "loops",
    "loads": "loads",
    "stores": "stores",
    "syscalls": "syscalls",
}


def lower(
    metric: ast.Metric,
    focus: Focus,
    program: Program,
    lists: Mapping[str, ast.ListDefinition],
    constraints: Mapping[str, ast.Constraint],
    *,
    by_function: bool = False,
    by: ast.Expression | None = None,
    portion: tuple[int, int] = (0, 1),
    waits: bool = False,
) -> Plan:
    """Say what has to be woven for a metric that is narrowed to a focus.

    With ``by`` it has a value for each value of that expression. ``portion`` chooses some of the
    procedures of the focus: the first of two halves is ``(0, 2)``.
    With ``waits`` there may be none, nor any point.
    """
    places = Places(program, lists, waits=waits)
    takes_focus = takes_code(metric)
    predicates: list[Instrument] = []
    keys: list[ast.Constraint] = []
    selected: list[int] = []
    for part in focus.parts:
        if part[0] in ("Thread", "Process", "Machine") or (part[0] == "Code" and takes_focus):
            continue
        constraint = _constraint_for(metric, part, constraints)
        if isinstance(constraint.body, ast.Key):
            keys.append(constraint)
            if part[-1] != "*":
                selected.append(instance(part))
        else:
            predicates.append(_predicate(constraint, constraint.body, part, places))
    if selected and len(selected) < len(keys):
        raise InvalidArgument(
            f"{metric.name} can be narrowed to one instance or divided by all, not both",
            f"{focus} asks for both",
        )
    if len(keys) > 2:
        raise InvalidArgument(f"{metric.name} can be narrowed by at most two keys at a time")
    if takes_focus:
        places.focus = _portion_of(_focused(program, focus, waits), portion)
        places.takes_focus = True
    base = _Base(metric, predicates, keys, places, by_function, by)
    return base.plan(focus, tuple(selected), portion)


def takes_code(metric: ast.Metric) -> bool:
    """Whether the code of a focus is where the metric is woven, not a constraint."""
    return any(place.name == "$focus" for place in places(metric.base.body))


def _focused(program: Program, focus: Focus, waits: bool) -> Procedures:
    part = focus.of("Code")
    if not part:
        return program.own()
    path = "/Code/" + "/".join(part)
    found = program.procedures(path)
    if not found and not waits:
        raise InvalidArgument(f"no function matches {path}", advice=program.similar(path))
    return found


def _portion_of(procedures: Procedures, portion: tuple[int, int]) -> Procedures:
    """Some of the procedures: those that lie next to each other stay together."""
    number, count = portion
    if count == 1:
        return procedures
    ordered, size = sorted(procedures.items()), len(procedures)
    return dict(ordered[number * size // count : (number + 1) * size // count])


def _constraint_for(
    metric: ast.Metric, part: tuple[str, ...], constraints: Mapping[str, ast.Constraint]
) -> ast.Constraint:
    """The constraint of a metric that fits a path best: the one with the longest hierarchy."""
    fitting: list[tuple[int, ast.Constraint]] = []
    for name in metric.constraints:
        constraint = constraints.get(name)
        if constraint is None:
            continue
        hierarchy = tuple(constraint.hierarchy.strip("/").split("/"))
        if part[: len(hierarchy)] != hierarchy:
            continue
        if hierarchy == ("Code",) and (len(part) > 2) != _names_procedures(constraint):
            continue
        fitting.append((len(hierarchy), constraint))
    if not fitting:
        path = "/" + "/".join(part)
        allowed = {
            constraints[name].hierarchy for name in metric.constraints if name in constraints
        }
        if takes_code(metric):
            allowed.add("/Code")
        advice = f"`weft metrics {metric.name}` says more"
        if "/Code" in allowed and part[0] not in _ROOTS:
            name = "/".join(filter(None, part))
            some = [f"{metric.name}@/Code/{name}", f"{metric.name}@/Code/*/{name}"]
            advice = f"for a module or a function: {' or '.join(some)}"
        raise InvalidArgument(
            f"{metric.name} cannot be narrowed to {path}",
            f"it can be narrowed to {', '.join(sorted(allowed | {'/Thread', '/Process'}))}",
            advice,
        )
    return max(fitting, key=lambda one: one[0])[1]


def _names_procedures(constraint: ast.Constraint) -> bool:
    """Whether a constraint of /Code is about a procedure, not a module."""
    if isinstance(constraint.body, ast.Key):
        return True
    return any((one.name, one.index) == ("$constraint", 0) for one in places(constraint.body))


def _by_module(
    inserts: Iterable[tuple[ast.Insert, Procedures]],
) -> Iterator[tuple[int, ast.Insert, Procedures]]:
    """Insertions with their numbers, those of code that calls functions split by module.

    A program may have two of a name, such as ``malloc_usable_size`` of the C library and of another
    allocator. The one that belongs to the procedure is meant.
    """
    for place, (insert, procedures) in enumerate(inserts):
        if not _calls(insert.code.body):
            yield place, insert, procedures
            continue
        modules: dict[str, Procedures] = {}
        for address, (name, module) in procedures.items():
            modules.setdefault(module, {})[address] = (name, module)
        for some in modules.values():
            yield place, insert, some


def _module_of(procedures: Procedures) -> str:
    return next((module for _, module in procedures.values()), "")


def _calls(body: Iterable[ast.Statement]) -> bool:
    """Whether code calls functions of the program."""
    return any(
        isinstance(one, ast.Call) and one.function not in FUNCTIONS
        for statement in statements(body)
        for one in (statement, *expressions(statement))
    )


def _points(
    program: Program, insert: ast.Insert, procedures: Procedures, role: Role
) -> tuple[tuple[Point, ...], list[Unseen]]:
    kind: PointSelection
    if insert.point.kind == "calls":
        kind = "call" if insert.when == "preInsn" else "after"
    elif _wants_result(insert):
        # A function that is left by a jump to another one has no result yet.
        kind = "returns"
    else:
        kind = _POINT_KINDS[insert.point.kind]
    if not procedures:
        return (), []
    points, unseen = program.points(procedures, kind)
    return tuple(points), [Unseen(point, kind, role) for point in unseen]


def _tail_calls(program: Program, procedures: Procedures, exits: Iterable[Point]) -> list[str]:
    """The paths of functions of which some exits are jumps to other functions."""
    returns = set(program.points(procedures, "returns")[0])
    return list(dict.fromkeys(point.path for point in exits if point not in returns))


def _jumps(program: Program, wanted: Procedures, woven: Sequence[Weaving]) -> list[Point]:
    """Where functions are left with no result yet, and nothing else sees it.

    That is where they jump to another one whose result is not wanted itself.
    """
    seen = {point for weaving in woven for point in weaving.points}
    if not wanted:
        return []
    seen.update(program.points(wanted, "returns")[0])
    exits = (point for point in program.points(wanted, "exit")[0] if point not in seen)
    return [point for point in exits if program.jump_target(point) not in wanted]


def _role(code: ast.CodeBlock) -> Role:
    """What code does to the timer that it is about."""
    actions = {one.action for one in statements(code.body) if isinstance(one, ast.TimerAction)}
    if len(actions) != 1:
        return ""
    return "opens" if "start" in actions else "closes"


def _uses_key(metric: ast.Metric, insert: ast.Insert) -> bool:
    """Whether code adds to the value of a metric, and so to that of a key."""
    return any(
        isinstance(one, ast.TimerAction) and one.action == "stop"
        if metric.base.type == "wallTimer"
        else isinstance(one, ast.Assign) and one.name == metric.name
        for one in statements(insert.code.body)
    )


def _refuse_key(metric: ast.Metric, key: ast.Expression, insert: ast.Insert) -> None:
    """Raise an error if a key is of something that there is not where the metric is measured."""
    kind = "after" if insert.point.kind == "calls" and insert.when == "postInsn" else ""
    kind = kind or insert.point.kind
    for value in expressions(key):
        if not isinstance(value, ast.Variable):
            continue
        if value.name == "return" and kind not in ("return", "after"):
            raise InvalidArgument(
                f"{metric.name} cannot be divided by $return",
                "it is measured before there is a result",
                "count where functions return: -e 'exit FUNCTION { count[$return]++ }'",
            )
        if value.name == "arg" and kind not in ("entry", "calls"):
            name = f"$arg[{value.index}]"
            entry, result = f"kept = {name}", "count[kept]++"
            if metric.base.type == "wallTimer":
                entry, result = f"{entry}; began = $time", "ns[kept] += $time - began"
            raise InvalidArgument(
                f"{metric.name} cannot be divided by {name}",
                "it is measured where functions return, and the arguments are gone by then",
                f"keep it: -e 'entry FUNCTION {{ {entry} }} exit FUNCTION {{ {result} }}'",
            )


def _wants_result(insert: ast.Insert) -> bool:
    """Whether code is for the results of functions."""
    if insert.point.kind != "return":
        return False
    values = (value for one in statements(insert.code.body) for value in expressions(one))
    return any(isinstance(value, ast.Variable) and value.name == "return" for value in values)


def _predicate(
    constraint: ast.Constraint,
    body: tuple[ast.Where, ...],
    part: tuple[str, ...],
    places: Places,
) -> Instrument:
    """A variable of each thread that is not 0 while a resource is active."""
    name = predicate_name(constraint)
    here = Places(places.program, places.lists, part, waits=places.waits)
    code = Code(constraint.name, "predicate", here, name)
    weavings = []
    unseen: list[Unseen] = []
    for place, (insert, procedures) in enumerate(here.evaluate(body, {})):
        text = "\n".join(code.statements(insert.code.body))
        role: Role = "closes" if _leaves(insert.code, constraint.name) else "opens"
        points, hidden = _points(here.program, insert, procedures, role)
        unseen += hidden
        if points or places.waits:
            weavings.append(Weaving(points, insert.order, text, place, role))
    if not weavings:
        raise InvalidArgument(f"/{'/'.join(part)} has no point where it is entered")

    def leave(low: str, high: str) -> str:
        # Nothing is at frame 0, and every frame is below the highest address, which is -1.
        test = f"{name} >= {low} && uge({high}, {name})"
        return f"if {test} {{ {name} = 0 }}"

    weavings += _leaving(here.program, leave)
    return Instrument(
        ("constraint", constraint.name, constraint, part),
        (
            f"local {name}",
            *(f"local {one}" for one in leaving.LOCALS),
            f"counter {left_name(name)} shared",
        ),
        tuple(weavings),
        missing=tuple(here.missing),
        unseen=tuple(unseen),
    )


def _leaves(code: ast.CodeBlock, constraint: str) -> bool:
    """Whether code ends a constraint."""
    return any(
        isinstance(one, ast.Assign) and one.name == constraint and one.value == ast.Number(0)
        for one in statements(code.body)
    )


def _leaving(program: Program, leave: Callable[[str, str], str]) -> list[Weaving]:
    """What ends calls that do not return."""
    return [
        Weaving(one.points, "append", one.body, _LEAVING[one.kind])
        for one in leaving.leavings(program, leave)
    ]


def predicate_name(constraint: ast.Constraint) -> str:
    """What the variable of a constraint is called in snippets."""
    return f"in_{constraint.name}"


class _Base:
    """The lowering of a metric's base."""

    def __init__(
        self,
        metric: ast.Metric,
        predicates: list[Instrument],
        keys: list[ast.Constraint],
        places: Places,
        by_function: bool,
        by: ast.Expression | None,
    ) -> None:
        self.metric = metric
        self.predicates = predicates
        self.places = places
        self.keys = [
            constraint.body.value for constraint in keys if isinstance(constraint.body, ast.Key)
        ]
        self.key_names = tuple(constraint.name for constraint in keys)
        self.by_function = by_function
        self.by = by

    def plan(self, focus: Focus, selected: tuple[int, ...], portion: tuple[int, int]) -> Plan:
        metric, base = self.metric, self.metric.base
        inserts = list(self.places.evaluate(base.body, {}))
        by: Literal["", "point", "address", "key"] = ""
        if self.by is not None or (self.keys and not selected):
            by = "key"
        elif self.by_function and base.type in ("counter", "rate") and len(inserts) == 1:
            by = "point"
        elif self.by_function and base.type == "wallTimer":
            by = "address"
        role = self._role(by)
        code = Code(metric.name, role, self.places, metric.name, self.keys, self.by)
        weavings: list[Weaving] = []
        unseen: list[Unseen] = []
        tail_calls: list[str] = []
        wanted: Procedures = {}
        for place, insert, procedures in _by_module(inserts):
            part = _role(insert.code)
            points, hidden = _points(self.places.program, insert, procedures, part)
            unseen += hidden
            if part == "closes" and insert.point.kind == "return" and points:
                tail_calls += _tail_calls(self.places.program, procedures, points)
            if _wants_result(insert):
                wanted.update(procedures)
            if self.by is not None and _uses_key(metric, insert):
                _refuse_key(metric, self.by, insert)
            code.module = _module_of(procedures)
            lines = code.statements(insert.code.body)
            if metric.aggregate != "sum":
                lines = [f"{TAKES_PART} += 1", *lines]
            if insert.constrained:
                lines = self._constrained(lines)
            if points or self.places.waits:
                weavings.append(Weaving(points, insert.order, "\n".join(lines), place, part))
        if not weavings:
            raise self._nowhere()
        wants_results = any(_wants_result(insert) for insert, _ in inserts)
        if wants_results:
            jumps = _jumps(self.places.program, wanted, weavings)
            lines = self._constrained([f"{RESULTS_UNSEEN} += 1"])
            if jumps or self.places.waits:
                weavings.append(Weaving(tuple(jumps), "append", "\n".join(lines), _JUMPS))
        kept = f"{metric.name}_began" if code.needs_mark else metric.name
        if code.needs_mark or role in ("wallTimer", "processTimer"):
            leave = f"leave {kept}({{}}, {{}})".format
            weavings += _leaving(self.places.program, leave)
        key = (
            "metric",
            metric,
            focus.of("Code") if self.places.takes_focus else None,
            tuple(one.key for one in self.predicates),
            self.key_names,
            by,
            self.by,
            portion,
        )
        return Plan(
            tuple(self.predicates),
            Instrument(
                key,
                self._declarations(role, by, weavings, code.needs_mark, wants_results),
                tuple(weavings),
                tuple((one.key, one.declarations[0]) for one in self.predicates),
                tuple(self.places.missing),
                tuple(unseen),
                tuple(tail_calls),
            ),
            metric.name,
            self._kind(role),
            by,
            selected,
            kept if code.needs_mark or self._kind(role) == "timer" else "",
        )

    def _constrained(self, lines: list[str]) -> list[str]:
        """The same code, where the focus is active."""
        if not self.predicates:
            return lines
        test = " && ".join(f"{_declared(one)} != 0" for one in self.predicates)
        return [f"if {test} {{", *lines, "}"]

    def _role(self, by: str) -> str:
        type_ = self.metric.base.type
        if self.by is not None:
            return self._role_by_key(type_)
        if type_ in ("counter", "rate"):
            return "keyed" if self.keys else "counter"
        if self.keys:
            raise InvalidArgument(
                f"{self.metric.name} cannot be narrowed by a key",
                f"only counters can, and it is a {type_}",
            )
        return "times" if by == "address" else type_

    def _role_by_key(self, type_: str) -> str:
        if self.keys or (type_ == "map" and len(self.metric.base.fields) > 1):
            raise InvalidArgument(
                f"{self.metric.name} cannot be divided any further",
                "it has the most keys that a map can have",
                "leave out --by, or the key of the focus",
            )
        if type_ in ("counter", "rate"):
            return "keyed"
        if type_ in ("wallTimer", "map"):
            return "times" if type_ == "wallTimer" else "map"
        raise InvalidArgument(
            f"{self.metric.name} cannot be divided by a key",
            f"counts and wall times can, and it is a {type_}",
            "--by thread works with every metric",
        )

    @staticmethod
    def _kind(role: str) -> Literal["counter", "timer", "histogram", "map", "ring"]:
        if role in ("keyed", "times", "map"):
            return "map"
        if role in ("wallTimer", "processTimer"):
            return "timer"
        if role == "record":
            return "ring"
        return "histogram" if role == "histogram" else "counter"

    def _declarations(
        self,
        role: str,
        by: str,
        weavings: Sequence[Weaving],
        needs_mark: bool,
        wants_results: bool,
    ) -> tuple[str, ...]:
        name, base = self.metric.name, self.metric.base
        capacity = MAP_CAPACITY
        if role == "times" or self.by == ADDRESS:
            points = sum(len(weaving.points) for weaving in weavings)
            capacity = max(capacity, min(1 << (2 * points).bit_length(), MOSTADDRESSES))
        own = [kind_of(column[0]) for column in columns(self.metric)]
        divided = [] if self.by is None else [kind_of(self.by)]
        fields = [
            str(field) if kind_of(column[0]) == "int" else f"{kind_of(column[0])} {field}"
            for field, column in zip(base.fields, columns(self.metric), strict=False)
        ]
        first = {
            "counter": f"counter {name}" if by == "point" else f"counter {name} shared",
            "keyed": f"map {name}[{_keys([*map(kind_of, self.keys), *divided])}] {capacity}",
            "times": f"map {name}[{_keys(divided)}] {capacity}",
            "wallTimer": f"timer {name} wall",
            "processTimer": f"timer {name} cpu",
            "histogram": f"histogram {name} fine",
            "map": f"map {name}[{_keys([*own, *divided])}] {capacity}",
            "record": f"ring {name}({', '.join(fields)}) {RING_CAPACITY}",
        }[role]
        mark = [f"mark {name}_began"] if needs_mark else []
        part = [] if self.metric.aggregate == "sum" else [f"counter {TAKES_PART} shared"]
        locals_ = list(self.metric.locals)
        if needs_mark or self._kind(role) == "timer":
            locals_ += leaving.LOCALS
        if wants_results:
            part.append(f"counter {RESULTS_UNSEEN} shared")
        return (first, *mark, *part, *(f"local {local}" for local in locals_))

    def _nowhere(self) -> InvalidArgument:
        missing = self.places.missing
        # Of lists, programs need not have all; but of what one names oneself.
        is_one = len(missing) == 1 and f'"{missing[0]}"' in self.places.lists
        return InvalidArgument(
            f"{self.metric.name} finds nothing to measure in this program",
            f"it has no function {', '.join(missing[:5])}" if missing else "no point matches",
            self.places.program.similar(missing[0]) if is_one else "",
        )


def _declared(instrument: Instrument) -> str:
    return instrument.declarations[0].split()[1]


def _keys(kinds: Sequence[str]) -> str:
    """What keys a map has; one that is a number if nothing is known of them."""
    return ", ".join(kinds) or "int"
