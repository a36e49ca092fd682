"""Stacks with weights: what flame graphs and the formats of other profilers show.

Whatever has measured them: instructions that were counted, bytes that were allocated, time that
was waited for. Whoever has stacks (:class:`weft.Stack`), and a number for each, makes one of these:

```python
found = WeighedStacks.of(
    [(stack, 3_000_000), (another, 1_000_000)],
    title="redis-server --port 7000",
    kind="cpu_time",
    unit="ns",
    status="estimate",
    notes=("a sample stands for 10 ms",),
)
weft.export.stacks.save("cpu.svg", found)
```

Weights are whole numbers, so times are in ``ns``, never in seconds. Where it is known when each
stack was seen, :meth:`WeighedStacks.of_samples` takes that, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from posixpath import normpath
from typing import NamedTuple

from weft.base.numbers import quantity
from weft.model.completeness import SIGNS, Status
from weft.model.stacks import TRUNCATED, Stack, StackFrame

__all__ = [
    "CodeModule",
    "FrameTable",
    "StackSample",
    "TimedStack",
    "WeighedFrame",
    "WeighedFunction",
    "WeighedStack",
    "WeighedStacks",
]

_MEANINGS = {"exact": "exact", "estimate": "an estimate", "incomplete": "incomplete"}


@dataclass(frozen=True, slots=True, eq=False)
class CodeModule:
    """A file with code, and what of it the stacks are in. Each is one object, and no other."""

    name: str
    path: str
    start: int
    """The lowest address that is known of it, and the end of the highest."""
    end: int
    build_id: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class WeighedFunction:
    """A function; or, without a module, what stands for something else, as ``[truncated]``.

    Each is one object: two functions may have the same name, file and module.
    """

    name: str
    linked_name: str = ""
    """What the linker calls it."""
    module: CodeModule | None = None
    file: str = ""
    line: int = 0
    """The line that it begins at; 0 if that is not known."""


@dataclass(frozen=True, slots=True)
class WeighedFrame:
    """A function in a stack, and where in it."""

    function: WeighedFunction
    address: int = 0
    file: str = ""
    line: int = 0
    """The line that is executed, or 0; of another file than the function's if that is inlined."""
    inlined: bool = False
    """Whether its code stands within the frame before it, which called it in the source."""


@dataclass(frozen=True, slots=True)
class WeighedStack:
    """Calls, the outermost first, and how much there was of what is measured."""

    frames: tuple[WeighedFrame, ...]
    weight: int


class StackSample(NamedTuple):
    """A stack as a sampler sees it, and what it stands for."""

    time: int
    """Nanoseconds since the machine was booted, as ``CLOCK_BOOTTIME`` has it."""
    process: int
    thread: int
    stack: Stack
    weight: int
    thread_name: str = ""


@dataclass(frozen=True, slots=True)
class TimedStack:
    """A stack with its weight, and when and in which thread it was seen."""

    time: int
    """Nanoseconds since the machine was booted, as ``CLOCK_BOOTTIME`` has it."""
    process: int
    thread: int
    stack: WeighedStack
    thread_name: str = ""


class FrameTable:
    """The functions and modules of stacks, each as one object.

    Stacks that are to be compared, or written to one file, need the same table.
    """

    def __init__(self, stacks: Iterable[Stack], program: str = "") -> None:
        """Look through all stacks that there will be; ``program`` is the name of its module."""
        # A sampler has seen most stacks and frames many times: to compare all their parts each time
        # would take longer than anything else, so that they are known by identity first.
        self._stacks = {id(stack): stack for stack in stacks}
        frames = {id(frame): frame for stack in self._stacks.values() for frame in stack.frames}
        ranges: dict[str, tuple[int, int]] = {}
        for frame in frames.values():
            if frame.module is not None:
                low, high = ranges.get(frame.module, (frame.address, frame.address + 1))
                ranges[frame.module] = min(low, frame.address), max(high, frame.address + 1)
        # Readers take the first for the program.
        order = sorted(ranges, key=lambda name: name != program)
        self._modules = {name: CodeModule(name, name, *ranges[name]) for name in order}
        self._functions: dict[object, WeighedFunction] = {}
        self._frames: dict[StackFrame, WeighedFrame] = {}
        self._by_identity = {key: self._frame(frame) for key, frame in frames.items()}
        self._known: dict[int, tuple[WeighedFrame, ...]] = {}
        self._cut = WeighedFrame(WeighedFunction(TRUNCATED))

    @property
    def modules(self) -> tuple[CodeModule, ...]:
        """All modules, that of the program first."""
        return tuple(self._modules.values())

    def frames(self, stack: Stack) -> tuple[WeighedFrame, ...]:
        """The frames of one of the stacks, or of its equal, the outermost first."""
        if (known := self._known.get(id(stack))) is not None:
            return known
        found = [
            self._by_identity.get(id(frame)) or self._frame(frame)
            for frame in reversed(stack.frames)
        ]
        made = tuple(found if stack.is_whole and found else [self._cut, *found])
        if id(stack) in self._stacks:
            self._known[id(stack)] = made
        return made

    def _frame(self, frame: StackFrame) -> WeighedFrame:
        if (known := self._frames.get(frame)) is not None:
            return known
        name = frame.function or f"{frame.address:#x}"
        # Compilers note paths by way of the folder that they were started in.
        file = "" if frame.location is None else normpath(frame.location.file)
        line = 0 if frame.location is None else frame.location.line or 0
        # What has no start of its own, inlined or Python's, is told from others by its file.
        start = file if frame.offset is None else frame.address - frame.offset
        key = name, frame.module, start, frame.inlined
        function = self._functions.get(key)
        if function is None:
            module = None if frame.module is None else self._modules[frame.module]
            function = WeighedFunction(name, "", module, file)
            self._functions[key] = function
        made = WeighedFrame(function, frame.address, file, line, frame.inlined)
        self._frames[frame] = made
        return made


