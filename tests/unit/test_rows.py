"""What the compiled core sums up of a profile's rows, held against the same done row by row."""

from __future__ import annotations

import json
import pickle
import random
from collections import Counter
from dataclasses import replace
from io import BytesIO

import pytest

from weft._native import FlowRows
from weft.export.profile import json as profile_json
from weft.model.flow import Block, CodeModule, Edge, EdgeKind, Flow, blocks_of, edges_of
from weft.tools.profile import (
    Profile,
    ProfiledBlock,
    ProfiledFunction,
    ProfiledModule,
    SourceLine,
)

KINDS: tuple[EdgeKind, ...] = ("fall", "taken", "jump", "call")
HUGE = (1 << 64) - 1


def thought_up(seed: int) -> Profile:
    """Random functions in two modules, with blocks of no-ops, and edges that lead anywhere."""
    chance = random.Random(seed)
    functions: list[ProfiledFunction] = []
    blocks: list[ProfiledBlock] = []
    places: list[tuple[int, int]] = []
    for module in range(2):
        offset = 0x1000
        for number in range(chance.randrange(1, 12)):
            start = offset
            for _ in range(chance.randrange(6)):
                size = chance.randrange(1, 9)
                files = chance.choices(["a.c", "b.c", ""], k=chance.randrange(4))
                lines = tuple(
                    SourceLine(offset + at, file, chance.randrange(1, 5) if file else 0)
                    for at, file in enumerate(files)
                )
                count = chance.choice([1, 7, 1 << 40, HUGE])
                instructions = chance.choice([size, size, 1 << 31]) if not lines else size
                blocks.append(
                    ProfiledBlock(
                        len(functions), offset, size, instructions, count, b"\x90" * size, lines
                    )
                )
                places.append((module, offset))
                offset += size + chance.randrange(3)
            functions.append(
                ProfiledFunction(module, f"f{number}", None, start, 0, 0, None, None, None)
            )
            offset += 1
    for place in chance.sample(range(len(functions)), len(functions) // 4):
        whole = chance.randrange(len(functions))
        is_whole = functions[whole].part_of is None
        if whole != place and is_whole and not any(one.part_of == place for one in functions):
            functions[place] = replace(functions[place], part_of=whole)
    edges = []
    for _ in range(60 if places else 0):
        (module, source), (to_module, target) = chance.choices(places, k=2)
        target += chance.choice([0, 0, 0, 1, 50])
        kind = chance.choice(KINDS)
        edges.append(Edge(module, source, to_module, target, kind, chance.choice([1, 9, HUGE])))
    modules = tuple(ProfiledModule(f"/m{number}", None, 0) for number in range(2))
    return Profile(("prog",), modules, tuple(functions), tuple(blocks), tuple(edges), ())


def containing(profile: Profile, module: int, offset: int) -> ProfiledBlock | None:
    for block in profile.blocks:
        is_there = profile.functions[block.function].module == module
        if is_there and block.offset <= offset < block.offset + block.size:
            return block
    return None


@pytest.mark.parametrize("seed", range(40))
def test_sums_are_those_of_all_rows(seed: int) -> None:
    profile = thought_up(seed)
    own: Counter[int] = Counter()
    lines: Counter[tuple[int, str, int]] = Counter()
    entered: Counter[int] = Counter()
    for block in profile.blocks:
        owner = profile.owner(block.function)
        function = profile.functions[block.function]
        own[owner] += block.cost
        if function.part_of is None and block.offset == function.offset:
            entered[block.function] += block.count
        for offset, _, _ in block.listing() if block.lines else ():
            line = block.line_at(offset)
            lines[(owner, line.file, line.line) if line else (owner, "", 0)] += block.count
        if not block.lines:
            lines[owner, "", 0] += block.cost
    assert profile.self_counts == tuple(own[place] for place in range(len(profile.functions)))
    assert profile.total == sum(profile.module_counts) == sum(own.values())
    assert profile.line_counts == lines
    calls: Counter[tuple[int, int]] = Counter()
    sites = []
    for edge in profile.edges:
        source = containing(profile, edge.module, edge.source)
        target = containing(profile, edge.to_module, edge.target)
        if source is None or target is None:
            continue
        caller, callee = profile.owner(source.function), profile.owner(target.function)
        is_entry = edge.target == profile.functions[target.function].offset
        if is_entry and (target.function == callee or caller != callee or edge.kind == "call"):
            entered[callee] -= edge.count
        if edge.kind == "call" or caller != callee:
            calls[caller, callee] += edge.count
            sites.append((caller, edge.module, edge.source, callee, edge.count))
    indirect = {place: count for place, count in entered.items() if count > 0}
    assert profile.indirect_calls == indirect
    known = {pair: count for pair, count in profile.graph.calls.items() if pair[0] >= 0}
    assert known == calls
    found = [(s.caller, s.module, s.offset, s.callee, s.count) for s in profile.call_sites]
    assert found == sites
    ranked = sorted(profile.blocks, key=lambda block: -block.cost)
    assert profile.hottest_blocks() == ranked
    assert profile.hottest_blocks(5) == ranked[:5]
    for block in ranked[:5]:
        inside = range(block.offset, block.offset + block.size)
        module = profile.module_of(block)
        assert profile.ways_on(block) == [
            edge for edge in profile.edges if edge.module == module and edge.source in inside
        ]


@pytest.mark.parametrize("seed", range(10))
def test_rows_are_written_as_json_writes_them(seed: int) -> None:
    profile = thought_up(seed)
    file = BytesIO()
    profile_json.write(file, profile)
    document = json.loads(file.getvalue())
    files = document["files"]
    assert document["edges"] == [edge._asdict() for edge in profile.edges]
    expected = []
    for block in profile.blocks:
        places = [[line.offset, files.index(line.file), line.line] for line in block.lines]
        expected.append(block._asdict() | {"code": block.code.hex(), "lines": places})
    assert document["blocks"] == expected


def test_blocks_in_any_order_are_found() -> None:
    profile = thought_up(3)
    turned = replace(profile, blocks=tuple(reversed(profile.blocks)))
    assert turned.graph.calls == profile.graph.calls
    assert turned.indirect_calls == profile.indirect_calls


def test_rows_of_the_core_are_like_a_tuple() -> None:
    blocks = [Block(16 * at, 8, 2, at) for at in range(5)]
    edges = [Edge(1, 7, 0, 16, "jump", 3), Edge(0, 7, 0, 16, "call", HUGE)]
    core = FlowRows.of([blocks, blocks[:1]], edges)
    found = blocks_of(core, 0)
    assert found == tuple(blocks)
    assert tuple(blocks) == found
    assert found != tuple(blocks[1:])
    assert (found[0], found[-1], found[1:3]) == (blocks[0], blocks[4], tuple(blocks[1:3]))
    assert hash(found) == hash(tuple(blocks))
    assert pickle.loads(pickle.dumps(found)) == tuple(blocks)
    for beyond in (5, -6):
        with pytest.raises(IndexError):
            blocks_of(core, 0)[beyond]
    modules = tuple(
        CodeModule(f"/m{place}", None, 0, 0, 100, blocks_of(core, place)) for place in range(2)
    )
    flow = Flow(modules, edges_of(core), True, ("prog",))
    assert flow.rows is core
    # Modules in another order are not the core's any more.
    turned = replace(flow, modules=modules[::-1])
    assert turned.rows is not core
    assert turned.rows.block_count(0) == 1
    only = core.only([1])
    assert (only.block_count(0), only.edge_count()) == (1, 0)
    assert edges_of(core.only([0]))[0] == edges[1]
    with pytest.raises(ValueError, match="kind"):
        FlowRows.of([], [(0, 0, 0, 0, "leap", 1)])  # type: ignore[list-item]
