"""Show how the memory that a program has allocated grows and shrinks.

python examples/memory_course.py -- python3 -c 'x = [bytes(1000) for _ in range(100000)]'
"""

from __future__ import annotations

import argparse

import weft
from weft.errors import WeftError

BARS = " ▁▂▃▄▅▆▇█"


def main() -> int:
    """Run a program to its end; the exit code is the program's."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--interval", type=float, default=0.05, help="seconds between two samples")
    parser.add_argument("program", nargs="+")
    options = parser.parse_args()
    with weft.run(options.program) as session:
        session.run_to_entry()
        live = session.metric("live_bytes")
        session.resume()
        values = [float(str(sample.value)) for sample in live.stream(options.interval)]
        code = session.wait() or 0
        status = live.completeness.status
    top = max([*values, 1.0])
    print("".join(BARS[max(0, round(value / top * 8))] for value in values))
    print(f"the largest of {len(values)} samples: {top:,.0f} bytes allocated ({status})")
    return code


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except WeftError as error:
        raise SystemExit(f"error: {error}") from None