@dataclass(frozen=True, slots=True)
class WeighedStacks:
    """Stacks with weights of one kind."""

    title: str
    """Whose stacks they are: a command."""
    about: str
    """What one sees, for a title: ``where the instructions go``."""
    kind: str
    """What the weights are, in a word: ``instructions``, ``alloc_bytes``."""
    unit: str
    """What the weights are in: ``bytes``, ``ns``, or the plural of what is counted."""
    meaning: str
    """What the weight of a function with all that it called is worth."""
    stacks: tuple[WeighedStack, ...]
    modules: tuple[CodeModule, ...] = ()
    """Those of the functions."""
    status: Status = "exact"
    notes: tuple[str, ...] = ()
    """What one must know of the weights: what they lack, how far an estimate can be off."""
    samples: tuple[TimedStack, ...] = ()
    """When each was seen, where that is known; their weights add up to those of the stacks."""

    @classmethod
    def of(
        cls,
        pairs: Iterable[tuple[Stack, int]],
        *,
        title: str,
        kind: str,
        unit: str,
        about: str = "",
        meaning: str = "",
        status: Status = "exact",
        notes: Iterable[str] = (),
        program: str = "",
        table: FrameTable | None = None,
    ) -> WeighedStacks:
        """Make one of stacks, each with its weight; a stack may come several times.

        ``program`` is the name of the module that is the program's. Stacks of several kinds that
        are written to one file need a common ``table``. What is left out is said by the kind:
        ``alloc_bytes by stack, exact``.
        """
        taken = [(stack, weight) for stack, weight in pairs if weight]
        if table is None:
            table = FrameTable((stack for stack, _ in taken), program)
        return cls(
            title=title,
            about=about or f"{kind} by stack",
            kind=kind,
            unit=unit,
            meaning=meaning or f"{kind} by stack, {_MEANINGS[status]}",
            stacks=tuple(WeighedStack(table.frames(stack), weight) for stack, weight in taken),
            modules=table.modules,
            status=status,
            notes=tuple(notes),
        )

    @classmethod
    def of_samples(
        cls,
        samples: Iterable[StackSample],
        *,
        title: str,
        kind: str,
        unit: str,
        about: str = "",
        meaning: str = "",
        status: Status = "exact",
        notes: Iterable[str] = (),
        program: str = "",
    ) -> WeighedStacks:
        """Make one of what a sampler has seen: the stacks, added up, and when each was seen."""
        taken = list(samples)
        table = FrameTable((sample.stack for sample in taken), program)
        stacks: dict[int, Stack] = {}
        sums: Counter[int] = Counter()
        for sample in taken:
            stacks[id(sample.stack)] = sample.stack
            sums[id(sample.stack)] += sample.weight
        made = cls.of(
            ((stacks[key], weight) for key, weight in sums.items()),
            title=title,
            kind=kind,
            unit=unit,
            about=about,
            meaning=meaning,
            status=status,
            notes=notes,
            table=table,
        )
        timed = (
            TimedStack(
                sample.time,
                sample.process,
                sample.thread,
                WeighedStack(table.frames(sample.stack), sample.weight),
                sample.thread_name,
            )
            for sample in taken
        )
        return replace(made, samples=tuple(timed))

    @property
    def total(self) -> int:
        """The sum of all weights."""
        return sum(stack.weight for stack in self.stacks)

    @property
    def summary(self) -> str:
        """The total for people, with a mark if it is not exact, and what it is worth."""
        return f"{SIGNS[self.status]}{self.amount(self.total)}; {self.meaning}"

    def amount(self, weight: int) -> str:
        """A weight in few digits: ``1.2 ms``, ``3.4 MiB``, ``5.6M instructions``."""
        shown = quantity(weight, self.unit)
        return shown if self.unit in ("bytes", "ns") else f"{shown} {self.unit}"

    def all_digits(self, weight: int) -> str:
        """A weight with all its digits: ``1,234,567 bytes``."""
        return f"{weight:,} {self.unit}"

    def positive(self) -> WeighedStacks:
        """The same without what has no width: weights that are not above zero."""
        left_out = [stack.weight for stack in self.stacks if stack.weight < 0]
        kept = tuple(stack for stack in self.stacks if stack.weight > 0)
        samples = tuple(sample for sample in self.samples if sample.stack.weight > 0)
        if not left_out:
            return replace(self, stacks=kept, samples=samples)
        are = "1 stack is" if len(left_out) == 1 else f"{len(left_out):,} stacks are"
        note = f"{are} left out, of a negative sum: {self.all_digits(sum(left_out))}"
        # What is not shown is missing, whatever else is known.
        notes = (*self.notes, note)
        return replace(self, stacks=kept, samples=samples, status="incomplete", notes=notes)
