"""What an MDL text says, as data.

Every node knows its place in the text. Nodes compare equal when they say the same, wherever they
stand: places are left out of comparisons.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

__all__ = [
    "Assign",
    "Base",
    "Binary",
    "Call",
    "CodeBlock",
    "Constraint",
    "Document",
    "Emit",
    "Expression",
    "Field",
    "Foreach",
    "If",
    "Import",
    "Insert",
    "Item",
    "Key",
    "ListDefinition",
    "Metric",
    "Name",
    "Number",
    "Observe",
    "Place",
    "PointExpression",
    "ReadSymbol",
    "Span",
    "Statement",
    "TimerAction",
    "Unary",
    "Variable",
    "Where",
]


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of a text: lines and columns are counted from 1, and the end is not part of it."""

    line: int
    column: int
    end_line: int
    end_column: int


NOWHERE = Span(0, 0, 0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """Anything that stands somewhere in a text."""

    span: Span = field(default=NOWHERE, compare=False, repr=False)


# The part that runs inside the target: what is between (* and *).


@dataclass(frozen=True, slots=True)
class Number(Node):
    """``300``, ``0x12c``."""

    value: int


@dataclass(frozen=True, slots=True)
class Name(Node):
    """A variable of the program text: the metric's own, a constraint's, a declared one."""

    name: str


@dataclass(frozen=True, slots=True)
class Variable(Node):
    """``$return``, ``$thread``, ``$arg[1]``, ``$constraint[0]``: ``index`` is -1 without one."""

    name: str
    index: int = -1


@dataclass(frozen=True, slots=True)
class Field(Node):
    """``value->name``: a field of the structure that a value points to, by debug information."""

    value: Expression
    name: str


@dataclass(frozen=True, slots=True)
class ReadSymbol(Node):
    """``readSymbol("timeSteps")``: a variable of the program."""

    symbol: str


@dataclass(frozen=True, slots=True)
class Unary(Node):
    """``-x``, ``!x``, ``~x``."""

    operator: str
    value: Expression


@dataclass(frozen=True, slots=True)
class Binary(Node):
    """``a + b``; operators as in C."""

    operator: str
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Call(Node):
    """``name(a, b)``: a call of a function of the program, or of the language."""

    function: str
    arguments: tuple[Expression, ...]


Expression: TypeAlias = "Number | Name | Variable | Field | ReadSymbol | Unary | Binary | Call"


@dataclass(frozen=True, slots=True)
class Assign(Node):
    """``x = e``, ``x += e``, ``x -= e``; ``x++`` is ``x += 1``; ``keys`` are those of ``m[a]``."""

    name: str
    operator: Literal["=", "+=", "-="]
    value: Expression
    keys: tuple[Expression, ...] = ()


@dataclass(frozen=True, slots=True)
class Observe(Node):
    """``h << e``: a value into a histogram."""

    name: str
    value: Expression


@dataclass(frozen=True, slots=True)
class TimerAction(Node):
    """``start x``, ``stop x cpu``; ``startWallTimer(x)`` and its variants.

    Without a clock it is that of the variable.
    """

    name: str
    action: Literal["start", "stop"]
    clock: Literal["", "wall", "process"]


@dataclass(frozen=True, slots=True)
class Emit(Node):
    """``emit r(a, b)``: a record."""

    name: str
    values: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class If(Node):
    """``if (e) { ... } else { ... }``."""

    condition: Expression
    then: tuple[Statement, ...]
    otherwise: tuple[Statement, ...] = ()


Statement: TypeAlias = "Assign | Observe | TimerAction | Emit | If | Call"


@dataclass(frozen=True, slots=True)
class CodeBlock(Node):
    """``(* ... *)``."""

    body: tuple[Statement, ...]


# The part that is evaluated against the resource tree: where the code goes.


@dataclass(frozen=True, slots=True)
class Place(Node):
    """A procedure, a module, or a list of them.

    ``name`` is a variable of a ``foreach``, a list, or one of ``$procedures``, ``$modules``,
    ``$focus``, ``$constraint``; ``index`` what stands in its square brackets, -1 without; and
    ``attribute`` is ``funcs`` for the procedures of a module.
    """

    name: str
    index: int = -1
    attribute: str = ""


@dataclass(frozen=True, slots=True)
class PointExpression(Node):
    """``func.entry``: points of one kind of a procedure, or of all procedures of a list.

    ``kind`` is one of ``entry``, ``return``, ``calls``, ``blocks``, ``edges``, ``taken``,
    ``loops``, ``insns``, ``loads``, ``stores``, ``syscalls``.
    """

    place: Place
    kind: str


@dataclass(frozen=True, slots=True)
class Insert(Node):
    """``append preInsn func.entry constrained (* ... *)``."""

    order: Literal["append", "prepend"]
    when: Literal["preInsn", "postInsn"]
    point: PointExpression
    constrained: bool
    code: CodeBlock


@dataclass(frozen=True, slots=True)
class Foreach(Node):
    """``foreach func in list { ... }``."""

    variable: str
    place: Place
    body: tuple[Where, ...]


Where: TypeAlias = "Insert | Foreach"


# Definitions.


@dataclass(frozen=True, slots=True)
class Import(Node):
    """``import "pthread.mdl";``."""

    file: str


@dataclass(frozen=True, slots=True)
class Item(Node):
    """An item of a list: a name with ``*``, ``?`` and ``[...]``, or a regular expression."""

    pattern: str
    is_regex: bool = False


@dataclass(frozen=True, slots=True)
class ListDefinition(Node):
    """``list NAME is procedure { flavor ...; items { ... }; }``; ``kind`` may be ``module``."""

    name: str
    kind: str
    flavors: tuple[str, ...]
    items: tuple[Item, ...]
    doc: str = ""


@dataclass(frozen=True, slots=True)
class Key(Node):
    """``is key (* $arg[1] *)``: the constraint holds where this equals the resource's number."""

    value: Expression


@dataclass(frozen=True, slots=True)
class Constraint(Node):
    """``constraint NAME /Hierarchy is counter { ... }`` or ``... is key (* expression *)``."""

    name: str
    hierarchy: str
    body: tuple[Where, ...] | Key
    doc: str = ""


@dataclass(frozen=True, slots=True)
class Base(Node):
    """``base is TYPE { ... }``.

    ``type`` is ``counter``, ``rate``, ``wallTimer``, ``processTimer``, ``histogram``, ``map`` or
    ``record``; ``fields`` are the names in ``map[a, b]`` or ``record { a, b }``. A metric that the
    kernel counts says ``base is counter $process.page_faults;``: then ``process`` is
    ``page_faults``, and there is no body.
    """

    type: str
    body: tuple[Where, ...]
    fields: tuple[str, ...] = ()
    process: str = ""


@dataclass(frozen=True, slots=True)
class Metric(Node):
    """``metric NAME { ... }``. ``locals`` are variables of each thread: ``local start;``."""

    name: str
    base: Base
    title: str = ""
    units: str = ""
    aggregate: str = "sum"
    flavors: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    locals: tuple[str, ...] = ()
    doc: str = ""


Definition: TypeAlias = "Import | ListDefinition | Constraint | Metric"


@dataclass(frozen=True, slots=True)
class Document(Node):
    """A whole text. ``file`` is what it is called in diagnostics."""

    definitions: tuple[Definition, ...]
    file: str = "<text>"
