"""From a metric and a focus to snippets and their points.

The *where* part of a definition is evaluated here, against a program's functions; its *what* part
becomes text of the snippet language. Nothing is woven: an :class:`Instrument` says what is to be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

from weft.errors import InvalidArgument
from weft.mdl import ast, leaving
from weft.mdl.functions import FUNCTIONS
from weft.mdl.passes.scope import expressions, places, statements
from weft.model.points import Point, PointSelection
from weft.model.program import Procedures

__all__ = [
    "Focus",
    "Instrument",
    "Key",
    "Plan",
    "Program",
    "Role",
    "Unseen",
    "Weaving",
    "left_name",
    "lower",
    "takes_code",
]

Key: TypeAlias = "tuple[object, ...]"
"""What tells instruments apart."""

TAKES_PART = "weft_takes_part"
"""The counter that tells which threads have a value, where that of one of them is wanted."""
MAP_CAPACITY = 1024
MOST_ADDRESSES = 1 << 16
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
_ADDRESS = ast.Variable("address")
_VALUES: Mapping[str, str] = {
    "return": "result",
    "thread": "thread",
    "caller": "caller",
    "address": "address",
    "time": "now",
    "cpu": "cpu",
    "frame": "frame",
    "ticks": "ticks",
}


class Program(Protocol):
    """What lowering asks of a target."""

    def procedures(self, path: str) -> Procedures:
        """The functions that a path below ``/Code`` stands for; none when there is none."""

    def named(self, pattern: str, *, is_regex: bool) -> Procedures:
        """The functions of a name in any module; a pattern may be a path."""

    def own(self) -> Procedures:
        """The functions of the program itself, not of its libraries."""

    def modules(self, pattern: str) -> Procedures:
        """The functions of the modules of a name."""

    def points(
        self, procedures: Procedures, kind: PointSelection
    ) -> tuple[list[Point], list[Point]]:
        """The points of a kind that functions have, and instructions behind which more may be."""

    def jump_target(self, point: Point) -> int | None:
        """Where the instruction at a point jumps to, if it says so itself."""

    def pointer_guard(self) -> int | None:
        """What the C library of GNU hides stack pointers by, if it is known."""

    def variable(self, name: str) -> tuple[int, int]:
        """The address and the size of a variable."""

    def function(self, name: str, module: str) -> int:
        """The address of a function that snippets in a module may call."""

    def similar(self, path: str) -> str:
        """What may be meant by a path, or a name, that stands for nothing: advice for people."""


@dataclass(frozen=True, slots=True)
class Focus:
    """What a metric is narrowed to: at most one resource, or pattern, of each hierarchy."""

    parts: tuple[tuple[str, ...], ...] = ()
    """Paths, each as its components: ``("Code", "libc.so.6", "malloc")``."""

    @classmethod
    def parse(cls, text: str) -> Focus:
        """Read ``/Code/server/handle,/Thread/worker-*``."""
        parts: list[tuple[str, ...]] = []
        for path in _split_paths(text):
            root, *rest = path[1:].rstrip("/").split("/")
            if root == "Code":
                # What follows a module is the name of a function, slashes and all: Go has them.
                rest = "/".join(rest).split("/", 1) if rest else []
            if any(root == other[0] for other in parts):
                raise InvalidArgument(
                    f"the focus names /{root} twice",
                    "a focus has one resource, or one pattern, of each hierarchy",
                    "ask for two metrics instead",
                )
            parts.append((root, *rest))
        return cls(tuple(parts))

    def of(self, root: str) -> tuple[str, ...] | None:
        """The part below a root: its components without the root."""
        return next((part[1:] for part in self.parts if part[0] == root), None)

    def __str__(self) -> str:
        return ",".join("/" + "/".join(part) for part in self.parts)


def _split_paths(text: str) -> Iterator[str]:
    """Split at commas that begin another path: C++ names have commas, too."""
    text = text.strip()
    while text:
        if not text.startswith("/"):
            raise InvalidArgument(
                f"{text!r} is no focus",
                "a focus is a path of the resource tree, or several joined by commas",
                "for example /Code/libc.so.6/malloc or /Code/server/*,/Thread/worker",
            )
        head, comma, tail = text.partition(",/")
        yield head.strip()
        text = "/" + tail if comma else ""


Role: TypeAlias = Literal["", "opens", "closes"]
"""Whether code starts a timer or enters a constraint, or stops and leaves it."""


@dataclass(frozen=True, slots=True)
class Unseen:
    """An instruction behind which there may be points that weft does not know of."""

    point: Point
    kind: PointSelection
    """What is looked for."""
    role: Role


@dataclass(frozen=True, slots=True)
class Weaving:
    """A piece of code, and where it goes."""

    points: tuple[Point, ...]
    order: Literal["append", "prepend"]
    body: str
    place: int
    """Which of its definition's insertions it is: those that have no points are no weavings."""
    role: Role = ""


