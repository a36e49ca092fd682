"""Runs a program of the zoo natively and cloned, and says what differs."""

from __future__ import annotations

import fnmatch
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.zoo.model import Exhibit, Native, Server

SCRIPTS = Path(__file__).parent / "scripts"
LONG_AGO = 1_000_000_000
"""When all files were made that programs read, in seconds since 1970."""

# The distribution's own programs before others of the same names.
PATH = "/usr/bin:/bin:/usr/sbin:/sbin:/usr/games:" + os.environ.get("PATH", "")


@dataclass(frozen=True)
class Step:
    """What came of a command."""

    command: str
    code: int | None
    """Its exit code, or None if it took too long."""
    stdout: bytes
    stderr: bytes


@dataclass(frozen=True)
class Run:
    """What came of all commands of a program."""

    steps: list[Step]
    files: dict[str, bytes]
    seconds: float

    @property
    def failure(self) -> str:
        """Why it is no example for another run, if so."""
        for step in self.steps:
            if step.code != 0:
                return f"`{step.command}` {_ended(step.code)}{_last_words(step.stderr)}"
        return ""


@dataclass(frozen=True)
class Verdict:
    """What came of a program, native and cloned."""

    exhibit: Exhibit
    missing: str = ""
    """What is not installed, if so."""
    broken: str = ""
    """Why it does not even work natively, if so."""
    differences: tuple[str, ...] = ()
    native: float = 0.0
    cloned: float = 0.0

    @property
    def same(self) -> bool:
        return not (self.missing or self.broken or self.differences)

    @property
    def word(self) -> str:
        """What happened, in a word."""
        if self.missing:
            return "missing"
        if self.broken:
            return "broken"
        return "differs" if self.differences else "same"

    @property
    def why(self) -> str:
        """Why it is not the same, if it is not."""
        if self.missing:
            return f"{self.missing} is not installed"
        if self.broken:
            return f"does not work natively: {self.broken}"
        return self.differences[0] if self.differences else ""


def compare(exhibit: Exhibit, prefix: Sequence[str], limit: float | None = None) -> Verdict:
    """Run a program natively and with a prefix, in fresh folders of the same name."""
    if missing := what_is_missing(exhibit):
        return Verdict(exhibit, missing=missing)
    with tempfile.TemporaryDirectory(prefix="weft-zoo-") as directory:
        top = Path(directory)
        top.chmod(0o755)
        port = _free_port()
        native = run(exhibit, [], top, port, limit)
        if native.failure:
            return Verdict(exhibit, broken=native.failure, native=native.seconds)
        cloned = run(exhibit, prefix, top, port, limit)
    found = tuple(differences(exhibit, native, cloned))
    return Verdict(exhibit, differences=found, native=native.seconds, cloned=cloned.seconds)


def what_is_missing(exhibit: Exhibit) -> str:
    """Return the first program that is not installed, or nothing."""
    commands = [*exhibit.prepare, *exhibit.commands]
    if exhibit.server:
        commands.append(exhibit.server.command)
    for program in (*exhibit.needs, *(shlex.split(command)[0] for command in commands)):
        is_here = program.startswith("./") or "{" in program
        if not is_here and not shutil.which(program, path=search_path()):
            return program
    return ""


def search_path() -> str:
    """Return where programs are looked for: servers of PostgreSQL are in no usual place."""
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: folder.parts)
    return ":".join([*map(str, versions[-1:]), PATH])


