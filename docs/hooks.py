"""Writes the parts of the reference that the code itself knows.

A page asks for a part with a comment, such as ``<!-- weft: commands -->``: see ``PARTS``; and for
the help of a command with ``<!-- weft: help NAME -->``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from importlib.resources import files
from inspect import cleandoc
from textwrap import dedent
from typing import Any

import click

from weft.base.interrupts import ENDING, Interrupted
from weft.cli import main
from weft.cli.output import WithParts
from weft.errors import WeftError
from weft.mdl import ast
from weft.mdl.diagnostics import CODES
from weft.mdl.parser import parse

_UNLIMITED = 1_000_000


def commands() -> str:
    """Return the table of all commands, each with a link to its page."""
    rows = [
        f"| [`weft {name}`](commands/{name}.md) | {command.get_short_help_str(200)} |"
        for name, command in _all_commands()
    ]
    return "\n".join(["| command | what it does |", "|---|---|", *rows])


def help_of(name: str) -> str:
    """Return what the help of a command and of its parts says: usage, text, examples, options."""
    command = dict(_all_commands())[name]
    parts = [_help(command, f"weft {name}")]
    for part, other in command.parts.items() if isinstance(command, WithParts) else ():
        parts += [f"### weft {name} {part}", _help(other, f"weft {name} {part}")]
    return "\n\n".join(parts)


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


def on_page_markdown(markdown: str, page: Any = None, **_: Any) -> str:
    """Put the parts that a page asks for where it asks for them (called by mkdocs)."""
    if page is not None and page.file.src_uri.startswith("reference/commands/"):
        # Who searches for a command or an option wants its page before those that mention it.
        page.meta.setdefault("search", {"boost": 3})
    markdown = re.sub(r"<!-- weft: help ([a-z-]+) -->", lambda match: help_of(match[1]), markdown)
    return re.sub(r"<!-- weft: ([a-z-]+) -->", lambda match: PARTS[match[1]](), markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Drop the Sphinx roles of docstrings, and let pictures be seen large (called by mkdocs)."""
    html = re.sub(r'<img [^>]*src="([^"]*pictures/[^"]+)"[^>]*>', r'<a href="\1">\g<0></a>', html)
    return re.sub(r":(?:class|exc|func|meth|mod|attr):(?=<code>)", "", html)


def _all_commands() -> Iterator[tuple[str, click.Command]]:
    root = _root()
    for name in main.list_commands(root):
        command = main.get_command(root, name)
        assert command is not None
        yield name, command


def _root() -> click.Context:
    return click.Context(main, info_name="weft", **main.context_settings)


def _help(command: click.Command, name: str) -> str:
    context = click.Context(
        command, info_name=name, max_content_width=_UNLIMITED, **main.context_settings
    )
    text, _, examples = cleandoc(command.help or "").partition("\b\nExamples:\n")
    usage = command.get_usage(context).removeprefix("Usage: ")
    parts = [f"```text\n{usage}\n```", _marked(text.strip()), "| option | meaning |\n|---|---|"]
    for option in command.get_params(context):
        record = option.get_help_record(context)
        if isinstance(option, click.Option) and record is not None:
            parts[-1] += f"\n| `{record[0]}` | {_cell(record[1])} |"
    parts += ["Examples:", f"```text\n{dedent(examples).rstrip()}\n```"] if examples else []
    return "\n\n".join(parts)


def _cell(text: str) -> str:
    return _marked(" ".join(text.split())).replace("|", r"\|")


def _marked(text: str) -> str:
    """What a text of help is in Markdown: options in it are code, and nothing else is markup."""
    pieces = re.split("(`[^`]*`)", text)
    for number in range(0, len(pieces), 2):
        plain = re.sub(r"([*_])", r"\\\1", pieces[number].replace("<", "&lt;"))
        pieces[number] = re.sub(r"(?<![\w-])--?[a-z][a-z-]*\b", r"`\g<0>`", plain)
    return "".join(pieces)


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
