"""What a clone cannot go on with: there is a report of it, and the program goes on where it can."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path

import pytest

import weft
from tests.clone import cases, cloned, outcome
from tests.e2e.harness import Background
from weft.errors import UnsupportedTarget

Build = Callable[[str], Path]

WAITING = {"counting", "is_changed", "left_alone", "left_with_a_thread"}
"""Cases that go on until their input ends."""

ENDING = {"handler_vanishes"}
"""Cases in which the program cannot go on."""

TOLD = re.compile(r"weft: process (\d+) has (left its clone|ended): (.*); the report is (.*)")

TIMES = {"children": 4, "children_of_a_child": 2}
"""How many processes of a case leave."""


def run(command: list[str | Path], folder: Path) -> subprocess.CompletedProcess[str]:
    words = [*cloned(), *map(str, command)]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=60)


def reports(stderr: str, folder: Path) -> list[tuple[str, str]]:
    """What the user is told, and no more: what has become of a process, and its report."""
    found = []
    for line in stderr.splitlines():
        told = TOLD.fullmatch(line)
        assert told, stderr
        file = Path(told[4])
        assert file.parent == folder and file.name.startswith(f"weft-{told[1]}-")
        text = file.read_text()
        assert text.startswith(f"process {told[1]} has {told[2]}: {told[3]}\n")
        found.append((told[2], text))
    assert len(found) == len(list(folder.iterdir()))
    return found


def value(text: str, name: str) -> int:
    """A register of the program's."""
    [_, registers] = text.split("registers of the program\n")
    found = re.search(rf"^{name} +0x([0-9a-f]+)$", registers, flags=re.MULTILINE)
    assert found, text
    return int(found[1], 16)


def code(text: str, title: str) -> tuple[int, bytes]:
    """Where some code begins, and its bytes."""
    found = re.search(
        rf"^{title}, 0x([0-9a-f]+) to 0x([0-9a-f]+)\n((?:0x.*\n)+)", text, re.MULTILINE
    )
    assert found, text
    start, end = int(found[1], 16), int(found[2], 16)
    lines = found[3].splitlines()
    read = bytes.fromhex("".join(line.partition(" ")[2] for line in lines))
    assert len(read) == end - start
    return start, read


FAULTS = {
    "code_vanishes": "a fault in the clone engine",
    "shared_code_vanishes": "a fault in the clone engine",
    "no_memory_for_a_child": "no memory for a child",
    "no_memory_for_code": "memory allocation of",
}
"""What goes wrong in the engine itself, and what it says then."""

GOING_ON = [case for case in cases("leaving.c") if case not in WAITING | ENDING]
assert FAULTS.keys() <= set(GOING_ON)


def check_failure(case: str, text: str) -> None:
    """See whether a failure of the engine says what it was."""
    assert FAULTS[case] in text.splitlines()[0]
    if "vanishes" in case:
        # The signal, the engine's own registers, and the program's.
        assert re.search(r"^signal 7, code \d+, address 0x[0-9a-f]+$", text, re.MULTILINE)
        assert "registers when it happened\n" in text and "rip is in the engine, at 0x" in text
        assert f"address {value(text, 'rip'):#x}\n" in text


@pytest.mark.parametrize("case", GOING_ON)
def test_a_program_goes_on_natively(build: Build, case: str, tmp_path: Path) -> None:
    command: list[str | Path] = [build("clone_leaving"), case]
    alone = outcome(command)
    assert alone.status == 0 and alone.stdout and not alone.stderr
    done = run(command, tmp_path)
    assert (done.returncode, done.stdout) == (alone.status, alone.stdout), done.stderr
    found = reports(done.stderr, tmp_path)
    assert {fate for fate, _ in found} == {"left its clone"}
    # Threads that leave at the same time may have one each.
    assert case == "all_at_once" or len(found) == TIMES.get(case, 1)
    if case in FAULTS:
        # In the same run: a clone whose engine has failed is given up only after seconds.
        check_failure(case, found[0][1])


