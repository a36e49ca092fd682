"""Walks through programs on two sides, and says where they differ: see the package."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.gdb import __doc__ as description
from tests.gdb.sides import MOVED, NATIVE, WATCHED, WEFT
from tests.gdb.together import difference
from tests.gdb.walks import WALKS


def main() -> None:
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("walks", nargs="*", default=list(WALKS), metavar="WALK")
    parser.add_argument("--stops", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--against", choices=[NATIVE, MOVED, WEFT, *WATCHED], default=WEFT)
    parser.add_argument("--folder", type=Path, help="where programs and walks are kept")
    options = parser.parse_args()
    failed = False
    with tempfile.TemporaryDirectory(prefix="weft-gdb-") as name:
        for walk in options.walks:
            start = time.monotonic()
            folder = options.folder or Path(name)
            folder.mkdir(parents=True, exist_ok=True)
            found = difference(
                WALKS[walk],
                folder,
                options.stops,
                options.seed,
                options.against,
            )
            failed = failed or bool(found.text)
            seconds = time.monotonic() - start
            print(f"{walk}: {found.stops} stops, {seconds:.1f} s{found.text and ', different:'}")
            print(found.text, end="\n" * bool(found.text), flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
