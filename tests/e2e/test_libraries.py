"""Libraries come and go while they are measured: a count is right, or says what is missing."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import weft
from tests.clone import session_of
from tests.toolchain import compile_program
from weft import errors
from weft.control.probes import Probe
from weft.metrics.metric import Metric

FOCUS = "/Code/libplug.so/f"
COUNTER = "counter calls; calls += 1"

every_weaver = pytest.mark.parametrize("weaver", ["patch", "clone"])


class Host:
    """The program, see ``tests/programs/plugin_host.c``: the plugin counts its calls itself."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.pid = process.pid
        self.place = ""
        assert self._line() == "ready"

    def ask(self, command: str) -> int:
        """Have it do something, and return how often the plugin was called until then."""
        assert self.process.stdin
        print(command, file=self.process.stdin, flush=True)
        calls, place = self._line().split()
        self.place = place
        return int(calls)

    def leave(self) -> None:
        """Have it end, if it has not."""
        assert self.process.stdin
        if self.process.poll() is None:
            print("exit", file=self.process.stdin, flush=True)
        assert self.process.wait(60) == 3

    def _line(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().strip()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plugins")
    shared = ("-O1", "-fPIC", "-shared")
    compile_program("counting_plugin.c", folder / "libplug.so", *shared)
    compile_program("counting_plugin.c", folder / "libother.so", *shared, "-DOTHER")
    compile_program("plugin_host.c", folder / "plugin_host", "-O1", "-rdynamic", "-pthread")
    return folder


def command(folder: Path) -> list[str | Path]:
    return [folder / "plugin_host", folder / "libplug.so", folder / "libother.so"]


@contextmanager
def started(folder: Path) -> Iterator[Host]:
    pipe = subprocess.PIPE
    with subprocess.Popen(command(folder), stdin=pipe, stdout=pipe, text=True) as process:
        try:
            host = Host(process)
            yield host
            host.leave()
        finally:
            process.kill()


def are_missing(completeness: weft.Completeness) -> list[str]:
    """What is missing because a library was loaded."""
    assert completeness.status == ("incomplete" if completeness.missing else "exact")
    return [f"{one.where}: {one.why}" for one in completeness.missing if one.what == "events"]


@every_weaver
def test_a_library_that_is_loaded_again_is_counted_on(weaver: str, folder: Path) -> None:
    with started(folder) as host:
        host.ask("load")
        with session_of(host.pid, weaver) as session:
            calls = session.metric("calls", FOCUS)
            counted = host.ask("call 1000")
            assert (calls.value, calls.completeness.is_exact) == (counted, True)
            for _ in range(3):
                where = host.place
                before = host.ask("unload")
                missed = host.ask("load")
                assert host.place == where, "this is about one that comes back to its place"
                missed = host.ask("call 500") - before
                if weaver == "patch":
                    # Nobody could know of it yet; whoever asks for the value is told.
                    counted -= missed
                    [text] = are_missing(calls.completeness)
                    assert text.startswith("/Code/libplug.so: it was loaded")
                counted += host.ask("call 700") - before
                assert calls.value == counted
            session.metrics.sample()
            assert calls.history()[-1].completeness.status == "incomplete"
            # A clone cannot know that nothing else was there in between.
            told = "loaded 3 times" if weaver == "patch" else "unnoticed"
            assert told in are_missing(calls.completeness)[0]
            # One that is asked for now has missed nothing.
            newer = session.metric("calls", FOCUS)
            host.ask("call 10")
            assert (newer.value, newer.completeness.is_exact) == (10, True)


@every_weaver
def test_who_is_woven_next_takes_nothing_from_others(weaver: str, folder: Path) -> None:
    """A new probe is the first to find that the library was loaded again."""
    with started(folder) as host:
        host.ask("load")
        with session_of(host.pid, weaver) as session:
            calls, first = session.metric("calls", FOCUS), session.insert(FOCUS, COUNTER)
            before = host.ask("call 100")
            host.ask("unload")
            host.ask("load")
            second = session.insert(FOCUS, COUNTER)
            missed = host.ask("call 50") - before
            session.refresh()
            after = host.ask("call 200")
            counted = after if weaver == "clone" else after - missed
            assert (calls.value, first.value(), second.value()) == (
                counted,
                counted,
                after - before,
            )
            for one in (calls, first):
                assert one.completeness.status == "incomplete" or weaver == "clone"


@every_weaver
def test_a_probe_is_woven_again(weaver: str, folder: Path) -> None:
    with started(folder) as host:
        host.ask("load")
        with session_of(host.pid, weaver) as session:
            probe = session.insert(FOCUS, COUNTER)
            points = session.insert(session.points(FOCUS), COUNTER)
            assert host.ask("call 100") == probe.value() == points.value()
            host.ask("unload")
            host.ask("load")
            missed = host.ask("call 50") - 100 if weaver == "patch" else 0
            assert bool(are_missing(points.completeness)) == (weaver == "patch")
            session.refresh()
            assert host.ask("call 200") - missed == probe.value()
            assert bool(are_missing(probe.completeness)) == (weaver == "patch")
            points.remove()
            assert bool(are_missing(points.completeness)) == (weaver == "patch")


@every_weaver
def test_what_is_in_the_place_of_a_library_is_not_counted(weaver: str, folder: Path) -> None:
    with started(folder) as host:
        host.ask("load")
        with session_of(host.pid, weaver) as session:
            calls = session.metric("calls", FOCUS)
            counted = host.ask("call 100")
            host.ask("unload")
            session.metrics.refresh()
            host.ask("other")
            assert calls.value == counted
            host.ask("load")
            session.metrics.refresh()
            assert are_missing(calls.completeness)
            host.ask("other")
            assert host.ask("call 100") == calls.value == 200


@every_weaver
def test_one_waits_for_a_library(weaver: str, folder: Path) -> None:
    with started(folder) as host, session_of(host.pid, weaver) as session:
        with pytest.raises(errors.InvalidArgument, match="no function matches"):
            session.metric("calls", FOCUS)
        with pytest.raises(errors.InvalidArgument):
            session.insert(FOCUS, COUNTER)
        calls = session.metric("calls", FOCUS, wait=True)
        latency = session.metric("latency", FOCUS, wait=True)
        probe = session.insert(FOCUS, COUNTER, wait=True)
        session.metrics.sample()
        assert calls.is_waiting and calls.value == 0 == probe.value()
        assert calls.completeness.is_exact
        host.ask("load")
        assert session.refresh()
        counted = host.ask("call 100")
        assert not calls.is_waiting and calls.value == counted == probe.value()
        assert isinstance(latency.value, weft.Histogram) and latency.value.count == counted
        for one in (calls, latency, probe):
            assert are_missing(one.completeness)


@every_weaver
def test_a_library_whose_file_was_replaced_keeps_its_name(
    weaver: str, folder: Path, tmp_path: Path
) -> None:
    for name in ("plugin_host", "libplug.so", "libother.so"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
        (tmp_path / name).chmod(0o755)
    with started(tmp_path) as host:
        host.ask("load")
        (tmp_path / "new").write_bytes((folder / "libother.so").read_bytes())
        (tmp_path / "new").replace(tmp_path / "libplug.so")
        with session_of(host.pid, weaver) as session:
            calls = session.metric("calls", FOCUS)
            assert host.ask("call 100") == calls.value


def weft_command(*words: str | Path) -> list[str]:
    return [sys.executable, "-m", "weft", *map(str, words)]


def measured(output: str) -> tuple[int, str, str]:
    """The total of a measurement in JSON, its status, and what is missing."""
    total = json.loads(output)["totals"][0]
    return total["value"], total["status"], json.dumps(total["missing"])


@pytest.mark.parametrize(
    "what",
    [("-m", f"calls@{FOCUS}"), ("-e", f"entry {FOCUS} {{ hits++ }}")],
    ids=["metric", "line"],
)
@every_weaver
def test_the_command_waits_and_counts_on(weaver: str, what: tuple[str, str], folder: Path) -> None:
    options = ("--weaver", weaver, "--interval", "0.5", "--format", "json", "--wait")
    with started(folder) as host:
        words = weft_command("attach", str(host.pid), *what, *options)
        pipe = subprocess.PIPE
        with subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True) as command:
            assert command.stderr
            assert "waits for what it is about" in command.stderr.readline()
            before = host.ask("load")
            assert "is measured from now on" in command.stderr.readline()
            truth = host.ask("call 1000")
            host.ask("unload")
            # What it misses now cannot be known.
            most = host.ask("cycle 3 100")
            host.ask("load")
            command.send_signal(signal.SIGINT)
            output = command.communicate()[0]
        assert command.returncode == 0
        value, status, missing = measured(output)
        assert truth - before <= value <= most
        assert status == "incomplete"
        assert "libplug.so" in missing and "missing" in missing


@every_weaver
def test_a_program_that_is_run_loads_what_is_waited_for(
    weaver: str, folder: Path, tmp_path: Path
) -> None:
    result = tmp_path / "result.json"
    words = ("run", "--weaver", weaver, "-m", f"calls@{FOCUS}", "--wait", "--format", "json")
    program = weft_command(*words, "-o", result, "--", *command(folder))
    pipe = subprocess.PIPE
    with subprocess.Popen(program, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        host = Host(process)
        assert process.stderr
        assert "waits for what it is about" in process.stderr.readline()
        host.ask("load")
        assert "is measured from now on" in process.stderr.readline()
        truth = host.ask("call 1000")
        host.leave()
    value, status, missing = measured(result.read_text())
    assert value == truth
    assert status == "incomplete" and "libplug.so" in missing


@every_weaver
def test_a_library_that_was_never_seen_is_missing(
    weaver: str, folder: Path, tmp_path: Path
) -> None:
    """It comes and goes, and the program ends, before anybody looks."""
    with started(folder) as host, session_of(host.pid, weaver) as session:
        calls = session.metric("calls", FOCUS, wait=True)
        own = session.metric("calls", "/Code/plugin_host/call_all")
        host.ask("cycle 1 100")
        host.leave()
        session.metrics.sample()
        assert calls.value == 0 and "unnoticed" in are_missing(calls.completeness)[0]
        assert own.value == 1 and own.completeness.is_exact


@pytest.mark.parametrize("what", ["metric", "probe"])
@every_weaver
def test_nothing_is_counted_twice(weaver: str, what: str, folder: Path) -> None:
    """Whenever weft looks: while a library is away, while it comes, while it goes."""
    with started(folder) as host:
        host.ask("load")
        with session_of(host.pid, weaver) as session:
            made: Metric | Probe
            if what == "metric":
                made = session.metric("calls", FOCUS)
            else:
                made = session.insert(FOCUS, COUNTER)

            def value() -> int:
                now = made.value if isinstance(made, Metric) else made.value()
                assert isinstance(now, int)
                return now

            enough = threading.Event()

            def work() -> None:
                while not enough.is_set():
                    host.ask("cycle 3 60")

            host.ask("unload")
            thread = threading.Thread(target=work)
            thread.start()
            try:
                for _ in range(60):
                    with suppress(errors.CodeGone):
                        session.refresh()
            finally:
                enough.set()
                thread.join()
            truth = host.ask("load")
            session.refresh()
            before = value()
            assert before <= truth
            more = host.ask("call 300") - truth
            # One that went while it was being woven may be measured no longer; that is said.
            assert before <= value() <= before + more
            # Where a busy machine left no time for a cycle, all was counted.
            is_all = (before, value()) == (truth, before + more)
            assert are_missing(made.completeness) or is_all, (before, truth, value(), more)


@every_weaver
def test_attaching_while_libraries_come_and_go(weaver: str, folder: Path) -> None:
    rounds = 20
    with started(folder) as host:
        host.ask("churn")
        for _ in range(rounds):
            with session_of(host.pid, weaver) as session:
                own = session.metric("calls", "/Code/plugin_host/call_all")
                # It may be unloaded at any moment, also between two looks at it.
                calls = session.metric("calls", FOCUS, wait=True)
                probe = session.insert([FOCUS, "/Code/plugin_host/load"], COUNTER, wait=True)
                host.ask("load")
                host.ask("call 30")
                host.ask("unload")
                session.metrics.sample()
                assert own.value == 1
                for counted in (calls.value, probe.value()):
                    assert isinstance(counted, int) and counted <= 31
        host.ask("rest")
        assert host.ask("cycle 3 30") == (rounds + 3) * 30
