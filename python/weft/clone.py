"""Programs that run from a clone of their code, started or taken over with every option."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING

import weft  # sessions are loaded when there is one: they take longer than all of this
from weft import _native
from weft.base.patience import patiently
from weft.control.clone import ClonedProgram, CloneStats, Records, Tracing

if TYPE_CHECKING:
    from typing_extensions import Self

    from weft.control.debugged import Debugged
    from weft.control.visits import Visits
    from weft.session import Session

__all__ = ["CloneStats", "Cloned", "Records", "Tracing", "attach", "launch"]


class Cloned(ClonedProgram):
    """A program that runs from a clone of its code; made by :func:`weft.run`, :func:`weft.attach`.

    It is a context manager. Leaving it does not end the program. One that weft has started goes on
    from its clone, but other programs that it starts from then on run natively; one that weft was
    attached to is given back to its own code, as by :meth:`release`.

    ```python
    with weft.run(["ls", "-l"], weaver="clone") as program:
        code = program.wait()
        print(program.stats().blocks)
    ```
    """

    def __init__(
        self,
        target: _native.Cloned,
        *,
        is_attached: bool = False,
        command: Sequence[str] = (),
        records: Records = "nothing",
    ) -> None:
        super().__init__(target, is_attached=is_attached, command=command, records=records)
        self._session: Session | None = None
        self._visits: Visits | None = None

    @property
    def session(self) -> Session:
        """The session in which the program is measured, with probes and metrics in its clone.

        Points can be anywhere: nothing of the program's code is changed, so none is too tight.
        What belongs to the agent of the patch weaver (``ping``, ``syscall``) is not there. A
        program that was started with ``is_held`` goes on with :meth:`wait` or ``session.resume()``.
        """
        if self._session is None:
            self._session = weft.Session(self._target.target(), "clone", self._target)
        return self._session

    def wait(self, timeout: float | None = None) -> int | None:
        """Wait for the program's end, and return its exit code.

        As in a shell, a program that a signal ended has the code 128 plus the signal's number.
        Returns ``None`` when it still runs after ``timeout`` seconds. The exit code of a program
        that weft has not started cannot be known. One that stands at its entry goes on.
        """
        if self._session is not None:
            self._session.resume()
        code = self._target.wait(timeout)
        if code is not None:
            self._not_kept = self._target.keep()
        return code

    def release(self) -> None:
        """Give the program, and what it has forked, back to its own code.

        All threads stand still for a few milliseconds. Then they go on natively, where they would
        be without weft, and nothing of weft is left in the program. If that cannot be done, the
        program goes on from its clone and the error says why.
        """
        self._target.check_here()
        self._close_visits()
        self._leave_session()
        patiently(self._target.release)
        self._is_attached = False

    def _leave_session(self) -> None:
        if self._session is not None:
            self._session.detach()
            self._session = None

    def debugged(self) -> Debugged:
        """Stop the program for a debugger, while it goes on to be measured.

        ```python
        with weft.attach(pid, weaver="clone") as program, program.debugged() as stopped:
            stopped.serve(connection)  # until the debugger goes
        ```
        """
        from weft.control.debugged import Debugged
        from weft.metrics.debugging import DebugOwner

        owner = DebugOwner(weft.Session.of_clone, joined=lambda: self.session)
        target = _native.Debugger.join(self._target, owner)
        return Debugged(target, owner, self, is_attached=True)

    def _close_visits(self) -> None:
        if self._visits is not None:
            self._visits.close()
            self._visits = None

    def __enter__(self) -> Self:
        """Have `weft debug PID` find the program as well, as long as it is measured."""
        from weft.control.visits import Visits

        self._visits = Visits(self.pid, self.debugged)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self._target.is_here():
            # A forked child leaves it to its parent.
            return
        self._close_visits()
        if self._is_attached:
            self.release()
        self._leave_session()
        self._target.leave()

    def __repr__(self) -> str:
        return f"<weft.Cloned pid={self.pid}>"


launch = Cloned.launch
attach = Cloned.attach
