"""Where the threads of a process spend their time, by samples that are taken from outside."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from weft.errors import InvalidArgument
from weft.export.sampled.kinds import KINDS, Kind
from weft.model.sampled import SampledTime

if TYPE_CHECKING:
    from weft.export.stacks import Format
    from weft.model.contention import Contention
    from weft.model.weighed import WeighedStacks

__all__ = ["Kind", "SampledProfile", "sample"]


@dataclass(frozen=True, slots=True)
class SampledProfile:
    """Where the threads of a process have spent their time.

    The time of each thread is exact, as the kernel counts it; how it is divided among stacks is
    estimated.
    """

    kind: Kind
    """``cpu``: time on a processor; ``off-cpu``: all other time; ``wall``: both."""
    title: str
    """The command."""
    time: SampledTime
    """Threads and places, with times of all kinds."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What is missing: that the process has ended, what could not be found out."""
        return self.time.notes

    def weighed_stacks(self) -> WeighedStacks:
        """Return the stacks with their time in nanoseconds."""
        from weft.export.sampled.kinds import weighed

        return weighed(self.time, self.kind, self.title)

    def write_stacks(
        self, path: str | os.PathLike[str], output_format: Format | None = None
    ) -> list[str]:
        """Write it as a flame graph, or for another profiler.

        The formats are ``svg``, ``html``, ``folded``, ``speedscope``, ``pprof`` and ``perfetto``;
        if none is given, the ending of the file says which. ``perfetto`` needs ``keep=True`` when
        it is sampled. Returns what one must know of the times.
        """
        from weft.export import stacks

        return stacks.save(path, self.weighed_stacks(), output_format=output_format)

    def contention(self) -> Contention:
        """Return which locks threads waited for, who held them, and where; not of ``cpu`` time."""
        from weft.model.contention import contention

        return contention(self.time)

    def write_timeline(self, path: str | os.PathLike[str]) -> None:
        """Write what each thread did and when: ``.html`` is a page, ``.perfetto`` for Perfetto.

        It needs ``keep=True`` when it is sampled, and a kind other than ``cpu``.
        """
        from weft.base.files import Draft
        from weft.export.waits import html, perfetto

        if not self.time.moments:
            raise InvalidArgument(
                "there is no timeline", "it was not kept when samples were taken", "keep=True"
            )
        module = perfetto if os.fspath(path).endswith(".perfetto") else html
        with Draft(path) as file:
            module.write(file, self.time, self.title)

    def to_json(self) -> dict[str, object]:
        """Return it as plain data, as ``weft profile --format json`` writes it."""
        from weft.export.sampled.json import document

        return document(self.time, self.kind)

    def text(self, top: int = 10) -> str:
        """Return what a person reads: the threads, functions and waits with most time."""
        import io

        from weft.export.sampled.text import write

        file = io.BytesIO()
        write(file, self.time, self.kind, self.title, top)
        return file.getvalue().decode()

    def __str__(self) -> str:
        return self.text()


def sample(
    pid: int,
    seconds: float | None = None,
    kind: Kind = "cpu",
    *,
    rate: float = 99.0,
    budget: float = 0.01,
    keep: bool = False,
    begin: Callable[[], object] | None = None,
    every: Callable[[], bool] = lambda: True,
) -> SampledProfile:
    """Look where the threads of a process are for some seconds, many times a second.

    ```python
    weft.sample(pid, 10, "off-cpu").write_stacks("waits.svg")
    ```

    Nothing is put into the process, and it gets no signal. Threads that run are seen by a clock of
    the kernel's at each look, or else stopped for some ten microseconds; those that sleep are not
    touched. Children are not followed.

    ``kind`` is ``"cpu"``: time on a processor, ``"off-cpu"``: all other time, or ``"wall"``: both.
    Without ``seconds`` it goes on until the process ends, or until ``every``, which is called after
    each look, says no. ``rate`` is how often a second to look at most, ``budget`` the share of the
    time for which threads may stand still; ``keep`` is whether to keep when each sample was taken,
    which the format ``perfetto`` needs. ``begin`` is called when all is ready: it lets a program go
    that was started and is held where it begins, so that nothing of it is missed.
    """
    from weft.program.sampler import ThreadSampler

    if kind not in KINDS:
        raise InvalidArgument(f"there is no kind of time {kind!r}", advice=f"it is {_or(KINDS)}")
    if not rate > 0 or not budget > 0 or (seconds is not None and not seconds >= 0):
        raise InvalidArgument(
            "this cannot be sampled",
            f"rate, budget and seconds are {rate}, {budget} and {seconds}",
            "give a rate and a budget above zero: rate=99, budget=0.01",
        )
    title = _command(pid)
    sampler = ThreadSampler(pid, waits=kind != "cpu", keep=keep, is_new=begin is not None)
    if begin is not None:
        sampler.begin()
        begin()
    is_there = sampler.watch(
        math.inf if seconds is None else seconds, rate=rate, budget=budget, every=every
    )
    found = sampler.result()
    if not is_there and seconds is not None:
        ended = f"the process has ended after {found.seconds:.3g} of {seconds:g} s"
        found = replace(found, notes=(*found.notes, ended))
    elif seconds is not None and found.seconds < 0.95 * seconds:
        cut = f"it was ended after {found.seconds:.3g} of {seconds:g} s"
        found = replace(found, notes=(*found.notes, cut))
    return SampledProfile(kind, title or found.command, found)


def _or(words: tuple[str, ...]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"


def _command(pid: int) -> str:
    """The command of a process; empty if it has none."""
    with suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
        return " ".join(word.decode(errors="replace") for word in words)
    return ""
