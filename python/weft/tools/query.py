"""SQL over a trace, by DuckDB: the tables are streamed, never held as a whole."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from weft.base.extras import needed
from weft.errors import InvalidArgument
from weft.tools.trace import VIEWS

if TYPE_CHECKING:
    import pyarrow

    from weft.tools.trace import Trace

__all__ = ["ask"]


def ask(trace: Trace, sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Return the columns and the rows of the answer. Needs ``weft[query]``.

    There are the tables of the trace by their names, and ``code``: of each block its number
    ``block``, ``code_start``, ``code_end``, ``module`` and ``function``.
    """
    with needed("query", "asking a trace in SQL"):
        import duckdb
    connection = duckdb.connect(":memory:")
    try:
        # Only what is asked for: names are looked up in files, which takes its time.
        for view in VIEWS:
            if _names(sql, view):
                connection.register(view, trace.table(view))
        if _names(sql, "code"):
            connection.register("code", _code(trace))
        answer = connection.execute(sql)
        columns = [column[0] for column in answer.description or ()]
        return columns, answer.fetchall()
    except duckdb.Error as error:
        raise InvalidArgument("DuckDB cannot answer that", str(error)) from error
    finally:
        connection.close()


def _names(sql: str, table: str) -> bool:
    return re.search(rf"\b{table}\b", sql, re.IGNORECASE) is not None


def _code(trace: Trace) -> pyarrow.Table:
    import pyarrow

    code = trace.code
    places = [trace.place(block.address, block.program) for block in code]
    return pyarrow.table(
        {
            "block": pyarrow.array([block.number for block in code], pyarrow.uint32()),
            "code_start": pyarrow.array([block.address for block in code], pyarrow.uint64()),
            "code_end": pyarrow.array(
                [block.address + block.size for block in code], pyarrow.uint64()
            ),
            "program": pyarrow.array([block.program for block in code], pyarrow.uint32()),
            "module": [module for module, _ in places],
            "function": [function for _, function in places],
        }
    )
