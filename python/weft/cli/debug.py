"""Debug a program with your own GDB while it runs from a clone."""

from __future__ import annotations

import contextlib
import select
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click

from weft import debug
from weft.base.files import Draft, check
from weft.base.interrupts import interruptible, raise_again
from weft.cli.inputs import Launching, completed, process_id
from weft.cli.printing import echo
from weft.clone import Records
from weft.debug import Address, Debugged, Ending, Visited
from weft.errors import AlreadyTraced, InvalidArgument, WeftError

_ROUND = 0.1
"""How often to look whether GDB is still there, in seconds."""
_GDB_PATIENCE = 5.0
"""How long GDB may take to end when it is asked to, in seconds."""
_ONE_CLIENT = "weft starts GDB, or waits for a debugger, or writes a core file"
_FATAL = "SIGSEGV SIGBUS SIGILL SIGFPE SIGABRT SIGSYS SIGQUIT SIGXCPU SIGXFSZ"
"""The signals that leave a core, as the kernel has it."""


@click.command(cls=Launching, context_settings={"ignore_unknown_options": True})
@click.argument(
    "target", nargs=-1, required=True, type=click.UNPROCESSED, metavar="PID|NAME|-- CMD..."
)
@click.option(
    "--gdb-args",
    metavar="WORDS",
    help="Give GDB these words, too: --gdb-args '-batch -x script -ex continue'.",
)
@click.option(
    "--listen",
    "address",
    metavar="ADDRESS",
    help="Start no GDB, but wait for a debugger at HOST:PORT or at a socket PATH; without HOST "
    "only this machine can connect.",
)
@click.option(
    "--core",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Write a core file: of PID as it is now, of CMD when a signal ends it.",
)
@click.option(
    "--coverage",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Record what is executed meanwhile; `weft cov report FILE` shows it.",
)
@click.option(
    "--trace",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Record all that is executed and touched meanwhile, in order: see `weft trace`.",
)
@click.option(
    "-m",
    "--metric",
    "metrics",
    multiple=True,
    metavar="METRIC[@FOCUS]",
    shell_complete=completed("metrics"),
    help="Measure a metric meanwhile; `monitor weft probes` in GDB shows it, and so does the end.",
)
@click.pass_context
def command(
    ctx: click.Context,
    /,
    target: tuple[str, ...],
    gdb_args: str | None,
    address: str | None,
    core: str | None,
    coverage: Path | None,
    trace: Path | None,
    metrics: tuple[str, ...],
) -> None:
    """Debug a program with your own GDB while it runs from a clone.

    GDB shows the program as if weft were not there. A program CMD stands before its first
    instruction, as behind `target remote`; a process PID stands where it was, and goes on when GDB
    leaves. The exit code is GDB's; with --listen or --core it is that of CMD: 128 and the number of
    the signal that has ended it. With --core and PID it is 0 if the core file was written.

    \b
    Examples:
      weft debug -- ./server --port 8080
      weft debug --gdb-args '-batch -ex "break main" -ex continue -ex bt' -- ./server
      weft debug 4711
      weft debug --listen localhost:1234 -- ./server
      weft debug --core now.core 4711
      weft debug --trace run.weft-trace -- ./server
      weft debug -m latency@/Code/server/handle 4711
    """
    _refuse_both({"--gdb-args": gdb_args, "--listen": address, "--core": core}, _ONE_CLIENT)
    _refuse_both({"--coverage": coverage, "--trace": trace}, "one of them is recorded at a time")
    user_words = _split(gdb_args or "")
    pid = process_id(target)
    place = None if address is None else Address.parse(address)
    gdb = "" if place else _find_gdb()
    # A word of a command of GDB's ends at a blank.
    if core is not None and any(character.isspace() for character in core):
        raise InvalidArgument(f"{core!r} has a blank in it", advice="choose another name")
    for file in (core, coverage, trace):
        if file is not None:
            check(file)
    records: Records = "hits" if coverage else "trace" if trace else "nothing"
    with contextlib.ExitStack() as stack:
        program: Debugged | Visited
        # Taken before anything is started: somebody else may have the address.
        listener = None if place is None else stack.enter_context(_listening(place))
        if pid is None:
            program = debug.launch(target, is_apart=place is None, records=records)
        else:
            program = _attach(pid, records)
        stack.enter_context(program)
        if isinstance(program, Debugged):
            stack.enter_context(_recorded(program, coverage, trace))
            stack.enter_context(_measured(program, metrics))
        elif records != "nothing" or metrics:
            raise InvalidArgument(
                f"another weft has process {pid}, and measures it",
                advice="`monitor weft metric ...` in GDB measures more",
            )
        binary = _program_file(program.pid)
        if place is not None and listener is not None:
            ctx.exit(_listen(program, binary, place, listener))
        words = [] if pid is not None else list(target[1:])
        if core is None:
            ctx.exit(_run_gdb(program, [gdb], [*user_words, *_inferior(binary, words)])[0])
        ctx.exit(_write_core(program, gdb, binary, Path(core), is_running=pid is not None))