def run(exhibit: Exhibit, prefix: Sequence[str], top: Path, port: int, limit: float | None) -> Run:
    """Run all commands of a program in a fresh folder."""
    folder = top / "work"
    folder.mkdir(mode=0o755)
    environment = _environment(exhibit, folder)
    try:
        for script in exhibit.scripts:
            shutil.copy(SCRIPTS / script, folder / script)
        for write in exhibit.inputs:
            write(folder)
        _make_old(folder)
        deadline = time.monotonic() + (limit or exhibit.limit)
        for each in exhibit.prepare:
            step = _step(Native(each), [], folder, environment, port, deadline)
            if step.code != 0:
                return Run([step], {}, 0.0)
        steps: list[Step] = []
        start = time.monotonic()
        deadline = start + (limit or exhibit.limit)
        with _serving(exhibit.server, prefix, folder, environment, port, deadline, steps):
            for command in exhibit.commands:
                steps.append(_step(command, prefix, folder, environment, port, deadline))
                if steps[-1].code is None:
                    break
        seconds = time.monotonic() - start
        return Run(steps, _files(exhibit, folder), seconds)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def differences(exhibit: Exhibit, native: Run, cloned: Run) -> Iterator[str]:
    """Say what is not the same in both."""
    for one, other in zip(native.steps, cloned.steps, strict=False):
        command = f"`{one.command}`"
        if one.code != other.code:
            yield f"{command} {_ended(other.code)}{_last_words(other.stderr)}"
        streams = [("output", one.stdout, other.stdout)]
        if exhibit.stderr:
            streams.append(("standard error", one.stderr, other.stderr))
        for name, before, after in streams:
            if difference := _difference(_normal(exhibit, before), _normal(exhibit, after)):
                yield f"{name} of {command} {difference}"
    if len(cloned.steps) < len(native.steps):
        yield "it did not come to its other commands"
    for name in sorted(native.files.keys() | cloned.files.keys()):
        if name not in cloned.files:
            yield f"file {name} is not there"
        elif name not in native.files:
            yield f"file {name} is new"
        elif difference := _difference(
            _normal(exhibit, native.files[name]), _normal(exhibit, cloned.files[name])
        ):
            yield f"file {name} {difference}"


