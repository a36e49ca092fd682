"""The programs that are walked through, and what is done with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.zoo.inputs import statements

SOURCE_WEIGHTS = {
    **{"stepi": 25, "step": 20, "next": 15, "continue": 25, "finish": 6, "until": 4, "nexti": 4},
    **{"stepping": 3, "advance": 3, "break": 5, "toggle": 2, "ignore": 1, "watch": 1, "catch": 1},
    **{"call": 2, "set": 2, "register": 1, "jump": 1, "frames": 3, "memory": 2},
}
"""How often what is done in a program of which GDB knows the lines."""
BINARY_WEIGHTS = {
    **{"stepi": 40, "nexti": 10, "continue": 30, "finish": 6, "stepping": 6, "advance": 3},
    **{"break": 6, "toggle": 2, "ignore": 1, "catch": 1, "call": 1, "register": 1},
    **{"jump": 1, "frames": 1, "memory": 2},
}
"""The same for one of which it knows the names of functions only."""

ENDLESS = "100000"
"""More rounds than any walk gets through."""


@dataclass(frozen=True)
class Walk:
    """A program, and what may be done with it."""

    program: str
    """The name of a recipe, or an installed program's path."""
    functions: Sequence[str]
    arguments: Sequence[str] = (ENDLESS,)
    first: Sequence[str] = ("tbreak main", "continue", "break do_round")
    """What is done before the walk. A breakpoint in the loop keeps all that follows short."""
    unseen: Sequence[str] = ()
    """What is done even before that, and not compared."""
    lines: bool = True
    """Whether breakpoints are set at any line of the file that has `main`."""
    weights: dict[str, int] = field(default_factory=lambda: SOURCE_WEIGHTS)
    conditions: Sequence[str] = ("(total & 3) == 1", "scratch > 40", "$rdi < 5")
    rewritten: Sequence[str] = ()
    """Where code is written again and again: natively, over breakpoints that are not hardware's."""
    watched: Sequence[str] = ("total", "scratch")
    calls: Sequence[str] = ("twice(21)", "twice(total)")
    set: Sequence[str] = ("scratch",)
    caught: Sequence[str] = ("syscall write", "syscall mmap brk", "syscall")
    frames: int = 12
    asks_for_random_bytes: bool = True
    """Whether the C library does so, which is the first time that memory is asked for."""
    threads_vary: bool = False
    """Whether there are threads that come and go when they like."""
    varying: str = "$."
    """What is different natively, too: a pattern of paths in a record."""
    vague: str = ""
    """What GDB itself does not know, and says all the same: a pattern of text."""
    left_alone: Sequence[str] = ()
    """Functions that do not take the same way each time: the walk goes on from there at once."""
    blocking_faults: Sequence[str] = ()
    """Functions that handle SIGSEGV."""
    mends_faults: bool = False
    """Whether handlers of faults go on behind them."""
    left_by_jumps: Sequence[str] = ()
    """Functions that a signal's handler jumps out of."""
    unloaded: Sequence[str] = ()
    """Places in a library that comes and goes."""
    unloading: Sequence[str] = ("_dl_close_worker",)
    """Functions that give back the memory of a library."""
    prepare: Callable[[Path], object] = lambda folder: None
    variables: dict[str, str] = field(default_factory=dict)

    def plan(self, stops: int, seed: int) -> dict[str, Any]:
        """What ``driver`` wants to know."""
        return {
            "stops": stops,
            "seed": seed,
            "first": self.first,
            "unseen": self.unseen,
            "first_steps": 15,
            "lines": self.lines,
            "functions": self.functions,
            "rewritten": self.rewritten,
            "weights": self.weights,
            "conditions": self.conditions,
            "watched": self.watched,
            "calls": self.calls,
            "set": self.set,
            "caught": self.caught,
            "frames": self.frames,
            "left_alone": self.left_alone,
            "vague": self.vague,
            "blocking_faults": self.blocking_faults,
            "mends_faults": self.mends_faults,
            "left_by_jumps": self.left_by_jumps,
            "unloaded": self.unloaded,
            "unloading": self.unloading,
            "threads_vary": self.threads_vary,
            "asks_for_random_bytes": self.asks_for_random_bytes,
        }


_BINARY: dict[str, Any] = {
    "lines": False,
    "weights": BINARY_WEIGHTS,
    "conditions": ("$rdi < 5", "$rsi & 1"),
    "watched": (),
    # Of those that leave vectors alone: gdbserver cannot put all of them back on new processors.
    "calls": ("(int)abs(-7)", "(long)labs(-8)", "(int)isalpha(65)"),
    "set": (),
}
"""What is done with a program of which GDB knows the names of some functions."""

