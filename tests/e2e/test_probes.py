"""Probes count exactly, and nobody notices them.

Every program counts its own calls, in batches between which nothing moves (``tests/lockstep.py``).
What weft counted must be what the program counted, function by function, with any number of
threads, whenever the probe came and went.
"""

from __future__ import annotations

import json
import random
import re
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

import weft
from tests.e2e.harness import code, eventually, is_blocked, need
from tests.e2e.test_zoo import started_by_weft
from tests.lockstep import ENDED_WELL, Counts, Lockstep, lockstep, parse_counts, total
from tests.probing import (
    COUNTER,
    HAS_WEAVER,
    IS_LONG,
    Histogram,
    Kind,
    Probe,
    Timer,
    Weaver,
    by_function,
    owner,
    points_of,
    weaver,
)

Build = Callable[[str], Path]

ROUNDS = {"forks": 5, "plugging": 50, "churn": 50, "signals": 3000, "counts_go": 100}
"""How many rounds a batch has; the others do 500."""

CYCLES = 25 if IS_LONG else 15
"""How often probes come and go under load; ``tests/soak/probes.py --long`` does it 500 times."""

LANGUAGES = ["counts", "counts_static", "counts_musl", "counts_cpp", "counts_rs", "counts_go"]
HARDSHIPS = ["signals", "coroutines", "churn", "forks", "naps"]

LEAPERS = {"leaper", "leaps_over"}
NEVER_RETURN = {
    "counts": LEAPERS,
    "counts_static": LEAPERS,
    "counts_musl": LEAPERS,
    "counts_cpp": {"thrower", "passes_through", "cleans_up", "rethrows", "throws_deep"},
    "counts_rs": {"rust_panics", "rust_passes"},
    "counts_go": {"main.panics", "main.recovers"},
    "coroutines": {"switch_body"},
    "forks": set[str](),
    "churn": set[str](),
    "naps": set[str](),
    "signals": set[str](),
}
"""Functions that are left by other ways than a return or a jump, some of the time or always."""

MAY_BE_REFUSED: Mapping[Kind, frozenset[str]] = {
    "entry": frozenset({"one_byte", "jumped_into"}),
    "exit": frozenset({"one_byte", "two_bytes", "three_bytes", "four_bytes", "loop_at_entry"}),
}
"""Counted functions that weft may decline to weave, if it says why: one right behind the other,
they leave no room for a jump."""

needs_weaver = pytest.mark.skipif(not HAS_WEAVER, reason="this build of weft cannot weave")
every_program = pytest.mark.parametrize("name", LANGUAGES + HARDSHIPS)
# What two threads do to each other, sixteen do more often.
NUMBERS = [1, 2, 16] if IS_LONG else [1, 16]
every_number = pytest.mark.parametrize("threads", NUMBERS)
# One thread does what each of sixteen does. Only with signals and children it matters that there is
# no other.
ALONE = ("counts", "signals", "forks")
every_program_and_number = pytest.mark.parametrize(
    ("name", "threads"),
    [
        (name, threads)
        for name in LANGUAGES + HARDSHIPS
        for threads in NUMBERS
        if IS_LONG or threads > 1 or name in ALONE
    ],
)


def rounds_of(name: str) -> int:
    return ROUNDS.get(name, 500)


def own(counts: Counts) -> Counts:
    """Leave out what the program's children counted."""
    return {name: count for name, count in counts.items() if not name.startswith("forked_")}


def difference(after: Mapping[str, int], before: Mapping[str, int]) -> Counts:
    return {name: after[name] - before.get(name, 0) for name in after}


@contextmanager
def woven(build: Build, name: str, threads: int) -> Iterator[tuple[Lockstep, Weaver]]:
    """Run a program and attach to it while it rests; its code must be the same in the end."""
    with lockstep(build(name), threads) as program:
        # A first time, so that everything that the program does only once is done.
        program.batch(1)
        before = code(program.pid)
        with weft.attach(program.pid) as session:
            yield program, weaver(session)
        check_code(program, before)
        # It has to work as well without.
        program.batch(1)


