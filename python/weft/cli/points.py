"""List the functions of a program, a library or a process."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import BinaryIO

import click

from weft.base.numbers import printable
from weft.cli.inputs import completed, file_or_process
from weft.cli.output import format_option, progress
from weft.cli.printing import echo
from weft.errors import BadFile
from weft.model.program import Module
from weft.program.ifuncs import Implementations
from weft.program.live_modules import live_modules

#: How many functions are rendered at a time: enough to be quick, not so many as to fill memory.
_BATCH = 16384

_SCHEMA = 1


@click.command("points")
@click.argument("target", metavar="FILE|PID|NAME", shell_complete=completed("process_or_program"))
@click.option("--module", "module_glob", metavar="GLOB", help="Only modules of this name or path.")
@click.option(
    "--function",
    "function_glob",
    metavar="GLOB",
    default="*",
    help="Only functions one of whose names matches.",
)
@click.option(
    "--lines", is_flag=True, help="Look up source files and lines (needs debug information)."
)
@format_option
@click.option("--no-cache", is_flag=True, help="Read everything anew.")
def command(
    target: str,
    module_glob: str | None,
    function_glob: str,
    lines: bool,
    output_format: str,
    no_cache: bool,
) -> None:
    """List the functions of a program, a library or a process.

    FILE is a program or a shared library; PID is a running process, by its number or its name, of
    which all modules are listed (write ./123 for a file of that name).

    \b
    Examples:
      weft points /bin/bash --function 'read*'
      weft points 4711 --module 'libc.so*' --function malloc
      weft points redis-server --function 'process*'
      weft points ./prog --lines --format json
    """
    use_cache = not no_cache
    pid = file_or_process(target)
    if pid is not None:
        modules = live_modules(pid, use_cache=use_cache)
    else:
        modules = [Module(target, use_cache=use_cache)]
        # Whether a file can be read must be known before anything is printed.
        _read(modules[0])
    chosen = _opened(module for module in modules if _is_chosen(module, module_glob))
    render = _render_json if output_format == "json" else _render_text
    out = sys.stdout.buffer
    implementations = None if pid is None else Implementations(pid, modules)
    render(out, chosen, function_glob, lines, implementations)
    out.flush()


def _read(module: Module) -> None:
    with progress(f"reading the symbols of {module.name}"):
        _ = module.symbols


def _opened(modules: Iterable[Module]) -> Iterator[Module]:
    """Read each module when it is wanted; those that cannot be read are said to be later."""
    for module in modules:
        with suppress(BadFile):
            _read(module)
        yield module


def _is_chosen(module: Module, glob: str | None) -> bool:
    return glob is None or module.is_called(glob) or fnmatchcase(module.path, glob)


def _batches(indexes: list[int]) -> Iterator[list[int]]:
    for start in range(0, len(indexes), _BATCH):
        yield indexes[start : start + _BATCH]


def _chosen(
    module: Module, implementations: Implementations | None, function_glob: str
) -> dict[str, list[str]]:
    """What the indirect functions of a module stand for in a process, by their names."""
    if implementations is None:
        return {}
    try:
        functions = [one for one in module.functions(function_glob) if one.kind == "ifunc"]
    except BadFile:
        return {}
    found = implementations.of(functions)
    return {one.name: [chosen.name for chosen in found[one]] for one in functions}


def _render_json(
    out: BinaryIO,
    modules: Iterator[Module],
    function_glob: str,
    lines: bool,
    implementations: Implementations | None,
) -> None:
    out.write(b'{"schema": %d, "modules": [' % _SCHEMA)
    for number, module in enumerate(modules):
        out.write(b",\n" if number else b"\n")
        # One module of a process that cannot be read must not hide the others.
        try:
            symbols, problems = module.symbols, module.symbols.problems
        except BadFile as error:
            symbols, problems = None, [str(error)]
        path = symbols.path if symbols else module.path
        head: dict[str, object] = {
            "path": path,
            "build_id": symbols.build_id if symbols else None,
        }
        if problems:
            head["problems"] = problems
        if chosen := _chosen(module, implementations, function_glob):
            head["implementations"] = chosen
        out.write(json.dumps(head)[:-1].encode() + b', "functions": [')
        batches = _batches(symbols.select(function_glob)) if symbols else iter(())
        for index, batch in enumerate(batches):
            assert symbols is not None
            out.write(b",\n" if index else b"\n")
            out.write(symbols.json(batch, lines=lines))
        out.write(b"]}")
    out.write(b"]}\n")


def _render_text(
    out: BinaryIO,
    modules: Iterator[Module],
    function_glob: str,
    lines: bool,
    implementations: Implementations | None,
) -> None:
    separator = ""
    for module in modules:
        try:
            symbols = module.symbols
        except BadFile as error:
            echo(f"weft: {error}", err=True)
            continue
        indexes = symbols.select(function_glob)
        if not indexes and function_glob != "*":
            continue
        build_id = f"  build-id {symbols.build_id}" if symbols.build_id else ""
        heading = f"{printable(symbols.path)}{build_id}  {len(indexes)} functions\n"
        out.write((separator + heading).encode(errors="surrogateescape"))
        separator = "\n"
        for problem in symbols.problems:
            echo(f"weft: {symbols.path}: {problem}", err=True)
        stand_for = _chosen(module, implementations, function_glob)
        for batch in _batches(indexes):
            sources = symbols.sources(batch) if lines else [None] * len(batch)
            text = []
            for row, source in zip(symbols.rows(batch), sources, strict=True):
                name, demangled, offset, size, *_ = row
                place = f"  {source[0]}:{source[1]}" if source else ""
                called = " or ".join(stand_for.get(name, ()))
                called = f" -> {called}" if called else ""
                shown = printable(f"{demangled or name}{called}{place}")
                text.append(f"{offset:#14x} {size:7}  {shown}\n")
            out.write("".join(text).encode())
