"""What makes no sense is refused, with the cause and the next step; nothing is done to a target."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import weft
from tests.e2e.harness import eventually, need
from weft.errors import InvalidArgument

WEFT = (sys.executable, "-m", "weft")
MALLOC = "/Code/libc.so.6/malloc"
# No process, nor thread, has an id as high as this.
NOBODY = (1 << 22) + 1


@pytest.fixture
def session() -> Iterator[weft.Session]:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        with weft.attach(process.pid) as attached:
            yield attached
        process.kill()


@pytest.mark.parametrize("weaver", ["patch", "clone"])
@pytest.mark.parametrize("command", ["true", Path("true")])
def test_a_name_alone_is_a_command_without_arguments(command: Any, weaver: Any) -> None:
    with weft.run(command, weaver=weaver) as program:
        assert program.wait() == 0


def test_a_line_for_a_shell_is_refused_with_the_words_that_it_may_mean() -> None:
    with pytest.raises(InvalidArgument, match=r"no program is called 'true -x'") as refused:
        weft.run("true -x")
    assert "['true', '-x']" in refused.value.advice


@pytest.mark.parametrize("command", [None, 5, ["echo", 1], ["echo", None]])
def test_what_is_no_command_is_refused(command: Any) -> None:
    with pytest.raises(InvalidArgument, match="no command") as refused:
        weft.run(command)
    assert refused.value.advice


@pytest.mark.parametrize("start", [lambda weaver: weft.run(["true"], weaver=weaver)])
def test_an_unknown_weaver_is_refused(start: Callable[[Any], object]) -> None:
    with pytest.raises(InvalidArgument, match="there is no weaver 'x'") as refused:
        start("x")
    assert "patch" in refused.value.advice
    assert "clone" in refused.value.advice


def test_an_unknown_weaver_is_refused_for_processes(session: weft.Session) -> None:
    attach: Any = weft.attach
    with pytest.raises(InvalidArgument, match="there is no weaver 'x'"):
        attach(session.pid, weaver="x")


@pytest.mark.parametrize("pid", ["abc", "1", None, 1.5, True])
def test_what_is_no_process_id_is_refused(pid: Any) -> None:
    with pytest.raises(InvalidArgument, match="is no process id") as refused:
        weft.attach(pid)
    assert "weft ps" in refused.value.advice


@pytest.mark.parametrize("snippet", ["", " \n", "# nothing\n", "counter calls"])
def test_a_snippet_that_does_nothing_is_refused(session: weft.Session, snippet: str) -> None:
    with pytest.raises(InvalidArgument, match="the snippet does nothing") as refused:
        session.insert(MALLOC, snippet)
    assert "calls += 1" in refused.value.advice


def test_a_thread_that_does_not_exist_is_refused(session: weft.Session) -> None:
    with pytest.raises(InvalidArgument, match=f"there is no thread {NOBODY}") as refused:
        session.metric("calls", f"{MALLOC},/Thread/{NOBODY}")
    assert f"/Thread/{session.pid}" in refused.value.advice
    assert session.metric("calls", f"{MALLOC},/Thread/{session.pid}").value == 0
    # Threads of a name may come.
    assert session.metric("calls", f"{MALLOC},/Thread/worker-*").value == 0


@pytest.mark.parametrize("process", [NOBODY, "cat"])
def test_a_process_that_does_not_exist_is_refused(
    session: weft.Session, process: int | str
) -> None:
    with pytest.raises(InvalidArgument, match=f"/Process/{process} is not measured") as refused:
        session.metric("calls", f"{MALLOC},/Process/{process}")
    assert f"/Process/{session.pid}" in refused.value.advice


def test_in_a_pid_namespace_the_ids_are_those_that_the_target_knows() -> None:
    need("unshare")
    words = ["unshare", "--fork", "--pid", "sh", "-c", "echo; exec cat"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        pid = int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text())
        eventually(lambda: Path(f"/proc/{pid}/comm").read_text() == "cat\n")
        with weft.attach(pid) as session:
            for own in ("/Thread/1", "/Process/1"):
                assert session.metric("calls", f"{MALLOC},{own}").completeness.is_exact
            for outer in (f"/Thread/{pid}", f"/Process/{pid}"):
                with pytest.raises(InvalidArgument, match=str(pid)) as refused:
                    session.metric("calls", f"{MALLOC},{outer}")
                assert "/1" in refused.value.advice


def test_another_machine_is_refused(session: weft.Session) -> None:
    with pytest.raises(InvalidArgument, match="/Machine/elsewhere"):
        session.metric("calls", f"{MALLOC},/Machine/elsewhere")


def run(metric: str) -> str:
    done = subprocess.run(
        [*WEFT, "run", "-m", metric, "--", "true"], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (2, "")
    return done.stderr


def test_a_root_that_does_not_exist_leads_to_code() -> None:
    said = run("calls@/Foo")
    assert "cannot be narrowed to /Foo" in said
    assert "/Code, /Process, /Thread" in said
    assert "try: for a module or a function: calls@/Code/Foo or calls@/Code/*/Foo" in said


def test_the_command_line_refuses_threads_that_do_not_exist() -> None:
    assert f"there is no thread {NOBODY}" in run(f"calls@{MALLOC},/Thread/{NOBODY}")
