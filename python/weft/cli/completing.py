"""What a shell offers when Tab is pressed: metrics, processes, modules and functions.

It is quick, since somebody waits for it, and silent: where something cannot be known, nothing is
offered.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    add_completion_class,
    split_arg_string,
)

from weft.errors import WeftError

if TYPE_CHECKING:
    from weft.model.program import Module

VARIABLE = "_WEFT_COMPLETE"
"""What a shell sets to ask for completions."""
MOST = 300
"""How many functions, processes or threads are offered at most."""
_ROOTS = {
    "/Code/": "a module, or a function of it",
    "/Thread/": "a thread",
    "/Process/": "a process",
}
_WIDEST = 100
_BREAKS = "@:="
"""Where bash divides words, beside blanks."""

Completion = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


class Bash(BashComplete):
    """Completion for bash, which divides words at ``@`` as well: ``calls@/Code/`` are three."""

    source_template = """\
%(complete_func)s() {
    local IFS=$'\\n'
    local response completion type value

    response=$(env COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD \\
        COMP_LINE="${COMP_LINE:0:$COMP_POINT}" %(complete_var)s=bash_complete $1)

    for completion in $response; do
        IFS=',' read type value <<< "$completion"

        if [[ $type == 'dir' ]]; then
            COMPREPLY=()
            compopt -o dirnames
        elif [[ $type == 'file' ]]; then
            COMPREPLY=()
            compopt -o default
        elif [[ $type == 'plain' ]]; then
            COMPREPLY+=($value)
            [[ $value == */ ]] && compopt -o nospace
        fi
    done

    return 0
}

%(complete_func)s_setup() {
    complete -o nosort -F %(complete_func)s %(prog_name)s
}

%(complete_func)s_setup;
"""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._before = ""
        """What of the word stands before the part that bash completes."""

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words before the cursor, and the one that it is at, undivided."""
        line = os.environ.get("COMP_LINE", "")
        part = super().get_completion_args()
        if not line:
            return part
        words = split_arg_string(line)
        is_new = line[-1].isspace()
        whole = "" if is_new or not words else words.pop()
        own = part[1].strip(_BREAKS) and part[1]
        self._before = whole[: len(whole) - len(own)] if whole.endswith(own) else ""
        return words[1:], whole

    def format_completion(self, item: CompletionItem) -> str:
        """Leave out what bash does not complete."""
        return f"{item.type},{item.value.removeprefix(self._before)}"


def register() -> None:
    """Have bash complete words with ``@``, and hear nothing of what goes wrong."""
    add_completion_class(Bash)
    if os.environ.get(VARIABLE, "").endswith("_complete"):
        nothing = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        sys.stderr = os.fdopen(nothing, "w")


def metrics(ctx: click.Context, _option: click.Parameter, text: str) -> list[CompletionItem]:
    """Complete ``METRIC[@FOCUS]``."""
    name, at, focus = text.partition("@")
    if at:
        found = _quietly(lambda: _foci(ctx, focus))
        return [CompletionItem(f"{name}@{one.value}", help=one.help) for one in found]
    from weft.metrics.summaries import summaries

    return [
        CompletionItem(metric, help=summary)
        for metric, summary in summaries().items()
        if metric.startswith(text)
    ]


def metric_names(ctx: click.Context, option: click.Parameter, text: str) -> list[CompletionItem]:
    """Complete the name of a metric alone."""
    return [] if "@" in text else metrics(ctx, option, text)


def keys(_ctx: click.Context, _option: click.Parameter, text: str) -> list[CompletionItem]:
    """Complete what metrics are divided by."""
    from weft.metrics.grouping import WORDS

    return [CompletionItem(key, help=WORDS[key]) for key in WORDS if key.startswith(text)]


def processes(_ctx: click.Context, _option: click.Parameter, text: str) -> list[CompletionItem]:
    """Complete the name or the id of a process."""
    return _quietly(lambda: _processes(text))


def programs(_ctx: click.Context, _option: click.Parameter, text: str) -> list[CompletionItem]:
    """Leave it to the shell to complete files: words of a program may be anything."""
    return [CompletionItem(text, type="file")]


def process_or_program(
    ctx: click.Context, option: click.Parameter, text: str
) -> list[CompletionItem]:
    """Complete a process, or a program: behind ``--``, or where a path begins."""
    is_first = not (ctx.params.get(option.name or "") or ())
    if not is_first or "--" in _words() or text.startswith((".", "/", "~")):
        return [CompletionItem(text, type="file")]
    parts: dict[str, click.Command] = getattr(ctx.command, "parts", {})
    named = [
        CompletionItem(name, help=part.get_short_help_str(_WIDEST))
        for name, part in parts.items()
        if name.startswith(text)
    ]
    return named + processes(ctx, option, text)


def _quietly(find: Callable[[], Iterable[CompletionItem]]) -> list[CompletionItem]:
    try:
        return list(find())
    except (OSError, WeftError, ValueError):
        return []


