"""What a debugger does with a program that runs from its clone, beside the same natively.

Each test that names a side is done natively, too: so what is expected is what GDB does.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.e2e.harness import (
    Background,
    answers,
    eventually,
    free_port,
    need,
    redis_clients,
    server,
    status,
    threads,
)
from tests.gdb.rsp import RIP, connected, thread_of
from tests.gdb.sides import (
    NATIVE,
    WEFT,
    commands,
    environment,
    listening,
    run_gdb,
    run_weft_debug,
    weft_debug,
)

Build = Callable[[str], Path]

SIDES = pytest.mark.parametrize("side", [NATIVE, WEFT])
MANY = "1000000"
SYS_RT_TGSIGQUEUEINFO = 297
SI_QUEUE = -1
ASKING = int.from_bytes(b"wefthalt", "little")


@pytest.fixture(autouse=True)
def debuggers() -> None:
    need("gdb", "gdbserver")


def values(printed: str) -> list[str]:
    """Return what GDB has printed as values, in order."""
    return re.findall(r"^\$\d+ = (.*)$", printed, re.MULTILINE)


def hits(printed: str) -> list[int]:
    """Return how often each breakpoint was hit, of those that were."""
    return [int(number) for number in re.findall(r"already hit (\d+) time", printed)]


@SIDES
def test_a_program_stands_at_its_very_beginning(side: str, build: Build) -> None:
    program = build("debug_c_O0")
    steps = commands("info registers rip", "info sharedlibrary", "print $orig_rax")
    printed = run_gdb(side, steps, [program, "3"])
    assert "_start" in printed
    assert values(printed) == ["59"], "it comes from execve"
    assert "libc.so" not in printed


@SIDES
def test_a_program_runs_to_its_end(side: str, build: Build) -> None:
    printed = run_gdb(side, commands("continue"), [build("debug_c_O0"), "3"])
    assert "exited normally" in printed


@SIDES
def test_breakpoints_in_code_that_is_translated_later(side: str, build: Build) -> None:
    """Nothing of the program has been executed when they are set."""
    steps = commands(
        *("tbreak main", "continue", "break twice", "break sort_points", "break qsort"),
        *("break by_x", *(f"ignore {number} 100000" for number in range(2, 6)), "continue"),
        "info breakpoints",
    )
    printed = run_gdb(side, steps, [build("debug_c_O0"), "20"])
    twice, sorts, quick, compared = hits(printed)
    assert (twice, sorts, quick) == (10, 20, 20)
    assert compared > 20


@SIDES
def test_breakpoints_in_code_that_is_hot_already(side: str, build: Build) -> None:
    steps = commands(
        *("break halfway", "continue", "break hot", "ignore 2 100000000", "continue"),
        "info breakpoints",
    )
    printed = run_gdb(side, steps, [build("debug_busy"), "4000"])
    assert hits(printed) == [1, 1999]


@pytest.mark.parametrize(("side", "kind"), [(NATIVE, "hbreak"), (WEFT, "hbreak"), (WEFT, "break")])
def test_breakpoints_in_code_that_changes(side: str, kind: str, build: Build) -> None:
    """Other code is written to the same place before each call: natively, over breakpoints, too."""
    steps = commands(
        *("tbreak put", "continue", "finish", f"{kind} *0x10000007", "ignore 2 100000"),
        *("continue", "info breakpoints"),
    )
    printed = run_gdb(side, steps, [build("debug_jit"), "20"])
    assert hits(printed) == [100]


@SIDES
def test_code_that_was_changed_is_shown_as_it_is(side: str, build: Build) -> None:
    """No breakpoint is to be seen in memory, and what is shown is what will be executed."""
    steps = commands(
        *("tbreak put", "continue", "finish", "hbreak *0x10000007", "continue"),
        *("x/14xb 0x10000000", "x/i $pc", "continue", "continue", "x/i $pc"),
    )
    printed = run_gdb(side, steps, [build("debug_jit"), "5"])
    assert re.search(r"0x10000000.*:\s+0x55\s+0x48\s+0x89\s+0xe5\s+0x8d\s+0x04\s+0x3f\s", printed)
    assert re.search(r"0x10000008.*:\s+0x00\s+0x00\s+0x00\s+0x00\s+0x5d\s+0xc3", printed)
    added = re.findall(r"=> 0x10000007.*:\s+add\s+\$(0x[0-9a-f]+),%eax", printed)
    assert added == ["0x0", "0x1"]


@SIDES
def test_functions_of_a_just_in_time_compiler(side: str, build: Build) -> None:
    steps = commands(
        *("set breakpoint pending on", "break made_function", "continue", "bt 3"),
        *("ignore 1 100000", "continue", "info breakpoints"),
    )
    printed = run_gdb(side, steps, [build("debug_jit"), "10"])
    assert re.search(r"#0 .*made_function.*\n#1 .* in call .*\n#2 .* in do_round", printed)
    # When no breakpoint is left in it, its hits are forgotten: the second withdrawal ends them.
    assert "exited normally" in printed


@SIDES
@pytest.mark.parametrize("kind", ["break", "hbreak", "tbreak"])
def test_a_breakpoint_shows_arguments_and_callers(side: str, kind: str, build: Build) -> None:
    steps = commands(f"{kind} weigh", "continue", "info args", "bt", "finish")
    printed = run_gdb(side, steps, [build("debug_c_O0"), "3"])
    for expected in ("a = 0", "b = 2", "c = 99 'c'", "f = 6.5", "g = 7.25", "i = 9"):
        assert expected in printed
    assert re.search(r"#1 .* in do_round .*\n#2 .* in main", printed)
    assert "Value returned is $1 = 140" in printed


@SIDES
def test_functions_are_called(side: str, build: Build) -> None:
    steps = commands(
        *("break area", "continue", "print twice(21)", "print $rip == (long)$pc"),
        *('print (int)strlen("four")', "print ackermann(2, 2)", "print sum_of(2, 40, 5)"),
    )
    printed = run_gdb(side, steps, [build("debug_c_O0"), "3"])
    assert values(printed)[:5] == ["42", "1", "4", "7", "45"]


@SIDES
def test_functions_are_called_where_no_signal_stops(side: str, build: Build) -> None:
    """A called function returns to where nothing can be executed, which is a fault."""
    steps = commands(
        *("handle all nostop noprint pass", "tbreak on_plain", "continue", "print twice(21)"),
        *("print twice(22)", "delete", "continue"),
    )
    printed = run_gdb(side, steps, [build("debug_raised"), "1"])
    assert values(printed) == ["42", "44"]
    assert "exited normally" in printed


@SIDES
def test_a_debugger_hears_of_what_it_may_need(side: str, build: Build) -> None:
    """A fault may be a breakpoint, and a step has to know what comes between."""
    with (
        listening(side, [build("debug_raised"), "1"]) as where,
        connected(where) as remote,
    ):
        thread = thread_of(remote.ask("?"))
        # SIGHUP, SIGILL, SIGTRAP, SIGFPE, SIGSEGV, SIGCHLD, SIGUSR1, SIGUSR2, SIG34
        assert remote.ask("QPassSignals:1;4;5;8;b;14;1e;1f;2e") == "OK"
        assert remote.ask("vCont;c").startswith("T0b")
        stop = remote.ask(f"vCont;S0b:{thread}")
        while stop.startswith("T05"):
            stop = remote.ask(f"vCont;s:{thread}")
        assert stop.startswith("T08")
        assert re.match("W0+;", remote.ask("vCont;C08"))


@SIDES
def test_a_called_function_stops_at_a_breakpoint(side: str, build: Build) -> None:
    steps = commands(
        *("tbreak main", "continue", "break twice", "print twice(4)", "bt", "finish", "next"),
        "continue",
    )
    printed = run_gdb(side, steps, [build("debug_c_O0"), "1"])
    assert "The program being debugged stopped while in a function called from GDB" in printed
    assert "<function called from gdb>" in printed


@SIDES
def test_memory_and_registers_are_written(side: str, build: Build) -> None:
    steps = commands(
        *("break do_round", "continue", "set var total = 1000", "set var rounds = 0"),
        *("up", "set var rounds = 2", "down", "break twice", "continue", "set $rdi = 50"),
        *("set var number = 50", "finish", "delete", "continue"),
    )
    printed = run_gdb(side, steps, [build("debug_c_O0"), "5"])
    assert "Value returned is $1 = 100" in printed
    assert "exited normally" in printed


@SIDES
def test_jump_and_return(side: str, build: Build) -> None:
    steps = commands(
        *("break weigh", "continue", "return 7", "next", "tbreak area", "continue", "up"),
        *("tbreak do_round", "jump do_round", "bt 2", "delete", "continue"),
    )
    printed = run_gdb(side, steps, [build("debug_c_O0"), "3"])
    assert re.search(r"#0 +do_round", printed)


@SIDES
def test_a_step_ends_where_a_jump_leads(side: str, build: Build) -> None:
    """By the table of a library's functions, into one of them that has been called before."""
    steps = commands(
        *("tbreak main", "continue", "break do_round", "continue", "continue", "until", "step"),
        "bt 2",
    )
    printed = run_gdb(side, steps, [build("debug_jumps"), "100"])
    assert re.search(r"#0 +swapcontext .*\n#1 .* in do_round \(round=1\)", printed)


