"""Receivers of the metrics while they are measured: Prometheus, a collector of OTLP."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from weft.cli.output import all_of
from weft.cli.printing import echo

if TYPE_CHECKING:
    from weft.export.metrics.prometheus import Server
    from weft.export.metrics.values import Source, Subject
    from weft.model.measured import Measured

options = all_of(
    click.option(
        "--prometheus",
        metavar="[HOST]:PORT",
        help="Serve the metrics for Prometheus meanwhile; on the loopback address by default.",
    ),
    click.option("--otlp", metavar="URL", help="Push the metrics by OTLP over HTTP meanwhile."),
)
"""Gives a command the options of :class:`Exports`."""


class Exports:
    """Takes what exporting needs when it is made, before a program is started: ports, libraries."""

    def __init__(self, prometheus: str | None, otlp: str | None, interval: float) -> None:
        self._source: Source | None = None
        self._server: Server | None = None
        self._otlp: str | None = None
        self._interval = interval
        if otlp is not None:
            from weft.export.metrics.otlp import check

            self._otlp = check(otlp)
        if prometheus is not None:
            from weft.export.metrics.prometheus import serve

            self._server = serve(prometheus, self._ask)

    @contextlib.contextmanager
    def of(self, source: Source) -> Iterator[None]:
        """Export what a source says; to be used once."""
        with contextlib.ExitStack() as stack:
            self._source = source
            if self._server is not None:
                stack.enter_context(self._server)
                echo(f"metrics for Prometheus: {self._server.url}", err=True)
            if self._otlp is not None:
                from weft.export.metrics.otlp import push

                stack.enter_context(push(self._otlp, source, self._interval, _tell))
            yield

    def _ask(self) -> Sequence[tuple[Subject, Sequence[Measured]]]:
        """What there is: nothing before something is measured."""
        return () if self._source is None else self._source()


def _tell(text: str) -> None:
    echo(f"note: {text}", err=True)
