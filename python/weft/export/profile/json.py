"""A profile as JSON: all of it, to be read by programs and by ``weft profile report``.

Its ``schema`` is a number that grows when something in it changes its meaning or goes away.
"""

from __future__ import annotations

import json
from typing import Any, BinaryIO, get_args

from weft.base.files import read as read_file
from weft.errors import BadFile
from weft.model.flow import Edge, EdgeKind
from weft.tools.callgraph import INDIRECT
from weft.tools.profile import (
    NOTE,
    Change,
    Profile,
    ProfiledBlock,
    ProfiledFunction,
    ProfiledModule,
    SourceLine,
)

SCHEMA = 1
_KIND = "profile"
_KINDS = get_args(EdgeKind)


def write(file: BinaryIO, profile: Profile) -> None:
    """Write everything that is known.

    Modules and functions are named by their places in the lists of them. The lines of a block are
    the offset from which on, the place of the file, and the line.
    """
    blocks, edges = profile.rows.json()
    # Where it is not known in which file something is written, it is that of the empty name.
    rest = json.dumps(_document(profile) | {"files": [*profile.rows.files, ""]}).encode()
    file.write(b'%b, "blocks": [%b], "edges": [%b]}\n' % (rest[:-1], blocks, edges))


def write_changes(file: BinaryIO, changes: list[Change]) -> None:
    """Write what has changed between two profiles."""
    rows = [
        {
            "module": one.module,
            "function": one.name,
            "self": [one.before, one.after],
            "calls": [one.calls_before, one.calls_after],
            "inclusive": [one.inclusive_before, one.inclusive_after],
        }
        for one in changes
    ]
    file.write(json.dumps({"schema": SCHEMA, "kind": "diff", "functions": rows}).encode() + b"\n")


def _document(profile: Profile) -> dict[str, Any]:
    """All but the blocks and the edges, and the files of lines."""
    return {
        "schema": SCHEMA,
        "kind": _KIND,
        "note": NOTE,
        "command": list(profile.command),
        "total": profile.total,
        "problems": list(profile.problems),
        "modules": [
            {
                "path": module.path,
                "build_id": module.build_id,
                "bias": module.bias,
                "self": profile.module_counts[place],
            }
            for place, module in enumerate(profile.modules)
        ],
        "functions": [
            {
                "module": function.module,
                "name": function.name,
                "demangled": function.demangled,
                "offset": function.offset,
                "size": function.size,
                "local_number": function.local_number,
                "file": function.file,
                "line": function.line,
                "part_of": function.part_of,
                "self": profile.self_counts[place],
                "inclusive": round(profile.inclusive_counts[place]),
                "calls": profile.calls[place],
                "cycle": profile.graph.cycle_number(place),
            }
            for place, function in enumerate(profile.functions)
        ],
        "calls": [
            {
                "caller": None if caller == INDIRECT else caller,
                "callee": callee,
                "count": count,
                "inclusive": round(profile.graph.share(caller, callee)),
            }
            for (caller, callee), count in profile.graph.calls.items()
        ],
    }


def read(path: str) -> Profile:
    """Read a profile from a file; raises :class:`weft.errors.BadFile`."""
    try:
        found = json.loads(read_file(path))
    except OSError as error:
        raise BadFile(f"{path} cannot be read", error.strerror or "") from None
    except ValueError as error:
        raise BadFile(f"{path} is no JSON", str(error), _ADVICE) from None
    if not isinstance(found, dict) or found.get("kind") != _KIND:
        raise BadFile(f"{path} is no profile", advice=_ADVICE)
    if found.get("schema") != SCHEMA:
        why = f"its schema is {found.get('schema')}, and this version reads {SCHEMA}"
        raise BadFile(f"{path} is from another version of weft", why)
    try:
        return _profile(found)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise BadFile(f"{path} is no whole profile", f"{type(error).__name__}: {error}") from None


_ADVICE = "make one by: weft profile --format json -o FILE.json -- CMD"


def _profile(found: dict[str, Any]) -> Profile:
    files = found["files"]
    modules = tuple(
        ProfiledModule(one["path"], one["build_id"], one["bias"]) for one in found["modules"]
    )
    known = ("module", "name", "demangled", "offset", "size", "local_number")
    more = ("file", "line", "part_of")
    functions = tuple(
        ProfiledFunction(**{name: one[name] for name in (*known, *more)})
        for one in found["functions"]
    )
    blocks = tuple(
        ProfiledBlock(
            function=one["function"],
            offset=one["offset"],
            size=one["size"],
            instructions=one["instructions"],
            count=one["count"],
            code=bytes.fromhex(one["code"]),
            lines=tuple(SourceLine(at, files[file], line) for at, file, line in one["lines"]),
        )
        for one in found["blocks"]
    )
    ways = ("module", "source", "to_module", "target", "kind", "count")
    edges = tuple(Edge(**{name: one[name] for name in ways}) for one in found["edges"])
    for function in functions:
        modules[function.module]
    for block in blocks:
        _check(block.function)
        functions[block.function]
        _check(block.offset, block.count, *(line.offset for line in block.lines))
        _check(block.size, block.instructions, *(line.line for line in block.lines), bits=32)
    for edge in edges:
        _check(edge.module, edge.source, edge.to_module, edge.target, edge.count)
        modules[max(edge.module, edge.to_module)]
        if edge.kind not in _KINDS:
            raise ValueError(f"there is no edge of the kind {edge.kind!r}")
    return Profile(
        command=tuple(found["command"]),
        modules=modules,
        functions=functions,
        blocks=blocks,
        edges=edges,
        problems=tuple(found["problems"]),
    )


def _check(*numbers: object, bits: int = 64) -> None:
    """Refuse what is no number of so many bits."""
    for number in numbers:
        if type(number) is not int or not 0 <= number < 1 << bits:
            raise ValueError(f"{number!r} is no number that blocks and edges have")
