"""What the zoo knows about a program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

Input = Callable[[Path], None]
"""Writes what a program reads into a folder: the same bytes every time."""


class Native(str):
    """A command that is never cloned: a client that puts load on a server, a check."""


@dataclass(frozen=True)
class Server:
    """A program that runs beside the commands; {port} stands for a free port.

    It is there when somebody listens on the port, and is told to end by SIGTERM to the process
    whose id is in a file, unless one of the commands ends it.
    """

    command: str
    pid_file: str = ""
    signal: str = "TERM"


@dataclass(frozen=True)
class Exhibit:
    """A program and what it is to do.

    Commands are words as a shell would split them, with `< FILE` and `> FILE`; all else that a
    shell does needs a shell as the command. They run in a fresh folder, always of the same name,
    with the same small environment.
    """

    name: str
    packages: str
    """The Debian packages that it takes, the program's own first."""
    does: str
    """What it does here, for the table."""
    commands: tuple[str, ...]
    scripts: tuple[str, ...] = ()
    """Files of the folder `scripts` that it reads."""
    inputs: tuple[Input, ...] = ()
    prepare: tuple[str, ...] = ()
    """What is done before, natively."""
    server: Server | None = None
    needs: tuple[str, ...] = ()
    """Programs that must be there beside the first words of all commands."""
    files: tuple[str, ...] = ("**/*",)
    """Which files must be the same afterwards, as patterns."""
    stderr: bool = True
    """Whether it prints the same on standard error each time."""
    normal: Mapping[str, str] = field(default_factory=dict)
    """What is not the same each time in its output, as regular expressions and replacements."""
    environment: Mapping[str, str] = field(default_factory=dict)
    version: str = ""
    """A command that prints its version, where that is not the package's."""
    short: bool = False
    """Whether it is part of the short form, for which .ci/run installs what it takes.

    That has one of each kind: what another one does as well, or starts itself, is left to the long
    form, which is part of ``make soak``.
    """
    limit: float = 300.0
    """How many seconds it may take, native or cloned."""
    known: str = ""
    """Why it is not the same when it is cloned, where that is known and accepted."""