def check_code(program: Lockstep, before: Mapping[str, str]) -> None:
    """Fail unless all code that was there is there as it was; libraries may have come."""
    now = code(program.pid)
    assert {line: now.get(line) for line in before} == before, "not all code is as it was"


def count(
    session: Weaver,
    module: str,
    counts: Counts,
    kind: Kind = "entry",
    may_be_refused: Mapping[Kind, frozenset[str]] = MAY_BE_REFUSED,
) -> Probe:
    """Count at the points of all functions that the program counts."""
    points = points_of(session, module, own(counts), kind)
    assert {owner(point.function) for point in points} == own(counts).keys()
    probe = session.insert(points, COUNTER)
    for refusal in probe.refused:
        assert refusal.reason
        assert refusal.point.function in may_be_refused[kind], f"{refusal.point}: {refusal.reason}"
    return probe


def seen(probe: Probe) -> Counts:
    """Return what weft counted, by function."""
    values = probe.values("calls")
    assert probe.value("calls") == sum(values.values())
    return by_function(values)


def expected(probe: Probe, counts: Counts) -> Counts:
    """Return what weft must have counted: all that it did not refuse."""
    refused = {refusal.point.function for refusal in probe.refused}
    return {name: n for name, n in own(counts).items() if name not in refused}


# What can be said of the programs themselves.


@every_program
def test_programs_count_themselves(name: str, build: Build) -> None:
    program = build(name)
    with lockstep(program, 2) as running:
        batches = [running.batch(rounds_of(name)), running.batch(1)]
        running.go()
        batches.append(running.rest())
        assert own(running.end()) == own(total(batches))
    alone = subprocess.run([program, "2", str(rounds_of(name))], stdout=subprocess.PIPE, text=True)
    assert alone.returncode == ENDED_WELL
    counts = own(parse_counts(alone.stdout))
    if name == "signals":
        # How many ticks come is not for the program to say.
        assert counts["outside"] == batches[0]["outside"]
        assert counts["in_both"] == 8 * counts["outside"] + counts["on_tick"] + counts["on_stack"]
        assert counts["on_tick"] == counts["in_handler"] > 0
    else:
        assert counts == own(batches[0])
        assert all(counts.values())


@every_program
def test_weft_knows_every_function_that_is_counted(name: str, build: Build) -> None:
    with lockstep(build(name), 1) as program, weft.attach(program.pid) as session:
        counted = own(program.batch(1)).keys()
        (module,) = [module for module in session.modules() if module.name == name]
        known = Counter(function.name for function in module.functions())
    assert {function: known[function] for function in counted} == dict.fromkeys(counted, 1)


def test_children_count_for_themselves(build: Build) -> None:
    with lockstep(build("forks"), 2) as running:
        counts = running.batch(3)
    assert counts["in_family"] == 2 * 3 * 4
    assert counts["forked_in_family"] == 2 * 3 * 5
    assert counts["before_exec"] == counts["after_vfork"] == 2 * 3


def disassembly(program: Path) -> dict[str, list[str]]:
    """Return the instructions of every function, as objdump writes them."""
    need("objdump")
    command: list[str | Path] = ["objdump", "-d", "--no-show-raw-insn", program]
    text = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout
    functions: dict[str, list[str]] = {}
    for line in text.splitlines():
        if header := re.fullmatch(r"[0-9a-f]+ <(.+)>:", line):
            name = header[1]
            functions[name] = []
        elif instruction := re.fullmatch(r"\s+[0-9a-f]+:\t(.*)", line):
            functions[name].append(" ".join(instruction[1].split("#")[0].split()))
    return functions