def _processes(text: str) -> Iterator[CompletionItem]:
    from weft.program.processes import processes as all_processes

    found = list(all_processes())
    by_name: dict[str, list[int]] = {}
    for process in found:
        by_name.setdefault(process.name, []).append(process.pid)
    names = [name for name in sorted(by_name) if name.startswith(text) and not name[0].isdigit()]
    for name in names[:MOST]:
        pids = by_name[name]
        several = f"process {pids[0]}" if len(pids) == 1 else f"{len(pids)} processes"
        yield CompletionItem(name, help=several)
    ids = [process for process in found if str(process.pid).startswith(text)]
    for process in ids[:MOST]:
        yield CompletionItem(str(process.pid), help=process.command)


def _foci(ctx: click.Context, text: str) -> Iterator[CompletionItem]:
    if not text.startswith("/"):
        if not text:
            yield from (CompletionItem(root, help=what) for root, what in _ROOTS.items())
            return
        for module in _modules(ctx):
            for name in _functions(module, text):
                yield CompletionItem(name, help=module.name)
        return
    root, slash, rest = text[1:].partition("/")
    if not slash:
        yield from (
            CompletionItem(path, help=what)
            for path, what in _ROOTS.items()
            if path.startswith(text)
        )
    elif root == "Code":
        yield from _code(ctx, rest)
    elif root == "Thread" and (pid := _process_of(ctx)) is not None:
        from weft import _native

        names = {name for _, name, _ in _native.threads(pid)}
        for name in sorted(names)[:MOST]:
            if name.startswith(rest):
                yield CompletionItem(f"/Thread/{name}")
    elif root == "Process" and (pid := _process_of(ctx)) is not None:
        yield CompletionItem(f"/Process/{pid}")


def _code(ctx: click.Context, text: str) -> Iterator[CompletionItem]:
    module_name, slash, function = text.partition("/")
    modules = _modules(ctx)
    started_as = _started_as(ctx)
    for module in modules:
        name = started_as if module.is_program and started_as else module.name
        if slash and module_name in (name, module.name):
            for one in _functions(module, function):
                yield CompletionItem(f"/Code/{module_name}/{one}")
        elif not slash and name.startswith(module_name):
            yield CompletionItem(f"/Code/{name}/", help=module.path)


def _functions(module: Module, beginning: str) -> list[str]:
    """The functions of a module that begin with something, of which a shell need not quote any."""
    found: dict[str, None] = {}
    with suppress(WeftError):
        indexes = module.symbols.select(f"{_literal(beginning)}*")
        for row in module.symbols.rows(indexes[: 4 * MOST]):
            name, kind = row[0], row[4]
            if (
                kind != "plt"
                and name.startswith(beginning)
                and name.replace(".", "_").isidentifier()
            ):
                found[name] = None
    return sorted(found)[:MOST]


def _literal(text: str) -> str:
    """A pattern that stands for a text."""
    return "".join(f"[{one}]" if one in "*?[" else one for one in text)


def _modules(ctx: click.Context) -> list[Module]:
    """The modules of the target on the line; only the program if it is yet to be started."""
    from weft.program.live_modules import live_modules

    pid = _process_of(ctx)
    if pid is not None:
        found = live_modules(pid)
        return sorted(found, key=lambda module: not module.is_program)
    import shutil

    from weft.model.program import Module

    words = _words()
    program = words[words.index("--") + 1 :][:1] if "--" in words else []
    file = shutil.which(program[0]) if program else None
    return [Module(str(Path(file).resolve()), is_program=True)] if file else []


def _started_as(ctx: click.Context) -> str:
    from weft.base.names import program_name

    pid = _process_of(ctx)
    if pid is not None:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return program_name([os.fsdecode(words[0])], "")
    words_typed = _words()
    program = words_typed[words_typed.index("--") + 1 :][:1] if "--" in words_typed else []
    return program_name(program, "")


def _process_of(ctx: click.Context) -> int | None:
    """The process that the line is about: also one that is named behind the cursor."""
    if isinstance(pid := ctx.params.get("pid"), int):
        return pid
    if not any(param.name in ("pid", "target") for param in ctx.command.params):
        return None
    # Words that an incomplete option follows are not parsed.
    words = _words()[2:]
    words = words[: words.index("--")] if "--" in words else words
    for word in words:
        if word.isascii() and word.isdecimal() and Path(f"/proc/{word}").exists():
            return int(word)
    from weft.base.names import may_be_name
    from weft.program.processes import processes as all_processes

    pids: dict[str, list[int]] = {}
    for process in all_processes():
        for name in process.names:
            pids.setdefault(name, []).append(process.pid)
    for word in words:
        if may_be_name(word) and len(found := pids.get(word, [])) == 1:
            return found[0]
    return None


def _words() -> list[str]:
    """All words of the line."""
    return split_arg_string(os.environ.get("COMP_WORDS", ""))
