"""The program that cells run on: it sets limits for itself, and checks itself."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tests.e2e.harness import Footprint

PATIENCE = 60.0
"""For what a target does at once, on however busy a machine."""


class Harmed(Exception):
    """The target is not what it would have been without weft."""


class Target:
    """One running ``limited``; its process id is that of the outermost namespace."""

    def __init__(self, command: Sequence[str | Path], wrapper: Sequence[str] = ()) -> None:
        self._process = subprocess.Popen(
            [*wrapper, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self._unread = b""
        self._done = 0
        try:
            self._say("\n")
            self._expect("ready")
            self.pid = self._find(Path(command[0]).name)
            # It sleeps in a call again before it is looked at.
            self.work(1)
            self._before = Footprint.of(self.pid)
        except BaseException:
            self.kill()
            raise

    def work(self, times: int) -> None:
        """Have it call ``work`` that often, and check its count."""
        self._say(f"{times}\n")
        self._done += times
        self._expect(f"worked {self._done}")

    def is_taken(self) -> bool:
        """Say whether weft has begun to do something in it."""
        return "memfd:weft" in Path(f"/proc/{self.pid}/maps").read_text()

    def check_untouched(self) -> None:
        """Fail if something of weft is left in it, or its code has changed."""
        self.work(1)
        after = Footprint.of(self.pid)
        # Buffers and heaps may grow; weft's memory and changed code may not be there.
        left = [line for line in after.maps if "memfd:weft" in line]
        changed = [line for line, code in self._before.code.items() if after.code.get(line) != code]
        tracers = [values for values in after.threads.values() if values["TracerPid"] != "0"]
        descriptors = after.descriptors.keys() - self._before.descriptors.keys()
        # A thread that has just been started may not have had its own yet.
        mask = self._before.threads[self.pid]["SigBlk"]
        blocked = {
            tid: values["SigBlk"]
            for tid, values in after.threads.items()
            if values["SigBlk"] != mask
        }
        found = {
            "mappings of weft": left,
            "changed code": changed,
            "tracers": tracers,
            "descriptors": descriptors,
            "signal masks": blocked,
        }
        if bad := {name: value for name, value in found.items() if value}:
            raise Harmed(f"left behind: {bad}")

    def finish(self) -> None:
        """Let it end, which it must do well."""
        try:
            rest, _ = self._process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            raise Harmed(f"it does not end: {self._state()}") from None
        code = self._process.returncode
        if code != 0 or not (self._unread + rest).endswith(b"well\n"):
            raise Harmed(self._ending(code, self._unread + rest))

    def kill(self) -> None:
        """End it, however it is."""
        with suppress(ProcessLookupError, AttributeError):
            os.kill(self.pid, signal.SIGKILL)
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream:
                with suppress(BrokenPipeError):
                    stream.close()

    def _say(self, text: str) -> None:
        assert self._process.stdin
        try:
            self._process.stdin.write(text.encode())
            self._process.stdin.flush()
        except BrokenPipeError:
            code = self._process.wait()
            assert self._process.stdout
            raise Harmed(self._ending(code, self._process.stdout.read())) from None

    def _expect(self, line: str) -> None:
        assert self._process.stdout
        deadline = time.monotonic() + PATIENCE
        while b"\n" not in self._unread:
            left = max(0.0, deadline - time.monotonic())
            if not select.select([self._process.stdout], [], [], left)[0]:
                raise Harmed(f"it does not answer: {self._state()}")
            chunk = os.read(self._process.stdout.fileno(), 65536)
            if not chunk:
                raise Harmed(self._ending(self._process.wait(), self._unread))
            self._unread += chunk
        got, _, self._unread = self._unread.partition(b"\n")
        if got.decode() != line:
            raise Harmed(f"it said {got.decode()!r} instead of {line!r}")

    def _find(self, name: str) -> int:
        """Return the process behind a wrapper: the only one of the family with this name."""
        found = [self._process.pid]
        while found:
            pid = found.pop()
            if Path(f"/proc/{pid}/comm").read_text().strip() == name:
                return pid
            tasks = Path(f"/proc/{pid}/task/{pid}/children")
            found += [int(child) for child in tasks.read_text().split()]
        raise LookupError(name)

    def _state(self) -> str:
        with suppress(OSError):
            return Path(f"/proc/{self.pid}/status").read_text().splitlines()[2]
        return "gone"

    def _ending(self, code: int, output: bytes) -> str:
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return f"it ended by {how}: {output.decode(errors='replace')[-300:]!r}"
