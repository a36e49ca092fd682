"""Builds the programs and runs them, until enough is known about them."""

from __future__ import annotations

import fcntl
import hashlib
import os
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from tests.bottlenecks.model import Case, Target
from tests.bottlenecks.servers import STARTERS
from tests.e2e.harness import Background, eventually, free_port, kill_family

PROGRAMS = Path(__file__).parent / "programs"
C = ("-O2", "-g", "-Wall", "-Wextra", "-Werror", "-pthread")
RECIPES: dict[str, tuple[str, ...]] = {
    ".c": ("gcc", *C, "{source}", "-o", "{out}"),
    ".cpp": ("g++", "-std=c++17", *C, "{source}", "-o", "{out}"),
    ".rs": ("rustc", "-O", "-g", "--edition", "2021", "{source}", "-o", "{out}"),
    ".go": ("go", "build", "-o", "{out}", "{source}", "{programs}/counter.go"),
    ".java": ("javac", "-g", "-d", "{out}", "{source}", "{programs}/Operations.java"),
}
SHARED = ("program.h", "operations.rs", "counter.go", "Operations.java")


def build(source: str) -> Path:
    """The program of a source; one that was built before, unless something has changed."""
    recipe = RECIPES.get(Path(source).suffix)
    if recipe is None:
        return PROGRAMS / source
    texts = [(PROGRAMS / name).read_bytes() for name in (source, *SHARED)]
    digest = hashlib.sha256(b"\0".join([repr(recipe).encode(), *texts])).hexdigest()[:12]
    folder = Path(tempfile.gettempdir()) / f"weft-bottlenecks-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    out = folder / digest / Path(source).stem
    out.parent.mkdir(exist_ok=True)
    # Tests that run at once need the same programs.
    with (out.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not out.exists():
            _build(recipe, source, out, folder)
    return out


def _build(recipe: Sequence[str], source: str, out: Path, folder: Path) -> None:
    words = {"source": PROGRAMS / source, "programs": PROGRAMS, "out": f"{out}.new"}
    # Go keeps its cache at home, which a build machine may not have.
    go = {"GOCACHE": f"{folder}/go", "GOFLAGS": "-buildvcs=false", "GO111MODULE": "off"}
    subprocess.run([word.format(**words) for word in recipe], check=True, env={**os.environ, **go})
    Path(f"{out}.new").rename(out)


def command(case: Case) -> list[str]:
    """What starts a program, without its arguments."""
    program = build(case.source)
    match program.suffix, Path(case.source).suffix:
        case ".py", _:
            return [sys.executable, "-B", *case.options, str(program)]
        case ".js", _:
            return ["node", *case.options, str(program)]
        case _, ".java":
            return ["java", *case.options, "-cp", str(program), program.name]
    return [str(program)]


@contextmanager
def started(case: Case) -> Iterator[Target]:
    """Start a case with all that it needs, and wait until it is warm; nothing is left of it."""
    # Not in /tmp, which may be in memory: some of them are there for the disk.
    with tempfile.TemporaryDirectory(prefix="weft-", dir="/var/tmp") as name, ExitStack() as stack:
        if case.source in STARTERS:
            target = stack.enter_context(STARTERS[case.source](Path(name)))
        else:
            target = stack.enter_context(_program(case, Path(name)))
        time.sleep(case.warm)
        if case.language == "Java":
            # What it has compiled by now gets names.
            subprocess.run(
                ["jcmd", str(target.pid), "Compiler.perfmap"], check=True, stdout=subprocess.DEVNULL
            )
        yield target


@contextmanager
def _program(case: Case, folder: Path) -> Iterator[Target]:
    start = command(case)
    counter = folder / "counter"
    for path in (counter, folder / "other"):
        path.write_bytes(bytes(8))
    words = {
        "counter": str(counter),
        "folder": str(folder),
        "port": str(free_port()),
        "program": start[-1],
    }
    with ExitStack() as stack:
        for peer in case.peers:
            stack.enter_context(_peer([word.format(**words) for word in peer]))
        arguments = [word.format(**words) for word in case.arguments]
        process = subprocess.Popen(
            [*start, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, cwd=folder
        )
        stack.callback(_end, process)

        def done() -> float:
            (number,) = struct.unpack("<Q", counter.read_bytes())
            return float(number)

        def has_begun() -> bool:
            if process.poll() is not None:
                raise RuntimeError(f"{case.name} ended with {process.returncode}")
            return done() > 0

        eventually(has_begun)
        yield Target(process.pid, done, words)


def _end(process: subprocess.Popen[bytes]) -> None:
    kill_family(process)
    # What node and java have written for those who look at their code.
    with suppress(FileNotFoundError):
        Path(f"/tmp/perf-{process.pid}.map").unlink()


@contextmanager
def _peer(words: list[str]) -> Iterator[None]:
    if Path(words[0]).is_absolute():
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL)
        try:
            yield
        finally:
            kill_family(process)
    else:
        with Background([sys.executable, "-B", PROGRAMS / "peers.py", *words]):
            yield


def rate(target: Target, seconds: float) -> float:
    """Operations per second, in so many seconds."""
    done, began = target.done(), time.monotonic()
    time.sleep(seconds)
    return (target.done() - done) / (time.monotonic() - began)