def test_functions_have_the_shapes_they_claim(build: Build) -> None:
    functions = disassembly(build("counts"))

    def ends_in_a_jump(name: str, target: str) -> bool:
        jump = re.compile(rf"jmp [0-9a-f]+ <{target}>")
        return any(jump.fullmatch(line) for line in functions[name])

    assert ends_in_a_jump("tail_call", "tail_target")
    assert ends_in_a_jump("even", "odd")
    assert ends_in_a_jump("odd", "even")
    assert ends_in_a_jump("two_bytes", "three_bytes")
    assert functions["one_byte"] == ["ret"]
    assert functions["three_bytes"] == ["incl (%rdi)", "ret"]
    assert "<loop_at_entry>" in functions["loop_at_entry"][1]
    assert any("jmp *" in line for line in functions["switching"]), "no jump table"
    assert any("<hot_cold.cold>" in line for line in functions["hot_cold"])
    assert not any(line.startswith("sub") and "rsp" in line for line in functions["red_zone"])
    assert not any(line.startswith("call") for line in functions["tail_call"])


# Counting.


@needs_weaver
@every_program_and_number
def test_entries_are_counted_exactly(name: str, threads: int, build: Build) -> None:
    with woven(build, name, threads) as (program, session):
        first = program.batch(1)
        before = code(program.pid)
        probe = count(session, name, first)
        check_on_and_off(program, probe, name, lambda: check_code(program, before))


def check_on_and_off(
    program: Lockstep, probe: Probe, name: str, check: Callable[[], object] = lambda: None
) -> None:
    """What a probe counts while it is there, and only then; ``check`` looks when it has gone."""
    counts = program.batch(rounds_of(name))
    assert seen(probe) == expected(probe, counts)

    probe.disable()
    program.batch(5)
    assert seen(probe) == expected(probe, counts), "it counted while it was not to"

    probe.enable()
    more = program.batch(rounds_of(name))
    assert seen(probe) == expected(probe, total([counts, more]))

    probe.remove()
    check()
    program.batch(5)
    assert seen(probe) == expected(probe, total([counts, more])), "it counted when it was gone"


@needs_weaver
@every_program_and_number
def test_functions_are_left_as_often_as_entered(name: str, threads: int, build: Build) -> None:
    with woven(build, name, threads) as (program, session):
        counts = {
            function: number
            for function, number in own(program.batch(1)).items()
            if function not in NEVER_RETURN[name]
        }
        entries = count(session, name, counts)
        exits = count(session, name, counts, "exit")
        own_counts = program.batch(rounds_of(name))
        returning = {function: own_counts[function] for function in counts}
        # A function with many ways out is left by one of them.
        left = seen(exits)
        # It is left, but not entered at its beginning, when it is entered by its other way in.
        left.pop("jumped_into", None)
        assert left == {f: n for f, n in expected(exits, returning).items() if f != "jumped_into"}
        assert seen(entries) == expected(entries, returning)


@needs_weaver
@every_number
def test_a_program_is_counted_from_its_first_instruction(threads: int, build: Build) -> None:
    program = build("counts")
    with started_by_weft([program, str(threads)]) as (session, stdin, stdout):
        woven = weaver(session)
        names = parse_counts(
            subprocess.run([program, "1", "1"], stdout=subprocess.PIPE, text=True).stdout
        )
        probe = count(woven, "counts", names)
        session.resume()
        running = Lockstep(session.pid, stdin, stdout)
        batches = [running.batch(500), running.batch(3)]
        assert seen(probe) == expected(probe, total(batches))
        running.end()
        assert session.wait() == ENDED_WELL


@needs_weaver
@every_program_and_number
def test_probes_that_come_under_load_count_from_then_on(
    name: str, threads: int, build: Build
) -> None:
    with woven(build, name, threads) as (program, session):
        first = program.batch(1)
        program.go()
        probe = count(session, name, first)
        while_coming = program.rest()
        early = seen(probe)
        assert all(early[function] <= while_coming[function] for function in early)
        counts = program.batch(rounds_of(name))
        assert difference(seen(probe), early) == expected(probe, counts)
        program.go()
        probe.remove()
        program.rest()
        program.batch(1)


@needs_weaver
@every_program_and_number
@pytest.mark.watchdog(300)
def test_a_probe_counts_on_while_others_come_and_go(name: str, threads: int, build: Build) -> None:
    with woven(build, name, threads) as (program, session):
        come_and_go(program, session, name, CYCLES, random.Random(threads))


