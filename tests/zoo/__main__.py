"""Runs the programs of the zoo natively and cloned, and compares what came of them.

    python -m tests.zoo [--short] [--only NAME...] [--prefix WORDS] [--table FILE]

A program that is not installed is said to be missing, and is no failure. With an empty prefix both
runs are native, which shows whether a program does the same each time.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

from tests.clone import cloned
from tests.zoo.exhibits import EXHIBITS
from tests.zoo.running import Verdict, compare
from tests.zoo.table import markdown, summary


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--short", action="store_true", help="only what the tests run, too")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="only these programs")
    parser.add_argument("--prefix", help="what to put before a command, instead of weft")
    parser.add_argument("--table", type=Path, help="write a page of documentation")
    parser.add_argument("--limit", type=float, help="seconds that a program may take")
    parser.add_argument("--list", action="store_true", help="name all programs and end")
    options = parser.parse_args()
    chosen = [
        exhibit
        for exhibit in EXHIBITS
        if (exhibit.short or not options.short) and exhibit.name in (options.only or [exhibit.name])
    ]
    if unknown := set(options.only or []) - {exhibit.name for exhibit in chosen}:
        sys.exit(f"there is no {', '.join(sorted(unknown))}")
    if options.list:
        for exhibit in chosen:
            print(f"{exhibit.name:20} {'short' if exhibit.short else '     '} {exhibit.packages}")
        return
    prefix = cloned() if options.prefix is None else shlex.split(options.prefix)
    verdicts = []
    for number, exhibit in enumerate(chosen, start=1):
        verdict = compare(exhibit, prefix, options.limit)
        verdicts.append(verdict)
        print(f"{number:3}/{len(chosen)} {line(verdict)}", flush=True)
    print(summary(verdicts))
    if options.table:
        options.table.write_text(markdown(verdicts))
    sys.exit(any(verdict.differences and not verdict.exhibit.known for verdict in verdicts))


def line(verdict: Verdict) -> str:
    """Return what came of a program, on a line."""
    text = f"{verdict.exhibit.name:20} {verdict.word:8}"
    if verdict.cloned:
        ratio = verdict.cloned / max(verdict.native, 0.001)
        text += f" {verdict.native:7.2f} s {verdict.cloned:7.2f} s {ratio:6.1f}x"
    return f"{text} {verdict.why}".rstrip()


if __name__ == "__main__":
    main()
