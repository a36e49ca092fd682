"""What a metric is for other tools: tables, pages, and files of stacks."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol

from weft.errors import InvalidArgument
from weft.model.measured import Measured, TargetFacts

if TYPE_CHECKING:
    import pandas
    import pyarrow

    from weft.export.stacks import Format
    from weft.model.weighed import WeighedStacks

__all__ = ["Written"]


class _OfTarget(Measured, Protocol):
    @property
    def stacks_of(self) -> TargetFacts | None:
        """Whose stacks its keys are; nothing if they are none."""

    def weighed_stacks(self) -> WeighedStacks:
        """Its value as stacks with weights."""


class Written:
    """What a metric is for other tools."""

    def to_arrow(self: Measured) -> pyarrow.Table:
        """Return the history as an Arrow table; see :func:`weft.export.metrics.frames.to_arrow`."""
        from weft.export.metrics import frames

        return frames.to_arrow(self)

    def to_pandas(self: Measured) -> pandas.DataFrame:
        """Return the history as a data frame by time, with the columns of :meth:`to_arrow`."""
        from weft.export.metrics import frames

        return frames.to_pandas(self)

    def weighed_stacks(self: _OfTarget) -> WeighedStacks:
        """Return the value of a metric that is divided by stack, as stacks with weights.

        Times are in nanoseconds there. What is divided by anything else, or by nothing, is refused.
        """
        from weft.export.metrics.weighed import weighed

        if self.stacks_of is None:
            raise InvalidArgument(
                f"{self.name} has no stacks",
                "it is not divided by them alone",
                'ask for it by stack: session.metric(..., by="stack")',
            )
        [found] = weighed(self.stacks_of, [self])
        return found

    def write_stacks(
        self: _OfTarget, path: str | os.PathLike[str], output_format: Format | None = None
    ) -> list[str]:
        """Write a metric that is divided by stack as a flame graph, or for another profiler.

        ```python
        allocated = session.metric("alloc_bytes", by="stack")
        ...
        allocated.write_stacks("flame.html")
        ```

        The formats are ``svg``, ``html``, ``folded``, ``speedscope`` and ``pprof``; if none is
        given, the ending of the file says which: ``.svg``, ``.html``, ``.folded``,
        ``.speedscope.json``, ``.pprof`` or ``.pb.gz``. Returns what one must know of the value,
        which the file says as well: that it is an estimate, what is missing.
        """
        from weft.export import stacks

        return stacks.save(path, self.weighed_stacks(), output_format=output_format)

    def _repr_html_(self: Measured) -> str:
        from weft.export.metrics import notebook

        return notebook.html([self])
