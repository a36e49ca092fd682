"""Profiles and their formats: what a profile that was thought up must look like."""

from __future__ import annotations

import gzip
import io
import json
import os
import pty
import re
import subprocess
import sys
import xml.etree.ElementTree as xml
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from tests.e2e.harness import need
from tests.profiles import COMPARE, HASH, LOOK_UP, MAIN, MALLOC, PRINT, PRINT_SIDE, STUB, words
from weft.cli import main
from weft.errors import BadFile
from weft.export.profile import callgrind, fdata, flame, folded, pprof, speedscope
from weft.export.profile import json as profile_json
from weft.export.profile import text as profile_text
from weft.tools.profile import Profile, diff

GOLDEN = Path(__file__).parent / "golden"
SVG = "{http://www.w3.org/2000/svg}"


def written(format_: ModuleType, profile: Profile) -> bytes:
    file = io.BytesIO()
    format_.write(file, profile)
    return file.getvalue()


def saved(profile: Profile, path: Path) -> Path:
    path.write_bytes(written(profile_json, profile))
    return path


def weft(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(word) for word in arguments])


def slower(profile: Profile) -> Profile:
    """The same with twice as much of one loop, and without another function."""
    blocks = [
        block._replace(count=2 * block.count) if block.offset == 0x1282 else block
        for block in profile.blocks
        if block.function != COMPARE
    ]
    return replace(profile, blocks=tuple(blocks))


def test_counts_are_sums_of_blocks() -> None:
    profile = words()
    assert profile.total == sum(block.count * block.instructions for block in profile.blocks)
    assert profile.self_counts[HASH] == 100_000 + 5 * 500_000 + 100_000
    assert sum(profile.self_counts) == sum(profile.module_counts) == profile.total
    assert sum(profile.line_counts.values()) == profile.total
    assert profile.line_counts[HASH, "/src/words.c", 13] == 4 * 500_000
    assert profile.line_counts[MALLOC, "", 0] == 5_000 * (3 + 1)


def test_a_stub_counts_to_the_function_that_it_leads_to() -> None:
    profile = words()
    assert profile.self_counts[STUB] == 0
    assert profile.self_counts[MALLOC] == 5_000 * (3 + 1)
    assert profile.calls[MALLOC] == 5_000
    assert profile.graph.calls[LOOK_UP, MALLOC] == 5_000
    assert STUB not in profile.hottest_functions()


def test_what_no_call_explains_came_by_an_indirect_branch() -> None:
    profile = words()
    assert profile.indirect_calls[COMPARE] == 60_000
    assert profile.indirect_calls[MAIN] == 1
    assert MALLOC not in profile.indirect_calls
    assert HASH not in profile.indirect_calls


def test_a_loop_to_the_beginning_of_a_function_is_no_call() -> None:
    profile = words()
    first = replace(profile.functions[HASH], offset=0x1282)
    functions = (*profile.functions[:HASH], first, *profile.functions[HASH + 1 :])
    edges = tuple(
        edge._replace(target=0x1282) if edge.target == 0x1280 else edge
        for edge in profile.edges
        if edge.source != 0x1280
    )
    blocks = tuple(block for block in profile.blocks if block.offset != 0x1280)
    assert replace(profile, functions=functions, edges=edges, blocks=blocks).calls[HASH] == 100_000


def test_functions_that_call_each_other() -> None:
    profile = words()
    assert profile.graph.cycles == [(PRINT, PRINT_SIDE)]
    assert profile.calls[PRINT] == 4_000


@pytest.mark.parametrize(
    ("name", "format_"),
    [("callgrind", callgrind), ("folded", folded), ("fdata", fdata)],
)
def test_formats_of_text(name: str, format_: ModuleType) -> None:
    text = written(format_, words()).decode()
    assert re.sub(r"weft \d\S*", "weft VERSION", text) == (GOLDEN / f"profile.{name}").read_text()


def test_the_text_for_people() -> None:
    file = io.BytesIO()
    profile_text.write(file, words(), 6)
    assert file.getvalue().decode() == (GOLDEN / "profile.txt").read_text()


def test_the_text_says_what_is_exact() -> None:
    file = io.BytesIO()
    profile_text.write(file, replace(words(), problems=("libx.so: gone",)), 3)
    text = file.getvalue().decode()
    assert "self counts and calls are exact; inclusive counts are attributed" in text
    assert "note: libx.so: gone" in text


def test_on_a_narrow_screen_names_are_shortened_and_numbers_are_not() -> None:
    profile = words()
    long = replace(profile.functions[HASH], demangled="a_very_long_name_" * 5)
    functions = (*profile.functions[:HASH], long, *profile.functions[HASH + 1 :])
    screen = Console(width=80, color_system=None, file=io.StringIO())
    with screen.capture() as shown:
        screen.print(profile_text.summary(replace(profile, functions=functions), 5, 80))
    [row] = [line for line in shown.get().splitlines() if " 100,000  a_very" in line]
    assert row.startswith("2,700,000  36.1%")
    assert "…" in row
    assert row.rstrip().endswith("words")


