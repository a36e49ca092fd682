"""Metrics by function, module, caller, thread and key, against what the program itself counts."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import weft
from weft.errors import InvalidArgument

Build = Callable[..., Path]

SOURCE = r"""
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#define out __attribute__((noinline, noclone))
out long work(long kind, long size) { __asm__ volatile("" : "+r"(size)); return kind + size; }
out long rest(long ms) {
    struct timespec t = {0, ms * 1000000};
    nanosleep(&t, 0);
    __asm__ volatile("");
    return ms;
}
out long often(void) { long n = 0; for (int i = 0; i < 70; i++) n += work(i % 3, 10); return n; }
out long seldom(void) { long n = 0; for (int i = 0; i < 7; i++) n += work(5, 1); return n; }
out long slow(void) { long n = rest(60); __asm__ volatile(""); return n; }
out long quick(void) { long n = rest(20); __asm__ volatile(""); return n; }
static void *other(void *arg) { return (void *)seldom(); }
int main(void) {
    char line[8];
    puts("ready"); fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        pthread_t thread;
        often(); seldom(); slow(); quick();
        pthread_create(&thread, 0, other, 0);
        pthread_setname_np(thread, "helper");
        pthread_join(thread, 0);
        puts("done"); fflush(stdout);
    }
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("grouped")
    (folder / "grouped.c").write_text(SOURCE)
    made = folder / "grouped"
    flags = ["-O1", "-g", "-fno-optimize-sibling-calls", "-pthread"]
    subprocess.run(["gcc", *flags, "-o", made, folder / "grouped.c"], check=True)
    return made


