"""The coverage of a program as a whole."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass

from weft.model.flow import NO_FILE, CodeModule, Flow
from weft.tools.coverage.adding import adder, shared_file, shared_functions
from weft.tools.coverage.parts import (
    Context,
    FileCoverage,
    FunctionCoverage,
    ModuleCoverage,
    Share,
)

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
    commands: tuple[tuple[str, ...], ...] = ()
    """The different commands of the runs that were added up; none if there is only one."""

    @property
    def runs(self) -> tuple[tuple[str, ...], ...]:
        """The different commands that were executed."""
        return self.commands or (self.flow.command,)

    @property
    def is_counted(self) -> bool:
        """Whether counts say how often; if not, they are 0 or 1."""
        return self.flow.is_counted

    def shown_modules(self) -> list[ModuleCoverage]:
        """Return the modules that there is something to say of."""
        return [module for module in self.modules if module.function_share.hit or module.files]

    def named_modules(self) -> list[tuple[str, ModuleCoverage]]:
        """Return the modules to be shown, those first that are looked at in detail.

        Each has the name of its file, or the path, or the path and the build: whatever tells it
        from the others.
        """
        shown = [
            (module, place.build_id)
            for module, place in zip(self.modules, self.flow.modules, strict=True)
            if module.function_share.hit or module.files
        ]
        names = Counter(module.name for module, _ in shown)
        paths = Counter(module.path for module, _ in shown)

        def label(module: ModuleCoverage, build_id: str | None) -> str:
            if names[module.name] == 1:
                return module.name
            if paths[module.path] == 1:
                return module.path
            return f"{module.path} (build {build_id[:8] if build_id else 'unknown'})"

        shown.sort(key=lambda one: not one[0].is_detailed)
        return [(label(module, build_id), module) for module, build_id in shown]

    def totals(self) -> tuple[Share, Share, Share]:
        """Return how many functions, lines and ways from branches were executed of all.

        All is what is looked at in detail, with nothing counted twice that several modules have.
        """
        nothing = Share(0, 0)
        files = [file for file, _ in self.files()]
        return (
            Share.of(function.count for _, function in self.functions()),
            sum((file.line_share for file in files), nothing),
            sum((file.branch_share for file in files), nothing),
        )

    def remarks(self) -> list[str]:
        """Return what is to be known of the numbers where modules may not be what they seem."""
        builds = Counter(module.path for module, _ in self._used() if module.path != NO_FILE)
        found = [
            f"{path} was executed in {number} builds, which are listed apart; of a source file "
            "that several have, counts of lines of the same number add up"
            for path, number in builds.items()
            if number > 1
        ]
        where: dict[str, set[str]] = defaultdict(set)
        for _, details in self._used():
            for file in details.files:
                if not file.path.startswith("/"):
                    where[file.path].add(details.path)
        shared = sorted(path for path, modules in where.items() if len(modules) > 1)
        if shared:
            more = f" and {len(shared) - 1} more" if len(shared) > 1 else ""
            found.append(
                f"several modules have a source file {shared[0]}{more} without its folder: it is "
                "taken for the same"
            )
        return found

    def _used(self) -> list[tuple[CodeModule, ModuleCoverage]]:
        return [
            (module, details)
            for module, details in zip(self.flow.modules, self.modules, strict=False)
            if details.function_share.hit or details.files
        ]

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
