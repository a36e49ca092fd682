"""The runner of the zoo sees every kind of difference, and its list is in order."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.zoo.exhibits import EXHIBITS, SHORT
from tests.zoo.model import Exhibit, Native
from tests.zoo.running import SCRIPTS, compare
from tests.zoo.table import markdown

ALWAYS_THERE = {"bash", "coreutils", "dash", "diffutils", "findutils", "grep", "gzip", "sed", "tar"}
# What .ci/run installs only where it is missing, or by another package.
ALWAYS_THERE |= {"openjdk-17-jre-headless", "nodejs", "python3.11"}
OTHER_NAMES = {"nginx-core": "nginx"}


def exhibit(*commands: str, **more: object) -> Exhibit:
    return Exhibit("test", "coreutils", "something", commands, **more)  # type: ignore[arg-type]


def around(script: str) -> list[str]:
    return ["sh", "-c", script, "sh"]


def test_the_same_is_the_same() -> None:
    verdict = compare(exhibit("echo word > file", "cat file", "cat < file"), [])
    assert verdict.same and verdict.word == "same" and not verdict.why


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ('echo more; exec "$@"', "output of `printf word` differs at byte 0"),
        ('echo more >&2; exec "$@"', "standard error of `printf word` differs at byte 0"),
        ('"$@"; exit 3', "`printf word` ended with 3"),
        ("kill -SEGV $$", "`printf word` was ended by SIGSEGV"),
        ('touch new; exec "$@"', "file new is new"),
        ("sleep 60", "`printf word` did not end in time"),
    ],
)
def test_a_difference_is_seen(script: str, expected: str) -> None:
    verdict = compare(exhibit("printf word"), around(script), limit=2)
    assert any(difference.startswith(expected) for difference in verdict.differences), verdict
    assert "**no**" in markdown([verdict])


def test_a_file_that_differs_is_seen() -> None:
    verdict = compare(exhibit("touch file"), around('"$@"; echo more >> file'))
    assert verdict.why.startswith("file file differs at byte 4 of 4 bytes native and 9 cloned")


def test_what_is_not_the_same_each_time_can_be_hidden() -> None:
    verdict = compare(exhibit("printf word", normal={r"\d+ ": ""}), around('printf "7 "; "$@"'))
    assert verdict.same


def test_native_commands_have_no_prefix() -> None:
    assert compare(exhibit(Native("printf word")), ["false"]).same


def test_what_is_missing_or_broken_is_no_difference() -> None:
    missing = compare(exhibit("no-such-program"), [])
    assert missing.word == "missing" and missing.why == "no-such-program is not installed"
    broken = compare(exhibit("false"), [])
    assert broken.word == "broken" and "ended with 1" in broken.why
    assert not missing.differences and not broken.differences
    assert "| missing |" in markdown([missing, broken])


def test_the_list_is_in_order() -> None:
    names = [each.name for each in EXHIBITS]
    assert len(names) == len(set(names)) >= 60
    for each in EXHIBITS:
        for script in each.scripts:
            assert (SCRIPTS / script).exists(), script


def test_the_short_form_is_installed() -> None:
    script = (Path(__file__).parents[2] / ".ci" / "run").read_text()
    installed = set(re.findall(r"[\w.+-]+", script)) | ALWAYS_THERE
    for each in SHORT:
        package = each.packages.split()[0]
        assert OTHER_NAMES.get(package, package) in installed, each.name