@dataclass(frozen=True, slots=True)
class Instrument:
    """Data, and the code that measures into them."""

    key: Key
    """Instruments of equal keys are the same, and need to be woven only once."""
    declarations: tuple[str, ...]
    weavings: tuple[Weaving, ...]
    imports: tuple[tuple[Key, str], ...] = ()
    """Data of other instruments that the code uses: the other's key, and the declaration there."""
    missing: tuple[str, ...] = ()
    """Names that the program does not have."""
    unseen: tuple[Unseen, ...] = ()
    tail_calls: tuple[str, ...] = ()
    """The paths of functions that it times, and that are left by a jump to another function."""


@dataclass(frozen=True, slots=True)
class Plan:
    """All that a metric with a focus needs."""

    predicates: tuple[Instrument, ...]
    base: Instrument
    datum: str
    """The name of what the base measures into."""
    kind: Literal["counter", "timer", "histogram", "map", "ring"]
    by_function: Literal["", "point", "address", "key"] = ""
    """Whether values are kept apart: one for each point, by the address of a point, or by a key."""
    selected: tuple[int, ...] = ()
    """The keys of a vectorised metric that the focus asks for."""
    kept: str = ""
    """What is kept of calls that have not ended: a timer or a mark; nothing if none is."""


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
    places = _Places(program, lists, waits=waits)
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
                selected.append(_number(part))
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


def _number(part: tuple[str, ...]) -> int:
    try:
        return int(part[-1], 0)
    except ValueError:
        raise InvalidArgument(
            f"/{'/'.join(part)} names no instance",
            "instances of this hierarchy are numbers",
            f"for example /{'/'.join(part[:-1])}/7",
        ) from None


@dataclass
class _Places:
    """What names of procedures and modules stand for."""

    program: Program
    lists: Mapping[str, ast.ListDefinition]
    constraint: tuple[str, ...] = ()
    """The path that a constraint is for."""
    focus: Procedures = field(default_factory=dict)
    takes_focus: bool = False
    """Whether the code of the focus is where the metric is woven."""
    waits: bool = False
    """Whether what is not there may come later."""
    missing: list[str] = field(default_factory=list)

    def evaluate(
        self, body: Iterable[ast.Where], variables: Mapping[str, Procedures]
    ) -> Iterator[tuple[ast.Insert, Procedures]]:
        """Each insertion, with the procedures whose points it goes to."""
        for where in body:
            if isinstance(where, ast.Foreach):
                found = self.procedures(where.place, variables)
                yield from self.evaluate(where.body, {**variables, where.variable: found})
            else:
                yield where, self.procedures(where.point.place, variables)

    def procedures(self, place: ast.Place, variables: Mapping[str, Procedures]) -> Procedures:
        if place.name in variables:
            return _indexed(variables[place.name], place)
        if place.name == "$procedures":
            return self.program.own()
        if place.name == "$modules":
            return self.program.modules("*")
        if place.name == "$focus":
            return self.focus
        if place.name == "$constraint":
            return self._constrained(place)
        definition = self.lists[place.name]
        found: Procedures = {}
        for item in definition.items:
            if definition.kind == "module":
                some = self.program.modules(item.pattern)
            else:
                some = self.program.named(item.pattern, is_regex=item.is_regex)
            if not some and item.pattern not in self.missing:
                self.missing.append(item.pattern)
            found.update(some)
        return _indexed(found, place)

    def _constrained(self, place: ast.Place) -> Procedures:
        # /Code has modules and procedures; the procedure may not be given.
        depth = 2 if self.constraint[0] == "Code" and place.index == 1 else len(self.constraint)
        path = "/" + "/".join(self.constraint[:depth])
        found = self.program.procedures(path)
        if not found and not self.waits:
            raise InvalidArgument(f"no function matches {path}", advice=self.program.similar(path))
        return found


def _indexed(procedures: Procedures, place: ast.Place) -> Procedures:
    if place.index < 0:
        return procedures
    some = list(procedures.items())[place.index : place.index + 1]
    return dict(some)


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
    places: _Places,
) -> Instrument:
    """A variable of each thread that is not 0 while a resource is active."""
    name = predicate_name(constraint)
    here = _Places(places.program, places.lists, part, waits=places.waits)
    code = _Code(constraint.name, "predicate", here, name)
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


