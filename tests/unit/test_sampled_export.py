"""Sampled time as stacks, JSON and text: of times that were thought up."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest

from weft.export.sampled import json, text
from weft.export.sampled.kinds import Kind, stack_times, wait_name, weighed
from weft.model.sampled import NOT_SAMPLED, PlaceTime, SampledTime, Stay, ThreadTime
from weft.model.stacks import StackFrame
from weft.model.waits import Descriptor, Holder, Wait

MAIN = StackFrame(0x1010, "main", 0x10, "shop", None)
SERVE = StackFrame(0x2010, "serve", 0x10, "shop", None)
READ = StackFrame(0x9010, "read", 0x10, "libc.so.6", None)
ANA = Holder(7, 8, "ana")
BOB = Holder(7, 9, "bob")
LOCK = Wait("lock", "a lock", symbol="till")
_NOWHERE = PlaceTime(
    tid=7,
    is_blocked=False,
    frames=(),
    cut=None,
    call=None,
    descriptor=None,
    wait=None,
    holders=(),
    samples=0,
    running=0.0,
    runnable=0.0,
    blocked=0.0,
)
RAN = replace(_NOWHERE, frames=(SERVE, MAIN), samples=30, running=3.0, runnable=0.5)
SLEPT = replace(
    _NOWHERE,
    is_blocked=True,
    frames=(READ, SERVE, MAIN),
    call="futex",
    wait=LOCK,
    holders=((BOB, 1), (ANA, 9)),
    samples=10,
    blocked=6.0,
)
UNSEEN = replace(_NOWHERE, tid=8, running=0.25)
FOUND = SampledTime(
    7,
    "shop",
    10.0,
    40,
    0.02,
    (ThreadTime(7, "shop", 9.5, 3.0, 0.5), ThreadTime(8, "ana", 0.25, 0.25, 0.0)),
    (RAN, SLEPT, UNSEEN),
    notes=("it rained",),
)


def pipe(text: str) -> Descriptor:
    return Descriptor(3, "pipe", text, direction="read")


@pytest.mark.parametrize(
    ("wait", "call", "name"),
    [
        (None, "futex", "[futex]"),
        (None, None, "[blocked]"),
        (LOCK, "futex", "[lock till]"),
        (Wait("condition", ""), "futex", "[condition]"),
        (Wait("timer", "1 s to pass"), "nanosleep", "[timer]"),
        (Wait("thread", ""), "futex", "[end of a thread]"),
        (Wait("child", ""), "wait4", "[child]"),
        (Wait("call", ""), "quotactl", "[quotactl]"),
        (Wait("descriptor", "", descriptors=(pipe("pipe 77"),)), "read", "[read pipe]"),
        (Wait("descriptor", "", descriptors=(pipe("pipe /x/y"),)), "read", "[read pipe /x/y]"),
        (
            Wait("descriptor", "", descriptors=(pipe("pipe 77"),)),
            "restart_syscall",
            "[read pipe]",
        ),
        (
            Wait("descriptor", "", descriptors=(Descriptor(4, "file", "/var/x"),)),
            "read",
            "[read /var/x]",
        ),
        (
            Wait("descriptor", "", descriptors=(Descriptor(4, "socket", "", None, "tcp"),)),
            "recvfrom",
            "[recvfrom tcp socket]",
        ),
        (Wait("descriptor", "", descriptors=(pipe("1"), pipe("2"))), "poll", "[poll]"),
        (
            Wait("descriptor", "", descriptors=(Descriptor(5, "epoll", "epoll of 9"),)),
            "epoll_wait",
            "[epoll_wait]",
        ),
        (
            Wait("file lock", "", descriptors=(Descriptor(4, "file", "/var/x"),)),
            "flock",
            "[file lock /var/x]",
        ),
    ],
)
def test_waits_have_short_names(wait: Wait | None, call: str | None, name: str) -> None:
    assert wait_name(replace(SLEPT, wait=wait, call=call)) == name


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("cpu", {"main;serve": 3.0, NOT_SAMPLED: 0.25}),
        (
            "off-cpu",
            {"main;serve;[waiting for a processor]": 0.5, "main;serve;read;[lock till]": 6.0},
        ),
        (
            "wall",
            {
                "main;serve": 3.0,
                NOT_SAMPLED: 0.25,
                "main;serve;[waiting for a processor]": 0.5,
                "main;serve;read;[lock till]": 6.0,
            },
        ),
    ],
)
def test_stacks_have_the_time_of_a_kind(kind: Kind, expected: dict[str, float]) -> None:
    assert {str(one.stack): one.seconds for one in stack_times(FOUND, kind)} == expected
    stacks = weighed(FOUND, kind, "./shop")
    assert stacks.total == round(sum(expected.values()) * 1e9)
    assert stacks.status == "estimate" and stacks.title == "./shop"
    assert "is exact" in stacks.notes[0] and stacks.notes[1:] == ("it rained",)
    assert stacks.samples == ()


@pytest.mark.parametrize(
    ("kind", "moments"), [("cpu", [1, 2]), ("off-cpu", [3, 4]), ("wall", [1, 2, 3, 4])]
)
def test_samples_have_their_moments(kind: Kind, moments: list[int]) -> None:
    kept = replace(FOUND, moments=(1, 2, 3, 4), stays=(Stay(0, 2, RAN), Stay(2, 4, SLEPT)))
    samples = weighed(kept, kind, "./shop").samples
    assert [one.time for one in samples] == moments
    assert {(one.process, one.thread, one.thread_name) for one in samples} == {(7, 7, "shop")}


def test_json() -> None:
    found = json.document(FOUND, "off-cpu")
    assert found["schema"] == 1 and found["kind"] == "off-cpu" and found["stood_still"] == 0.02
    stacks = found["stacks"]
    assert isinstance(stacks, list)
    blocked, runnable = stacks
    assert (blocked["state"], blocked["seconds"], blocked["samples"]) == ("blocked", 6.0, 10)
    assert blocked["wait"]["name"] == "[lock till]" and blocked["wait"]["symbol"] == "till"
    assert [one["samples"] for one in blocked["wait"]["held_by"]] == [1, 9]
    assert (runnable["state"], runnable["wait"]) == ("runnable", None)
    assert [frame["function"] for frame in runnable["frames"]] == ["serve", "main"]


def test_text() -> None:
    file = io.BytesIO()
    text.write(file, FOUND, "off-cpu", "./shop", top=1)
    lines = file.getvalue().decode().splitlines()
    still = "40 looks, threads stood still for 20.0 ms in all (0.2%)"
    assert lines[0] == f"./shop (7)  off-cpu time, watched for 10.0 s: {still}"
    assert " ".join(lines[3].split()) == "7 3.0 s 31.6% 500 ms 5.3% 6.0 s 63.2% shop"
    assert "and 1 more threads" in lines
    rows = [" ".join(line.split()) for line in lines]
    assert "~6.0 s 92.3% ████████████ 10 read libc.so.6" in rows
    # Who ran and who was ready to are the same samples.
    assert "~6.5 s 100% ████████████ 40 main shop" in rows
    (wait,) = (line for line in lines if "lock till" in line)
    assert "thread 8 'ana'" in wait and wait.endswith("serve")
    assert lines[-1] == "note: it rained"


def test_nothing_is_said_of_nothing() -> None:
    nothing = SampledTime(7, "shop", 0.0, 0, 0.0, (), (), notes=("it has ended",))
    file = io.BytesIO()
    text.write(file, nothing, "cpu", "shop", top=10)
    assert "note: it has ended" in file.getvalue().decode()
    assert json.document(nothing, "cpu")["stacks"] == []
