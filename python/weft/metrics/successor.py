"""Whether a target has become another program (``execve``), which has no probes."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING

from weft.errors import WeftError
from weft.model.completeness import Missing

if TYPE_CHECKING:
    from weft.control.probing import Probing

__all__ = ["Successor"]

_REST = 0.05
"""How many seconds two looks are apart at least."""
_ADVICE = "measure that one: name it instead, or attach to it"


class Successor:
    """What a target has become, as far as that was seen."""

    def __init__(self, session: Probing) -> None:
        self._session = session
        self._program = ""
        self._seen = 0.0
        self._why = ""
        with suppress(WeftError):
            self._program = session.program()
        self._name = self._called()

    def see(self, *, is_last: bool = False) -> None:
        """Look at the target, if the last look was a while ago. One that has ended tells its name.

        With ``is_last`` there will be no other look.
        """
        now = time.monotonic()
        has_ended = self._session.has_ended
        if self._why or not (has_ended or is_last or now - self._seen > _REST):
            return
        self._seen = now
        if has_ended:
            name = self._called()
            if name and self._name and name != self._name:
                self._why = f"at its end the process was called {name}: it may have executed that"
        elif self._session.is_current():
            # A program may name itself otherwise.
            self._name = self._called()
        else:
            with suppress(WeftError):
                program = self._session.program()
                # One that has left its clone is what it was, and that is said elsewhere.
                if not self._session.left_clones or program != self._program:
                    self._why = f"the process has become {program} (execve), which is not measured"

    def missing(self) -> list[Missing]:
        """Say what is not measured since then."""
        return [Missing("programs", "", self._why, None, _ADVICE)] if self._why else []

    def _called(self) -> str:
        """The name that the kernel knows, of which it keeps 15 characters."""
        with suppress(OSError):
            stat = self._session.proc_file("stat")
            return stat[stat.index("(") + 1 : stat.rindex(")")]
        return ""
