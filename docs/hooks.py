"""Writes the parts of the reference that the code itself knows.

A page asks for a part with a comment, such as ``<!-- weft: commands -->``: see ``PARTS``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from importlib.resources import files
from typing import Any

import click

from weft.base.interrupts import ENDING, Interrupted
from weft.cli import main
from weft.cli.output import WithParts
from weft.errors import WeftError
from weft.mdl import ast
from weft.mdl.diagnostics import CODES
from weft.mdl.parser import parse


def commands() -> str:
    """Return the help of weft and of each of its commands, as a user sees it."""
    root = click.Context(main, info_name="weft", max_content_width=90, **main.context_settings)
    parts = [f"## weft\n\n```text\n{main.get_help(root)}\n```\n"]
    for name in main.list_commands(root):
        command = main.get_command(root, name)
        assert command is not None
        context = click.Context(command, parent=root, info_name=name, max_content_width=90)
        parts.append(f"## weft {name}\n\n```text\n{command.get_help(context)}\n```\n")
        for part, other in command.parts.items() if isinstance(command, WithParts) else ():
            inner = click.Context(other, root, f"{name} {part}", max_content_width=90)
            parts.append(f"### weft {name} {part}\n\n```text\n{other.get_help(inner)}\n```\n")
    return "\n".join(parts)


def exit_codes() -> str:
    """Return the table of exit codes: what click decides, and what each error carries."""
    rows = [(0, "", "Everything went as asked.")]
    rows += [(2, "", "The command line makes no sense; the message says where.")]
    rows += [
        (Interrupted(number).exit_code, "", f"Ended by {number.name} before there was a result.")
        for number in ENDING
    ]
    rows += [(e.exit_code, f"`{e.__name__}`", _first_line(e)) for e in _family(WeftError)]
    lines = [f"| {code} | {name} | {text} |" for code, name, text in sorted(rows)]
    return "\n".join(["| code | error | meaning |", "|---|---|---|", *lines])


def metrics() -> str:
    """Return what the files of the library define, each file with what it says about itself."""
    library = files("weft.metrics").joinpath("library")
    texts = {file.name: file.read_text() for file in library.iterdir()}
    parts = []
    for name, text in sorted(texts.items()):
        parts += [f"## {name}", _opening_comment(text)]
        for definition in parse(text, name)[0].definitions:
            parts += _definition(definition)
    return "\n\n".join(parts)


def mdl_grammar() -> str:
    """Return the grammar of MDL, as the parser reads it."""
    return f"```text\n{files('weft.mdl').joinpath('grammar.lark').read_text()}```"


def mdl_codes() -> str:
    """Return the table of the diagnostics of MDL."""
    rows = [
        f"| [{name}](diagnostics.md#{name.lower()}) | {code.severity} | {code.meaning} |"
        for name, code in CODES.items()
    ]
    return "\n".join(["| code | severity | meaning |", "|---|---|---|", *rows])


PARTS: dict[str, Callable[[], str]] = {
    "commands": commands,
    "exit-codes": exit_codes,
    "metrics": metrics,
    "mdl-codes": mdl_codes,
    "mdl-grammar": mdl_grammar,
}


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put the parts that a page asks for where it asks for them (called by mkdocs)."""
    return re.sub(r"<!-- weft: ([a-z-]+) -->", lambda match: PARTS[match[1]](), markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Drop the Sphinx roles of docstrings, which Markdown does not know (called by mkdocs)."""
    return re.sub(r":(?:class|exc|func|meth|mod|attr):(?=<code>)", "", html)


def _family(error: type[WeftError]) -> list[type[WeftError]]:
    return [error, *(member for child in error.__subclasses__() for member in _family(child))]


def _first_line(error: type[WeftError]) -> str:
    return (error.__doc__ or "").partition("\n")[0]


def _opening_comment(text: str) -> str:
    lines = text.partition("\n\n")[0].splitlines()
    return "\n".join(line.removeprefix("//").strip() for line in lines)


def _definition(definition: ast.Definition) -> Iterator[str]:
    if isinstance(definition, ast.Metric):
        yield f"### {definition.name}"
        yield _facts(definition)
        yield definition.doc
    elif isinstance(definition, ast.Constraint):
        yield f"### {definition.name}"
        yield f"A constraint on `{definition.hierarchy}`."
        yield definition.doc


def _facts(metric: ast.Metric) -> str:
    facts = [f"**{metric.title}**", _TYPES[metric.base.type], f"in `{metric.units}`"]
    if metric.constraints:
        facts.append("constraints " + ", ".join(f"`{name}`" for name in metric.constraints))
    if metric.flavors:
        facts.append("for " + ", ".join(f"`{name}`" for name in metric.flavors))
    return " · ".join(facts)


_TYPES = {
    "counter": "a counter",
    "rate": "a rate",
    "wallTimer": "a timer of wall time",
    "processTimer": "a timer of processor time",
    "histogram": "a histogram",
}
