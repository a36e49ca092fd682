"""One-liners, the code of metrics and snippets are one language: the same text, the same values."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import weft
from weft.mdl.diagnostics import has_errors
from weft.mdl.one_liners import parse_one_liner
from weft.mdl.spelling import respelled_snippet
from weft.model.values import Histogram, Timer

SOURCE = r"""
#include <stdio.h>
__attribute__((noinline, noclone)) long f(long a, long b, int *p) {
    __asm__ volatile("" : "+r"(a) : : "memory");
    return a * b - *p;
}
int main(void) {
    char line[8];
    puts("ready"); fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        for (int i = 0; i < 100; i++) { int p = i % 5; f(i, i % 7, &p); }
        puts("done"); fflush(stdout);
    }
}
"""
CALLS = [(i, i % 7, i % 5) for i in range(100)]


def result(a: int, b: int, p: int) -> int:
    return a * b - p


@dataclass(frozen=True)
class Case:
    """A text for each kind of point, the type of what it measures into, and the truth."""

    base: str
    truth: Any
    entry: str = ""
    leave: str = ""
    """What is done at `return`."""
    locals: tuple[str, ...] = field(default=())


CASES = {
    "count": Case("counter", 100, "x++"),
    "count down": Case("counter", -100, "x--"),
    "sum of arguments": Case(
        "counter", sum(a + 2 * b for a, b, _ in CALLS), "x += $arg[0] + 2 * $arg[1]"
    ),
    # It was read as a call of the C library's own function of this name, which ended the program.
    "an older spelling": Case("counter", sum(a for a, _, _ in CALLS), "x += arg(0)"),
    "sum of results": Case("counter", sum(result(*one) for one in CALLS), leave="x += $return"),
    "condition": Case(
        "counter",
        sum(1 if a > 50 else -1 for a, _, _ in CALLS),
        "if ($arg[0] > 50) x++; else x--;",
    ),
    "conditions in braces": Case(
        "counter",
        sum(1 if a > 50 else 7 if a > 30 else 0 for a, _, _ in CALLS),
        "if ($arg[0] > 50) { x++ } else if ($arg[0] > 30) { x += 7; }",
    ),
    "functions": Case(
        "counter",
        sum(min(a, 10) + max(b, 3) + a // 3 + p for a, b, p in CALLS),
        "x += min($arg[0], 10) + max($arg[1], 3) + udiv($arg[0], 3) + load32($arg[2])",
    ),
    "comments": Case("counter", 100, "x++ /* one */ // for each call\n"),
    "map": Case("map[key]", dict(Counter(str(b) for _, b, _ in CALLS)), "x[$arg[1]]++"),
    "map of pairs": Case(
        "map[key, other]",
        dict(sum((Counter({f"{b}, {p}": a}) for a, b, p in CALLS), Counter())),
        "x[$arg[1], load32($arg[2])] += $arg[0]",
    ),
    "histogram": Case("histogram", (100, sum(b for _, b, _ in CALLS)), "x << $arg[1]"),
    "wall time": Case("wallTimer", "timer", "start x", "stop x"),
    "cpu time": Case("processTimer", "timer", "start x cpu", "stop x cpu"),
    "local": Case(
        "counter",
        sum(a for a, _, _ in CALLS),
        "kept = $arg[0]",
        "x += kept",
        locals=("kept",),
    ),
}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("language")
    (folder / "spoken.c").write_text(SOURCE)
    subprocess.run(["gcc", "-O1", "-o", folder / "spoken", folder / "spoken.c"], check=True)
    return folder / "spoken"


def shown(value: Any) -> Any:
    """A value of any of the three, as one can compare it."""
    if isinstance(value, Histogram):
        return value.count, value.sum
    if isinstance(value, dict):
        return {
            key
            if isinstance(key, str)
            else ", ".join(map(str, key if isinstance(key, tuple) else (key,))): count
            for key, count in value.items()
            if count
        }
    if isinstance(value, float | Timer):
        seconds = value.seconds if isinstance(value, Timer) else value
        return "timer" if 0 < seconds < 60 else seconds
    return value


def one_liner(case: Case) -> str:
    parts = [("entry", case.entry), ("return", case.leave)]
    return " ".join(f"{kind} /Code/spoken/f {{ {text} }}" for kind, text in parts if text)


def metric(case: Case) -> str:
    parts = [("entry", case.entry), ("return", case.leave)]
    inserts = "\n".join(
        f"append preInsn $focus.{kind} (* {text} *)" for kind, text in parts if text
    )
    kept = f"local {', '.join(case.locals)};" if case.locals else ""
    return f"metric x {{ {kept} base is {case.base} {{ {inserts} }} }}"


def snippet(case: Case) -> str:
    parts = [("entry", case.entry), ("return", case.leave)]
    return "; ".join(f"{kind} {{ {text} }}" for kind, text in parts if text)


@pytest.mark.parametrize("weaver", ["patch", "clone"])
@pytest.mark.parametrize("name", CASES)
def test_the_same_text_measures_the_same_in_all_three(
    name: str, weaver: str, program: Path
) -> None:
    case = CASES[name]
    with subprocess.Popen(
        [program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as target:
        assert target.stdin is not None and target.stdout is not None
        target.stdout.readline()
        with weft.attach(target.pid, weaver=weaver) as attached:  # type: ignore[call-overload]
            session = attached.session if weaver == "clone" else attached
            session.load_metrics(metric(case))
            named = session.metric("x", "/Code/spoken/f")
            definitions, lists, problems = parse_one_liner(one_liner(case))
            assert not has_errors(problems), problems
            session.metrics.define(lists)
            (short,) = session.metrics.request_all([(one, "") for one in definitions])
            probe = session.insert("/Code/spoken/f", snippet(case))
            target.stdin.write("\n")
            target.stdout.readline()
            values = named.value, short.value, probe.value("x")
            target.stdin.close()
    assert [shown(value) for value in values] == [case.truth] * 3


def test_formatting_a_snippet_changes_its_spelling_and_nothing_else(tmp_path: Path) -> None:
    old = """\
