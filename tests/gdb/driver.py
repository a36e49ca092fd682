"""Runs inside GDB: walks through a program at random, and writes down what GDB tells at each stop.

What is done next depends on a seed and on what GDB has told, but for addresses and identifiers: two
walks do the same as long as they are told the same.
"""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Callable, Iterator
from errno import ENOSYS
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

import gdb

GENERAL = (
    *("rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "rsp", *(f"r{n}" for n in range(8, 16))),
    *("rip", "eflags", "cs", "ss", "ds", "es", "fs", "gs", "fs_base", "gs_base", "orig_rax"),
)
VECTORS = (*(f"ymm{n}" for n in range(16)), *(f"k{n}" for n in range(8)))
SETTINGS = (
    "set pagination off",
    "set confirm off",
    "set width 0",
    "set print frame-arguments scalars",
    "set print elements 40",
    "set breakpoint pending on",
    "set python print-stack full",
)
CHILDREN = re.compile(r"after v?fork from child process (\d+)")
IDS = re.compile(r"(process|Thread|LWP) ?[\d.]+")
"""How GDB writes numbers that the kernel gives; elsewhere, the same number is another's."""
RESUME = 1 << 16
"""A flag that the processor sets where it has stopped for a breakpoint of its own."""
RANDOM_BYTES = bytes(range(1, 17))
"""What the kernel gives a program as random bytes: canaries and guards are made of them."""
DELICATE = (gdb.BP_CATCHPOINT, gdb.BP_HARDWARE_BREAKPOINT)
"""In a system call, of which the kernel may go on with other registers than it began with, and at a
breakpoint that the processor lets pass once, even after a jump."""
UNSAFE = ("call", "jump", "register", "signal SIGUSR2")
"""What is not done there: also from a signal's handler the processor comes back as it went."""
LEAVING = ("finish", "until", "advance")
"""What has GDB put a breakpoint where the function returns to, or where it takes that to be: of
code without unwinding information it may be data, and natively the breakpoint is written to it."""
STEPPING_OVER = ("next", "nexti", "step")
"""What does the same there as soon as GDB takes it that a function was called."""
MOST_BREAKPOINTS = 6
HARDWARE = (
    *(gdb.BP_HARDWARE_BREAKPOINT, gdb.BP_HARDWARE_WATCHPOINT),
    *(gdb.BP_READ_WATCHPOINT, gdb.BP_ACCESS_WATCHPOINT),
)
MOST_HARDWARE = 4
NANOSECONDS = 10**9
STARTING = 10.0
"""How many seconds before us the program may have looked at the clock."""
SEVERAL = 20
"""After how many stops there is a closer look."""


MARK = "\n@@{}@@\n"
"""Printed before each command, with the number of the record that will tell what came of it."""


END = {"did": "end"}
"""The last record of a walk that nothing went wrong with."""


class Over(Exception):
    """There is no program any more."""


class Walk:
    """A walk through the program that GDB is connected with."""

    def __init__(self, plan: dict[str, Any], out: IO[str]) -> None:
        self.plan = plan
        self.out = out
        self.chance = random.Random(plan["seed"])
        self.stops = self.records = 0
        self.event: Any = None
        self.hit: list[int] = []
        self.counts: dict[int, int] = {}
        """How often each breakpoint was hit before."""
        self.is_delicate = False
        """Whether the program stands where not everything does what it does elsewhere."""
        self.randomness = 0
        """The catchpoint for the C library's own system call for random bytes, until it came."""
        self.began = time.monotonic() - STARTING
        self.ended: str | None = None
        self.maps: list[str] = []
        self.tids: list[int] = []
        self.lines: list[str] = []
        self.objfile = gdb.current_progspace().objfiles()[0]
        """The program's own file."""
        self.points: list[int] = []
        """Our breakpoints, catchpoints and watchpoints, the oldest first."""
        gdb.events.stop.connect(self._on_stop)
        gdb.events.exited.connect(self._on_exit)

    def _on_stop(self, event: Any) -> None:
        self.event = event
        if isinstance(event, gdb.BreakpointEvent):
            # Later they may be gone. And a step may end with a store that changes nothing:
            # natively, GDB names the watchpoint then as well, but does not count it.
            self.hit = [
                point.number
                for point in event.breakpoints
                if point.hit_count != self.counts.get(point.number, 0)
            ]
        self.is_delicate = isinstance(event, gdb.BreakpointEvent) and any(
            point.type in DELICATE for point in event.breakpoints
        )

    def _on_exit(self, event: Any) -> None:
        self.ended = f"exit code {getattr(event, 'exit_code', None)}"

    def go(self) -> None:
        """Walk until there were enough stops, or the program has ended."""
        try:
            self._begin()
            while self.stops < self.plan["stops"]:
                self._act()
        except Over:
            pass
        self.out.write(json.dumps(END) + "\n")

    def _begin(self) -> None:
        self.write("start", self.look())
        self._fix_random_bytes()
        for _ in range(self.plan["first_steps"]):
            self.do("stepi")
        for command in self.plan["unseen"]:
            self.ask(command)
        self.write("begin", {"threads": len(gdb.selected_inferior().threads())})
        for command in self.plan["first"]:
            self.do(command)
        symbol = gdb.lookup_global_symbol("main")
        if self.plan["lines"] and symbol:
            table = symbol.symtab
            numbers = sorted(set(table.linetable().source_lines()))
            self.lines = [f"{table.filename}:{number}" for number in numbers]

    def _fix_random_bytes(self) -> None:
        found = re.search(r"AT_RANDOM .*(0x[0-9a-f]+)", self.ask("info auxv"))
        assert found
        gdb.selected_inferior().write_memory(int(found[1], 16), RANDOM_BYTES)
        if self.plan["asks_for_random_bytes"]:
            self.do("catch syscall getrandom")
            self.randomness = gdb.breakpoints()[-1].number

    def _fix_what_was_asked_for(self) -> None:
        """At the end of a system call for random bytes, put others in their place."""
        frame = gdb.newest_frame()
        count, at = (int(frame.read_register(name)) for name in ("rax", "rdi"))
        if count == -ENOSYS:  # so it is at the call's beginning
            self.do("continue")
        elif count > 0:
            gdb.selected_inferior().write_memory(at, RANDOM_BYTES[:1] * count)
            self.do(f"delete {self.randomness}")

    def ask(self, command: str) -> str:
        """What GDB answers, with what it refuses as an answer, too."""
        try:
            said = str(gdb.execute(command, to_string=True))
            return re.sub(self.plan["vague"], "", said) if self.plan["vague"] else said
        except gdb.error as error:
            return f"refused: {error}"

    def do(self, command: str) -> None:
        """Have GDB do something, and write down what came of it."""
        self.event, self.hit = None, []
        self.counts = {point.number: point.hit_count for point in gdb.breakpoints()}
        # How a program stopped GDB says to its own output only, where this tells what is whose.
        gdb.write(MARK.format(self.records))
        gdb.flush()
        said = self.ask(command)
        if self.ended is not None:
            self.write(command, {"ended": self.ended})
            gdb.write(MARK.format(self.records))
            raise Over
        children = [int(number) for number in CHILDREN.findall(said)]
        what: dict[str, Any] = {"said": self.without_ids(said), "children": children}
        if self.event is not None:
            what |= {"why": self._why(), **self.look()}
            self.stops += 1
        self.write(command, what)
        if self.event is not None and self.randomness in self.hit:
            self._fix_what_was_asked_for()

    def write(self, command: str, what: dict[str, Any]) -> None:
        """Append a record, and before it what has changed of the maps and the threads."""
        if self.ended is None:
            self._write_background()
        self.out.write(json.dumps({"number": self.records, "did": command, **what}) + "\n")
        self.records += 1

    def _write_background(self) -> None:
        inferior = gdb.selected_inferior()
        maps = [
            " ".join(line.split(maxsplit=5))
            for line in Path(f"/proc/{inferior.pid}/maps").read_text().splitlines()
        ]
        tids = sorted((thread.num, thread.ptid[1]) for thread in inferior.threads())
        ids = [inferior.pid, *(tid for _, tid in tids)]
        if maps != self.maps or ids != self.tids:
            self.maps, self.tids = maps, ids
            self.out.write(json.dumps({"maps": maps, "tids": ids}) + "\n")

    def without_ids(self, text: str) -> str:
        """Put numbers of our own in the place of those that the kernel gives."""
        if self.plan["threads_vary"]:
            text = re.sub(r"\[(New Thread|Switching to|Thread) .*\]\n", "", text)
        # Of several places, the one with the lowest address is named.
        text = re.sub(r" at 0x[0-9a-f]+.* \((\d+ locations)\)", r" at \1", text)
        names = {tid: f"#{name}" for name, tid in reversed(list(enumerate(self._ids())))}

        def named(found: re.Match[str]) -> str:
            return re.sub(r"\d+", lambda number: names.get(int(number[0]), "#"), found[0])

        return IDS.sub(named, text)

    def _ids(self) -> list[int]:
        inferior = gdb.selected_inferior()
        threads = sorted(inferior.threads(), key=lambda thread: int(thread.num))
        return [inferior.pid, *(thread.ptid[1] for thread in threads if thread.ptid[1])]

    def _why(self) -> str:
        if self.hit:
            return "at " + " ".join(map(str, self.hit))
        if isinstance(self.event, gdb.SignalEvent):
            return str(self.event.stop_signal)
        return "stepped"

    def look(self) -> dict[str, Any]:
        """All that GDB tells of the thread that stands."""
        frame = gdb.newest_frame()
        if frame.name() in self.plan["left_alone"]:
            return {"thread": gdb.selected_thread().num, "function": frame.name()}
        place = frame.find_sal()
        found = {
            "thread": gdb.selected_thread().num,
            "function": frame.name(),
            "line": f"{place.symtab.filename}:{place.line}" if place.symtab else None,
            "registers": {name: self._register(frame, name) for name in GENERAL},
            "backtrace": list(self._backtrace(frame)),
            "code": self._code(frame),
            "stack": self._words(int(frame.read_register("rsp")) & (1 << 64) - 1),
            "values": {name: self._value(name) for name in self.plan["watched"]},
        }
        if self._is_own(frame):
            found |= {"args": self.ask("info args"), "locals": self.ask("info locals")}
        if self.stops % SEVERAL == 0:
            found |= self._closer_look(frame)
        return found

    def _is_own(self, frame: Any) -> bool:
        """Say whether a function is in the program's own file.

        In others', there are buffers with parts of old addresses, and addresses in disguise.
        """
        return bool(frame.function()) and frame.function().symtab.objfile == self.objfile

    def _register(self, frame: Any, name: str) -> str:
        value = int(frame.read_register(name)) & (1 << 64) - 1
        return hex(value & ~RESUME if name == "eflags" else value)

    def _value(self, name: str) -> str:
        """Return what a variable of the whole program holds: else it may differ unseen for long."""
        try:
            return str(gdb.parse_and_eval(name))
        except gdb.error as error:
            return str(error)

    def _backtrace(self, frame: Any) -> Iterator[str]:
        for _ in range(self.plan["frames"]):
            if frame is None:
                return
            yield f"{frame.pc():#x} {frame.name()} {frame.find_sal().line}"
            try:
                frame = frame.older()
            except gdb.error as error:
                yield str(error)
                return

    def _code(self, frame: Any) -> list[str]:
        try:
            code = frame.architecture().disassemble(frame.pc(), count=8)
        except gdb.MemoryError as error:
            return [str(error)]
        return [f"{one['addr']:#x} {one['asm']}" for one in code]

    def _words(self, at: int) -> list[str]:
        try:
            raw = bytes(gdb.selected_inferior().read_memory(at - 8, 72))
        except gdb.MemoryError as error:
            return [str(error)]
        words = [int.from_bytes(raw[i : i + 8], "little") for i in range(0, 72, 8)]
        return [
            f"{word:#x}{' seconds' if self._is_time(before, word) else ''}"
            for before, word in pairwise(words)
        ]

    def _is_time(self, before: int, word: int) -> bool:
        """Say whether something looks like seconds of the clock, or like nanoseconds after them."""
        now = time.monotonic()
        is_fraction = self.began <= before <= now and word < NANOSECONDS
        return is_fraction or self.began <= word <= now

    def _closer_look(self, frame: Any) -> dict[str, Any]:
        vectors = {}
        for name in VECTORS:
            value = frame.read_register(name)
            parts = value["v4_int64"] if name.startswith("y") else None
            vectors[name] = (
                [hex(int(value) & (1 << 64) - 1)]
                if parts is None
                else [hex(int(parts[i]) & (1 << 64) - 1) for i in range(4)]
            )
        return {
            "vectors": vectors,
            "threads": self._threads(),
            "libraries": self.ask("info sharedlibrary").replace("target:", ""),
            "mappings": named_mappings(self.ask("info proc mappings")),
            "auxv": self.ask("info auxv"),
            "frame": self.ask("info frame"),
            "full backtrace": self.ask(f"bt {self.plan['frames']}"),
            "signals": self.ask("info program").count("\n"),
        }

    def _threads(self) -> list[str]:
        if self.plan["threads_vary"]:
            return []
        threads = gdb.selected_inferior().threads()
        return sorted(f"{thread.num} {thread.name}" for thread in threads)

    def _act(self) -> None:
        self._forget_what_is_unloaded()
        if gdb.newest_frame().name() in self.plan["left_alone"]:
            return self.do("continue")
        kinds = self.plan["weights"]
        kind = self.chance.choices(list(kinds), list(kinds.values()))[0]
        is_unsafe = self.is_delicate and kind in UNSAFE
        is_written_to_data = (kind in LEAVING and not self._returns_to_code()) or (
            kind in STEPPING_OVER and self._is_in_made_code()
        )
        # Where a step into a handler ends, the kernel forgets a signal that it is given.
        is_forgotten = kind.startswith("signal SIG") and self._begins_handler()
        # Natively, a call returns to the stack, which is a fault: where that is blocked, the kernel
        # forgets its handler. And there is a breakpoint on the stack, in other data once the
        # program has jumped out of the call.
        is_fatal = kind == "call" and (self._blocks_faults() or self._is_in("left_by_jumps"))
        if is_unsafe or is_written_to_data or is_forgotten or is_fatal:
            kind = "stepi"
        action: Callable[[], None] | None = getattr(self, f"_act_{kind}", None)
        return action() if action else self.do(kind)

    def _caller(self) -> Any:
        try:
            return gdb.newest_frame().older()
        except gdb.error:
            return None

    def _returns_to_code(self) -> bool:
        caller = self._caller()
        return caller is None or self._mapping(caller.pc())[1][2] == "x"

    def _is_in_made_code(self) -> bool:
        """Say whether this is code of no file, of which nothing is known."""
        frame = gdb.newest_frame()
        return frame.name() is None and len(self._mapping(frame.pc())) < 6

    def _mapping(self, address: int) -> list[str]:
        """Return what the kernel says of the memory at an address."""
        for words in (line.split() for line in self.maps):
            start, end = (int(word, 16) for word in words[0].split("-"))
            if start <= address < end:
                return words
        return ["", "----"]

    def _begins_handler(self) -> bool:
        frame, caller = gdb.newest_frame(), self._caller()
        function = frame.function()
        is_called = caller is not None and caller.type() == gdb.SIGTRAMP_FRAME
        return is_called and bool(function) and int(function.value().address) == frame.pc()

    def _blocks_faults(self) -> bool:
        """Say whether it is in a handler of SIGSEGV, or perhaps on the way out of one."""
        frame = gdb.newest_frame()
        is_on_way = bool(self.plan["blocking_faults"]) and frame.type() == gdb.SIGTRAMP_FRAME
        return is_on_way or self._is_in("blocking_faults")

    def _is_in(self, functions: str) -> bool:
        """Say whether some of the plan's functions are being executed."""
        names = (line.split()[1] for line in self._backtrace(gdb.newest_frame()))
        return any(name in self.plan[functions] for name in names)

    def _somewhere(self) -> str:
        """A place for a breakpoint."""
        functions: list[str] = self.plan["functions"]
        if self.lines and self.chance.random() < 0.4:
            return self.chance.choice(self.lines)
        return self.chance.choice(functions)

    def _make_point(self, command: str) -> None:
        """Make a breakpoint or the like, and forget the oldest if there are too many."""
        before = {point.number for point in gdb.breakpoints()}
        self.do(command)
        made = {point.number for point in gdb.breakpoints()} - before
        known = {point.number for point in gdb.breakpoints()}
        self.points = [number for number in self.points if number in known] + sorted(made)
        while len(self.points) > MOST_BREAKPOINTS:
            self.do(f"delete {self.points.pop(0)}")
        while hardware := self._hardware():
            self.do(f"delete {hardware}")
            self.points.remove(hardware)
        for number in sorted(self._inserted_twice() & made):
            self.do(f"delete {number}")
            self.points.remove(number)

    def _forget_what_is_unloaded(self) -> None:
        """Delete breakpoints in a library that is about to go, if the program stops meanwhile.

        gdbserver cannot take those out any more then, and takes them to be there from then on:
        when the library comes back, they are never hit.
        """
        if not self._is_in("unloading"):
            return
        unloaded = [
            point.number
            for point in gdb.breakpoints()
            if point.number in self.points and point.location in self.plan["unloaded"]
        ]
        for number in unloaded:
            self.do(f"delete {number}")
            self.points.remove(number)

    def _inserted_twice(self) -> set[int]:
        """Return breakpoints that GDB 13 would insert twice, and then fail to take out twice.

        It compares each with the one before it at the same address only, its own for `finish` and
        the like first: so of those between which there is one of the processor's.
        """
        behind: set[int] = set()
        twice = set()
        for point in sorted(gdb.breakpoints(), key=lambda point: int(point.number)):
            if point.type not in (gdb.BP_BREAKPOINT, gdb.BP_HARDWARE_BREAKPOINT):
                continue
            places = {int(location.address) for location in point.locations}
            if point.type == gdb.BP_HARDWARE_BREAKPOINT:
                behind |= places
            elif behind & places:
                twice.add(int(point.number))
        return twice

    def _hardware(self) -> int | None:
        """Of what the processor looks after the oldest, if that is more than it can."""
        registers = [
            point.number
            for point in gdb.breakpoints()
            if point.type in HARDWARE
            for _ in (point.locations if point.type == gdb.BP_HARDWARE_BREAKPOINT else [None])
        ]
        return registers[0] if len(registers) > MOST_HARDWARE else None

    def _act_break(self) -> None:
        condition = self.chance.choice(["", "", *self.plan["conditions"]])
        place, kinds = self._somewhere(), ["break", "break", "break", "tbreak", "hbreak"]
        if self.plan["rewritten"] and self.chance.random() < 0.3:
            place, kinds = self.chance.choice(self.plan["rewritten"]), ["hbreak", "thbreak"]
        kind = self.chance.choice(kinds)
        # One of the processor's is forgotten by GDB with its library, and gdbserver has one less
        # for ever. And it is passed by once by who comes back from a fault.
        is_passed = self.plan["mends_faults"] and place in self.lines
        if kind == "hbreak" and (is_passed or place in self.plan["unloaded"]):
            kind = "break"
        self._make_point(f"{kind} {place}{' if ' * bool(condition)}{condition}")

    def _act_watch(self) -> None:
        if self.plan["watched"]:
            kind = self.chance.choice(["watch", "watch", "rwatch", "awatch"])
            self._make_point(f"{kind} {self.chance.choice(self.plan['watched'])}")
            self.do("continue")

    def _act_catch(self) -> None:
        self._make_point(f"catch {self.chance.choice(self.plan['caught'])}")
        self.do("continue")

    def _act_toggle(self) -> None:
        if self.points:
            number = self.chance.choice(self.points)
            self.do(self.chance.choice(["disable", "enable", "delete"]) + f" {number}")

    def _act_ignore(self) -> None:
        if self.points:
            self.do(f"ignore {self.chance.choice(self.points)} {self.chance.randrange(1, 6)}")

    def _act_advance(self) -> None:
        self.do(f"advance {self._somewhere()}")

    def _act_stepping(self) -> None:
        """Several instructions at once, of which only the last is shown."""
        self.do(f"stepi {self.chance.randrange(2, 40)}")

    def _act_call(self) -> None:
        if self.plan["calls"]:
            self.do(f"print {self.chance.choice(self.plan['calls'])}")

    def _act_set(self) -> None:
        if self.plan["set"]:
            name = self.chance.choice(self.plan["set"])
            self.do(f"set var {name} = {self.chance.randrange(1000)}")
            self.do(f"print {name}")

    def _act_register(self) -> None:
        """Write what a register holds already: nothing may change."""
        name = self.chance.choice(GENERAL[:16])
        self.do(f"set ${name} = ${name}")

    def _act_jump(self) -> None:
        self.do("jump *$pc")

    def _act_frames(self) -> None:
        self.do(f"frame {self.chance.randrange(3)}")
        if self._is_own(gdb.selected_frame()):
            self.do("info locals")
        self.do("frame 0")

    def _act_memory(self) -> None:
        self.do(self.chance.choice(["x/4gx $sp", "x/12i $pc-0", "x/16xb $pc", "info symbol $pc"]))

    def _act_thread(self) -> None:
        threads = sorted(thread.num for thread in gdb.selected_inferior().threads())
        self.do(f"thread {self.chance.choice(threads)}")


def named_mappings(text: str) -> list[str]:
    """Of all mappings those that have names, in any order: size, offset, rights, name."""
    lines = [line.split() for line in text.splitlines()]
    return sorted(" ".join(words[2:]) for words in lines if len(words) == 6)


def drive(plan_file: str) -> None:
    """Do what a file of JSON says."""
    plan = json.loads(Path(plan_file).read_text())
    for setting in SETTINGS:
        gdb.execute(setting)
    with Path(plan["out"]).open("w", buffering=1) as out:
        Walk(plan, out).go()
