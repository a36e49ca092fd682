"""One :class:`Session` owns one target: it measures what is in it, and detaches from it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Literal,
)

from weft import _native
from weft.control.attached import of_target
from weft.control.probing import Probing
from weft.model.points import Point

if TYPE_CHECKING:
    from typing_extensions import Self

    from weft.clone import Cloned
    from weft.metrics.engine import Engine
    from weft.metrics.metric import Metric
    from weft.model.answers import Answers
    from weft.sampling import Kind, SampledProfile


class Session(Probing):
    """One target with weft in it; made by :func:`attach` and :func:`run`.

    A session is a context manager. Leaving it detaches: everything that weft brought into the
    target is gone then, its mappings, its descriptors and its code, and the target runs on.

    Several sessions, of one process or of several, may measure a target at once, each in functions
    of its own: where another has probes, points are refused.

    A session is over when it was left, or when the target has ended. From then on whatever asks
    something of the target raises :class:`weft.errors.TargetGone`; what was measured until then can
    still be read from probes and metrics.
    """

    def __init__(
        self,
        target: _native.Target,
        weaver: Literal["patch", "clone"] = "patch",
        clone: _native.Cloned | None = None,
    ) -> None:
        super().__init__(target, weaver, clone)
        self._engine: Engine | None = None

    @classmethod
    def of_clone(cls, target: _native.Target) -> Self:
        """Make the session of a program that runs from a clone for a debugger."""
        return cls(target, "clone")

    @property
    def metrics(self) -> Engine:
        """The metrics of this session, and the library that they are taken from."""
        if self._engine is None:
            from weft.metrics.engine import Engine

            self._engine = Engine(self)
        return self._engine

    def metric(
        self,
        name: str,
        focus: str = "",
        *,
        by_function: bool = False,
        by: str | None = None,
        allow_incomplete: bool = False,
        wait: bool = False,
    ) -> Metric:
        """Begin to measure a metric of the library, narrowed to a focus.

        ```python
        latency = session.metric("latency", "/Code/redis-server/processCommand")
        for sample in latency.stream(interval=1.0, limit=10):
            print(sample.time, sample.rate)
        ```

        A focus is a path of the resource tree, or several of different hierarchies joined by
        commas: ``/Code/server/handle,/Thread/worker-*``. The name of a function stands for the only
        one that the program and its libraries have of this name: ``handle``; if there are several,
        it is refused. ``weft metrics`` lists the library; :meth:`load_metrics` adds to it.

        With ``by`` its value is a map, by ``function`` or ``module`` in which it was measured, by
        ``caller``, ``stack`` or ``thread``, by ``lock`` (``lock_wait`` and ``lock_contention``), or
        by any expression of the language, as ``$arg[0]``. Of times, recursion counts every call
        then.

        :attr:`weft.Metric.completeness` says whether all of it is measured. A time, a distribution
        of times or a constraint that would begin in a function and never end, since an exit of that
        cannot be woven, is refused by :class:`weft.errors.IncompleteMetric`, unless
        ``allow_incomplete`` is set.

        A focus that matches nothing is refused, unless ``wait`` is set: then it is measured when a
        library comes that has it. What that does before it is noticed, at the next sample, is
        missing.
        """
        return self.metrics.request(
            name,
            focus,
            by_function=by_function,
            by=by,
            allow_incomplete=allow_incomplete,
            wait=wait,
        )

    def load_metrics(self, *sources: str | Path) -> None:
        """Add metrics of MDL files, or of texts, to those that can be asked for."""
        self.metrics.load(*sources)

    @of_target
    def why(
        self,
        seconds: float = 10.0,
        *,
        budget: float = 0.02,
        hypotheses: Sequence[str | os.PathLike[str]] = (),
    ) -> Answers:
        """Find out why the process is slow.

        It is watched for ``seconds``, from outside; ``budget`` is the share of its time that this
        may take. ``hypotheses`` are folders with further hypotheses.

        ```python
        first = session.why(5).answers[0]
        print(first.hypothesis, first.focus, first.text)
        ```
        """
        from weft.why.search import why

        return why(self.pid, seconds=seconds, budget=budget, folders=[*map(Path, hypotheses)])

    def sample(
        self,
        seconds: float | None = None,
        kind: Kind = "cpu",
        *,
        rate: float = 99.0,
        budget: float = 0.01,
        keep: bool = False,
    ) -> SampledProfile:
        """Look where the threads of the target are for some seconds; see :func:`weft.sample`.

        ```python
        session.sample(10, "off-cpu").write_stacks("waits.svg")
        ```
        """
        from weft.sampling import sample

        return sample(self.pid, seconds, kind, rate=rate, budget=budget, keep=keep)

    @of_target
    def move_to_clone(self, *, cache_size: int | None = None) -> Cloned:
        """Take everything out of the target, and have it run from a clone of its code instead.

        This session is over then; the clone has its own, :attr:`Cloned.session`. A program that
        stands still, because :func:`run` has just started it, does so until that one resumes it.
        """
        self._target.check_here()
        if self._engine is not None:
            self._engine.close()
        from weft.clone import Cloned

        is_held = self._target.is_stopped()
        cloned = self._target.move_to_clone(cache_size, True, True, "nothing")
        self._detached = True
        return Cloned(cloned, is_attached=not is_held)

    @of_target
    def refresh(self) -> list[Point]:
        """Weave probes into code that has come since they were inserted, and return the new points.

        Probes that were inserted by paths are woven into the functions that the paths name now: in
        libraries that were loaded meanwhile, also again, and, when the target has replaced its
        program by ``execve``, in the new program. Metrics are woven into libraries. The values go
        on. Where nothing new matches, nothing happens. What a library did before is not measured:
        :attr:`weft.Probe.completeness` says so.
        """
        fresh = super().refresh()
        return fresh if self._engine is None else fresh + self._engine.refresh()

    def detach(self) -> None:
        """Take everything out of the target that weft brought, and let it run.

        A session belongs to the process that has made it. In a child that was forked since, this
        does nothing: the parent goes on to measure.
        """
        if self._engine is not None and self._target.is_here():
            self._engine.close()
        super().detach()
