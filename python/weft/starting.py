"""Attaching to a process, and starting a program, with either weaver.

What one of them needs is loaded when it is wanted: a program that runs from a clone has a session
only if it is measured.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from collections.abc import Mapping as MappingType
from contextlib import ExitStack
from typing import (
    IO,
    TYPE_CHECKING,
    Literal,
    SupportsIndex,
    TypeAlias,
    overload,
)

from weft import _native
from weft.errors import InvalidArgument, NoSuchProcess

if TYPE_CHECKING:
    from weft.clone import Cloned
    from weft.control.clone import Records
    from weft.session import Session

__all__ = ["attach", "run"]

#: What ``subprocess.DEVNULL`` is; importing that module takes longer than starting a program.
_DEVNULL = -3

#: What can be a program's standard stream: a file, a descriptor, ``subprocess.DEVNULL``, or nothing
#: for weft's own.
Stream: TypeAlias = "IO[bytes] | IO[str] | int | None"


_HIGHEST_PID = (1 << 22) - 1
"""The highest process id that the kernel gives: see proc(5), ``pid_max``."""


@overload
def attach(pid: int, *, weaver: Literal["patch"] = "patch") -> Session: ...


@overload
def attach(
    pid: int,
    *,
    weaver: Literal["clone"],
    cache_size: int | None = None,
    follows: bool = True,
    records: Records = "nothing",
) -> Cloned: ...


def attach(
    pid: int,
    *,
    weaver: Literal["patch", "clone"] = "patch",
    cache_size: int | None = None,
    follows: bool = True,
    records: Records = "nothing",
) -> Session | Cloned:
    """Attach to a running process.

    The process runs on: its threads stand still for a few milliseconds while weft's agent is
    loaded, and nothing holds them afterwards. If anything is in the way, nothing has happened to
    the process and the error says what it is and what to do.

    ```python
    with weft.attach(pid) as session:
        print(session.threads())
    ```

    With the clone weaver all its threads go on from a clone of its code, until it is released.
    ``cache_size`` is how many bytes of clone a process may have, 256 MiB if it is not given;
    without ``follows`` other programs that it starts run natively. ``records`` is what to record of
    what it executes from now on: see :meth:`Cloned.flow`.

    ```python
    with weft.attach(pid, weaver="clone") as program:
        print(program.stats().blocks)
    ```
    """
    if not isinstance(pid, SupportsIndex) or isinstance(pid, bool):
        why, advice = "process ids are positive numbers", "list the processes: weft ps"
        raise InvalidArgument(f"{pid!r} is no process id", why, advice)
    _check_weaver(weaver)
    if pid > _HIGHEST_PID:
        why, advice = f"ids go up to {_HIGHEST_PID}", "list the processes: weft ps --all"
        raise NoSuchProcess(f"there is no process {pid}", why, advice)
    if weaver == "clone":
        from weft.clone import Cloned

        return Cloned.attach(pid, cache_size=cache_size, follows=follows, records=records)
    from weft.session import Session

    return Session(_native.Target.attach(pid))


@overload
def run(
    command: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    weaver: Literal["patch"] = "patch",
    env: MappingType[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    stdin: Stream = None,
    stdout: Stream = None,
    stderr: Stream = None,
) -> Session: ...


@overload
def run(
    command: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    weaver: Literal["clone"],
    env: MappingType[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    stdin: Stream = None,
    stdout: Stream = None,
    stderr: Stream = None,
    cache_size: int | None = None,
    sees_changes: bool = True,
    follows: bool = True,
    is_held: bool = False,
    records: Records = "nothing",
    keeps: bool = True,
) -> Cloned: ...


def run(
    command: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    weaver: Literal["patch", "clone"] = "patch",
    env: MappingType[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    stdin: Stream = None,
    stdout: Stream = None,
    stderr: Stream = None,
    cache_size: int | None = None,
    sees_changes: bool = True,
    follows: bool = True,
    is_held: bool = False,
    records: Records = "nothing",
    keeps: bool = True,
) -> Session | Cloned:
    """Start a program with weft in it.

    ``command`` is the program and its arguments; a program without any may stand alone. No shell
    is involved.

    With the patch weaver it stands before its first instruction, with weft's agent loaded:
    :meth:`Session.resume` or :meth:`Session.wait` let it run; so does leaving the session, which
    takes weft out of the program but does not end it.

    ```python
    with weft.run(["ls", "-l"]) as session:
        code = session.wait()
    ```

    With the clone weaver it runs at once, from a clone of its code; with ``is_held`` it stands at
    its entry, with its libraries loaded, to be measured: see :attr:`Cloned.session`. ``cache_size``
    is how many bytes of clone a process may have, 256 MiB if it is not given. Without
    ``sees_changes`` code that changes itself goes wrong, and without ``follows`` other programs
    that it starts run natively: both are for tests. ``records`` is what to record of what it
    executes: see :meth:`Cloned.flow`. Without ``keeps`` nothing is used of what was translated in
    earlier runs, and nothing kept for later ones: see :class:`weft.KeptClones`.
    """
    command = _words(command)
    _check_weaver(weaver)
    environment = None if env is None else [(str(key), str(value)) for key, value in env.items()]
    directory = None if cwd is None else os.fspath(cwd)
    with ExitStack() as opened:

        def found(stream: Stream) -> int | None:
            return _descriptor(stream, opened)

        streams = (found(stdin), found(stdout), found(stderr))
        if weaver == "clone":
            from weft.clone import Cloned

            return Cloned.launch(
                command,
                environment=environment,
                directory=directory,
                streams=streams,
                cache_size=cache_size,
                sees_changes=sees_changes,
                follows=follows,
                is_held=is_held,
                records=records,
                keeps=keeps,
            )
        from weft.session import Session

        return Session(_native.Target.launch(command, environment, directory, streams))


def _words(command: object) -> list[str]:
    """The words of a command; a name alone is a program without arguments."""
    if isinstance(command, str) and len(split := command.split()) > 1:
        import shutil

        # It may be a program whose name has spaces.
        if not shutil.which(command):
            raise InvalidArgument(
                f"no program is called {command!r}",
                "a text is taken for the name of a program; no shell splits it into words",
                f"give the words one by one: weft.run({split!r})",
            )
    if isinstance(command, str | os.PathLike):
        command = [command] if command else []
    found: list[str] = []
    for word in command if isinstance(command, Iterable) else [command]:
        if not isinstance(word, str | os.PathLike):
            raise InvalidArgument(
                f"{command!r} is no command",
                f"{word!r} is no text",
                "give a program and its arguments: weft.run(['ls', '-l'])",
            )
        found.append(os.fsdecode(word))
    return found


def _check_weaver(weaver: str) -> None:
    if weaver not in ("patch", "clone"):
        raise InvalidArgument(f"there is no weaver {weaver!r}", advice="it is 'patch' or 'clone'")


def _descriptor(stream: Stream, opened: ExitStack) -> int | None:
    if stream == _DEVNULL:
        descriptor = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        opened.callback(os.close, descriptor)
        return descriptor
    if stream is None or isinstance(stream, int):
        return stream
    return stream.fileno()
