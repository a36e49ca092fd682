"""Profiles of real programs, held against callgrind, and given to the tools that read them."""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.callgrind import hits
from tests.e2e.harness import Background, need
from tests.flows import flow
from weft.export.profile import callgrind, fdata
from weft.export.profile import json as profile_json
from weft.tools.callgraph import INDIRECT
from weft.tools.profile import Profile, profile

BOLT = next(filter(None, map(shutil.which, ("llvm-bolt", "llvm-bolt-16", "llvm-bolt-15"))), None)


@pytest.fixture(scope="module")
def program(build: Callable[[str], Path]) -> Path:
    return build("profiled")


@pytest.fixture(scope="module")
def profiled(program: Path) -> Profile:
    return profile(flow([program]))


def places(profile: Profile) -> dict[str, int]:
    """The functions of the program itself, by name."""
    return {
        function.name: place
        for place, function in enumerate(profile.functions)
        if profile.modules[function.module].name == "profiled"
    }


def test_calls_are_known_by_name(profiled: Profile) -> None:
    assert profiled.problems == ()
    named = places(profiled)
    counted = [name for name in named if re.fullmatch(r"\w+_\d+", name)]
    assert len(counted) == 10
    for name in counted:
        assert profiled.calls[named[name]] == int(name.rpartition("_")[2]), name
    calls = profiled.graph.calls
    assert calls[named["sixfold_100"], named["leaf_of_700"]] == 600
    assert calls[named["onefold_100"], named["leaf_of_700"]] == 100
    assert calls[named["recursive_51"], named["recursive_51"]] == 50
    assert calls[named["jumps_40"], named["onefold_100"]] == 40
    assert calls[INDIRECT, named["by_pointer_300"]] == 300
    assert calls[INDIRECT, named["main"]] == 1
    assert (named["even_21"], named["odd_20"]) in profiled.graph.calls


def test_stubs_are_folded_into_what_they_lead_to(profiled: Profile) -> None:
    main = places(profiled)["main"]
    called = {
        profiled.functions[callee].name: (profiled.functions[callee], count)
        for (caller, callee), count in profiled.graph.calls.items()
        if caller == main
    }
    for name in ("malloc", "free", "printf"):
        function, count = called[name]
        assert profiled.modules[function.module].name == "libc.so.6"
        assert count == (1 if name == "printf" else 25)


def test_what_is_moved_away_counts_to_where_it_was(
    program: Path, profiled: Profile, tmp_path: Path
) -> None:
    named = places(profiled)
    assert profiled.functions[named["chilly_30.cold"]].part_of == named["chilly_30"]
    assert profiled.calls[named["chilly_30"]] == 30
    # Without names, how it is reached tells.
    stripped = tmp_path / "stripped"
    subprocess.run(["strip", "-s", "-o", str(stripped), str(program)], check=True)
    found = profile(flow([stripped]))
    at = {
        function.offset: (place, function)
        for place, function in enumerate(found.functions)
        if found.modules[function.module].name == "stripped"
    }
    whole, _ = at[profiled.functions[named["chilly_30"]].offset]
    _, part = at[profiled.functions[named["chilly_30.cold"]].offset]
    assert part.name.startswith("sub_")
    assert part.part_of == whole
    assert found.self_counts[whole] == profiled.self_counts[named["chilly_30"]]
    # A function that only one other jumps to is still a function.
    assert at[profiled.functions[named["onefold_100"]].offset][1].part_of is None
    assert at[profiled.functions[named["leaf_of_700"]].offset][1].part_of is None


def test_inclusive_counts_are_attributed_by_calls(profiled: Profile) -> None:
    named = places(profiled)
    own, whole = profiled.self_counts, profiled.inclusive_counts
    leaf, six = named["leaf_of_700"], named["sixfold_100"]
    assert whole[leaf] == own[leaf]
    assert whole[six] == pytest.approx(own[six] + own[leaf] * 6 / 7)
    cycle = profiled.graph.cycle_number(named["even_21"])
    assert cycle is not None
    assert cycle == profiled.graph.cycle_number(named["odd_20"])


def test_callgrind_counts_the_same(program: Path, profiled: Profile) -> None:
    """The calls as callgrind itself puts them, by function."""
    expected = hits([program])
    named = places(profiled)
    for name, place in named.items():
        if re.fullmatch(r"(leaf|sixfold|onefold|by_pointer)_\w+", name):
            assert profiled.calls[place] == expected["profiled", name], name


def test_lines_are_those_of_the_debug_information(profiled: Profile) -> None:
    source = (Path(__file__).parent.parent / "programs" / "profiled.c").read_text().splitlines()
    counts: Counter[str] = Counter()
    for (_, file, line), count in profiled.line_counts.items():
        if file.endswith("profiled.c"):
            counts[source[line - 1].strip()] += count
    # Ten rounds of 700 calls, each at least one instruction of the line in the loop.
    assert counts["sum = sum * 31 + i;"] >= 7000
    assert counts["sum = sum * 31 + i;"] % 7000 == 0


