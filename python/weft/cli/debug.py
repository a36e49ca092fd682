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
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click

from weft import debug
from weft.clone import Records
from weft.debug import Address, Debugged, Ending, Visited
from weft.errors import AlreadyTraced, InvalidArgument, WeftError

_ROUND = 0.1
"""How often to look whether GDB is still there, in seconds."""
_ONE_CLIENT = "weft starts GDB, or waits for a debugger, or writes a core file"
_FATAL = "SIGSEGV SIGBUS SIGILL SIGFPE SIGABRT SIGSYS SIGQUIT SIGXCPU SIGXFSZ"
"""The signals that leave a core, as the kernel has it."""


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("target", nargs=-1, required=True, type=click.UNPROCESSED, metavar="PID|-- CMD...")
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
    leaves. The exit code is GDB's; with --listen it is that of CMD.

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
    pid = int(target[0]) if len(target) == 1 and target[0].isdigit() else None
    place = None if address is None else Address.parse(address)
    gdb = "" if place else _find_gdb()
    # A word of a command of GDB's ends at a blank.
    if core is not None and any(character.isspace() for character in core):
        raise InvalidArgument(f"{core!r} has a blank in it", advice="choose another name")
    records: Records = "hits" if coverage else "trace" if trace else "nothing"
    with contextlib.ExitStack() as stack:
        program: Debugged | Visited
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
        file = _program_file(program.pid)
        if place is not None:
            ctx.exit(_listen(program, file, place))
        words = [] if pid is not None else list(target[1:])
        if core is None:
            user = shlex.split(gdb_args or "")
            ctx.exit(_run_gdb(program, [gdb], [*user, *_inferior(file, words)]))
        ctx.exit(_write_core(program, gdb, file, Path(core), is_running=pid is not None))


def _attach(pid: int, records: Records) -> Debugged | Visited:
    """Take a process over; or visit it, if another weft has it in a clone."""
    try:
        return debug.attach(pid, records=records)
    except AlreadyTraced:
        visited = debug.visit(pid)
        if visited is None:
            raise
        return visited


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
            from weft.trace import missing

            for text in missing(writing.finish()):
                click.echo(f"note: {text}", err=True)
        if coverage is not None:
            from weft.export import coverage_json
            from weft.tools.coverage import cover

            with coverage.open("wb") as file:
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
        click.echo(program.measured(), err=True, nl=False)


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


def _run_gdb(program: Debugged | Visited, gdb: list[str], words: list[str]) -> int:
    """Run GDB on the program, and return its exit code."""
    with tempfile.TemporaryDirectory(prefix="weft-") as folder:
        path = Path(folder, "gdb")
        with Address("", 0, path).listen() as listener, _left_to_gdb():
            # The program's files are those of this machine, so GDB can read them itself.
            connect = ["-ex", "set sysroot /", "-ex", f"target extended-remote {path}"]
            with subprocess.Popen([*gdb, *connect, *words]) as process:
                # Whoever disconnects may connect once more.
                while (connection := _accept(listener, process)) is not None:
                    with connection:
                        program.serve(connection)
                return process.wait()


@contextlib.contextmanager
def _left_to_gdb() -> Iterator[None]:
    """Leave the terminal to GDB: Ctrl-C is for it to answer, and weft goes when it has gone."""
    before = signal.signal(signal.SIGINT, lambda _number, _frame: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _accept(
    listener: socket.socket, process: subprocess.Popen[bytes] | None = None
) -> socket.socket | None:
    """Wait for a debugger; give up when the process has ended that was to be it."""
    while True:
        ready, _, _ = select.select([listener], [], [], _ROUND)
        if ready:
            return listener.accept()[0]
        if process is not None and process.poll() is not None:
            return None


def _listen(program: Debugged | Visited, file: str | None, address: Address) -> int:
    """Serve one debugger after the other until the program has gone; return its exit code."""
    with address.listen() as listener:
        if address.path is None:
            address = Address(address.host, listener.getsockname()[1])
        try:
            click.echo(_how_to_connect(program.pid, file, address), err=True)
            while True:
                connection = _accept(listener)
                if connection is None:
                    continue
                with connection:
                    ending = program.serve(connection)
                if ending.is_over:
                    click.echo(_said_of(ending), err=True)
                    return ending.exit_code
                click.echo("the debugger has gone; waiting for the next", err=True)
        finally:
            if address.path is not None:
                address.path.unlink(missing_ok=True)


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
    steps = [f"generate-core-file {core}"]
    if not is_running:
        quiet = ["handle all nostop noprint pass", f"handle {_FATAL} stop print pass"]
        steps = [*quiet, "continue", *steps, "kill"]
    words = [word for step in steps for word in ("-ex", step)]
    before = core.stat().st_mtime_ns if core.exists() else None
    _run_gdb(program, [gdb, "-nx", "-q", "-batch"], [*words, *_inferior(file, [])])
    if core.exists() and core.stat().st_mtime_ns != before:
        return 0
    if is_running:
        raise WeftError(f"{core} was not written", "GDB says why, above")
    click.echo("the program has ended without a core", err=True)
    return 0
