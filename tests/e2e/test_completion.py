"""What the shell offers when Tab is pressed, asked for as the shell does."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from weft.program.processes import processes_named

WEFT = Path(sys.executable).with_name("weft")
# Others run these tests at the same time.
NAME = f"tab{os.getpid()}ped"
LIMIT = 0.3


@pytest.fixture(scope="module")
def napper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    folder = tmp_path_factory.mktemp("completion")
    (folder / NAME).symlink_to(shutil.which("sleep") or "/bin/sleep")
    with subprocess.Popen([f"./{NAME}", "600"], cwd=folder) as process:
        while "libc" not in Path(f"/proc/{process.pid}/maps").read_text():
            pass
        yield process.pid
        process.kill()


def ask(words: list[str], cursor: int | str = -1, shell: str = "bash") -> str:
    """Ask for completions of a word, by its number; the last one if none is given."""
    place = len(words) - 1 if cursor == -1 else cursor
    environment = {
        **os.environ,
        "_WEFT_COMPLETE": f"{shell}_complete",
        "COMP_WORDS": " ".join(words),
        "COMP_CWORD": str(place),
    }
    environment.pop("COMP_LINE", None)
    done = subprocess.run([WEFT], capture_output=True, text=True, env=environment, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def offered(words: list[str], cursor: int = -1) -> list[str]:
    lines = ask(words, cursor).splitlines()
    return [line.removeprefix("plain,") for line in lines if line.startswith("plain,")]


def test_metrics_are_offered_with_their_help() -> None:
    found = offered(["weft", "run", "-m", "lat"])
    assert found == ["latency"]
    said = ask(["weft", "run", "-m", "calls"], shell="zsh").split("\n")
    assert said[:3] == ["plain", "calls", "How often procedures are called."]
    assert offered(["weft", "metrics", "alloc_"]) == offered(["weft", "explain", "alloc_"]) != []


def test_what_metrics_are_divided_by_is_offered() -> None:
    assert offered(["weft", "run", "--by", "l"]) == ["lock"]
    assert {"thread", "caller", "stack"} < set(offered(["weft", "attach", "--by", ""]))


def test_processes_are_offered_by_name_and_by_id(napper: int) -> None:
    assert NAME in offered(["weft", "attach", ""])
    assert str(napper) in offered(["weft", "attach", ""])
    assert offered(["weft", "attach", NAME[:-2]]) == [NAME]
    said = ask(["weft", "doctor", str(napper)], shell="zsh").split("\n")
    assert said[:3] == ["plain", str(napper), f"./{NAME} 600"]
    lines = ask(["weft", "attach", NAME], cursor=NAME, shell="fish").splitlines()
    assert lines[0] == f"plain,{NAME}\tprocess {napper}"


@pytest.mark.parametrize("command", ["top", "cov", "profile", "trace", "debug", "points"])
def test_every_command_of_processes_offers_them(napper: int, command: str) -> None:
    assert processes_named(NAME)[0].pid == napper
    assert offered(["weft", command, NAME[:-2]]) == [NAME]
    assert ask(["weft", command, "./x"]).startswith("file,")


def test_behind_two_dashes_are_files(napper: int) -> None:
    assert ask(["weft", "profile", "--", NAME[:-2]]).startswith("file,")
    assert ask(["weft", "run", "x"]).startswith("file,")


def test_parts_of_a_command_are_offered() -> None:
    assert "report" in offered(["weft", "cov", "rep"])
    assert "heatmap" in offered(["weft", "trace", "heat"])


@pytest.mark.parametrize("is_behind", [False, True])
def test_foci_of_the_process_on_the_line(napper: int, is_behind: bool) -> None:
    def found(text: str, who: str) -> list[str]:
        if is_behind:
            return offered(["weft", "attach", "-m", text, who], 3)
        return offered(["weft", "attach", who, "-m", text], 4)

    pid = str(napper)
    assert found("calls@", pid) == ["calls@/Code/", "calls@/Thread/", "calls@/Process/"]
    assert found("calls@/Co", pid) == ["calls@/Code/"]
    modules = found("calls@/Code/", pid)
    assert {f"calls@/Code/{NAME}/", "calls@/Code/libc.so.6/"} <= set(modules)
    functions = found("calls@/Code/libc.so.6/mallo", pid)
    assert {f"calls@/Code/libc.so.6/{one}" for one in ("malloc", "malloc_trim")} <= set(functions)
    assert all(one.startswith("calls@/Code/libc.so.6/mallo") for one in functions)
    assert "calls@malloc_trim" in found("calls@malloc_t", pid)
    assert found(f"calls@/Thread/{NAME[:-2]}", pid) == [f"calls@/Thread/{NAME}"]
    assert len(found("calls@/Code/libc.so.6/", pid)) == 300


def test_foci_of_a_process_by_its_name(napper: int) -> None:
    found = offered(["weft", "attach", NAME, "-m", "calls@/Code/libc.so.6/mallo"])
    assert "calls@/Code/libc.so.6/malloc" in found


def test_foci_of_a_program_that_is_yet_to_be_started() -> None:
    words = ["weft", "run", "-m", "calls@/Code/", "--", "ls"]
    assert offered(words, 3) == ["calls@/Code/ls/"]


@pytest.mark.parametrize(
    "words",
    [
        ["attach", "999999999", "-m", "calls@/Code/"],
        ["attach", "no-such-process", "-m", "calls@x"],
        ["attach", "-m", "calls@/Nowhere/"],
        ["attach", "-m", "calls@/Code/["],
        ["attach", "1", "-m", "calls@/Code/libc.so.6/*"],
        ["nonsense", ""],
        ["cov", "--nonsense", "x", ""],
    ],
)
def test_what_cannot_be_known_is_silence(words: list[str]) -> None:
    ask(["weft", *words])


def test_bash_divides_words_at_the_sign(napper: int) -> None:
    """As in a terminal, where ``calls@/Code/li`` is three words and only the last is replaced."""
    script = """
        eval "$(weft completion bash)"
        COMP_LINE="weft attach $1 -m calls@/Code/libc.so.6/malloc_t"
        COMP_POINT=${#COMP_LINE}
        COMP_WORDS=(weft attach $1 -m calls @ /Code/libc.so.6/malloc_t) COMP_CWORD=6
        _weft_completion weft; echo "${COMPREPLY[@]}"
        COMP_LINE="weft attach $1 -m calls@" COMP_POINT=${#COMP_LINE}
        COMP_WORDS=(weft attach $1 -m calls @) COMP_CWORD=5 COMPREPLY=()
        _weft_completion weft 2> /dev/null; echo "${COMPREPLY[@]}"
    """
    done = subprocess.run(
        ["bash", "--norc", "-c", script, "bash", str(napper)],
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": f"{WEFT.parent}:{os.environ['PATH']}"},
    )
    assert done.stdout == "/Code/libc.so.6/malloc_trim\n/Code/ /Thread/ /Process/\n", done.stderr


@pytest.mark.alone
def test_it_is_quick(napper: int) -> None:
    """By the processor time that it takes: others may run meanwhile."""
    for words in (
        ["attach", ""],
        ["run", "-m", ""],
        ["attach", str(napper), "-m", "calls@/Code/libc.so.6/m"],
    ):
        best = LIMIT
        for _ in range(5):
            before = os.times()
            ask(["weft", *words])
            after = os.times()
            used = after.children_user + after.children_system
            best = min(best, used - before.children_user - before.children_system)
        assert best < LIMIT, words
