"""Runs the examples of a documentation page as its reader would, and compares what they print.

A page is one session: one shell, one empty folder that is also its home, from the first fence to
the last.

- A ``console`` fence holds commands (``$``, continued by ``>``), each followed by what it prints.
- A ``python`` fence is a whole program. A ``text`` fence titled "Output" right after it is what the
  program prints.
- A fence of any language with another title is a file of that name, written and not run.
- ``<!-- weft: skip REASON -->`` on the line before a fence leaves it out.

Shown output is compared, output that is not shown is not: ``...`` stands for anything within a
line, and for any number of lines where it is alone on one. After ``<!-- weft: numbers vary -->`` on
the line before the fence, every number, address and build-id stands for any other, whatever its
scale (``1.2 ms`` and ``930 us``), and columns may be wider or narrower. A command that fails fails
the page, unless the next command is ``echo $?``.
"""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PATIENCE = 60.0

_FENCE = re.compile(r"( *)(`{3,})(\w*)[ ]*(.*)")
_TITLE = re.compile(r'title="([^"]+)"')
_SKIP = re.compile(r"\s*<!-- weft: skip \S.* -->")
_NUMBERS_VARY = "<!-- weft: numbers vary -->"
_NUMBER = re.compile(
    r" *(?:\b0x[0-9a-f]+|\b[0-9a-f]{16,}|\d+(?:,\d{3})*(?:\.\d+)?)"
    r"(?: ?(?:[kMG]|(?:[KMG]i)?B|[num]?s)\b)?"
)
_SPACES = re.compile(r" +")
_NOT_RUN = {"bash", "sh", "shell", "pycon", "py", "zsh", "shell-session"}


class ExampleError(Exception):
    """An example that is malformed, fails, or prints something else than the page shows."""


@dataclass(frozen=True)
class Fence:
    """A fenced block: its language, its title, its text, and the line where the text starts."""

    language: str
    title: str
    text: str
    line: int
    skipped: bool
    numbers_vary: bool


@dataclass
class Command:
    """A shell command, what the page shows of its output, and whether it may fail."""

    script: str
    shown: str
    line: int
    may_fail: bool = False
    numbers_vary: bool = False


@dataclass(frozen=True)
class File:
    """A file that the page asks its reader to save."""

    name: str
    text: str


def fences(page: str) -> Iterator[Fence]:
    """Find the fenced blocks of a page."""
    lines = page.splitlines()
    number = 0
    while number < len(lines):
        opening = _FENCE.fullmatch(lines[number])
        number += 1
        if not opening:
            continue
        indent, ticks, language, rest = opening.groups()
        start = number
        while number < len(lines) and lines[number].strip() != ticks:
            number += 1
        title = _TITLE.search(rest)
        yield Fence(
            language,
            title[1] if title else "",
            "".join(line.removeprefix(indent) + "\n" for line in lines[start:number]),
            start + 1,
            start > 1 and bool(_SKIP.fullmatch(lines[start - 2])),
            start > 1 and lines[start - 2].strip() == _NUMBERS_VARY,
        )
        number += 1


def steps(page: str) -> list[Command | File]:
    """Turn a page into what its reader does, in order."""
    result: list[Command | File] = []
    program: Command | None = None
    for fence in fences(page):
        before, program = program, None
        if fence.skipped:
            continue
        if fence.title == "Output":
            if before is None:
                raise ExampleError(f"line {fence.line}: output without a program before it")
            before.shown = fence.text
            before.numbers_vary = fence.numbers_vary
        elif fence.title:
            result.append(File(fence.title, fence.text))
        elif fence.language == "console":
            result += _commands(fence)
        elif fence.language == "python":
            name = f".example-{fence.line}.py"
            program = Command(f"python ~/{name}", "", fence.line)
            result += [File(name, fence.text), program]
        elif fence.language in _NOT_RUN:
            raise ExampleError(f"line {fence.line}: {fence.language} is never run: use console")
    return result


def _commands(fence: Fence) -> list[Command]:
    found: list[Command] = []
    for number, line in enumerate(fence.text.splitlines(), fence.line):
        if line.startswith("$ "):
            if found and line == "$ echo $?":
                found[-1].may_fail = True
            found.append(Command(line[2:], "", number, numbers_vary=fence.numbers_vary))
        elif not found:
            raise ExampleError(f"line {number}: output without a command before it")
        elif line.startswith("> ") and not found[-1].shown:
            found[-1].script += "\n" + line[2:]
        else:
            found[-1].shown += line + "\n"
    return found


def matches(shown: str, printed: str, numbers_vary: bool = False) -> bool:
    """Whether what was printed is what the page shows, with ``...`` as a wildcard."""
    if numbers_vary:
        shown, printed = (_SPACES.sub(" ", _NUMBER.sub(" N", text)) for text in (shown, printed))
    pattern = ""
    for line in shown.rstrip().splitlines():
        if line.strip() == "...":
            pattern += r"(?:.*\n)*?"
        else:
            pattern += ".*".join(map(re.escape, line.rstrip().split("..."))) + r"[ \t]*\n"
    return re.fullmatch(pattern, printed.rstrip() + "\n") is not None


class Shell:
    """One bash that runs the commands of a page in a folder, each with its output in a file.

    Leaving it ends everything that was started in it and stayed in its process group.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.count = 0
        tools = Path(sys.executable).parent
        self.bash = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=folder,
            env={
                "PATH": f"{tools}:{os.environ['PATH']}",
                "HOME": str(folder),
                "LANG": "C.UTF-8",
                "COLUMNS": "100",
            },
            start_new_session=True,
            bufsize=0,
        )

    def __enter__(self) -> Shell:
        return self

    def __exit__(self, *_: object) -> None:
        os.killpg(self.bash.pid, signal.SIGKILL)
        self.bash.communicate()

    def run(self, script: str) -> tuple[int, str]:
        """Run a command in the shell; return its exit code and all that it printed."""
        assert self.bash.stdin and self.bash.stdout
        self.count += 1
        source = self.folder / f".command-{self.count}"
        output = source.with_suffix(".out")
        source.write_text(script + "\n")
        # The last line gives $? to the next command.
        call = f". ~/{source.name} >~/{output.name} 2>&1 </dev/null; weft_code=$?; echo $weft_code"
        self.bash.stdin.write(f"{call}\n(exit $weft_code)\n".encode())
        in_time, _, _ = select.select([self.bash.stdout], [], [], PATIENCE)
        answer = self.bash.stdout.readline() if in_time else b""
        printed = output.read_text(errors="replace")
        if not in_time:
            raise ExampleError(f"`{script}` took more than {PATIENCE:g} s and printed:\n{printed}")
        if not answer:
            raise ExampleError(f"`{script}` ended the shell and printed:\n{printed}")
        return int(answer), printed


def run_page(page: Path, folder: Path) -> None:
    """Run all examples of a page in an empty folder; raise at the first that lies."""
    with Shell(folder) as shell:
        for step in steps(page.read_text()):
            if isinstance(step, File):
                (folder / step.name).write_text(step.text)
                continue
            code, printed = shell.run(step.script)
            place = f"{page}:{step.line}: `{step.script}`"
            if code and not step.may_fail:
                raise ExampleError(f"{place} ended with {code} and printed:\n{printed}")
            if step.shown and not matches(step.shown, printed, step.numbers_vary):
                raise ExampleError(f"{place} should print:\n{step.shown}but printed:\n{printed}")