PYTHON = """
import collections, json, re
class Point:
    def __init__(self, x, y): self.x, self.y = x, y
    def __add__(self, other): return Point(self.x + other.x, self.y + other.y)
def numbers(n):
    for i in range(n):
        try:
            if i % 7 == 3: raise ValueError(i)
            yield i * 1.5
        except ValueError as error:
            yield error.args[0]
for round in range(100000):
    sums = sum((Point(i, round) for i in range(5)), Point(0, 0))
    text = json.dumps({"x": sums.x, "list": list(numbers(10)), "round": str(round)})
    words = collections.Counter(re.findall("[a-z]+", text))
    found = sorted(words.items(), key=lambda item: item[1])
"""


def quiet_statements(folder: Path) -> None:
    """Write what sqlite3 shall do, and have it say nothing: GDB has the same output."""
    statements("statements.sql", 3000)(folder)
    text = (folder / "statements.sql").read_text()
    (folder / "work.sql").write_text(f".output /dev/null\n{text}")


def redis_data(folder: Path) -> None:
    """Write commands that redis-server carries out when it starts, in their order."""
    lines: list[list[str]] = [["SELECT", "0"]]
    for number in range(3000):
        key = f"key:{number % 100}"
        lines += [
            ["SET", key, str(number)],
            ["INCR", key],
            ["LPUSH", f"list:{number % 7}", f"value {number}"],
            ["HSET", "hash", f"field{number % 50}", key],
            ["ZADD", "sorted", str(number % 13), key],
        ]
    words = "".join(
        f"*{len(line)}\r\n" + "".join(f"${len(word)}\r\n{word}\r\n" for word in line)
        for line in lines
    )
    (folder / "redis.conf").write_text(
        f'port 0\nunixsocket {folder}/socket\nlogfile {folder}/log\nsave ""\n'
        f"appendonly yes\ndir {folder}\n"
    )
    kept = folder / "appendonlydir"
    kept.mkdir()
    (kept / "appendonly.aof.1.incr.aof").write_bytes(words.encode())
    (kept / "appendonly.aof.manifest").write_text("file appendonly.aof.1.incr.aof seq 1 type i\n")


_C = (
    *("do_round", "make", "area", "ackermann", "sum_of", "by_x", "sort_points", "write_words"),
    *("mix", "drop_figures", "twice", "weigh", "calloc", "qsort", "strchr"),
)
_CPP = (
    *("do_round", "largest<int>", "Ring<double, 4>::put", "check", "attempt", "rethrown"),
    *("Bird::legs", "Spider::legs", "Guard::~Guard", "sum_of<int, long, char>", "__cxa_throw"),
    *("Unfit::Unfit", "twice", "_Unwind_RaiseException"),
)
_CATCHES = ("syscall write", "syscall mmap brk", "throw", "catch", "rethrow")

