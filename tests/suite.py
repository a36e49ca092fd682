"""Runs the tests of everything together: most side by side, fleets, and those to be alone.

    python -m tests.suite

A few tests ask what a machine did in a time, and thousands of others run beside them. What fails
runs once more by itself. Whatever fails then has failed. What passes is named at the end, for a
test that needs an idle machine is a fault of the test, or there is a race in weft: it does not hold
up everybody else, and somebody has to look at it. Where more than a few fail, nothing runs again.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

SIDE_BY_SIDE = ("--numprocesses", "auto", "--dist", "loadfile", "--no-loadscope-reorder")
STEPS = (
    ("not alone and not fleet", SIDE_BY_SIDE),
    ("fleet", SIDE_BY_SIDE),
    ("alone", ()),
)
FEW = 3
"""How many failures of a step may be the machine's."""
FAILED = 1
"""What pytest ends with if tests have failed, and nothing else went wrong."""


def main() -> None:
    again: list[str] = []
    for marks, options in STEPS:
        again += run(marks, options)
    for name in again:
        print(f"failed beside other tests, and passed by itself: {name}")


def run(marks: str, options: tuple[str, ...]) -> list[str]:
    """Run the tests of a step; return those that have passed at the second time only."""
    with tempfile.TemporaryDirectory(prefix="weft-suite-") as folder:
        tests = [sys.executable, "-m", "pytest", "-m", marks, "-o", f"cache_dir={folder}"]
        code = subprocess.run([*tests, *options], check=False).returncode
        if not code:
            return []
        failed = last_failed(Path(folder))
        if code != FAILED or not 0 < len(failed) <= FEW:
            sys.exit(code)
        print(f"== once more, by themselves: {', '.join(failed)}", flush=True)
        code = subprocess.run([*tests, "--last-failed"], check=False).returncode
        if code:
            sys.exit(code)
        return failed


def last_failed(cache: Path) -> list[str]:
    """Return the tests that pytest has noted as failed in a folder for its cache."""
    noted = cache / "v" / "cache" / "lastfailed"
    return sorted(json.loads(noted.read_text())) if noted.exists() else []


if __name__ == "__main__":
    main()
