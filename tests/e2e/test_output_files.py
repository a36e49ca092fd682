"""What weft writes to: files that exist, files that cannot be written, full disks, pipes."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.e2e.harness import NOBODY, need
from weft.base.files import Draft, check
from weft.cli import main
from weft.errors import BadFile

BEFORE = b"what was there before"
SOURCE = """
#include <stdlib.h>
__attribute__((noinline)) int work(int n) { int s = 0; while (n) s += n--; return s; }
int main(void) { return work(1000) == 1; }
"""
MDL = "// a comment\n\n\n\n\n"
HIDDEN = "import sys; sys.modules[{name!r}] = None\nfrom weft.cli import main\nmain()\n"
"""Runs weft where a library is not installed."""


def weft(*words: str | Path, **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "weft", *map(str, words)]
    defaults: dict[str, object] = {"capture_output": True, "text": True, "check": False}
    if "stdout" in options or "stderr" in options:
        defaults.pop("capture_output")
        defaults |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.run(command, **(defaults | options))  # type: ignore[call-overload,no-any-return]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a program, and what was recorded of it."""
    need("cc")
    folder = tmp_path_factory.mktemp("made")
    (folder / "work.c").write_text(SOURCE)
    subprocess.run(["cc", "-g", "-O1", "-o", folder / "work", folder / "work.c"], check=True)
    for name, words in {
        "cov.json": ["cov", "--format", "json"],
        "profile.json": ["profile", "--format", "json"],
        "run.weft-trace": ["trace"],
    }.items():
        done = weft(*words, "-o", folder / name, "--", folder / "work")
        assert (done.returncode, done.stderr) == (0, "")
    return folder


RECORDERS = {
    "run": "run -m calls --format csv -o OUT -- work",
    "run parquet": "run -m calls --format parquet -o OUT -- work",
    "stats": "run --weaver clone --stats-file OUT -- work",
    "cov": "cov -o OUT -- work",
    "profile": "profile -o OUT -- work",
    "trace": "trace -o OUT -- work",
}
"""Commands that run a program and write a file OUT."""

REPORTERS = {
    "cov html": "cov report cov.json --format html -o OUT",
    "cov lcov": "cov report cov.json --format lcov -o OUT",
    "cov merge": "cov merge cov.json cov.json --format text -o OUT",
    "profile report": "profile report profile.json --format svg -o OUT",
    "profile diff": "profile diff profile.json profile.json -o OUT",
    "trace parquet": "trace export run.weft-trace --format parquet -o OUT",
    "trace perfetto": "trace export run.weft-trace --format perfetto -o OUT",
    "heatmap": "trace heatmap run.weft-trace -o OUT.png",
}
"""Commands that turn what was recorded into a file OUT."""

WRITERS = RECORDERS | REPORTERS


def words_of(command: str, made: Path, out: Path | str) -> list[str]:
    places = {"OUT": str(out), "OUT.png": f"{out}.png", "work": str(made / "work")}
    files = {name: str(made / name) for name in ("cov.json", "profile.json", "run.weft-trace")}
    return [(places | files).get(word, word) for word in command.split()]


@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk_is_a_sentence(name: str, made: Path, tmp_path: Path) -> None:
    assert Path("/dev/full").is_char_device()
    for link in ("full", "full.png"):
        (tmp_path / link).symlink_to("/dev/full")
    words = words_of(WRITERS[name], made, tmp_path / "full")
    if name in RECORDERS:
        done = weft(*words)
        code, said = done.returncode, done.stderr
    else:
        inside = CliRunner().invoke(main, words)
        code, said = inside.exit_code, inside.stderr
    assert code == 4, said
    assert said.startswith("error: cannot write") and str(tmp_path / "full") in said
    assert "\n  why: No space left on device" in said
    assert Path("/dev/full").is_char_device()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of one page, with a small file on it that is to be kept."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount")
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8k", "weft-test", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


@pytest.mark.parametrize("name", ["run parquet", "cov html", "trace"])
def test_a_disk_that_fills_keeps_what_it_had(name: str, made: Path, small_disk: Path) -> None:
    out = small_disk / "out"
    out.write_bytes(BEFORE)
    (small_disk / "rest").write_bytes(b"x" * 4096)
    done = weft(*words_of(WRITERS[name], made, out))
    assert done.returncode == 4, done.stderr
    assert "No space left on device" in done.stderr
    assert out.read_bytes() == BEFORE
    assert {file.name for file in small_disk.iterdir()} == {"out", "rest"}


