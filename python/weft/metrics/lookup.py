"""A focus as people type it: the name of a function, without the path that leads to it.

A name stands for the only function of the target that has it, in whichever module that is; the
program's own functions do not come first. Where several have it, none is chosen.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from weft.base.names import closest
from weft.errors import BadFile, InvalidArgument
from weft.mdl.plan import Focus
from weft.model.program import Function, Module
from weft.program.resources import ResourceTree

__all__ = ["full_focus", "function_names", "is_elsewhere"]

_MOST_LISTED = 10
_PATTERN = frozenset("*?[")
_BATCH = 16384
_SOURCE = re.compile(r"\.(?!so$)[A-Za-z]{1,4}$")
"""How the name of a file of sources ends."""


def full_focus(tree: ResourceTree, focus: str, *, waits: bool = False) -> str:
    """Return a focus with the path of what its name stands for; a path is returned as it is.

    ``waits`` says that it may be in a library which is loaded later.

    ``processCommand,/Thread/main`` may be ``/Code/redis-server/processCommand,/Thread/main``.
    """
    focus = focus.strip()
    if not focus or focus.startswith("/"):
        return focus
    name, comma, rest = focus.partition(",/")
    return _path(tree, name.strip(), waits) + (f",/{rest}" if comma else "")


def is_elsewhere(tree: ResourceTree, focus: str) -> bool:
    """Whether a focus is about code of a module that the target does not have.

    A name alone may be that of a function of which nothing tells the name; and so may be one in a
    file of sources, where there is no debug information.
    """
    code = Focus.parse(focus).of("Code") if focus.startswith("/") else None
    if not code or _SOURCE.search(code[0]):
        return False
    return not tree.has_module(code[0])


def _path(tree: ResourceTree, name: str, waits: bool) -> str:
    _require_libraries(tree, name)
    found = _functions(tree, name)
    # What begins with a module's name is a path that lacks its beginning. Go's functions have
    # slashes, too. A pattern alone could be one of anything.
    module, slash, _ = name.partition("/")
    is_path = (slash or not _PATTERN & set(name)) and tree.has_module(module)
    if not found and not is_path and slash:
        is_path = any(tree.match(f"/Code/{module}"))
    paths = [f"/Code/{name}"] if is_path else []
    if len(found) + len(paths) == 1:
        return paths[0] if paths else tree.path_of(found[0])
    if not found and not paths:
        raise _nothing(tree, name, waits)
    what = "things" if paths else "functions"
    raise _several(tree, name, f"{name} is the name of {{}} {what}", paths, found)


def _require_libraries(tree: ResourceTree, name: str) -> None:
    """Refuse to look while only the loader is there: what it has yet to load may be what is meant.

    A program without a loader has all that it will have.
    """
    others = [one.name for one in tree.modules if not one.is_program and one.path != "[vdso]"]
    if len(others) == 1 and others[0].startswith(("ld-", "ld.so", "ld64")):
        raise InvalidArgument(
            f"it is not known yet which function {name} is",
            "the program has not loaded its libraries",
            f"name it in full: /Code/MODULE/{name}, or in Python run_to_entry() first",
        )


def _functions(tree: ResourceTree, name: str) -> list[Function]:
    """The functions of a name, each once: not the stubs by which others call them."""
    found: dict[int, Function] = {}
    for module in tree.modules:
        try:
            functions = module.find(name)
        except BadFile:  # one module that cannot be read must not hide the others
            continue
        for function in functions:
            if function.kind != "plt":
                found.setdefault(module.bias + function.offset, function)
    return list(found.values())


def _several(
    tree: ResourceTree, name: str, what: str, paths: list[str], found: list[Function]
) -> InvalidArgument:
    """List all that a name may stand for; ``what`` says what, with a place for how many."""
    listed = [*paths, *(_described(tree, function) for function in found)]
    lines = [f"    {one}" for one in listed[:_MOST_LISTED]]
    if len(listed) > _MOST_LISTED:
        lines.append(f"    ... and {len(listed) - _MOST_LISTED} more")
    all_paths = {*paths, *(tree.path_of(function) for function in found)}
    advice = "name one of them by its path"
    if len(all_paths) == 1:
        advice = f"{all_paths.pop()} stands for all of them, /Code/FILE/{name} for those of a file"
    return InvalidArgument(what.format(len(listed)), "\n" + "\n".join(lines), advice)


def _described(tree: ResourceTree, function: Function) -> str:
    """A function as a path that can be copied, and what tells it from others of its name."""
    shown = "" if function.display_name == function.name else f"  {function.display_name}"
    return f"{tree.path_of(function)}{shown}  at {function.module.bias + function.offset:#x}"


def _nothing(tree: ResourceTree, name: str, waits: bool) -> InvalidArgument:
    if _PATTERN & set(name):
        own = tree.modules[0].name if tree.modules else "MODULE"
        return InvalidArgument(
            f"{name} is not the name of a function",
            "a pattern needs to know the module",
            f"/Code/{own}/{name}, or /Code/*/{name} for all modules",
        )
    # C++ and Rust have more before a name.
    inner = [
        function
        for module in _readable(tree.modules)
        for pattern in (f"*::{name}", f"*::{name}(*")
        for function in module.functions(pattern)
        if function.kind == "function"
    ]
    if inner:
        what = f"no function is just {name}, which is a part of {{}} names"
        return _several(tree, name, what, [], list(dict.fromkeys(inner)))
    close = closest(name, function_names(tree.modules))
    meant = f"did you mean {' or '.join(close)}? " if close else ""
    listed = "`weft points` lists what there is"
    if waits:
        listed = f"say which library to wait for: /Code/LIBRARY/{name}"
    return InvalidArgument(
        f"the program has no function {name}",
        "neither itself nor in a library that it has loaded",
        f"{meant}{listed}",
    )


def _readable(modules: Iterable[Module]) -> Iterator[Module]:
    for module in modules:
        try:
            _ = module.symbols
        except BadFile:
            continue
        yield module


def function_names(modules: Iterable[Module]) -> Iterator[str]:
    """The names of all functions: those that people type, without parameters."""
    for module in _readable(modules):
        symbols = module.symbols
        indexes = symbols.select("*")
        for start in range(0, len(indexes), _BATCH):
            for row in symbols.rows(indexes[start : start + _BATCH]):
                name, demangled, kind = row[0], row[1], row[4]
                if kind == "function":
                    yield demangled.partition("(")[0] if demangled else name
