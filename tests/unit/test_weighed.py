"""Stacks with weights and their formats: what the files say of stacks that were thought up."""

from __future__ import annotations

import io
import json
import re
import subprocess
import xml.etree.ElementTree as xml
from collections import defaultdict
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.e2e.harness import need
from tests.measurements import TARGET, Measurement
from tests.pprof import Pprof
from tests.profiles import words
from weft.errors import InvalidArgument
from weft.export.metrics.weighed import weighed
from weft.export.profile.weighed import by_function, by_line
from weft.export.stacks import (
    ENDINGS,
    flame,
    folded,
    format_of,
    html,
    pprof,
    save,
    speedscope,
)
from weft.metrics.grouping import named
from weft.model.measured import Interval, Missing, Value
from weft.model.program import SourceLocation
from weft.model.stacks import Stack, StackFrame
from weft.model.values import MapValue
from weft.model.weighed import StackSample, WeighedStacks

ALL = pytest.mark.parametrize("format_", [folded, flame, html, speedscope, pprof])
SVG = "{http://www.w3.org/2000/svg}"


def frame(name: str | None, address: int, line: int = 0, module: str = "letters") -> StackFrame:
    location = SourceLocation("/src/./letters.c", line) if line else None
    return StackFrame(address, name, address & 0xFF, module, location)


MALLOC = frame("malloc", 0x7010, module="libc.so.6")
PAPER = frame("paper", 0x1108, 7)
INLINED = StackFrame(0x1210, "fold", None, "letters", SourceLocation("/src/letters.c", 3), True)
NOTE, NOVEL = frame("note", 0x1210, 9), frame("novel", 0x1320, 11)
MAIN, MAIN_LATER = frame("main", 0x1430, 17), frame("main", 0x1440, 18)

STACKS: MapValue = {
    Stack((MALLOC, PAPER, NOTE, MAIN), is_whole=True): 100,
    Stack((MALLOC, PAPER, NOTE, MAIN_LATER), is_whole=True): 200,
    Stack((MALLOC, PAPER, INLINED, NOTE, MAIN), is_whole=True): 30,
    Stack((MALLOC, PAPER, NOVEL), is_whole=False): 5_000,
    Stack((MALLOC, frame(None, 0x9999)), is_whole=True): 7,
}
TOTAL = 5_337
FOLDED = {
    "main;note;paper;malloc": 300,
    "main;note;fold;paper;malloc": 30,
    "[truncated];novel;paper;malloc": 5_000,
    "0x9999;malloc": 7,
}


def divided(raw: MapValue = STACKS, name: str = "alloc_bytes", **parts: Any) -> Measurement:
    scale = 1e-9 if parts.get("unit") == "s" else 1.0
    value: Value = named(raw, [str], scale)
    return Measurement(name, value, "map", **{"unit": "bytes", **parts})


def made(**parts: Any) -> WeighedStacks:
    [found] = weighed(TARGET, [divided(**parts)])
    return found


def written(format_: ModuleType, *stacks: WeighedStacks) -> bytes:
    file = io.BytesIO()
    format_.write(file, *stacks)
    return file.getvalue()


def unfolded(data: bytes) -> dict[str, int]:
    lines = [line for line in data.decode().splitlines() if not line.startswith("#")]
    pairs = [line.rsplit(" ", 1) for line in lines]
    assert len({stack for stack, _ in pairs}) == len(pairs)
    return {stack: int(weight) for stack, weight in pairs}


def test_folded_stacks_are_the_keys_of_the_metric() -> None:
    metric = divided()
    assert isinstance(metric.value, dict)
    assert unfolded(written(folded, made())) == metric.value == FOLDED


