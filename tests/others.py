"""Another weft: a process of its own that does what it is told, and can be killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

import weft
from tests.probing import COUNTER
from weft.errors import WeftError

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["ERROR", "Other"]

ERROR = "error: "
"""What an answer begins with that says what went wrong."""


class Other:
    """The weft, by our ends of its standard input and output; it ends with the ``with`` block."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.others"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    @classmethod
    def attached(cls, pid: int) -> Self:
        """Have one measure a process by probes."""
        other = cls()
        assert other.say("attach", str(pid)) == "attached"
        return other

    def say(self, *words: str) -> str:
        """Tell it to do something, and return what it answers when that is done."""
        self.tell(*words)
        return self.answer()

    def tell(self, *words: str) -> None:
        """Tell it to do something, and do not wait."""
        assert self.process.stdin is not None
        self.process.stdin.write(" ".join(words) + "\n")
        self.process.stdin.flush()

    def answer(self) -> str:
        """Return what it answers to the first that it was told and has not answered yet."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the other weft has ended"
        return line.rstrip("\n")

    def kill(self) -> None:
        """End it, wherever it is."""
        self.process.kill()
        self.process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()


class _Obedient:
    """What the process does that is told to."""

    def __init__(self) -> None:
        self._cloned: weft.Cloned | None = None
        self._session: weft.Session | None = None
        self._probes: dict[str, weft.Probe] = {}

    @property
    def session(self) -> weft.Session:
        assert self._session is not None
        return self._session

    def attach(self, pid: str) -> str:
        self._session = weft.attach(int(pid))
        return "attached"

    def take_over(self, pid: str) -> str:
        self._cloned = weft.attach(int(pid), weaver="clone")
        self._session = self._cloned.session
        return "attached"

    def insert(self, path: str) -> str:
        self._probes[path] = self.session.insert(path, COUNTER)
        return "inserted"

    def measure(self, name: str) -> str:
        self.session.metric(name, allow_incomplete=True)
        return "measured"

    def remove(self, path: str) -> str:
        self._probes.pop(path).remove()
        return "removed"

    def disable(self, path: str) -> str:
        self._probes[path].disable()
        return "disabled"

    def enable(self, path: str) -> str:
        self._probes[path].enable()
        return "enabled"

    def value(self, path: str) -> str:
        return str(self._probes[path].value())

    def fork(self) -> str:
        """Have a child leave what only its parent may leave."""
        child = os.fork()
        if child == 0:
            self.detach()
            os._exit(0)
        return f"forked: {os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}"

    def bear(self) -> str:
        """Have a child that only waits, also when its parent is gone."""
        child = os.fork()
        if child == 0:
            # Who waits for the parent reads to the end of its output.
            os.close(sys.stdout.fileno())
            while True:
                signal.pause()
        return str(child)

    def detach(self) -> str:
        self._probes.clear()
        if self._cloned is not None:
            with self._cloned:
                pass
            self._cloned = None
        else:
            self.session.detach()
        self._session = None
        return "detached"


def main() -> None:
    """Do what standard input says, line by line."""
    obedient = _Obedient()
    for line in sys.stdin:
        name, *words = line.split()
        act: Callable[..., str] = getattr(obedient, name)
        try:
            answer = act(*words)
        except WeftError as error:
            answer = f"{ERROR}{type(error).__name__}: {error} {error.why}".replace("\n", " ")
        print(answer, flush=True)


if __name__ == "__main__":
    main()
