"""Coverage as one HTML file: a summary, the sources with counts, and the disassembly of the rest.

The file needs nothing else: no script, no font, no network. It is light or dark as the reader is.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import BinaryIO

from weft import __version__
from weft.errors import BadFile
from weft.model.flow import CodeModule
from weft.tools.coverage import (
    Branch,
    Coverage,
    FileCoverage,
    FunctionCoverage,
    ModuleCoverage,
    Share,
)
from weft.tools.coverage.choice import open_symbols
from weft.tools.coverage.contexts import (
    FunctionKey,
    extent,
    function_contexts,
    function_key,
    line_contexts,
    only_in,
)

_INSTRUCTIONS = 50_000
"""How many instructions of a module are shown: more than that nobody reads."""
_NAMES = 20
"""How many contexts of a line are named."""

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #fff; --faint: #6a737d; --rule: #d8dee4;
  --hit: #e6f6e9; --miss: #fde4e4; --half: #fff4d1; }
@media (prefers-color-scheme: dark) { :root { --ink: #dde3ea; --paper: #14181d; --faint: #8b949e;
  --rule: #2d333b; --hit: #12301c; --miss: #471a1d; --half: #3d3210; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  margin: 2rem auto; max-width: 75rem; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2.5rem; }
code, pre, .code { font: 13px/1.45 ui-monospace, monospace; }
p, .faint { color: var(--faint); }
table { border-collapse: collapse; width: 100%; }
th { text-align: left; font-weight: 600; }
th, td { padding: .2rem .8rem .2rem 0; border-bottom: 1px solid var(--rule); vertical-align: top; }
td.number { text-align: right; white-space: nowrap; }
td.name { overflow-wrap: anywhere; }
meter { width: 9rem; }
a { color: inherit; }
details { border: 1px solid var(--rule); border-radius: .4rem; margin: .6rem 0; }
summary { cursor: pointer; padding: .4rem .8rem; display: flex; gap: 1rem; align-items: center; }
summary .path { flex: 1; overflow-wrap: anywhere; }
.code { overflow-x: auto; border-top: 1px solid var(--rule); }
.code div { white-space: pre; min-width: max-content; padding-right: 1rem; }
.code .n, .code .c, .code .b, .code .x { display: inline-block; color: var(--faint);
  text-align: right; }
.code .x { width: 4em; padding-right: 1em; cursor: help; }
.code .n { width: 5em; } .code .c { width: 8em; } .code .b { width: 5em; padding-right: 1.5em; }
.hit { background: var(--hit); } .miss { background: var(--miss); }
.half { background: var(--half); }
.total td { font-weight: 600; }
.label { font-weight: 600; padding-top: .6rem; }
"""


def write(file: BinaryIO, coverage: Coverage) -> None:
    """Write a coverage to a file."""
    text = "".join(_page(coverage))
    file.write(text.encode(errors="replace"))


def _page(coverage: Coverage) -> Iterator[str]:
    command = escape(" ".join(coverage.flow.command))
    yield '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>Coverage of {command}</title><style>{_STYLE}</style></head><body>\n"
    yield f"<h1>Coverage of <code>{command}</code></h1>\n"
    how = "with exact counts" if coverage.is_counted else "executed or not, without counts"
    yield f"<p>{how} &middot; weft {escape(__version__)}</p>\n"
    for text in coverage.flow.lost:
        yield f'<p class="half">incomplete: {escape(text)}</p>\n'
    for text in coverage.remarks():
        yield f'<p class="half">note: {escape(text)}</p>\n'
    if coverage.commands:
        yield "<p>executed: "
        yield ", ".join(f"<code>{escape(' '.join(words))}</code>" for words in coverage.commands)
        yield "</p>\n"
    files = [source for source, _ in coverage.files() if source.lines]
    yield from _summary(coverage, files)
    if files:
        yield "<h2>Files</h2>\n"
        base = _base([source.path for source in files])
        by_line = line_contexts(coverage)
        for number, source in enumerate(files):
            names = by_line.get(source.path, {}) if coverage.contexts else None
            yield from _file(number, source, base, names, is_open=len(files) == 1)
    functions = coverage.functions()
    if functions:
        yield from _functions(functions, function_contexts(coverage) if coverage.contexts else None)
    if coverage.contexts:
        yield from _contexts(coverage)
    for module, details in zip(coverage.flow.modules, coverage.modules, strict=True):
        if details.is_detailed and not details.files and module.blocks:
            yield from _disassembly(module, details, coverage.is_counted)
    yield "</body></html>\n"