def test_of_a_long_block_both_ends_are_shown() -> None:
    profile = words()
    code = b"\x90" * 40 + bytes.fromhex("c3")
    long = profile.blocks[-1]._replace(code=code, size=41, instructions=41, count=10**9)
    file = io.BytesIO()
    profile_text.write(file, replace(profile, blocks=(*profile.blocks[:-1], long)), 1)
    text = file.getvalue().decode()
    assert text.count(" nop\n") == 12 + 3
    assert "  ... 25 more\n" in text
    assert text.rstrip().endswith("ret")


def test_a_profile_of_nothing_has_all_formats(tmp_path: Path) -> None:
    nothing = Profile(("true",), (), (), (), (), ())
    file = saved(nothing, tmp_path / "nothing.json")
    for name in (
        "text",
        "json",
        "callgrind",
        "pprof",
        "speedscope",
        "folded",
        "svg",
        "html",
        "fdata",
    ):
        result = weft("profile", "report", file, "--format", name, "-o", tmp_path / name)
        assert result.exit_code == 0, result.output
    assert "nothing was executed" in (tmp_path / "text").read_text()


def test_json_says_everything(tmp_path: Path) -> None:
    profile = words()
    document = json.loads(written(profile_json, profile))
    assert document["schema"] == 1
    assert document["total"] == profile.total
    assert document["functions"][HASH]["self"] == profile.self_counts[HASH]
    calls = {(call["caller"], call["callee"]): call["count"] for call in document["calls"]}
    assert calls[None, COMPARE] == 60_000
    assert calls[LOOK_UP, HASH] == 100_000
    assert profile_json.read(str(saved(profile, tmp_path / "words.json"))) == profile


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ("", "is no JSON"),
        ("[]", "is no profile"),
        ('{"kind": "profile", "schema": 99}', "another version"),
        ('{"kind": "profile", "schema": 1, "files": []}', "is no whole profile"),
    ],
)
def test_what_is_no_profile_is_refused(content: str, what: str, tmp_path: Path) -> None:
    file = tmp_path / "it.json"
    file.write_text(content)
    with pytest.raises(BadFile, match=what):
        profile_json.read(str(file))
    result = weft("profile", "report", file)
    assert result.exit_code == BadFile.exit_code
    assert "Traceback" not in result.output


@pytest.mark.parametrize("rows", ["blocks", "edges"])
@pytest.mark.parametrize("value", [-1, 1 << 64, 1.5, None, "1", True])
def test_a_number_that_is_none_is_refused(rows: str, value: object, tmp_path: Path) -> None:
    document = json.loads(written(profile_json, words()))
    for name in {"offset", "source", "target", "count", "to_module"} & document[rows][0].keys():
        changed = {**document, rows: [{**document[rows][0], name: value}, *document[rows][1:]]}
        file = tmp_path / f"{name}.json"
        file.write_text(json.dumps(changed))
        with pytest.raises(BadFile, match="no whole profile"):
            profile_json.read(str(file))


@pytest.mark.parametrize(("name", "value"), [("kind", '", "'), ("module", 99), ("to_module", 99)])
def test_an_edge_that_cannot_be_is_refused(name: str, value: object, tmp_path: Path) -> None:
    document = json.loads(written(profile_json, words()))
    document["edges"][0][name] = value
    file = tmp_path / "it.json"
    file.write_text(json.dumps(document))
    with pytest.raises(BadFile, match="no whole profile"):
        profile_json.read(str(file))


def test_speedscope_adds_up() -> None:
    profile = words()
    document = json.loads(written(speedscope, profile))
    [one] = document["profiles"]
    names = [frame["name"] for frame in document["shared"]["frames"]]
    assert sum(one["weights"]) == one["endValue"] == profile.total
    stacks = {
        tuple(names[frame] for frame in sample): weight
        for sample, weight in zip(one["samples"], one["weights"], strict=True)
    }
    assert stacks["[indirect]", "main", "look_up", "hash"] == profile.self_counts[HASH]
    assert ("[indirect]", "main", "<cycle 1>", "print_side") in stacks


