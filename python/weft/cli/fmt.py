"""Format files of metrics and snippets."""

from __future__ import annotations

from pathlib import Path

import click

from weft._native import snippet_points
from weft.base.files import MOST_TEXT, Draft, read
from weft.cli.output import format_option, print_json
from weft.errors import BadFile, BadSnippet
from weft.mdl.format import format_document
from weft.mdl.spelling import respelled_snippet

_SCHEMA = 1


@click.command("fmt")
@click.argument(
    "files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path)
)
@click.option("--check", is_flag=True, help="Change nothing; end with 1 if something would change.")
@format_option
@click.pass_context
def command(ctx: click.Context, files: tuple[Path, ...], check: bool, output_format: str) -> None:
    """Format files of metrics and snippets.

    Every FILE.mdl is rewritten the one way that MDL should look, and older spellings of the
    language become those of today, also in snippets (FILE.weft). Comments stay, and so does what it
    means. The names of the files that change are printed. A file with mistakes is left alone, and
    so are all others.

    \b
    Examples:
      weft fmt metrics.mdl
      weft fmt --check *.mdl *.weft
    """
    texts = {path: _read(path) for path in files}
    formatted = {path: _formatted(path, text) for path, text in texts.items()}
    changed = [path for path, text in texts.items() if formatted[path] != text]
    if not check:
        for path in changed:
            with Draft(path) as file:
                file.write(formatted[path].encode())
    if output_format == "json":
        listing = [{"path": str(path), "changed": path in changed} for path in texts]
        print_json({"schema": _SCHEMA, "files": listing})
    else:
        for path in changed:
            click.echo(f"{path} would change" if check else str(path))
    ctx.exit(1 if check and changed else 0)


def _formatted(path: Path, text: str) -> str:
    if path.suffix != ".weft":
        return format_document(text, str(path))
    try:
        snippet_points(text)
    except BadSnippet as error:
        error.what = f"{path}: {error.what}"
        raise
    return respelled_snippet(text)


def _read(path: Path) -> str:
    try:
        return read(path, MOST_TEXT).decode()
    except UnicodeDecodeError as error:
        raise BadFile(
            f"cannot read {path}", "it is not UTF-8", "save it as UTF-8, without other encodings"
        ) from error
    except OSError as error:
        raise BadFile(f"cannot read {path}", error.strerror or str(error)) from error
