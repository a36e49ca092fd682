"""How the programs of the zoo are compiled."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from tests.e2e.harness import PROGRAMS, need

C = ("-O2", "-g", "-Wall", "-Wextra", "-Werror", "-pthread")


@dataclass(frozen=True)
class Recipe:
    """A source and what makes a program of it.

    {source} and {out} stand for the two files, {folder} for where all sources are.
    """

    source: str
    commands: tuple[tuple[str, ...], ...]
    environment: dict[str, str] = field(default_factory=dict)


def _compile(compiler: str, source: str, *flags: str) -> Recipe:
    return Recipe(source, ((compiler, *C, *flags, "{source}", "-o", "{out}"),))


def _go(source: str, *options: str) -> Recipe:
    # Go keeps its cache at home, which a build machine may not have.
    environment = {"GOCACHE": "{out}.cache", "GOFLAGS": "-buildvcs=false", "GO111MODULE": "off"}
    return Recipe(source, (("go", "build", *options, "-o", "{out}", "{source}"),), environment)


RECIPES = {
    "pie": _compile("gcc", "workers.c", "-fPIE", "-pie"),
    "non_pie": _compile("gcc", "workers.c", "-fno-pie", "-no-pie"),
    "static": _compile("gcc", "workers.c", "-fno-pie", "-static"),
    "static_pie": _compile("gcc", "workers.c", "-fPIE", "-static-pie"),
    "musl": _compile("musl-gcc", "workers.c"),
    "musl_static": _compile("musl-gcc", "workers.c", "-static"),
    "births": _compile("gcc", "births.c"),
    "becomes": _compile("gcc", "becomes.c"),
    "exceptions": _compile("g++", "exceptions.cpp"),
    "channels": Recipe("channels.rs", (("rustc", "-O", "{source}", "-o", "{out}"),)),
    "goroutines": _go("goroutines.go"),
    "preempted": _go("preempted.go"),
    "moves": _go("moves.go"),
    "datagrams": _go("datagrams.go"),
    "java": Recipe("Workload.java", (("javac", "-d", "{out}", "{source}"),)),
    "blocked": _compile("gcc", "blocked.c"),
    "invariants": _compile("gcc", "invariants.c"),
    "texts": _compile("gcc", "texts.c"),
    "stack_keys": _compile("gcc", "stack_keys.c", "-fno-optimize-sibling-calls"),
    "stack_keys_fp": _compile(
        "gcc", "stack_keys.c", "-fno-optimize-sibling-calls", "-fno-omit-frame-pointer"
    ),
    "stack_keys_static": _compile(
        "gcc", "stack_keys.c", "-fno-optimize-sibling-calls", "-static", "-fno-pie"
    ),
    "stacks_go": _go("stacks.go"),
    "stacks_go_stripped": _go("stacks.go", "-ldflags=-s -w"),
    "gaps": _compile("gcc", "gaps.c"),
    "stack_spins": _compile("gcc", "stack_spins.c"),
    **{
        f"stacks_{kind}": _compile(compiler, "stacks.c", *options)
        for kind, (compiler, *options) in {
            "O2": ("gcc",),
            "O0": ("gcc", "-O0"),
            "no_pie": ("gcc", "-fno-pie", "-no-pie"),
            "static": ("gcc", "-fno-pie", "-static"),
            "static_pie": ("gcc", "-fPIE", "-static-pie"),
            "frame_pointers": ("gcc", "-fno-omit-frame-pointer"),
            "musl": ("musl-gcc",),
            "musl_static": ("musl-gcc", "-static"),
        }.items()
    },
    # A function that ends in a jump to another is in no frame.
    "waits": _compile("gcc", "waits.c", "-fno-optimize-sibling-calls"),
    "waits_static": _compile("gcc", "waits.c", "-static"),
    "waits_musl": _compile("musl-gcc", "waits.c"),
    "waits_musl_static": _compile("musl-gcc", "waits.c", "-static"),
    "deadlocks": _compile("gcc", "deadlocks.c"),
    "locks_cpp": _compile("g++", "locks.cpp"),
    "locks_rs": Recipe("locks.rs", (("rustc", "-O", "-g", "{source}", "-o", "{out}"),)),
    "hot_stacks": _compile("gcc", "hot_stacks.c"),
    "full_pipe": _compile("gcc", "full_pipe.c", "-O0", "-fno-omit-frame-pointer"),
    "works_and_naps": _compile("gcc", "works_and_naps.c"),
    "refused_mutex": _compile("gcc", "refused_mutex.c"),
    "timed": _compile("gcc", "timed.c", "-O2", "-g", "-pthread"),
    "numbered_calls": _compile("gcc", "numbered_calls.c"),
    "timed_calls": _compile("gcc", "timed_calls.c"),
    "timed_calls_O0": _compile("gcc", "timed_calls.c", "-O0"),
    "vforks": _compile("gcc", "vforks.c"),
    "vforks_musl": _compile("musl-gcc", "vforks.c"),
    "without_tables": _compile("gcc", "without_tables.c", "-O0", "-fno-omit-frame-pointer"),
    "execs": _compile("gcc", "execs.c"),
    "execs_late": _compile("gcc", "execs_late.c"),
    "holds": _compile("gcc", "holds.c"),
    "contended": _compile("gcc", "contended.c"),
    "contended_wrapped": _compile("gcc", "contended.c", "-DWRAPPED"),
    "off_cpu": _compile("gcc", "off_cpu.c"),
    "first_ends": _compile("gcc", "first_ends.c"),
    "short_threads": _compile("gcc", "short_threads.c"),
    "deep_naps": _compile("gcc", "deep_naps.c", "-fno-omit-frame-pointer"),
    "calls_nothing": _compile("gcc", "calls_nothing.c"),
    "shares": _compile("gcc", "shares.c"),
    "shares_frame_pointers": _compile("gcc", "shares.c", "-fno-omit-frame-pointer"),
    "known_waits": _compile("gcc", "known_waits.c"),
    "rseq": _compile("gcc", "rseq.c"),
    "clears_memory": _compile("gcc", "clears_memory.c", "-fPIE", "-pie"),
    "reloaded": _compile("gcc", "reloaded.c", "-pthread"),
    "exec_fork": _compile("gcc", "exec_fork.c"),
    "seccomp": _compile("gcc", "seccomp.c"),
    "limited": _compile("gcc", "limited.c"),
    "restricted": _compile("gcc", "restricted.c"),
    "counts": _compile("gcc", "counts.c"),
    "incomplete": _compile("gcc", "incomplete.c"),
    "outlives": _compile("gcc", "outlives.c"),
    "counts_static": _compile("gcc", "counts.c", "-fno-pie", "-static"),
    "written": _compile("gcc", "written.c"),
    "written_musl": _compile("musl-gcc", "written.c"),
    "counts_musl": _compile("musl-gcc", "counts.c"),
    "counts_cpp": _compile("g++", "counts.cpp"),
    "counts_rs": Recipe("counts.rs", (("rustc", "-O", "{source}", "-o", "{out}"),)),
    "counts_go": _go("counts.go"),
    "counted_server": _go("counted_server.go"),
    **{
        f"cramped_{compiler[0]}{level}": _compile(compiler, "cramped.cpp", f"-O{level}")
        for compiler in ("g++", "clang++-14")
        for level in "0123s"
    },
    "signals": _compile("gcc", "signals.c"),
    "forks": _compile("gcc", "forks.c"),
    "loops": _compile("gcc", "loops.c"),
    "broods": _compile("gcc", "broods.c"),
    "coroutines": _compile("gcc", "coroutines.c"),
    "coroutine_schedule": _compile("gcc", "coroutine_schedule.c"),
    "churn": _compile("gcc", "churn.c"),
    **{
        f"ifuncs_{link}": _compile("gcc", "ifuncs.c", "-fno-builtin", *flags)
        for link, flags in [
            ("lazy", ("-Wl,-z,lazy",)),
            ("now", ("-Wl,-z,now",)),
            ("static", ("-static", "-DSTATIC")),
        ]
    },
    "leaving": _compile("g++", "leaving.cpp"),
    "naps": _compile("gcc", "naps.c"),
    "dozing": _compile("gcc", "dozing.c"),
    "traces": _compile("gcc", "traces.c", "-rdynamic"),
    "plugging": Recipe(
        "plugging.c",
        (
            ("gcc", *C, "-fPIC", "-shared", "{folder}/plugin.c", "-o", "{out}.so"),
            ("gcc", *C, "{source}", "-o", "{out}"),
        ),
    ),
    "takes_place": Recipe(
        "takes_place.c",
        (
            *(
                ("gcc", *C, "-fPIC", "-shared", f"-DINNER={name}_inner", library, "-o", out)
                for name, library, out in [
                    ("first", "{folder}/takes_place_library.c", "{out}.first.so"),
                    ("second", "{folder}/takes_place_library.c", "{out}.second.so"),
                ]
            ),
            ("gcc", *C, "-rdynamic", "{source}", "-o", "{out}"),
        ),
    ),
    **{
        f"metric_{name}": _compile(compiler, f"metrics/{name}.{ending}")
        for compiler, ending, names in [
            (
                "gcc",
                "c",
                (
                    *("aligned", "code", "io", "locks", "memory", "procedures", "server"),
                    *("syscalls", "obsolete", "thread_ends"),
                ),
            ),
            ("g++", "cpp", ("events",)),
        ]
        for name in names
    },
    **{
        name: Recipe(
            "parts.c",
            (
                *(
                    (
                        "gcc",
                        *C,
                        "-O2",
                        f"-DPART={part}",
                        "-c",
                        "{source}",
                        "-o",
                        f"{{out}}.{part}.o",
                    )
                    for part in (0, 1, 2)
                ),
                ("gcc", *flags, "{out}.0.o", "{out}.1.o", "{out}.2.o", "-o", "{out}"),
            ),
        )
        for name, flags in [("parts", ("-Wl,-z,lazy",)), ("parts_stripped", ("-s",))]
    },
    "profiled": _compile(
        *("gcc", "profiled.c", "-O1", "-foptimize-sibling-calls", "-fno-inline"),
        *("-freorder-blocks-and-partition", "-Wl,--emit-relocs"),
    ),
    "pvm": Recipe(
        "metrics/pvm_main.c",
        (
            ("gcc", *C, "-fPIC", "-shared", "{folder}/metrics/pvm.c", "-o", "{out}.so"),
            (
                *("gcc", *C, "{source}", "{folder}/metrics/pvm_solve.c"),
                *("{folder}/metrics/pvm_spread.c", "{out}.so", "-o", "{out}"),
            ),
        ),
    ),
    "clone_bare": Recipe(
        "clone/bare.S",
        (("gcc", "-nostdlib", "-static", "-no-pie", "{source}", "-o", "{out}"),),
    ),
    **{
        f"clone_plain_{link}": _compile(compiler, "clone/plain.c", *flags)
        for link, compiler, flags in [
            ("static", "gcc", ("-fno-pie", "-static")),
            ("static_pie", "gcc", ("-fPIE", "-static-pie")),
            ("non_pie", "gcc", ("-fno-pie", "-no-pie")),
            ("pie", "gcc", ("-fPIE", "-pie")),
            ("musl_static", "musl-gcc", ("-static",)),
            ("musl", "musl-gcc", ()),
        ]
    },
    "clone_heap_pie": _compile("gcc", "clone/heap.c", "-fPIE", "-pie"),
    "clone_heap_static": _compile("gcc", "clone/heap.c", "-fno-pie", "-static"),
    "clone_shared_calls": _compile("gcc", "clone/shared_calls.c", "-D_GNU_SOURCE"),
    "clone_flow": _compile("gcc", "clone/flow.c", "-rdynamic"),
    "clone_state": _compile("gcc", "clone/state.c"),
    "clone_vectors": _compile("gcc", "clone/vectors.c", "-mfsgsbase", "-lm"),
    "clone_vectors_plain": _compile(
        "gcc", "clone/vectors.c", "-mfsgsbase", "-lm", '-DSIGNATURE="0x12345678"'
    ),
    "clone_faults": _compile("gcc", "clone/faults.c"),
    "clone_actions": _compile("gcc", "clone/actions.c"),
    "clone_contexts": _compile("gcc", "clone/contexts.c"),
    "clone_longlived": _compile("gcc", "clone/longlived.c"),
    "clone_hostile": _compile("gcc", "clone/hostile.c"),
    "clone_vfork_killed": _compile("gcc", "clone/vfork_killed.c"),
    "clone_crash": _compile("gcc", "clone/crash.c"),
    "clone_many": _compile("gcc", "clone/many.c"),
    "clone_leaving": _compile("gcc", "clone/leaving.c"),
    "clone_execute_only": _compile("gcc", "clone/execute_only.c"),
    "clone_fault_handler": _compile("gcc", "clone/fault_handler.c"),
    "confined": _compile("gcc", "confined.c"),
    "counter_forbidden": _compile("gcc", "counter_forbidden.c"),
    "clone_locking": _compile("gcc", "clone/locking.c"),
    "clone_forbidding": _compile("gcc", "clone/forbidding.c"),
    "clone_limited": _compile("gcc", "clone/limited.c"),
    "clone_low_reserved": _compile("gcc", "clone/low_reserved.c"),
    "clone_threads": _compile("gcc", "clone/threads.c"),
    "clone_processes": _compile("gcc", "clone/processes.c"),
    "clone_smc": _compile("gcc", "clone/smc.c"),
    "clone_smc_memory": Recipe(
        "clone/smc_memory.c",
        (
            *(
                (
                    *("gcc", *C, "-fPIC", "-shared", f"-DVALUE={number}"),
                    *("{folder}/clone/smc_library.c", "-o", f"{{out}}.{number}.so"),
                )
                for number in (1, 2)
            ),
            ("gcc", *C, "{source}", "-o", "{out}"),
        ),
    ),
    "clone_smc_stack": _compile("gcc", "clone/smc_stack.c", "-Wl,-z,execstack"),
    "clone_smc_threads": _compile("gcc", "clone/smc_threads.c"),
    "clone_throwing": _compile("g++", "clone/throwing.cpp", "-fnon-call-exceptions"),
    **{
        f"debug_{name}": Recipe(
            f"debug/{source}", ((compiler, *C[1:], *flags, "{source}", "-o", "{out}"),)
        )
        for name, source, compiler, flags in [
            ("c_O0", "walked.c", "gcc", ("-O0",)),
            ("c_O2", "walked.c", "gcc", ("-O2",)),
            ("static", "walked.c", "gcc", ("-O1", "-static", "-no-pie")),
            ("musl", "walked.c", "musl-gcc", ("-O0",)),
            ("cpp_O0", "walked.cpp", "g++", ("-O0", "-std=c++17")),
            ("cpp_O2", "walked.cpp", "g++", ("-O2", "-std=c++17")),
            ("turns", "turns.c", "gcc", ("-O0",)),
            ("raised", "raised.c", "gcc", ("-O1",)),
            ("jumps", "jumps.c", "gcc", ("-O0",)),
            ("brood", "brood.c", "gcc", ("-O0",)),
            ("spawning", "spawning.c", "gcc", ("-O0",)),
            ("jit", "jit.c", "gcc", ("-O0",)),
            ("busy", "busy.c", "gcc", ("-O1", "-no-pie")),
            ("waiting", "waiting.c", "gcc", ("-O0",)),
            ("sleeping", "sleeping.c", "gcc", ("-O1",)),
            ("alarmed", "alarmed.c", "gcc", ("-O0",)),
            ("filling", "filling.c", "gcc", ("-O1",)),
            ("gap", "gap.c", "gcc", ("-O1",)),
        ]
    },
    "debug_rust": Recipe("debug/walked.rs", (("rustc", "-g", "{source}", "-o", "{out}"),)),
    "debug_go": _go("debug/walked.go", "-gcflags=-N -l"),
    "debug_loading": Recipe(
        "debug/loading.c",
        (
            ("gcc", *C[1:], "-fPIC", "-shared", "{folder}/debug/loaded.c", "-o", "{out}.so"),
            ("gcc", *C[1:], "{source}", "-o", "{out}"),
        ),
    ),
    "debug_still": Recipe(
        "debug/still.c", (("gcc", *C, "-fPIC", "-shared", "{source}", "-o", "{out}"),)
    ),
    "thirty_two_bits": Recipe(
        "thirty_two_bits.s",
        (
            ("as", "--32", "{source}", "-o", "{out}.o"),
            ("ld", "-m", "elf_i386", "{out}.o", "-o", "{out}"),
        ),
    ),
}


class Builder:
    """Compiles programs into a folder; a second request finds the first one's result."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def build(self, name: str) -> Path:
        recipe, out = RECIPES[name], self.folder / name
        if out.exists():
            return out
        for command in recipe.commands:
            need(command[0])
            places = {"source": PROGRAMS / recipe.source, "out": out, "folder": PROGRAMS}
            environment = {k: v.format(**places) for k, v in recipe.environment.items()}
            subprocess.run(
                [word.format(**places) for word in command],
                check=True,
                env={**os.environ, **environment},
            )
        return out