def test_pprof_reads_its_format(tmp_path: Path) -> None:
    need("go")
    profile = words()
    file = tmp_path / "words.pprof"
    file.write_bytes(written(pprof, profile))
    environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}

    def rows(*options: str) -> dict[str, tuple[int, int]]:
        command = ["go", "tool", "pprof", "-top", "-nodecount=100", "-nodefraction=0", *options]
        done = subprocess.run(
            [*command, str(file)], capture_output=True, text=True, env=environment, check=True
        )
        pattern = re.compile(r"^ *(\d+) +\S+ +\S+ +(\d+) +\S+ +(.*)$", re.MULTILINE)
        return {name: (int(own), int(whole)) for own, whole, name in pattern.findall(done.stdout)}

    found = rows()
    for place in profile.hottest_functions():
        name = profile.functions[place].display_name
        own, whole = profile.self_counts[place], profile.inclusive_counts[place]
        assert found[name][0] == own
        if profile.graph.cycle_number(place) is None:
            assert found[name][1] == pytest.approx(whole, abs=5)
    lines = rows("-lines")
    assert lines["hash /src/words.c:13"][0] == 4 * 500_000
    # Two equal profiles are equal files.
    assert written(pprof, words()) == file.read_bytes()
    assert gzip.decompress(file.read_bytes())


