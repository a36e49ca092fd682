"""What is recorded of a program, three ways, and what they say of each other.

    setarch -R python -m tests.recorded [--bytes RECORDS] COMMAND...

With ``--bytes`` prints how often each byte of code was executed, by its place and module, recorded
in one way; the program gets no environment but what says that its language is C. Without it:

Nothing may be at random addresses, nor anything else be at random: the program is run three times.
Prints JSON: how many blocks there are; how many have different counts with few counters and with
one in every block; how much code was executed by one count and not by the other's hits; how many
counters were executed in each.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias, cast

from weft import clone
from weft.model.flow import Flow

Counts: TypeAlias = dict[tuple[str, int], int]
"""By module and address."""


def record(
    command: Sequence[str],
    records: clone.Records,
    environment: list[tuple[str, str]] | None = None,
) -> Flow:
    """Run a program to its end, with what it writes thrown away."""
    with Path(os.devnull).open("r+b") as nowhere:
        streams = (nowhere.fileno(),) * 3
        with clone.launch(
            command, records=records, environment=environment, streams=streams
        ) as cloned:
            code = cloned.wait()
            assert code == 0, f"{command} ended with {code}"
            assert not cloned.reports(), cloned.reports()
            return cloned.flow()


def bytes_of(flow: Flow) -> Counts:
    """How often each byte of code was executed: however blocks are divided, that is the same."""
    return {
        (module.path, block.offset + index): block.count
        for module in flow.modules
        for block in module.blocks
        for index in range(block.size)
    }


def compare(command: Sequence[str]) -> dict[str, int]:
    """Record a program by all means."""
    every, few, hits = (record(command, records) for records in ("every block", "counts", "hits"))
    counts, same, hit = bytes_of(every), bytes_of(few), bytes_of(hits)
    assert not few.lost and not hits.lost
    return {
        "blocks": sum(len(module.blocks) for module in every.modules),
        "different": sum(counts.get(at) != same.get(at) for at in counts.keys() | same.keys()),
        "missed": len(counts.keys() ^ hit.keys()),
        "naive": every.counters_executed,
        "counters": few.counters_executed,
    }


def main() -> None:
    """Do what the command line says."""
    os.environ |= {"PYTHONHASHSEED": "0", "PERL_HASH_SEED": "0"}
    if sys.argv[1] != "--bytes":
        print(json.dumps(compare(sys.argv[1:])))
        return
    _, _, records, *command = sys.argv
    flow = record(command, cast(clone.Records, records), [("LC_ALL", "C")])
    print(json.dumps({f"{at} {path}": count for (path, at), count in bytes_of(flow).items()}))


if __name__ == "__main__":
    main()
