"""What to do about a test that hangs: show where everything stands, end it, fail the test."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def descendants(root: int) -> list[int]:
    """All processes below ``root``, parents first."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            # The name of a process may hold anything; what follows its last bracket does not.
            parent = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[1]
            children.setdefault(int(parent), []).append(int(folder.name))
    found = list(children.get(root, []))
    for pid in found:
        found += children.get(pid, [])
    return found


def describe(pid: int) -> str:
    """Where each thread of a process stands: as the kernel sees it, and its native backtrace."""
    lines = [f"== process {pid}: {_read(f'/proc/{pid}/cmdline').replace(chr(0), ' ')}"]
    for task in sorted(Path(f"/proc/{pid}/task").glob("*")):
        state = _read(task / "stat").rpartition(")")[2].split()[:1]
        wait, call = _read(task / "wchan"), _read(task / "syscall").strip()
        lines.append(f"thread {task.name}: state {''.join(state)}, in {wait}, system call {call}")
    if shutil.which("gdb"):
        command = ["gdb", "-p", str(pid), "-batch", "-nx", "-ex", "thread apply all bt 40"]
        with suppress(subprocess.TimeoutExpired):
            result = subprocess.run(command, capture_output=True, text=True, timeout=20)
            lines.append(result.stdout or result.stderr)
    return "\n".join(lines)


@contextmanager
def watch(seconds: float, report: Callable[[str], None]) -> Iterator[None]:
    """Fail with :class:`TimeoutError` when the body takes longer than ``seconds``.

    Backtraces go to ``report`` first; then everything that the body started is killed, which also
    frees a body that waits for it inside native code.
    """

    main = threading.main_thread().ident or 0

    def fail(_signal: int, _frame: object) -> None:
        raise TimeoutError(f"hung for {seconds:g} s")

    def bark() -> None:
        hung = descendants(os.getpid())
        report("\n".join(map(describe, hung)) or "no child process")
        for pid in hung:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        signal.pthread_kill(main, signal.SIGALRM)

    before = signal.signal(signal.SIGALRM, fail)
    timer = threading.Timer(seconds, bark)
    timer.daemon = True
    timer.start()
    try:
        try:
            yield
        finally:
            timer.cancel()
            timer.join()  # a signal on its way must not outlive its handler
    finally:
        signal.signal(signal.SIGALRM, before)


def _read(path: str | Path) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return "?"
