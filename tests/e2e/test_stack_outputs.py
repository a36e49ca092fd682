"""Flame graphs and other formats of metrics that are divided by stack."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as xml
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

import weft as api
from tests.pprof import Pprof
from weft.errors import InvalidArgument

Build: TypeAlias = Callable[[str], Path]

WEFT = (sys.executable, "-m", "weft")
SVG = "{http://www.w3.org/2000/svg}"
LOOKS = 60
"""How often the program calls ``look`` when it is run with "depths"."""
COUNT = ("-e", "entry look { times[stack()]++ }")
OUTER = "_start;__libc_start_main;__libc_start_call_main;main"


def weft(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*WEFT, *words], capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL
    )


def total(output_format: str, data: bytes) -> int:
    """The sum of all stacks in a file."""
    if output_format == "folded":
        lines = [line for line in data.decode().splitlines() if not line.startswith("#")]
        return sum(int(line.rsplit(" ", 1)[1]) for line in lines)
    if output_format == "pprof":
        return sum(Pprof(data).folded().values())
    if output_format == "speedscope":
        [one] = json.loads(data)["profiles"]
        assert sum(one["weights"]) == one["endValue"]
        return int(one["endValue"])
    text = data.decode()
    picture = xml.fromstring(text[text.index("<svg") : text.index("</svg>") + len("</svg>")])
    lowest: dict[float, int] = defaultdict(int)
    for group in picture.iter(f"{SVG}g"):
        title, rect = group.find(f"{SVG}title"), group.find(f"{SVG}rect")
        assert title is not None and rect is not None and title.text is not None
        amount = title.text.splitlines()[2].split()[0].replace(",", "")
        lowest[float(rect.get("y", 0))] += int(amount)
    return lowest[max(lowest)]


@pytest.mark.parametrize("weaver", ["patch", "clone"])
@pytest.mark.parametrize("output_format", ["folded", "svg", "html", "speedscope", "pprof"])
def test_every_format_adds_up(
    build: Build, tmp_path: Path, output_format: str, weaver: str
) -> None:
    out = tmp_path / "out"
    words: tuple[Any, ...] = ("run", "--weaver", weaver, *COUNT, "--format", output_format)
    done = weft(*words, "-o", out, "--", build("stack_keys"), "depths")
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert total(output_format, out.read_bytes()) == LOOKS


def test_folded_stacks_are_those_of_the_program(build: Build) -> None:
    words = ("run", "-m", "calls@look", "--by", "stack", "--format", "folded")
    done = weft(*words, "--", build("stack_keys"), "depths")
    assert done.returncode == 0, done.stderr
    found = dict(line.rsplit(" ", 1) for line in done.stderr.splitlines() if OUTER in line)
    assert found[f"{OUTER};down;look"] == "1"
    assert found[f"{OUTER};{'down;' * 10}look"] == "10"
    assert found[f"{OUTER};aside;{'down;' * 5}look"] == "1"
    assert sum(map(int, found.values())) == LOOKS


def test_a_stack_that_is_cut_begins_with_that(build: Build, tmp_path: Path) -> None:
    for output_format in ("folded", "svg", "speedscope"):
        out = tmp_path / output_format
        words = ("run", *COUNT, "--format", output_format, "-o", out)
        done = weft(*words, "--", build("stack_keys"), "deep")
        assert done.returncode == 0, done.stderr
        assert "[truncated]" in out.read_text()
        assert total(output_format, out.read_bytes()) == 2


def test_two_metrics_in_one_file(build: Build, tmp_path: Path) -> None:
    out = tmp_path / "two.pprof"
    snippet = "entry look { times[stack()]++; sums[stack()] += 3 }"
    words = ("run", "-e", snippet, "--format", "pprof", "-o", out)
    done = weft(*words, "--", build("stack_keys"), "depths")
    assert (done.returncode, done.stderr) == (0, "")
    found = Pprof(out.read_bytes())
    assert [kind for kind, _ in found.kinds] == ["times", "sums"]
    assert all(sums == 3 * times for times, sums in found.samples.values())
    assert sum(found.folded(1).values()) == 3 * LOOKS
    assert found.modules[0] == "stack_keys"


def test_times_are_in_nanoseconds(build: Build, tmp_path: Path) -> None:
    out = tmp_path / "out.pprof"
    words = ("run", "-m", "inclusive_time@aside", "--by", "stack", "--format", "pprof", "-o", out)
    done = weft(*words, "--", build("stack_keys"), "depths")
    assert done.returncode == 0, done.stderr
    # What one must know of the value is in the file, and said.
    assert "every call counts by itself" in done.stderr
    found = Pprof(out.read_bytes())
    assert found.kinds[0][1] == "nanoseconds"
    assert any("every call counts by itself" in comment for comment in found.comments)
    assert sum(found.folded().values()) > 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("-m calls@look --format folded", "try: --by stack\n"),
        ("-m calls@look --by caller --format html", "try: --by stack instead of --by caller"),
        ("-m calls@look --by thread --format pprof", "try: --by stack instead of --by thread"),
        ("-e entry~look{n[$caller]++} --format speedscope", "give it the stack as its only key"),
        ("-e entry~look{n[stack(),1]++} --format folded", "give it the stack as its only key"),
        (
            "-m calls@look -m calls@down --by stack --format svg",
            "svg shows one metric, and there are 2: calls@look, calls@down",
        ),
        ("--format svg -m calls@look --by stak", "nothing can be divided by 'stak'"),
    ],
)
def test_what_has_no_such_stacks_is_refused(
    build: Build, tmp_path: Path, words: str, said: str
) -> None:
    out = tmp_path / "out"
    options = [word.replace("~", " ") for word in words.split()]
    done = weft("run", *options, "-o", out, "--", build("stack_keys"), "depths")
    assert done.returncode == InvalidArgument.exit_code
    assert said in done.stderr
    # The program has not run, and there is no file of nothing.
    assert done.stdout == ""
    assert not out.exists()


def test_without_a_metric_there_are_no_stacks() -> None:
    done = weft("run", "--format", "folded", "--", "true")
    assert done.returncode == InvalidArgument.exit_code
    assert "nothing is to be measured, so --format folded has nothing to do" in done.stderr


@pytest.mark.parametrize(
    ("name", "output_format"),
    [
        ("out.svg", "svg"),
        ("out.html", "html"),
        ("out.folded", "folded"),
        ("out.speedscope.json", "speedscope"),
        ("out.pprof", "pprof"),
        ("out.pb.gz", "pprof"),
    ],
)
def test_the_ending_of_a_file_says_its_format(
    build: Build, tmp_path: Path, name: str, output_format: str
) -> None:
    out = tmp_path / name
    done = weft("run", *COUNT, "-o", out, "--", build("stack_keys"), "depths")
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert total(output_format, out.read_bytes()) == LOOKS


def test_a_format_that_is_given_counts_more_than_an_ending(build: Build, tmp_path: Path) -> None:
    out = tmp_path / "out.svg"
    words = ("run", *COUNT, "--format", "folded", "-o", out)
    done = weft(*words, "--", build("stack_keys"), "depths")
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert total("folded", out.read_bytes()) == LOOKS


def test_other_endings_are_those_of_text(build: Build, tmp_path: Path) -> None:
    for name in ("out.txt", "out.callgrind", "svg"):
        out = tmp_path / name
        done = weft("run", *COUNT, "-o", out, "--", build("stack_keys"), "depths")
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        assert "METRIC " in out.read_text()


def test_a_metric_is_written_from_python(build: Build, tmp_path: Path) -> None:
    program = build("stack_keys")
    with api.run([program, "depths"]) as session:
        session.run_to_entry()
        looks = session.metric("calls", "look", by="stack")
        whole = session.metric("calls", "look")
        session.resume()
        session.wait()
    # The target has ended, and its value is still there.
    for name, output_format in {
        "out.svg": "svg",
        "out.html": "html",
        "out.folded": "folded",
        "out.speedscope.json": "speedscope",
        "out.pb.gz": "pprof",
    }.items():
        out = tmp_path / name
        assert looks.write_stacks(out) == []
        assert total(output_format, out.read_bytes()) == LOOKS
    looks.write_stacks(tmp_path / "any", "folded")
    assert (tmp_path / "any").read_bytes() == (tmp_path / "out.folded").read_bytes()
    found = looks.weighed_stacks()
    assert (found.title, found.total) == (f"{program} depths", LOOKS)
    assert found.modules[0].name == "stack_keys"
    with pytest.raises(InvalidArgument, match="calls has no stacks"):
        whole.weighed_stacks()
    with pytest.raises(InvalidArgument, match="nothing says how to write"):
        looks.write_stacks(tmp_path / "out.png")
    with pytest.raises(InvalidArgument, match="is no format of stacks"):
        looks.write_stacks(tmp_path / "out.png", "png")  # type: ignore[arg-type]
    assert not (tmp_path / "out.png").exists()
