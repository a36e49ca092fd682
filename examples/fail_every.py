"""Let every Nth call of a function fail, and see what the program does.

python examples/fail_every.py --function /Code/libc.so.6/malloc --every 100 --result 0 -- ls
"""

from __future__ import annotations

import argparse

import weft
from weft.errors import WeftError

SNIPPET = """
local calls; counter all shared; counter failed shared
at entry {{ calls++; all++; if (calls % {every} == 0) {{ failed++; return {result} }} }}
"""


def main() -> int:
    """Run a program to its end; the exit code is the program's."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--function", required=True, help="a path of the resource tree")
    parser.add_argument("--every", type=int, default=100)
    parser.add_argument("--result", type=int, default=0, help="what a call returns that fails")
    parser.add_argument("program", nargs="+")
    options = parser.parse_args()
    with weft.run(options.program) as session:
        session.run_to_entry()
        text = SNIPPET.format(every=options.every, result=options.result)
        probe = session.insert(options.function, text)
        code = session.wait() or 0
        failed, calls = probe.value("failed"), probe.value("all")
    print(f"{failed} of {calls} calls failed; the program ended with {code}")
    return code


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except WeftError as error:
        raise SystemExit(f"error: {error}") from None
