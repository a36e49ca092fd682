"""The *what* part of a definition, as text of the snippet language."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from weft.errors import InvalidArgument
from weft.mdl import ast
from weft.mdl.functions import FUNCTIONS
from weft.mdl.placing import Places, instance

__all__ = ["ADDRESS", "Code", "left_name"]

ADDRESS = ast.Variable("address")
_VALUES = frozenset(["return", "thread", "caller", "address", "time", "cpu", "frame", "ticks"])
"""What has the same name in snippets."""


def left_name(predicate: str) -> str:
    """What counts the calls of a predicate that were left where weft could not see it."""
    return f"{predicate}_left"


class Code:
    """The *what* part of one definition, as snippet text."""

    def __init__(
        self,
        owner: str,
        role: str,
        places: Places,
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
        self.by = by or ADDRESS
        self.needs_mark = False
        self.module = ""
        """Whose code it becomes part of."""
        self.number_of_lets = 0

    def statements(self, body: Iterable[ast.Statement]) -> list[str]:
        """The lines of statements."""
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
            return [f"if {self.datum} == $frame {{", f"{self.datum} = 0", "}"]
        enter, left = f"{self.datum} = $frame", f"{left_name(self.datum)} += 1"
        stale = [f"if $frame >= {self.datum} {{", left, enter, "}"]
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
        """An expression; what is in it is in parentheses."""
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
            return f"$arg[{value.index}]"
        if value.name == "constraint":
            return str(instance(self.places.constraint))
        if value.name in _VALUES:
            return f"${value.name}"
        raise InvalidArgument(
            f"{self.owner} uses ${value.name}, which weft cannot measure at its points yet"
        )