@pytest.mark.parametrize("name", WRITERS)
def test_a_read_only_folder_is_refused_first(name: str, made: Path, small_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    ran = made / "ran"
    words = words_of(WRITERS[name], made, small_disk / "out")
    if name in RECORDERS:
        words[-1:] = ["touch", str(ran)]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 4, done.stderr
    assert done.stderr.startswith(f"error: cannot write {small_disk / 'out'}")
    assert "\n  why: Read-only" in done.stderr
    assert not ran.exists()


@pytest.mark.parametrize(
    "words",
    ["metrics", "metrics calls --format json", "completion bash", "--help", "run --help"],
)
def test_a_full_standard_output_is_a_sentence(words: str) -> None:
    with Path("/dev/full").open("wb") as full:
        done = weft(*words.split(), stdout=full)
    assert done.returncode == 4, done.stderr
    if "json" not in words:
        assert "error: cannot write the output\n  why: No space left on device\n" in done.stderr
    assert "Traceback" not in done.stderr and "Exception" not in done.stderr


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
@pytest.mark.parametrize(
    "words", ["ps", "metrics", "run -m calls -- true", "profile -o {} -- true", "cov -o {} -- true"]
)
def test_a_closed_stream_is_no_fault_of_weft(words: str, closed: str, tmp_path: Path) -> None:
    command = f"{sys.executable} -m weft {words.format(tmp_path / 'result')} {closed}"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["cov lcov", "run"])
def test_a_full_stream_is_no_fault_of_weft(name: str, made: Path) -> None:
    words = words_of(WRITERS[name].replace(" -o OUT", ""), made, "")
    with Path("/dev/full").open("wb") as full:
        assert weft(*words, stdout=full, stderr=full).returncode == 4


@pytest.mark.parametrize(
    ("words", "library"),
    [
        ("run -m calls --format parquet -o OUT -- touch RAN", "pyarrow"),
        ("run -m calls --prometheus :0 -o OUT -- touch RAN", "prometheus_client"),
        ("run -m calls --otlp http://127.0.0.1:9 -o OUT -- touch RAN", "opentelemetry"),
    ],
)
def test_a_missing_library_is_said_first(words: str, library: str, tmp_path: Path) -> None:
    out, ran = tmp_path / "out", tmp_path / "ran"
    out.write_bytes(BEFORE)
    command = [{"OUT": str(out), "RAN": str(ran)}.get(word, word) for word in words.split()]
    script = HIDDEN.format(name=library)
    done = subprocess.run(
        [sys.executable, "-c", script, *command], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1 and "pip install" in done.stderr
    assert out.read_bytes() == BEFORE
    assert not ran.exists()


def test_a_failed_command_keeps_the_file(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.write_bytes(BEFORE)
    commands: tuple[list[str | Path], ...] = (
        ["run", "-m", "calls", "-o", out, "--", "/no/such/program"],
        ["cov", "-o", out, "--", "/no/such/program"],
        ["trace", "-o", out, "--", "/no/such/program"],
        ["trace", "export", "/no/such/trace", "--format", "parquet", "-o", out],
    )
    for words in commands:
        assert weft(*words).returncode in (3, 4)
        assert out.read_bytes() == BEFORE
    assert [file.name for file in tmp_path.iterdir()] == ["out"]


def test_formatting_on_a_full_disk_keeps_the_file(small_disk: Path) -> None:
    file = small_disk / "a.mdl"
    file.write_text(MDL)
    (small_disk / "rest").write_bytes(b"x" * 4096)
    done = weft("fmt", file)
    assert done.returncode == 4 and "No space left on device" in done.stderr
    assert file.read_text() == MDL


def test_links_pipes_and_own_streams_are_written_to(made: Path, tmp_path: Path) -> None:
    command = WRITERS["cov lcov"]
    expected = weft(*words_of(command, made, "/dev/stdout")).stdout
    assert expected.startswith("TN:")
    # A link stays one, and so does what it leads to, with its mode.
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_bytes(BEFORE)
    target.chmod(0o640)
    link.symlink_to("target")
    assert weft(*words_of(command, made, link)).returncode == 0
    assert link.is_symlink() and target.read_text() == expected
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    # A link that leads to nothing yet.
    link.unlink()
    link.symlink_to("new")
    assert weft(*words_of(command, made, link)).returncode == 0
    assert link.is_symlink() and (tmp_path / "new").read_text() == expected
    # Standard output is written to where it is, behind what is there.
    log = tmp_path / "log"
    log.write_bytes(BEFORE)
    with log.open("ab") as file:
        weft(*words_of(command, made, "/dev/stdout"), stdout=file)
    assert log.read_bytes() == BEFORE + expected.encode()
    # Who reads from a pipe gets all of it.
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got: list[str] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_text()))
    reader.start()
    assert weft(*words_of(command, made, pipe)).returncode == 0
    reader.join()
    assert got == [expected] and pipe.is_fifo()
    assert weft(*words_of(command, made, "/dev/null")).returncode == 0
    assert Path("/dev/null").is_char_device()


