"""How GDB comes to a program: by gdbserver, natively, or by weft, which runs its clone."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias

from tests.e2e.harness import eventually, free_port

Around: TypeAlias = dict[str, Any]
"""What a process is started with: its environment and its folder."""

ROOT = Path(__file__).parents[2]
GDB = ("gdb", "-batch", "-nx", "-iex", "set sysroot /", "-iex", "set debuginfod enabled off")
NATIVE, MOVED, WEFT = "native", "moved", "weft"
"""Alone; alone with libraries at other addresses; as a clone."""
WATCHED = {
    "covered": ["--coverage", os.devnull],
    "traced": ["--trace", os.devnull],
    "measured": ["-m", "calls", "-m", "latency", "-m", "stores"],
}
"""As a clone that something else is done with at the same time, and how."""
MARK = r"\n@@(\d+)@@\n"
IDS = re.compile(r"(Thread|process|LWP) [\d.]+")
"""How GDB writes numbers that the kernel gives."""
PLACES = re.compile(r"(reakpoint \d+)\.\d+")
"""A breakpoint's places are numbered by their addresses."""
NEWS = re.compile(r"\[(New Thread|Switching to|Thread) .*\]\n")
"""What GDB says of threads as it hears of them, before or after it is asked."""
GDB_FAILS = "Recursive internal problem."
"""GDB 13 itself does not survive everything that is asked of it in inlined functions."""
SHOWN = 30
SCRIPT = "import sys\nsys.path.insert(0, {root!r})\nfrom tests.gdb import driver\n{call}\n"


def environment(**more: str) -> dict[str, str]:
    """What the program's environment is on all sides: it lies on the stack, and moves all else."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    paths = [str(ROOT / "python"), str(ROOT)]
    return {**kept, "LC_ALL": "C", "PYTHONPATH": os.pathsep.join(paths), **more}


@contextmanager
def listening(
    side: str, target: Sequence[str | Path] | int, around: Around | None = None
) -> Iterator[str]:
    """Have a program or a process debugged by whoever connects: where."""
    around = around or {"env": environment()}
    port = free_port()
    address = f"127.0.0.1:{port}"
    command: list[str | Path]
    if side == WEFT or side in WATCHED:
        command = [*weft_debug("--listen", address, *WATCHED.get(side, []))]
        command += [str(target)] if isinstance(target, int) else ["--", *target]
    else:
        moved = ["setarch", "-R", "-L"] if side == MOVED else []
        command = [*moved, "gdbserver", "--once", "--no-startup-with-shell"]
        if isinstance(target, int):
            command += ["--attach", address, str(target)]
        else:
            command += [address, *target]
    server = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        # It is the program's, too, which may ask where in a file it stands.
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **around,
    )
    assert server.stderr
    said: list[str] = []
    # gdbserver says much where it cannot write the newest processors' registers.
    reader = threading.Thread(target=said.extend, args=[server.stderr])
    reader.start()
    try:
        eventually(lambda: server.poll() is not None or listens(port))
        if server.poll() is not None:
            reader.join()
            raise AssertionError(f"{shlex.join(map(str, command))} said: {''.join(said)}")
        yield address
    finally:
        end_group(server)
        reader.join()
        server.stderr.close()


def listens(port: int) -> bool:
    """Say whether somebody listens on a port, without connecting: some serve only one client."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(words[3] == "0A" and int(words[1].split(":")[1], 16) == port for words in lines)


def weft_debug(*options: str) -> list[str]:
    """The command, with nothing random in where things are."""
    return ["setarch", "-R", sys.executable, "-m", "weft", "debug", *options]


def run_gdb(
    side: str,
    arguments: Sequence[str],
    target: Sequence[str | Path] | int,
    patience: float = 60.0,
    around: Around | None = None,
) -> str:
    """Have GDB do something with a program or a process, and return what it printed."""
    around = around or {"env": environment()}
    file = f"/proc/{target}/exe" if isinstance(target, int) else str(target[0])
    with listening(side, target, around) as address:
        how = "remote" if side in (NATIVE, MOVED) else "extended-remote"
        connected = [*GDB, "-ex", f"target {how} {address}", *arguments, file]
        return _run(connected, patience, around)


def run_weft_debug(arguments: Sequence[str], target: Sequence[str | Path]) -> str:
    """Have weft start GDB on a program, and return what it printed."""
    words = shlex.join([*GDB[1:], *arguments])
    command = [*weft_debug("--gdb-args", words), "--", *target]
    return _run(command, 60.0, {"env": environment()})


def commands(*lines: str) -> list[str]:
    """GDB's arguments to do one thing after the other."""
    return [word for line in ("set confirm off", *lines) for word in ("-ex", line)]


def _run(command: Sequence[str | Path], patience: float, around: Around) -> str:
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
        **around,
    )
    with process:
        try:
            text, _ = process.communicate(timeout=patience)
        except subprocess.TimeoutExpired as hung:
            said = last_lines(bytes(hung.output or b"").decode(errors="replace"))
            raise AssertionError(f"no end in {patience:.0f} s: {said}") from None
        finally:
            end_group(process)
    if process.returncode != 0 and GDB_FAILS not in text:
        words = shlex.join(map(str, command))
        raise AssertionError(f"{words}: {process.returncode}: {last_lines(text)}")
    return text


def last_lines(text: str) -> str:
    return "\n".join(["...", *text.splitlines()[-SHOWN:]])


def end_group(process: subprocess.Popen[Any]) -> None:
    """Kill a process that leads a group, and what it has left behind."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def record(
    side: str,
    plan: dict[str, Any],
    command: Sequence[str | Path],
    folder: Path,
    patience: float,
    **variables: str,
) -> list[dict[str, Any]]:
    """Walk through a program as a plan says: all that GDB told, see ``driver``."""
    out, plan_file, script = (folder / name for name in (f"{side}.jsonl", "plan.json", "walk.py"))
    plan_file.write_text(json.dumps({**plan, "out": str(out)}))
    script.write_text(SCRIPT.format(root=str(ROOT), call=f"driver.drive({str(plan_file)!r})"))
    out.unlink(missing_ok=True)
    around = {"cwd": folder, "env": environment(**variables)}
    printed = run_gdb(side, ["-x", str(script)], command, patience, around)
    found = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    if GDB_FAILS in printed:
        found.append({"did": "GDB fails", "ended": "its own fault"})
    elif not found or found[-1].get("did") != "end":
        raise AssertionError(f"the walk failed: {last_lines(printed)}")
    parts = re.split(MARK, printed)
    told = dict(zip(parts[1::2], parts[2::2], strict=True))
    for one in found:
        # What the program itself prints may be there when it ends.
        if "why" in one:
            text = PLACES.sub(r"\1", NEWS.sub("", told[str(one["number"])]))
            one["told"] = IDS.sub(r"\1 #", text)
    return found
