"""Fail if the latency of a function is above a limit: a check for continuous integration.

python examples/latency_gate.py --function /Code/libc.so.6/nanosleep --p99-ms 200 -- sleep 0.1
"""

from __future__ import annotations

import argparse

import weft
from weft.errors import WeftError


def main() -> int:
    """Run a program to its end; 0 if it was fast enough, 1 if not or if that is not known."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--function", required=True, help="a path of the resource tree")
    parser.add_argument("--p99-ms", type=float, required=True)
    parser.add_argument("program", nargs="+")
    options = parser.parse_args()
    with weft.run(options.program) as session:
        session.run_to_entry()
        latency = session.metric("latency", options.function)
        session.wait()
        value, completeness = latency.value, latency.completeness
    assert isinstance(value, weft.Histogram)
    milliseconds = value.quantile(0.99) / 1e6
    print(f"{value.count} measured, 99% within {milliseconds:.3f} ms (limit {options.p99_ms} ms)")
    if not completeness.is_exact or not value.count:
        # What was not measured may have been slow.
        print(f"that is not all: {completeness.summary() or 'the function was not called'}")
        return 1
    return int(milliseconds > options.p99_ms)


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except WeftError as error:
        raise SystemExit(f"error: {error}") from None