def test_a_report_has_the_instruction_and_the_state(build: Build, tmp_path: Path) -> None:
    done = run([build("clone_leaving"), "strings_through_gs"], tmp_path)
    [(_, text)] = reports(done.stderr, tmp_path)
    assert f"cannot translate the instruction at {value(text, 'rip'):#x}\n" in text
    # lodsq gs:[rsi], with what the program has given it.
    start, original = code(text, "original code of the block")
    offset = value(text, "rip") - start
    assert original[offset : offset + 3] == bytes.fromhex("6548ad")
    assert value(text, "rsi") == 8
    # What comes before is in the block, and then the way out.
    _, translated = code(text, "the block")
    records = re.findall(r"^(\w+) (\d+) (\d+)$", text.split("what became of each")[1], re.MULTILINE)
    kinds = [kind for kind, _, _ in records if kind[0].isupper()]
    assert kinds[-1] == "Refused" and "Copied" in kinds
    lengths = [(int(a), int(b)) for kind, a, b in records if kind[0].isupper()]
    assert sum(a for a, _ in lengths) == len(original)
    assert sum(b for _, b in lengths) == len(translated)
    assert re.search(rf"^[0-9a-f]+-[0-9a-f]+ r-xp .*/{build('clone_leaving').name}$", text, re.M)


def test_where_the_state_is_not_known_the_program_ends(build: Build, tmp_path: Path) -> None:
    # While a signal is passed on, the program is neither here nor there.
    done = run([build("clone_leaving"), "handler_vanishes"], tmp_path)
    assert done.returncode == 128 + 6
    first, rest = done.stderr.split("\n", 1)
    assert first.startswith("weft: the clone engine failed: a fault in the clone engine; ")
    [(fate, text)] = reports(rest, tmp_path)
    assert fate == "ended" and "rip is in the engine" in text
    assert "registers of the program, as far as" in text


HALVES = (0, 64 << 20)
"""Where code may be in the memory for a clone."""


class Waiting:
    """A cloned program that goes on until its input ends, and its clone."""

    def __init__(self, weft: subprocess.Popen[str]) -> None:
        self._weft = weft
        children = Path(f"/proc/{weft.pid}/task/{weft.pid}/children").read_text().split()
        self.pid = int(children[0])

    def arenas(self) -> dict[int, int]:
        """Where the clone is executed, and where the same memory is written."""
        lines = [line.split() for line in Path(f"/proc/{self.pid}/maps").read_text().splitlines()]
        views = [line for line in lines if line[-2:] == ["/dev/zero", "(deleted)"]]
        writable = {line[4]: line[0] for line in views if line[1] == "rw-s"}
        start = {line[0]: int(line[0].partition("-")[0], 16) for line in views}
        return {start[line[0]]: start[writable[line[4]]] for line in views if line[1] == "r-xs"}

    def find(self, code: bytes) -> list[tuple[int, int]]:
        """Where code is in the clone: to be executed, and to be written."""
        found = []
        with Path(f"/proc/{self.pid}/mem").open("rb") as memory:
            for (executed, written), half in product(self.arenas().items(), HALVES):
                memory.seek(executed + half)
                text = memory.read(1 << 20)
                places = [half + match.start() for match in re.finditer(re.escape(code), text)]
                found += [(executed + place, written + place) for place in places]
        return found

    def write(self, at: int, byte: int) -> None:
        with Path(f"/proc/{self.pid}/mem").open("r+b", buffering=0) as memory:
            memory.seek(at)
            memory.write(bytes([byte]))

    def end(self) -> tuple[int, str, str]:
        stdout, stderr = self._weft.communicate(timeout=60)
        return self._weft.returncode, stdout, stderr