def test_callgrind_annotate_reads_a_real_profile(profiled: Profile, tmp_path: Path) -> None:
    need("callgrind_annotate")
    out = tmp_path / "callgrind.out"
    with out.open("wb") as file:
        callgrind.write(file, profiled)
    done = subprocess.run(
        ["callgrind_annotate", "--auto=yes", "--inclusive=yes", "--tree=calling", str(out)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"{profiled.total:,} (100.0%)  PROGRAM TOTALS" in done.stdout
    main = round(profiled.inclusive_counts[places(profiled)["main"]])
    assert re.search(rf"^ *{main:,} .*main", done.stdout, re.MULTILINE)
    # The source stands beside the counts.
    assert re.search(r"^[ \d,.()%]+sum = sum \* 31 \+ i;$", done.stdout, re.MULTILINE)


@pytest.mark.skipif(BOLT is None, reason="llvm-bolt is not installed")
def test_bolt_lays_out_the_program_anew(program: Path, profiled: Profile, tmp_path: Path) -> None:
    assert BOLT is not None
    data, out = tmp_path / "it.fdata", tmp_path / "bolted"
    with data.open("wb") as file:
        fdata.write(file, profiled)
    done = subprocess.run(
        [
            *(BOLT, str(program), "-o", str(out), f"-data={data}"),
            *("-reorder-blocks=ext-tsp", "-reorder-functions=hfsort", "-dyno-stats"),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    said = done.stdout + done.stderr
    have = re.search(r"(\d+) out of (\d+) functions in the binary .* non-empty", said)
    assert have is not None, said
    assert int(have[1]) >= 10
    assert "invalid" not in said
    # What it does stays the same.
    for command in (program, out):
        ended = subprocess.run([str(command)], capture_output=True, text=True, check=False)
        assert (ended.returncode, ended.stdout) == (3, "4020114757\n")


def weft_profile(*words: str | int | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "weft", "profile", *map(str, words)]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )


def test_the_command_gives_what_callgrind_does(
    program: Path, profiled: Profile, tmp_path: Path
) -> None:
    out = tmp_path / "it.json"
    done = weft_profile("-o", out, "--format", "json", "--", program)
    assert (done.returncode, done.stdout, done.stderr) == (3, "4020114757\n", "")
    found = profile_json.read(str(out))
    mine, theirs = places(found), places(profiled)
    for name in theirs:
        # Valgrind sets up the program otherwise before main.
        if re.fullmatch(r"\w+_\d+|main", name):
            assert found.self_counts[mine[name]] == profiled.self_counts[theirs[name]], name
            assert found.calls[mine[name]] == profiled.calls[theirs[name]], name


def test_the_text_goes_to_standard_error(program: Path) -> None:
    done = weft_profile("--module", "profiled", "--", program)
    assert done.returncode == 3
    assert done.stdout == "4020114757\n"
    assert re.search(r"^ *\d[\d,]* .* 700  leaf_of_700 ", done.stderr, re.MULTILINE)
    assert "Traceback" not in done.stderr


def test_a_running_process(build: Callable[[str], Path], tmp_path: Path) -> None:
    out = tmp_path / "it.json"
    with Background([build("pie")]) as running:
        done = weft_profile(running.pid, "--for", "0.5", "-o", out, "--format", "json")
        assert done.returncode == 0, done.stderr
        code, _ = running.finish()
    assert code == 7
    found = profile_json.read(str(out))
    assert found.total > 0
    assert found.module_counts[[one.name for one in found.modules].index("pie")] > 0


def test_a_program_that_is_not_there() -> None:
    done = weft_profile("--", "./no-such-program")
    assert done.returncode == 3
    assert "Traceback" not in done.stderr


def test_json_goes_round(profiled: Profile, tmp_path: Path) -> None:
    file = io.BytesIO()
    profile_json.write(file, profiled)
    out = tmp_path / "it.json"
    out.write_bytes(file.getvalue())
    assert profile_json.read(str(out)) == profiled
    document = json.loads(file.getvalue())
    assert sum(module["self"] for module in document["modules"]) == profiled.total


def test_a_file_that_has_changed_is_not_believed(program: Path, tmp_path: Path) -> None:
    own = tmp_path / "changing"
    shutil.copy(program, own)
    recorded = flow([own])
    shutil.copy("/bin/true", own)
    found = profile(recorded)
    assert any("the file is another one than was executed" in one for one in found.problems)
    assert "leaf_of_700" not in {function.name for function in found.functions}
    blocks = [block for module in recorded.modules for block in module.blocks]
    assert found.total == sum(block.count * block.instructions for block in blocks)
