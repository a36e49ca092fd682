"""Traces: what a program has executed and touched, in order.

A trace holds only what cannot be computed again; everything else is computed while it is read. So
its tables are streams: batches of rows, one after the other, however large the whole is.

.. code-block:: python

    weft.trace.record(["ls", "-l"], "run.weft-trace")
    trace = weft.trace.open("run.weft-trace")
    for batch in trace.accesses():
        print(batch.num_rows, batch.column("address")[0])
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from weft.base.files import check
from weft.clone import Cloned
from weft.control.clone import Records
from weft.model.losses import sentences
from weft.tools.trace import (
    VIEWS,
    Code,
    MappedFile,
    Table,
    ThreadTotal,
    Trace,
    View,
    open,
    program_of,
)

__all__ = [
    "VIEWS",
    "Code",
    "MappedFile",
    "Table",
    "ThreadTotal",
    "Trace",
    "View",
    "open",
    "program_of",
    "record",
    "record_process",
]


def record(
    command: Sequence[str | os.PathLike[str]],
    path: str | os.PathLike[str],
    *,
    values: bool = False,
    follows: bool = True,
    on_start: Callable[[int], None] = lambda pid: None,
) -> tuple[int, list[str]]:
    """Run a program to its end, and write all that it executes to a file.

    With ``values``, what it reads and writes is part of that. Without ``follows``, other programs
    that it starts run natively and are not part of the trace. ``on_start`` is told its process id.

    Returns its exit code (as a shell has it, if a signal ended it) and what is missing from the
    trace.
    """
    check(path)
    program = Cloned.launch(command, follows=follows, records=_records(values))
    writing = program.trace_to(Path(path))
    on_start(program.pid)
    with program:
        code = program.wait()
        lost = writing.finish()
    assert code is not None
    return code, list(sentences(lost))


def record_process(
    pid: int,
    path: str | os.PathLike[str],
    wait: Callable[[], object],
    *,
    values: bool = False,
) -> list[str]:
    """Write all that a running process executes to a file, until ``wait`` returns.

    It then goes on from its own code, with nothing of weft's in it. Returns what is missing from
    the trace.
    """
    check(path)
    with Cloned.attach(pid, records=_records(values)) as program:
        writing = program.trace_to(Path(path))
        try:
            wait()
        finally:
            # What it writes while it leaves is taken as well.
            if Path(f"/proc/{pid}").exists():
                program.release()
            lost = writing.finish()
    return list(sentences(lost))


def _records(values: bool) -> Records:
    return "trace with values" if values else "trace"