@contextmanager
def waiting(command: list[str | Path], folder: Path) -> Iterator[Waiting]:
    # What is in files is read only, and its ways out are elsewhere.
    with subprocess.Popen(
        [*cloned("--no-kept"), *map(str, command)],
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout and process.stdout.readline() == "here\n"
            yield Waiting(process)
        finally:
            process.kill()


def wait_for_report(folder: Path) -> None:
    weft_has_time = 20.0
    while not list(folder.glob("*.report")):
        time.sleep(0.05)
        weft_has_time -= 0.05
        assert weft_has_time > 0


MARK = bytes.fromhex("551eed5e")
"""Part of an instruction of the program's that stands in the clone as it is."""

HLT, PUSH_ES = 0xF4, 0x06
"""What a program may not execute, and what there is not."""


@pytest.mark.parametrize(("byte", "signal"), [(HLT, 11), (PUSH_ES, 4)])
def test_a_clone_that_was_changed_is_left(
    build: Build, byte: int, signal: int, tmp_path: Path
) -> None:
    with waiting([build("clone_leaving"), "is_changed"], tmp_path) as program:
        while not (places := program.find(MARK)):
            time.sleep(0.05)
        for _, written in places:
            program.write(written - 1, byte)
        wait_for_report(tmp_path)
        status, stdout, stderr = program.end()
    assert (status, stdout) == (0, "is_changed: well\n"), stderr
    [(fate, text)] = reports(stderr, tmp_path)
    assert fate == "left its clone" and "the clone is not as it was made" in text
    assert re.search(rf"^signal {signal}, code", text, re.MULTILINE)
    start, original = code(text, "original code of the block")
    place, translated = code(text, "the block")
    offset = value(text, "rip") - start
    assert original[offset] & 0xF8 == 0xB8 and original[offset + 1 : offset + 5] == MARK
    faulted = next(executed - 1 for executed, _ in places if f"{executed - 1:#018x}" in text)
    assert translated[faulted - place] == byte


def test_a_way_out_that_was_changed_leads_nowhere(build: Build, tmp_path: Path) -> None:
    with waiting([build("clone_leaving"), "is_changed"], tmp_path) as program:
        for written in program.arenas().values():
            # The second of the ways out is that of system calls.
            program.write(written + 16, PUSH_ES)
        wait_for_report(tmp_path)
        status, stdout, stderr = program.end()
    assert (status, stdout) == (128 + 6, "")
    [(fate, text)] = reports("".join(stderr.splitlines(keepends=True)[1:]), tmp_path)
    assert fate == "ended" and "signal 4" in text


@pytest.mark.parametrize(
    ("case", "status", "says"),
    [("left_alone", 0, "the program has left its clone"), ("left_with_a_thread", 134, "failed")],
)
def test_one_that_weft_has_left_sees_to_itself(
    build: Build,
    case: str,
    status: int,
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (given, giving), (taking, taken), (hearing, said) = (os.pipe() for _ in range(3))
    command: list[str | Path] = [build("clone_leaving"), case]
    with weft.run(command, weaver="clone", stdin=given, stdout=taken, stderr=said) as program:
        for end in (given, taken, said):
            os.close(end)
        output = os.fdopen(taking)
        assert output.readline() == "here\n"
    os.close(giving)
    assert program.wait(60) == status
    with output, os.fdopen(hearing) as errors:
        assert output.read() == ("left_alone: well\n" if status == 0 else "")
        [line] = errors.read().splitlines()
    [report] = tmp_path.iterdir()
    assert says in line and line.endswith(f"; the report is {report}")
    assert program.reports() == [report]


def test_a_child_that_is_killed_in_the_engine_does_not_hold_its_parent(build: Build) -> None:
    """Children in their parent's memory are killed while they have the engine's lock."""
    command = [build("clone_vfork_killed")]
    alone, done = outcome(command), outcome([*cloned(), *command])
    assert (done.status, done.stdout) == (alone.status, alone.stdout) == (0, "40\n"), done.stderr
    # What such a child was doing is half done: the parent goes on natively, and weft says so.
    assert not done.stderr or "was killed in the clone engine" in done.stderr


# --- Programs that handle page faults themselves ------------------------------------------------


def test_a_program_that_handles_faults_does_so_natively(build: Build, tmp_path: Path) -> None:
    """Its calls that unmap memory wait for a thread that may need the engine."""
    program = build("clone_fault_handler")
    alone = outcome([program])
    assert alone.status == 0, "userfaultfd is not allowed here"
    done = run([program], tmp_path)
    assert (done.returncode, done.stdout) == (0, alone.stdout), done.stderr
    [(fate, text)] = reports(done.stderr, tmp_path)
    assert fate == "left its clone" and "userfaultfd" in text.splitlines()[0]


def test_a_process_that_handles_faults_stays_as_it_is(build: Build) -> None:
    program = build("clone_fault_handler")
    alone = outcome([program])
    with Background([str(program), "waits"]) as background:
        background.wait_for_line(b"ready")
        with pytest.raises(UnsupportedTarget, match="userfaultfd"):
            weft.attach(background.pid, weaver="clone")
        with weft.attach(background.pid) as session:
            calls = session.metric("calls", "/Code/clone_fault_handler/monitor")
            status, output = background.finish()
            session.metrics.sample()
            assert calls.value == 1
        assert (status, output) == (alone.status, f"ready\n{alone.stdout}")


@pytest.mark.parametrize(
    ("case", "says"), [("dispatch", "user dispatch"), ("strict", "strict"), ("seccomp", "strict")]
)
def test_a_program_that_forbids_itself_system_calls_does_so_natively(
    build: Build, case: str, says: str, tmp_path: Path
) -> None:
    command: list[str | Path] = [build("clone_forbidding"), case]
    alone = outcome(command)
    assert alone.status == 0 and alone.stdout
    done = run(command, tmp_path)
    assert (done.returncode, done.stdout) == (0, alone.stdout), done.stderr
    [(fate, text)] = reports(done.stderr, tmp_path)
    assert fate == "left its clone" and says in text.splitlines()[0]


# --- Programs that limit their memory ---------------------------------------------------------


@pytest.mark.parametrize("case", ["space", "data", "prlimit", "fork"])
def test_a_program_that_limits_its_memory_has_all_of_it(
    build: Build, case: str, tmp_path: Path
) -> None:
    """What weft has mapped counts as well, and is more than such a program has."""
    command: list[str | Path] = [build("clone_limited"), case]
    alone = outcome(command)
    assert alone.status == 0 and "used 50 MiB" in alone.stdout
    done = run(command, tmp_path)
    assert (done.returncode, done.stdout) == (0, alone.stdout), done.stderr
    fate, text = reports(done.stderr, tmp_path)[0]
    assert fate == "left its clone" and "limit its memory" in text.splitlines()[0]


@pytest.mark.parametrize("case", ["roomy", "vfork"])
def test_a_program_stays_in_its_clone_where_there_is_room(
    build: Build, case: str, tmp_path: Path
) -> None:
    command: list[str | Path] = [build("clone_limited"), case]
    alone = outcome(command)
    assert alone.status == 0
    done = run(command, tmp_path)
    assert (done.returncode, done.stdout) == (0, alone.stdout)
    assert "left its clone" not in done.stderr


def test_a_limit_that_weft_counts_towards_is_said(build: Build, tmp_path: Path) -> None:
    """Without a clone nothing stops the program before; it may fail for weft's sake."""
    weft_run = [sys.executable, "-m", "weft", "run", "-m", "calls@/Code/libc.so.6/malloc", "--"]
    for case, is_said in [("space", True), ("roomy", False)]:
        command = [*weft_run, str(build("clone_limited")), case]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100)
        assert ("has limited its address space to 200 MiB" in done.stderr) == is_said, done.stderr


def test_what_is_measured_is_incomplete_once_memory_is_limited(
    build: Build, tmp_path: Path
) -> None:
    out = tmp_path / "out.json"
    options = ["-m", "calls@/Code/libc.so.6/malloc", "--format", "json", "-o", str(out)]
    command = [str(build("clone_limited")), "space"]
    weft_run = [sys.executable, "-m", "weft", "run", "--weaver", "clone", *options, "--", *command]
    done = subprocess.run(weft_run, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stdout) == (0, "used 50 MiB\n"), done.stderr
    assert "limit its memory" in done.stderr and "note: " not in done.stderr
    [metric] = json.loads(out.read_text())["totals"]
    assert metric["status"] == "incomplete"


# --- What weft has mapped -----------------------------------------------------------------------


@pytest.mark.parametrize("threads", ["1", "8"])
def test_a_program_that_has_left_has_nothing_of_weft(
    build: Build, threads: str, tmp_path: Path
) -> None:
    """Nor has it what was measured into: that counts against its limits."""
    command = [str(build("clone_leaving")), "nothing_is_left", threads]
    alone = outcome(command)
    assert alone.status == 0 and " KiB\n" in alone.stdout
    metric = ["-m", "calls@/Code/clone_leaving/counted", "--format", "json", "-o", "out.json"]
    weft_run = [sys.executable, "-m", "weft", "run", "--weaver", "clone", *metric, "--", *command]
    done = subprocess.run(weft_run, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stdout) == (0, alone.stdout), done.stderr
    [total] = json.loads((tmp_path / "out.json").read_text())["totals"]
    assert total["value"] >= 10 and total["status"] == "incomplete"


@pytest.mark.parametrize("threads", ["1", "8"])
def test_a_process_that_is_let_go_has_nothing_of_weft(build: Build, threads: str) -> None:
    command = [str(build("clone_leaving")), "counting", threads]

    def mapped(pid: int) -> list[str]:
        lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
        return [line for line in lines if not line.endswith(("[heap]", "[stack]"))]

    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as program:
        try:
            assert program.stdout and program.stdout.readline() == "here\n"
            before = mapped(program.pid)
            with weft.attach(program.pid, weaver="clone") as cloned:
                calls = cloned.session.metric("calls", "/Code/clone_leaving/counted")
                while calls.value == 0:
                    cloned.session.metrics.sample()
                assert mapped(program.pid) != before
            assert mapped(program.pid) == before
            rest, _ = program.communicate(timeout=60)
        finally:
            program.kill()
    assert (program.returncode, rest) == (0, "counting: well\n")
