"""Stacks as keys and fields: `stack()` and `stack(n)`, by what programs know of their own calls."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, TypeAlias

import pytest

import weft
from tests.e2e.harness import eventually, need
from weft import _native
from weft.errors import BadSnippet
from weft.model.stacks import BY_FRAME_POINTER, TRUNCATED, Stack
from weft.program.frames import SIGNAL

Build: TypeAlias = Callable[[str], Path]

WEAVERS = pytest.mark.parametrize("weaver", ["patch", "clone"])
KINDS = pytest.mark.parametrize("kind", ["stack_keys", "stack_keys_fp", "stack_keys_static"])
LOOK = "/Code/{}/look"
OUTER = ("_start", "__libc_start_main", "__libc_start_call_main", "main")
STACK_FRAMES = 127
TAKEN_AT_RANDOM = int(os.environ.get("WEFT_TEST_STACKS", "300"))
"""How many stacks are compared at random instructions of each program."""


def measured(program: Path, way: str, weaver: str, snippet: str, **value: Any) -> Counter[str]:
    """The folded stacks of a run, and how often each was taken."""
    found = run(program, way, weaver, snippet).value(**value)
    assert isinstance(found, dict)
    return Counter({str(key): count for key, count in found.items()})


def run(program: Path, way: str, weaver: str, snippet: str) -> weft.Probe:
    reading, writing = os.pipe()
    start: Any = weft.run
    command = [program, way]
    with start(command, weaver=weaver, stdin=reading, stdout=subprocess.DEVNULL) as running:
        os.close(reading)
        if isinstance(running, weft.Session):
            running.run_to_entry()
        session = running if isinstance(running, weft.Session) else running.session
        if "static" not in program.name:
            maps = Path(f"/proc/{running.pid}/maps")
            eventually(lambda: "libc.so.6" in maps.read_text())
        probe = session.insert(LOOK.format(program.name), snippet)
        os.close(writing)
        assert running.wait() == 0
    return probe


def within(*names: str) -> str:
    return ";".join([*OUTER, *names, "look"])


@KINDS
@WEAVERS
def test_every_depth_is_told_apart(build: Build, kind: str, weaver: str) -> None:
    expected = Counter({within(*["down"] * (depth + 1)): depth + 1 for depth in range(10)})
    expected.update({within("aside", *["down"] * (depth + 1)): 1 for depth in range(5)})
    assert measured(build(kind), "depths", weaver, "n[stack()]++") == expected


@WEAVERS
def test_as_many_frames_as_are_asked_for(build: Build, weaver: str) -> None:
    found = measured(build("stack_keys"), "depths", weaver, "n[stack(2)]++")
    assert found == {"down;look": 60}
    assert measured(build("stack_keys"), "depths", weaver, "n[stack(1)]++") == {"look": 60}


@KINDS
@WEAVERS
def test_what_is_deeper_is_marked(build: Build, kind: str, weaver: str) -> None:
    # 122 calls of its own, what it is called from, and itself: just as many as there can be.
    whole = within(*["down"] * 122)
    assert len(whole.split(";")) == STACK_FRAMES
    cut = ";".join([TRUNCATED, *["down"] * (STACK_FRAMES - 1), "look"])
    assert measured(build(kind), "deep", weaver, "n[stack()]++") == {whole: 1, cut: 1}


@KINDS
@WEAVERS
def test_frames_of_all_sizes(build: Build, kind: str, weaver: str) -> None:
    found = measured(build(kind), "frames", weaver, "n[stack()]++")
    expected = Counter({within("aligned", *["down"] * (n + 1)): 1 for n in range(5)})
    wide = within("wide", "down", "down", "down")
    expected[wide] = found[wide]
    # A frame of hundreds of pages is stepped over all the same.
    assert found == expected
    assert found[wide] > 8


@KINDS
@WEAVERS
def test_signals_are_stepped_over(build: Build, kind: str, weaver: str) -> None:
    found = run(build(kind), "signals", weaver, "n[stack()]++").value()
    assert isinstance(found, dict)
    own = {"main", "interrupted", "on_signal", "look", SIGNAL}
    ways = Counter[tuple[str, ...]]()
    for key, count in found.items():
        assert isinstance(key, Stack)
        assert key.is_whole, str(key)
        ways[tuple(name for name in key.names if name in own)] += count
    # By two handlers, one of them on a stack of its own.
    assert ways == {("main", "interrupted", SIGNAL, "on_signal", "look"): 10}


@WEAVERS
def test_handlers_that_interrupt_the_taking_of_stacks(build: Build, weaver: str) -> None:
    snippet = "map n[stack] 4096\nat entry { n[stack()]++ }"
    probe = run(build("stack_keys"), "interrupting", weaver, snippet)
    value = probe.value()
    assert isinstance(value, dict)
    folded = Counter[str]()
    for key, count in value.items():
        folded[str(key)] += count
    assert folded[within(*["down"] * 4)] == 300_000
    others = {key for key in folded if key.startswith(OUTER[0]) and SIGNAL not in key}
    assert others == {within(*["down"] * 4)}
    assert any(key.endswith(f"{SIGNAL};on_alarm;down;down;down;look") for key in folded)


@KINDS
@WEAVERS
def test_threads(build: Build, kind: str, weaver: str) -> None:
    found = measured(build(kind), "threads", weaver, "n[stack()]++")
    ways = Counter[tuple[str, ...]]()
    for key, count in found.items():
        assert TRUNCATED not in key
        names = key.split(";")
        first = names.index("first" if "first" in names else "second")
        ways[tuple(names[first:])] += count
    downs = [["down"] * (depth + 1) for depth in range(4)]
    expected = {("first", *down, "look"): 10 for down in downs}
    expected.update({("second", "aside", *down, "look"): 20 for down in downs})
    assert ways == expected


@WEAVERS
def test_forked_children(build: Build, weaver: str) -> None:
    found = measured(build("stack_keys"), "forks", weaver, "n[stack()]++", process="all")
    assert found == {within("down", "down"): 1, within("aside", "down", "down", "down"): 3}


@WEAVERS
def test_stacks_that_come_and_go(build: Build, weaver: str) -> None:
    found = measured(build("stack_keys"), "coroutines", weaver, "n[stack()]++")
    assert sum(found.values()) == 30
    # Where a coroutine begins there is no rule, so it is not known whether it was called.
    assert all(key.startswith(TRUNCATED) for key in found)
    assert all(key.endswith(";in_coroutine;down;down;look") for key in found)


@KINDS
@WEAVERS
def test_wrong_frame_pointers_do_no_harm(build: Build, kind: str, weaver: str) -> None:
    found = measured(build(kind), "confused", weaver, "n[stack()]++")
    assert sum(found.values()) == 623
    # What cannot be gone on from is marked; the frames that were found are right.
    assert all(key.endswith("with_frame_pointer;look") for key in found)
    assert found[f"{TRUNCATED};with_frame_pointer;look"] > 300


@WEAVERS
def test_fields_of_records_and_pairs_of_keys(build: Build, weaver: str) -> None:
    snippet = "ring r(number, stack calls) 256\nat entry { emit r($arg[0], stack()) }"
    records = run(build("stack_keys"), "depths", weaver, snippet).records()
    assert len(records) == 60
    assert all(isinstance(calls, Stack) and number == 0 for number, calls in records)
    found = run(build("stack_keys"), "depths", weaver, "n[$arg[0], stack(3)]++").value()
    assert isinstance(found, dict)
    names = {tuple(map(str, key)): count for key, count in found.items() if isinstance(key, tuple)}
    assert names == {
        ("0", "main;down;look"): 1,
        ("0", "aside;down;look"): 1,
        ("0", "down;down;look"): 58,
    }


def test_one_that_finds_no_room_is_counted_all_the_same(tmp_path: Path) -> None:
    calls = "\n".join(
        f"__attribute__((noinline)) long f{n}(long d)"
        f" {{ return d ? f{n}(d - 1) + 1 : look({n}) + 1; }}"
        for n in range(100)
    )
    source = tmp_path / "many.c"
    source.write_text(
        "#include <stdio.h>\n"
        '__attribute__((noinline)) long look(long n) { __asm__ volatile(""); return n; }\n'
        f"{calls}\n"
        "int main(void) { long s = 0; getchar();\n"
        + "".join(f"for (int d = 0; d < 30; d++) s += f{n}(d);\n" for n in range(100))
        + "return s == 1; }\n"
    )
    program = tmp_path / "many"
    flags = ["-O1", "-fno-optimize-sibling-calls"]
    subprocess.run(["gcc", *flags, str(source), "-o", str(program)], check=True)
    snippet = "map n[stack] 4096\nat entry { n[stack()]++ }"
    probe = run(program, "", "patch", snippet)
    value = probe.value()
    assert isinstance(value, dict)
    kept = [key for key in value if isinstance(key, Stack)]
    others = [key for key in value if not isinstance(key, Stack)]
    assert sum(value.values()) + probe.lost() == 3000
    assert len(kept) > 700
    assert all(isinstance(key, str) and key.startswith("(a stack for") for key in others)


@pytest.mark.parametrize(
    ("snippet", "message"),
    [
        ("n += stack()", "a stack where an integer is needed"),
        ("n[stack() + 1]++", "a stack cannot be computed with"),
        ("n[-stack()]++", "a stack has no sign"),
        ("n[stack(0)]++", "a stack cannot have 0 frames"),
        ("n[stack(128)]++", "a stack cannot have 128 frames"),
        ("n[stack($arg[0])]++", "a number of frames is missing"),
        ("map n[1] 64\nat entry { n[stack()]++ }", "declared a number"),
        ("map n[stack] 64\nat entry { n[1]++ }", "value 1 is not a stack"),
        ("map n[str] 64\nat entry { n[stack()]++ }", "value 1 is not a text"),
    ],
)
def test_what_is_refused(build: Build, snippet: str, message: str) -> None:
    with subprocess.Popen([build("stack_keys")], stdin=subprocess.PIPE) as process:
        with weft.attach(process.pid) as session, pytest.raises(BadSnippet, match=message):
            session.insert(LOOK.format("stack_keys"), snippet)
        process.kill()


def test_one_liners(build: Build) -> None:
    program = build("stack_keys")
    command = [
        sys.executable,
        "-m",
        "weft",
        "run",
        "--format",
        "json",
        "-e",
        "entry look { n[stack()]++ }",
    ]
    shown = subprocess.run(
        [*command, "--", program, "depths"], capture_output=True, text=True, input="\n", check=True
    )
    [total] = json.loads(shown.stderr)["totals"]
    assert total["value"][within("down", "down")] == 2
    assert sum(one["value"] for one in total["stacks"]) == 60
    frames = [one["frames"] for one in total["stacks"] if len(one["frames"]) == 6]
    innermost = {"function": "look", "module": "stack_keys", "inlined": False, "language": "native"}
    assert all(innermost.items() <= one[0].items() for one in frames)
    assert all(one[0]["file"].endswith("stack_keys.c") and one[0]["line"] for one in frames)
    assert not any("truncated" in one for one in total["stacks"])


# --- at random instructions, against the unwinder outside -----------------------------------------


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def hot_functions(session: weft.Session, looks: int = 5) -> list[str]:
    """The functions that a program is seen in."""
    found: set[tuple[str, str]] = set()
    for _ in range(looks):
        for thread in session.stacks().threads:
            for frame in thread.frames[:6]:
                if frame.function and frame.module and not frame.inlined and frame.offset:
                    found.add((frame.module, frame.function))
        time.sleep(0.02)
    paths = (f"/Code/{module}/{function}" for module, function in sorted(found))
    return [path for path in paths if path.count("/") == 3 and "[" not in path]


def taken_inside(addresses: list[int], *, is_cut: bool) -> list[tuple[int, str]]:
    rows: list[tuple[int, str]] = []
    kind = "next"
    for address in addresses:
        if address >> 63:
            rows.append((address & ~(1 << 63), "signal"))
            kind = "next"
        else:
            rows.append((address, kind))
            kind = "return"
    return [*rows, (0, "cut")] if is_cut else rows


def compare_at_random(command: list[str], seed: int, count: int) -> Counter[str]:
    """Compare stacks at random instructions of a program with what the unwinder outside says.

    The program stops itself when it has taken one, so that its state is still there.
    """
    rng = random.Random(seed)
    outcomes = Counter[str]()
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        maps = Path(f"/proc/{process.pid}/maps")
        eventually(lambda: "libc.so.6" in maps.read_text())
        time.sleep(0.5)
        with weft.attach(process.pid) as session:
            points = []
            for path in hot_functions(session):
                with suppress(weft.errors.WeftError):
                    points += session.points(path, "insn")
            chosen = rng.sample(points, min(len(points), 300))
            libc = next(one for one in session.modules() if one.name == "libc.so.6")
            stop = next(one for one in libc.functions() if "raise" in (one.name, *one.aliases))
            probe = session.insert(
                chosen,
                "ring r(stack calls, sp, bp, pc) 16\nat insn { "
                "emit r(stack(), $reg[rsp], $reg[rbp], $address)\n"
                f"call {libc.bias + stop.offset}({int(signal.SIGSTOP)}) }}",
            )
            target, number = session._target, probe.numbers[0]
            outside = _native.StateUnwinder(process.pid)
            deadline = time.monotonic() + 60
            while sum(outcomes.values()) < count and time.monotonic() < deadline:
                if not is_stopped(process.pid):
                    continue
                records = target.probe_records(number, "r")
                found = target.probe_stacks()
                for taken, sp, bp, pc in records:
                    addresses, is_cut = found.get(taken, ([], True))
                    inside = taken_inside(addresses, is_cut=is_cut)
                    rows, cut = outside.stack(pc, sp, bp)
                    expected: list[tuple[int, str]] = [
                        (at, kind) for at, kind, _ in rows[:STACK_FRAMES]
                    ]
                    if cut is not None or len(rows) > STACK_FRAMES:
                        expected.append((0, "cut"))
                    if taken not in found:
                        outcomes["no room"] += 1
                    elif inside == expected:
                        outcomes["same"] += 1
                    elif is_cut and inside[:-1] == expected[: len(inside) - 1]:
                        outcomes["cut"] += 1
                    else:
                        outcomes["different"] += 1
                        print(pc, sp, bp, inside, expected, cut, sep="\n")
                os.kill(process.pid, signal.SIGCONT)
            process.kill()
    finally:
        process.kill()
        process.wait()
    return outcomes


BUSY = {
    "python": [sys.executable, "-c", "import json\nwhile 1: json.loads(json.dumps([1, 'a', 2.5]))"],
    "bash": ["bash", "-c", "while :; do x=$((x + 1)); y=${x/1/2}; done"],
    "awk": ["awk", "BEGIN { while (1) { x = x + 1; y = substr(x, 1, 3) } }"],
    "perl": [
        "perl",
        "-e",
        "while (1) { $x = join(',', map { $_ * 2 } 1..9); @y = sort split /,/, $x }",
    ],
    "gzip": ["gzip", "-c", "/dev/zero"],
    "xz": ["xz", "-c", "/dev/zero"],
    "openssl": ["openssl", "speed", "-seconds", "100", "sha256"],
    "sqlite3": [
        "sqlite3",
        ":memory:",
        "with recursive n(i) as (select 1 union all select i + 1 from n) "
        "select count(*) from n where printf('%d', i) like '%7%' limit 1;",
    ],
}
COMPILED = ["shares", "shares_frame_pointers"]
"""Programs that run for as many milliseconds as they are told to."""
ROUND = 3000
"""How many stacks are taken at the same instructions."""


@pytest.mark.parametrize("name", [*BUSY, *COMPILED])
@pytest.mark.watchdog(150 + TAKEN_AT_RANDOM // 50)
def test_random_instructions_against_the_unwinder_outside(build: Build, name: str) -> None:
    command = [str(build(name)), "1000000"] if name in COMPILED else BUSY[name]
    need(command[0])
    outcomes = Counter[str]()
    for seed in range(1, TAKEN_AT_RANDOM // ROUND + 2):
        left = min(ROUND, TAKEN_AT_RANDOM - outcomes.total())
        if left > 0:
            outcomes += compare_at_random(command, seed, left)
    print(name, outcomes)
    assert outcomes["different"] == 0
    assert outcomes["same"] > 0.9 * sum(outcomes.values())
    assert outcomes["same"]


def test_a_library_that_takes_the_place_of_another_is_marked(build: Build) -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen([build("takes_place")], stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        stdin, stdout = process.stdin, process.stdout
        try:
            assert stdout.readline() == "loaded\n"
            with weft.attach(process.pid) as session:
                probe = session.insert("/Code/takes_place/look", "n[stack(3)]++")
                assert _runs_in(stdin, stdout)
                assert _folded(probe) == {"run;first_inner;look": 10}
                stdin.write("\n")
                stdin.flush()
                assert stdout.readline() == "loaded\n"
                # Until weft has seen to which libraries there are.
                eventually(lambda: _has_rules(probe, ".second.so"))
                assert _runs_in(stdin, stdout)
                found = _folded(probe)
            stdin.close()
            assert process.wait(60) == 0
        finally:
            process.kill()
    both = "run [replaced];first_inner or second_inner [replaced];look"
    assert found == {both: 20}


def _folded(probe: weft.Probe) -> dict[str, int]:
    found = probe.value()
    assert isinstance(found, dict)
    return {str(key): count for key, count in found.items()}


def _runs_in(stdin: IO[str], stdout: IO[str]) -> bool:
    stdin.write("\n")
    stdin.flush()
    return stdout.readline().startswith("0x")


def _has_rules(probe: weft.Probe, library: str) -> bool:
    code = probe._newest.target.probe_stack_code()
    return any(path.endswith(library) for *_, path in code)


@WEAVERS
def test_what_frame_pointers_alone_have_led_to_is_marked(build: Build, weaver: str) -> None:
    """Its caller is not found, and nothing else would tell."""
    found: Any = run(build("without_tables"), "", weaver, "n[stack()]++").value()
    ((key, count),) = found.items()
    assert isinstance(key, Stack)
    assert str(key) == ";".join([*OUTER, BY_FRAME_POINTER, "has_no_tables", "calls_look", "look"])
    (caller,) = (frame for frame in key.frames if frame.is_guess)
    assert caller.function == "main" and count == 3
