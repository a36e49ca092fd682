"""How long the command line takes to start, against an interpreter that does nothing."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

ROUNDS = 20
WEFT = str(Path(sys.executable).with_name("weft"))


def best_of(command: list[str]) -> float:
    """The shortest time that a command takes, in seconds."""

    def once() -> float:
        start = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return time.perf_counter() - start

    return min(once() for _ in range(ROUNDS))


def main() -> None:
    bare = best_of([sys.executable, "-c", "pass"])
    print(f"{'python -c pass':24} {bare * 1000:6.1f} ms")
    for arguments in (["--version"], ["--help"], ["completion", "bash"]):
        taken = best_of([WEFT, *arguments])
        print(f"{' '.join(['weft', *arguments]):24} {taken * 1000:6.1f} ms  {taken / bare:4.1f}x")


if __name__ == "__main__":
    main()
