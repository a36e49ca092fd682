"""Measures programs by both weavers, and prints what they do not agree on.

    python -m tests.patch_against_clone [--short] [--only NAME...] [--json FILE]

For every program it prints how many functions it has with its libraries, how many of them were
executed, how many were compared (calls, returns, and what happens between the two), how many of
these were timed, on how much the weavers disagree, and what was left out: functions that a weaver
refuses, and functions for which one weaver alone counts something else each time.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.patch_against_clone.comparing import compare
from tests.patch_against_clone.model import Verdict
from tests.patch_against_clone.subjects import SUBJECTS
from tests.patch_against_clone.table import as_json, groups, heading, line, refusals


def main() -> int:
    """Compare the programs, print the table and then what is bad."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.patch_against_clone",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--short", action="store_true", help="only what the tests run, too")
    parser.add_argument(
        "--only", nargs="+", metavar="NAME", default=[], help="only these programs, or groups"
    )
    parser.add_argument("--timed", type=int, default=300, help="functions to time of each program")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all of it into a file")
    parser.add_argument("--list", action="store_true", help="name all programs and end")
    parser.add_argument("-v", "--verbose", action="store_true", help="say what was left out")
    options = parser.parse_args()
    chosen = [
        subject
        for subject in SUBJECTS
        if (subject.is_short or not options.short)
        and (not options.only or {subject.name, subject.group} & set(options.only))
    ]
    known = {name for subject in SUBJECTS for name in (subject.name, subject.group)}
    if unknown := set(options.only) - known:
        sys.exit(f"there is no {', '.join(sorted(unknown))}")
    if options.list:
        for subject in chosen:
            print(f"{subject.name:32} {'short' if subject.is_short else '     '} {subject.group}")
        return 0
    verdicts = []
    print(heading(), flush=True)
    with tempfile.TemporaryDirectory(prefix="patch-against-clone-") as name:
        top = Path(name)
        top.chmod(0o755)
        for number, subject in enumerate(chosen):
            verdict = compare(subject, top / str(number), options.timed)
            verdicts.append(verdict)
            print(line(subject.name, [verdict]), flush=True)
            for difference in verdict.differences[:20]:
                print(f"    {difference}", flush=True)
            if len(verdict.differences) > 20:
                print(f"    and {len(verdict.differences) - 20} more differences", flush=True)
            if options.verbose:
                _print_left_out(verdict)
    if len(verdicts) > 1:
        print()
        print(groups(verdicts))
    print(refusals(verdicts))
    if options.json:
        options.json.write_text(as_json(verdicts))
    return 0 if all(verdict.is_good for verdict in verdicts) else 1


def _print_left_out(verdict: Verdict) -> None:
    if verdict.failure:
        print(verdict.failure)
    left_out = {"varies": verdict.varying, "is not left as often": verdict.unbalanced}
    for what, names in left_out.items():
        for module, function in names:
            print(f"    {module}/{function} {what}")


if __name__ == "__main__":
    sys.exit(main())
