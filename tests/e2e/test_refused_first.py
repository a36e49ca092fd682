"""What can be refused is refused before a program is started."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.e2e.harness import need
from weft.cli import main


@pytest.fixture
def busy_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("run -m calls --prometheus :PORT --", 1, "cannot serve metrics on 127.0.0.1:PORT"),
        ("run --weaver clone -m calls --prometheus :PORT --", 1, "cannot serve metrics on"),
        ("run -m calls --otlp nowhere --", 2, "'nowhere' is no address of a collector"),
        ("run -m calls --otlp http://127.0.0.1:x --", 2, "no address of a collector"),
        ("debug --listen 127.0.0.1:PORT --", 1, "weft cannot listen at 127.0.0.1:PORT"),
    ],
)
def test_a_program_is_not_started(
    words: str, code: int, said: str, busy_port: int, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    command = words.replace("PORT", str(busy_port)).split()
    done = CliRunner().invoke(main, [*command, "touch", str(ran)])
    assert done.exit_code == code, done.output
    assert said.replace("PORT", str(busy_port)) in done.stderr
    assert not ran.exists()


def test_unbalanced_quotes_are_wrong_usage(tmp_path: Path) -> None:
    need("gdb")
    ran = tmp_path / "ran"
    words = ["debug", "--gdb-args", "-ex 'break main", "--", "touch", str(ran)]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 2
    assert "cannot be split into words\n  why: no closing quotation" in done.stderr
    assert not ran.exists()


def test_a_collector_that_is_down_is_named_once() -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    with socket.socket() as closed:
        # Bound but not listening: nobody else gets the port, and nobody answers.
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        words = ["run", "-m", "calls", "--interval", "0.1", "--otlp", url, "--", "sleep", "1"]
        command = [sys.executable, "-m", "weft", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0
    assert done.stderr.count(url) == 1, done.stderr
    assert f"note: the collector {url}/v1/metrics does not take metrics: " in done.stderr
    assert "exports to the collector failed" in done.stderr
    assert "Traceback" not in done.stderr
