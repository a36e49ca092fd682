"""What has changed between two profiles."""

from __future__ import annotations

from dataclasses import dataclass

from weft.tools.profile.result import Profile

__all__ = ["Change", "diff"]


@dataclass(frozen=True, slots=True)
class Change:
    """What one function cost in two profiles; 0 where it was not executed."""

    module: str
    """The name of its module."""
    name: str
    before: int
    """The instructions that it executed itself."""
    after: int
    calls_before: int
    calls_after: int
    inclusive_before: int
    inclusive_after: int


def diff(before: Profile, after: Profile) -> list[Change]:
    """Compare two profiles function by function; first what has changed most."""
    old, new = _by_name(before), _by_name(after)
    changes = []
    for module, name in old.keys() | new.keys():
        (own_old, calls_old, whole_old) = old.get((module, name), (0, 0, 0))
        (own_new, calls_new, whole_new) = new.get((module, name), (0, 0, 0))
        changes.append(
            Change(module, name, own_old, own_new, calls_old, calls_new, whole_old, whole_new)
        )
    return sorted(
        changes, key=lambda one: (-abs(one.after - one.before), -one.after, one.module, one.name)
    )


def _by_name(profile: Profile) -> dict[tuple[str, str], tuple[int, int, int]]:
    found: dict[tuple[str, str], tuple[int, int, int]] = {}
    for place, function in enumerate(profile.functions):
        if function.part_of is None:
            key = profile.modules[function.module].name, function.display_name
            own, calls, whole = found.get(key, (0, 0, 0))
            found[key] = (
                own + profile.self_counts[place],
                calls + profile.calls[place],
                whole + round(profile.inclusive_counts[place]),
            )
    return found
