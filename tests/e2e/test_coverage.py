"""Coverage of real programs: lines and their counts are those of gcov."""

from __future__ import annotations

import ctypes
import functools
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

import weft
from tests import drcov, executed, gcov
from tests.covered import while_slow
from tests.e2e.harness import answers, free_port, need, redis_clients, server
from tests.toolchain import PROGRAMS, run
from weft.control.clone import Records
from weft.export.coverage.json import read
from weft.model.flow import Flow
from weft.tools import coverage

SOURCES = sorted((PROGRAMS / "coverage").iterdir())
WEFT = [sys.executable, "-m", "weft"]

LABEL = re.compile(r"\s*(case .*|default|\w+):( \{)?$|\s*va_end\(")
"""Lines that gcov counts, and that have no code: there is nothing to execute on them."""
ENDS = re.compile(r"\s*\}|class |template ")
"""Lines of which gcov says nothing: ends of functions, and members that nobody has written."""


def build(source: Path, folder: Path, *options: str) -> Path:
    """Build a program with debug information, and without gcov's."""
    program = folder / source.stem
    compiler = gcov.compiler(source)
    need(compiler)
    subprocess.run([compiler, "-g", *options, source, "-o", program, "-lm"], check=True)
    return program


@functools.cache
def truth_of(source: Path, option: str = "-O0") -> dict[int, int]:
    """How often each line was executed, as gcov says."""
    return gcov.lines(source, [option])


def lines_of(flow: Flow, source: Path) -> dict[int, int]:
    """How often each line of a source file was executed."""
    covered = coverage.cover(flow, patterns=[source.stem])
    [lines] = [file.lines for file, _ in covered.files() if Path(file.path) == source]
    return dict(lines)


def by_callgrind(program: Path) -> Flow:
    """What a program executes, as Valgrind sees it."""
    return executed.flow([program], only=[str(program)])


def by_clone(program: Path) -> Flow:
    """What a program executes, as weft sees it."""
    out = program.with_suffix(".json")
    options = ["--counts", "--format", "json", "-o", str(out)]
    command = [*WEFT, "cov", *options, "--", str(program)]
    subprocess.run(command, check=False, stdout=subprocess.DEVNULL)
    return read(out).flow


ALL_SOURCES = pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)


def test_there_are_ten_programs() -> None:
    assert len(SOURCES) == 10


@pytest.mark.parametrize("recorded", [by_callgrind, by_clone])
@ALL_SOURCES
def test_lines_and_counts_are_those_of_gcov(
    source: Path, recorded: Callable[[Path], Flow], tmp_path: Path
) -> None:
    found = lines_of(recorded(build(source, tmp_path, "-O0")), source)
    truth = truth_of(source)
    both = found.keys() & truth.keys()
    assert len(both) > 10
    assert {line: found[line] for line in both} == {line: truth[line] for line in both}
    text = source.read_text().splitlines()
    assert [line for line in truth.keys() - both if not LABEL.match(text[line - 1])] == []
    assert [line for line in found.keys() - both if not ENDS.match(text[line - 1])] == []


@pytest.mark.parametrize("option", ["-fjump-tables", "-fno-jump-tables", "-no-pie"])
def test_counts_of_what_is_written_on_one_line_are_those_of_gcov(
    option: str, tmp_path: Path
) -> None:
    """The ways through a table are within the line; those of a computed goto come from no line."""
    source = PROGRAMS / "one_line.c"
    found = lines_of(by_clone(build(source, tmp_path, "-O0", option)), source)
    truth = gcov.lines(source, ["-O0", option])
    both = found.keys() & truth.keys()
    assert len(both) > 60
    text = source.read_text().splitlines()
    differing = {
        text[line - 1].strip(): (found[line], truth[line])
        for line in both
        if found[line] != truth[line]
    }
    # gcov gives the loop that a function begins with to the line of the function as well.
    assert differing == {"static void go_to(int n)": (20, 210)}


def test_no_count_of_threads_is_lost(tmp_path: Path) -> None:
    """Unless it is told to be careful, gcov loses counts that threads add at the same time."""
    source = PROGRAMS / "counted_threads.c"
    found = lines_of(by_clone(build(source, tmp_path, "-O0", "-pthread")), source)
    truth = gcov.lines(source, ["-O0", "-pthread", "-fprofile-update=atomic"])
    both = found.keys() & truth.keys()
    assert len(both) > 10
    assert {line: found[line] for line in both} == {line: truth[line] for line in both}


