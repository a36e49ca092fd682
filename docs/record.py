"""Records what commands show on a terminal, for the pictures of their pages.

``python -m docs.record [NAME...]``, as root, in the repository's root; needs tmux. The page of a
command is run as its reader would run it, in a terminal of tmux, with processes and a home of its
own. What the console fence before the page's picture shows there is kept in ``docs/recordings``:
the pictures are drawn from that (see ``docs/pictures.py``), and change only when it is recorded
anew.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.examples import Command, File, steps

PAGES = Path(__file__).parent / "reference" / "commands"
RECORDINGS = Path(__file__).parent / "recordings"
HOME = "/srv"
"""Where the page is run, whatever the folder is called outside."""
WIDTH, HEIGHT = 100, 60
PATIENCE = 40.0
KEYS = {"completion": ["weft run -m al", "Tab", "Tab", "Tab"]}
"""What is typed at the prompt after the commands of a page, as tmux calls the keys."""
_PAUSE = 1.5
"""How long what keys do may take, in seconds."""


def picture_of(name: str) -> str:
    """Return the link by which the page of a command shows its picture."""
    return f"](../../pictures/weft-{name}.svg)"


def pictured(page: str, name: str) -> tuple[list[Command | File], list[Command]]:
    """Split what a reader does until the picture: before the fence that is shown, and in it."""
    before, _, _ = page.partition(picture_of(name))
    last = before.rindex("```console\n")
    line = before[:last].count("\n") + 2
    done = steps(before)
    shown = [step for step in done if isinstance(step, Command) and step.line >= line]
    return done[: len(done) - len(shown)], shown


def script(page: str, name: str) -> Iterator[str]:
    """Return the lines of the shell script that runs a page, and shows what is to be seen."""
    hidden, shown = pictured(page, name)
    for step in hidden:
        if isinstance(step, File):
            yield f"printf %s {shlex.quote(step.text)} > {shlex.quote(step.name)}"
        else:
            yield f"{{ {step.script}\n}} > .hidden 2>&1 < /dev/null"
    yield "clear; printf '\\e[3J'"
    if name in KEYS:
        once = "PROMPT_COMMAND='touch .done; unset PROMPT_COMMAND'"
        typed = [f"PS1='$ '; {once}", *(one.script for one in shown)]
        typed += [f"printf '%s\\n' {shlex.quote('$ ' + one.script)}" for one in shown]
        yield f"printf '%s\\n' {shlex.join(typed)} > .rc"
        yield "exec bash --noprofile --rcfile .rc -i"
    for one in shown:
        lines = one.script.splitlines()
        text = "\n".join([f"$ {lines[0]}", *(f"> {line}" for line in lines[1:])])
        yield f"code=$?; printf '%s\\n' {shlex.quote(text)}; (exit $code)"
        yield one.script
    yield "touch .done; sleep 1000"


def record(name: str) -> str:
    """Run the page of a command in a terminal; return what that shows, with its colours."""
    text = (PAGES / f"{name}.md").read_text()
    tmux = ["tmux", "-L", f"weft-record-{os.getpid()}-{name}", "-f", "/dev/null"]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, ".script").write_text("\n".join(script(text, name)) + "\n")
        tools = Path(sys.executable).parent
        environment = [
            *(f"PATH={tools}:{os.environ['PATH']}", f"HOME={HOME}", "LANG=C.UTF-8"),
            *("TERM=tmux-256color", "COLORTERM=truecolor"),
        ]
        inside = (
            f"mount --bind {shlex.quote(folder)} {HOME} && cd {HOME} && hostname weft && "
            f"exec env -i {shlex.join(environment)} bash --noprofile --norc .script"
        )
        command = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--uts", "--kill-child"]
        command += ["sh", "-c", inside]

        def shown() -> str:
            capture = [*tmux, "capture-pane", "-e", "-p", "-S", "-"]
            seen = subprocess.run(capture, capture_output=True, text=True, check=True).stdout
            release = os.uname().release
            return seen.rstrip().replace(release, release.partition("-")[0]) + "\n"

        size = ["-x", str(WIDTH), "-y", str(HEIGHT)]
        subprocess.run([*tmux, "new-session", "-d", *size, shlex.join(command)], check=True)
        try:
            end = time.monotonic() + PATIENCE
            while not Path(folder, ".done").exists():
                if time.monotonic() > end:
                    raise TimeoutError(f"{name} has not ended: {shown()}")
                time.sleep(0.1)
            for key in KEYS.get(name, []):
                subprocess.run([*tmux, "send-keys", key], check=True)
                time.sleep(_PAUSE)
            time.sleep(0.5)
            return shown()
        finally:
            subprocess.run([*tmux, "kill-server"], check=False)


def main() -> None:
    """Record the commands that are named, or all."""
    RECORDINGS.mkdir(exist_ok=True)
    for name in sys.argv[1:] or sorted(page.stem for page in PAGES.glob("*.md")):
        if picture_of(name) in (PAGES / f"{name}.md").read_text():
            (RECORDINGS / f"{name}.ansi").write_text(record(name))


if __name__ == "__main__":
    main()
