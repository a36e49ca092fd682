"""BOLT's fdata: branches with their counts, from which ``llvm-bolt`` lays out a program anew.

Each line is a branch: 1, the function and the offset in it (in hexadecimal digits) that it leaves,
the same of where it leads, how often it was mispredicted, and how often it was taken. Where a
branch comes from is "0 [unknown] 0" when that is not known. Ways on without a branch are listed
like branches, as BOLT's own instrumentation does.
"""

from __future__ import annotations

from collections import Counter
from typing import BinaryIO

from weft.tools.profile import Profile, ProfiledBlock

_UNKNOWN = "0 [unknown] 0"


def write(file: BinaryIO, profile: Profile) -> None:
    """Write the branches of the program itself: BOLT works on one file."""
    main = _program(profile)
    branches: Counter[tuple[str, str]] = Counter()
    # All of them at once: each edge asks for two.
    blocks = tuple(profile.blocks)
    for edge, (left, come_to) in zip(profile.edges, profile.rows.ends(), strict=True):
        source = _UNKNOWN if left is None else _place(profile, blocks[left], edge.source, main)
        target = (
            _UNKNOWN if come_to is None else _place(profile, blocks[come_to], edge.target, main)
        )
        if _UNKNOWN not in (source, target):
            branches[source, target] += edge.count
    for number, count in profile.indirect_calls.items():
        function = profile.functions[number]
        block = profile.block_at(function.module, function.offset)
        target = _UNKNOWN if block is None else _place(profile, block, function.offset, main)
        if target != _UNKNOWN:
            branches[_UNKNOWN, target] += count
    lines = [f"{source} {target} 0 {count}\n" for (source, target), count in branches.items()]
    file.write("".join(sorted(lines)).encode())


def _program(profile: Profile) -> int:
    """The module of the program: the one with the command's name, else the first that may be it.

    A command is often the name of a link to its program.
    """
    name = profile.command[0].rpartition("/")[2] if profile.command else ""
    names = [module.name for module in profile.modules]
    likely = [one for one in names if not one.startswith("[") and ".so" not in one]
    for wanted in (name, *likely, *names):
        if wanted in names:
            return names.index(wanted)
    return 0


def _place(profile: Profile, block: ProfiledBlock, offset: int, main: int) -> str:
    function = profile.functions[block.function]
    if function.module != main or function.name.startswith("["):
        return _UNKNOWN
    name = function.name.replace("@plt", "@PLT")
    if function.local_number and not name.endswith("@PLT"):
        # So BOLT tells functions apart that only their own source files see.
        name = f"{name}/{function.local_number}"
    return f"1 {name} {offset - function.offset:x}"
