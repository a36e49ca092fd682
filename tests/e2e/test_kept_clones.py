"""Clones that are kept in files: the same program, faster, and never another one."""

from __future__ import annotations

import json
import mmap
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

import weft
from tests.clone import cases, known, outcome, outcome_of_clone
from tests.e2e.harness import need
from tests.e2e.test_clone_torture import PROGRAMS as TORTURE
from tests.e2e.test_clone_torture import name
from tests.toolchain import run as done
from weft.errors import InvalidArgument

Build = Callable[[str], Path]

SETTLED = 2.2
"""How long a file must have been as it is, in seconds, for its clone to be kept."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of clones of this test's own."""
    path = tmp_path / "clones"
    monkeypatch.setenv("WEFT_CLONES", str(path))
    return path


def figures(command: list[str | Path], tmp_path: Path, *options: str) -> dict[str, int]:
    """What the engine did while a command ran, which must do as it does natively."""
    file = tmp_path / "figures.json"
    wanted = outcome(command)
    words = ["--stats-file", str(file), *options]
    assert outcome_of_clone(command, words) == wanted
    document: dict[str, int] = json.loads(file.read_text())
    return document


PROGRAMS: Mapping[str, list[str]] = {
    "awk": ["awk", "BEGIN { for (i = 0; i < 1000; i++) s += i; print s }"],
    "bash": ["bash", "-c", "for i in 1 2 3; do echo $((i * i)); done; /bin/true && echo so"],
    "git": ["git", "--version"],
    "jq": ["jq", "-n", "[range(20)] | map(. * .) | add"],
    "perl": ["perl", "-e", "print join(',', map { $_ * $_ } 1 .. 20), qq(\\n)"],
    "python": ["/usr/bin/python3", "-c", "import json, re; print(json.dumps(sorted('weft')))"],
    "sqlite3": ["sqlite3", ":memory:", "select sum(value) from generate_series(1, 1000)"],
    "xz": ["xz", "--version"],
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_what_was_executed_is_there_the_next_time(
    program: str, folder: Path, tmp_path: Path
) -> None:
    command: list[str | Path] = [*PROGRAMS[program]]
    need(command[0])
    first = figures(command, tmp_path)
    assert first["file_blocks"] == 0 and first["blocks"] > 100
    second = figures(command, tmp_path)
    assert second["file_blocks"] > 100
    # A process that ends by itself while weft looks away is one that keeps nothing.
    assert second["blocks"] < first["blocks"] / 4
    kept = weft.KeptClones(folder).entries()
    assert all(one.is_whole for one in kept)
    assert any("libc.so.6" in str(one.original) for one in kept)
    assert folder.stat().st_mode & 0o777 == 0o700
    off = figures(command, tmp_path, "--no-kept")
    assert off["file_blocks"] == 0 and off["blocks"] > 100


@pytest.fixture(scope="module")
def prepared(
    build: Build, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Callable[[str], Path], Path]]:
    """Builds programs whose whole clone is in a file, as far as their control flow can be found."""
    folder = tmp_path_factory.mktemp("prepared")
    kept = weft.KeptClones(folder)
    known_programs: dict[str, Path] = {}

    def ready(program: str) -> Path:
        if program not in known_programs:
            path = build(program)
            time.sleep(max(0.0, path.stat().st_ctime + SETTLED - time.time()))
            assert kept.prepare(path) > 20
            known_programs[program] = path
        return known_programs[program]

    kept.prepare("/lib/x86_64-linux-gnu/libc.so.6")
    kept.prepare("/lib64/ld-linux-x86-64.so.2")
    yield ready, folder


WHOLE = {
    **{program: source for program, source in TORTURE.items() if program != "clone_vectors"},
    "clone_vectors_plain": "vectors.c",
}
"""What may be kept of programs that check themselves: all but restartable sequences."""


@pytest.mark.parametrize(
    ("program", "case"),
    [
        pytest.param(program, case, id=name(program, case), marks=known(name(program, case)))
        for program, source in WHOLE.items()
        for case in cases(source)
        if not case.startswith("rseq")
    ],
)
def test_a_clone_from_a_file_does_as_the_program(
    prepared: tuple[Callable[[str], Path], Path],
    monkeypatch: pytest.MonkeyPatch,
    program: str,
    case: str,
) -> None:
    ready, folder = prepared
    monkeypatch.setenv("WEFT_CLONES", str(folder))
    command: list[str | Path] = [ready(program), case]
    assert outcome_of_clone(command) == outcome(command)