@ALL_SOURCES
def test_optimised_lines_are_executed_or_not_as_gcov_says(source: Path, tmp_path: Path) -> None:
    found = lines_of(by_clone(build(source, tmp_path, "-O2")), source)
    truth = truth_of(source, "-O2")
    both = found.keys() & truth.keys()
    assert len(both) > 10
    text = source.read_text().splitlines()
    differing = [text[line - 1] for line in both if bool(found[line]) != bool(truth[line])]
    # gcov puts the parts of a function that is inlined in parts to the function that it was, and
    # has no count for members that the compiler has made.
    wrong_in_gcov = {"    if (x > 3) return;", '    printf("%d", x);', "class Stack {"}
    assert set(differing) <= wrong_in_gcov


@ALL_SOURCES
def test_blocks_of_stripped_programs_are_those_that_valgrind_sees(
    source: Path, tmp_path: Path
) -> None:
    program = build(source, tmp_path, "-O2", "-s")
    sections = run("readelf", "-SW", program)
    match = re.search(r" \.text +PROGBITS +(\w+) \w+ (\w+)", sections)
    assert match
    start, size = int(match[1], 16), int(match[2], 16)
    text = range(start, start + size)

    def counts(flow: Flow) -> dict[int, int]:
        """How often each byte was executed, however blocks are divided.

        Valgrind says nothing of what is in no function, as the stubs of the linker.
        """
        [module] = [module for module in flow.modules if module.path == str(program)]
        return {
            block.offset + index: block.count
            for block in module.blocks
            for index in range(block.size)
            if block.offset in text
        }

    found = counts(by_clone(program))
    assert len(found) > 200
    assert found == counts(by_callgrind(program))


@pytest.mark.parametrize("name", ["tree", "parser", "sorting"])
def test_a_program_that_gcov_counts_has_the_same_lines(name: str, tmp_path: Path) -> None:
    source = PROGRAMS / "coverage" / f"{name}.c"
    program = tmp_path / name
    options = ["-g", "-O0", "--coverage"]
    subprocess.run(["gcc", *options, source, "-o", program], cwd=tmp_path, check=True)
    found = lines_of(by_callgrind(program), source)
    truth = truth_of(source)
    both = found.keys() & truth.keys()
    assert {line: found[line] for line in both} == {line: truth[line] for line in both}


JOINED = PROGRAMS / "clone" / "shared_calls.c"
TWICE = {
    "calls": ["{folder}/shared_calls", "direct"],
    "sqlite3": [
        *("sqlite3", ":memory:"),
        "create table t(a, b); insert into t values (1, 2), (3, 4);select sum(a) from t group by b",
    ],
    "python3": ["/usr/bin/python3", "-c", "import json, re; print(re.findall('a+', 'aaba'))"],
    # The compiler proper: the driver makes up names of files.
    "gcc": ["{cc1}", "-quiet", "-O2", "-fpreprocessed", "{folder}/tree.i", "-o", "/dev/null"],
}


ADDR_NO_RANDOMIZE = 0x004_0000


@pytest.fixture
def same_addresses() -> Iterator[None]:
    """What is started has the same addresses each time."""
    libc = ctypes.CDLL(None)
    before = libc.personality(0xFFFF_FFFF)
    libc.personality(before | ADDR_NO_RANDOMIZE)
    if not libc.personality(0xFFFF_FFFF) & ADDR_NO_RANDOMIZE:
        pytest.skip("addresses cannot be chosen here: a container may forbid it")
    yield
    libc.personality(before)


@pytest.mark.parametrize("name", TWICE)
def test_what_is_covered_is_what_is_counted(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, same_addresses: None
) -> None:
    """All blocks and edges: what is noted once, and what is counted, find the same.

    At the same addresses, with the same hashes, these programs do the same each time.
    """
    need("gcc")
    need("sqlite3")
    run("gcc", "-O1", "-D_GNU_SOURCE", str(JOINED), "-o", tmp_path / "shared_calls")
    run("gcc", "-E", str(PROGRAMS / "coverage" / "tree.c"), "-o", tmp_path / "tree.i")
    cc1 = subprocess.check_output(["gcc", "-print-prog-name=cc1"], text=True).strip()
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    words = [word.format(folder=tmp_path, cc1=cc1) for word in TWICE[name]]
    found = []
    kinds: tuple[Records, ...] = ("hits", "counts")
    for records in kinds:
        with weft.run(words, weaver="clone", records=records, stdout=subprocess.DEVNULL) as program:
            assert program.wait(300) == 0
        flow = program.flow()
        paths = [module.path for module in flow.modules]
        blocks = {
            (path, *b[:2]) for path, m in zip(paths, flow.modules, strict=True) for b in m.blocks
        }
        edges = {(paths[e.module], e.source, paths[e.to_module], *e[3:5]) for e in flow.edges}
        found.append((blocks, edges))
    assert len(found[0][1]) > 1000
    assert found[0] == found[1]


