"""Asks busy programs for metrics at random, and for no longer; what they say must fit together.

    python -m tests.soak.metrics [--seconds N] [--long]

A program with threads that counts itself, and Redis under redis-benchmark, have metrics of the
library and some more requested and removed, each narrowed in a hundred ways. A metric that is asked
for twice says the same, two functions' calls add up to those of both, what is narrowed is no more
than what is not, and what is counted is what the program counts. Neither the program nor weft may
grow by it, and in the end the program's code is what it was.
"""

from __future__ import annotations

import ctypes
import gc
import random
import resource
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import weft
from tests.e2e.builder import Builder
from tests.e2e.harness import code
from tests.lockstep import lockstep
from tests.soak import how_many
from tests.soak.probes import redis
from weft import errors
from weft.mdl import ast
from weft.metrics.metric import Metric

SHORT, LONG = 10, 300
THREADS = 4
FOCI = 100
AT_ONCE = 40
"""How many metrics there are at most."""
MANY = 2000
"""How many points a metric has at most: there are programs where all loads are very many."""
PARTS = 10
"""How often it is looked whether something grows, in the long form."""
FEW_PARTS = 4
"""The same in the short form: each has its own benchmark to wait for."""

MORE_MAPPINGS = 8
MORE_MEMORY = 48 << 20
"""How much more weft may take after the last part than after the first."""

DEFINITIONS = """
import "constraints.mdl";
list first is procedure {{ items {{ "{first}" }}; }}
list second is procedure {{ items {{ "{second}" }}; }}
list either is procedure {{ items {{ "{first}", "{second}" }}; }}
"""

METRIC = """
metric {name} {{
  constraint module;
  constraint procedure;
  base is {type} {{ foreach func in {list} {{ {code} }} }}
}}
"""

ENTRY, RETURN = "append preInsn func.entry constrained", "prepend preInsn func.return"
MORE = [
    ("first_calls", "counter", "first", f"{ENTRY} (* first_calls++; *)"),
    ("second_calls", "counter", "second", f"{ENTRY} (* second_calls++; *)"),
    ("both_calls", "counter", "either", f"{ENTRY} (* both_calls++; *)"),
    ("both_rate", "rate", "either", f"{ENTRY} (* both_rate++; *)"),
    ("by_value", "map[value]", "either", f"{ENTRY} (* by_value[$arg[0] & 63]++; *)"),
    ("by_thread", "map[thread]", "first", f"{ENTRY} (* by_thread[$thread]++; *)"),
    ("by_caller", "map[caller, value]", "second", f"{ENTRY} (* by_caller[$caller, 1]++; *)"),
    ("sizes", "histogram", "either", f"{ENTRY} (* sizes << $arg[0] & 1023; *)"),
    (
        "time_in_first",
        "wallTimer",
        "first",
        f"{ENTRY} (* startWallTimer(time_in_first); *){RETURN} (* stopWallTimer(time_in_first); *)",
    ),
    (
        "cpu_in_second",
        "processTimer",
        "second",
        f"{ENTRY} (* startProcessTimer(cpu_in_second); *)"
        f"{RETURN} (* stopProcessTimer(cpu_in_second); *)",
    ),
    ("entered", "record { value }", "first", f"{ENTRY} (* emit entered($arg[0]); *)"),
]


def definitions(first: str, second: str) -> str:
    """Return metrics of two functions."""
    head = DEFINITIONS.format(first=first, second=second)
    return head + "".join(
        METRIC.format(name=name, type=type_, list=list_, code=text)
        for name, type_, list_, text in MORE
    )


@dataclass(frozen=True)
class Burden:
    """What weft takes when it measures nothing."""

    mappings: int
    """In the target."""
    memory: int
    """Of weft, in bytes."""

    @classmethod
    def of(cls, pid: int) -> Burden:
        gc.collect()
        # What the C library keeps for later is not in use; the largest request says how much.
        ctypes.CDLL(None).malloc_trim(0)
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return cls(len(mappings(pid)), pages * resource.getpagesize())


