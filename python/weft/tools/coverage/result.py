"""The coverage of a program as a whole."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from weft.model.flow import Flow
from weft.tools.coverage.adding import adder, shared_file, shared_functions
from weft.tools.coverage.parts import Context, FileCoverage, FunctionCoverage, ModuleCoverage

__all__ = ["Coverage"]


@dataclass(frozen=True)
class Coverage:
    """What was executed of a program, by blocks, functions, lines and branches."""

    flow: Flow
    """Its blocks and the ways between them."""
    modules: tuple[ModuleCoverage, ...]
    """In the order of the modules of the flow."""
    contexts: tuple[Context, ...] = ()
    """What of it was executed under which name; none if no names were given."""

    @property
    def is_counted(self) -> bool:
        """Whether counts say how often; if not, they are 0 or 1."""
        return self.flow.is_counted

    def shown_modules(self) -> list[ModuleCoverage]:
        """Return the modules that there is something to say of."""
        return [module for module in self.modules if module.function_share.hit or module.files]

    def files(self) -> list[tuple[FileCoverage, list[FunctionCoverage]]]:
        """Return the source files of all modules, each once, with the functions in it.

        What several modules have of one file is one: a function by its name and line, a branch by
        its place among those of its line.
        """
        by_path: dict[str, list[FileCoverage]] = defaultdict(list)
        functions: dict[str, list[FunctionCoverage]] = defaultdict(list)
        for module in self.modules:
            for file in module.files:
                by_path[file.path].append(file)
            for function in module.functions:
                if function.file is not None and module.is_detailed:
                    functions[function.file].append(function)
        add = adder(self.is_counted)
        return [
            (shared_file(path, by_path[path], add), shared_functions(functions[path], add))
            for path in sorted({*by_path, *functions})
        ]

    def functions(self) -> list[tuple[ModuleCoverage, FunctionCoverage]]:
        """Return the functions of modules that are looked at in detail, each once.

        Each comes with one of the modules that have it.
        """
        found: list[tuple[ModuleCoverage, FunctionCoverage]] = []
        modules: dict[tuple[str, int | None, str], ModuleCoverage] = {}
        for module in self.modules:
            for function in module.functions if module.is_detailed else ():
                if function.file is None:
                    found.append((module, function))
                else:
                    modules.setdefault((function.file, function.line, function.name), module)
        return found + [
            (modules[path.path, function.line, function.name], function)
            for path, functions in self.files()
            for function in functions
        ]
