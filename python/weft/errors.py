"""Everything that can go wrong: what happened, why, and what to try next.

There is one base class, :class:`WeftError`. The native core raises these classes too; each kind of
failure that it knows has the class of the same name here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from weft.mdl.diagnostics import Diagnostic
    from weft.model.completeness import Missing


class WeftError(Exception):
    """The base of every error that weft raises on purpose.

    ``what`` says what happened, ``why`` the reason and ``advice`` what to try next; the last two
    may be empty. ``exit_code`` is what the command line ends with.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, what: str, why: str = "", advice: str = "") -> None:
        super().__init__(what, why, advice)
        self.what = what
        self.why = why
        self.advice = advice

    def __str__(self) -> str:
        text = f"{self.what}: {self.why}" if self.why else self.what
        return f"{text} ({self.advice})" if self.advice else text


class InvalidArgument(WeftError):
    """The caller asked for something that makes no sense."""

    exit_code = 2


class CodeGone(InvalidArgument):
    """There is no code where some was said to be: its library may have been unloaded meanwhile."""


class TargetError(WeftError):
    """The target cannot be attached to, or was lost."""

    exit_code = 3


class NoSuchProcess(TargetError):
    """No process has that id."""


class PermissionDenied(TargetError):
    """The kernel's rules do not let this user attach."""


class AlreadyTraced(TargetError):
    """Another tracer (a debugger, strace) holds the process, or another weft what is asked for."""


class ZombieTarget(TargetError):
    """The process has ended and waits to be reaped by its parent."""


class StoppedTarget(TargetError):
    """The process is stopped by a signal or frozen by its cgroup."""


class UnsupportedTarget(TargetError):
    """The process is not a 64-bit x86 program, or is a thread of the kernel."""


class SeccompForbids(TargetError):
    """The process's seccomp filter forbids what weft would need."""


class TargetGone(TargetError):
    """The session is over: the target ended, replaced its program, or was left."""


class Timeout(TargetError):
    """A thread of the target did not stop in time."""


class LaunchFailed(TargetError):
    """The program to start could not be started."""


class BadFile(WeftError):
    """A file cannot be read or written, or is not what it claims to be."""

    exit_code = 4


class SystemCall(WeftError):
    """A system call failed in a way that has no class of its own."""


class BadSnippet(WeftError):
    """A snippet says something that cannot be; ``what`` begins with the line and the column."""

    exit_code = 2


class BadMetric(WeftError):
    """A text in MDL has mistakes; ``diagnostics`` are all of them, ``why`` shows them."""

    exit_code = 2

    def __init__(
        self,
        what: str,
        why: str = "",
        advice: str = "",
        diagnostics: Iterable[Diagnostic] = (),
    ) -> None:
        super().__init__(what, why, advice)
        self.diagnostics = tuple(diagnostics)


class IncompleteMetric(WeftError):
    """A metric would be wrong, because not all of its points can be woven; see ``missing``."""

    exit_code = 5

    def __init__(
        self, what: str, why: str = "", advice: str = "", missing: Iterable[Missing] = ()
    ) -> None:
        super().__init__(what, why, advice)
        self.missing = tuple(missing)


class CoverageTooLow(WeftError):
    """Less was executed than ``--fail-under`` asks for."""

    exit_code = 6


class LimitReached(WeftError):
    """There is no room in the target for more of it."""


class Internal(WeftError):
    """weft itself is wrong; please report it."""

    exit_code = 70
