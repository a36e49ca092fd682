"""The executor of documentation examples: what it takes from a page, and what it refuses."""

from __future__ import annotations

import os
from pathlib import Path
from textwrap import dedent

import pytest

from tests import examples
from tests.examples import Command, ExampleError, File, matches, run_page, steps


def run(text: str, folder: Path) -> None:
    work = folder / "work"
    work.mkdir()
    page = folder / "page.md"
    page.write_text(dedent(text))
    run_page(page, work)


def test_a_page_becomes_steps() -> None:
    page = """\
        Text.

        ```c title="a.c"
        int main(void) { return 0; }
        ```

        1. In a list:

            ```console
            $ for i in 1 2
            > do echo $i; done
            1
            2
            $ false
            $ echo $?
            1
            ```

        ```python
        print("hello")
        ```

        ```text title="Output"
        hello
        ```

        <!-- weft: skip needs another machine -->
        ```console
        $ reboot
        ```

        ```json
        {"shown": "only"}
        ```
        """
    assert steps(dedent(page)) == [
        File("a.c", "int main(void) { return 0; }\n"),
        Command("for i in 1 2\ndo echo $i; done", "1\n2\n", 10),
        Command("false", "", 14, may_fail=True),
        Command("echo $?", "1\n", 15),
        File(".example-20.py", 'print("hello")\n'),
        Command("python ~/.example-20.py", "hello\n", 20),
    ]


@pytest.mark.parametrize(
    ("page", "complaint"),
    [
        ("```bash\nls\n```", "line 2: bash is never run"),
        ("```console\nls\n```", "line 2: output without a command"),
        ('```text title="Output"\nls\n```', "line 2: output without a program"),
        ("<!-- weft: skip -->\n```sh\nls\n```", "line 3: sh is never run"),
    ],
)
def test_a_malformed_example_is_refused(page: str, complaint: str) -> None:
    with pytest.raises(ExampleError, match=complaint):
        steps(page)


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("a\nb\n", "a  \nb\n\n", True),
        ("a\n", "a\nb\n", False),
        ("pid ... ended\n", "pid 4711 ended\n", True),
        ("pid ... ended\n", "pid 4711\nended\n", False),
        ("a\n...\nd\n", "a\nb\nc\nd\n", True),
        ("a\n...\nd\n", "a\nd\n", True),
        ("...\nd\n...\n", "a\nd\n", True),
        ("...\nd\n...\n", "a\nc\n", False),
        ("1.5 (x)\n", "145 (x)\n", False),
    ],
)
def test_dots_stand_for_anything(shown: str, printed: str, same: bool) -> None:
    assert matches(shown, printed) is same


def test_a_page_is_one_session(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "alive")
    alive = os.open(tmp_path / "alive", os.O_RDONLY | os.O_NONBLOCK)
    run(
        """
        ```console
        $ sleep 600 > ../alive & echo $! > pid; export WORD=woven
        $ cd /
        ```

        ```console
        $ pwd; echo $WORD
        /
        woven
        $ kill -0 $(cat ~/pid) && test $(cat ~/pid) = $!
        ```

        ```python
        import os

        print(os.environ["WORD"])
        ```

        ```text title="Output"
        woven
        ```
        """,
        tmp_path,
    )
    os.set_blocking(alive, True)
    assert os.read(alive, 1) == b"", "nobody holds the other end any more"
    os.close(alive)


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        ("false", "`false` ended with 1"),
        ("echo a\nb", "should print:\nb\nbut printed:\na"),
        ("exit 3", "`exit 3` ended the shell"),
    ],
)
def test_a_lie_is_found(command: str, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(ExampleError, match=complaint):
        run(f"```console\n$ {command}\n```\n", tmp_path)


def test_a_command_that_hangs_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examples, "PATIENCE", 3.0)
    with pytest.raises(ExampleError, match="took more than 3 s and printed:\nso far"):
        run("```console\n$ echo so far; sleep 600\n```\n", tmp_path)


def test_the_environment_of_the_reader_is_plain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(os.environ, "SECRET_OF_THE_TESTER", "x")
    run("```console\n$ echo [$SECRET_OF_THE_TESTER] $HOME\n[] .../work\n```\n", tmp_path)


def test_numbers_vary_only_where_the_page_says_so() -> None:
    page = "{}```console\n$ weft attach 7\nstood still for 1.4 ms at 0x7f00\n```\n"
    marked = steps(page.format("<!-- weft: numbers vary -->\n"))[0]
    plain = steps(page.format("text\n"))[0]
    assert isinstance(marked, Command)
    assert isinstance(plain, Command)
    printed = "stood still for 23 ms at   0x55aa0\n"
    assert matches(marked.shown, printed, marked.numbers_vary)
    assert not matches(plain.shown, printed, plain.numbers_vary)
    assert matches(marked.shown, "stood still for 1.2 s at 0x55aa0\n", marked.numbers_vary)
    assert not matches(marked.shown, "stood still for 23 calls at 0x55aa0\n", marked.numbers_vary)


def test_scales_and_columns_vary_with_numbers() -> None:
    shown = "METRIC  TOTAL        RATE\nbytes   1,234  78.1M/s  1.2 ms\n"
    printed = "METRIC   TOTAL     RATE\nbytes   12  780/s  930 us\n"
    assert matches(shown, printed, numbers_vary=True)
    assert not matches(shown, printed)
    assert not matches(shown, printed.replace("bytes", "calls"), numbers_vary=True)
