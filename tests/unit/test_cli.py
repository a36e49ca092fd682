"""The frame of the command line: discovery, output, errors, exit codes, completion."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import click
import pytest
from click.testing import CliRunner

import weft
from weft.cli import CommandFolder, main
from weft.cli.output import WithParts, console
from weft.errors import Internal, WeftError

WEFT = Path(sys.executable).with_name("weft")

COMMANDS = {
    "fail": '''
        """Fail as asked."""
        import click
        import weft.errors
        from weft.cli.output import format_option, print_json

        @click.command()
        @click.argument("kind")
        @format_option
        def command(kind, output_format):
            """Fail as asked."""
            if kind == "nothing":
                print_json({"kind": kind})
            elif kind == "bug":
                raise KeyError("lost")
            elif kind == "interrupt":
                raise KeyboardInterrupt
            else:
                raise getattr(weft.errors, kind)("it broke", "the reason", "the remedy")
    ''',
    "heavy_one": '''
        """Be expensive to import."""
        raise RuntimeError("imported")
    ''',
    "helper": "",
}


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandFolder:
    """A group with a folder of commands of its own."""
    package = tmp_path / "commands_for_test"
    package.mkdir()
    (package / "__init__.py").touch()
    for name, text in COMMANDS.items():
        (package / f"{name}.py").write_text(dedent(text))
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.startswith(package.name)]:
        monkeypatch.delitem(sys.modules, name)
    return CommandFolder("weft", package=package.name, helpers=("helper",))


def test_commands_are_the_modules_of_the_folder(group: CommandFolder) -> None:
    assert group.list_commands(click.Context(group)) == ["fail", "heavy-one"]


def test_help_imports_no_command(group: CommandFolder) -> None:
    result = CliRunner().invoke(group, ["--help"])
    assert result.exit_code == 0
    assert "heavy-one  Be expensive to import." in result.stdout


def test_completing_the_name_of_a_command_imports_none(group: CommandFolder) -> None:
    items = group.shell_complete(click.Context(group), "he")
    assert [(item.value, item.help) for item in items] == [("heavy-one", "Be expensive to import.")]


def test_an_unknown_command_is_wrong_usage(group: CommandFolder) -> None:
    result = CliRunner().invoke(group, ["nonsense"])
    assert result.exit_code == 2
    assert "No such command 'nonsense'" in result.stderr


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("atach 1", "No such command 'atach'. Did you mean attach or "),
        ("prof -- true", "No such command 'prof'. Did you mean profile?"),
        ("attach --weever clone 1", "No such option '--weever'. Did you mean "),
        ("run --weever clone -- true", "No such option '--weever'. Did you mean --weaver?"),
        ("run --weever=clone true", "No such option '--weever'. Did you mean --weaver?"),
        ("cov --modle -- true", "No such option '--modle'. Did you mean --module?"),
        ("debug --cor x -- true", "No such option '--cor'. Did you mean --core or --coverage?"),
        ("trace --vals -- true", "No such option '--vals'. Did you mean --values?"),
        ("top --buget 1 -- true", "No such option '--buget'. Did you mean "),
        ("cov reprot x.json", "Did you mean `weft cov report`?"),
    ],
)
def test_what_may_be_meant_is_named(words: str, meant: str) -> None:
    words = words.replace("trace", "trace -o /dev/null")
    result = CliRunner().invoke(main, words.split())
    assert result.exit_code == 2
    assert meant in result.stderr


def test_an_option_of_the_program_is_none_of_wefts() -> None:
    result = CliRunner().invoke(main, ["run", "true", "--weever"])
    assert (result.exit_code, result.stderr) == (0, "")


@pytest.mark.parametrize("kind", ["InvalidArgument", "NoSuchProcess", "BadFile", "SystemCall"])
def test_an_error_says_what_why_and_what_to_try(group: CommandFolder, kind: str) -> None:
    result = CliRunner().invoke(group, ["fail", kind])
    assert result.stderr == "error: it broke\n  why: the reason\n  try: the remedy\n"
    assert result.stdout == ""
    assert result.exit_code == getattr(weft.errors, kind).exit_code


def test_an_error_is_json_when_the_result_would_be(group: CommandFolder) -> None:
    result = CliRunner().invoke(group, ["fail", "BadFile", "--format", "json"])
    expected = {"kind": "BadFile", "what": "it broke", "why": "the reason", "advice": "the remedy"}
    assert json.loads(result.stderr) == {"error": expected}
    assert result.exit_code == 4


def test_wrong_usage_is_json_too(group: CommandFolder) -> None:
    result = CliRunner().invoke(group, ["fail", "--format", "json"])
    error = json.loads(result.stderr)["error"]
    assert (error["kind"], error["what"]) == ("InvalidArgument", "Missing argument 'KIND'.")
    assert error["advice"] == "see `weft fail --help`"
    assert result.exit_code == 2


def test_a_result_is_json_on_standard_output(group: CommandFolder) -> None:
    result = CliRunner().invoke(group, ["fail", "nothing", "--format", "json"])
    assert (result.exit_code, json.loads(result.stdout)) == (0, {"kind": "nothing"})


@pytest.mark.parametrize("debug", ["", "1"])
def test_a_fault_of_weft_is_owned_up_to(
    group: CommandFolder, debug: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_DEBUG", debug)
    result = CliRunner().invoke(group, ["fail", "bug"])
    assert result.exit_code == Internal.exit_code
    assert "error: internal error: KeyError: 'lost'\n" in result.stderr
    assert ("Traceback" in result.stderr) == bool(debug)


def test_an_interrupt_ends_with_130_and_no_noise(group: CommandFolder) -> None:
    result = CliRunner().invoke(group, ["fail", "interrupt"])
    assert (result.exit_code, result.output) == (128 + signal.SIGINT, "")


def test_every_command_has_one_summary_an_example_and_a_format() -> None:
    context = click.Context(main)
    for name, summary in main._summaries(context):
        command = main.get_command(context, name)
        assert command is not None and command.help is not None
        assert command.help.partition("\n")[0] == summary, f"weft {name}: two summaries"
        assert "Examples:" in command.help, f"weft {name}: no example"
        parts = command.parts.values() if isinstance(command, WithParts) else ()
        options = [option for one in (command, *parts) for option in one.params]
        has_format = any(option.name == "output_format" for option in options)
        assert has_format or name in ("completion", "debug", "top"), f"weft {name}: no --format"


def test_every_error_has_an_exit_code_that_is_no_signal() -> None:
    def family(error: type[WeftError]) -> list[type[WeftError]]:
        return [error, *(member for child in error.__subclasses__() for member in family(child))]

    assert all(0 < error.exit_code < 128 for error in family(WeftError))


@pytest.mark.parametrize("start", [[WEFT], [sys.executable, "-m", "weft"]])
def test_version(start: list[str]) -> None:
    result = subprocess.run([*start, "--version"], capture_output=True, text=True, check=True)
    assert result.stdout == f"weft, version {weft.__version__}\n"


def test_version_and_help_need_no_rich() -> None:
    script = (
        "import sys; from weft.cli import main; main(['--help'], standalone_mode=False);"
        "sys.exit('rich' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], capture_output=True).returncode == 0


def test_a_closed_pipe_is_quiet() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as closed:
        result = subprocess.run([WEFT, "completion", "bash"], stdout=closed, stderr=-1)
    assert (result.returncode, result.stderr) == (1, b"")


@pytest.mark.parametrize(
    ("words", "completed"), [(["com"], "completion"), (["completion", ""], "bash zsh fish")]
)
def test_bash_completes(words: list[str], completed: str) -> None:
    script = """
        eval "$(weft completion bash)"
        COMP_WORDS=(weft "$@") COMP_CWORD=$#
        $(complete -p weft | sed "s/.* -F \\([^ ]*\\).*/\\1/") weft
        echo "${COMPREPLY[@]}"
    """
    result = subprocess.run(
        ["bash", "--norc", "-c", script, "bash", *words],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PATH": f"{WEFT.parent}:{os.environ['PATH']}"},
    )
    assert (result.stdout.strip(), result.stderr) == (completed, "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(shell: str) -> None:
    result = subprocess.run([WEFT, "completion", shell], capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")
    assert "_WEFT_COMPLETE" in result.stdout


@pytest.mark.parametrize("words", ["attach", "cov", "profile", "trace -o x", "debug"])
def test_a_process_that_is_not_there_is_no_fault_of_weft(words: str) -> None:
    """It may have ended since its number was typed; the one that has this number has."""
    with subprocess.Popen(["true"]) as ended:
        pid = ended.pid
    result = CliRunner().invoke(main, [*words.split(), str(pid)])
    assert result.exit_code == 3, result.output
    assert f"there is no process {pid}" in result.output


def test_what_looks_like_the_name_of_an_emoji_is_shown_as_it_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    console().print("root:x:0 main.c:100:5")
    assert capsys.readouterr().out == "root:x:0 main.c:100:5\n"


@pytest.mark.parametrize(
    ("seconds", "is_terminal", "is_shown"),
    [(1.5, True, True), (0.0, True, False), (1.5, False, False)],
)
def test_what_takes_long_is_shown_on_a_terminal(
    seconds: float, is_terminal: bool, is_shown: bool
) -> None:
    script = (
        "import sys, time; from weft.cli.output import progress\n"
        "with progress('counting sheep'): time.sleep(float(sys.argv[1]))\n"
        "print('rich' in sys.modules, file=sys.stderr)"
    )
    master, terminal = pty.openpty()
    reader, pipe = os.pipe()
    done = subprocess.run(
        [sys.executable, "-c", script, str(seconds)],
        stderr=terminal if is_terminal else pipe,
        env={**os.environ, "TERM": "xterm"},
    )
    os.close(terminal)
    os.close(pipe)
    said = os.read(master if is_terminal else reader, 1 << 16).decode()
    os.close(master)
    os.close(reader)
    assert done.returncode == 0
    assert ("counting sheep" in said) == is_shown
    assert said.rstrip().endswith(str(is_shown)), "what is quick does not load Rich"
