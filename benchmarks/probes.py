"""What a probe costs each time that it is hit, in nanoseconds added to a call of a tiny function.

For every tool the program is started anew; it calls the function in a loop, first alone, then with
the probe: the best of several rounds of each, in the same process. What a tool counted is compared
with the number of calls. Beside weft: a detour written by hand, which is what the processor asks
for; Frida when it is installed (`pip install frida`), bpftrace where the kernel lets it, GDB.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias, cast

import weft

ROUNDS = 7
BRIEF = 0.05
"""How many seconds one round should take at least, for the clock not to matter."""

SOURCE = Path(__file__).parent.parent / "tests" / "programs" / "hot.c"


class Hot:
    """The program, which calls a function as often as it is told."""

    def __init__(self, process: subprocess.Popen[str], path: Path, threads: int) -> None:
        self._process = process
        self.pid = process.pid
        self.path = path
        self.threads = threads
        self.calls = 0
        self._line()

    def tell(self, command: str) -> None:
        assert self._process.stdin
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()

    def ask(self, command: str) -> int:
        self.tell(command)
        return int(self._line())

    def best(self, calls: int = 100) -> float:
        """Return the nanoseconds per call in the best of several rounds."""
        while self._time(calls) < BRIEF * 1e9:
            calls *= 2
        return min(self._time(calls) for _ in range(ROUNDS)) / calls

    def _time(self, calls: int) -> int:
        self.calls += calls * self.threads
        return self.ask(str(calls))

    def _line(self) -> str:
        assert self._process.stdout
        line = self._process.stdout.readline().strip()
        if not line:
            raise RuntimeError(f"the program ended with {self._process.wait()}")
        return line


@contextmanager
def hot(path: Path, threads: int) -> Iterator[Hot]:
    with subprocess.Popen(
        [path, str(threads)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield Hot(process, path, threads)
        finally:
            process.kill()


Counted: TypeAlias = Callable[[], "int | None"]
"""Says how many hits were counted, or nothing where the tool does not say."""

Insert: TypeAlias = Callable[[Hot], AbstractContextManager[Counted]]


@dataclass(frozen=True)
class Tool:
    """A way to measure: what it does per call, and how it is brought into the program."""

    name: str
    insert: Insert
    hits: int = 1
    """How many hits there are per call."""
    threads: int = 1


# By hand.


def by_hand(command: str) -> Insert:
    @contextmanager
    def insert(program: Hot) -> Iterator[Counted]:
        program.tell(command)
        yield lambda: program.ask("count")

    return insert


# By weft.


class Probe(Protocol):
    """What is asked of a probe here."""

    refused: list[object]

    def value(self, name: str) -> Any: ...
    def records(self, name: str) -> list[tuple[int, ...]]: ...
    def lost(self, name: str) -> int: ...


class Weaver(Protocol):
    """What is asked of a session here."""

    def points(self, pattern: str, kind: str) -> list[Any]: ...
    def insert(self, points: list[Any], snippet: str) -> Probe: ...


def by_weft(
    snippet: str, count: Callable[[Probe], int | None], kinds: tuple[str, ...] = ("entry",)
) -> Insert:
    @contextmanager
    def insert(program: Hot) -> Iterator[Counted]:
        with weft.attach(program.pid) as session:
            weaver = cast(Weaver, session)
            name = program.path.name
            points = [p for kind in kinds for p in weaver.points(f"/Code/{name}/tiny", kind)]
            probe = weaver.insert(points, snippet)
            assert not probe.refused, probe.refused
            yield lambda: count(probe)

    return insert


def calls(probe: Probe) -> int:
    value: int = probe.value("calls")
    return value


def recorded(probe: Probe) -> int:
    return len(probe.records("log")) + probe.lost("log")


def weft_tools() -> list[Tool]:
    both = ("entry", "exit")
    timer = "timer busy wall\nat entry { start busy }\nat exit { stop busy }"
    counter = "counter calls\ncalls += 1"
    return [
        Tool("weft, counter", by_weft(counter, calls)),
        Tool("weft, counter at entry and exit", by_weft(counter, calls, both), hits=2),
        Tool("weft, wall timer", by_weft(timer, lambda p: cast(int, p.value("busy").count), both)),
        Tool(
            "weft, histogram of an argument",
            by_weft(
                "histogram sizes log2\nsizes << arg(0)",
                lambda p: cast(int, p.value("sizes").count),
            ),
        ),
        Tool(
            # A few keys: the argument's lowest bits.
            "weft, map by an argument",
            by_weft(
                "map by_size[1] 256\nby_size[arg(0) & 63] += 1",
                lambda p: sum(p.value("by_size").values()),
            ),
        ),
        Tool(
            "weft, record",
            by_weft("ring log(argument) 65536\nemit log(arg(0))", recorded),
        ),
        Tool(
            "weft, record with the time",
            by_weft("ring log(argument, when) 65536\nemit log(arg(0), now)", recorded),
        ),
        Tool("weft, counter, 2 threads", by_weft(counter, calls), threads=2),
        Tool(
            "weft, shared counter, 2 threads",
            by_weft("counter calls shared\ncalls += 1", calls),
            threads=2,
        ),
    ]


# By Frida. The headers that its C modules may include do not compile in the current release, but
# callbacks need no more of them than a pointer; variables of the module itself cannot be written.

FRIDA = """
const tiny = DebugSymbol.fromName('tiny').address;
const counter = Memory.alloc(8);
let calls = 0;
rpc.exports = { count: () => counter.readU64().toNumber() + calls };
"""
FRIDA_C = """
const module = new CModule('extern long counter;'
    + 'void enter(void *context) { counter++; }'
    + 'void leave(void *context) { counter++; }', { counter });
