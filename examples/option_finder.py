"""Say which functions a program executes only with an option: there it is implemented.

python examples/option_finder.py --without 'ls /' --with 'ls -l /'
"""

from __future__ import annotations

import argparse
import shlex
import subprocess

import weft
from weft.errors import WeftError
from weft.tools.coverage import cover


def executed(command: str) -> dict[tuple[str, str], int]:
    """How often each function of a program, and of its libraries, was entered."""
    words = shlex.split(command)
    with weft.run(words, weaver="clone", records="hits", stdout=subprocess.DEVNULL) as program:
        program.wait()
        coverage = cover(program.flow())
    return {
        (module.name, function.name): function.size
        for module in coverage.modules
        for function in module.functions
        if function.count
    }


def main() -> int:
    """Compare two runs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--without", required=True, metavar="COMMAND")
    parser.add_argument("--with", dest="with_", required=True, metavar="COMMAND")
    parser.add_argument("--top", type=int, default=20)
    options = parser.parse_args()
    before, after = executed(options.without), executed(options.with_)
    new = {key: size for key, size in after.items() if key not in before}
    print(f"{len(new)} functions run only with `{options.with_}`; the largest:")
    for (module, function), size in sorted(new.items(), key=lambda item: -item[1])[: options.top]:
        print(f"{size:>8,} bytes  {function}  ({module})")
    return 0


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except WeftError as error:
        raise SystemExit(f"error: {error}") from None
