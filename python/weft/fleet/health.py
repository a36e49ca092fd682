"""How a machine is, by its own account: limits beyond which a host measures nothing.

The kernel says for what part of the last ten seconds something had to wait for a processor, for
memory or for a disk (``/proc/pressure``). That is what a machine in trouble has in common, whatever
the trouble is; and what measuring would add to.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from weft.errors import InvalidArgument

__all__ = ["RESOURCES", "Health", "pressure"]

RESOURCES = ("cpu", "memory", "io")
_FOLDER = Path("/proc/pressure")
_SOME = re.compile(r"^some avg10=([0-9]+\.[0-9]+) ", re.MULTILINE)


@dataclass(frozen=True)
class Health:
    """How much pressure a machine may be under; without limits it does not matter."""

    limits: tuple[tuple[str, float], ...] = ()
    """Each a resource, and the part of ten seconds for which something may wait for it."""

    def trouble(self) -> str:
        """Why nothing is to be measured now; empty if it may be."""
        for resource, limit in self.limits:
            found = pressure(resource)
            if found is None:
                return f"the kernel no longer says how much pressure on {resource} there is"
            if found > limit:
                shown = f"{100 * found:.3g}% of the time, and {100 * limit:.3g}% are allowed"
                return f"the machine is under pressure: processes wait for {resource} {shown}"
        return ""

    def check(self) -> None:
        """Raise an error if this kernel does not tell what there are limits of."""
        for resource, _ in self.limits:
            if pressure(resource) is None:
                raise InvalidArgument(
                    f"this kernel does not say how much pressure on {resource} there is",
                    f"there is no {_FOLDER / resource} that can be read",
                    "boot it with psi=1, or leave that limit out of [health]",
                )


def pressure(resource: str) -> float | None:
    """For what part of the last ten seconds something has waited; nothing if nobody knows."""
    try:
        found = _SOME.search((_FOLDER / resource).read_text())
    except OSError:
        return None
    return float(found[1]) / 100 if found else None