"""
FRIDA_SCRIPTS = {
    "Frida, C probe": (FRIDA_C + "Interceptor.attach(tiny, module.enter);", 1),
    "Frida, C enter and leave": (
        FRIDA_C + "Interceptor.attach(tiny, { onEnter: module.enter, onLeave: module.leave });",
        2,
    ),
    "Frida, JavaScript probe": ("Interceptor.attach(tiny, () => { calls++; });", 1),
    "Frida, JavaScript enter": ("Interceptor.attach(tiny, { onEnter() { calls++; } });", 1),
    "Frida, JavaScript enter and leave": (
        "Interceptor.attach(tiny, { onEnter() { calls++; }, onLeave() { calls++; } });",
        2,
    ),
}


def by_frida(text: str) -> Insert:
    @contextmanager
    def insert(program: Hot) -> Iterator[Counted]:
        with frida_script(program.pid, FRIDA + text) as script:
            yield lambda: cast(int, script.exports_sync.count())

    return insert


@contextmanager
def frida_script(pid: int, text: str) -> Iterator[Any]:
    """Have Frida run a script in a process."""
    session = importlib.import_module("frida").attach(pid)
    try:
        script = session.create_script(text)
        problems: list[str] = []
        script.on("message", lambda message, _: problems.append(message.get("description", "")))
        script.load()
        if problems:
            raise RuntimeError(problems[0])
        yield script
    finally:
        session.detach()


# By a kernel uprobe, and by a debugger.


@contextmanager
def by_bpftrace(program: Hot) -> Iterator[Counted]:
    text = f"uprobe:{program.path}:tiny {{ @calls = count(); }}"
    with bpftrace_script(program.pid, text) as printed:

        def counted() -> int | None:
            found = re.search(r"@calls: (\d+)", printed())
            return int(found[1]) if found else 0

        yield counted


@contextmanager
def bpftrace_script(pid: int, text: str) -> Iterator[Callable[[], str]]:
    """Have bpftrace run a script for a process; what this yields ends it and says its output."""
    with subprocess.Popen(
        ["bpftrace", "-p", str(pid), "-e", text],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as bpftrace:
        output: list[str] = []
        try:
            assert bpftrace.stdout
            for line in bpftrace.stdout:
                output.append(line)
                if "Attaching" in line:
                    break
            # It says so before it does so.
            time.sleep(2)
            if bpftrace.poll() is not None:
                raise RuntimeError("".join(output).strip())

            def printed() -> str:
                assert bpftrace.stdout
                bpftrace.send_signal(signal.SIGINT)
                return bpftrace.stdout.read()

            yield printed
        finally:
            bpftrace.kill()


GDB = """
set pagination off
break tiny
commands
  silent
  continue
end
echo counting\\n
continue
"""


@contextmanager
def by_gdb(program: Hot) -> Iterator[Counted]:
    with tempfile.NamedTemporaryFile("w", suffix=".gdb") as script:
        script.write(GDB)
        script.flush()
        command = ["gdb", "-nx", "-batch", "-p", str(program.pid), "-x", script.name]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as gdb:
            try:
                assert gdb.stdout
                for line in gdb.stdout:
                    if "counting" in line:
                        break
                # It keeps no count that could be asked for while the program runs.
                yield lambda: None
            finally:
                gdb.kill()


def tools() -> list[Tool]:
    found = [
        Tool("detour by hand", by_hand("detour")),
        Tool("detour by hand, locked, 2 threads", by_hand("locked"), threads=2),
    ]
    if hasattr(weft.Session, "insert"):
        found += weft_tools()
    else:
        print("this build of weft cannot weave: its peers alone")
    if importlib.util.find_spec("frida"):
        found += [Tool(name, by_frida(text), hits) for name, (text, hits) in FRIDA_SCRIPTS.items()]
    if shutil.which("bpftrace"):
        found.append(Tool("bpftrace, uprobe", by_bpftrace))
    if shutil.which("gdb"):
        found.append(Tool("GDB, breakpoint", by_gdb))
    return found


def measure(path: Path, tool: Tool) -> tuple[float, float]:
    """Return the nanoseconds per call without the tool and with it."""
    with hot(path, tool.threads) as program:
        native = program.best()
        with tool.insert(program) as count:
            program.calls = 0
            probed = program.best()
            counted = count()
    if counted is not None and counted != program.calls * tool.hits:
        print(f"! {tool.name} counted {counted} of {program.calls * tool.hits} hits")
    return native, probed


def main() -> None:
    print(f"nanoseconds per call of a tiny function, best of {ROUNDS} rounds, per thread")
    print(f"{'tool':35} {'native':>8} {'probed':>10} {'added':>10}   times the detour by hand")
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "hot"
        subprocess.run(["gcc", "-O2", "-pthread", "-o", path, SOURCE], check=True)
        unit = None
        for tool in tools():
            try:
                native, probed = measure(path, tool)
            except (RuntimeError, weft.errors.WeftError, OSError) as error:
                print(f"{tool.name:35} {error}")
                continue
            added = probed - native
            unit = unit or added
            line = f"{tool.name:35} {native:8.2f} {probed:10.2f} {added:10.2f}   {added / unit:.1f}"
            print(line, flush=True)


if __name__ == "__main__":
    main()