def _base(paths: Sequence[str]) -> str:
    """What comes before what is worth reading of the paths."""
    here = f"{Path.cwd()}/"
    return here if any(path.startswith(here) for path in paths) else ""


def _summary(coverage: Coverage, files: Sequence[FileCoverage]) -> Iterator[str]:
    yield "<table><tr><th>module</th><th>functions</th><th></th><th>lines</th><th></th>"
    yield "<th>branches</th><th></th></tr>\n"
    named = coverage.named_modules()
    for name, module in named:
        shares = (module.function_share, module.line_share, module.branch_share)
        cells = "".join(map(_cells, shares))
        yield f'<tr><td class="name" title="{escape(module.path)}">{escape(name)}</td>'
        yield f"{cells}</tr>\n"
    if sum(module.is_detailed for _, module in named) > 1:
        cells = "".join(map(_cells, coverage.totals()))
        yield f'<tr class="total"><td class="name">total of what is in detail</td>{cells}</tr>\n'
    yield "</table>\n"
    if len(files) > 1:
        base = _base([source.path for source in files])
        yield "<table><tr><th>file</th><th>lines</th><th></th><th>branches</th><th></th></tr>\n"
        order = sorted(range(len(files)), key=lambda number: files[number].line_share.ratio)
        for number in order:
            source = files[number]
            name = escape(source.path.removeprefix(base))
            yield f'<tr><td class="name"><a href="#f{number}">{name}</a></td>'
            yield f"{_cells(source.line_share)}{_cells(source.branch_share)}</tr>\n"
        yield "</table>\n"


def _cells(share: Share) -> str:
    if not share.total:
        return "<td></td><td></td>"
    return f'<td>{_meter(share)}</td><td class="number">{share.hit:,} of {share.total:,}</td>'


def _meter(share: Share) -> str:
    limits = 'min="0" max="1" low="0.5" high="0.9" optimum="1"'
    return f'<meter {limits} value="{share.ratio:.4f}">{share.ratio:.0%}</meter>'


def _file(
    number: int,
    source: FileCoverage,
    base: str,
    names: Mapping[int, Sequence[str]] | None,
    *,
    is_open: bool,
) -> Iterator[str]:
    share = source.line_share
    yield f'<details id="f{number}"{" open" if is_open else ""}><summary>'
    yield f'<span class="path">{escape(source.path.removeprefix(base))}</span>'
    yield f'{_meter(share)}<span class="faint">{share.hit:,} of {share.total:,} lines</span>'
    yield "</summary>\n"
    yield '<div class="code">\n'
    branches: dict[int, list[Branch]] = defaultdict(list)
    for branch in source.branches:
        branches[branch.line].append(branch)
    try:
        text = Path(source.path).read_text(errors="replace").splitlines()
    except OSError:
        # The source is not here: the lines are all that is known.
        text = []
        yield '<div class="faint">  the source file is not here</div>\n'
    shown = range(1, len(text) + 1) if text else sorted(source.lines)
    for line in shown:
        words = escape(text[line - 1]) if text else ""
        count = source.lines.get(line)
        who = "" if names is None else _who(count, names.get(line, ()))
        yield _line(line, count, branches[line], words, who)
    yield "</div></details>\n"


def _who(count: int | None, names: Sequence[str]) -> str:
    """How many contexts have executed a line, and which."""
    if count is None:
        return '<span class="x"></span>'
    shown = [*names[:_NAMES], *([f"and {len(names) - _NAMES} more"] if len(names) > _NAMES else [])]
    title = f' title="{"&#10;".join(map(escape, shown))}"' if shown else ""
    return f'<span class="x"{title}>{f"&times;{len(names):,}" if names else ""}</span>'