@SIDES
def test_a_step_ends_behind_a_return(side: str, build: Build) -> None:
    steps = commands(
        *("break twice", "continue", "continue", "continue", "delete", "next", "stepi", "step"),
        "bt 1",
    )
    printed = run_gdb(side, steps, [build("debug_turns"), "100"])
    assert re.search(r"^#0 .*work \(number=3, round=0\) at .*:5\d$", printed, re.MULTILINE)


@SIDES
@pytest.mark.parametrize("meanwhile", ["stepi", "continue"])
def test_what_the_debugger_writes_is_no_change(side: str, meanwhile: str, build: Build) -> None:
    steps = commands(
        *("break hot", "continue", "watch rare", "set var rare = 138", meanwhile, "stepi"),
        *("nexti", "print rare"),
    )
    printed = run_gdb(side, steps, [build("debug_busy"), "100"])
    assert "New value" not in printed
    assert values(printed) == ["138"]


@SIDES
@pytest.mark.parametrize("how", [["continue"], ["stepi"] * 4], ids=["continued", "stepped"])
def test_a_read_watchpoint_stops_at_the_read(side: str, how: list[str], build: Build) -> None:
    """And not at the write that follows."""
    steps = commands("break hot", "continue", "rwatch counter", *how, "info registers rip")
    printed = run_gdb(side, steps, [build("debug_busy"), "100"])
    assert "Hardware read watchpoint 2: counter\n\nValue = 0\n" in printed