def grouped(
    program: Path, metric: str, focus: str, by: str, rounds: int = 1, **options: str
) -> dict[str, int | float]:
    """The value of a metric by a key, after some rounds of the program."""
    with subprocess.Popen(
        [program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as target:
        assert target.stdin is not None and target.stdout is not None
        target.stdout.readline()
        if options.get("weaver") == "clone":
            with weft.attach(target.pid, weaver="clone") as cloned:
                return _measured(target, cloned.session, metric, focus, by, rounds)
        with weft.attach(target.pid) as session:
            return _measured(target, session, metric, focus, by, rounds)


def _measured(
    target: subprocess.Popen[str],
    session: weft.Session,
    metric: str,
    focus: str,
    by: str,
    rounds: int,
) -> dict[str, int | float]:
    assert target.stdin is not None and target.stdout is not None
    found = session.metric(metric, focus, by=by)
    for _ in range(rounds):
        target.stdin.write("\n")
        target.stdout.readline()
    session.metrics.sample()
    value = found.value
    assert isinstance(value, dict)
    assert found.kind == "map"
    assert found.completeness.is_exact
    # Samples have the same sum.
    assert found.history()[-1].value == pytest.approx(sum(value.values()))
    target.stdin.close()
    return value


@pytest.mark.parametrize("weaver", ["patch", "clone"])
def test_calls_by_caller(program: Path, weaver: str) -> None:
    found = grouped(program, "calls", "/Code/grouped/work", "caller", 2, weaver=weaver)
    names = {re.sub(r"\+0x[0-9a-f]+", "", key): count for key, count in found.items()}
    assert names == {"often (grouped)": 140, "seldom (grouped)": 28}


@pytest.mark.parametrize("weaver", ["patch", "clone"])
def test_calls_and_times_by_stack(program: Path, weaver: str) -> None:
    """Each stack ends with the function, and its caller is that of the division by callers."""
    found = grouped(program, "calls", "/Code/grouped/work", "stack", 2, weaver=weaver)
    callers: dict[str, float] = {}
    for stack, count in found.items():
        *_, caller, function = stack.split(";")
        assert function == "work"
        callers[caller] = callers.get(caller, 0) + count
    assert callers == {"often": 140, "seldom": 28}
    times = grouped(program, "inclusive_time", "/Code/grouped/rest", "stack", weaver=weaver)
    assert {stack.split(";")[-2] for stack in times} == {"slow", "quick"}


def test_calls_by_function_module_and_key(program: Path) -> None:
    by_function = grouped(program, "calls", "/Code/grouped/[ors]*", "function")
    expected = {"often": 1, "seldom": 2, "rest": 2, "slow": 1, "other": 1}
    assert {key: by_function.get(f"{key} (grouped)") for key in expected} == expected
    by_module = grouped(program, "calls", "/Code/grouped/[oqrsw]*", "module")
    assert set(by_module) == {"grouped"}
    assert by_module["grouped"] >= 84 + 8
    by_key = grouped(program, "calls", "/Code/grouped/work", "$arg[0]")
    assert by_key == {"0": 24, "1": 23, "2": 23, "5": 14}


def test_by_thread_counts_and_times(program: Path) -> None:
    found = grouped(program, "calls", "/Code/grouped/work", "thread")
    assert sorted(found.values()) == [7, 77]
    times = grouped(program, "inclusive_time", "/Code/grouped/rest", "thread")
    (seconds,) = times.values()
    assert 0.08 <= seconds < 5
    values = grouped(program, "latency", "/Code/grouped/rest", "thread")
    assert list(values.values()) == [2]


def test_times_by_caller(program: Path) -> None:
    found = grouped(program, "inclusive_time", "/Code/grouped/rest", "caller")
    names = {re.sub(r"\+0x.*", "", key): seconds for key, seconds in found.items()}
    assert set(names) == {"slow", "quick"}
    assert names["slow"] >= 0.06 and names["quick"] >= 0.02


def test_what_cannot_be_divided_is_refused(program: Path) -> None:
    with pytest.raises(InvalidArgument, match="latency cannot be divided by a key"):
        grouped(program, "latency", "/Code/grouped/rest", "caller")
    with pytest.raises(InvalidArgument, match="nothing can be divided by 'nobody'"):
        grouped(program, "calls", "/Code/grouped/rest", "nobody")
    with pytest.raises(InvalidArgument, match="before there is a result") as caught:
        grouped(program, "calls", "/Code/grouped/rest", "$return")
    assert "exit FUNCTION { count[$return]++ }" in caught.value.advice
    with pytest.raises(InvalidArgument, match="the arguments are gone by then") as caught:
        grouped(program, "inclusive_time", "/Code/grouped/rest", "$arg[0]")
    assert "ns[kept] += $time - began" in caught.value.advice
    for key in ("$bogus", "$constraint[0]", "$arg", "$caller[1]", "size + 1"):
        with pytest.raises(InvalidArgument, match="nothing can be divided by"):
            grouped(program, "calls", "/Code/grouped/rest", key)
    with pytest.raises(InvalidArgument, match="known for the whole process only"):
        grouped(program, "page_faults", "", "thread")


def test_the_command_line_names_callers_with_lines_and_cuts_what_it_shows(program: Path) -> None:
    weft_run = [sys.executable, "-m", "weft", "run"]
    one_liner = "entry work { by_caller[$caller] += $arg[1] }"
    done = subprocess.run(
        [*weft_run, "-e", one_liner, "--lines", "--format", "json", "--", program],
        input="\n",
        capture_output=True,
        text=True,
        check=True,
    )
    (total,) = json.loads(done.stderr)["totals"]
    line = next(number for number, text in enumerate(SOURCE.split("\n"), 1) if "long often" in text)
    often = [key for key in total["value"] if key.startswith("often+0x")]
    assert len(often) == 1 and often[0].endswith(f"grouped.c:{line}")
    assert total["value"][often[0]] == 700
    done = subprocess.run(
        [*weft_run, "-e", one_liner, "--top", "1", "--", program],
        input="\n",
        capture_output=True,
        text=True,
        check=True,
    )
    assert "1 of 2 keys" in done.stderr
    assert "often+0x" in done.stderr and "seldom" not in done.stderr


MANY = r"""
#include <sys/wait.h>
#include <unistd.h>
__attribute__((noinline)) long work(long i) { __asm__ volatile("nop; nop; nop; nop"); return i; }
int main(void) {
    if (fork() == 0) {
        for (long i = 0; i < 5000; i++) work(i);
        return 0;
    }
    wait(0);
    return 0;
}
"""


def test_keys_without_room_are_counted_in_children_and_there_is_advice(tmp_path: Path) -> None:
    (tmp_path / "many.c").write_text(MANY)
    made = tmp_path / "many"
    subprocess.run(["gcc", "-O1", "-g", "-o", made, tmp_path / "many.c"], check=True)
    command = [sys.executable, "-m", "weft", "run", "-m", "calls@/Code/many/work"]
    command += ["--by", "$arg[0]", "--format", "json", "--", str(made)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    (total,) = json.loads(done.stderr)["totals"]
    (missing,) = total["missing"]
    assert missing["count"] + sum(total["value"].values()) == 5000
    assert "coarser key" in missing["advice"]
