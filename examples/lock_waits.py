"""Say at which call sites threads wait for locks, and for how long.

python examples/lock_waits.py --seconds 10 4711
"""

from __future__ import annotations

import argparse
import time

import weft
from weft.errors import WeftError


def main() -> int:
    """Measure a process for a while."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("pid", type=int)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--top", type=int, default=10)
    options = parser.parse_args()
    with weft.attach(options.pid) as session:
        waits = session.metric("lock_wait", by="caller")
        time.sleep(options.seconds)
        value, status = waits.value, waits.completeness.status
    assert isinstance(value, dict)
    print(f"{sum(value.values()):.3f} s of waiting at {len(value)} call sites ({status})")
    for site, seconds in sorted(value.items(), key=lambda item: -item[1])[: options.top]:
        print(f"{seconds * 1e3:>12.3f} ms  {site}")
    return 0


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except WeftError as error:
        raise SystemExit(f"error: {error}") from None