def test_functions_and_branches(tmp_path: Path) -> None:
    program = build(PROGRAMS / "coverage" / "parser.c", tmp_path, "-O0")
    covered = coverage.cover(by_callgrind(program), patterns=["parser"])
    [module] = covered.modules
    counts = {function.name: function.count for function in module.functions}
    truth = truth_of(PROGRAMS / "coverage" / "parser.c")
    source = (PROGRAMS / "coverage" / "parser.c").read_text().splitlines()
    heads = {
        match[1]: number
        for number, line in enumerate(source, 1)
        if (match := re.match(r"(?:static )?\w+ (\w+)\(void\) \{", line))
    }
    assert counts == {name: truth[line] for name, line in heads.items()}
    [file] = module.files
    line = next(n for n, text in enumerate(source, 1) if "if (by == 0)" in text)
    # `jne` past the error: taken both times that something was divided.
    assert [b.outcomes for b in file.branches if b.line == line] == [(2, 0)]
    line = next(n for n, text in enumerate(source, 1) if "*at == ')'" in text)
    [branch] = [b for b in file.branches if b.line == line]
    assert sorted(branch.outcomes) == [1, truth[line] - 1]


def test_without_counts_a_line_is_executed_or_not(tmp_path: Path) -> None:
    source = PROGRAMS / "coverage" / "tree.c"
    flow = by_callgrind(build(source, tmp_path, "-O0"))
    modules = []
    for module in flow.modules:
        blocks = tuple(type(b)(b.offset, b.size, b.instructions, 1) for b in module.blocks)
        modules.append(type(module)(module.path, module.build_id, 0, 0, 0x10000, blocks))
    edges = tuple(type(e)(e.module, e.source, e.to_module, e.target, e.kind, 1) for e in flow.edges)
    seen = lines_of(Flow(tuple(modules), edges, False, flow.command), source)
    assert seen == {line: min(count, 1) for line, count in lines_of(flow, source).items()}


def test_a_stripped_program_has_functions_and_no_lines(tmp_path: Path) -> None:
    program = build(PROGRAMS / "coverage" / "short.c", tmp_path, "-O0")
    subprocess.run(["strip", program], check=True)
    covered = coverage.cover(by_callgrind(program), patterns=["short"])
    [module] = covered.modules
    assert module.files == () and module.function_share.hit >= 2


def test_a_program_that_has_changed_since_is_not_taken_for_the_same(tmp_path: Path) -> None:
    program = build(PROGRAMS / "coverage" / "short.c", tmp_path, "-O0")
    flow = by_callgrind(program)
    build(PROGRAMS / "coverage" / "short.c", tmp_path, "-O2")
    [module] = coverage.cover(flow, patterns=["short"]).modules
    assert module.functions == () and module.files == ()


# --- The patch weaver: functions, by probes that go ----------------------------------------------

LATER = r"""
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
__attribute__((noinline)) int often(int x) { for (int i = 0; i < x % 3; i++) x ^= i; return x + 1; }
__attribute__((noinline)) int late(int x) { for (int i = 0; i < x % 5; i++) x ^= i; return x + 2; }
__attribute__((noinline)) int never(int x) { for (int i = 0; i < x % 7; i++) x ^= i; return x; }
int main(int argc, char **argv) {
    int x = 0, rounds = atoi(argv[1]);
    puts("ready");
    fflush(stdout);
    for (int i = 0; i < rounds; i++) {
        x = often(x);
        if (i == rounds - 5) x = late(x);
        if (argc > 9) x = never(x);
        usleep(1000);
    }
    return x == -1 ? 8 : 7;
}
"""


@pytest.fixture
def later(tmp_path: Path) -> Path:
    source = tmp_path / "later.c"
    source.write_text(LATER)
    program = tmp_path / "later"
    subprocess.run(["gcc", "-g", "-O1", source, "-o", program], check=True)
    return program


def counts_in(file: Path) -> dict[str, int]:
    [module] = read(file).modules
    return {function.name: function.count for function in module.functions}