@SIDES
def test_a_step_with_a_signal_ends_in_its_handler(side: str, build: Build) -> None:
    steps = commands(
        *("handle SIGFPE SIGSEGV SIGUSR2 nostop noprint pass", "continue", "stepi", "bt 2"),
    )
    printed = run_gdb(side, steps, [build("debug_raised"), "3"])
    assert re.search(r"#0 +on_plain .*\n#1 +<signal handler called>", printed)


@SIDES
def test_a_hardware_watchpoint(side: str, build: Build) -> None:
    steps = commands(
        *("tbreak main", "continue", "watch rare", "continue", "continue", "bt 2", "delete"),
        "continue",
    )
    printed = run_gdb(side, steps, [build("debug_busy"), "3000"])
    assert "Hardware watchpoint 2: rare" in printed
    changes = re.findall(r"Old value = (\d+)\nNew value = (\d+)\nseldom", printed)
    assert changes == [("0", "999"), ("999", "1999")]


@SIDES
def test_a_watchpoint_with_a_condition(side: str, build: Build) -> None:
    steps = commands("tbreak main", "continue", "watch rare if rare > 5000", "continue")
    printed = run_gdb(side, steps, [build("debug_busy"), "20000"])
    assert re.search(r"Old value = 4999\nNew value = 5999\n", printed)


@SIDES
def test_a_watchpoint_for_reading(side: str, build: Build) -> None:
    steps = commands("tbreak main", "continue", "rwatch rounds", "continue", "awatch rare", "c")
    printed = run_gdb(side, steps, [build("debug_busy"), "3000"])
    assert "Value = 3000" in printed


def test_watchpoints_of_any_number_and_size(build: Build) -> None:
    """Natively there are four, of eight bytes; for all others GDB goes by single steps."""
    watched = [f"watch table.words[{number}]" for number in range(12)]
    steps = commands(
        *("tbreak main", "continue", "watch table", *watched, "info breakpoints"),
        *("continue",) * 3,
    )
    printed = run_gdb(WEFT, steps, [build("debug_busy"), "10000"])
    assert printed.count("Hardware watchpoint") >= len(watched) + 1
    assert re.search(r"watchpoint 2: table", printed)
    assert re.search(
        r"watchpoint \d+: table\.words\[2\]\n\nOld value = 0\nNew value = 2999", printed
    )