def mappings(pid: int) -> list[str]:
    """Return weft's mappings of a process."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return [line for line in lines if "/memfd:weft" in line]


@dataclass
class Curious:
    """Somebody who wants to know everything, but not for long."""

    session: weft.Session
    chance: random.Random
    names: list[str]
    foci: list[str]
    live: list[Metric] = field(default_factory=list)
    acts: Counter[str] = field(default_factory=Counter)
    burdens: list[Burden] = field(default_factory=list)

    def definition(self, name: str) -> ast.Metric:
        return self.session.metrics.library.metrics[name]

    def request(self, *wanted: tuple[str, str]) -> list[Metric]:
        """Ask for several at once; none of them if one cannot be had."""
        pairs = [(self.definition(name), focus) for name, focus in wanted]
        return self.session.metrics.request_all(pairs, allow_incomplete=True)

    def has_many_points(self, name: str, focus: str) -> bool:
        plan = self.session.metrics.plan(self.definition(name), focus)
        weavings = plan.base.weavings if plan else ()
        return sum(len(weaving.points) for weaving in weavings) > MANY

    def act(self) -> None:
        """Do something."""
        kind = self.chance.choice(["request", "request", "remove", "sample", "read", "twice"])
        if kind == "request":
            wanted = self.chance.choice(self.names), self.chance.choice(self.foci)
            try:
                if not self.has_many_points(*wanted):
                    self.live += self.request(*[wanted] * self.chance.choice([1, 1, 2]))
            except errors.InvalidArgument:
                # It cannot be narrowed like this, or there is nothing to measure.
                kind = "refuse"
            while len(self.live) > AT_ONCE:
                self.live.pop(self.chance.randrange(len(self.live))).remove()
        elif kind == "sample":
            self.session.metrics.sample()
        elif kind == "twice":
            self.twice()
        elif not self.live:
            return
        elif kind == "remove":
            self.remove(self.live.pop(self.chance.randrange(len(self.live))))
        else:
            str(self.chance.choice(self.live).value)
        self.acts[kind] += 1

    def remove(self, metric: Metric) -> None:
        last = metric.value if metric.kind not in ("timer", "counter", "rate") else None
        metric.remove()
        value = metric.value
        assert last is None or type(value) is type(last)

    def twice(self) -> None:
        """What was asked for later, and is read earlier, is not more."""
        focus = self.chance.choice(self.foci)
        with suppress(errors.InvalidArgument):
            wide, narrow, again = self.request(
                ("both_calls", ""), ("both_calls", focus), ("both_calls", "")
            )
            first, second = self.request(("first_calls", ""), ("second_calls", ""))
            parts = number(first) + number(second)
            values = [number(metric) for metric in (narrow, again, wide)]
            # Each thread may have stood between the two when they began.
            assert 0 <= values[0] <= values[2] + THREADS, (focus, values)
            assert 0 <= values[1] <= values[2], (focus, values)
            assert parts <= number(wide), (parts, wide)
            for metric in (wide, narrow, again, first, second):
                metric.remove()

    def leave(self) -> None:
        """Remove everything, and see whether anything is left of it."""
        probes = [
            number
            for metric in self.live
            if metric.node is not None
            for node in (metric.node, *metric.node.needs)
            for probe in node.probes
            for number in probe.numbers
        ]
        while self.live:
            self.live.pop().remove()
        engine = self.session.metrics
        assert not engine.metrics and not engine._nodes
        for number in probes:
            with suppress(errors.InvalidArgument):
                self.session._target.probe_data(number)
                raise AssertionError(f"probe {number} is still there")
        self.burdens.append(Burden.of(self.session.pid))

    def check(self) -> None:
        """See whether anything has grown."""
        first, last = self.burdens[0], self.burdens[-1]
        assert last.mappings <= first.mappings + MORE_MAPPINGS, self.burdens
        assert last.memory <= first.memory + MORE_MEMORY, self.burdens


def number(metric: Metric) -> int:
    value = metric.value
    assert isinstance(value, int)
    return value


@contextmanager
def curious(
    pid: int, first: str, second: str, chance: random.Random
) -> Iterator[tuple[Curious, str]]:
    """Attach to a process, which must be as it was in the end."""
    before = code(pid)
    with weft.attach(pid) as session:
        session.load_metrics(definitions(first, second))
        own, *others = session.resources().modules
        libc = next(module for module in others if module.name == "libc.so.6")
        paths = [
            f"/Code/{module.name}/{function.name}"
            for module in (own, libc)
            for function in module.functions()
            if function.kind == "function"
        ]
        foci = ["", f"/Code/{own.name}", f"/Code/{libc.name}", "/Thread/*", "/Process/1"]
        foci += [f"/Code/{own.name}/{name}" for name in (first, second, f"{first[0]}*")]
        foci += [f"/Code/{libc.name}/{name}" for name in ("malloc", "read", "write", "memcpy")]
        own_paths = [path for path in paths if path.startswith(f"/Code/{own.name}/")]
        foci += chance.sample(own_paths, min(len(own_paths), FOCI // 4))
        foci += chance.sample(paths, FOCI // 4)
        foci += [f"{focus},/Thread/*" for focus in foci if focus[:6] == "/Code/"]
        names = sorted(session.metrics.library.metrics)
        assert len(names) >= 30 and len(foci) >= FOCI
        somebody = Curious(session, chance, names, foci[:FOCI])
        # What is found out about all of a module's code is kept: that is no leak.
        for focus in (f"/Code/{own.name}", f"/Code/{libc.name}"):
            somebody.request(("syscalls", focus))[0].remove()
        yield somebody, own.name
    assert not mappings(pid)
    assert code(pid) == before


def _parts(seconds: float) -> int:
    return PARTS if seconds > SHORT else FEW_PARTS


def soak_counts(program: Path, seconds: float, chance: random.Random) -> Curious:
    """Compare with what a program counts, before and after others have come and gone."""
    with lockstep(program, THREADS) as target:
        with curious(target.pid, "tiny", "normal", chance) as (somebody, module):
            for _ in range(parts := _parts(seconds)):
                end = time.monotonic() + seconds / parts
                while True:
                    compare(somebody, target.go, target.rest, module, end)
                    if time.monotonic() > end:
                        break
                somebody.leave()
            somebody.check()
        target.batch(100)
    return somebody


def compare(
    somebody: Curious,
    go: Callable[[], None],
    rest: Callable[[], dict[str, int]],
    module: str,
    end: float,
) -> None:
    """Ask while the program rests, disturb it while it works, and compare when it rests again."""
    some = ["recursive", "hot_cold", "tiny", "normal", "floats", "four_bytes", "switching"]
    foci = [f"/Code/{module}/{name}" for name in somebody.chance.sample(some, 3)]
    wanted = [("calls", focus) for focus in foci]
    wanted += [(name, "") for name in ("first_calls", "second_calls", "both_calls")]
    exact = somebody.request(*wanted)
    again = [somebody.request(one)[0] for one in wanted]
    inner = somebody.request(("both_calls", f"/Code/{module}/switching"), ("by_value", ""))
    go()
    while time.monotonic() < end and somebody.chance.random() < 0.95:
        somebody.act()
    truth = rest()
    for metric, other in zip(exact, again, strict=True):
        assert number(metric) == number(other), (metric, other)
        name = metric.focus.rpartition("/")[2]
        # Functions of a few bytes, one right behind the other, may have no room for a probe.
        if name and metric.completeness.is_exact:
            assert number(metric) == truth[name], (metric, truth[name])
    first, second, both = map(number, exact[-3:])
    assert (first, second) == (truth["tiny"], truth["normal"])
    assert both == first + second
    # Those that switching calls are some of the tiny ones.
    assert 0 < number(inner[0]) < first or not truth["switching"]
    by_value = inner[1].value
    assert isinstance(by_value, dict) and sum(by_value.values()) == both
    for metric in (*exact, *again, *inner):
        metric.remove()


def soak_redis(folder: Path, seconds: float, chance: random.Random) -> Curious:
    """Do it to a server; its clients must not notice."""
    with redis(folder, 1) as service:
        pid = service.targets()[0]
        with curious(pid, "processCommand", "lookupKey", chance) as (somebody, _):
            for _ in range(parts := _parts(seconds)):
                end = time.monotonic() + seconds / parts
                with subprocess.Popen(
                    service.client, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
                ) as client:
                    try:
                        while time.monotonic() < end:
                            somebody.act()
                        somebody.leave()
                        output, _ = client.communicate(timeout=300)
                    finally:
                        client.kill()
                assert client.returncode == 0, output
                service.rate(output)
            somebody.check()
    return somebody


def show(name: str, somebody: Curious) -> None:
    acts = ", ".join(f"{act} {times}" for act, times in sorted(somebody.acts.items()))
    first, last = somebody.burdens[0], somebody.burdens[-1]
    grown = f"{first.mappings} mappings, then {last.mappings}"
    grown += f"; {first.memory >> 20} MB, then {last.memory >> 20}"
    print(f"{name}: {acts}; {grown}", flush=True)


def main() -> None:
    seconds = how_many(__doc__, "seconds", SHORT, LONG)
    seed = random.randrange(1 << 32)
    print(f"chance began with {seed}")
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="weft-") as directory:
        folder = Path(directory)
        folder.chmod(0o755)
        show("counts", soak_counts(Builder(folder).build("counts"), seconds / 2, chance))
        show("redis", soak_redis(folder, seconds / 2, chance))


if __name__ == "__main__":
    main()