@needs_weaver
def test_handlers_return_to_what_was_there_when_they_began(build: Build) -> None:
    # With one thread, signals come to it so fast that it is in a handler most of the time.
    with woven(build, "signals", 1) as (program, session):
        come_and_go(program, session, "signals", 10 * CYCLES, random.Random(1))


def come_and_go(
    program: Lockstep,
    session: Weaver,
    module: str,
    cycles: int,
    chance: random.Random,
    may_be_refused: Mapping[Kind, frozenset[str]] = MAY_BE_REFUSED,
) -> None:
    """Put others on the same functions that one probe counts, and take them away, under load."""
    first = program.batch(1)
    probe = count(session, module, first, may_be_refused=may_be_refused)
    kinds: list[Kind] = ["entry", "exit", "call", "after", "block", "insn"]
    places = {kind: points_of(session, module, own(first), kind) for kind in kinds}
    # Those of the counted functions have all been seen to be there, the other kinds need not be.
    assert places["entry"] and places["exit"] and places["insn"]
    program.go()
    others: list[Probe] = []
    for _ in range(cycles):
        all_points = places[chance.choice([kind for kind in kinds if places[kind]])]
        points = chance.sample(all_points, chance.randint(1, len(all_points)))
        order = chance.choice(["append", "prepend"])
        others.append(session.insert(points, COUNTER, order=order))
        if chance.random() < 0.7:
            others.pop(chance.randrange(len(others))).remove()
        if others and chance.random() < 0.3:
            chance.choice(others).disable()
    for other in others:
        other.remove()
    counts = program.rest()
    assert seen(probe) == expected(probe, counts)
    probe.remove()
    program.batch(1)


@needs_weaver
def test_all_points_are_woven_in_one_stop(build: Build) -> None:
    with woven(build, "counts", 4) as (program, session):
        first = program.batch(1)
        program.go()
        # The first probe of all needs memory, which takes a stop of its own.
        session.insert("/Code/counts/tiny", COUNTER).remove()
        before = len(session.pauses())
        probe = count(session, "counts", first)
        assert len(session.pauses()) == before + 1
        probe.remove()
        program.rest()


@needs_weaver
def test_what_weft_says_of_a_probe(build: Build) -> None:
    with woven(build, "counts", 1) as (program, session):
        counts = program.batch(1)
        probe = count(session, "counts", counts)
        assert {point.module for point in probe.points} == {"counts"}
        assert {point.kind for point in probe.points} == {"entry"}
        assert sum(probe.tactics.values()) == len(probe.points) - len(probe.refused)
        by_pattern = session.insert("/Code/counts/tail_*", COUNTER)
        assert {p.function for p in by_pattern.points} == {"tail_call", "tail_target"}
        counts = program.batch(10)
        assert by_pattern.value("calls") == counts["tail_call"] + counts["tail_target"]


# Other places than entries and exits.


@needs_weaver
@every_number
def test_calls_are_counted_before_and_after(threads: int, build: Build) -> None:
    with woven(build, "counts", threads) as (program, session):
        names = ["recursive", "leaps_over", "hot_cold"]
        before = session.insert(points_of(session, "counts", names, "call"), COUNTER)
        after = session.insert(points_of(session, "counts", names, "after"), COUNTER)
        counts = program.batch(500)
        deepest = 500 * threads
        assert seen(before) == {
            "recursive": counts["recursive"] - deepest,
            "leaps_over": counts["leaps_over"],
            "hot_cold": counts["rare"],
        }
        # Nobody comes back from a jump over the frame.
        assert seen(after) == {**seen(before), "leaps_over": 0}


@needs_weaver
@every_number
def test_every_instruction_of_a_straight_line_is_counted(threads: int, build: Build) -> None:
    with woven(build, "counts", threads) as (program, session):
        for name in ["floats", "many_arguments", "tail_target", "four_bytes"]:
            points = points_of(session, "counts", [name], "insn")
            lines = disassembly(build("counts"))[name]
            # Behind the end there may be padding.
            assert len(points) == lines.index("ret") + 1
            probe = session.insert(points, COUNTER)
            assert not probe.refused
            counts = program.batch(100)
            assert set(probe.values("calls").values()) == {counts[name]}
            probe.remove()


