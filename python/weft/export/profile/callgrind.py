"""Callgrind's format, for KCachegrind, QCachegrind and ``callgrind_annotate``.

It is described in the manual of Valgrind, "Callgrind Format Specification".
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import BinaryIO

from weft import __version__
from weft.base.numbers import printable
from weft.model.flow import Edge
from weft.tools.callgraph import INDIRECT
from weft.tools.profile import CallSite, Profile, ProfiledBlock

_NO_FILE = "???"


def write(file: BinaryIO, profile: Profile) -> None:
    """Write the counts of all instructions, with their lines, and the calls between functions."""
    text = "\n".join([*_head(profile), *_functions(profile), ""])
    file.write(text.encode())


def _head(profile: Profile) -> Iterator[str]:
    yield "# callgrind format"
    yield "version: 1"
    yield f"creator: weft {__version__}"
    yield f"cmd: {_one_line(' '.join(profile.command))}"
    yield "desc: Self counts are exact, inclusive ones are attributed by exact numbers of calls."
    yield "positions: instr line"
    yield "events: Ir"
    yield f"summary: {profile.total}"
    yield ""


def _functions(profile: Profile) -> Iterator[str]:
    blocks: dict[int, list[ProfiledBlock]] = defaultdict(list)
    for block in profile.blocks:
        blocks[profile.owner(block.function)].append(block)
    sites: dict[int, list[CallSite]] = defaultdict(list)
    for site in profile.call_sites:
        sites[site.caller].append(site)
    jumps: dict[int, list[Edge]] = defaultdict(list)
    for edge in profile.edges:
        if (source := profile.block_at(edge.module, edge.source)) is not None:
            jumps[profile.owner(source.function)].append(edge)
    for function in profile.hottest_functions():
        if function in blocks:
            parts = blocks[function], sites[function], jumps[function]
            yield from _function(profile, function, *parts)
    if profile.indirect_calls:
        yield f"ob={_NO_FILE}"
        yield f"fl={_NO_FILE}"
        yield "fn=[indirect]"
        for callee, count in sorted(profile.indirect_calls.items()):
            cost = round(profile.graph.share(INDIRECT, callee))
            yield from _call(profile, callee, count, "0x0 0", cost)
        yield ""


def _function(
    profile: Profile,
    place: int,
    blocks: list[ProfiledBlock],
    sites: list[CallSite],
    jumps: list[Edge],
) -> Iterator[str]:
    function = profile.functions[place]
    own = function.file or _NO_FILE
    yield f"ob={_one_line(profile.modules[function.module].path)}"
    yield f"fl={_one_line(own)}"
    yield f"fn={_name(profile, place)}"
    current = own
    for block in blocks:
        for offset, cost, file, line in _instructions(profile, block, function.module):
            if (file or own) != current:
                current = file or own
                yield f"{'fe' if current == own else 'fi'}={_one_line(current)}"
            yield f"{offset:#x} {line} {cost}"
    if current != own:
        yield f"fe={_one_line(own)}"
    yield from _jumps(profile, place, jumps)
    for site in sites:
        number = _line(profile, site.module, site.offset, place)
        whole = profile.graph.calls[site.caller, site.callee]
        cost = round(profile.graph.share(site.caller, site.callee) * site.count / whole)
        yield from _call(profile, site.callee, site.count, f"{site.offset:#x} {number}", cost)
    yield ""


def _instructions(
    profile: Profile, block: ProfiledBlock, module: int
) -> Iterator[tuple[int, int, str, int]]:
    """The offset, count, file and line of each instruction."""
    function = profile.functions[block.function]
    whole = profile.functions[profile.owner(block.function)]
    if function.module != module:
        # A stub in another module has no address in this one.
        yield whole.offset, block.cost, "", whole.line or 0
        return
    listing = block.listing()
    if not listing:
        yield block.offset, block.cost, "", whole.line or 0
    for offset, _, _ in listing:
        line = block.line_at(offset)
        yield offset, block.count, line.file if line else "", line.line if line else 0


def _jumps(profile: Profile, place: int, edges: list[Edge]) -> Iterator[str]:
    """The jumps within a function, which KCachegrind draws beside the instructions."""
    module = profile.functions[place].module
    executed: Counter[int] = Counter()
    for edge in edges:
        executed[edge.source] += edge.count
    for edge in edges:
        target = profile.block_at(edge.to_module, edge.target)
        is_inside = target is not None and profile.owner(target.function) == place
        if edge.kind not in ("jump", "taken") or edge.module != module or not is_inside:
            continue
        count = str(edge.count)
        if edge.kind == "taken":
            count += f"/{executed[edge.source]}"
        kind = "jcnd" if edge.kind == "taken" else "jump"
        yield f"{kind}={count} {edge.target:#x} {_line(profile, module, edge.target, place)}"
        yield f"{edge.source:#x} {_line(profile, module, edge.source, place)}"


def _line(profile: Profile, module: int, offset: int, place: int) -> int:
    """The line of an instruction, as far as it is in its function's own file."""
    function = profile.functions[place]
    block = profile.block_at(module, offset)
    line = block.line_at(offset) if block is not None else None
    return line.line if line and line.file == function.file else function.line or 0


def _call(profile: Profile, callee: int, count: int, source: str, cost: int) -> Iterator[str]:
    function = profile.functions[callee]
    yield f"cob={_one_line(profile.modules[function.module].path)}"
    yield f"cfi={_one_line(function.file or _NO_FILE)}"
    yield f"cfn={_name(profile, callee)}"
    yield f"calls={count} {function.offset:#x} {function.line or 0}"
    yield f"{source} {cost}"


def _name(profile: Profile, place: int) -> str:
    """The name of a function; callgrind tells functions of one file apart by it alone."""
    function = profile.functions[place]
    mark = f"/{function.local_number}" if function.local_number > 1 else ""
    return _one_line(function.display_name) + mark


def _one_line(text: str) -> str:
    return printable(" ".join(text.split())) or _NO_FILE