def test_all_of_a_program_may_be_translated_before_it_runs(folder: Path, tmp_path: Path) -> None:
    need("sqlite3")
    path = Path(shutil.which("sqlite3") or "").resolve()
    shown = done(sys.executable, "-m", "weft", "prepare", "sqlite3", "--format", "json")
    [one] = json.loads(shown)["prepared"]
    assert Path(one["path"]).resolve() == path and one["blocks"] > 2_000
    [kept] = weft.KeptClones(folder).entries()
    assert kept.original == path and kept.blocks == one["blocks"]
    first = figures(["sqlite3", ":memory:", "select 1"], tmp_path)
    assert first["file_blocks"] == one["blocks"]
    listed = json.loads(done(sys.executable, "-m", "weft", "cache", "ls", "--format", "json"))
    assert {str(path)} < {file["original"] for file in listed["files"]}
    cleared = done(sys.executable, "-m", "weft", "cache", "clear")
    assert re.match(r"deleted \d+ files, ", cleared)
    assert weft.KeptClones(folder).entries() == []


# --- Files that may not be used -------------------------------------------------------------------


def kept_of(command: list[str | Path], folder: Path) -> list[Path]:
    """The files that are kept when a command has run."""
    outcome_of_clone(command)
    files = [one.path for one in weft.KeptClones(folder).entries()]
    assert files
    return files


ECHO: list[str | Path] = ["/bin/echo", "hello"]


def flipped(data: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(data))
    # What nothing is kept in is not looked at.
    while data[at : at + 4096].count(0) == len(data[at : at + 4096]):
        at = chance.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]


DAMAGES: Mapping[str, Callable[[bytes, random.Random], bytes]] = {
    "a bit": flipped,
    "cut off": lambda data, chance: data[: chance.randrange(len(data))],
    "longer": lambda data, _: data + bytes(4096),
    "empty": lambda _data, _chance: b"",
    "zeros": lambda data, _: bytes(len(data)),
    "noise": lambda data, chance: chance.randbytes(len(data)),
    "noisy header": lambda data, chance: chance.randbytes(400) + data[400:],
    "numbers": lambda data, chance: noisy_numbers(data, chance),
}


def noisy_numbers(data: bytes, chance: random.Random) -> bytes:
    """A header of which some words are others."""
    words = bytearray(data)
    for _ in range(3):
        at = 8 * chance.randrange(2, 45)
        number = chance.choice([0, 1, 4096, 1 << 31, 1 << 32, 1 << 47, (1 << 64) - 4096])
        words[at : at + 8] = number.to_bytes(8, "little")
    return bytes(words)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("seed", range(int(os.environ.get("WEFT_CASES", "3"))))
def test_a_damaged_file_is_only_slower(
    damage: str, seed: int, folder: Path, tmp_path: Path
) -> None:
    chance = random.Random(f"{damage} {seed}")
    files = kept_of(ECHO, folder)
    for file in files:
        data = DAMAGES[damage](file.read_bytes(), chance)
        file.write_bytes(data)
    after = figures(ECHO, tmp_path)
    if damage in ("a bit", "noisy header", "numbers"):
        # What is behind the last table of a page is not part of anything.
        assert after["files"] <= len(files)
    else:
        assert after["files"] == 0
    assert figures(ECHO, tmp_path)["files"] > 0, "a file that was damaged was not made anew"


def test_a_file_of_another_one_is_not_used(folder: Path, tmp_path: Path) -> None:
    first, second, *_ = kept_of(ECHO, folder)
    one, other = first.read_bytes(), second.read_bytes()
    first.write_bytes(other)
    second.write_bytes(one)
    rest = len(weft.KeptClones(folder).entries()) - 2
    assert figures(ECHO, tmp_path)["files"] == rest


def others_may_write(path: Path) -> None:
    path.chmod(0o666)


def another_owner(path: Path) -> None:
    os.chown(path, 12345, 12345)


def a_link(path: Path) -> None:
    moved = path.with_suffix(".moved")
    path.rename(moved)
    path.symlink_to(moved)


def a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


@pytest.mark.parametrize("how", [others_may_write, another_owner, a_link, a_pipe])
def test_a_file_that_another_may_have_written_is_not_used(
    how: Callable[[Path], None], folder: Path, tmp_path: Path
) -> None:
    if how is another_owner and os.geteuid() != 0:
        pytest.skip("only root can give files away")
    for file in kept_of(ECHO, folder):
        how(file)
    assert figures(ECHO, tmp_path)["files"] == 0