def rounds_left(printed: str) -> list[tuple[int, int]]:
    """Return which watchpoints have stopped the program, and what GDB has printed then."""
    stop = r"watchpoint (\d+): [^\n]+\n\n(?:Old value|Value) = .*?^\$\d+ = (\d+)$"
    found = re.findall(stop, printed, re.MULTILINE | re.DOTALL)
    return [(int(number), int(left)) for number, left in found]


@SIDES
def test_a_repeated_store_stops_at_each_watched_place(side: str, build: Build) -> None:
    """It goes backwards, which processors do step by step."""
    steps = commands(
        *("tbreak *copies", "continue"),
        *("watch *(int *)(filled + 64)", "watch *(int *)(filled + 128)"),
        *("continue", "print $rcx", "continue", "print $rcx", "delete", "continue"),
    )
    printed = run_gdb(side, steps, [build("debug_filling")])
    assert rounds_left(printed) == [(3, 32), (2, 16)]
    assert "exited normally" in printed


def test_a_repeated_store_stops_each_time_around_that_changes_something(build: Build) -> None:
    """Not when the same is written again. Natively, a fast one may stop some times around later."""
    steps = commands(
        *("tbreak *fills", "continue"),
        *("watch *(int *)(filled + 64)", "watch *(int *)(filled + 128)"),
        *("continue", "print $rcx") * 8,
        *("tbreak *copies", "continue", "delete", "continue"),
    )
    printed = run_gdb(WEFT, steps, [build("debug_filling")])
    first = [(2, left) for left in range(191, 187, -1)]
    assert rounds_left(printed) == first + [(3, left) for left in range(127, 123, -1)]
    assert "Temporary breakpoint 4, " in printed
    assert "exited normally" in printed


@SIDES
def test_a_repeated_store_that_faults_before_a_watched_place(side: str, build: Build) -> None:
    steps = commands(
        *("tbreak *fills", "continue", "watch *(int *)(pages + 9000)", "continue", "print $rcx"),
        *("continue", "delete", "continue"),
    )
    printed = run_gdb(side, steps, [build("debug_gap")])
    assert "received signal SIGSEGV" in printed
    assert values(printed) == ["8192"], "all that is left, not only until there"
    assert printed.count("New value") == 1
    assert "exited normally" in printed


@SIDES
def test_steps_through_a_repeated_store_see_watched_places(side: str, build: Build) -> None:
    steps = commands(
        *("tbreak *fills", "continue", "watch *(short *)(filled + 1)"),
        *("stepi", "print $rcx") * 4,
        *("delete", "tbreak copies", "continue", "print (int)filled[255]"),
    )
    printed = run_gdb(side, steps, [build("debug_filling")])
    assert rounds_left(printed) == [(2, 254), (2, 253)]
    assert values(printed) == ["255", "254", "253", "252", "1"]


@SIDES
def test_a_repeated_load_stops_at_each_watched_place(side: str, build: Build) -> None:
    """Until it has found what it looks for."""
    steps = commands(
        *("tbreak *finds", "continue", "awatch filled[20]", "awatch filled[30]"),
        *("awatch filled[200]", "break found", *("continue", "print $rcx") * 2),
        *("continue", "print left", "continue"),
    )
    printed = run_gdb(side, steps, [build("debug_filling")])
    assert rounds_left(printed) == [(2, 235), (3, 225)]
    assert values(printed)[-1] == "155"
    assert "exited normally" in printed


def test_a_repeated_store_is_not_held_up_within_much_that_is_watched(build: Build) -> None:
    """It stops behind what is too large for the processor's own watchpoints."""
    steps = commands(
        *("tbreak *fills", "continue", "watch *(char (*)[100])(filled + 50)"),
        *("watch *(int *)(filled + 200)", *("continue", "print $rcx") * 2),
    )
    printed = run_gdb(WEFT, steps, [build("debug_filling")])
    assert rounds_left(printed) == [(2, 106), (3, 55)]


def test_a_condition_that_is_false_a_million_times(build: Build) -> None:
    steps = commands("break hot if number == 999999", "continue", "print number", "delete", "c")
    start = time.monotonic()
    printed = run_gdb(WEFT, steps, [build("debug_busy"), MANY])
    assert values(printed) == ["999999"]
    assert time.monotonic() - start < 20


@SIDES
def test_a_condition_of_globals_and_memory(side: str, build: Build) -> None:
    steps = commands(
        *("break hot if number > 1500 && rare == 999 && table.words[0] == 999", "continue"),
        *("print number", "info breakpoints"),
    )
    printed = run_gdb(side, steps, [build("debug_busy"), "2000"])
    assert values(printed) == ["1501"]
    assert hits(printed) == [1]


