"""Say which calls of a function took longer than a limit: when, how long, and their arguments.

python examples/slow_calls.py --function /Code/libc.so.6/nanosleep --ms 5 -- sleep 0.1
"""

from __future__ import annotations

import argparse

import weft
from weft.errors import WeftError

SNIPPET = """
mark began; local first; local second
ring slow(time, thread, took, first, second) 4096
at entry {{ stamp began; first = $arg[0]; second = $arg[1] }}
at return {{
    let took = since(began)
    if (took > {limit}) emit slow($time, $thread, took, first, second)
}}
"""


def main() -> int:
    """Run a program to its end, and print its slow calls in order."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--function", required=True, help="a path of the resource tree")
    parser.add_argument("--ms", type=float, default=1.0)
    parser.add_argument("program", nargs="+")
    options = parser.parse_args()
    with weft.run(options.program) as session:
        session.run_to_entry()
        probe = session.insert(options.function, SNIPPET.format(limit=int(options.ms * 1e6)))
        code = session.wait() or 0
        records = sorted(probe.records())
        lost = probe.lost("slow")
    for _time, thread, took, first, second in records:
        print(f"thread {thread}: {took / 1e6:9.3f} ms  ({first:#x}, {second:#x})")
    rest = f", and {lost} more for which there was no room" if lost else ""
    print(f"{len(records)} took longer than {options.ms} ms{rest}")
    return code


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except WeftError as error:
        raise SystemExit(f"error: {error}") from None
