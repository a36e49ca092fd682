"""What runs on this machine is seen as it is."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from weft.fleet import inventory
from weft.fleet.inventory import Inventory, programs
from weft.fleet.plan import Process, changes
from weft.fleet.selectors import Selector

PROGRAM = """
import os, sys
print("ready", flush=True)
# No more than this: what follows is for the other program.
os.read(0, 1)
os.execv("/bin/cat", ["another-name"])
"""


def of(found: list[Process], pid: int) -> Process:
    (own,) = [one for one in found if one.pid == pid]
    return own


def test_a_process_and_what_becomes_of_it() -> None:
    looking = Inventory("web-1", {"zone": "b"})
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    ) as child:
        assert child.stdin
        assert child.stdout
        try:
            assert child.stdout.readline() == "ready\n"
            before = of(looking.look(), child.pid)
            assert before.parent == os.getpid()
            assert before.facts["host"] == ("web-1",)
            assert before.facts["label.zone"] == ("b",)
            assert before.facts["uid"] == (str(os.geteuid()),)
            assert Path(sys.executable).resolve().as_posix() in before.facts["exe"]
            assert "own" in before.facts["netns"]
            assert of(looking.look(), child.pid) is before
            child.stdin.write("\n")
            child.stdin.flush()
            # What it writes now comes back: then it is the other program.
            child.stdin.write("echo\n")
            child.stdin.flush()
            assert child.stdout.readline() == "echo\n"
            after = of(looking.look(), child.pid)
            assert after.identity == before.identity
            assert after.facts["exe"][0] == "another-name"
            assert Selector.parse("exe=cat or exe=coreutils").matches(after.facts)
        finally:
            child.kill()
        child.wait()
        assert child.pid not in [one.pid for one in looking.look()]


def test_only_some_are_there_for_a_host() -> None:
    with subprocess.Popen(["sleep", "600"]) as one, subprocess.Popen(["sleep", "600"]) as other:
        try:
            only = Selector.parse(f"pid={one.pid}")
            assert [found.pid for found in Inventory("h", {}, only).look()] == [one.pid]
        finally:
            one.kill()
            other.kill()


@pytest.mark.skipif(os.geteuid() != 0, reason="another user is needed")
def test_a_process_that_may_not_be_looked_at_is_not_left_out() -> None:
    """A host that is not root cannot tell what others execute, and must say so."""
    with subprocess.Popen(["sleep", "600"]) as other:
        try:
            reading, writing = os.pipe()
            if (child := os.fork()) == 0:
                os.setresuid(65534, 65534, 65534)
                try:
                    looking = Inventory("h", {}, Selector.parse(f"pid={other.pid}"))
                    found = of(looking.look(), other.pid)
                    may_be = changes(Selector.parse("build_id=abc"), [found], [], [])
                    is_not = changes(Selector.parse("exe=redis-server"), [found], [], [])
                    counts = len(may_be.begin), len(is_not.begin), len(programs([found]))
                    text = repr((found.is_hidden, found.facts["exe"][0], *counts))
                except BaseException as error:
                    text = repr(error)
                os.write(writing, text.encode())
                os._exit(0)
            os.waitpid(child, 0)
            os.close(writing)
            with os.fdopen(reading) as told:
                assert told.read() == "(True, 'sleep', 1, 0, 0)"
        finally:
            other.kill()


def test_programs_are_counted() -> None:
    facts = {"exe": ("a", "/a"), "build_id": ("x",), "user": ("u",), "cgroup": ("/",)}
    several = [Process(pid, 1, {**facts, "container": ("",)}) for pid in (1, 2)]
    (found,) = programs(several)
    assert (found.name, found.exe, found.processes) == ("a", "/a", 2)


@pytest.mark.parametrize(
    ("cgroup", "expected"),
    [
        ("/system.slice/docker-" + "ab" * 32 + ".scope", "ab" * 32),
        ("/kubepods.slice/kubepods-pod1.slice/cri-containerd-" + "12" * 32 + ".scope", "12" * 32),
        ("/docker/" + "cd" * 32, "cd" * 32),
        ("/machine.slice/libpod-" + "ef" * 32 + ".scope/container", "ef" * 32),
        ("/user.slice/user-0.slice", ""),
        ("/" + "a" * 65, ""),
    ],
)
def test_containers_are_known_by_their_groups(cgroup: str, expected: str) -> None:
    found = inventory._CONTAINER.search(cgroup)
    assert (found[1] if found else "") == expected


def test_a_build_id_is_that_of_the_file() -> None:
    program = Path(shutil.which("cat") or "/bin/cat")
    told = subprocess.run(
        ["readelf", "-n", program], capture_output=True, text=True, check=True
    ).stdout
    expected = re.search("Build ID: ([0-9a-f]+)", told)
    assert expected
    assert inventory._read_build_id(program) == expected[1]
    assert inventory._read_build_id(Path(__file__)) == ""
