"""One-liners: ``entry malloc { bytes += $arg[0]; count++ }``, lowered to metrics.

Each variable that is added to becomes a metric of its own, with those statements that its value
needs: a counter, with ``[key]`` a map, with ``<<`` a histogram, started and stopped a timer. A
variable that is set with ``=`` is no metric but a local of each thread; and so is a counter, to
other metrics that read it.

Each function pattern becomes a list whose name is the pattern in quotes, which no list in a text
can have. The pattern is kept as it was written: a name, a glob, or a path such as
``/Code/libc.so.6/malloc``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from lark import Token

from weft.mdl import ast
from weft.mdl.ast import Span
from weft.mdl.diagnostics import Diagnostic, problem
from weft.mdl.lexer import COMMENTS, Lexer
from weft.mdl.loader import check
from weft.mdl.parser import parse_statements
from weft.mdl.passes.scope import expressions, statements
from weft.mdl.passes.texts import is_stack, is_text
from weft.mdl.spelling import POINTS
from weft.mdl.words import Word, place_of, span_of

__all__ = ["parse_one_liner"]

_BETWEEN = re.compile(r"[\s;]*")
_HEAD = re.compile(r'(?P<kind>[A-Za-z_]\w*)\s+(?P<function>"(?:\\.|[^"\\\n])*"|[^\s{"]+)\s*(?=\{)')
_VARIABLE = "func"


@dataclass(frozen=True)
class _Probe:
    kind: Word
    pattern: str
    body: tuple[ast.Statement, ...]
    span: Span


def parse_one_liner(
    text: str,
) -> tuple[list[ast.Metric], list[ast.ListDefinition], list[Diagnostic]]:
    """Parse one-liners, and check them; return their metrics and the lists that these use."""
    lexer = Lexer(text, "<text>")
    found: list[Diagnostic] = []
    probes = list(_probes(lexer, found))
    found += lexer.diagnostics
    kinds = _kinds(probes, found)
    lists: dict[str, ast.ListDefinition] = {}
    for probe in probes:
        item = ast.Item(probe.pattern, span=probe.span)
        name = _list_name(probe)
        lists[name] = ast.ListDefinition(name, "procedure", (), (item,), span=probe.span)
    readable = {name for name, base in kinds.items() if base.type in ("local", "counter")}
    metrics = [
        _metric(name, base, probes, readable)
        for name, base in kinds.items()
        if base.type != "local"
    ]
    if not metrics and not found:
        message = "nothing is measured here"
        hint = "add to a variable: `entry malloc { bytes += $arg[0]; count++ }`"
        span = span_of(lexer.token("TEXT", 0, len(text)))
        found.append(problem("MDL062", message, hint, lexer.file, span))
    if all(one.code != "MDL061" for one in found):
        # What two metrics share would be reported twice.
        found += dict.fromkeys(check([ast.Document((*lists.values(), *metrics), lexer.file)]))
    found.sort(key=lambda one: (one.span.line, one.span.column))
    return metrics, list(lists.values()), found


def _probes(lexer: Lexer, found: list[Diagnostic]) -> Iterator[_Probe]:
    """Find the one-liners of a text."""

    def report(code: str, message: str, hint: str, start: int, end: int) -> None:
        span = span_of(lexer.token("TEXT", start, end))
        found.append(problem(code, message, hint, lexer.file, span))

    text = lexer.text
    position = _end(_BETWEEN.match(text))
    while position < len(text):
        head = _HEAD.match(text, position)
        if head is None:
            end = text.find("}", position)
            end = end + 1 if end >= 0 else len(text)
            hint = "write KIND FUNCTION { ... }: `entry malloc { count++ }`"
            report("MDL060", "this is not a one-liner", hint, position, end)
            position = _end(_BETWEEN.match(text, end))
            continue
        body, end = _body(lexer, head.end())
        parsed, problems = parse_statements(body, lexer)
        if end < 0:
            end = len(text)
            report("MDL005", "the text ends within these braces", "add `}`", head.end(), end)
            problems = [one for one in problems if one.code != "MDL005"]
        found += problems
        written = Word.from_token(lexer.token("NAME", head.start("kind"), head.end("kind")))
        kind = written.instead(POINTS.get(written, written))
        pattern = head["function"]
        if pattern.startswith('"'):
            pattern = pattern[1:-1].replace('\\"', '"')
        span = span_of(lexer.token("TEXT", head.start(), head.end("function")))
        yield _Probe(kind, pattern, parsed, span)
        position = _end(_BETWEEN.match(text, end))


def _end(match: re.Match[str] | None) -> int:
    assert match is not None
    return match.end()


def _body(lexer: Lexer, start: int) -> tuple[list[Token], int]:
    """Take what is between braces, with the semicolons that may be left out; and where it ends.

    Without a closing brace, the end is -1.
    """
    tokens: list[Token] = []
    depth = 0
    for token in lexer.tokens(start):
        if token.type in COMMENTS:
            continue
        closes = token.type == "RBRACE"
        if (closes or token.type == "ELSE") and tokens[1:]:
            last = tokens[-1]
            if last.type not in ("SEMICOLON", "LBRACE", "RBRACE"):
                # Where it is not expected, it is the brace that comes too early.
                tokens.append(Token.new_borrow_pos("SEMICOLON", str(token), token))
        tokens.append(token)
        depth += (token.type == "LBRACE") - closes
        if depth == 0:
            return tokens[1:-1], token.end_pos or 0
    return tokens[1:], -1


def _kinds(probes: list[_Probe], found: list[Diagnostic]) -> dict[str, ast.Base]:
    """Find what each variable is, by what is done to it: the base of a metric, or a local."""
    kinds: dict[str, ast.Base] = {}
    set_somewhere = {
        statement.name
        for statement in _all_statements(probes)
        if isinstance(statement, ast.Assign) and statement.operator == "=" and not statement.keys
    }
    for statement in _all_statements(probes):
        if isinstance(statement, ast.Call | ast.Emit):
            message = "this adds to no variable, so it belongs to no metric"
            hint = "one-liners add up; write a metric in a file for anything else"
            found.append(problem("MDL062", message, hint, "<text>", statement.span))
        if not isinstance(statement, ast.Assign | ast.Observe | ast.TimerAction):
            continue
        base = _base(statement, set_somewhere)
        earlier = kinds.setdefault(statement.name, base)
        if {earlier.type, base.type} <= {"histogram", "wallTimer", "processTimer"}:
            # A histogram can be filled by a timer.
            kinds[statement.name] = earlier if earlier.type == "histogram" else base
        elif (earlier.type, len(earlier.fields)) != (base.type, len(base.fields)):
            message = f"`{statement.name}` is a {earlier.type} elsewhere, and a {base.type} here"
            span = place_of(statement.name, statement)
            hint = "give it another name here"
            found.append(problem("MDL061", message, hint, "<text>", span))
    return kinds


def _base(
    statement: ast.Assign | ast.Observe | ast.TimerAction, set_somewhere: set[str]
) -> ast.Base:
    if isinstance(statement, ast.Observe):
        return ast.Base("histogram", ())
    if isinstance(statement, ast.TimerAction):
        return ast.Base(f"{statement.clock or 'wall'}Timer", ())
    if statement.keys:
        return ast.Base("map", (), tuple(_key_names(statement.keys)))
    return ast.Base("local" if statement.name in set_somewhere else "counter", ())


def _key_names(keys: Iterable[ast.Expression]) -> Iterator[str]:
    used: set[str] = set()
    for number, key in enumerate(keys):
        name = f"key{number}"
        if isinstance(key, ast.Call) and is_text(key) and key.arguments:
            key = key.arguments[0]
        if is_stack(key):
            name = "stack"
        elif isinstance(key, ast.Variable):
            name = key.name if key.index < 0 else f"{key.name}{key.index}"
        elif isinstance(key, ast.Name):
            name = str(key.name)
        yield f"key{number}" if name in used else name
        used.add(name)


def _metric(name: str, base: ast.Base, probes: list[_Probe], readable: set[str]) -> ast.Metric:
    """Make a metric of the statements that the value of a variable needs."""
    needed = {name}
    while True:
        bodies = [_only(probe.body, needed) for probe in probes]
        read = {
            expression.name
            for body in bodies
            for statement in statements(body)
            for expression in expressions(statement)
            if isinstance(expression, ast.Name)
        }
        if not (read & readable) - needed:
            break
        needed |= read & readable
    wheres = tuple(_where(probe, body) for probe, body in zip(probes, bodies, strict=True) if body)
    span = wheres[0].span
    whole = ast.Base(base.type, wheres, base.fields, span=span)
    return ast.Metric(name, whole, locals=tuple(sorted(needed - {name})), span=span)


def _only(body: tuple[ast.Statement, ...], names: set[str]) -> tuple[ast.Statement, ...]:
    """Keep the statements that change one of these variables."""
    kept: list[ast.Statement] = []
    for statement in body:
        if isinstance(statement, ast.If):
            then, otherwise = _only(statement.then, names), _only(statement.otherwise, names)
            if then or otherwise:
                span = statement.span
                kept.append(ast.If(statement.condition, then, otherwise, span=span))
        elif not isinstance(statement, ast.Call) and statement.name in names:
            kept.append(statement)
    return tuple(kept)


def _where(probe: _Probe, body: tuple[ast.Statement, ...]) -> ast.Foreach:
    point = ast.PointExpression(ast.Place(_VARIABLE, span=probe.span), probe.kind, span=probe.span)
    code = ast.CodeBlock(body, span=probe.span)
    insert = ast.Insert("append", "preInsn", point, False, code, span=probe.span)
    place = ast.Place(_list_name(probe), span=probe.span)
    return ast.Foreach(_VARIABLE, place, (insert,), span=probe.span)


def _list_name(probe: _Probe) -> str:
    return f'"{probe.pattern}"'


def _all_statements(probes: Iterable[_Probe]) -> Iterator[ast.Statement]:
    for probe in probes:
        yield from statements(probe.body)