@needs_weaver
@every_number
def test_blocks_and_edges_are_counted(threads: int, build: Build) -> None:
    with woven(build, "counts", threads) as (program, session):
        blocks = session.insert(points_of(session, "counts", ["switching"], "block"), COUNTER)
        edges = session.insert(points_of(session, "counts", ["hot_cold"], "edge"), COUNTER)
        (entry,) = points_of(session, "counts", ["switching"], "entry")
        counts = program.batch(640)
        by_address = {point.address: n for point, n in blocks.values("calls").items()}
        assert by_address[entry.address] == counts["switching"]
        # One of nine ways is taken every time.
        assert sum(by_address.values()) >= 2 * counts["switching"]
        taken, rare = set(edges.values("calls").values()), counts["rare"] // 2
        assert {rare, counts["hot_cold"] - rare} <= taken


# What else snippets can do. In a batch, tiny() is called with each number below the number of
# rounds, and by switching() once more with every ninth.


def arguments_of_tiny(rounds: int, threads: int) -> Counter[int]:
    return Counter({n: threads * (2 if n % 9 == 6 else 1) for n in range(rounds)})


@needs_weaver
@every_number
def test_histograms(threads: int, build: Build) -> None:
    text = (
        "histogram powers log2\nhistogram steps linear 0 10 20\npowers << arg(0); steps << arg(0)"
    )
    with woven(build, "counts", threads) as (program, session):
        probe = session.insert("/Code/counts/tiny", text)
        counts = program.batch(200)
        arguments = arguments_of_tiny(200, threads)
        for name in ("powers", "steps"):
            histogram: Histogram = probe.value(name)
            assert histogram.count == counts["tiny"] == arguments.total()
            assert sum(bucket.count for bucket in histogram.buckets) == histogram.count
            for bucket in histogram.buckets:
                inside = [n for x, n in arguments.items() if bucket.low <= x <= bucket.high]
                assert bucket.count == sum(inside)


@needs_weaver
def test_a_log2_histogram_has_a_bucket_for_what_is_negative(build: Build) -> None:
    with woven(build, "counts", 1) as (program, session):
        probe = session.insert("/Code/counts/tiny", "histogram h log2\nh << 0 - 1 - arg(0)")
        counts = program.batch(50)
        histogram: Histogram = probe.value("h")
        (bucket,) = histogram.buckets
        assert (bucket.low, bucket.high, bucket.count) == (-(1 << 63), -1, counts["tiny"])


@needs_weaver
@every_number
def test_maps(threads: int, build: Build) -> None:
    with woven(build, "counts", threads) as (program, session):
        text = "map by_argument[1] 4096\nby_argument[arg(0)] += 1"
        probe = session.insert("/Code/counts/tiny", text)
        program.batch(200)
        assert probe.value("by_argument") == dict(arguments_of_tiny(200, threads))
        assert probe.lost("by_argument") == 0


@needs_weaver
@every_number
@pytest.mark.parametrize("blocking", ["", " blocking"])
def test_records(threads: int, blocking: str, build: Build) -> None:
    with woven(build, "counts", threads) as (program, session):
        text = f"ring log(argument, when) 65536{blocking}\nemit log(arg(0), now)"
        probe = session.insert("/Code/counts/tiny", text)
        program.batch(200)
        records = probe.records("log")
        assert Counter(argument for argument, _ in records) == arguments_of_tiny(200, threads)
        assert probe.lost("log") == 0
        assert all(when > 0 for _, when in records)
        assert probe.records("log") == [], "records are read once"


@needs_weaver
def test_lost_records_are_counted(build: Build) -> None:
    with woven(build, "counts", 2) as (program, session):
        probe = session.insert("/Code/counts/tiny", "ring log(x) 64\nemit log(arg(0))")
        counts = program.batch(900)
        records = probe.records("log")
        lost = probe.lost("log")
        assert lost > 0
        assert len(records) + lost == counts["tiny"]


