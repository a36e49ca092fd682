"""What leaving a ``with`` block closes."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Running"]


class Running(ABC):
    """Something that leaving a ``with`` block closes.

    It belongs to the process that has made it. A child that was forked since has a copy of it, but
    none of its threads: closing it there does nothing.
    """

    def __new__(cls, *_args: object, **_options: object) -> Self:
        """Note which process makes it."""
        made = super().__new__(cls)
        made._maker = os.getpid()
        return made

    _maker: int

    def close(self) -> None:
        """End it."""
        if self._maker == os.getpid():
            self._close()

    @abstractmethod
    def _close(self) -> None:
        """End it, in the process that has made it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