def test_a_file_in_a_folder_of_somebody_else(public_folder: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody else")
    folder = public_folder / "folder"
    folder.mkdir()
    file = folder / "theirs"
    file.write_bytes(BEFORE)
    os.chown(file, NOBODY, NOBODY)
    script = (
        "from weft.base.files import Draft, check\n"
        f"import os, shutil, tempfile; os.setgid({NOBODY}); os.setuid({NOBODY})\n"
        f"check({str(file)!r})\n"
        f"with Draft({str(file)!r}) as file: file.write(b'new')\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
    assert file.read_bytes() == b"new"
    assert file.stat().st_uid == NOBODY
    # Root writes to files of others and they stay theirs.
    with Draft(file) as out:
        out.write(b"newer")
    assert file.read_bytes() == b"newer" and file.stat().st_uid == NOBODY


def test_a_draft_has_its_name_only_when_complete(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 255)
    with Draft(path) as file:
        file.write(b"1")
        assert not path.exists()
    assert path.read_bytes() == b"1"
    with pytest.raises(KeyboardInterrupt), Draft(path) as file:
        file.write(b"2")
        raise KeyboardInterrupt
    assert path.read_bytes() == b"1"
    assert list(tmp_path.iterdir()) == [path]
    for wrong in (tmp_path, path / "below", tmp_path / "no" / "folder", tmp_path / ("n" * 256)):
        with pytest.raises(BadFile, match="cannot write"):
            check(wrong)


def test_values_are_for_the_owner_only(made: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.write_bytes(b"")
    out.chmod(0o644)
    assert weft("trace", "--values", "-o", out, "--", made / "work").returncode == 0
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    plain = tmp_path / "plain"
    assert weft("trace", "-o", plain, "--", made / "work").returncode == 0
    assert stat.S_IMODE(plain.stat().st_mode) & 0o400


def test_a_core_file_replaces_the_one_before(made: Path, tmp_path: Path) -> None:
    need("gdb")
    core = tmp_path / "core"
    core.write_bytes(BEFORE)
    done = weft("debug", "--core", core, "--", made / "work")
    assert "ended without a core" in done.stderr
    assert core.read_bytes() == BEFORE
    done = weft("debug", "--core", core, "--", "sh", "-c", "kill -ABRT $$")
    # The program was ended by SIGABRT.
    assert (done.returncode, core.read_bytes()[:4]) == (134, b"\x7fELF"), done.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["core"]


def test_what_a_debugger_records_replaces_the_file(made: Path, tmp_path: Path) -> None:
    need("gdb")
    gdb = ["--gdb-args", "-nx -batch -ex continue"]
    for option in ("--coverage", "--trace"):
        out = tmp_path / option.strip("-")
        out.write_bytes(BEFORE)
        done = weft("debug", option, out, *gdb, "--", made / "work")
        assert done.returncode == 0, done.stderr
        assert BEFORE not in out.read_bytes()
        full = weft("debug", option, "/dev/full", *gdb, "--", made / "work")
        assert full.returncode == 4, full.stderr
