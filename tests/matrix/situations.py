"""What cells vary: limits and policies over the target, and moments of the command's life."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

RESTART_SYSCALL, MEMFD_CREATE, MPROTECT, FTRUNCATE = 219, 319, 10, 77


@dataclass(frozen=True)
class Situation:
    """Where a target runs: what it sets for itself, and what starts it."""

    name: str
    limits: tuple[str, ...] = ()
    wrapper: tuple[str, ...] = ()
    is_quick: bool = False
    """Whether it is part of the quick form."""


def limit(name: str, *values: str, quick: Sequence[str] = ()) -> list[Situation]:
    """A limit at several values."""
    return [
        Situation(f"{name}={value}", (f"{name}={value}",), is_quick=value in quick)
        for value in values
    ]


SITUATIONS = [
    Situation("plain", is_quick=True),
    *limit("fsize", "0", "4K", "1M", quick=["0"]),
    *limit(
        *("as", "0", "64K", "1M", "5M", "20M", "100M", "300M", "600M", "1G", "4G", "40G"),
        quick=["5M", "300M"],
    ),
    *limit("data", "0", "1M", "20M", "300M", "1G", quick=["0"]),
    *limit("nofile", "0", "1", "3", quick=["0"]),
    *limit("maps", "0", "1", "2", "4", "8", "16", "40", "100", quick=["4"]),
    *limit("memlock", "0"),
    *limit("stack", "64K"),
    *limit("core", "0"),
    *limit("cpu", "3600"),
    Situation("nproc=0", ("user=65534", "nproc=0")),
    *(
        Situation(f"kill {name}", (f"kill={number}",), is_quick=name == "restart_syscall")
        for name, number in {
            "restart_syscall": RESTART_SYSCALL,
            "memfd_create": MEMFD_CREATE,
            "mprotect": MPROTECT,
            "ftruncate": FTRUNCATE,
        }.items()
    ),
    *(
        Situation(f"fail {name}", (f"fail={number}",))
        for name, number in {"memfd_create": MEMFD_CREATE, "mprotect": MPROTECT}.items()
    ),
    Situation(
        "pid namespace", wrapper=("unshare", "--fork", "--pid", "--mount-proc"), is_quick=True
    ),
    Situation("mount namespace", wrapper=("unshare", "--mount")),
    Situation("net namespace", wrapper=("unshare", "--net")),
    Situation("user namespace", wrapper=("unshare", "--user", "--map-root-user")),
    # An empty folder: no /proc, and none of the program's files.
    Situation("chroot", ("root={empty}",), is_quick=True),
]


@dataclass(frozen=True)
class Moment:
    """Signals for weft, or for the target, at a share of the time that a command takes to begin."""

    name: str
    signals: tuple[signal.Signals, ...]
    is_for_target: bool = False


MOMENTS = [
    *(
        Moment(f"{number.name}{' twice' if times == 2 else ''}", (number,) * times)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        for times in (1, 2)
    ),
    Moment("weft SIGKILL", (signal.SIGKILL,)),
    Moment("target SIGKILL", (signal.SIGKILL,), is_for_target=True),
]


def full_disk(folder: Path) -> tuple[str, ...]:
    """A wrapper in which a folder is a file system without any room."""
    script = (
        f'mount -t tmpfs -o size=4k none {folder} && head -c 4096 /dev/zero > {folder}/x; exec "$@"'
    )
    return ("unshare", "--mount", "sh", "-c", script, "sh")