def test_a_folder_that_others_can_write_to_is_refused(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(InvalidArgument, match="cannot be used") as refused:
        weft.KeptClones(folder)
    assert "others can write to it" in str(refused.value)
    shown = outcome_of_clone(ECHO)
    assert shown.status == 2 and "others can write to it" in shown.stderr


def test_a_folder_that_others_get_to_write_to_is_not_used_any_more(
    folder: Path, tmp_path: Path
) -> None:
    """Whoever has started the program has looked at it; the engine looks again at each file."""
    kept_of(ECHO, folder)
    program = ["/bin/sh", "-c", f"chmod 777 {folder}; /bin/echo hello"]
    with weft.run(program, weaver="clone", stdout=subprocess.DEVNULL) as cloned:
        assert cloned.wait(30) == 0
        # The shell and `chmod` have begun before, with two libraries each; the last one has not.
        assert cloned.stats().files <= 4


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_users_have_nothing_of_each_other(tmp_path: Path, public_folder: Path) -> None:
    """Not even where one names the other's folder."""
    root, user = public_folder / "of-root", public_folder / "of-user"
    user.mkdir()
    os.chown(user, 12345, 12345)
    as_user = ["setpriv", "--reuid=12345", "--regid=12345", "--clear-groups"]
    for path in (root, user):
        weft_run = [
            sys.executable,
            "-m",
            "weft",
            *["run", "--weaver", "clone", "--", "/bin/echo", "x"],
        ]
        environment = {**os.environ, "WEFT_CLONES": str(path), "HOME": str(tmp_path)}
        shown = subprocess.run(
            weft_run if path is root else [*as_user, *weft_run],
            env=environment,
            cwd="/",
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (shown.returncode, shown.stdout) == (0, "x\n"), shown.stderr
    other = subprocess.run(
        [*as_user, *weft_run],
        env={**environment, "WEFT_CLONES": str(root)},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert other.returncode == 2 and "belongs to another user" in other.stderr


def test_as_much_is_kept_as_is_wanted(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_CLONES_LIMIT", "500K")
    for program in ("awk", "bash", "perl"):
        need(PROGRAMS[program][0])
        outcome_of_clone([*PROGRAMS[program]])
    assert sum(one.size for one in weft.KeptClones(folder).entries()) <= 500 << 10
    monkeypatch.setenv("WEFT_CLONES_LIMIT", "much")
    shown = outcome_of_clone(ECHO)
    assert shown.status == 2 and "write 512M, or 2G" in shown.stderr


# --- Code that does not stay what it was ----------------------------------------------------------


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two libraries that differ in one number."""
    folder = tmp_path_factory.mktemp("libraries")
    source = folder / "answer.c"
    source.write_text(
        "int answer(int number) { return number + NUMBER; }\n"
        "void spin(volatile int *is_over) { while (!*is_over) { } }\n"
        # As much as is worth keeping.
        + "".join(
            f"__attribute__((constructor)) void begin{number}(void) {{"
            f"for (volatile int i = 0; i < {number}; i++); }}\n"
            for number in range(40)
        )
    )
    made = []
    for number in (1000, 2000):
        library = folder / f"lib{number}.so"
        done("gcc", "-O1", "-shared", "-fPIC", f"-DNUMBER={number}", source, "-o", library)
        made.append(library)
    time.sleep(SETTLED)
    return made


@pytest.mark.parametrize("how", ["unloaded", "changed", "replaced", "forked", "entered"])
def test_libraries_that_do_not_stay(
    build: Build, how: str, libraries: list[Path], folder: Path, tmp_path: Path
) -> None:
    command: list[str | Path] = [build("reloaded"), how, *libraries, tmp_path / "place.so"]
    for _ in range(3):
        wanted = outcome(command)
        assert wanted.stdout == f"{how}: well\n", wanted
        assert outcome_of_clone(command) == wanted
    kept = {one.original for one in weft.KeptClones(folder).entries()}
    if how != "replaced":
        assert libraries[0] in kept


def test_a_program_that_was_built_anew_is_another_one(folder: Path, tmp_path: Path) -> None:
    source, program = tmp_path / "one.c", tmp_path / "one"
    for number in range(4):
        source.write_text(f'#include <stdio.h>\nint main(void) {{ printf("%d\\n", {number}); }}\n')
        done("gcc", source, "-o", program)
        if number % 2:
            time.sleep(SETTLED)
        for _ in range(2):
            assert outcome_of_clone([program]).stdout == f"{number}\n"


def test_a_program_that_is_changed_behind_its_times_is_another_one(
    folder: Path, tmp_path: Path
) -> None:
    """What is written to a page of a file that has been written to does not change its times."""
    source, program = tmp_path / "one.c", tmp_path / "one"
    source.write_text(
        "#include <stdio.h>\n"
        "__attribute__((noipa)) int number(void) { return 0x5eed0000; }\n"
        'int main(void) { printf("%d\\n", number() - 0x5eed0000); }\n'
    )
    done("gcc", "-O1", source, "-o", program)
    with program.open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        at = memory.find(b"\xb8\x00\x00\xed\x5e") + 1
        for number in range(4):
            memory[at] = number
            if number in (0, 2):
                time.sleep(SETTLED)
            copy = [program]
            for _ in range(2):
                # A file that is open to be written to cannot be executed itself.
                assert (
                    outcome_of_clone(["/lib64/ld-linux-x86-64.so.2", *copy]).stdout == f"{number}\n"
                )


def test_restartable_sequences_are_not_kept(build: Build, folder: Path, tmp_path: Path) -> None:
    program = build("clone_vectors")
    time.sleep(max(0.0, program.stat().st_ctime + SETTLED - time.time()))
    with pytest.raises(InvalidArgument, match="cannot be prepared") as refused:
        weft.KeptClones(folder).prepare(program)
    assert "restartable sequences" in str(refused.value)
    figures([program, "rseq_abort"], tmp_path)
    assert program not in [one.original for one in weft.KeptClones(folder).entries()]


def test_what_was_changed_a_moment_ago_is_not_kept_yet(folder: Path, tmp_path: Path) -> None:
    """It might be changed once more, and have the same times."""
    program = Path(shutil.copy("/bin/echo", tmp_path / "echo"))
    with pytest.raises(InvalidArgument, match="cannot be prepared") as refused:
        weft.KeptClones(folder).prepare(program)
    assert "a moment ago" in str(refused.value)


@pytest.mark.parametrize("file", ["/etc/passwd", "/dev/zero", "/bin", "missing"])
def test_what_has_no_code_cannot_be_prepared(file: str, folder: Path) -> None:
    with pytest.raises(InvalidArgument, match="cannot be prepared"):
        weft.KeptClones(folder).prepare(file)


# --- What else looks at a clone -------------------------------------------------------------------


def test_probes_count_in_a_program_that_began_from_files(build: Build, folder: Path) -> None:
    """What is woven goes into code that is made for it."""
    program_text = "import os, time\ntime.sleep(1)\nfor _ in range(1000): os.getppid()"
    command = ["/usr/bin/python3", "-c", program_text]
    for _ in range(2):
        with weft.run(command, weaver="clone") as program:
            time.sleep(0.7)
            session = program.session
            points = session.points("/Code/libc.so.6/getppid", "entry")
            probe = session.insert(points, "counter calls\ncalls += 1")
            assert program.wait(60) == 0
            assert probe.value() == 1000


def test_processes_share_what_is_kept(folder: Path) -> None:
    command = ["/usr/bin/python3", "-c", "import time; print(flush=True); time.sleep(600)"]
    outcome_of_clone([*command[:2], "import time; time.sleep(0)"])
    running = []
    try:
        for _ in range(3):
            is_there, says = os.pipe()
            running.append(weft.run(command, weaver="clone", stdout=says))
            assert os.read(is_there, 1) == b"\n"
            os.close(is_there)
            os.close(says)
        for program in running:
            mapped = sizes(program.pid, folder)
            assert mapped["Rss"] > 500
            # (What was just written counts as dirty until the disk has it.)
            shared = mapped["Shared_Clean"] + mapped["Shared_Dirty"]
            assert shared > 0.8 * mapped["Rss"], mapped
    finally:
        for program in running:
            os.kill(program.pid, 9)
            program.wait(30)


def test_there_is_room_for_what_is_not_kept(folder: Path) -> None:
    """Beside the clone from a file, and near the program: a new place for each block is none."""
    modules = ["json", "decimal", "xml.dom.minidom", "asyncio", "email.parser", "sqlite3"]
    text = "import {}; print(len(open('/proc/self/maps').readlines()))"
    for module in modules:
        command: list[str | Path] = ["/usr/bin/python3", "-c", text.format(module)]
        alone, in_clone = outcome(command), outcome_of_clone(command)
        assert int(in_clone.stdout) < int(alone.stdout) + 100


def sizes(pid: int, folder: Path) -> dict[str, int]:
    """What the kernel says of the memory that is mapped from a folder, in KiB."""
    sums: dict[str, int] = {}
    is_wanted = False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        if re.match(r"^[0-9a-f]+-[0-9a-f]+ ", line):
            is_wanted = str(folder) in line
        elif is_wanted and line.endswith(" kB"):
            key, value, _ = line.split()
            sums[key[:-1]] = sums.get(key[:-1], 0) + int(value)
    return sums


# --- What is told, and not kept silent ------------------------------------------------------------


@pytest.mark.parametrize("where", ["near", "far"])
@pytest.mark.parametrize("call", ["munmap", "mprotect", "madvise", "mmap"])
def test_memory_that_a_program_takes_without_asking_may_hold_a_clone(
    call: str, where: str, build: Build, folder: Path
) -> None:
    """What is in the way leaves: the program goes on natively, and a report says why."""
    program = build("clears_memory")
    time.sleep(max(0.0, program.stat().st_ctime + SETTLED - time.time()))
    command: list[str | Path] = [program, call, where]
    wanted = outcome(command)
    assert wanted.status == 5
    for is_kept in (False, True):
        assert bool(list(folder.glob("*.clone"))) == is_kept
        shown = outcome_of_clone(command)
        assert (shown.status, shown.stdout) == (wanted.status, wanted.stdout), shown.stderr
        if where == "near" or is_kept:
            assert "changes memory where the clone is" in shown.stderr


def in_own_mounts(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a script that mounts file systems, which nobody else sees."""
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode != 0:
        pytest.skip("mount namespaces cannot be made here")
    return subprocess.run(
        ["unshare", "--mount", "sh", "-ec", script],
        env={**os.environ, **environment, "WEFT": f"{sys.executable} -m weft"},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_a_full_disk_is_told(folder: Path) -> None:
    script = f"mkdir -p {folder}; mount -t tmpfs -o size=64k,mode=700 none {folder}\n"
    shown = in_own_mounts(script + "$WEFT run --weaver clone -- /bin/echo hello")
    assert (shown.returncode, shown.stdout) == (0, "hello\n")
    assert "could not be kept for the next time: No space left on device" in shown.stderr
    script += "$WEFT prepare /lib/x86_64-linux-gnu/libc.so.6"
    shown = in_own_mounts(script)
    assert shown.returncode == 2 and "No space left on device" in shown.stderr


def test_a_folder_that_cannot_be_used_is_told(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = f"mkdir {folder}; mount -t tmpfs -o noexec,mode=700 none {folder}; $WEFT cache ls"
    shown = in_own_mounts(script)
    assert shown.returncode == 2 and "(noexec)" in shown.stderr
    for path, why in [
        (folder / "a\nb", "more than one line"),
        (folder.joinpath(*["long" * 50] * 6), "too long"),
    ]:
        monkeypatch.setenv("WEFT_CLONES", str(path))
        told = outcome_of_clone(ECHO)
        assert told.status == 2 and why in told.stderr


def test_a_user_whom_nobody_knows_has_no_folder(folder: Path) -> None:
    """In a namespace without users, all files seem to be of the same one."""
    folder.mkdir(mode=0o700)
    weft_cache = [sys.executable, "-m", "weft", "cache", "ls"]
    if subprocess.run(["unshare", "--user", "true"], capture_output=True).returncode != 0:
        pytest.skip("user namespaces cannot be made here")
    shown = subprocess.run(["unshare", "--user", *weft_cache], capture_output=True, text=True)
    assert shown.returncode == 2 and "this user has no number" in shown.stderr


def test_what_is_prepared_beyond_the_limit_is_told(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_CLONES_LIMIT", "2K")
    shown = outcome([sys.executable, "-m", "weft", "prepare", "/bin/echo"])
    assert shown.status == 2 and "raise WEFT_CLONES_LIMIT" in shown.stderr
    assert weft.KeptClones(folder).entries() == []


def test_all_that_is_kept_is_deleted_and_counted(folder: Path) -> None:
    kept_of(ECHO, folder)
    kept = weft.KeptClones(folder)
    (folder / ".draft-1-1").write_bytes(bytes(5000))
    taken = sum(path.stat().st_blocks * 512 for path in folder.iterdir())
    count = len(list(folder.iterdir()))
    assert sum(one.size for one in kept.entries()) + 8192 == taken
    assert kept.clear() == (count, taken)
    assert list(folder.iterdir()) == []