def test_speedscope_has_what_its_schema_wants() -> None:
    document = json.loads(written(speedscope, made()))
    assert document["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    [one] = document["profiles"]
    assert one["type"] == "sampled"
    assert one["unit"] == "bytes"
    assert one["name"] == "redis-server --port 7000: alloc_bytes"
    assert (one["startValue"], one["endValue"]) == (0, TOTAL)
    frames = document["shared"]["frames"]
    # A function is one frame, wherever in it the calls are.
    assert len({found["name"] for found in frames}) == len(frames)
    found: dict[str, int] = defaultdict(int)
    for sample, weight in zip(one["samples"], one["weights"], strict=True):
        found[";".join(frames[number]["name"] for number in sample)] += weight
    assert found == FOLDED
    by_name = {found["name"]: found for found in frames}
    assert by_name["paper"]["file"] == "/src/letters.c"
    assert by_name["malloc"]["file"] == "libc.so.6"
    assert "file" not in by_name["[truncated]"]


def test_pprof_has_lines_and_inlined_functions() -> None:
    found = Pprof(written(pprof, made()))
    assert found.kinds == [("alloc_bytes", "bytes")]
    assert found.folded() == FOLDED
    first = (("main", 17), ("note", 9), ("paper", 7), ("malloc", 0))
    later = (("main", 18), *first[1:])
    assert (found.samples[first], found.samples[later]) == ([100], [200])
    # What is inlined is in the place of the function that has its code.
    assert [("fold", 3), ("note", 9)] in found.places.values()
    assert found.comments == ["redis-server --port 7000"]


def test_pprof_takes_the_program_for_the_first_module() -> None:
    stacks = {Stack((MALLOC, frame("main", 0x30, module="redis-server")), is_whole=True): 1}
    found = Pprof(written(pprof, made(raw=stacks)))
    assert found.modules == ["redis-server", "libc.so.6"]


def test_pprof_holds_several_metrics() -> None:
    some = dict(list(STACKS.items())[:1])
    metrics = [divided(), divided(some, "calls", unit="calls", focus="/Code/libc.so.6/malloc")]
    found = Pprof(written(pprof, *weighed(TARGET, metrics)))
    assert found.kinds == [("alloc_bytes", "bytes"), ("calls@/Code/libc.so.6/malloc", "count")]
    assert found.folded(0) == FOLDED
    assert {stack: value for stack, value in found.folded(1).items() if value} == {
        "main;note;paper;malloc": 100
    }


def test_go_reads_several_metrics(tmp_path: Path) -> None:
    need("go")
    file = tmp_path / "two.pprof"
    some = dict(list(STACKS.items())[:1])
    metrics = [divided(), divided(some, "count", unit="")]
    file.write_bytes(written(pprof, *weighed(TARGET, metrics)))

    def totals(*options: str) -> str:
        done = subprocess.run(
            ["go", "tool", "pprof", "-top", *options, str(file)],
            capture_output=True,
            text=True,
            env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
            check=True,
        )
        return done.stdout

    assert f"{TOTAL}B, 100% of {TOTAL}B total" in totals("-unit=B")
    assert "100, 100% of 100 total" in totals("-sample_index=count")


def boxes(picture: xml.Element) -> dict[str, tuple[str, float]]:
    """What the boxes of a picture are titled, and how wide they are."""
    found = {}
    for group in picture.iter(f"{SVG}g"):
        title, rect = group.find(f"{SVG}title"), group.find(f"{SVG}rect")
        assert title is not None and rect is not None and title.text is not None
        name, module, amount = title.text.splitlines()
        found[name] = f"{module} {amount}", float(rect.get("width", 0))
    return found


def test_the_flame_graph_shows_the_sums() -> None:
    found = boxes(xml.fromstring(written(flame, made())))
    # The calls of main are one box, wherever in it they are.
    assert found["main"][0] == "letters 330 bytes, 6.2%"
    assert found["main"][1] == pytest.approx(1180 * 330 / TOTAL, abs=0.1)
    assert found["[truncated]"][0] == " 5,000 bytes, 93.7%"
    text = written(flame, made()).decode()
    assert ">5.2 KiB; alloc_bytes by stack, exact<" in text
    assert "<title>redis-server --port 7000: alloc_bytes by stack</title>" in text


def test_the_page_has_the_picture_in_it() -> None:
    text = written(html, made()).decode()
    elements: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: object) -> None:
            elements.append(tag)

    reader = Reader()
    reader.feed(text)
    assert elements.count("svg") == elements.count("html") == elements.count("script") == 1
    # One file that needs no other, and tells nobody that it is looked at.
    assert not re.search(r"""(src|href)\s*=|url\(|@import""", text)
    picture = text[text.index("<svg") : text.index("</svg>") + len("</svg>")]
    assert boxes(xml.fromstring(picture)) == boxes(xml.fromstring(written(flame, made())))