@SIDES
def test_signals_are_stopped_at_passed_and_suppressed(side: str, build: Build) -> None:
    steps = commands(
        *("handle SIGUSR2 nostop noprint pass", "handle SIGFPE SIGSEGV nostop noprint pass"),
        *("handle SIG34 nostop noprint", "continue", "print $_siginfo.si_signo", "bt 4"),
        *("break on_plain", "continue", "print number", "bt 3", "delete", "continue"),
        *("print $_siginfo.si_signo", "signal 0"),
    )
    printed = run_gdb(side, steps, [build("debug_raised"), "1"])
    assert values(printed) == ["10", "10", "1"]
    assert "Program received signal SIGUSR1" in printed
    assert "<signal handler called>" in printed
    assert "Program received signal SIGHUP" in printed
    assert "exited normally" in printed


@SIDES
def test_a_fault_is_where_it_happens(side: str, build: Build) -> None:
    steps = commands(
        *("handle SIGUSR1 SIGUSR2 SIGHUP SIG34 nostop noprint pass", "continue"),
        *("print $_siginfo.si_signo", "print $_siginfo._sifields._sigfault.si_addr == guarded"),
        *("info symbol $pc", "continue", "print $_siginfo.si_signo", "info symbol $pc"),
    )
    printed = run_gdb(side, steps, [build("debug_raised"), "1"])
    assert values(printed) == ["11", "1", "8"]
    assert len(re.findall(r"^main \+ \d+ in section .text", printed, re.MULTILINE)) == 2


@SIDES
def test_a_call_at_a_fault_leaves_what_is_known_of_it(side: str, build: Build) -> None:
    steps = commands(
        *("handle SIGUSR1 SIGUSR2 SIGHUP SIG34 nostop noprint pass", "continue"),
        *(
            "print twice(21)",
            "break on_fault",
            "continue",
            "print info->_sifields._sigfault.si_addr == guarded",
        ),
    )
    printed = run_gdb(side, steps, [build("debug_raised"), "1"])
    assert values(printed) == ["42", "1"]


QUIET = "handle SIGUSR1 SIGUSR2 SIG34 SIGFPE SIGSEGV nostop noprint pass"


@SIDES
def test_a_step_is_over_before_the_signal_that_it_brings(side: str, build: Build) -> None:
    """The next one is told of the signal, and the one after that ends in the handler."""
    at = ("print (long)$pc - (long)&kill", "print $orig_rax", "print $r11 & 0x100")
    steps = commands(
        *(QUIET, "tbreak kill", "continue", "stepi", "stepi", "echo stepped\\n", *at),
        *("stepi", "echo told\\n", *at, "stepi", "info symbol $pc"),
    )
    printed = run_gdb(side, steps, [build("debug_raised"), "1"])
    assert values(printed) == ["7", "62", "256"] * 2
    stepped, told = printed.index("stepped\n"), printed.index("told\n")
    assert stepped < printed.index("Program received signal SIGHUP") < told
    assert "on_escape in section .text" in printed


@SIDES
def test_a_caught_call_ends_before_the_signal_that_it_brings(side: str, build: Build) -> None:
    steps = commands(QUIET, "catch syscall kill", "continue", "continue", "continue", "stepi")
    printed = run_gdb(side, steps, [build("debug_raised"), "1"])
    order = ["(call to syscall kill)", "(returned from syscall kill)", "signal SIGHUP", "on_escape"]
    places = [printed.index(text) for text in order]
    assert places == sorted(places)
    assert printed.count("returned from") == 1


@SIDES
def test_a_signal_that_is_blocked_waits(side: str, build: Build) -> None:
    """One that the debugger gives the program in the handler of the same is told of afterwards."""
    steps = commands(
        *("handle SIGUSR1 SIGHUP SIG34 SIGFPE SIGSEGV nostop noprint pass", "continue"),
        *("break on_plain", "continue", "print number", "signal SIGUSR2", "bt 2", "continue"),
        *("print number",),
    )
    printed = run_gdb(side, steps, [build("debug_raised"), "2"])
    assert values(printed) == ["12", "12"]
    assert printed.count("Program received signal SIGUSR2") == 2


