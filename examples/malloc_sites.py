"""Say who allocates how much, by call site.

python examples/malloc_sites.py -- sqlite3 :memory: 'select 1'
python examples/malloc_sites.py --pid 4711 --seconds 10
"""

from __future__ import annotations

import argparse
import time

import weft
from weft.errors import WeftError


def main() -> int:
    """Measure a program, or a process for a while."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--pid", type=int)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--top", type=int, default=10)
    parser.add_argument("program", nargs="*")
    options = parser.parse_args()
    session = weft.attach(options.pid) if options.pid else weft.run(options.program)
    with session:
        if not options.pid:
            session.run_to_entry()
        sizes = session.metric("alloc_bytes", by="caller")
        if options.pid:
            time.sleep(options.seconds)
        else:
            session.wait()
        value = sizes.value
        status = sizes.completeness.status
    assert isinstance(value, dict)
    print(f"{sum(value.values()):,} bytes at {len(value)} call sites ({status})")
    for site, amount in sorted(value.items(), key=lambda item: -item[1])[: options.top]:
        print(f"{amount:>14,}  {site}")
    return 0


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except WeftError as error:
        raise SystemExit(f"error: {error}") from None
