"""From the blocks that were executed to functions, lines and branches."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress

from weft.errors import BadFile
from weft.model.flow import CodeModule, Flow
from weft.tools.coverage.choice import chooser, open_symbols
from weft.tools.coverage.parts import ModuleCoverage
from weft.tools.coverage.reading import ModuleReader
from weft.tools.coverage.result import Coverage
from weft.tools.lines import edges_of

__all__ = ["ModuleReaders", "cover"]


class ModuleReaders:
    """The readers of modules, each made once."""

    def __init__(
        self, root: str | None = None, open_paths: Mapping[str, str] | None = None
    ) -> None:
        self._root = root
        self._open_paths = open_paths or {}
        self._known: dict[tuple[str, str | None], ModuleReader | None] = {}

    def of(self, module: CodeModule) -> ModuleReader | None:
        """Return the reader of a module; ``None`` for code that no file has, or a file is gone."""
        key = module.path, module.build_id
        if key not in self._known:
            self._known[key] = self._opened(module)
        return self._known[key]

    def _opened(self, module: CodeModule) -> ModuleReader | None:
        for open_path in (None, self._open_paths.get(module.path)):
            with suppress(BadFile):
                return ModuleReader(open_symbols(module, self._root, open_path))
        return None


def cover(
    flow: Flow,
    *,
    patterns: Sequence[str] = (),
    program: str | None = None,
    directory: str | os.PathLike[str] | None = None,
    root: str | None = None,
    open_paths: Mapping[str, str] | None = None,
    readers: ModuleReaders | None = None,
) -> Coverage:
    """Find the functions, lines and branches of what was executed.

    Modules whose path or name matches one of ``patterns`` are looked at in detail. Without patterns
    these are all below ``directory``, or else the working directory; if there are none, it is the
    program itself: ``program``, or else the flow's command. ``root`` leads to the files of a
    process in another mount namespace: ``/proc/PID/root``. ``open_paths`` says where files are that
    are no longer at their paths. ``readers`` keep what was read of modules for the next flow.
    """
    if program is None and flow.command:
        found = shutil.which(flow.command[0])
        program = os.path.realpath(found) if found else None
    paths = [module.path for module in flow.modules]
    is_wanted = chooser(paths, patterns, program, directory)
    edges = edges_of(flow, [index for index, path in enumerate(paths) if is_wanted(path)])
    known = readers or ModuleReaders(root, open_paths)
    modules = []
    for index, module in enumerate(flow.modules):
        reader, is_detailed = known.of(module), index in edges
        if reader is None:
            modules.append(ModuleCoverage(module.path, is_detailed, 0, (), ()))
            continue
        modules.append(reader.cover(flow, index, edges.get(index)))
    return Coverage(flow, tuple(modules))
