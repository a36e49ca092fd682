"""What a stranger may type: numbers that are none, processes that cannot be, files without end."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from weft.cli import main
from weft.cli.inputs import Moment, Seconds
from weft.errors import BadMetric
from weft.mdl.diagnostics import MOST_ERRORS
from weft.mdl.loader import load

HUGE = "9" * 20
ENDLESS = "9" * 5000


@pytest.mark.parametrize("number", ["nan", "inf", "-inf", "1e300", "", "x", "-1"])
@pytest.mark.parametrize(
    "words",
    [
        "run -m calls --interval={} -- false",
        "run -m calls --for={} -- false",
        "run -m calls --budget={} -- false",
        "cov --for={} -- false",
        "cov --dump-every={} -- false",
        "trace -o /dev/null --for={} -- false",
        "profile --for={} 1",
        "top --interval={} 1",
        "top --budget={} 1",
    ],
)
def test_what_is_no_number(words: str, number: str) -> None:
    done = CliRunner().invoke(main, [word.format(number) for word in words.split()])
    assert done.exit_code == 2, done.output
    assert "nternal" not in done.output


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("0.5", 0.5),
        (".5s", 0.5),
        ("1s", 1),
        ("500ms", 0.5),
        ("10m", 600),
        ("1h30m", 5400),
        ("1h 30m", 5400),
        ("2m0.5s", 120.5),
        ("1d", 86400),
        ("250us", 0.00025),
    ],
)
def test_lengths_of_time(text: str, seconds: float) -> None:
    assert Seconds(min=0).convert(text, None, None) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["1m30", "30m1h", "1m1m", "1x", "1M", "s", "1 2", "1e3", "1,5s", "--", "٣", "1h-5m"]
)
def test_what_is_no_length_of_time_is_refused_with_examples(text: str) -> None:
    done = CliRunner().invoke(main, ["run", "-m", "calls", f"--for={text}", "--", "false"])
    assert done.exit_code == 2
    assert f"{text!r} is no length of time: write 90 or 90s, 500ms, 10m, 1h30m." in done.output


def test_an_interval_that_is_too_short_is_refused() -> None:
    done = CliRunner().invoke(main, ["run", "-m", "calls", "--interval=5ms", "--", "false"])
    assert done.exit_code == 2
    assert "5ms is out of range: it is at least 0.01s." in done.output


@pytest.mark.parametrize("pid", [HUGE, ENDLESS, "2147483648"])
@pytest.mark.parametrize(
    "words",
    [
        "attach",
        "cov",
        "profile",
        "debug",
        "trace -o /dev/null",
        "points",
        "doctor",
        "explain calls",
    ],
)
def test_a_process_that_cannot_be(words: str, pid: str) -> None:
    done = CliRunner().invoke(main, [*words.split(), pid])
    assert done.exit_code == 3, done.output
    assert "there is no process" in done.output


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["attach", "\N{SUPERSCRIPT TWO}"], 2),
        (["attach", "x!y"], 3),
        (["attach", "./x"], 2),
        (["cov", "\N{SUPERSCRIPT TWO}"], 3),
        (["run", "-m", "calls@", "--", "false"], 2),
        (["run", "-m", "@", "--", "false"], 2),
        (["run", "-m", "", "--", "false"], 2),
        (["run", "-e", "", "--", "false"], 2),
        (["run", "-m", "calls@/Code/[", "--", "false"], 2),
        (["run", "-m", "calls", "--prometheus", "", "--", "false"], 2),
        (["run", "-m", "calls", "--prometheus", f":{ENDLESS}", "--", "false"], 2),
        (["run", "-m", "calls", "--prometheus", "no such host:0", "--", "false"], 1),
        (["run", "-m", "calls", "--otlp", "", "--", "false"], 2),
        (["run", "-m", "calls", "--otlp", "http://[", "--", "false"], 2),
        (["run", "-m", "calls", "-o", "", "--", "false"], 4),
        (["run", "--", ""], 3),
        (["run", "--weaver", "clone", "--cache-size", ENDLESS, "--", "false"], 2),
        (["run", "--weaver", "clone", "--cache-size", "99999999999G", "--", "false"], 2),
        (["debug", "--listen", f":{ENDLESS}", "--", "false"], 2),
        (["debug", "--listen", ":\N{SUPERSCRIPT TWO}", "--", "false"], 2),
        (["debug", "--listen", "no such host:1", "--", "false"], 1),
        (["explain", "calls@"], 2),
        (["metrics", ""], 2),
        (["metrics", "-f", "/dev/zero"], 2),
        (["fmt", "/dev/zero"], 4),
        (["cov", "report", "/dev/zero"], 4),
        (["profile", "report", "/dev/zero"], 4),
        (["trace", "info", "/dev/zero"], 4),
        (["points", "/dev/zero"], 4),
        (["cachesim", "/dev/null", "--top", "-1"], 2),
        (["cachesim", "/dev/null", "--cache", "0,0"], 2),
        (["cachesim", "/dev/null", "--cache", f"{ENDLESS},1"], 2),
        (["trace", "heatmap", "/dev/null", "-o", "x.png", "--width", HUGE], 2),
        (["trace", "heatmap", "/dev/null", "-o", "x.png", "--page", "0"], 2),
    ],
)
def test_what_makes_no_sense(words: list[str], code: int) -> None:
    done = CliRunner().invoke(main, words)
    assert done.exit_code == code, done.output
    assert "nternal" not in done.output


@pytest.mark.parametrize(
    "line", ["\N{SECTION SIGN}\n", '"x\n', "$$\n", "foo bar;\n", "metric a {\n"]
)
def test_many_mistakes_are_cut_short(line: str) -> None:
    with pytest.raises(BadMetric) as caught:
        load(line * 20_000)
    # What is shown does not grow with what is wrong.
    assert caught.value.why.count("error MDL") <= 2 * MOST_ERRORS
    assert len(caught.value.why) < 1_000_000


@pytest.mark.alone
@pytest.mark.parametrize("line", ["\N{SECTION SIGN}\n", '"x\n', "$$\n"])
def test_time_grows_as_the_text_does(line: str) -> None:
    def seconds(lines: int) -> float:
        began = time.process_time()
        with pytest.raises(BadMetric):
            load(line * lines)
        return time.process_time() - began

    seconds(100)
    # Quadratic would be 64 times as long.
    assert seconds(32_000) < 24 * seconds(4_000) + 0.1


def test_an_endless_file_is_refused_before_it_fills_memory(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["metrics", "-f", "/dev/zero"])
    assert "it is larger than 16 MiB" in done.stderr


IMPORTS = """
import os, signal, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "weft.errors":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Finder())
signal.signal(signal.SIGINT, signal.default_int_handler)
from weft_command import main
main()
"""


def test_ctrl_c_while_importing_is_quiet() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS, "metrics"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (128 + signal.SIGINT, "", "")


@pytest.mark.parametrize("text", ["23:59", "00:00", "12:30:15", "04:05Z", " 14:30 "])
def test_a_time_of_the_day_is_the_next_one(text: str) -> None:
    now = datetime.now(timezone.utc)
    found = Moment().convert(text, None, None)
    # Where clocks are changed at night, a day has an hour more.
    assert now < found <= now + timedelta(hours=25, seconds=1)
    there = found.astimezone(timezone.utc) if text.endswith("Z") else found
    assert there.strftime("%H:%M:%S").startswith(text.strip().rstrip("Z"))


def test_a_moment_may_have_a_day() -> None:
    found = Moment().convert("2126-11-19T14:30Z", None, None)
    assert found == datetime(2126, 11, 19, 14, 30, tzinfo=timezone.utc)
    assert Moment().convert("2126-11-19T14:30", None, None).strftime("%H:%M") == "14:30"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("soon", "is no moment"),
        ("14", "is no moment"),
        ("24:01", "is no moment"),
        ("14:61", "is no moment"),
        ("١٤:٣٠", "is no moment"),
        ("2026-02-30T10:00", "is no moment"),
        ("2026-11-19", "is no moment"),
        ("2001-01-01T00:00Z", "is over"),
    ],
)
def test_what_is_no_moment_to_come_is_refused(text: str, said: str) -> None:
    with pytest.raises(click.BadParameter, match=said):
        Moment().convert(text, None, None)