@SIDES
def test_a_step_does_not_stop_at_a_caught_call(side: str, build: Build) -> None:
    steps = commands(
        *(QUIET, "tbreak kill", "continue", "catch syscall kill", "stepi 2"),
        "print (long)$pc - (long)&kill",
    )
    printed = run_gdb(side, steps, [build("debug_raised"), "1"])
    assert values(printed) == ["7"]
    assert "Catchpoint 3 (" not in printed.split("(syscall 'kill' [62])")[1]


@SIDES
def test_system_calls_are_caught(side: str, build: Build) -> None:
    steps = commands("catch syscall write", "continue", "print $rdi", "bt 1", "continue", "p $rax")
    printed = run_gdb(side, steps, [build("debug_c_O0"), "1"])
    assert "(call to syscall write)" in printed
    assert "(returned from syscall write)" in printed
    assert values(printed)[0] == "1"


@SIDES
def test_programs_that_become_others_are_followed(side: str, build: Build) -> None:
    steps = commands(
        *("set breakpoint pending on", "tbreak weigh", "continue", "bt 2", "info args", "continue"),
    )
    printed = run_gdb(side, steps, [Path("/usr/bin/env"), build("debug_c_O0"), "3"])
    assert "is executing new program" in printed
    assert re.search(r"#0 +weigh .*\n#1 .* in do_round", printed)
    assert "exited normally" in printed


def test_a_program_is_run_again(build: Build) -> None:
    steps = commands("tbreak main", "continue", "tbreak main", "run", "bt 1", "continue")
    printed = run_weft_debug(steps, [build("debug_c_O0"), "3"])
    assert len(re.findall(r"Temporary breakpoint \d, main \(argc=2", printed)) == 2
    assert "exited normally" in printed


@SIDES
def test_threads_have_names_and_storage_of_their_own(side: str, build: Build) -> None:
    steps = commands(
        *("break work if number == 4", "continue", "info threads", "print own"),
        *("thread 2", "print own", "thread apply all -q bt 1"),
    )
    printed = run_gdb(side, steps, [build("debug_turns"), "3"])
    for number in range(1, 5):
        assert f'"worker {number}"' in printed
    assert len(re.findall(r"^[* ] \d+ +Thread", printed, re.MULTILINE)) == 5


@SIDES
def test_libraries_come_and_go(side: str, build: Build) -> None:
    steps = commands(
        *("set breakpoint pending on", "break inner", "continue", "bt 3", "info sharedlibrary"),
        *("ignore 1 10000", "continue", "info breakpoints"),
    )
    program = build("debug_loading")
    printed = run_gdb(side, steps, [program, f"{program}.so", "5"])
    assert re.search(r"#0 +inner.*\n#1 .* loaded .*\n#2 .* use ", printed)
    assert hits(printed) == [20]


@SIDES
def test_a_breakpoint_goes_with_its_library(side: str, build: Build) -> None:
    """GDB does not take it out of memory that is not there; and so it is not there again."""
    steps = commands(
        *("set breakpoint pending on", "break inner", "tbreak twice", "continue", "continue"),
        *("continue", "continue", "continue", "delete", "continue"),
    )
    program = build("debug_loading")
    printed = run_gdb(side, steps, [program, f"{program}.so", "5"])
    assert "breakpoint 2, twice" in printed
    assert "exited normally" in printed


@SIDES
def test_a_program_that_is_left_goes_on(side: str, build: Build) -> None:
    """It must end as if nobody had ever looked at it."""
    with Background([build("debug_waiting")]) as program:
        steps = commands("bt", "info threads", "break work", "detach")
        run_gdb(side, steps, program.pid)
        assert program.process.poll() is None
        assert status(program.pid)["TracerPid"] == "0"
        assert program.finish() == (0, "ready\ndone\n")


@SIDES
@pytest.mark.parametrize("does", ["waits", "works"])
@pytest.mark.parametrize("how", ["handles", "dies"])
@pytest.mark.parametrize("passed", ["pass", "nopass"])
def test_a_program_that_is_left_gets_its_signal(
    side: str, does: str, how: str, passed: str, build: Build
) -> None:
    """As GDB has been told: one that it stands at is still the program's."""
    steps = commands(
        *(f"handle SIGALRM stop print {passed}", "set var begins = 1", "continue", "detach")
    )
    with Background([build("debug_alarmed"), does, how]) as program:
        printed = run_gdb(side, steps, program.pid)
        assert "received signal SIGALRM" in printed
        code, said = program.finish()
    expected = {
        ("pass", "handles"): (0, "ready\nheard\n"),
        ("pass", "dies"): (-signal.SIGALRM, "ready\n"),
    }
    assert (code, said) == expected.get((passed, how), (0, "ready\nnot heard\n"))