WINDOW = """
const boxes = JSON.parse(process.argv[1]);
function element(attributes) {
  return {
    attributes, style: {}, textContent: '',
    getAttribute: (name) => attributes[name],
    setAttribute: (name, value) => { attributes[name] = value; },
    classList: { toggle: () => {} },
    addEventListener: function (kind, act) { this.act = act; },
  };
}
const groups = boxes.map((box) => {
  const parts = { rect: element(box), text: element({}) };
  return Object.assign(element({}), {
    dataset: { name: box.name }, querySelector: (tag) => parts[tag], parts,
  });
});
const named = { found: element({}), whole: element({}), search: element({}) };
const picture = Object.assign(element({}), {
  viewBox: { baseVal: { width: 1200, height: 200 } }, querySelector: () => element({}),
});
global.document = {
  documentElement: { clientWidth: 1000 }, querySelector: () => picture,
  querySelectorAll: () => groups, getElementById: (id) => named[id], addEventListener: () => {},
};
global.window = { addEventListener: function (kind, act) { this.resize = act; } };
eval(process.argv[2]);
const widths = () => Object.fromEntries(groups.filter((one) => one.style.display !== 'none').map(
  (one) => [one.dataset.name, Math.round(one.parts.rect.attributes.width)]));
const first = widths();
groups.find((one) => one.dataset.name === 'main').act();
document.documentElement.clientWidth = 500;
window.resize();
const zoomed = widths();
named.whole.act();
console.log(JSON.stringify({ first, zoomed, last: widths(), width: picture.attributes.width }));
"""


def test_the_page_fits_its_window() -> None:
    need("node")
    text = written(html, made()).decode()
    picture = xml.fromstring(text[text.index("<svg") : text.index("</svg>") + len("</svg>")])
    shapes = []
    for group in picture.iter(f"{SVG}g"):
        rect = group.find(f"{SVG}rect")
        assert rect is not None
        shapes.append({"name": group.get("data-name"), **rect.attrib})
    script = picture.findtext(f"{SVG}script")
    assert script is not None
    done = subprocess.run(
        ["node", "-e", WINDOW, "--", json.dumps(shapes), script],
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)
    assert found["first"]["main"] == pytest.approx(980 * 330 / TOTAL, abs=1)
    # It stays zoomed when the window changes.
    assert found["zoomed"]["main"] == 480
    assert "novel" not in found["zoomed"]
    assert found["last"]["main"] == pytest.approx(480 * 330 / TOTAL, abs=1)
    assert found["width"] == 500


def test_times_are_whole_nanoseconds() -> None:
    stacks = made(unit="s", name="lock_wait")
    assert stacks.total == TOTAL
    assert Pprof(written(pprof, stacks)).kinds == [("lock_wait", "nanoseconds")]
    assert json.loads(written(speedscope, stacks))["profiles"][0]["unit"] == "nanoseconds"
    assert ">5.3 us; lock_wait by stack, exact<" in written(flame, stacks).decode()


def test_what_has_no_unit_is_called_by_its_name() -> None:
    assert (
        ">5.3k times; times by stack, exact<"
        in written(flame, made(unit="", name="times")).decode()
    )


def said(format_: ModuleType, data: bytes) -> str:
    """All texts of a file."""
    if format_ is pprof:
        return " ".join(Pprof(data).comments)
    if format_ is speedscope:
        return str(json.loads(data)["profiles"][0]["name"])
    return data.decode()


@ALL
def test_an_estimate_is_called_one(format_: ModuleType) -> None:
    text = said(format_, written(format_, made(interval=Interval(4_000, 6_000, 0.95))))
    assert "~ alloc_bytes: from 3.9 KiB to 5.9 KiB with 95% confidence" in text
    if format_ in (flame, html):
        assert ">~5.2 KiB; alloc_bytes by stack, an estimate<" in text


@ALL
def test_what_is_missing_is_said(format_: ModuleType) -> None:
    missing = Missing("additions", "", "there was no room for them", 5, "fewer keys")
    stacks = made(missing=(missing,), remarks=("recursion counts twice",))
    text = said(format_, written(format_, stacks))
    assert "incomplete: missing additions (5): there was no room for them; try fewer keys" in text
    assert "recursion counts twice" in text


def test_readers_of_folded_stacks_leave_notes_out() -> None:
    data = written(folded, made(remarks=("it was 5", "it\nwas;6")))
    first, second, *rest = data.decode().splitlines()
    # As flamegraph.pl tells lines that are stacks.
    number = re.compile(r"^(.*)\s+?(\d+(?:\.\d*)?)$")
    assert not number.match(first) and not number.match(second)
    assert all(map(number.match, rest))
    assert len(rest) == len(FOLDED)


@ALL
def test_sums_that_are_negative_have_no_width(format_: ModuleType) -> None:
    raw: MapValue = {**STACKS, Stack((MALLOC, NOVEL, MAIN), is_whole=True): -5}
    data = written(format_, made(raw=raw))
    if format_ is pprof:
        assert Pprof(data).folded() == {**FOLDED, "main;novel;malloc": -5}
    else:
        assert "1 stack is left out, of a negative sum: -5 bytes" in said(format_, data)
    if format_ is folded:
        assert unfolded(data) == FOLDED


@ALL
def test_nothing_has_all_formats(format_: ModuleType) -> None:
    assert bool(written(format_, made(raw={}))) == (format_ is not folded)