def _attach(pid: int, records: Records) -> Debugged | Visited:
    """Take a process over; or visit it, if another weft has it in a clone."""
    try:
        return debug.attach(pid, records=records)
    except AlreadyTraced:
        visited = debug.visit(pid)
        if visited is None:
            raise
        return visited


def _split(words: str) -> list[str]:
    try:
        return shlex.split(words)
    except ValueError as error:
        raise InvalidArgument(
            f"--gdb-args {words!r} cannot be split into words",
            str(error).lower(),
            "close the quotation, or put a backslash before the quotation mark",
        ) from None


def _refuse_both(options: Mapping[str, object], advice: str) -> None:
    given = [name for name, value in options.items() if value is not None]
    if len(given) > 1:
        raise InvalidArgument(f"{given[0]} and {given[1]} do not go together", advice=advice)


@contextlib.contextmanager
def _recorded(program: Debugged, coverage: Path | None, trace: Path | None) -> Iterator[None]:
    """Record what the program executes while it is debugged, and write that to a file."""
    writing = None if trace is None else program.trace_to(trace)
    try:
        yield
    finally:
        program.close()
        if writing is not None:
            from weft.model.losses import sentences

            for text in sentences(writing.finish()):
                echo(f"note: {text}", err=True)
        if coverage is not None:
            from weft.export.coverage import json as coverage_json
            from weft.tools.coverage import cover

            with Draft(coverage) as file:
                coverage_json.write(file, cover(program.flow()))


@contextlib.contextmanager
def _measured(program: Debugged, metrics: Sequence[str]) -> Iterator[None]:
    """Measure metrics while the program is debugged, and show them in the end."""
    for metric in metrics:
        program.measure(metric)
    try:
        yield
    finally:
        program.close()
        echo(program.measured(), err=True, nl=False)


def _find_gdb() -> str:
    found = shutil.which("gdb")
    if found is None:
        raise WeftError(
            "GDB is not installed",
            "there is no gdb in PATH",
            "install it (apt install gdb), or use another debugger by --listen localhost:1234",
        )
    return found


def _program_file(pid: int) -> str | None:
    """Return the file of a program, if GDB can open it as well."""
    process = Path(f"/proc/{pid}")
    try:
        file = str((process / "exe").readlink())
        is_here = (process / "exe").samefile(file)
    except OSError:
        return None
    return file if is_here else None


def _inferior(file: str | None, words: Sequence[str]) -> list[str]:
    """What GDB is to know of the program: its symbols are in a file; `run` repeats the words."""
    return [] if file is None else ["--args", file, *words]


def _run_gdb(
    program: Debugged | Visited, gdb: list[str], words: list[str]
) -> tuple[int, Ending | None]:
    """Run GDB on the program; return its exit code, and what has become of the program."""
    ending = None
    with interruptible():
        pass  # what has come before there is a GDB to answer it
    with tempfile.TemporaryDirectory(prefix="weft-") as folder:
        path = Path(folder, "gdb")
        with Address("", 0, path).listen() as listener:
            # The program's files are those of this machine, so GDB can read them itself.
            connect = ["-ex", "set sysroot /", "-ex", f"target extended-remote {path}"]
            with (
                subprocess.Popen([*gdb, *connect, *words]) as process,
                interruptible(_Ending(process)),
            ):
                # Whoever disconnects may connect once more.
                while (connection := _accept(listener, process)) is not None:
                    with connection:
                        ending = program.serve(connection)
                return process.wait(), ending