@SIDES
def test_a_program_is_killed(side: str, build: Build) -> None:
    with Background([build("debug_waiting")]) as program:
        run_gdb(side, commands("bt 1", "kill"), program.pid)
        assert program.process.wait(timeout=10) == -signal.SIGKILL


@SIDES
@pytest.mark.watchdog(180)
def test_a_server_is_looked_at_and_left(side: str, tmp_path: Path) -> None:
    """Its clients see no error."""
    need("redis-server", "redis-benchmark")
    port = free_port()
    options = ["--port", str(port), "--save", "", "--appendonly", "no", "--dir", str(tmp_path)]
    options += ["--logfile", str(tmp_path / "log")]
    with server(["redis-server", *options], lambda: answers(port)) as pid:
        steps = commands(
            *("info threads", "bt", "break setCommand", "continue", "bt 4", "info registers"),
            *("x/8i $pc", "stepi", "stepi", "finish", "delete", "detach"),
        )
        with redis_clients(port, "set", "get", "incr"):
            printed = run_gdb(side, steps, pid)
    assert re.search(r"#0 .*setCommand.*\n#1 .* call ", printed), printed


def test_a_core_is_read_as_if_the_program_had_run_alone(build: Build, tmp_path: Path) -> None:
    program = build("debug_waiting")
    core = tmp_path / "core"
    with Background([program]) as running:
        subprocess.run(
            [*weft_debug("--core", str(core)), str(running.pid)], env=environment(), check=True
        )
        assert running.process.poll() is None
        assert running.finish() == (0, "ready\ndone\n")
    done = subprocess.run(
        ["gdb", "-batch", "-nx", *commands("bt", "info proc mappings"), program, core],
        capture_output=True,
        text=True,
    )
    assert re.search(r"#\d+ .* in read_all .*\n#\d+ .* in main", done.stdout), done.stdout
    assert "memfd:weft" not in done.stdout
    assert "/dev/zero" not in done.stdout


