"""Makes the syntax tree of :mod:`weft.mdl.ast` out of the tree that the parser yields."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, TypeAlias

from lark import Token, Tree

from weft.mdl import ast
from weft.mdl.ast import Span
from weft.mdl.diagnostics import Diagnostic, did_you_mean, problem
from weft.mdl.spelling import POINTS
from weft.mdl.words import Word

__all__ = ["DEEPEST", "Builder"]

DEEPEST = 100
"""How deep a tree may be. What walks trees recurses, and Python lets it go ten times as deep."""

_LARGEST = 2**64 - 1

_Children: TypeAlias = "list[Any]"
"""What the parts of a rule have become: nodes, tuples of nodes, tokens; None where broken."""

_EXPRESSIONS = (
    ast.Number,
    ast.Name,
    ast.Variable,
    ast.Field,
    ast.ReadSymbol,
    ast.Unary,
    ast.Binary,
    ast.Call,
)
_STATEMENTS = (ast.Assign, ast.Observe, ast.TimerAction, ast.Emit, ast.If, ast.Call)
_WHERES = (ast.Insert, ast.Foreach)
_DEFINITIONS = (ast.Import, ast.ListDefinition, ast.Constraint, ast.Metric)


class _Attribute:
    """Something that a metric or a list says about itself, and where."""

    def __init__(self, kind: str, value: Any, span: Span) -> None:
        self.kind = kind
        self.value = value
        self.span = span


class Builder:
    """Builds nodes from the leaves up, without recursion: the text decides how deep it is."""

    def __init__(self, file: str, docs: dict[int, str]) -> None:
        self.file = file
        self.docs = docs
        """Doc comments, by the offset of the definition that they precede."""
        self.diagnostics: list[Diagnostic] = []
        self._too_deep = False

    def build(self, tree: Tree[Token]) -> Any:
        """Return what the tree stands for."""
        built: dict[int, tuple[Any, int]] = {}
        for subtree in tree.iter_subtrees():
            depth, children = 0, []
            for child in subtree.children:
                if isinstance(child, Tree):
                    child_value, child_depth = built[id(child)]
                    children.append(child_value)
                    depth = max(depth, child_depth)
                else:
                    children.append(child)
            span = _span(subtree)
            if depth >= DEEPEST and subtree.data not in ("document", "fragment"):
                self._report_depth(span)
                built[id(subtree)] = ast.Number(0, span=span), 0
                continue
            method: Callable[[Span, _Children], Any] = getattr(self, str(subtree.data))
            value = method(span, children)
            if isinstance(value, _DEFINITIONS):
                value = self._documented(value, subtree)
            built[id(subtree)] = value, depth + 1
        return built[id(tree)][0]

    # Whole texts.

    def document(self, span: Span, children: _Children) -> ast.Document:
        """Keep the definitions that are whole."""
        return ast.Document(_only(children, _DEFINITIONS), self.file, span=span)

    def fragment(self, span: Span, children: _Children) -> tuple[ast.Where, ...]:
        """Keep the insertions that are whole."""
        return _only(children, _WHERES)

    def code(self, span: Span, children: _Children) -> ast.CodeBlock:
        """Pass the code block on."""
        return _code(children[0], span)

    def statements(self, span: Span, children: _Children) -> tuple[ast.Statement, ...]:
        """Keep the statements that are whole."""
        return self._done(children)

    def broken(self, span: Span, children: _Children) -> None:
        """Leave out what was reported already."""

    # Definitions.

    def import_file(self, span: Span, children: _Children) -> ast.Import:
        """``import STRING;``."""
        return ast.Import(_string(children[0]), span=span)

    def list_definition(self, span: Span, children: _Children) -> ast.ListDefinition:
        """``list NAME is KIND { ... }``."""
        name, kind, *parts = children
        word = Word.from_token(name)
        found = self._attributes(parts, many=("items",))
        if not found.get("items") and None not in parts:
            message = f"the list `{word}` has no items"
            self._report("MDL011", message, 'add `items { "function" };`', word.span)
        return ast.ListDefinition(
            word,
            str(kind),
            tuple(found["flavors"][0]) if "flavors" in found else (),
            tuple(item for items in found.get("items", ()) for item in items),
            span=span,
        )

    def items(self, span: Span, children: _Children) -> _Attribute:
        """``items { ... };``."""
        return _Attribute("items", children, span)

    def glob(self, span: Span, children: _Children) -> ast.Item:
        """``"name*"``."""
        return ast.Item(_string(children[0]), span=span)

    def regex(self, span: Span, children: _Children) -> ast.Item:
        """``~"^name"``."""
        return ast.Item(_string(children[0]), is_regex=True, span=span)

    def flavors(self, span: Span, children: _Children) -> _Attribute:
        """``flavor { c, cpp };``."""
        return _Attribute("flavors", tuple(Word.from_token(name) for name in children), span)

    def constraint(self, span: Span, children: _Children) -> ast.Constraint:
        """``constraint NAME PATH is counter { ... }``."""
        name, path, *body = children
        return ast.Constraint(Word.from_token(name), path, _only(body, _WHERES), span=span)

    def key_constraint(self, span: Span, children: _Children) -> ast.Constraint:
        """``constraint NAME PATH is key (* ... *)``."""
        name, path, value = children
        return ast.Constraint(
            Word.from_token(name), path, ast.Key(value, span=value.span), span=span
        )

    def path(self, span: Span, children: _Children) -> Word:
        """``/Code``."""
        path = Word("".join(f"/{part}" for part in children))
        path.span = span
        return path

    def metric(self, span: Span, children: _Children) -> ast.Metric:
        """``metric NAME { ... }``."""
        name, *parts = children
        word = Word.from_token(name)
        found = self._attributes(parts, many=("constraint", "local"))
        if "base" not in found and None not in parts:
            message = f"the metric `{word}` has no base"
            hint = "add `base is counter { ... }`: it says what is counted where"
            self._report("MDL011", message, hint, word.span)

        def one(kind: str, default: Any) -> Any:
            return found[kind][0] if kind in found else default

        return ast.Metric(
            word,
            one("base", ast.Base("counter", (), span=span)),
            title=one("name", ""),
            units=one("units", ""),
            aggregate=one("aggregateOperator", "sum"),
            flavors=tuple(one("flavors", ())),
            constraints=tuple(found.get("constraint", ())),
            locals=tuple(name for names in found.get("local", ()) for name in names),
            span=span,
        )

    def title(self, span: Span, children: _Children) -> _Attribute:
        """``name "...";``."""
        return _Attribute("name", _string(children[0]), span)

    def units(self, span: Span, children: _Children) -> _Attribute:
        """``units bytes;``."""
        return _Attribute("units", Word.from_token(children[0]), span)

    def aggregate(self, span: Span, children: _Children) -> _Attribute:
        """``aggregateOperator sum;``."""
        return _Attribute("aggregateOperator", str(children[0]), span)

    def use_constraint(self, span: Span, children: _Children) -> _Attribute:
        """``constraint module;``."""
        return _Attribute("constraint", Word.from_token(children[0]), span)

    def local(self, span: Span, children: _Children) -> _Attribute:
        """``local start, depth;``."""
        return _Attribute("local", [Word.from_token(name) for name in children], span)

    def unknown_attribute(self, span: Span, children: _Children) -> _Attribute:
        """Something that another tool, or a later weft, may know."""
        name = Word.from_token(children[0])
        known = ["name", "units", "aggregateOperator", "flavor", "constraint", "local", "base"]
        hint = did_you_mean(name, known, "it is left out of account")
        self._report("MDL009", f"no attribute is called `{name}`", hint, name.span)
        return _Attribute("", None, span)

    def base(self, span: Span, children: _Children) -> _Attribute:
        """``base is counter { ... }``."""
        kind, *body = children
        return self._base(span, str(kind), body)

    def map_base(self, span: Span, children: _Children) -> _Attribute:
        """``base is map[key] { ... }``."""
        return self._base(span, "map", children)

    def record_base(self, span: Span, children: _Children) -> _Attribute:
        """``base is record { field } { ... }``."""
        return self._base(span, "record", children)

    def process_base(self, span: Span, children: _Children) -> _Attribute:
        """``base is counter $process.page_faults;``."""
        kind, name = children
        base = ast.Base(str(kind), (), process=Word.from_token(name), span=span)
        return _Attribute("base", base, span)

    def _base(self, span: Span, kind: str, children: _Children) -> _Attribute:
        fields = tuple(Word.from_token(child) for child in children if isinstance(child, Token))
        base = ast.Base(kind, _only(children, _WHERES), fields, span=span)
        return _Attribute("base", base, span)

    # Where.

    def foreach(self, span: Span, children: _Children) -> ast.Foreach:
        """``foreach NAME in PLACE ...``."""
        name, reference, body = children
        wheres = body if isinstance(body, tuple) else _only([body], _WHERES)
        return ast.Foreach(Word.from_token(name), self._place(reference, span), wheres, span=span)

    def block(self, span: Span, children: _Children) -> tuple[ast.Where, ...]:
        """``{ ... }``."""
        return _only(children, _WHERES)

    def insert(self, span: Span, children: _Children) -> ast.Insert:
        """``append preInsn PLACE.KIND constrained (* ... *)``."""
        order, when, reference, *constrained, code = children
        head, index, words, place_span = reference
        *attributes, kind = words or [Word("")]
        if not words:
            message = f"`{head}` alone is no point"
            self._report("MDL001", message, f"say which points: `{head}.entry`", place_span)
        place = self._place((head, index, attributes, place_span), place_span)
        return ast.Insert(
            "append" if order == "append" else "prepend",
            "preInsn" if when == "preInsn" else "postInsn",
            ast.PointExpression(place, kind.instead(POINTS.get(kind, kind)), span=place_span),
            bool(constrained),
            _code(code, span),
            span=span,
        )

    def reference(self, span: Span, children: _Children) -> tuple[Word, int, list[Word], Span]:
        """``NAME[INDEX].NAME.NAME``: what it is depends on where it stands."""
        head, *rest = children
        index = next((part for part in rest if isinstance(part, int)), -1)
        words = [Word.from_token(part) for part in rest if isinstance(part, Token)]
        return Word.from_token(head), index, words, span

    def index(self, span: Span, children: _Children) -> int:
        """``[1]``."""
        return self._number(children[0], span)

    def _place(self, reference: Any, span: Span) -> ast.Place:
        if not isinstance(reference, tuple):
            return ast.Place("", span=span)
        head, index, words, place_span = reference
        if len(words) > 1:
            message = f"`.{words[1]}` is one part too many"
            hint = "a place is NAME, NAME[INDEX], or either with `.funcs`"
            self._report("MDL001", message, hint, words[1].span)
        return ast.Place(head, index, words[0] if words else "", span=place_span)

    # What.

    def code_block(self, span: Span, children: _Children) -> ast.CodeBlock:
        """``(* ... *)``."""
        return ast.CodeBlock(self._done(children), span=span)

    def target(self, span: Span, children: _Children) -> tuple[Word, tuple[ast.Expression, ...]]:
        """``x``, ``x[a, b]``."""
        name, *keys = children
        return Word.from_token(name), _only(keys, _EXPRESSIONS)

    def step(self, span: Span, children: _Children) -> ast.Assign:
        """``x++;``."""
        (name, keys), sign = children
        one = ast.Number(1, span=span)
        return ast.Assign(name, "+=" if sign == "++" else "-=", one, keys, span=span)

    def assign(self, span: Span, children: _Children) -> ast.Assign:
        """``x += e;``."""
        (name, keys), operator, value = children
        return ast.Assign(name, operator.value, value, keys, span=span)

    def observe(self, span: Span, children: _Children) -> ast.Observe:
        """``x << e;``."""
        name, value = children
        return ast.Observe(Word.from_token(name), value, span=span)

    def timer(self, span: Span, children: _Children) -> ast.TimerAction:
        """``start x;``, ``stop x cpu;``."""
        word, name, *clock = children
        action: Any = str(word)
        return ast.TimerAction(Word.from_token(name), action, "process" if clock else "", span=span)

    def old_timer(self, span: Span, children: _Children) -> ast.TimerAction:
        """``startWallTimer(x);``."""
        word, name = children
        action: Any = "start" if word.startswith("start") else "stop"
        clock: Any = "wall" if "Wall" in word else "process"
        return ast.TimerAction(Word.from_token(name), action, clock, span=span)

    def emit(self, span: Span, children: _Children) -> ast.Emit:
        """``emit x(a, b);``."""
        name, values = children
        return ast.Emit(Word.from_token(name), _tuple(values), span=span)

    def condition(self, span: Span, children: _Children) -> ast.If:
        """``if (e) ... else ...``."""
        value, then, *otherwise = children
        return ast.If(value, _tuple(then), _tuple(otherwise[0]) if otherwise else (), span=span)

    def branch(self, span: Span, children: _Children) -> tuple[ast.Statement, ...]:
        """Return the statements of a branch, whether they are in braces or one alone."""
        return self._done(children)

    def arguments(self, span: Span, children: _Children) -> tuple[ast.Expression, ...]:
        """``a, b``."""
        return _only(children, _EXPRESSIONS)

    # Expressions.

    def binary(self, span: Span, children: _Children) -> ast.Binary:
        """``a + b``."""
        left, operator, right = children
        return ast.Binary(str(operator), left, right, span=span)

    def unary(self, span: Span, children: _Children) -> ast.Unary:
        """``-a``."""
        operator, value = children
        return ast.Unary(str(operator), value, span=span)

    def field(self, span: Span, children: _Children) -> ast.Field:
        """``a->name``."""
        value, name = children
        return ast.Field(value, Word.from_token(name), span=span)

    def number(self, span: Span, children: _Children) -> ast.Number:
        """``300``, ``0x12c``."""
        return ast.Number(self._number(children[0], span), span=span)

    def name(self, span: Span, children: _Children) -> ast.Name:
        """``x``."""
        return ast.Name(Word.from_token(children[0]), span=span)

    def call(self, span: Span, children: _Children) -> ast.Call | ast.Variable:
        """``f(a, b)``: an expression, or a statement of its own."""
        name, arguments = children
        values = _tuple(arguments)
        # As snippets were written before; a program may have a function of this name.
        if name == "arg" and len(values) == 1 and isinstance(values[0], ast.Number):
            return ast.Variable("arg", values[0].value, span=span)
        return ast.Call(Word.from_token(name), values, span=span)

    def read_symbol(self, span: Span, children: _Children) -> ast.ReadSymbol:
        """``readSymbol("x")``."""
        return ast.ReadSymbol(_string(children[0]), span=span)

    def variable(self, span: Span, children: _Children) -> ast.Variable:
        """``$arg[0]``."""
        name, *index = children
        return ast.Variable(name.removeprefix("$"), index[0] if index else -1, span=span)

    # What they share.

    def _done(self, children: _Children) -> tuple[ast.Statement, ...]:
        """The statements among what was built."""
        for child in children:
            if isinstance(child, ast.Variable):
                self._report("MDL030", "an argument alone does nothing", "use it", child.span)
        return _only(children, _STATEMENTS)

    def _number(self, token: Token, span: Span) -> int:
        text = token.lower()
        digits = text.removeprefix("0x") if text.startswith("0x") else text
        allowed = "0123456789abcdef" if text.startswith("0x") else "0123456789"
        if not digits or digits.strip(allowed):
            hint = "numbers are whole, in decimal or, after `0x`, in hexadecimal"
            self._report("MDL007", f"`{token[:40]}` is not a number", hint, span)
            return 0
        # Python refuses to read very long numbers, and no register holds them.
        value = int(digits, 16 if text.startswith("0x") else 10) if len(digits) < 40 else None
        if value is None or value > _LARGEST:
            hint = f"the largest is {_LARGEST:#x}"
            self._report("MDL007", "this number has more than 64 bits", hint, span)
            return 0
        return value

    def _attributes(self, parts: Iterable[Any], many: tuple[str, ...]) -> dict[str, list[Any]]:
        """Sort attributes by kind; all but the ``many`` may be given once."""
        found: dict[str, list[Any]] = {}
        for part in parts:
            if not isinstance(part, _Attribute) or not part.kind:
                continue
            values = found.setdefault(part.kind, [])
            if values and part.kind not in many:
                shown = "flavor" if part.kind == "flavors" else part.kind
                self._report("MDL010", f"`{shown}` is given twice", "keep one of them", part.span)
            values.append(part.value)
        return found

    def _documented(self, node: ast.Definition, tree: Tree[Token]) -> ast.Definition:
        doc = self.docs.get(tree.meta.start_pos, "")
        return node if not doc or isinstance(node, ast.Import) else replace(node, doc=doc)

    def _report_depth(self, span: Span) -> None:
        if not self._too_deep:
            self._too_deep = True
            message = f"this is nested more than {DEEPEST} levels deep"
            hint = "put parts of it into a `local` of their own"
            self._report("MDL006", message, hint, span)

    def _report(self, code: str, message: str, hint: str, span: Span) -> None:
        self.diagnostics.append(problem(code, message, hint, self.file, span))


def _span(tree: Tree[Token]) -> Span:
    meta = tree.meta
    if meta.empty:
        return ast.NOWHERE
    return Span(meta.line, meta.column, meta.end_line, meta.end_column)


def _string(token: Token) -> str:
    text = token[1:-1] if len(token) > 1 and token.endswith('"') else token[1:]
    return text.replace('\\"', '"')


def _only(children: Iterable[Any], kinds: Any) -> tuple[Any, ...]:
    """Leave out what is broken, and what stands in for something too deep."""
    return tuple(child for child in children if isinstance(child, kinds))


def _tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else ()


def _code(value: Any, span: Span) -> ast.CodeBlock:
    return value if isinstance(value, ast.CodeBlock) else ast.CodeBlock((), span=span)
