"""Asks `weft why` about every program whose bottleneck is known: `python -m tests.bottlenecks`.

For each it prints what was planted, what was answered first, whether that is right, how long it
took, and with --throughput what the program did meanwhile over what it did before and after: the
median over the rounds. What the machine does otherwise is in that number: compare it with that of a
command that only waits (--weft). The status is 1 if less than nine of ten answers are right.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys

from tests.bottlenecks.asking import WEFT, Verdict, ask
from tests.bottlenecks.catalogue import CASES
from tests.bottlenecks.model import KINDS
from tests.bottlenecks.table import FORMATS, line, summary
from tests.bottlenecks.truth import check_all

ENOUGH = 0.9
BUSY = 0.5


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", metavar="NAME", help="only these, by name or kind")
    parser.add_argument(
        "--for",
        type=float,
        default=10.0,
        dest="seconds",
        metavar="S",
        help="how long `weft why` may look at each",
    )
    parser.add_argument(
        "--rounds", type=int, default=1, metavar="N", help="how often to ask about each"
    )
    parser.add_argument("--throughput", action="store_true", help="measure what each loses")
    parser.add_argument("--format", choices=FORMATS, default="text")
    parser.add_argument("--weft", metavar="COMMAND", help="what to ask, instead of this weft")
    parser.add_argument(
        "--truth", action="store_true", help="do not ask weft: check what is planted, by /proc"
    )
    parser.add_argument("--list", action="store_true", help="name all cases and end")
    options = parser.parse_args()
    # What was started ends with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    chosen = [
        case
        for case in CASES
        if not options.only or case.name in options.only or case.kind in options.only
    ]
    if unknown := set(options.only or []) - {case.name for case in CASES} - set(KINDS):
        sys.exit(f"there is no {', '.join(sorted(unknown))}")
    if options.list:
        for case in chosen:
            print(f"{case.name:18} {case.kind:8} {case.language:7} {', '.join(case.expected)}")
        return
    if options.truth:
        sys.exit(not check_all(chosen, options.seconds))
    weft = shlex.split(options.weft) if options.weft else WEFT
    load = os.getloadavg()[0] / (os.cpu_count() or 1)
    if load > BUSY:
        print(
            f"others have the machine: {load:.1f} are runnable per processor, so run_queue may "
            "be a right answer about any program here",
            file=sys.stderr,
        )
    verdicts: list[Verdict] = []
    for case in chosen:
        verdicts.append(ask(case, options.seconds, options.rounds, options.throughput, weft))
        print(line(verdicts[-1]), file=sys.stderr, flush=True)
    print(FORMATS[options.format](verdicts))
    print(summary(verdicts), file=sys.stderr)
    right = sum(verdict.right for verdict in verdicts)
    sys.exit(right < ENOUGH * len(verdicts))


if __name__ == "__main__":
    main()
