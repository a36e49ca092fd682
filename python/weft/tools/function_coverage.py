"""Which functions a process executes, by probes at their entries that go once they are hit.

This is coverage for production: the process runs its own code, and after a while nothing of it is
slower than it was, because only probes that were never reached are left.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace

from weft.control.probes import Probe
from weft.control.probing import Probing
from weft.errors import BadFile, InvalidArgument
from weft.model.losses import sentences
from weft.model.points import Point
from weft.model.program import Module
from weft.tools.coverage import Coverage, FunctionCoverage, ModuleCoverage, functions_only
from weft.tools.coverage.choice import chooser, is_startup

__all__ = ["FunctionRecorder"]

_SNIPPET = "counter hits; hits += 1"
_TOGETHER = 512
"""How many entries share a probe: what is woven again when one of them is hit."""


class FunctionRecorder:
    """Records which functions of some modules are entered, or with ``counts`` how often.

    Libraries that are loaded later are found by :meth:`sweep`, which is to be called now and then:
    it also takes out the probes of functions that were hit.
    """

    def __init__(
        self, session: Probing, patterns: tuple[str, ...] = (), *, counts: bool = False
    ) -> None:
        self._session = session
        paths = [module.path for module in session.modules()]
        self._is_wanted = chooser(paths, patterns, session.program())
        self._counts = counts
        self._command = session.command()
        # What they are is read while the process is there: its files may be out of reach later.
        self._modules: dict[tuple[str, int], tuple[Module, list[FunctionCoverage]]] = {}
        self._probes: list[Probe] = []
        self._hits: Counter[int] = Counter()
        """How often the function at an address was entered, as told by probes that are gone."""
        self._refused: set[int] = set()
        self._follow()
        if not self._modules:
            names = ", ".join(module.name for module in session.modules())
            raise InvalidArgument(
                "there is no module to record", f"the process has {names}", "choose with --module"
            )

    @property
    def refused(self) -> int:
        """How many functions could not be given a probe: of these nothing is said."""
        return len(self._refused)

    def sweep(self) -> int:
        """Take out the probes of functions that were hit; return how many probes are left."""
        self._follow()
        if self._counts:
            return sum(len(probe.points) for probe in self._probes)
        kept: list[Probe] = []
        for probe in self._probes:
            values = probe.values(process="all")
            waiting = [point for point, count in values.items() if not count]
            if len(waiting) == len(values):
                kept.append(probe)
                continue
            # First the new one, so that no entry is missed in between.
            if waiting:
                kept.append(self._session.insert(waiting, _SNIPPET))
            probe.remove()
            self._take(probe)
        self._probes = kept
        return sum(len(probe.points) for probe in kept)

    def coverage(self) -> Coverage:
        """Return what was entered so far; reading stops nothing."""
        # What they enter while they are waited for belongs to it.
        outlived = self._session.survivors()
        hits = Counter(self._hits)
        for probe in self._probes:
            for point, count in probe.values(process="all").items():
                hits[point.address] += count
        modules = []
        for module, functions in self._modules.values():
            covered = []
            for function in functions:
                address = module.bias + function.offset
                if address in self._refused:
                    continue
                count = hits[address]
                covered.append(replace(function, count=count if self._counts else min(count, 1)))
            modules.append(ModuleCoverage(module.path, True, len(covered), tuple(covered), ()))
        builds = [module.symbols.build_id for module, _ in self._modules.values()]
        found = functions_only(modules, self._command, is_counted=self._counts, build_ids=builds)
        lost = sentences([("outlived", outlived)] if outlived else [])
        return replace(found, flow=replace(found.flow, lost=lost))

    def _take(self, probe: Probe) -> None:
        for point, count in probe.values(process="all").items():
            self._hits[point.address] += count

    def _follow(self) -> None:
        """Put probes into modules that are new."""
        for module in self._session.modules():
            key = module.path, module.bias
            if key in self._modules or not self._is_wanted(module.path):
                continue
            try:
                functions = _functions(module)
            except BadFile:
                continue
            self._modules[key] = module, functions
            points = [
                Point("entry", module.bias + function.offset, function.name, module.name)
                for function in functions
            ]
            for first in range(0, len(points), _TOGETHER):
                probe = self._session.insert(points[first : first + _TOGETHER], _SNIPPET)
                self._refused.update(refusal.point.address for refusal in probe.refused)
                self._probes.append(probe)


def _functions(module: Module) -> list[FunctionCoverage]:
    """The functions of a module, none of them executed yet."""
    functions = [
        function
        for function in module.functions()
        if function.kind != "plt" and not is_startup(function.name)
    ]
    sources = module.symbols.sources([function.index for function in functions])
    return [
        FunctionCoverage(
            function.display_name,
            function.offset,
            function.size,
            0,
            *((os.path.normpath(source[0]), source[1]) if source else (None, None)),
        )
        for function, source in zip(functions, sources, strict=True)
    ]
