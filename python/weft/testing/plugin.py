"""A plugin of pytest: native coverage of C extensions, by test.

With ``--weft-cov`` this process does not run the tests. It starts the same command again, in a
clone of its code, and records what that executes; at the boundaries of tests the other process
waits until this one has looked. Without the option nothing but this file is loaded.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Generator
from pathlib import PurePath

import pytest

from weft.testing.channel import CHANNEL, INSIDE

__all__ = ["Boundaries"]

FORMATS = ("text", "json", "html", "lcov", "cobertura", "sarif", "drcov")
_NO_TESTS = (
    "help",
    "version",
    "collectonly",
    "showfixtures",
    "show_fixtures_per_test",
    "markers",
    "cacheshow",
    "setupplan",
)
"""The options with which pytest runs no tests."""
SUFFIXES = {
    ".html": "html",
    ".info": "lcov",
    ".json": "json",
    ".lcov": "lcov",
    ".sarif": "sarif",
    ".txt": "text",
    ".xml": "cobertura",
}
"""The formats that files have by the ends of their names."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options (called by pytest)."""
    group = parser.getgroup("weft", "native coverage by test (weft)")
    group.addoption(
        "--weft-cov",
        action="append",
        default=[],
        metavar="LIBRARY.so",
        help="record which tests execute what of a library: by name, path or pattern; may be "
        "given several times",
    )
    group.addoption(
        "--weft-cov-report",
        metavar="FILE",
        help="write the coverage to a file; without it a table is printed",
    )
    group.addoption(
        "--weft-cov-format",
        choices=FORMATS,
        help="how to write it; without it as the name of the file says",
    )
    group.addoption(
        "--weft-cov-fail-under",
        type=float,
        metavar="PERCENT",
        help="end with exit code 6 if the tests pass and execute less of the lines",
    )


# Outside of all others: the one of pytest that captures output would capture that of all tests.
@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(
    early_config: pytest.Config,
) -> Generator[None, object, object]:
    """Record another process that runs the tests, or be that process (called by pytest)."""
    options = early_config.known_args_namespace
    given = [
        name
        for name in ("report", "format", "fail_under")
        if getattr(options, f"weft_cov_{name}", None) is not None
    ]
    if given and not options.weft_cov:
        name = given[0].replace("_", "-")
        raise pytest.UsageError(f"--weft-cov-{name} needs --weft-cov LIBRARY.so")
    if options.weft_cov and not any(getattr(options, name, None) for name in _NO_TESTS):
        channel = os.environ.pop(CHANNEL, None)
        if channel is not None:
            boundaries = Boundaries(int(channel), options.weft_cov)
            early_config.pluginmanager.register(boundaries, "weft-cov-boundaries")
        elif INSIDE not in os.environ:
            raise SystemExit(_record(early_config))
        else:
            early_config.pluginmanager.register(Inner(), "weft-cov-inner")
    return (yield)


def _record(config: pytest.Config) -> int:
    options = config.known_args_namespace
    _refuse_xdist(config)
    limit = options.weft_cov_fail_under
    if limit is not None and not 0 <= limit <= 100:
        raise pytest.UsageError(f"--weft-cov-fail-under {limit:g}: not between 0 and 100")
    report = options.weft_cov_report
    format_ = options.weft_cov_format or (
        "text" if report is None else SUFFIXES.get(PurePath(report).suffix)
    )
    if format_ is None:
        known = ", ".join(SUFFIXES)
        raise pytest.UsageError(
            f"--weft-cov-report {report}: its name ends in none of {known}; "
            "say the format with --weft-cov-format"
        )
    from weft.errors import WeftError
    from weft.testing.recording import Wish, command_of, record

    try:
        command = command_of(config)
        return record(command, Wish(tuple(options.weft_cov), report, format_, limit))
    except WeftError as error:
        raise pytest.UsageError(f"weft cannot record coverage: {error}") from None


def _refuse_xdist(config: pytest.Config) -> None:
    options = config.known_args_namespace
    is_distributed = (
        getattr(options, "numprocesses", None)
        or getattr(options, "tx", None)
        or getattr(options, "dist", "no") != "no"
    )
    if is_distributed:
        raise pytest.UsageError(
            "--weft-cov cannot be used with pytest-xdist (-n, --dist, --tx): of tests that run "
            "side by side weft cannot tell which has executed what; add -n 0"
        )


class Inner:
    """In a pytest that a recorded test has started: recorded with it, as part of that test."""

    def pytest_report_header(self) -> str:
        """Say who reports the coverage (called by pytest)."""
        return "weft: recorded by the pytest that has started this one, as part of its test"


class Boundaries:
    """Tells the process that records where tests begin, and waits until it has looked."""

    def __init__(self, channel: int, libraries: list[str]) -> None:
        self._socket = socket.socket(fileno=channel)
        # It is this process' alone.
        self._socket.set_inheritable(False)
        self._pid = os.getpid()
        self._libraries = libraries

    def pytest_report_header(self) -> str:
        """Say what is recorded (called by pytest)."""
        return f"weft: native coverage of {', '.join(self._libraries)}, by test"

    # Outside of all others: nothing but pytest's own loop is between two tests.
    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Say that a test begins: with its fixtures (called by pytest)."""
        self._tell(item.nodeid)
        return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Say that the last test has ended (called by pytest)."""
        self._tell("")

    def _tell(self, name: str) -> None:
        if os.getpid() != self._pid:
            # A fork that has come out of a test: what it executes counts to that.
            return
        try:
            self._socket.sendall(json.dumps(name).encode() + b"\n")
            is_seen = self._socket.recv(1) != b""
        except OSError:
            is_seen = False
        if not is_seen:
            pytest.exit("weft, which records the coverage, has gone", pytest.ExitCode.USAGE_ERROR)