def test_lldb_connects(build: Build) -> None:
    """With gdbserver it does not get on: it takes breakpoints for signals."""
    need("lldb")
    program = build("debug_c_O0")
    steps = (
        *("breakpoint set --name weigh", "continue", "thread backtrace", "frame variable"),
        *("register read rip", "thread step-in", "thread step-inst", "process kill"),
    )
    with listening(WEFT, [program, "3"]) as address:
        words = [word for step in (f"gdb-remote {address}", *steps) for word in ("-o", step)]
        done = subprocess.run(
            ["lldb", "--batch", "--no-lldbinit", *words, program],
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert "stop reason = breakpoint 1.1" in done.stdout, done.stdout + done.stderr
    assert re.search(r"frame #0: .*weigh\(a=0, b=2, c='c'", done.stdout)
    assert re.search(r"frame #1: .*do_round", done.stdout)
    assert "g = 7.25" in done.stdout


@pytest.fixture(params=[NATIVE, WEFT])
def address(request: pytest.FixtureRequest, build: Build) -> Iterator[str]:
    """A server that waits for whoever connects, with a program."""
    with listening(request.param, [build("debug_busy"), "100"]) as where:
        yield where


def test_a_client_that_is_not_gdb(address: str) -> None:
    with connected(address) as remote:
        thread = thread_of(remote.ask("?"))
        before = remote.register(RIP)
        # Numbers may be written with a zero before them.
        stepped = thread_of(remote.ask(f"vCont;s:{thread}"))
        assert re.sub(r"\b(p?)0+", r"\1", stepped) == re.sub(r"\b(p?)0+", r"\1", thread)
        assert remote.register(RIP) != before
        assert remote.ask("vMustReplyEmpty") == ""


def ask_once_more(pid: int, tid: int) -> None:
    """Ask a thread to stand still as weft does, and as it does once more when that takes long."""
    info = struct.pack("<iiiixxxxxxxxQ", signal.SIGSEGV, 0, SI_QUEUE, 0, ASKING).ljust(128, b"\0")
    result = ctypes.CDLL(None).syscall(SYS_RT_TGSIGQUEUEINFO, pid, tid, signal.SIGSEGV, info)
    assert result == 0


@pytest.mark.parametrize("how", ["plainly", "filtered"])
def test_a_sleeper_that_is_asked_before_it_sleeps_on_is_not_woken(build: Build, how: str) -> None:
    """The kernel forgets that a call is to be gone on with when a handler returns.

    And a filter may not let it go on with it: then it begins anew.
    """
    with Background([build("debug_sleeping"), how]) as program:
        with listening(WEFT, program.pid) as where, connected(where) as remote:
            remote.ask("?")
            for tid in threads(program.pid):
                ask_once_more(program.pid, tid)
            for _ in range(3):
                remote.send("vCont;c")
                remote.interrupt()
                assert remote.receive().startswith("T")
            assert remote.ask(f"D;{program.pid:x}") == "OK"
        assert program.finish() == (0, "ready\nwell\n")


@pytest.mark.parametrize("moment", [0.0, 0.001, 0.002, 0.004])
def test_a_sleeper_is_not_woken_when_weft_is_killed(build: Build, moment: float) -> None:
    """It stands still without a signal, which would be its own then.

    The first thread, which is asked by one, reads; if that fails, it ends the program well.
    """
    sleeps = {"0", "35", "219", "230"}  # read, nanosleep, restart_syscall, clock_nanosleep

    def is_asleep(tid: int) -> bool:
        with suppress(OSError):
            call = Path(f"/proc/{program.pid}/task/{tid}/syscall").read_text().split()[0]
            return call in sleeps and status(tid)["State"].startswith("S")
        return False

    def has_settled() -> bool:
        return program.process.poll() is not None or all(map(is_asleep, threads(program.pid)))

    with Background([build("debug_sleeping"), "plainly"]) as program:
        with listening(WEFT, program.pid) as where, connected(where) as remote:
            remote.ask("?")
            remote.send("vCont;c")
            remote.interrupt()
            time.sleep(moment)
            os.kill(int(status(program.pid)["TracerPid"]), signal.SIGKILL)
            eventually(has_settled)
        assert program.finish() == (0, "ready\nwell\n")


def test_a_thread_that_is_asked_too_often_hears_of_signals(build: Build) -> None:
    """What it was asked with must not find the engine's mask, and leave it to the program."""
    with (
        listening(WEFT, [build("debug_raised"), "3"]) as where,
        connected(where) as remote,
    ):
        pid = int(thread_of(remote.ask("?")).removeprefix("p").split(".")[0], 16)
        for expected in ("T1e", "T2e", "T2e", "T0b"):  # SIGUSR1, SIGRTMIN twice, SIGSEGV
            ask_once_more(pid, pid)
            assert remote.ask("vCont;c").startswith(expected)
            assert remote.ask(f"vCont;S{expected[1:]}:p{pid:x}.{pid:x}").startswith("T05")


GARBAGE = [
    b"\x00\xff" * 100,
    b"$#00$##00$$$#zz",
    b"$m" + b"f" * 5000 + b",ffffffffffffffff#00",
    b"$" + b"A" * 100_000 + b"#00",
    b"$vCont;#1e$vCont;c:#00$Z9,0,0#00$Hg-5#00$X0,ffff:#00",
    b"$G00#00$P99=#00$qXfer:features:read:target.xml:ffffffff,ffffffff#00",
]


@pytest.mark.parametrize("garbage", GARBAGE, ids=range(len(GARBAGE)))
def test_a_client_that_talks_nonsense_does_no_harm(garbage: bytes, build: Build) -> None:
    """Whether the server hangs up or not: the next client finds the program as it was."""
    with listening(WEFT, [build("debug_busy"), "100"]) as address:
        host, _, port = address.partition(":")
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            connection.sendall(garbage)
        with connected(address) as remote:
            assert remote.ask("?")[0] in "TS"
            assert remote.ask("vCont;c").startswith("W00")


HEARING = """
import signal, sys
signal.signal(signal.SIGUSR1, lambda *_: print("heard", flush=True))
print("ready", flush=True)
while True:
    signal.pause()
"""


def test_no_signal_is_lost_when_weft_is_killed() -> None:
    """A debugger that is gone takes none: the program gets the first that comes."""
    with subprocess.Popen(
        [sys.executable, "-c", HEARING], stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdout is not None
        try:
            assert program.stdout.readline() == "ready\n"
            with listening(WEFT, program.pid) as where, connected(where) as remote:
                remote.ask("?")
                remote.send("vCont;c")
                eventually(lambda: _state(program.pid) == "S")
            for _ in range(3):
                program.send_signal(signal.SIGUSR1)
                assert program.stdout.readline() == "heard\n"
        finally:
            program.kill()


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