class _Ending:
    """Has GDB end when weft is asked to: then it leaves the program, and weft goes.

    The terminal is GDB's: Ctrl-C is for it to answer.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def __call__(self, number: int) -> None:
        if number == signal.SIGINT:
            return
        self._process.terminate()
        # A busy one may not hear it.
        later = threading.Timer(_GDB_PATIENCE, self._process.kill)
        later.daemon = True
        later.start()


def _accept(
    listener: socket.socket, process: subprocess.Popen[bytes] | None = None
) -> socket.socket | None:
    """Wait for a debugger; give up when the process has ended that was to be it."""
    while True:
        raise_again()
        ready, _, _ = select.select([listener], [], [], _ROUND)
        if ready:
            return listener.accept()[0]
        if process is not None and process.poll() is not None:
            return None


@contextlib.contextmanager
def _listening(address: Address) -> Iterator[socket.socket]:
    """Listen at an address; the file of a socket goes with it."""
    with address.listen() as listener:
        try:
            yield listener
        finally:
            if address.path is not None:
                address.path.unlink(missing_ok=True)


def _listen(
    program: Debugged | Visited, file: str | None, address: Address, listener: socket.socket
) -> int:
    """Serve one debugger after the other until the program has gone; return its exit code."""
    if address.path is None:
        address = Address(address.host, listener.getsockname()[1])
        echo(f"note: {_who_can_connect(address)}", err=True)
    echo(_how_to_connect(program.pid, file, address), err=True)
    with interruptible():
        while True:
            connection = _accept(listener)
            if connection is None:
                continue
            with connection:
                ending = program.serve(connection)
            if ending.is_over:
                echo(_said_of(ending), err=True)
                return ending.exit_code
            echo("the debugger has gone; waiting for the next", err=True)


def _who_can_connect(address: Address) -> str:
    """A port asks nobody who they are, and a debugger does with the program what it likes."""
    is_local = (
        address.host == "localhost" or address.host.startswith("127.") or address.host == "::1"
    )
    who = "every user of this machine" if is_local else f"everybody who reaches {address.host}"
    return (
        f"{who} can connect to a port, and do with the program what you can;\n"
        "  try: --listen ./debug.socket, which is for you only"
    )


def _how_to_connect(pid: int, file: str | None, address: Address) -> str:
    place = str(address)
    name = shlex.quote(file) if file else "PROGRAM"
    lldb = f"unix-connect://{place}" if address.path else f"connect://{place}"
    return (
        f"process {pid} waits for a debugger at {place}; Ctrl-C ends this\n"
        f"  GDB      gdb -ex 'target remote {place}' {name}\n"
        f"  LLDB     lldb -o 'process connect --plugin gdb-remote {lldb}' {name}\n"
        f'  VS Code  "miDebuggerServerAddress": "{place}"'
    )


def _said_of(ending: Ending) -> str:
    match ending.kind:
        case "exited":
            return f"the program has ended with {ending.number}"
        case "killed":
            return f"the program was ended by {signal.Signals(ending.number).name}"
        case "detached":
            return "the program goes on without a debugger"
        case _:
            return "the debugger has ended the program"


def _write_core(
    program: Debugged | Visited, gdb: str, file: str | None, core: Path, *, is_running: bool
) -> int:
    """Have GDB write a core file, and return the exit code."""
    # GDB writes it beside: one that is there stays if there is none to replace it.
    draft = Path(f"{core}.{program.pid}.part")
    said = Path(f"{draft}.signal")
    steps = [f"generate-core-file {draft}"]
    if not is_running:
        quiet = ["set confirm off", "handle all nostop noprint pass"]
        quiet += [f"handle {_FATAL} stop print pass", "continue"]
        number = f'eval "shell echo %d > {shlex.quote(str(said))}", $_siginfo.si_signo'
        steps = [*quiet, *steps, number, "kill"]
    words = [word for step in steps for word in ("-ex", step)]
    try:
        words += _inferior(file, [])
        _, ending = _run_gdb(program, [gdb, "-nx", "-q", "-batch"], words)
        if draft.exists():
            draft.replace(core)
            echo(f"wrote {core}", err=True)
            return 128 + int(said.read_text()) if said.exists() else 0
    finally:
        draft.unlink(missing_ok=True)
        said.unlink(missing_ok=True)
    if is_running or ending is None or ending.kind not in ("exited", "killed"):
        raise WeftError(
            f"{core} was not written",
            "GDB says why, above",
            "see whether there is room for it, and what `weft doctor` says",
        )
    echo("the program has ended without a core", err=True)
    return ending.exit_code