def cov(arguments: Sequence[str | Path], folder: Path) -> subprocess.CompletedProcess[str]:
    command = [*WEFT, "cov", *map(str, arguments)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_functions_by_probes(later: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    options = ["--weaver", "patch", "--format", "json", "-o", str(out)]
    # Long enough for probes to be taken out on the way.
    done = cov([*options, "--", later, "1300"], tmp_path)
    assert (done.returncode, done.stdout) == (7, "ready\n"), done.stderr
    assert counts_in(out) == {"often": 1, "late": 1, "never": 0, "main": 1}
    done = cov([*options, "--counts", "--", later, "30"], tmp_path)
    assert done.returncode == 7
    assert counts_in(out) == {"often": 30, "late": 1, "never": 0, "main": 1}


def test_functions_of_a_process_so_far(later: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    with subprocess.Popen([later, "100000"], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == b"ready\n"
            options = ["--weaver", "patch", "--format", "json", "-o", str(out)]
            command = [*WEFT, "cov", str(process.pid), *options, "--module", "later"]
            with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as weft:
                try:
                    assert weft.stderr is not None and "until Ctrl-C" in weft.stderr.readline()
                    weft.send_signal(signal.SIGUSR1)
                    deadline = time.monotonic() + 30
                    while not out.exists() and time.monotonic() < deadline:
                        time.sleep(0.01)
                    # Written while both go on.
                    assert weft.poll() is None and process.poll() is None
                    assert counts_in(out) == {"often": 1, "late": 0, "never": 0, "main": 0}
                    weft.send_signal(signal.SIGINT)
                    assert weft.wait(30) == 0
                finally:
                    weft.send_signal(signal.SIGINT)
            assert process.poll() is None
        finally:
            process.kill()


def test_a_module_that_is_not_there_ends_the_program_before_it_begins(
    later: Path, tmp_path: Path
) -> None:
    done = cov(["--weaver", "patch", "--module", "nothing*", "--", later, "5"], tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "there is no module to record" in done.stderr and "later" in done.stderr


# --- The clone: everything ------------------------------------------------------------------------


def test_every_format_of_a_program(tmp_path: Path) -> None:
    program = build(PROGRAMS / "coverage" / "parser.c", tmp_path, "-O0")
    out = {name: tmp_path / name for name in ("json", "lcov", "html", "cobertura", "drcov")}
    for name, file in out.items():
        done = cov(["--format", name, "-o", file, "--", program], tmp_path)
        assert done.returncode == 0 and "= 7" in done.stdout, done.stderr
    modules = drcov.read(out["drcov"].read_bytes()).modules.values()
    assert str(program) in [module["path"] for module in modules]
    assert "DA:" in out["lcov"].read_text()
    assert json.loads(out["json"].read_bytes())["counted"] is False
    done = cov(["--", program], tmp_path)
    assert "NOT EXECUTED (" not in done.stderr and "61-62" in done.stderr


def test_a_process_is_recorded_and_goes_on(later: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    with subprocess.Popen([later, "100000"], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == b"ready\n"
            options = ["--for", "1", "--module", "later", "--format", "json", "-o", str(out)]
            done = cov([str(process.pid), *options], tmp_path)
            assert done.returncode == 0, done.stderr
            assert process.poll() is None
        finally:
            process.kill()
    modules = {module.name: module for module in read(out).modules}
    counts = {function.name: function.count for function in modules["later"].functions}
    assert counts == {"often": 1, "late": 0, "never": 0, "main": 1}


def test_a_process_with_other_files_is_recorded(later: Path, tmp_path: Path) -> None:
    """As in a container: where it has its program, others have nothing."""
    need("unshare")
    inner, out = tmp_path / "inner", tmp_path / "out.json"
    inner.mkdir()
    script = f"mount --bind {later.parent} {inner} && cd {inner} && exec ./later 100000"
    with subprocess.Popen(["unshare", "-m", "sh", "-c", script], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            if process.stdout.readline() != b"ready\n":
                pytest.skip("mounting is not allowed here")
            options = ["--for", "0.5", "--format", "json", "-o", str(out)]
            done = cov([str(process.pid), *options], tmp_path)
            assert done.returncode == 0, done.stderr
        finally:
            process.kill()
    [module] = [module for module in read(out).modules if module.name == "later"]
    assert module.path == str(inner / "later") and not (inner / "later").exists()
    assert {function.name for function in module.functions if function.count} == {"often", "main"}
    assert module.line_share.total > 10


def test_a_server_is_recorded_under_load(tmp_path: Path) -> None:
    need("redis-server", "redis-benchmark")
    port = free_port()
    quiet = ["--save", "", "--appendonly", "no", "--loglevel", "warning"]
    address = ["--bind", "127.0.0.1", "--port", str(port), "--dir", str(tmp_path)]
    out = tmp_path / "out.json"
    with server(["redis-server", *address, *quiet], lambda: answers(port)) as pid:
        with redis_clients(port, "set", "get", "lpush"):
            for options in (["--weaver", "patch"], [], ["--counts"]):
                wanted = ["--for", "1", "--format", "json", "-o", str(out)]
                done = cov([str(pid), *wanted, *options], tmp_path)
                assert done.returncode == 0, done.stderr
                [module] = [one for one in read(out).modules if one.is_detailed]
                hit = {function.name for function in module.functions if function.count}
                assert len(hit) > 30, options
        merged = cov(["report", out, "--format", "drcov", "-o", tmp_path / "out.drcov"], tmp_path)
        assert merged.returncode == 0, merged.stderr
        assert len(drcov.read((tmp_path / "out.drcov").read_bytes()).blocks) > 500


@pytest.mark.parametrize(
    ("script", "limit", "code"), [("exit 0", "99", 6), ("exit 3", "99", 3), ("exit 0", "0", 0)]
)
def test_a_program_that_fails_keeps_its_exit_code(script: str, limit: str, code: int) -> None:
    command = [sys.executable, "-m", "weft", "cov", "--fail-under", limit]
    done = subprocess.run(
        [*command, "--", "sh", "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == code
    assert f"the limit is {limit}%" in done.stderr


def test_two_programs_with_a_library_in_one_report(tmp_path: Path) -> None:
    """Lines of a library that one run has not looked at are found; nothing counts twice."""
    (tmp_path / "shared.c").write_text(
        "int twice(int x) {\n    return 2 * x;\n}\n"
        "int thrice(int x) {\n    return 3 * x;\n}\n"
        "int never(int x) {\n    return x;\n}\n"
    )
    library = tmp_path / "libshared.so"
    subprocess.run(
        ["gcc", "-g", "-shared", "-fPIC", tmp_path / "shared.c", "-o", library], check=True
    )
    files: list[Path] = []
    for name, function in (("left", "twice"), ("right", "thrice")):
        source, program = tmp_path / f"{name}.c", tmp_path / name
        source.write_text(
            f"int {function}(int);\nint main(void) {{\n    return {function}(0);\n}}\n"
        )
        subprocess.run(
            ["gcc", "-g", source, library, f"-Wl,-rpath,{tmp_path}", "-o", program], check=True
        )
        files.append(tmp_path / f"{name}.json")
        chosen = ["--module", name, *(["--module", "libshared*"] if name == "left" else [])]
        options = [*chosen, "--context", name, "--format", "json", "-o", str(files[-1])]
        assert cov([*options, "--", program], tmp_path).returncode == 0
    done = cov(["merge", *files, "-o", tmp_path / "both.json"], tmp_path)
    assert done.returncode == 0, done.stderr
    merged = read(tmp_path / "both.json")
    [shared] = [module for module in merged.modules if module.path == str(library)]
    [file] = shared.files
    assert {line for line, count in file.lines.items() if count} == {1, 2, 4, 5}
    assert {line for line, count in file.lines.items() if not count} == {7, 8}

    def contexts(where: str) -> list[str]:
        [place] = coverage.contexts_at(merged, where)
        return [context.name for context in place.contexts]

    assert (contexts("shared.c:2"), contexts("shared.c:5")) == (["left"], ["right"])
    assert (contexts("twice"), contexts("thrice"), contexts("never")) == (["left"], ["right"], [])
    assert {module.name for module in merged.modules} >= {"left", "right", "libshared.so"}
    assert len([module for module in merged.modules if module.name == "libc.so.6"]) == 1
    done = cov(["merge", *files, "--format", "html", "-o", tmp_path / "both.html"], tmp_path)
    assert done.returncode == 0 and "total of what" in (tmp_path / "both.html").read_text()


@pytest.mark.parametrize(
    ("function", "words", "said"),
    [
        ("weft.tools.coverage:cover", "-- true", "adding up what was executed"),
        ("weft.tools.function_coverage:FunctionRecorder", "--weaver patch -- true", "weaving"),
    ],
)
def test_what_takes_long_is_shown(function: str, words: str, said: str, tmp_path: Path) -> None:
    assert said in while_slow(function, words.split(), tmp_path)


def test_nothing_is_shown_while_the_terminal_is_the_programs(tmp_path: Path) -> None:
    words = ["--dump-every", "0.5", "-o", "so-far.json", "--format", "json", "--", "sleep", "1"]
    shown = while_slow("weft.tools.coverage:cover", words, tmp_path)
    begun = [text for text in shown.split("\x1b[?25l")[1:] if "adding up" in text]
    assert len(begun) == 1, "only at the end"