@needs_weaver
@every_number
@pytest.mark.parametrize("clock", ["wall", "cpu"])
def test_timers(threads: int, clock: str, build: Build) -> None:
    text = f"timer busy {clock}\nat entry {{ start busy }}\nat exit {{ stop busy }}"
    with woven(build, "signals", threads) as (program, session):
        points = [
            *points_of(session, "signals", ["sleeps"], "entry"),
            *points_of(session, "signals", ["sleeps"], "exit"),
        ]
        probe = session.insert(points, text)
        begin = time.monotonic_ns()
        counts = program.batch(1600)
        took = time.monotonic_ns() - begin
        timer: Timer = probe.value("busy")
        assert timer.count == counts["sleeps"]
        assert 0 < timer.ns < took * threads
        if clock == "wall":
            # No call sleeps for less than a microsecond, unless a signal ends it.
            assert timer.ns > 1000 * (counts["sleeps"] - counts["on_tick"] - counts["on_stack"])


@needs_weaver
@every_number
def test_shared_counters(threads: int, build: Build) -> None:
    with woven(build, "counts", threads) as (program, session):
        points = points_of(session, "counts", ["tiny", "normal", "even"], "entry")
        probe = session.insert(points, "counter calls shared\ncalls += 1")
        counts = program.batch(2000)
        assert probe.value("calls") == counts["tiny"] + counts["normal"] + counts["even"]


# Libraries that come and go, children, and those who look at stacks.


@needs_weaver
@every_number
def test_a_library_with_probes_in_it_comes_and_goes(threads: int, build: Build) -> None:
    library = "plugging.so"
    with woven(build, "plugging", threads) as (program, session):
        names = ["plugged", "plugged_leaf"]
        program.batch(5)
        assert program.say("load") == "loaded"
        probe = session.insert(points_of(session, library, names, "entry"), COUNTER)
        counts = program.batch(50)
        assert seen(probe) == {name: counts[name] for name in names}
        # Unloaded with a probe in it: nobody may fall into what was there.
        assert program.say("unload") == "unloaded"
        program.batch(50)
        assert program.say("load") == "loaded"
        last = seen(probe)
        anew = session.insert(points_of(session, library, names, "entry"), COUNTER)
        counts = program.batch(50)
        assert seen(anew) == {name: counts[name] for name in names}
        assert all(seen(probe)[name] >= last[name] for name in names)
        probe.remove()
        anew.remove()
        assert program.say("unload") == "unloaded"
        program.batch(5)


@needs_weaver
def test_probes_on_a_library_that_is_forever_loaded(build: Build) -> None:
    """Where it was is known only until it is looked at: all may be refused, nothing may break."""
    with woven(build, "plugging", 2) as (program, session):
        calls = count(session, "plugging", {"calls_plugin": 0})
        program.go()
        for _ in range(CYCLES):
            try:
                session.insert("/Code/plugging.so/plugged*", COUNTER).remove()
            except weft.errors.WeftError as error:
                assert str(error)
        counts = program.rest()
        assert seen(calls) == {"calls_plugin": counts["calls_plugin"]}


@needs_weaver
@every_number
def test_children_do_not_count_for_their_parent(threads: int, build: Build) -> None:
    """What a forked child does is its own; what one of vfork does, it does in its parent."""
    with woven(build, "forks", threads) as (program, session):
        probe = count(session, "forks", program.batch(1))
        counts = program.batch(5)
        assert seen(probe) == own(counts)
        assert counts["forked_in_family"] == threads * 5 * 5, "a child did not work as it should"


TRACED = ["outer", "middle", "inner", "looks", "stop_here", "tail_frame"]


def trace(program: Lockstep) -> dict[str, list[str]]:
    frames: dict[str, list[str]] = json.loads(program.say("trace"))
    return frames


def test_traces_are_read_right(build: Build) -> None:
    with lockstep(build("traces"), 1) as program:
        frames = trace(program)
        assert trace(program) == frames
    functions = [frame.split("+")[0] for frame in frames["backtrace"]]
    assert functions[:5] == ["looks", "inner", "middle", "outer", "main"]
    assert frames["return"] == [frames["backtrace"][1]] == [frames["unwind"][1]]
    assert frames["unwind"][1:6] == frames["backtrace"][1:6]