@ALL
def test_hostile_names_do_no_harm(format_: ModuleType) -> None:
    nasty = '</script><b>"c"; d\n&]]>\x1b[31m\udcff'
    raw: MapValue = {Stack((frame(nasty, 0x10), frame("main", 0x20)), is_whole=True): 3}
    metric = divided(raw, remarks=(nasty,))
    [stacks] = weighed(TARGET, [metric])
    data = written(format_, stacks)
    if format_ is flame:
        xml.fromstring(data)
    if format_ is html:
        assert b"<b>" not in data
    if format_ is folded:
        assert list(unfolded(data).values()) == [3]
    if format_ in (flame, html, speedscope):
        assert b"\x1b" not in data


def test_a_profile_says_what_it_lacks() -> None:
    profile = replace(words(), problems=("1 program is missing: it was executed natively",))
    for format_ in (folded, flame, html, speedscope):
        assert "1 program is missing" in said(format_, written(format_, by_function(profile)))
    assert "1 program is missing" in said(pprof, written(pprof, by_line(profile)))


def test_the_lines_of_a_profile_add_up() -> None:
    found = Pprof(written(pprof, by_line(words())))
    assert found.kinds == [("instructions", "count")]
    assert found.folded() == unfolded(written(folded, by_function(words())))


NOTE_STACK = Stack((MALLOC, PAPER, NOTE, MAIN), is_whole=True)
NOVEL_STACK = Stack((MALLOC, PAPER, NOVEL), is_whole=False)


def test_stacks_are_made_of_pairs() -> None:
    pairs = [(NOTE_STACK, 2_000_000), (NOVEL_STACK, 1_000_000), (NOTE_STACK, 500_000)]
    stacks = WeighedStacks.of(
        pairs,
        title="letters",
        kind="cpu_time",
        unit="ns",
        status="estimate",
        notes=("a sample stands for 10 ms",),
        program="letters",
    )
    assert stacks.about == "cpu_time by stack"
    assert stacks.summary == "~3.5 ms; cpu_time by stack, an estimate"
    assert [module.name for module in stacks.modules] == ["letters", "libc.so.6"]
    assert unfolded(written(folded, stacks)) == {
        "main;note;paper;malloc": 2_500_000,
        "[truncated];novel;paper;malloc": 1_000_000,
    }
    assert "a sample stands for 10 ms" in said(flame, written(flame, stacks))


def test_functions_of_one_name_are_told_apart() -> None:
    def python(file: str, line: int) -> StackFrame:
        location = SourceLocation(file, line)
        return StackFrame(0, "run", None, None, location, language="python")

    pairs = [
        (Stack((python("a.py", 1),), is_whole=True), 1),
        (Stack((python("a.py", 2),), is_whole=True), 1),
        (Stack((python("b.py", 1),), is_whole=True), 1),
    ]
    stacks = WeighedStacks.of(pairs, title="x", kind="calls", unit="calls")
    first, second, third = (stack.frames[0].function for stack in stacks.stacks)
    assert first is second is not third


def test_samples_are_added_up() -> None:
    samples = [
        StackSample(1_000, 7, 8, NOTE_STACK, 10),
        StackSample(2_000, 7, 9, NOVEL_STACK, 10),
        StackSample(3_000, 7, 8, NOTE_STACK, 10),
    ]
    stacks = WeighedStacks.of_samples(samples, title="letters", kind="cpu_time", unit="ns")
    assert [stack.weight for stack in stacks.stacks] == [20, 10]
    assert stacks.total == sum(sample.stack.weight for sample in stacks.samples) == 30
    assert [(one.time, one.process, one.thread) for one in stacks.samples] == [
        (1_000, 7, 8),
        (2_000, 7, 9),
        (3_000, 7, 8),
    ]
    # A frame of a sample is the very one of the sums.
    assert stacks.samples[0].stack.frames == stacks.stacks[0].frames


def test_files_are_written_by_what_they_are_called(tmp_path: Path) -> None:
    assert save(tmp_path / "a.folded", made(remarks=("twice",))) == ["alloc_bytes: twice"]
    assert unfolded((tmp_path / "a.folded").read_bytes()) == FOLDED
    for ending, output_format in ENDINGS.items():
        assert format_of(f"a.b{ending}") == output_format
    with pytest.raises(InvalidArgument, match="shows stacks with weights of one kind"):
        save(tmp_path / "b.svg", made(), made())
    assert not (tmp_path / "b.svg").exists()
    save(tmp_path / "b.pb.gz", *weighed(TARGET, [divided(), divided()]))
    assert len(Pprof((tmp_path / "b.pb.gz").read_bytes()).kinds) == 2
