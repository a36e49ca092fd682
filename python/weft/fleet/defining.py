"""What the metrics of a request are defined by: a front end refuses names that nothing defines."""

from __future__ import annotations

from weft.fleet.protocol import Request
from weft.fleet.texts import Texts
from weft.mdl.loader import load
from weft.metrics.catalogue import library_files, metrics_in, unknown_metric

__all__ = ["check_metrics"]


def check_metrics(request: Request, texts: Texts) -> None:
    """Refuse metrics that neither weft nor the request defines.

    Every host would refuse them, each by itself, and the answer would come after all of the time.
    """
    shipped = {name for file in library_files() for name in metrics_in(file)}
    others = [one.metric for one in request.metrics if one.metric not in shipped]
    if not others:
        return
    library = load(*library_files(), *texts.files)
    for name in others:
        if name not in library.metrics:
            raise unknown_metric(name, library)