def test_callgrind_annotate_reads_its_format(tmp_path: Path) -> None:
    need("callgrind_annotate")
    profile = words()
    file = tmp_path / "callgrind.out.words"
    file.write_bytes(written(callgrind, profile))

    def annotated(*options: str) -> str:
        command = ["callgrind_annotate", "--threshold=100", *options, str(file)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    own = annotated("--auto=yes", "--tree=both")
    assert f"{profile.total:,} (100.0%)  PROGRAM TOTALS" in own
    assert f"{profile.self_counts[HASH]:,}" in own
    whole = annotated("--inclusive=yes")
    assert re.search(rf"^ *{round(profile.inclusive_counts[MAIN]):,} .*:main \[", whole, re.M)
    assert re.search(rf"^ *{round(profile.inclusive_counts[LOOK_UP]):,} .*:look_up \[", whole, re.M)


def test_the_flame_graph_is_a_picture_of_the_stacks() -> None:
    profile = words()
    picture = xml.fromstring(written(flame, profile))
    boxes = {}
    for group in picture.iter(f"{SVG}g"):
        title, rect = group.find(f"{SVG}title"), group.find(f"{SVG}rect")
        assert title is not None and rect is not None and title.text is not None
        boxes[title.text.splitlines()[0]] = rect
    whole = float(boxes["[indirect]"].get("width", 0))
    assert whole == pytest.approx(1180, abs=0.1)
    share = profile.inclusive_counts[LOOK_UP] / profile.total
    assert float(boxes["look_up"].get("width", 0)) == pytest.approx(whole * share, abs=0.1)
    # A function is drawn above its caller, and within it.
    inner, outer = boxes["hash"], boxes["look_up"]
    assert float(inner.get("y", 0)) < float(outer.get("y", 0))
    assert float(inner.get("x", 0)) >= float(outer.get("x", 0))
    assert picture.find(f"{SVG}script") is not None


BROWSER = """
// As much of a browser as the picture's script needs.
const boxes = JSON.parse(process.argv[1]), handlers = {};
function element(attributes) {
  const classes = new Set();
  return {
    attributes, classes, style: {}, textContent: '',
    getAttribute: (name) => attributes[name],
    setAttribute: (name, value) => { attributes[name] = value; },
    classList: { toggle: (name, on) => on ? classes.add(name) : classes.delete(name) },
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
global.document = {
  querySelectorAll: () => groups, getElementById: (id) => named[id], addEventListener: () => {},
};
global.prompt = () => 'h.sh';
eval(process.argv[2]);
const show = () => groups.filter((group) => group.style.display !== 'none').map((group) => [
  group.dataset.name, Math.round(group.parts.rect.attributes.width), group.parts.text.textContent,
]);
groups.find((group) => group.dataset.name === 'look_up').act();
const zoomed = show();
named.search.act();
const matches = groups.filter((group) => group.classes.has('match'));
named.whole.act();
console.log(JSON.stringify({
  zoomed, whole: show(), found: named.found.textContent,
  matches: matches.map((group) => group.dataset.name),
}));
"""


def test_the_flame_graph_zooms_and_searches() -> None:
    need("node")
    picture = xml.fromstring(written(flame, words()))
    boxes = []
    for group in picture.iter(f"{SVG}g"):
        rect = group.find(f"{SVG}rect")
        assert rect is not None
        boxes.append({"name": group.get("data-name"), **rect.attrib})
    script = picture.findtext(f"{SVG}script")
    assert script is not None
    done = subprocess.run(
        ["node", "-e", BROWSER, "--", json.dumps(boxes), script],
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)
    zoomed = {name: width for name, width, _ in found["zoomed"]}
    # What called it stays, as wide as the picture; what is beside it goes.
    assert zoomed["look_up"] == zoomed["main"] == zoomed["[indirect]"] == 1180
    share = words().self_counts[HASH] / words().inclusive_counts[LOOK_UP]
    assert zoomed["hash"] == pytest.approx(1180 * share, abs=2)
    assert "next_word" not in zoomed
    assert len(found["whole"]) == len(boxes)
    assert found["matches"] == ["hash"]
    assert found["found"] == "36.1% match h.sh"


def test_names_that_mean_something_to_a_format_do_no_harm(tmp_path: Path) -> None:
    profile = words()
    nasty = replace(profile.functions[HASH], demangled='a<b>::"c"; d\n&\x1b[31m')
    functions = (*profile.functions[:HASH], nasty, *profile.functions[HASH + 1 :])
    profile = replace(profile, functions=functions, command=("x", "\udcff<script>"))
    xml.fromstring(written(flame, profile))
    for line in written(folded, profile).decode().splitlines():
        assert re.fullmatch(r".* \d+", line)
    for name in ("text", "callgrind", "pprof", "speedscope", "svg", "html"):
        file = saved(profile, tmp_path / "nasty.json")
        out = tmp_path / name
        result = weft("profile", "report", file, "--format", name, "-o", out)
        assert result.exit_code == 0, result.output
        assert b"\x1b" not in out.read_bytes() or name == "pprof"


def test_only_some_modules() -> None:
    profile = words().only("libc*")
    assert {profile.modules[function.module].name for function in profile.functions} == {
        "libc.so.6"
    }
    assert profile.total == 5_000 * 3 + 200 * 3 + 30_000 * 3
    rest = words().only("words")
    assert rest.total + profile.total == words().total


def test_bolt_wants_the_program() -> None:
    profile = words()
    turned = replace(
        profile,
        modules=(profile.modules[1], profile.modules[0]),
        functions=tuple(replace(one, module=1 - one.module) for one in profile.functions),
        edges=tuple(
            edge._replace(module=1 - edge.module, to_module=1 - edge.to_module)
            for edge in profile.edges
        ),
    )
    assert written(fdata, turned) == written(fdata, profile)
    # The command was a link to the program.
    assert written(fdata, replace(turned, command=("wc",))) == written(fdata, profile)
    assert b" qsort 0 " in written(fdata, profile.only("libc*"))


def test_what_has_changed() -> None:
    changes = {change.name: change for change in diff(words(), slower(words()))}
    assert changes["hash"].after - changes["hash"].before == 5 * 500_000
    assert changes["compare"].after == 0
    assert changes["main"].before == changes["main"].after
    assert changes["main"].inclusive_after - changes["main"].inclusive_before == 5 * 500_000


def test_the_comparison_of_two_files(tmp_path: Path) -> None:
    before = saved(words(), tmp_path / "before.json")
    after = saved(slower(words()), tmp_path / "after.json")
    result = weft("profile", "diff", before, after)
    assert result.exit_code == 0
    assert result.stdout == (GOLDEN / "profile-diff.txt").read_text()
    result = weft("profile", "diff", before, after, "--format", "json")
    rows = {row["function"]: row for row in json.loads(result.stdout)["functions"]}
    assert rows["compare"]["calls"] == [60_000, 0]
    assert "no function has changed" in weft("profile", "diff", before, before).stdout


def test_a_report_can_be_limited(tmp_path: Path) -> None:
    file = saved(words(), tmp_path / "words.json")
    assert " next_word " in weft("profile", "report", file).stdout
    assert " next_word " not in weft("profile", "report", file, "--module", "libc*").stdout
    refused = weft("profile", "report", file, "--module", "nothing*")
    assert refused.exit_code == 2
    assert "nothing was executed in modules like 'nothing*'" in refused.stderr
    one = weft("profile", "report", file, "--top", "1", "--format", "text").stdout
    assert one.count("executed") == 1


def test_help_says_how(tmp_path: Path) -> None:
    text = weft("profile", "--help").stdout
    assert "weft profile diff before.json after.json" in text
    assert "FILE" in weft("profile", "report", "--help").stdout
    assert weft("profile").exit_code == 2
    assert weft("profile", "diff", tmp_path / "none", tmp_path / "none").exit_code == 4


def test_for_is_for_processes() -> None:
    result = weft("profile", "--for", "1", "--", "true")
    assert result.exit_code == 2
    assert "--for is for processes that run already" in result.stderr


def test_no_word_is_broken_on_a_terminal(tmp_path: Path) -> None:
    file = saved(words(), tmp_path / "words.json")
    master, terminal = pty.openpty()
    done = subprocess.run(
        [sys.executable, "-m", "weft", "profile", "report", file],
        stdout=terminal,
        env={**os.environ, "TERM": "dumb", "COLUMNS": "100"},
        timeout=60,
    )
    os.close(terminal)
    said = os.read(master, 1 << 16).decode().splitlines()
    os.close(master)
    assert done.returncode == 0
    assert "called from where" in " ".join(said)
    assert max(map(len, said)) <= 100