_LOADED = ("loaded", "inner", "loaded.c:9")
WALKS = {
    "c_O0": Walk("debug_c_O0", _C),
    "c_O2": Walk("debug_c_O2", _C),
    "static": Walk("debug_static", _C),
    "musl": Walk("debug_musl", _C, asks_for_random_bytes=False),
    "cpp_O0": Walk("debug_cpp_O0", _CPP, caught=_CATCHES),
    "cpp_O2": Walk(
        "debug_cpp_O2",
        _CPP,
        caught=_CATCHES,
        # What shows containers goes round for ever in a variable that does not hold one yet.
        unseen=("set auto-load python-scripts off",),
    ),
    "rust": Walk(
        "debug_rust",
        (
            *("walked::do_round", "walked::largest<i64>", "walked::parse", "walked::twice"),
            *("walked::count_words", "walked::fibonacci", "__rust_alloc", "memcpy"),
            "<walked::Shape as walked::Measured>::area",
        ),
        # GDB 13 ends when it is to show some of what functions return.
        unseen=("set print finish off",),
        first=("tbreak walked::main", "continue", "break walked::do_round"),
        # Of a function, which has no bytes to show, GDB shows some of its own.
        vague=r"\b(char_eq: 0x[0-9a-f]+|f: 0x[0-9a-f]{2,4})\b",
        conditions=("$rdi < 5",),
        watched=("walked::TOTAL",),
        calls=("walked::twice(21)",),
        set=(),
    ),
    "go": Walk(
        "debug_go",
        (
            *("main.doRound", "main.largest", "main.parse", "main.guarded", "main.produce"),
            *("main.consume", "main.fibonacci", "main.circle.area", "runtime.mapassign_faststr"),
            *("runtime.mallocgc", "strconv.Itoa", "runtime.gopanic"),
        ),
        # Hashes begin with what was random; the thread that looks after the others sleeps for an
        # hour; goroutines share the first thread.
        unseen=(
            *("tbreak runtime.main", "continue", "set language c"),
            *(f"set var ((long *)&'runtime.aeskeysched')[{i}] = {i + 1}" for i in range(16)),
            *("set var 'runtime.m0'.fastrand = 1", "set language auto"),
            *("break *'runtime.usleep' if ($rax = 3600000000) == 0", "tbreak main.main"),
            *("continue", "delete", "set scheduler-locking on"),
        ),
        first=("break main.doRound",),
        conditions=("$rax < 5",),
        watched=("main.total",),
        calls=(),
        set=("main.total",),
        asks_for_random_bytes=False,
        threads_vary=True,
        # What the runtime leaves behind depends on how long its other threads took.
        varying=r"stack\[\d\]|locals|registers\.(r8|r9|r1\d)",
        variables={"GOMAXPROCS": "1", "GODEBUG": "asyncpreemptoff=1"},
    ),
    "threads": Walk(
        "debug_turns",
        ("work", "twice", "hand"),
        first=("break work", "continue"),
        lines=False,
        weights={**SOURCE_WEIGHTS, "catch": 0, "stepping": 0},
        left_alone=("await", "settle", "wake"),
        varying=r"stack\[\d\]",  # what was left there by functions that take their own way
    ),
    "signals": Walk(
        "debug_raised",
        (
            *("do_round", "on_plain", "on_info", "on_fault", "on_division", "on_escape", "divide"),
            *("escape", "blocked", "twice", "raise", "sigprocmask", "siglongjmp"),
        ),
        weights={**SOURCE_WEIGHTS, "signal 0": 1, "signal SIGUSR2": 1},
        caught=("syscall kill", "syscall rt_sigreturn", "signal SIGUSR1", "signal all"),
        blocking_faults=("on_fault",),
        mends_faults=True,
        left_by_jumps=("escape",),
        # Of what a frame has room for, the processor writes only what is in use.
        varying=r"stack\[\d\]",
    ),
    "jumps": Walk(
        "debug_jumps",
        (
            *("do_round", "descend", "middle", "caught", "coroutine", "many_returns", "twice"),
            *("longjmp", "swapcontext"),
        ),
    ),
    "forks": Walk(
        "debug_brood",
        ("do_round", "work", "ask_child", "twice", "waitpid", "pipe", "fork"),
        varying=r"registers\.(eflags|r11)",  # of comparing process ids
        caught=("fork", "syscall pipe", "syscall wait4", "syscall close"),
    ),
    "jit": Walk(
        "debug_jit",
        (
            *("do_round", "call", "put", "announce", "withdraw", "twice", "memcpy"),
            "__jit_debug_register_code",
        ),
        rewritten=("made_function", "*0x10000000", "*0x10000007"),
    ),
    "dlopen": Walk(
        "debug_loading",
        ("do_round", "use", "twice", "dlsym", "dlclose", *_LOADED),
        ("{program}.so", ENDLESS),
        unloaded=_LOADED,
    ),
    "cpython": Walk(
        "/usr/bin/python3.11",
        (
            *("PyObject_Call", "PyDict_SetItem", "PyList_Append", "PyUnicode_FromFormat"),
            *("PyLong_FromLong", "PyObject_GetAttr", "_PyEval_EvalFrameDefault", "PyList_Sort"),
            *("PyObject_Malloc", "PyErr_SetString", "PyErr_Format", "PyNumber_Add", "memcpy"),
        ),
        # Of a script that it is given, Python wants to know when it was written.
        ("-P", "-S", "-c", "exec(open('{folder}/work.py').read())"),
        first=("tbreak Py_BytesMain", "continue", "break PyErr_SetString", "break PyDict_SetItem"),
        prepare=lambda folder: (folder / "work.py").write_text(PYTHON),
        variables={"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"},
        **_BINARY,
    ),
    "sqlite3": Walk(
        "/usr/bin/sqlite3",
        (
            *("sqlite3_step", "sqlite3_prepare_v2", "sqlite3_finalize", "sqlite3_column_text"),
            *("sqlite3_malloc64", "sqlite3_free", "sqlite3_exec", "sqlite3_str_appendf"),
            *("memcpy", "memset", "strlen", "sqlite3_column_count"),
        ),
        ("-init", "{folder}/work.sql", ":memory:", ".quit"),
        first=("tbreak main", "tbreak sqlite3_initialize", "continue", "break sqlite3_step"),
        prepare=quiet_statements,
        **_BINARY,
    ),
    "redis": Walk(
        "/usr/bin/redis-server",
        (
            *("lookupKey", "call", "processCommand", "setCommand", "incrCommand", "lpushCommand"),
            *("dictFind", "dictAdd", "createObject", "sdsnewlen", "createStringObject", "zmalloc"),
            *("zfree", "siphash", "decrRefCount", "memcpy"),
        ),
        ("{folder}/redis.conf",),
        unseen=("tbreak loadAppendOnlyFiles", "continue", "set scheduler-locking on"),
        first=("break setCommand",),
        asks_for_random_bytes=False,
        threads_vary=True,
        prepare=redis_data,
        variables={"LD_PRELOAD": "{still}", "STILL": "redis-server"},
        **_BINARY,
    ),
}