def _step(
    command: str,
    prefix: Sequence[str],
    folder: Path,
    environment: dict[str, str],
    port: int,
    deadline: float,
) -> Step:
    words = shlex.split(command.replace("{port}", str(port)))
    source, target = (_redirected(words, sign) for sign in "<>")
    before = [] if isinstance(command, Native) else list(prefix)
    with (
        (folder / source if source else Path(os.devnull)).open("rb") as stdin,
        (folder / target).open("w+b") if target else tempfile.TemporaryFile() as stdout,
        tempfile.TemporaryFile() as stderr,
    ):
        process = subprocess.Popen(
            [*before, *words],
            cwd=folder,
            env=environment,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
        code = _wait(process, deadline)
        for stream in (stdout, stderr):
            stream.seek(0)
        return Step(str(command), code, stdout.read(), stderr.read())


def _wait(process: subprocess.Popen[bytes], deadline: float) -> int | None:
    """Return the exit code as a shell would say it, or None if it took too long."""
    try:
        code = process.wait(timeout=max(1.0, deadline - time.monotonic()))
        return 128 - code if code < 0 else code
    except subprocess.TimeoutExpired:
        return None
    finally:
        _end_session(process.pid)
        process.wait()


def _end_session(leader: int) -> None:
    """Kill all that is left of a session, be it the leader's group or another."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError, IndexError, ValueError):
                stat = (folder / "stat").read_text().rpartition(")")[2].split()
                if int(stat[3]) == leader:
                    os.kill(int(folder.name), signal.SIGKILL)


@contextmanager
def _serving(
    server: Server | None,
    prefix: Sequence[str],
    folder: Path,
    environment: dict[str, str],
    port: int,
    deadline: float,
    steps: list[Step],
) -> Iterator[None]:
    """Have a server run meanwhile; what came of it is the first step."""
    if not server:
        yield
        return
    words = shlex.split(server.command.replace("{port}", str(port)))
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [*([] if isinstance(server.command, Native) else prefix), *words],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            start_new_session=True,
        )
        try:
            while not _listens(port) and process.poll() is None:
                if time.monotonic() > deadline:
                    break
                time.sleep(0.01)
            yield
            if server.pid_file:
                with suppress(OSError, ValueError):
                    pid = int((folder / server.pid_file).read_text().split()[0])
                    os.kill(pid, getattr(signal, f"SIG{server.signal}"))
        finally:
            code = _wait(process, min(deadline, time.monotonic() + 60))
        errors.seek(0)
        # What servers print has times and process ids in it: only the exit code counts.
        # Where it failed, that is why its clients did.
        steps.insert(0, Step(server.command, code, b"", b"" if code == 0 else errors.read()))


def _listens(port: int) -> bool:
    """Say whether a port of this machine is listened on, without connecting to it."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                return True
    return False


def _environment(exhibit: Exhibit, folder: Path) -> dict[str, str]:
    home = Path.home()
    environment = {
        "PATH": search_path(),
        "HOME": str(folder),
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "TERM": "dumb",
        "USER": "weft",
        "PYTHONHASHSEED": "0",
        "SOURCE_DATE_EPOCH": str(LONG_AGO),
        "RUSTUP_HOME": os.environ.get("RUSTUP_HOME", str(home / ".rustup")),
        # Not in the folder that is compared.
        "WEFT_CLONES": os.environ.get("WEFT_CLONES", "off"),
        **exhibit.environment,
    }
    if paths := os.environ.get("PYTHONPATH"):
        # The prefix may need it, in another folder.
        absolute = (str(Path(path).absolute()) for path in paths.split(":") if path)
        environment["PYTHONPATH"] = ":".join(absolute)
    return environment


def _make_old(folder: Path) -> None:
    for path in [folder, *folder.rglob("*")]:
        os.utime(path, (LONG_AGO, LONG_AGO), follow_symlinks=False)


def _redirected(words: list[str], sign: str) -> str:
    """Take the file after a sign out of a command, if there is one."""
    if sign not in words:
        return ""
    at = words.index(sign)
    name = words[at + 1]
    del words[at : at + 2]
    return name


def _files(exhibit: Exhibit, folder: Path) -> dict[str, bytes]:
    """Return what is in the files that count; links as where they lead, folders as nothing."""
    found: dict[str, bytes] = {}
    for path in folder.rglob("*"):
        name = str(path.relative_to(folder))
        if not any(_fits(name, pattern) for pattern in exhibit.files):
            continue
        if path.is_symlink():
            found[name] = str(path.readlink()).encode()
        elif path.is_file():
            found[name] = b"%o\n" % (path.stat().st_mode & 0o777) + path.read_bytes()
        elif path.is_dir():
            found[name] = b""
    return found


def _fits(name: str, pattern: str) -> bool:
    return pattern == "**/*" or fnmatch.fnmatchcase(name, pattern)


def _normal(exhibit: Exhibit, text: bytes) -> bytes:
    for pattern, replacement in exhibit.normal.items():
        text = re.sub(pattern.encode(), replacement.encode(), text, flags=re.MULTILINE)
    return text


def _difference(before: bytes, after: bytes) -> str:
    if before == after:
        return ""
    at = next(
        (index for index, (a, b) in enumerate(zip(before, after, strict=False)) if a != b),
        min(len(before), len(after)),
    )
    expected, found = (_quoted(text[max(0, at - 20) : at + 40]) for text in (before, after))
    sizes = f"{len(before)} bytes native and {len(after)} cloned"
    return f"differs at byte {at} of {sizes}: {expected} became {found}"


def _ended(code: int | None) -> str:
    if code is None:
        return "did not end in time"
    if code > 128:
        with suppress(ValueError):
            return f"was ended by {signal.Signals(code - 128).name}"
    return f"ended with {code}"


def _last_words(stderr: bytes) -> str:
    lines = [line for line in stderr.decode(errors="replace").splitlines() if line.strip()]
    return f": {lines[-1][:200]}" if lines else ""


def _quoted(text: bytes) -> str:
    return repr(text.decode(errors="backslashreplace"))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
