"""Before runs are added up: which of their modules are the same, and what is known of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from weft.tools.coverage.covering import ModuleReaders
from weft.tools.coverage.parts import Executed, ModuleCoverage
from weft.tools.coverage.result import Coverage
from weft.tools.lines import edges_of

__all__ = ["alike", "same_modules"]


def same_modules(coverages: Sequence[Coverage]) -> list[list[tuple[int, int]]]:
    """Return the modules of several runs, each as the run and the place that it has there.

    A build is the same wherever its file is. Where nothing identifies a build, a file of the same
    path is the same unless another function is somewhere in it.
    """
    groups: list[list[tuple[int, int]]] = []
    by_build: dict[str, list[tuple[int, int]]] = {}
    by_path: dict[str, list[list[tuple[int, int]]]] = {}
    unidentified: list[tuple[int, int]] = []
    for run, coverage in enumerate(coverages):
        for place, module in enumerate(coverage.flow.modules):
            if module.build_id is None:
                unidentified.append((run, place))
                continue
            group = by_build.get(module.build_id)
            if group is None:
                group = by_build[module.build_id] = []
                groups.append(group)
            if group not in by_path.setdefault(module.path, []):
                by_path[module.path].append(group)
            group.append((run, place))
    for run, place in unidentified:
        path = coverages[run].flow.modules[place].path
        same = by_path.setdefault(path, [])
        for group in same:
            others = [coverages[other].modules[at] for other, at in group]
            if not any(_differ(coverages[run].modules[place], other) for other in others):
                group.append((run, place))
                break
        else:
            same.append([(run, place)])
            groups.append(same[-1])
    return sorted((sorted(group) for group in groups), key=lambda group: group[0])


def _differ(one: ModuleCoverage, other: ModuleCoverage) -> bool:
    """Whether two modules have different functions at the same place."""
    functions = {function.offset: (function.name, function.size) for function in one.functions}
    return any(
        functions.get(function.offset, (function.name, function.size))
        != (function.name, function.size)
        for function in other.functions
    )


def alike(
    coverages: Sequence[Coverage], groups: Sequence[Sequence[tuple[int, int]]]
) -> list[Coverage]:
    """Return the runs with the lines of each module known in all, if they are known in one.

    A run may have looked at a library more closely than another. What cannot be found out now is
    said to be missing.
    """
    found = list(coverages)
    readers = ModuleReaders()
    for group in groups:
        if not any(coverages[run].modules[place].files for run, place in group):
            continue
        for run, place in group:
            coverage = found[run]
            module = coverage.modules[place]
            if module.files or not module.function_share.hit:
                continue
            details = _detailed(coverage, place, readers)
            found[run] = (
                _without_lines(coverage, place)
                if details is None
                else _with_lines(coverage, place, details)
            )
    return found


def _detailed(coverage: Coverage, place: int, readers: ModuleReaders) -> ModuleCoverage | None:
    module = coverage.flow.modules[place]
    reader = readers.of(module) if module.blocks else None
    if reader is None:
        return None
    details = reader.cover(coverage.flow, place, edges_of(coverage.flow, [place])[place])
    return details if details.files else None


def _with_lines(coverage: Coverage, place: int, details: ModuleCoverage) -> Coverage:
    modules = list(coverage.modules)
    modules[place] = details
    changed = replace(coverage, modules=tuple(modules))
    if len(coverage.contexts) > 1:
        # Whose lines they are is not known.
        text = f"lines of {details.name} are missing: they were not looked at"
        return replace(
            changed,
            contexts=tuple(
                replace(one, lost=(*one.lost, text)) if one.modules[place].functions else one
                for one in coverage.contexts
            ),
        )
    contexts = []
    for context in coverage.contexts:
        executed = list(context.modules)
        executed[place] = Executed.of(details)
        contexts.append(replace(context, modules=tuple(executed)))
    return replace(changed, contexts=tuple(contexts))


def _without_lines(coverage: Coverage, place: int) -> Coverage:
    name, command = coverage.modules[place].name, " ".join(coverage.flow.command)
    why = (
        "the file is gone or another now"
        if coverage.flow.modules[place].blocks
        else "only its functions were recorded"
    )
    text = f"lines of {name} that {command} has executed are missing: {why}"
    contexts = tuple(
        replace(one, lost=(*one.lost, text)) if one.modules[place].functions else one
        for one in coverage.contexts
    )
    flow = replace(coverage.flow, lost=(*coverage.flow.lost, text))
    return replace(coverage, flow=flow, contexts=contexts)
