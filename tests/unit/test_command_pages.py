"""Every command has a page, with its options and with a picture of what it shows."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
from rich.text import Text

from docs import hooks, pictures, record
from tests.examples import matches
from weft.cli import main
from weft.cli.output import WithParts

ROOT = Path(__file__).parents[2]
NAMES = main.list_commands(click.Context(main))
LARGEST = 60 << 10
"""The most bytes of a picture."""

_IMAGE = re.compile(r"!\[[^]]+\]\(\.\./\.\./pictures/([\w.-]+)\)")
_OPTION = re.compile(r"(?<![\w-])--?[a-zA-Z][\w-]*")


def page(name: str) -> str:
    """The page of a command, as it is written."""
    return (record.PAGES / f"{name}.md").read_text()


def options(name: str) -> set[str]:
    """The options of a command and of its parts."""
    command = main.get_command(click.Context(main), name)
    assert command is not None
    parts = command.parts.values() if isinstance(command, WithParts) else ()
    contexts = [click.Context(one, **main.context_settings) for one in (command, *parts)]
    return {
        option
        for context in contexts
        for parameter in context.command.get_params(context)
        if isinstance(parameter, click.Option)
        for option in (*parameter.opts, *parameter.secondary_opts)
    }


def test_there_is_a_page_for_each_command_and_for_nothing_else() -> None:
    assert sorted(file.stem for file in record.PAGES.glob("*.md")) == NAMES
    navigation = (ROOT / "mkdocs.yml").read_text()
    assert [name for name in NAMES if f"- reference/commands/{name}.md\n" not in navigation] == []


def test_the_list_of_commands_leads_to_all_pages() -> None:
    listed = hooks.on_page_markdown((ROOT / "docs" / "reference" / "cli.md").read_text())
    assert [name for name in NAMES if f"(commands/{name}.md)" not in listed] == []


@pytest.mark.parametrize("name", NAMES)
def test_a_page_has_all_parts(name: str) -> None:
    titles = re.findall("^#+ (.+)", page(name), re.MULTILINE)
    assert titles[0] == f"weft {name}"
    assert titles[-3:] == ["Options", "Exit codes", "See also"]
    assert "```console\n" in page(name)


@pytest.mark.parametrize("name", NAMES)
def test_a_page_has_all_options(name: str) -> None:
    shown = hooks.on_page_markdown(page(name))
    cells = set(_OPTION.findall(" ".join(re.findall(r"^\| `(.+?)` \|", shown, re.MULTILINE))))
    assert options(name) <= cells


@pytest.mark.parametrize("name", NAMES)
def test_a_page_has_no_options_that_there_are_not(name: str) -> None:
    text = re.sub(r"^```.*?^```", "", page(name), flags=re.DOTALL | re.MULTILINE)
    named = {
        option
        for code in re.findall("`([^`]+)`", text)
        if code.startswith(("-", f"weft {name}"))
        for option in _OPTION.findall(code)
    }
    assert named <= options(name)


@pytest.mark.parametrize("name", NAMES)
def test_a_page_shows_a_small_picture(name: str) -> None:
    found = _IMAGE.findall(page(name))
    assert found, "a picture of what it shows"
    for file in found:
        assert file in pictures.PICTURES
        assert (pictures.FOLDER / file).stat().st_size <= LARGEST


@pytest.mark.parametrize("name", [file.stem for file in record.RECORDINGS.glob("*.ansi")])
def test_a_picture_shows_what_its_page_does(name: str) -> None:
    """If not, ``python -m docs.record NAME`` and ``make docs`` draw it anew."""
    _, commands = record.pictured(page(name), name)
    lines = []
    for command in commands:
        first, *more = command.script.splitlines()
        lines += [f"$ {first}", *(f"> {line}" for line in more), command.shown or "..."]
    seen = Text.from_ansi((record.RECORDINGS / f"{name}.ansi").read_text()).plain
    assert matches("\n".join(line.rstrip("\n") for line in lines), seen, numbers_vary=True)


@pytest.mark.parametrize("name", pictures.PICTURES)
def test_a_picture_is_the_one_that_is_drawn(name: str) -> None:
    assert (pictures.FOLDER / name).read_text() == pictures.PICTURES[name]()
