"""Coverage as JSON, complete: what ``weft cov merge``, ``diff`` and ``report`` read.

Addresses are those that files state, so that two runs of a program can be held against each other
wherever it was loaded.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, BinaryIO

from weft.base.files import read as read_file
from weft.errors import BadFile
from weft.model.flow import Block, CodeModule, Edge, Flow
from weft.tools.coverage import (
    Branch,
    Context,
    Coverage,
    Executed,
    FileCoverage,
    FunctionCoverage,
    ModuleCoverage,
)

SCHEMA = 1
"""To be raised whenever a reader of the last one would be misled."""
_KIND = "weft coverage"


def write(file: BinaryIO, coverage: Coverage) -> None:
    """Write a coverage to a file."""
    flow = coverage.flow
    document = {
        "schema": SCHEMA,
        "kind": _KIND,
        "command": list(flow.command),
        "counted": flow.is_counted,
        "lost": list(flow.lost),
        "modules": [
            _module(module, details)
            for module, details in zip(flow.modules, coverage.modules, strict=True)
        ],
        "edges": [
            [edge.module, edge.source, edge.to_module, edge.target, edge.kind, edge.count]
            for edge in flow.edges
        ],
    }
    if coverage.commands:
        document["commands"] = [list(words) for words in coverage.commands]
    if coverage.contexts:
        # Whoever does not know of contexts reads the rest as before: the schema stays.
        document["contexts"] = [_context(context) for context in coverage.contexts]
    file.write(json.dumps(document, separators=(",", ":")).encode() + b"\n")


def _module(module: CodeModule, details: ModuleCoverage) -> dict[str, Any]:
    return {
        "path": module.path,
        "build_id": module.build_id,
        "bias": module.bias,
        "start": module.start,
        "size": module.size,
        "blocks": [[b.offset, b.size, b.instructions, b.count] for b in module.blocks],
        "detailed": details.is_detailed,
        "function_total": details.function_total,
        "functions": [
            {
                "name": function.name,
                "offset": function.offset,
                "size": function.size,
                "count": function.count,
                "file": function.file,
                "line": function.line,
            }
            for function in details.functions
        ],
        "files": [
            {
                "path": source.path,
                "lines": [[line, count] for line, count in source.lines.items()],
                "branches": [[b.offset, b.line, b.taken, b.passed] for b in source.branches],
            }
            for source in details.files
        ],
    }


def _context(context: Context) -> dict[str, Any]:
    return {
        "name": context.name,
        "lost": list(context.lost),
        "modules": [
            {
                "functions": sorted(executed.functions),
                "files": {path: sorted(lines) for path, lines in sorted(executed.lines.items())},
            }
            for executed in context.modules
        ],
    }


def read(path: str | Path) -> Coverage:
    """Read what :func:`write` has written."""
    try:
        document = json.loads(read_file(path))
    except OSError as error:
        raise BadFile(f"{path} cannot be read", error.strerror or "") from None
    except ValueError:
        raise _not_ours(path, "it is no JSON") from None
    if not isinstance(document, dict) or document.get("kind") != _KIND:
        raise _not_ours(path, "it says nothing of coverage")
    if document.get("schema") != SCHEMA:
        advice = "write it again, or read it with the weft that has written it"
        why = f"it has schema {document.get('schema')}, this weft reads {SCHEMA}"
        raise BadFile(f"{path} is of another version", why, advice)
    try:
        return _coverage(document)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise _not_ours(path, f"{type(error).__name__}: {error}") from None


def _coverage(document: dict[str, Any]) -> Coverage:
    modules, details = [], []
    for module in document["modules"]:
        blocks = tuple(Block(*block) for block in module["blocks"])
        modules.append(
            CodeModule(
                path=module["path"],
                build_id=module["build_id"],
                bias=module["bias"],
                start=module["start"],
                size=module["size"],
                blocks=blocks,
            )
        )
        files = tuple(
            FileCoverage(
                file["path"],
                dict(file["lines"]),
                tuple(Branch(*branch) for branch in file["branches"]),
            )
            for file in module["files"]
        )
        functions = tuple(FunctionCoverage(**function) for function in module["functions"])
        total = module["function_total"]
        details.append(ModuleCoverage(module["path"], module["detailed"], total, functions, files))
    edges = tuple(Edge(*edge) for edge in document["edges"])
    if any(not 0 <= n < len(modules) for edge in edges for n in (edge.module, edge.to_module)):
        raise ValueError("an edge is of a module that is not there")
    command, lost = tuple(document["command"]), tuple(document["lost"])
    flow = Flow(tuple(modules), edges, document["counted"], command, lost)
    contexts = tuple(_read_context(context) for context in document.get("contexts", ()))
    if any(len(context.modules) != len(modules) for context in contexts):
        raise ValueError("a context has other modules than there are")
    commands = tuple(tuple(words) for words in document.get("commands", ()))
    return Coverage(flow, tuple(details), contexts, commands)


def _read_context(context: dict[str, Any]) -> Context:
    executed = tuple(
        Executed(
            frozenset(module["functions"]),
            {path: frozenset(lines) for path, lines in module["files"].items()},
        )
        for module in context["modules"]
    )
    return Context(context["name"], executed, tuple(context["lost"]))


def _not_ours(path: str | Path, why: str) -> BadFile:
    advice = "write one with `weft cov --format json -o FILE -- COMMAND`"
    return BadFile(f"{path} is no coverage that weft has written", why, advice)
