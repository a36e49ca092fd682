"""Functions are replaced and wrapped, however they are called; and all is as before afterwards."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import weft
from tests.clone import session_of
from tests.toolchain import compile_program
from weft import errors


class Program:
    """A program that calls the functions once each time that it is asked, and says what it got."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.pid = process.pid
        self._process = process
        self._line()

    def ask(self) -> list[str]:
        assert self._process.stdin
        print(file=self._process.stdin, flush=True)
        return self._line().split()

    def _line(self) -> str:
        assert self._process.stdout
        return self._process.stdout.readline()


@contextmanager
def started(path: Path) -> Iterator[Program]:
    with subprocess.Popen(
        [path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={"NAME": "somebody"}
    ) as process:
        try:
            yield Program(process)
        finally:
            process.kill()


@pytest.fixture(scope="module", params=["-static", "-pie"])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("intercepted") / "intercepted"
    return compile_program("intercepted.c", output, "-O2", request.param)


every_weaver = pytest.mark.parametrize("weaver", ["clone", "patch"])
SECRET, POINTER, MANY, PASSED_ON, NAME, TIME = range(6)
HERE = "/Code/intercepted"


@every_weaver
def test_a_function_is_replaced_and_comes_back(weaver: str, path: Path) -> None:
    with started(path) as program:
        before = program.ask()
        assert before[:5] == ["102", "304", "116", "9", "somebody"]
        with session_of(program.pid, weaver) as session:
            probe = session.replace(f"{HERE}/secret", 42)
            assert not probe.refused
            assert program.ask()[:2] == ["42", "42"]
            probe.remove()
            assert program.ask()[:2] == before[:2]
            # By an expression, with the arguments.
            session.replace(f"{HERE}/secret", "arg(0) - arg(1)")
            assert program.ask()[:2] == ["-1", "-1"]
        assert program.ask()[:5] == before[:5]


@every_weaver
def test_a_function_is_wrapped(weaver: str, path: Path) -> None:
    with started(path) as program, session_of(program.pid, weaver) as session:
        wrapped = session.insert(
            f"{HERE}/secret",
            """
            counter calls
            local doubled
            at entry { calls += 1; if arg(0) > 2 { arg(0) = arg(0) * 2; doubled = 1 } }
            at exit { if doubled { result = result + 1; doubled = 0 } }
            """,
        )
        assert not wrapped.refused
        assert program.ask()[:2] == ["102", "605"]
        assert wrapped.value() == 2
        wrapped.remove()
        assert program.ask()[:2] == ["102", "304"]
        # The eighth argument is on the stack.
        session.insert(f"{HERE}/many", "at entry { arg(7) = 5; arg(5) = 0 }")
        assert program.ask()[MANY] == str(5 + 10 + 500)


@every_weaver
def test_who_is_first_returns_and_others_do_not_run(weaver: str, path: Path) -> None:
    with started(path) as program, session_of(program.pid, weaver) as session:
        first = session.insert(f"{HERE}/secret", "counter c\nat entry { c += 1; return 7 }")
        both = "counter c\nat entry { c += 1 }\nat exit { c += 100 }"
        second = session.insert(f"{HERE}/secret", both)
        assert program.ask()[:2] == ["7", "7"]
        assert (first.value(), second.value()) == (2, 0)
        first.remove()
        program.ask()
        assert second.value() == 202


def test_the_result_of_another_function_is_not_changed(path: Path) -> None:
    with started(path) as program, session_of(program.pid, "clone") as session:
        probe = session.insert(f"{HERE}/passes_on", "at exit { result = 0 }")
        assert ["another function" in refusal.reason for refusal in probe.refused] == [True]
        assert program.ask()[PASSED_ON] == "9"
        session.insert(f"{HERE}/other", "at exit { result = 0 }")
        assert program.ask()[PASSED_ON] == "0"


def test_what_a_library_says(path: Path) -> None:
    with started(path) as program, session_of(program.pid, "clone") as session:
        is_static = not any("libc.so" in module.name for module in session.modules())
        where = HERE if is_static else "/Code/libc.so.6"
        name = session.replace(f"{where}/getenv", 0)
        clock = session.replace("/Code/[vdso]/__vdso_time", 5_000_000)
        said = program.ask()
        assert (said[NAME], said[TIME]) == ("nobody", "5000")
        name.remove()
        clock.remove()
        said = program.ask()
        assert said[NAME] == "somebody" and int(said[TIME]) > 1_000_000


@every_weaver
def test_signals_find_the_program_as_it_is(weaver: str, path: Path) -> None:
    rounds = 400_000
    output = path.parent / "sums"
    with output.open("wb") as stream:
        if weaver == "clone":
            command = [str(path), str(rounds)]
            with weft.run(command, weaver="clone", is_held=True, stdout=stream) as cloned:
                probe = cloned.session.insert(f"{HERE}/secret", SOMETIMES)
                cloned.session.resume()
                assert cloned.wait() == 0
                replaced = probe.value()
        else:
            with weft.run([path, str(rounds)], stdout=stream) as session:
                session.run_to_entry()
                probe = session.insert(f"{HERE}/secret", SOMETIMES)
                assert session.wait() == 0
                replaced = probe.value()
    total, ticks = map(int, output.read_text().split())
    assert ticks > 3
    assert replaced == rounds // 4
    kept = sum(number * 100 + 1 for number in range(rounds) if number % 4)
    changed = sum(2 * ((number + 1) * 100 + 1) for number in range(rounds) if number % 4 == 1)
    kept -= sum(number * 100 + 1 for number in range(rounds) if number % 4 == 1)
    assert total == kept + changed + 5 * (rounds // 4)


SOMETIMES = """
counter replaced
local doubles
at entry {
    if arg(0) % 4 == 0 { replaced += 1; return 5 }
    if arg(0) % 4 == 1 { arg(0) = arg(0) + 1; doubles = 1 }
}
at exit { if doubles { result = result * 2; doubles = 0 } }
"""


def test_memory_runs_out_in_a_real_program() -> None:
    failing = """
    counter refused
    local calls
    at entry { calls += 1; if calls % 200 == 0 { refused += 1; return 0 } }
    """
    query = "create table t(x); with recursive c(i) as (select 1 union all select i + 1 from c "
    query += "limit 20000) insert into t select i || 'x' from c; select count(*), max(x) from t;"
    command = ["sqlite3", ":memory:", query]
    with weft.run(command, weaver="clone", is_held=True, stderr=subprocess.DEVNULL) as program:
        probe = program.session.insert("/Code/libc.so.6/malloc", failing)
        program.session.resume()
        code = program.wait()
        assert probe.value() > 0  # type: ignore[operator]
    # It complains, or copes; it does not crash.
    assert code is not None and code < 128


def test_what_changes_the_program_is_refused_elsewhere(path: Path) -> None:
    with started(path) as program, session_of(program.pid, "clone") as session:
        for kind, wrong in [
            ("return", "return 1"),
            ("return", "$arg[0] = 1"),
            ("entry", "result = 1"),
            ("insn", "return 1"),
            ("call", "arg(0) = 1"),
            ("block", "result = 1"),
        ]:
            with pytest.raises(errors.BadSnippet, match=f"at {kind}"):
                session.insert(f"{HERE}/secret", f"at {kind} {{ {wrong} }}")
        with pytest.raises(errors.BadSnippet):
            session.insert(f"{HERE}/secret", "at entry { return 1.5 }")
        with pytest.raises(errors.InvalidArgument, match="mixed"):
            session.replace([f"{HERE}/secret", "/Syscall/read"], 0)


GIVEN_IN_RAX = {
    "results.c": {
        "gives_int": "5 1 7 3 3 27",
        "gives_pointer": "3 0 7 3 3 27",
        "gives_enum": "3 1 5 3 3 27",
        "gives_mixed": "3 1 7 5 3 27",
        "gives_union": "3 1 7 3 5 27",
        "gives_nothing": "3 1 7 3 3 27",
    },
    "results.cc": {
        "gives_reference": "0 3 1 3 13",
        "gives_handle": "1 5 1 3 13",
        "_ZNK5Shape7cornersEv": "1 3 1 5 15",
    },
}
GIVEN_OTHERWISE = {
    "results.c": {
        "gives_float": "a floating-point number",
        "gives_named_double": "a floating-point number",
        "gives_long_double": "a floating-point number",
        "gives_complex": "a floating-point number",
        "gives_floats": "a structure that",
        "gives_pair": "a structure that",
        "gives_large": "a structure that",
        "gives_vector": "a vector",
        "gives_wide": "a value that takes more than one register",
    },
    "results.cc": {
        "gives_double": "a floating-point number",
        "_ZNK5Shape4areaEv": "a floating-point number",
        "gives_owner": "a structure that",
        "gives_string": "a structure that",
        "gives_member": "a value that takes more than one register",
    },
}


@every_weaver
@pytest.mark.parametrize("source", GIVEN_IN_RAX)
def test_only_what_is_given_as_an_integer_is_replaced(
    weaver: str, source: str, tmp_path: Path
) -> None:
    path = compile_program(source, tmp_path / "results", "-O1", "-g")
    with started(path) as program:
        before = program.ask()
        with session_of(program.pid, weaver) as session:
            for name, what in GIVEN_OTHERWISE[source].items():
                with pytest.raises(
                    errors.InvalidArgument, match=f"{name} .*gives {what}"
                ) as caught:
                    session.replace(f"/Code/results/{name}", 5)
                assert "rax" in str(caught.value.why) and caught.value.advice
            assert program.ask() == before
            for name, expected in GIVEN_IN_RAX[source].items():
                probe = session.replace(f"/Code/results/{name}", 5)
                assert not probe.refused
                assert program.ask() == expected.split(), name
                probe.remove()
            # One of several is enough.
            with pytest.raises(errors.InvalidArgument, match="cannot be replaced"):
                session.replace("/Code/results/gives_*", 5)
        assert program.ask() == before


def test_without_debug_information_nobody_knows_what_is_given(tmp_path: Path) -> None:
    path = compile_program("results.c", tmp_path / "results", "-O1", "-s", "-rdynamic")
    with started(path) as program, session_of(program.pid, "patch") as session:
        assert not session.replace("/Code/results/gives_float", 5).refused
