"""Sequences of which the compiled core has the rows until somebody looks at them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar, overload

__all__ = ["Rows"]

Row = TypeVar("Row")


class Rows(Sequence[Row]):
    """Rows of the compiled core, equal to the same in a tuple.

    A large program has some hundred thousand blocks. To make an object of each takes longer than
    most of what is done with them, which the core does with its own.
    """

    def __init__(
        self, core: object, place: int, count: int, read: Callable[[int, int], Sequence[Row]]
    ) -> None:
        """``read`` makes the rows from one number to another; they are those of ``core``.

        ``place`` tells several sequences of one core apart.
        """
        self.core = core
        self.place = place
        self._count = count
        self._read = read
        self._all: tuple[Row, ...] | None = None

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Row: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Row]: ...

    def __getitem__(self, index: int | slice) -> Row | Sequence[Row]:
        if isinstance(index, slice):
            return self._rows()[index]
        if self._all is not None:
            return self._all[index]
        place = index + self._count if index < 0 else index
        if not 0 <= place < self._count:
            raise IndexError(index)
        return self._read(place, place + 1)[0]

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Rows):
            return self._rows() == other._rows()
        return self._rows() == other if isinstance(other, tuple) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._rows())

    def __repr__(self) -> str:
        return repr(self._rows())

    def __reduce__(self) -> tuple[type[tuple[Row, ...]], tuple[tuple[Row, ...]]]:
        return tuple, (self._rows(),)

    def _rows(self) -> tuple[Row, ...]:
        if self._all is None:
            self._all = tuple(self._read(0, self._count))
        return self._all