# arg(0) in a comment stays
counter calls; ring seen(thread, address) 64
timer busy cpu
at entry { calls += 1; start busy; if arg(2) > 4096 { emit seen(thread, address) } }
at exit {
    stop busy   // result
    calls += 10; calls -= 1
    let much = result + reg(rax) + access_size
}
"""
    new = """\
# arg(0) in a comment stays
counter calls; ring seen(thread, address) 64
timer busy cpu
at entry { calls++; start busy; if $arg[2] > 4096 { emit seen($thread, $address) } }
at return {
    stop busy   // result
    calls += 10; calls--
    let much = $return + $reg[rax] + access_size
}
"""
    assert respelled_snippet(old) == new
    assert respelled_snippet(new) == new
    path = tmp_path / "old.weft"
    path.write_text(old.replace(" + access_size", ""))
    command = [sys.executable, "-m", "weft", "fmt", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(path)
    assert path.read_text() == new.replace(" + access_size", "")
    path.write_text("calls += +")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "a value is missing" in done.stderr


def test_a_mistake_in_a_snippet_comes_with_the_name_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "bad.weft"
    path.write_text("counter c;\nat nonsense { c += 1 }\n")
    command = [sys.executable, "-m", "weft", "fmt", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"{path}: line 2, column 4: `nonsense` is not a kind of point" in done.stderr


def test_formatting_metrics_writes_todays_spelling(tmp_path: Path) -> None:
    path = tmp_path / "old.mdl"
    path.write_text(
        """\
metric busy {
  base is processTimer {
    append preInsn $focus.entry (* if (arg(0)) startProcessTimer(busy) *)
    prepend preInsn $focus.exit (* stopProcessTimer(busy); *)
  }
}

metric calls {
  base is counter { append preInsn $focus.call (* if ($arg[0]) { calls += 1 } *) }
}
"""
    )
    subprocess.run([sys.executable, "-m", "weft", "fmt", str(path)], check=True)
    assert (
        path.read_text()
        == """\
metric busy {
  base is processTimer {
    append preInsn $focus.entry (* if ($arg[0]) start busy; *)
    prepend preInsn $focus.return (* stop busy; *)
  }
}

metric calls {
  base is counter {
    append preInsn $focus.calls (* if ($arg[0]) { calls++; } *)
  }
}
"""
    )
