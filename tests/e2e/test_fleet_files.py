"""Files are fetched from hosts as they are there, or not at all."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import os
import signal
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import weft
from tests.e2e.harness import eventually, need
from tests.fleets import PATIENCE, SERVER, WEFT, Fleet, Process
from weft.fleet.broker import (
    FILES_STREAM,
    REQUESTS_STREAM,
    SAMPLES_STREAM,
    Access,
    Broker,
    bucket_subject,
)
from weft.fleet.fetching import received
from weft.fleet.names import REQUESTS, file_subject, sample_subject
from weft.fleet.offering import Unavailable
from weft.fleet.protocol import LARGEST_FILE, LONGEST_FETCH, BadDocument, FileAnswer, FileEntry

pytestmark = [pytest.mark.fleet, pytest.mark.watchdog(300)]

ALL = '[[allow]]\nrequester = "*"\nprocesses = "*"\nfiles = "*.trace"\n'
LONG = ("--patience", "60")
PARTS = 24
SIZE = PARTS * (256 << 10) + 17
"""So many parts take a host that may do little a few seconds."""


class Offering:
    """A host that offers files."""

    def __init__(self, fleet: Fleet, name: str, budget: str) -> None:
        self.name = name
        self.fleet = fleet
        self.folder = fleet.folder / name
        self.folder.mkdir(mode=0o700)
        policy = fleet.folder / f"{name}.toml"
        policy.write_text(f'budget = "{budget}"\n{ALL}')
        policy.chmod(0o600)
        self.audit = fleet.folder / f"{name}.audit"
        options = ["--name", name, "--policy", str(policy), "--only", "pid=1"]
        options += ["--files", str(self.folder), "--audit", str(self.audit)]
        self.service = Process(
            [*WEFT, "host", "--nats", fleet.url_of(0), *options],
            fleet.folder / f"{name}.log",
            f"{name} is ready",
        )

    def outcomes(self, what: str) -> list[tuple[str, str]]:
        """What was decided of something, and why."""
        lines = map(json.loads, self.audit.read_text().splitlines())
        return [(one["outcome"], one.get("why", "")) for one in lines if one["what"] == what]

    def write(self, name: str, size: int = SIZE) -> bytes:
        content = os.urandom(size)
        (self.folder / name).write_bytes(content)
        return content


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    need(SERVER)
    with Fleet(tmp_path_factory.mktemp("files"), 0) as fleet:
        yield fleet


@contextmanager
def offering(fleet: Fleet, name: str, budget: str) -> Iterator[Offering]:
    host = Offering(fleet, name, budget)
    try:
        host.service.start()
        host.service.wait_until_ready()
        yield host
    finally:
        host.service.end(signal.SIGTERM)


@pytest.fixture(scope="module")
def quick(fleet: Fleet) -> Iterator[Offering]:
    with offering(fleet, "quick", "100%") as host:
        yield host


@pytest.fixture(scope="module")
def slow(fleet: Fleet) -> Iterator[Offering]:
    with offering(fleet, "slow", "1%") as host:
        yield host


def fetched(fleet: Fleet, *words: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        fleet.fleet("fetch", *words, *LONG),
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert "Traceback" not in done.stderr
    return done


def begun(slow: Offering, name: str, output: Path) -> subprocess.Popen[str]:
    """Begin to fetch a file, and wait until some of it was sent, and not all."""
    words = slow.fleet.fleet("fetch", slow.name, name, "-o", str(output), *LONG)
    running = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    eventually(lambda: any(0 < one.sent < SIZE for one in answers(slow.fleet, name)), PATIENCE)
    return running


def with_broker(fleet: Fleet, stream: str, subject: str) -> list[bytes]:
    async def read() -> list[bytes]:
        async with Broker(Access(fleet.url_of(0))) as broker:
            await broker.connect(10)
            return [one.data for one in await broker.all(stream, subject)]

    return asyncio.run(read())


def answers(fleet: Fleet, name: str) -> list[FileAnswer]:
    """What hosts have told of a file until now."""
    found = []
    for data in with_broker(fleet, SAMPLES_STREAM, sample_subject("*", "*")):
        try:
            answer = FileAnswer.decode(data)
        except BadDocument:
            continue
        if [one.name for one in answer.files] == [name]:
            found.append(answer)
    return found


def is_clean(fleet: Fleet) -> bool:
    """Whether nothing is wanted any more, and nothing of a file is with the broker."""
    parts = with_broker(fleet, FILES_STREAM, "$O.weft_files.C.>")
    requests = with_broker(fleet, REQUESTS_STREAM, bucket_subject(REQUESTS, ">"))
    return not any(parts) and not requests


def test_a_file_is_listed_and_fetched(fleet: Fleet, quick: Offering, tmp_path: Path) -> None:
    content = quick.write("one.trace", 3 << 20)
    quick.write("private.log", 10)
    listed = json.loads(fetched(fleet, "--where", "host=quick", "--format", "json").stdout)
    (host,) = listed["hosts"]
    assert [(one["name"], one["size"]) for one in host["files"]] == [("one.trace", 3 << 20)]
    assert host["note"] == "1 more are not offered to tests"
    output = tmp_path / "here.trace"
    output.write_text("before")
    output.chmod(0o644)
    done = fetched(fleet, "quick", "one.trace", "-o", str(output), "--format", "json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["sha256"] == hashlib.sha256(content).hexdigest()
    assert (found["size"], found["file"]) == (3 << 20, str(output))
    assert output.read_bytes() == content
    assert stat.S_IMODE(output.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [output]
    assert ("allowed", "") in quick.outcomes("file one.trace")
    eventually(lambda: is_clean(fleet), 60)


def test_with_python(fleet: Fleet, quick: Offering, tmp_path: Path) -> None:
    content = quick.write("python.trace", 600_000)
    seen: list[tuple[str, int, int]] = []
    with weft.Fleet(fleet.url_of(0)) as asked:
        (host,) = asked.files("host=quick", patience=60)
        assert "python.trace" in [one.name for one in host.files]
        found = asked.fetch(
            "quick",
            "python.trace",
            tmp_path / "x",
            patience=60,
            progress=lambda *now: seen.append(now),
        )
    assert (found.size, (tmp_path / "x").read_bytes()) == (600_000, content)
    assert seen[-1] == ("fetching", 600_000, 600_000)


def test_an_empty_file_is_a_file(fleet: Fleet, quick: Offering, tmp_path: Path) -> None:
    quick.write("empty.trace", 0)
    assert fetched(fleet, "quick", "empty.trace", "-o", str(tmp_path / "x")).returncode == 0
    assert (tmp_path / "x").read_bytes() == b""


def test_what_cannot_be_fetched_says_why(fleet: Fleet, quick: Offering, tmp_path: Path) -> None:
    (quick.folder / "link.trace").symlink_to("/etc/hostname")
    quick.write("private.log", 10)
    with (quick.folder / "large.trace").open("wb") as file:
        file.truncate(LARGEST_FILE + 1)
    output = tmp_path / "x"
    output.write_text("before")
    for name, exit_code, why in (
        ("link.trace", 4, "it is a link"),
        ("gone.trace", 4, "No such file"),
        ("large.trace", 4, "more than 1,073,741,824"),
        ("private.log", 4, "no rule allows tests this file"),
        ("../quick.toml", 2, "no name of a file"),
    ):
        done = fetched(fleet, "quick", name, "-o", str(output))
        assert (done.returncode, why in done.stderr) == (exit_code, True), done.stderr
    done = fetched(fleet, "nobody", "x.trace", "-o", str(output))
    assert (done.returncode, "no host nobody" in done.stderr) == (3, True)
    assert output.read_text() == "before"
    assert list(tmp_path.iterdir()) == [output]
    assert quick.outcomes("file private.log") == [("refused", "no rule allows tests this file")]


def test_a_file_that_changes_meanwhile_is_not_fetched(slow: Offering, tmp_path: Path) -> None:
    slow.write("changes.trace")
    running = begun(slow, "changes.trace", tmp_path / "x")
    with (slow.folder / "changes.trace").open("ab") as file:
        file.write(b"more")
    _, said = running.communicate(timeout=200)
    assert running.returncode == 4
    assert "has changed while it was read" in said
    assert list(tmp_path.iterdir()) == []
    eventually(lambda: is_clean(slow.fleet), 60)


def test_a_broker_that_goes_and_comes_back_changes_nothing(slow: Offering, tmp_path: Path) -> None:
    content = slow.write("restart.trace")
    running = begun(slow, "restart.trace", tmp_path / "x")
    slow.fleet.broker.end(signal.SIGKILL)
    slow.fleet.broker.start()
    slow.fleet.broker.wait_until_ready()
    _, said = running.communicate(timeout=200)
    assert running.returncode == 0, said
    assert (tmp_path / "x").read_bytes() == content
    eventually(lambda: is_clean(slow.fleet), 60)


def test_a_host_that_is_killed_sends_it_again(slow: Offering, tmp_path: Path) -> None:
    content = slow.write("killed.trace")
    running = begun(slow, "killed.trace", tmp_path / "x")
    slow.service.end(signal.SIGKILL)
    slow.service.start()
    slow.service.wait_until_ready()
    _, said = running.communicate(timeout=200)
    assert running.returncode == 0, said
    assert (tmp_path / "x").read_bytes() == content
    epochs = {one.epoch for one in answers(slow.fleet, "killed.trace")}
    assert len(epochs) == 2


def test_what_is_given_up_is_cleaned_up(slow: Offering, tmp_path: Path) -> None:
    slow.write("given-up.trace")
    running = begun(slow, "given-up.trace", tmp_path / "x")
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=200)
    assert running.returncode == 130
    assert list(tmp_path.iterdir()) == []
    ended = "failed", "it was ended: it is not wanted any more"
    eventually(lambda: ended in slow.outcomes("file given-up.trace"), 60)

    # The parts that the killed host has left are the broker's to forget.
    async def configured() -> dict[str, Any]:
        async with Broker(Access(slow.fleet.url_of(0))) as broker:
            await broker.connect(10)
            found = await broker._call(f"STREAM.INFO.{FILES_STREAM}")
            config: dict[str, Any] = found["config"]
            return config

    assert asyncio.run(configured())["max_age"] == int(LONGEST_FETCH * 1e9)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({}, ""),
        ({"digest": "0" * 64}, "digest"),
        ({"sent": 6}, "nothing came after 5 bytes of 6"),
        ({"sent": 4}, "5 bytes of 4"),
    ],
)
def test_what_is_not_what_was_sent_is_refused(
    fleet: Fleet, change: dict[str, Any], why: str
) -> None:
    request = os.urandom(4).hex()
    place = "tests", request, "web-1", 1
    digest = hashlib.sha256(b"12345").hexdigest()
    entry = FileEntry("x", 5, 0.0)
    answer = replace(FileAnswer(*place, 1, "done", "", (entry,), 5, digest), **change)

    async def receive() -> bytes:
        async with Broker(Access(fleet.url_of(0))) as broker:
            await broker.connect(10)
            await broker.prepare_files()
            revision = 0
            for part in (b"12", b"345"):
                revision = await broker.store(file_subject(*place), part, revision)
            file = io.BytesIO()
            try:
                await received(broker, answer, file, 3.0, lambda *_: None)
            finally:
                await broker.clear(file_subject(*place))
            return file.getvalue()

    if not why:
        assert asyncio.run(receive()) == b"12345"
        return
    with pytest.raises(Unavailable) as refused:
        asyncio.run(receive())
    assert why in refused.value.why
