"""Which files a host offers, to whom, and what of that travels."""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from weft.errors import BadFile, InvalidArgument, NoSuchProcess
from weft.fleet.broker import Broker
from weft.fleet.fetching import fetch, list_files
from weft.fleet.names import file_subject
from weft.fleet.offering import Offer, Unavailable
from weft.fleet.policy import Policy
from weft.fleet.protocol import (
    LARGEST_FILE,
    MOST_FILES,
    Ask,
    BadDocument,
    FileAnswer,
    FileEntry,
    FileRequest,
    HostRecord,
    Request,
    wanted,
)

REQUEST = FileRequest("4f", "alice", ("web-1",), "slow.trace", 60.0)
ANSWER = FileAnswer(
    "alice", "4f", "web-1", 7, 1, "done", "", (FileEntry("slow.trace", 3, 1.5),), 3, "00" * 32
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "offered"
    folder.mkdir(mode=0o700)
    (folder / "one.trace").write_bytes(b"one")
    return folder


# Documents.


def changed(document: bytes, **fields: Any) -> bytes:
    return json.dumps({**json.loads(document), **fields}).encode()


def test_documents_travel_unchanged() -> None:
    assert FileRequest.decode(REQUEST.encode()) == REQUEST
    assert FileAnswer.decode(ANSWER.encode()) == ANSWER
    measured = Request("4f", "alice", (Ask("calls"),), "*", 1.0)
    assert wanted(REQUEST.encode()) == REQUEST
    assert wanted(measured.encode()) == measured


def test_a_host_that_knows_nothing_of_files_has_nothing_to_read_in_it() -> None:
    with pytest.raises(BadDocument, match="another kind"):
        Request.decode(REQUEST.encode())


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "../x"},
        {"name": "a/b"},
        {"name": ".."},
        {"name": "a\nb"},
        {"name": "x" * 300},
        {"name": 7},
        {"hosts": ["a b"]},
        {"hosts": None},
        {"seconds": 1e9},
        {"requester": "*"},
        {"kind": "report"},
        {"v": 2},
    ],
)
def test_a_request_that_makes_no_sense_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(BadDocument):
        wanted(changed(REQUEST.encode(), **fields))


@pytest.mark.parametrize(
    "fields",
    [
        {"state": "happy"},
        {"files": [{"name": "../x", "size": 1, "modified": 0}]},
        {"files": [{"name": "x", "size": -1, "modified": 0}]},
        {"files": [{"name": "x", "size": 1, "modified": 1e300}]},
        {"files": [{"name": "x", "size": 1, "modified": 0}] * (MOST_FILES + 1)},
        {"sent": -1},
        {"digest": "0" * 100},
        {"why": "x" * 10_000},
    ],
)
def test_an_answer_that_makes_no_sense_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(BadDocument):
        FileAnswer.decode(changed(ANSWER.encode(), **fields))


def test_subjects_say_who_may_read_and_who_may_write() -> None:
    subject = file_subject("alice", "4f", "web-1.example.org", 7)
    assert subject == "$O.weft_files.C.alice.4f.web-1/example/org.7"


# The policy.


def test_nothing_may_be_fetched_unless_a_rule_says_so() -> None:
    policy = Policy.parse('[[allow]]\nrequester = "*"\nprocesses = "*"\n')
    assert policy.of_files("alice", 0).why == "no rule allows alice any files"
    assert not policy.of_file("alice", "x").allowed


def test_a_rule_allows_a_pattern_of_names() -> None:
    policy = Policy.parse(
        '[[allow]]\nrequester = "alice"\nprocesses = "*"\nfiles = "*.trace"\nrequests = 2\n'
    )
    assert policy.of_files("alice", 1).allowed
    assert "2 requests already" in policy.of_files("alice", 2).why
    assert not policy.of_files("bob", 0).allowed
    assert policy.of_file("alice", "slow.trace").allowed
    assert not policy.of_file("alice", "slow.trace.gz").allowed
    assert not policy.of_file("bob", "slow.trace").allowed


