"""The XML format of Cobertura, which GitLab, Jenkins, Azure and others show beside changes."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from pathlib import PurePath
from typing import BinaryIO
from xml.etree import ElementTree

from weft import __version__
from weft.tools.coverage import Branch, Coverage, FileCoverage, FunctionCoverage, Share

_HEAD = (
    '<?xml version="1.0" encoding="UTF-8"?>\n'
    '<!DOCTYPE coverage SYSTEM "http://cobertura.sourceforge.net/xml/coverage-04.dtd">\n'
)
_NOTHING = Share(0, 0)


def write(file: BinaryIO, coverage: Coverage) -> None:
    """Write a coverage to a file."""
    files = coverage.files()
    root = ElementTree.Element("coverage")
    # Paths are told from where the project is: the folder that all of it is in.
    base = _base([source.path for source, _ in files])
    sources = ElementTree.SubElement(root, "sources")
    ElementTree.SubElement(sources, "source").text = base
    packages = ElementTree.SubElement(root, "packages")
    folders: dict[str, list[tuple[FileCoverage, list[FunctionCoverage]]]] = defaultdict(list)
    for source, functions in files:
        folders[os.path.relpath(PurePath(source.path).parent, base)].append((source, functions))
    for folder, inside in sorted(folders.items()):
        package = ElementTree.SubElement(packages, "package", name=folder.replace("/", "."))
        _rates(package, [source for source, _ in inside])
        classes = ElementTree.SubElement(package, "classes")
        for source, functions in inside:
            _class(classes, source, functions, base)
    _rates(root, [source for source, _ in files])
    lines = sum((source.line_share for source, _ in files), _NOTHING)
    branches = sum((source.branch_share for source, _ in files), _NOTHING)
    for name, share in (("lines", lines), ("branches", branches)):
        root.set(f"{name}-covered", str(share.hit))
        root.set(f"{name}-valid", str(share.total))
    root.set("version", f"weft {__version__}")
    root.set("timestamp", str(int(time.time())))
    # A comment may not hold two hyphens in a row.
    notes = [f"incomplete: {text}" for text in coverage.flow.lost]
    for text in [*notes, *coverage.remarks()]:
        root.insert(0, ElementTree.Comment(f" {text.replace('--', '- -')} "))
    ElementTree.indent(root)
    file.write(_HEAD.encode() + ElementTree.tostring(root) + b"\n")


def _base(paths: list[str]) -> str:
    folders = [str(PurePath(path).parent) for path in paths if path.startswith("/")]
    return os.path.commonpath(folders) if folders else "."


def _rates(element: ElementTree.Element, sources: list[FileCoverage]) -> None:
    lines = sum((source.line_share for source in sources), _NOTHING)
    branches = sum((source.branch_share for source in sources), _NOTHING)
    element.set("line-rate", f"{lines.ratio:.4f}")
    element.set("branch-rate", f"{branches.ratio:.4f}")
    element.set("complexity", "0")


def _class(
    parent: ElementTree.Element,
    source: FileCoverage,
    functions: list[FunctionCoverage],
    base: str,
) -> None:
    path = os.path.relpath(source.path, base) if source.path.startswith("/") else source.path
    element = ElementTree.SubElement(parent, "class", name=PurePath(path).name, filename=path)
    _rates(element, [source])
    methods = ElementTree.SubElement(element, "methods")
    for function in functions:
        hit = "1.0" if function.count else "0.0"
        method = ElementTree.SubElement(methods, "method", name=function.name, signature="")
        for name, value in (("line-rate", hit), ("branch-rate", hit), ("complexity", "0")):
            method.set(name, value)
        inside = ElementTree.SubElement(method, "lines")
        number, hits = str(function.line or 0), str(function.count)
        ElementTree.SubElement(inside, "line", number=number, hits=hits, branch="false")
    branches: dict[int, list[Branch]] = defaultdict(list)
    for branch in source.branches:
        branches[branch.line].append(branch)
    lines = ElementTree.SubElement(element, "lines")
    for number_, count in source.lines.items():
        line = ElementTree.SubElement(lines, "line", number=str(number_), hits=str(count))
        ways = FileCoverage("", {}, tuple(branches[number_])).branch_share
        line.set("branch", "true" if ways.total else "false")
        if ways.total:
            percent = f"{ways.ratio:.0%} ({ways.hit}/{ways.total})"
            line.set("condition-coverage", percent)
