"""The modules of a crate and what each imports, from its `use` lines and its paths.

Importing a re-exported name imports the module that defines it, and re-exporting what is below a
module is no import: a root that collects the public names is in no circle. Code under
`#[cfg(test)]` does not count.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_STRING = re.compile(r'"(?:\\.|[^"\\])*"', re.DOTALL)
_USE = re.compile(r"(\bpub(?:\([^)]*\))?\s+)?\buse\s+([^;]+);")
_PATH = re.compile(r"\b(?:crate|super|self)(?:::\w+)+")
_TEST = re.compile(r"#\[cfg\((?:all\()?test\b[^\]]*\]\s*(?:#\[[^\]]*\]\s*)*")
_TEST_MODULE = re.compile(_TEST.pattern + r"(?:pub(?:\([^)]*\))?\s+)?mod\s+(\w+)\s*;")
_DEFINED = re.compile(r"\b(?:struct|enum|union)\s+(\w+)")
_INHERENT = re.compile(
    r"^impl(?:<[^{;]*?>)?\s+(\w+)(?:<[^{;]*?>)?\s*(?:where[^{]*)?\{", re.MULTILINE
)

Segments = tuple[str, ...]


@dataclass
class Module:
    """One file of a crate."""

    name: str
    file: Path
    text: str
    names: dict[str, Segments] = field(default_factory=dict)
    """What a `use` line gives a name to: the path behind the name."""
    paths: list[Segments] = field(default_factory=list)
    """The paths that it uses itself, from the crate's root."""


@dataclass
class Crate:
    """A crate's modules by name; the root is the empty name."""

    modules: dict[str, Module]

    @staticmethod
    def read(sources: Path) -> "Crate":
        """The crate whose `lib.rs` is in a folder."""
        modules = {}
        tests: set[str] = set()
        for file in sorted(sources.rglob("*.rs")):
            parts = file.relative_to(sources).with_suffix("").parts
            if parts[-1] in ("mod", "lib", "main"):
                parts = parts[:-1]
            text = _STRING.sub('""', _COMMENT.sub("", file.read_text()))
            name = "::".join(parts)
            tests.update("::".join((*parts, test)) for test in _TEST_MODULE.findall(text))
            modules[name] = Module(name, file, _without_tests(text))
        for name in list(modules):
            if any(name == test or name.startswith(f"{test}::") for test in tests):
                del modules[name]
        crate = Crate(modules)
        for module in modules.values():
            crate._read_paths(module)
        return crate

    def _read_paths(self, module: Module) -> None:
        here = tuple(module.name.split("::")) if module.name else ()
        for public, tree in _USE.findall(module.text):
            for written, name in _leaves(" ".join(tree.split())):
                path = self._from_root(here, written)
                if path is None:
                    continue
                if name:
                    module.names[name] = path
                if not (public and path[: len(here)] == here):
                    module.paths.append(path)
        for match in _PATH.findall(_USE.sub("", module.text)):
            if path := self._from_root(here, match):
                module.paths.append(path)
        for first, rest in re.findall(
            r"(?<![:\w])([a-z_]\w*)((?:::\w+)+)", _USE.sub("", module.text)
        ):
            if "::".join((*here, first)) in self.modules:
                module.paths.append((*here, first, *rest[2:].split("::")))

    def _from_root(self, here: Segments, written: str) -> Segments | None:
        first, *rest = written.split("::")
        path: Segments
        if first == "crate":
            path = tuple(rest)
        elif first == "self":
            path = (*here, *rest)
        elif first == "super":
            up = here[:-1]
            while rest and rest[0] == "super":
                up, rest = up[:-1], rest[1:]
            path = (*up, *rest)
        elif "::".join((*here, first)) in self.modules:
            path = (*here, first, *rest)
        else:
            return None
        return path

    def owner(self, path: Segments, depth: int = 0) -> str:
        """The module that defines what a path names."""
        at = ""
        for number, segment in enumerate(path):
            inner = f"{at}::{segment}" if at else segment
            if inner in self.modules:
                at = inner
                continue
            behind = self.modules[at].names.get(segment)
            if behind is not None and depth < 20:
                return self.owner((*behind, *path[number + 1 :]), depth + 1)
            break
        return at

    def imports(self) -> dict[str, set[str]]:
        """What each module imports. The declaration of a submodule is no import."""
        found: dict[str, set[str]] = {}
        for module in self.modules.values():
            owners = {self.owner(path) for path in module.paths}
            found[module.name] = owners - {module.name}
        return found

    def strangers(self) -> Iterator[tuple[str, str, str]]:
        """Inherent `impl` blocks outside the module of their type: module, type, its module."""
        homes = {
            (module.name, name)
            for module in self.modules.values()
            for name in _DEFINED.findall(module.text)
        }
        for module in self.modules.values():
            for name in _INHERENT.findall(module.text):
                if (module.name, name) not in homes and name in module.names:
                    home = self.owner(module.names[name])
                    if home != module.name:
                        yield module.name, name, home


def circles(imports: dict[str, set[str]]) -> list[list[str]]:
    """Modules that import each other, directly or not: each group once."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    groups: list[list[str]] = []

    def visit(module: str) -> None:
        order[module] = low[module] = len(order)
        stack.append(module)
        for other in sorted(imports[module]):
            if other not in order:
                visit(other)
                low[module] = min(low[module], low[other])
            elif other in stack:
                low[module] = min(low[module], order[other])
        if low[module] == order[module]:
            at = stack.index(module)
            group = stack[at:]
            del stack[at:]
            if len(group) > 1:
                groups.append(sorted(group))

    for module in imports:
        if module not in order:
            visit(module)
    return sorted(groups)


def _without_tests(text: str) -> str:
    """The text without the items under `#[cfg(test)]`."""
    while match := _TEST.search(text):
        end = match.end()
        brace, semicolon = text.find("{", end), text.find(";", end)
        if brace < 0 or 0 <= semicolon < brace:
            text = text[: match.start()] + text[semicolon + 1 if semicolon >= 0 else len(text) :]
            continue
        depth = 0
        for at in range(brace, len(text)):
            depth += (text[at] == "{") - (text[at] == "}")
            if depth == 0:
                break
        text = text[: match.start()] + text[at + 1 :]
    return text


def _leaves(tree: str, before: str = "") -> Iterator[tuple[str, str | None]]:
    """The paths of a `use` tree, each with the name that it gets; `None` for a glob."""
    tree = tree.strip()
    brace = tree.find("{")
    if brace < 0:
        path, _, name = tree.partition(" as ")
        path = before + path.strip()
        if path.endswith("::self"):
            path = path.removesuffix("::self")
        if path.endswith("::*"):
            yield path.removesuffix("::*"), None
        else:
            yield path, name.strip() or path.rsplit("::", 1)[-1]
        return
    head, body = before + tree[:brace], tree[brace + 1 : tree.rfind("}")]
    depth, start = 0, 0
    for at, char in enumerate(body + ","):
        if char == "," and depth == 0:
            if body[start:at].strip():
                yield from _leaves(body[start:at], head)
            start = at + 1
        depth += (char == "{") - (char == "}")