def test_a_pattern_is_a_text() -> None:
    with pytest.raises(InvalidArgument, match="files is no text"):
        Policy.parse('[[allow]]\nrequester = "a"\nprocesses = "*"\nfiles = true\n')


# The folder.


def test_only_own_regular_files_are_listed(folder: Path) -> None:
    (folder / "link.trace").symlink_to("/etc/passwd")
    (folder / "dir.trace").mkdir()
    (folder / "a\nb.trace").write_text("x")
    os.mkfifo(folder / "pipe.trace")
    with (folder / "large.trace").open("wb") as file:
        file.truncate(LARGEST_FILE + 1)
    found, others = Offer(folder).entries()
    assert [(one.name, one.size) for one in found] == [("one.trace", 3)]
    assert others == 5


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_files_of_other_users_are_not_offered(folder: Path) -> None:
    os.chown(folder / "one.trace", 12345, -1)
    offer = Offer(folder)
    assert offer.entries() == ([], 1)
    with pytest.raises(Unavailable, match="belongs to another user"):
        offer.open("one.trace")
    os.chown(folder, 12345, -1)
    with pytest.raises(Unavailable, match="not offered any more"):
        offer.entries()
    with pytest.raises(BadFile, match="belongs to another user"):
        Offer(folder)


def test_a_folder_that_others_may_change_is_refused(folder: Path) -> None:
    folder.chmod(0o777)
    with pytest.raises(BadFile, match="others may change"):
        Offer(folder)
    with pytest.raises(BadFile, match="cannot offer"):
        Offer(folder / "nothing")
    with pytest.raises(BadFile, match="cannot offer"):
        Offer(folder / "one.trace")


def test_what_is_no_file_of_the_folder_cannot_be_opened(folder: Path) -> None:
    (folder / "link.trace").symlink_to("one.trace")
    (folder / "dir.trace").mkdir()
    os.mkfifo(folder / "pipe.trace")
    offer = Offer(folder)
    for name, why in {
        "link.trace": "it is a link",
        "dir.trace": "no regular file",
        "pipe.trace": "no regular file",
        "gone.trace": "No such file",
        "../offered/one.trace": "no name of a file",
    }.items():
        with pytest.raises(Unavailable) as refused:
            offer.open(name)
        assert why in str(refused.value)


@pytest.mark.parametrize("change", ["append", "replace the bytes", "truncate"])
def test_a_file_that_changes_while_it_is_read_is_found_out(folder: Path, change: str) -> None:
    path = folder / "one.trace"
    opened = Offer(folder).open("one.trace")
    assert opened.read(2) == b"on"
    before = path.stat()
    while path.stat().st_ctime_ns == before.st_ctime_ns:
        with path.open("r+b") as file:
            if change == "append":
                file.seek(0, os.SEEK_END)
            file.truncate(1) if change == "truncate" else file.write(b"ONE")
    with pytest.raises(Unavailable, match="has changed"):
        opened.check_unchanged()
    opened.close()


def test_a_file_that_is_only_replaced_is_read_to_its_end(folder: Path) -> None:
    opened = Offer(folder).open("one.trace")
    (folder / "new").write_bytes(b"two")
    (folder / "new").rename(folder / "one.trace")
    assert opened.read(10) == b"one"
    opened.close()


# Hosts that cannot be asked.


def test_an_older_host_and_one_without_files_are_named_and_not_asked(tmp_path: Path) -> None:
    nobody = cast("Broker", None)
    older, without = HostRecord("older", "1", "0.1"), HostRecord("without", "1", "1", files=False)
    document = json.loads(replace(older, files=True).encode())
    del document["files"]
    assert HostRecord.decode(json.dumps(document).encode()).files is None
    found = asyncio.run(list_files(nobody, "alice", [without, older], 1.0))
    assert [(one.host, one.state) for one in found] == [("older", "older"), ("without", "none")]
    for record, why in ((older, "older"), (without, "offers no files")):
        with pytest.raises(NoSuchProcess) as refused:
            asyncio.run(fetch(nobody, "alice", record, "x", tmp_path / "x", 1.0, lambda *_: None))
        assert why in refused.value.why
    assert not (tmp_path / "x").exists()
