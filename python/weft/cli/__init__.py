"""The ``weft`` command: one file per subcommand, imported when it is used.

A subcommand is a module of this package that has a :class:`click.Command` named ``command``. The
first line of the module's docstring is the line that ``weft --help`` shows for it. Other packages
add theirs by entry points of the group ``weft.commands``, which name such a command.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from weft.base.files import FULL
from weft.base.names import did_you_mean
from weft.cli import output
from weft.cli.inputs import sentence
from weft.errors import WeftError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from click.shell_completion import CompletionItem

_GROUP = "weft.commands"
"""The group of entry points by which other packages add commands."""


class CommandFolder(click.Group):
    """A group whose subcommands are the modules of a package.

    Help and completion read the first lines of the files and import none of them, so that they
    stay quick however much the commands need.
    """

    def __init__(self, *args: Any, package: str, helpers: tuple[str, ...] = (), **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.package = package
        self.folder = list(importlib.import_module(package).__path__)
        self.helpers = helpers

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the subcommands, sorted."""
        return sorted({*self._own_commands(), *_others()})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a subcommand."""
        if cmd_name not in self._own_commands():
            other = _others().get(cmd_name)
            return None if other is None else _command_of(other)
        module = importlib.import_module(f"{self.package}.{cmd_name.replace('-', '_')}")
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the first word names, or say which one may be meant."""
        name = args[0]
        if not ctx.resilient_parsing and self.get_command(ctx, name) is None:
            meant = did_you_mean(name, self.list_commands(ctx))
            raise click.UsageError(sentence(f"No such command '{name}'.", meant), ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one line of help for each subcommand."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self._summaries(ctx)))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the name of a subcommand, or an option of the group."""
        from click.shell_completion import CompletionItem

        names = [
            CompletionItem(name, help=summary)
            for name, summary in self._summaries(ctx)
            if name.startswith(incomplete)
        ]
        return names + click.Command.shell_complete(self, ctx, incomplete)

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run the command line."""
        if "_WEFT_COMPLETE" in os.environ:
            from weft.cli import completing

            completing.register()
        try:
            return super().main(*args, **kwargs)
        except OSError as error:
            if error.errno not in FULL:
                raise
            sys.exit(output.stream_failure(error))

    def invoke(self, ctx: click.Context) -> Any:
        """Run a subcommand; whatever fails in it ends in a message and an exit code."""
        with output.failures(ctx):
            return super().invoke(ctx)

    def _own_commands(self) -> list[str]:
        with os.scandir(self.folder[0]) as files:
            modules = {file.name[:-3] for file in files if file.name.endswith(".py")}
        modules.difference_update(self.helpers, ["__init__"])
        return sorted(module.replace("_", "-") for module in modules)

    def _summaries(self, ctx: click.Context) -> Iterator[tuple[str, str]]:
        own = self._own_commands()
        for name in self.list_commands(ctx):
            if name not in own:
                yield name, f"(from {_others()[name].value.partition(':')[0]})"
                continue
            file = Path(self.folder[0], name.replace("-", "_") + ".py")
            yield name, _summary(file)


def _summary(file: Path) -> str:
    """The first line of a module's docstring."""
    with file.open(encoding="utf-8") as lines:
        for line in lines:
            text = line.strip()
            if text and not text.startswith("#"):
                quotes = text[:3]
                return text[3:].partition(quotes)[0] if quotes in ('"""', "'''") else ""
    return ""


def _others() -> dict[str, EntryPoint]:
    """The commands that other packages add."""
    if not _may_have_others():
        return {}
    # This takes as long as all else that help needs.
    from importlib.metadata import entry_points

    return {found.name: found for found in entry_points(group=_GROUP)}


def _may_have_others() -> bool:
    """Whether a package may add commands: some package mentions the group, or not all can be seen.

    Archives, and finders of other packages, may hold what no folder shows.
    """
    known = ("BuiltinImporter", "FrozenImporter", "PathFinder")
    for finder in sys.meta_path:
        if getattr(finder, "__name__", "") not in known and hasattr(finder, "find_distributions"):
            return True
    for entry in sys.path:
        folder = Path(entry or os.curdir)
        try:
            with os.scandir(folder) as found:
                names = [one.name for one in found]
        except NotADirectoryError:
            return True
        except OSError:
            continue
        for name in names:
            if name.endswith((".dist-info", ".egg-info")):
                try:
                    text = (folder / name / "entry_points.txt").read_bytes()
                except OSError:
                    continue
                if _GROUP.encode() in text:
                    return True
    return False


def _command_of(entry: EntryPoint) -> click.Command:
    try:
        command = entry.load()
    except Exception as error:
        raise WeftError(
            f"the command {entry.name} cannot be loaded",
            why=f"{entry.value}: {error}",
            advice="ask those who made it, or uninstall its package",
        ) from error
    if not isinstance(command, click.Command):
        raise WeftError(
            f"the command {entry.name} cannot be run",
            why=f"{entry.value} is no click.Command",
            advice="ask those who made it, or uninstall its package",
        )
    return command


def _show_version(ctx: click.Context, _option: click.Parameter, is_wanted: bool) -> None:
    if not is_wanted or ctx.resilient_parsing:
        return
    # The compiled core has it, which takes a while to load.
    from weft import __version__

    click.echo(f"weft, version {__version__}")
    ctx.exit()


@click.group(
    cls=CommandFolder,
    package=__name__,
    helpers=(
        "by_stack",
        "clone",
        "completing",
        "exports",
        "fleet_demo",
        "inputs",
        "measure",
        "output",
        "printing",
        "sampled",
    ),
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version and exit.",
)
def main() -> None:
    """Weave measurement into running native programs.

    \b
    Examples:
      weft COMMAND --help     what a command does, with examples
      weft completion bash    the completion of all of this, for your shell
    """
