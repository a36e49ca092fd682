"""How the public API may be used, as mypy must see it.

Never run: `make check` type-checks it. A line that must be refused carries a `type: ignore` with
the code of the error; when it is no longer refused, mypy reports the comment as unused.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from typing_extensions import assert_type

import weft
from weft.errors import NoSuchProcess, TargetError, WeftError
from weft.model.program import Resource, Thread

assert_type(weft.__version__, str)

error: WeftError = NoSuchProcess("no process has id 7", advice="see weft ps")
target_error: type[TargetError] = NoSuchProcess
assert_type(error.what, str)
assert_type(error.exit_code, int)

with weft.attach(4711) as session:
    assert_type(session, weft.Session)
    assert_type(session.pid, int)
    assert_type(session.threads()[0], Thread)
    assert_type(session.ping()[0].unasked, str | None)
    assert_type(session.registers()["rip"], int)
    assert_type(session.read(0x1000, 8), bytes)
    assert_type(session.read_many([(0x1000, 8)]), list[bytes | None])
    assert_type(session.resources().match("/Code/*/main"), Iterator[Resource])
    with session.stopped():
        pass

    points = session.points("/Code/libc.so.6/*", "exit")
    assert_type(points, list[weft.Point])
    assert_type(points[0].address, int)
    probe = session.insert("/Code/*/main", "counter calls; calls += 1", order="prepend")
    assert_type(probe, weft.Probe)
    assert_type(session.insert(["/Code/*/main", *points], "counter n; n += 1"), weft.Probe)
    assert_type(probe.points, tuple[weft.Point, ...])
    assert_type(probe.refused, tuple[weft.Refusal, ...])
    assert_type(probe.refused[0].reason, str)
    assert_type(probe.uncertain, tuple[weft.Point, ...])
    assert_type(session.uncertain("/Code/*/main", "loops"), list[weft.Point])
    assert_type(probe.tactics, dict[str, int])
    assert_type(probe.values("calls"), dict[weft.Point, int])
    assert_type(probe.threads(), list[tuple[int, int]])
    assert_type(session.stacks().threads[0].frames[0].function, str | None)
    waits_for = session.stacks().threads[0].waits_for
    assert waits_for is not None
    assert_type(waits_for.holders[0].tid, int | None)
    assert_type(session.stacks().deadlocks[0].threads[0].name, str)
    assert_type(probe.values(process=1, thread=2), dict[weft.Point, int])
    assert_type(probe.records(), list[tuple[Any, ...]])
    assert_type(probe.lost("seen"), int)
    value = probe.value()
    if isinstance(value, weft.Timer):
        assert_type(value.seconds, float)
    elif isinstance(value, weft.Histogram):
        assert_type(value.buckets, tuple[weft.Bucket, ...])
        assert_type(value.mean, float)
    metric = session.metric("alloc_bytes", by="stack")
    assert_type(metric.weighed_stacks().total, int)
    assert_type(metric.write_stacks("flame.svg"), list[str])
    metric.write_stacks("flame.svg", "flamegraph")  # type: ignore[arg-type]
    session.points("/Code/*/main", "loop")  # type: ignore[arg-type]
    session.insert("/Code/*/main", "counter n", order="first")  # type: ignore[arg-type]
    probe.count = 1  # type: ignore[attr-defined]

assert_type(weft.run(["ls", "-l"], cwd="/").wait(timeout=1.0), int | None)
weft.attach("4711")  # type: ignore[call-overload]
weft.run("ls -l", stdin=1.5)  # type: ignore[call-overload]
with weft.run(["ls", "-l"], weaver="clone", cache_size=1 << 20) as program:
    assert_type(program.wait(), int | None)
    assert_type(program.stats().blocks, int)

NoSuchProcess()  # type: ignore[call-arg]
NoSuchProcess(7)  # type: ignore[arg-type]
print(weft.no_such_name)  # type: ignore[attr-defined]