def _contexts(coverage: Coverage) -> Iterator[str]:
    own = only_in(coverage)
    yield "<h2>Contexts</h2>\n"
    yield '<details><summary><span class="path">'
    yield f"{len(coverage.contexts):,} contexts; &times;2 at a line: executed in two of them"
    yield "</span></summary>\n"
    yield "<table><tr><th>context</th><th>functions</th><th>lines</th><th>only here</th></tr>\n"
    for context in sorted(coverage.contexts, key=lambda one: (-own[one.shown_name], one.name)):
        functions, lines = extent(coverage, context)
        lost = f" (incomplete: {'; '.join(context.lost)})" if context.lost else ""
        yield f'<tr><td class="name">{escape(context.shown_name + lost)}</td>'
        for number in (functions, lines, own[context.shown_name]):
            yield f'<td class="number">{number:,}</td>'
        yield "</tr>\n"
    yield "</table></details>\n"


def _line(
    line: int, count: int | None, branches: Sequence[Branch], text: str, who: str = ""
) -> str:
    ways = FileCoverage("", {}, tuple(branches)).branch_share
    style = ""
    if count is not None:
        is_half = count and ways.hit < ways.total
        style = ' class="miss"' if not count else ' class="half"' if is_half else ' class="hit"'
    shown = "" if count is None else f"{count:,}"
    # Which ways, for those who want to know.
    told = "; ".join(f"{b.offset:#x}: taken {b.taken:,}, passed {b.passed:,}" for b in branches)
    title = f' title="{told}"' if told else ""
    which = f"{ways.hit}/{ways.total}" if ways.total else ""
    return (
        f'<div{style}><span class="n">{line}</span><span class="c">{shown}</span>'
        f'<span class="b"{title}>{which}</span>{who}{text}</div>\n'
    )


def _functions(
    functions: Sequence[tuple[ModuleCoverage, FunctionCoverage]],
    names: Mapping[FunctionKey, Sequence[str]] | None,
) -> Iterator[str]:
    share = Share.of(function.count for _, function in functions)
    yield "<h2>Functions</h2>\n"
    yield '<details><summary><span class="path">'
    yield f"{share.total - share.hit:,} of {share.total:,} were not executed</span>"
    yield f"{_meter(share)}</summary>\n"
    column = "" if names is None else "<th>contexts</th>"
    yield f"<table><tr><th>function</th><th>count</th>{column}<th>bytes</th><th>source</th></tr>\n"
    for module, function in sorted(functions, key=lambda one: (one[1].count > 0, -one[1].size)):
        style = "" if function.count else ' class="miss"'
        where = f"{module.name}+{function.offset:#x}"
        if function.file:
            where = f"{function.file}:{function.line}"
        who = "" if names is None else _who(1, names.get(function_key(module, function), ()))
        yield f'<tr{style}><td class="name">{escape(function.name)}</td>'
        yield f'<td class="number">{function.count:,}</td>{who and f"<td>{who}</td>"}'
        yield f'<td class="number">{function.size:,}</td>'
        yield f'<td class="name">{escape(where)}</td></tr>\n'
    yield "</table></details>\n"


def _disassembly(module: CodeModule, details: ModuleCoverage, is_counted: bool) -> Iterator[str]:
    """The instructions of executed functions, for a module of which no lines are known."""
    starts = [block.offset for block in module.blocks]
    left = _INSTRUCTIONS
    executed = [function for function in details.functions if function.count and function.size]
    try:
        pieces = [(function.offset, function.size) for function in executed]
        texts = open_symbols(module).disassemble(pieces)
    except BadFile:
        return
    yield f'<details open><summary><span class="path">Instructions of {escape(details.name)}</span>'
    yield '</summary><div class="code">\n'
    for function, instructions in zip(executed, texts, strict=True):
        if left < 0:
            yield '<div class="faint">  and more, which is left out</div>\n'
            break
        left -= len(instructions)
        yield f'<div class="label">{escape(function.name)}</div>\n'
        for offset, text in instructions:
            at = bisect_right(starts, offset) - 1
            block = module.blocks[at] if at >= 0 else None
            is_hit = block is not None and offset < block.offset + block.size
            count = f"{block.count:,}" if is_hit and block is not None and is_counted else ""
            yield f'<div class="{"hit" if is_hit else "miss"}"><span class="c">{count}</span>'
            yield f'<span class="c">{offset:x}</span>  {escape(text)}</div>\n'
    yield "</div></details>\n"