def left_name(predicate: str) -> str:
    """What counts the calls of a predicate that were left where weft could not see it."""
    return f"{predicate}_left"


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
        places: _Places,
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
        code = _Code(metric.name, role, self.places, metric.name, self.keys, self.by)
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
        if role == "times" or self.by == _ADDRESS:
            points = sum(len(weaving.points) for weaving in weavings)
            capacity = max(capacity, min(1 << (2 * points).bit_length(), MOST_ADDRESSES))
        keys = len(base.fields) + (self.by is not None)
        first = {
            "counter": f"counter {name}" if by == "point" else f"counter {name} shared",
            "keyed": f"map {name}[{len(self.keys) + (self.by is not None)}] {capacity}",
            "times": f"map {name}[1] {capacity}",
            "wallTimer": f"timer {name} wall",
            "processTimer": f"timer {name} cpu",
            "histogram": f"histogram {name} fine",
            "map": f"map {name}[{max(1, keys)}] {capacity}",
            "record": f"ring {name}({', '.join(base.fields)}) {RING_CAPACITY}",
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


class _Code:
    """The *what* part of one definition, as snippet text."""

    def __init__(
        self,
        owner: str,
        role: str,
        places: _Places,
        datum: str,
        keys: Sequence[ast.Expression] = (),
        by: ast.Expression | None = None,
    ) -> None:
        self.owner = owner
        self.role = role
        self.places = places
        self.datum = datum
        self.keys = [*keys] if by is None else [*keys, by]
        """What is added to the keys of the metric's own variable."""
        self.by = by or _ADDRESS
        self.needs_mark = False
        self.module = ""
        """Whose code it becomes part of."""
        self.number_of_lets = 0

    def statements(self, body: Iterable[ast.Statement]) -> list[str]:
        return [line for statement in body for line in self._statement(statement)]

    def _statement(self, statement: ast.Statement) -> list[str]:
        if isinstance(statement, ast.Assign):
            return self._assign(statement)
        if isinstance(statement, ast.Observe):
            return [f"{statement.name} << {self.expression(statement.value)}"]
        if isinstance(statement, ast.TimerAction):
            return self._timer(statement)
        if isinstance(statement, ast.Emit):
            values = ", ".join(map(self.expression, statement.values))
            return [f"emit {statement.name}({values})"]
        if isinstance(statement, ast.If):
            lines = [f"if {self.expression(statement.condition)} {{"]
            lines += self.statements(statement.then)
            if statement.otherwise:
                lines += ["} else {", *self.statements(statement.otherwise)]
            return [*lines, "}"]
        return [self.expression(statement)]

    def _assign(self, statement: ast.Assign) -> list[str]:
        value = self.expression(statement.value)
        is_own = statement.name == self.owner
        if is_own and self.role == "predicate":
            return self._enter_or_leave(statement)
        keys = [*statement.keys]
        if is_own:
            keys += self.keys
        if keys:
            inside = ", ".join(map(self.expression, keys))
            if statement.operator == "-=":
                value = f"-({value})"
            return [f"{statement.name}[{inside}] += {value}"]
        return [f"{statement.name} {statement.operator} {value}"]

    def _enter_or_leave(self, statement: ast.Assign) -> list[str]:
        # The variable holds the frame of the outermost call: recursion leaves it alone, and a call
        # that an exception has ended is forgotten when another comes from where it was, or above.
        if statement.value == ast.Number(0):
            return [f"if {self.datum} == frame {{", f"{self.datum} = 0", "}"]
        enter, left = f"{self.datum} = frame", f"{left_name(self.datum)} += 1"
        stale = [f"if frame >= {self.datum} {{", left, enter, "}"]
        return [f"if {self.datum} == 0 {{", enter, "} else {", *stale, "}"]

    def _timer(self, statement: ast.TimerAction) -> list[str]:
        if self.role not in ("histogram", "times"):
            return [f"{statement.action} {statement.name}"]
        self.needs_mark = True
        mark = f"{self.owner}_began"
        if statement.action == "start":
            return [f"stamp {mark}"]
        self.number_of_lets += 1
        took = f"took_{self.number_of_lets}"
        store = f"{self.datum} << {took}"
        if self.role == "times":
            store = f"{self.datum}[{self.expression(self.by)}] += {took}"
        return [f"let {took} = since({mark})", f"if {took} >= 0 {{", store, "}"]

    def expression(self, value: ast.Expression) -> str:
        if isinstance(value, ast.Number):
            return str(value.value)
        if isinstance(value, ast.Name):
            return value.name
        if isinstance(value, ast.Variable):
            return self._variable(value)
        if isinstance(value, ast.Unary):
            return f"({value.operator}{self.expression(value.value)})"
        if isinstance(value, ast.Binary):
            left, right = self.expression(value.left), self.expression(value.right)
            return f"({left} {value.operator} {right})"
        if isinstance(value, ast.ReadSymbol):
            address, size = self.places.program.variable(value.symbol)
            load = {1: "loads8", 2: "loads16", 4: "loads32"}.get(size, "load64")
            return f"{load}({address})"
        if isinstance(value, ast.Call):
            arguments = ", ".join(map(self.expression, value.arguments))
            if value.function in FUNCTIONS:
                return f"{value.function}({arguments})"
            address = self.places.program.function(value.function, self.module)
            return f"call {address}({arguments})"
        raise InvalidArgument(
            f"{self.owner} uses ->{value.name}, which weft cannot look up yet",
            "fields need the types of the debug information",
            "read the memory behind the pointer by its offset, in the snippet language",
        )

    def _variable(self, value: ast.Variable) -> str:
        if value.name == "arg":
            return f"arg({value.index})"
        if value.name == "constraint":
            return str(_number(self.places.constraint))
        if value.name in _VALUES:
            return _VALUES[value.name]
        raise InvalidArgument(
            f"{self.owner} uses ${value.name}, which weft cannot measure at its points yet"
        )