@needs_weaver
@pytest.mark.parametrize("kind", ["entry", "exit", "call", "after", "block", "insn"])
def test_a_program_sees_its_own_stack_as_ever(kind: Kind, build: Build) -> None:
    with woven(build, "traces", 1) as (program, session):
        before = trace(program)
        probe = session.insert(points_of(session, "traces", TRACED, kind), COUNTER)
        assert trace(program) == before
        assert probe.value("calls") > 0
        probe.remove()
        assert trace(program) == before


def gdb(pid: int, *commands: str) -> str:
    need("gdb")
    words = [word for command in commands for word in ("-ex", command)]
    gdb = ["gdb", "-nx", "-batch", "-ex", "set width 0", *words, "-p", str(pid)]
    # Commands run after attaching, whatever their order on the line.
    done = subprocess.run(gdb, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert done.returncode == 0, done.stdout
    return done.stdout


def frames_of(text: str) -> list[str]:
    """Read the frames of the last `bt` that GDB printed: function, and file and line if known."""
    frames: list[str] = []
    for line in text.splitlines():
        frame = re.match(
            r"#(\d+)\s+(?:0x[0-9a-f]+ in )?(\S+) \(.*?\)(?: (?:at|from) (\S+))?$", line
        )
        if frame:
            frames = [] if frame[1] == "0" else frames
            frames.append(f"{frame[2]} {frame[3] or ''}".strip())
    return frames


def halted(program: Lockstep) -> list[str]:
    """Return what GDB sees of the first thread while it stands deep inside."""
    assert program.say("halt") == "halted"
    eventually(lambda: is_blocked(program.pid))
    frames = frames_of(gdb(program.pid, "thread 1", "bt"))
    program.tell("")
    return frames


def broken_in(program: Lockstep, place: str) -> list[str]:
    """Return what GDB sees where a breakpoint has stopped a working program."""
    program.go()
    # Where the worker is when GDB comes decides how often the place was passed, not the stack.
    frames = frames_of(gdb(program.pid, f"break {place}", "continue", "bt", "delete", "detach"))
    program.rest()
    return frames


def test_gdb_is_read_right(build: Build) -> None:
    with lockstep(build("traces"), 1) as program:
        names = [frame.split()[0] for frame in halted(program)]
        assert [name for name in names if name in TRACED and name != "tail_frame"] == [
            "looks",
            "inner",
            "middle",
            "outer",
        ]
        names = [frame.split()[0] for frame in broken_in(program, "stop_here")]
        # Those that end in a jump have no frame any more, though GDB may guess they were there.
        assert names[0] == "stop_here"
        callers = [name for name in names if name in ("inner", "middle", "outer", "one_round")]
        assert callers == ["inner", "middle", "outer", "one_round"]


@needs_weaver
@pytest.mark.parametrize("kind", ["entry", "exit", "call", "after", "block", "insn"])
def test_gdb_sees_the_stack_as_ever(kind: Kind, build: Build) -> None:
    with woven(build, "traces", 1) as (program, session):
        standing, stopped = halted(program), broken_in(program, "stop_here")
        # Not where the breakpoint goes: two that write to one place is another test's matter.
        names = [name for name in TRACED if name != "stop_here"]
        probe = session.insert(points_of(session, "traces", names, kind), COUNTER)
        assert halted(program) == standing
        assert broken_in(program, "stop_here") == stopped
        probe.remove()
        assert halted(program) == standing


@needs_weaver
def test_gdb_breaks_in_a_probed_function(build: Build) -> None:
    with woven(build, "traces", 1) as (program, session):
        stopped = broken_in(program, "stop_here")
        before = program.batch(1)
        probe = count(session, "traces", before)
        assert broken_in(program, "stop_here") == stopped
        early = seen(probe)
        counts = program.batch(100)
        assert difference(seen(probe), early) == counts
