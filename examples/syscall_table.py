"""Say which system calls a program makes: how often, how long, and how many fail.

python examples/syscall_table.py -- ls /
"""

from __future__ import annotations

import argparse
from collections import Counter

import weft
from weft.errors import WeftError
from weft.program.system_calls import name_of

SNIPPET = """
mark began; map calls[1] 1024; map ns[1] 1024; map failed[1] 1024
at syscall { stamp began; calls[$syscall]++ }
at sysreturn {
    let took = since(began)
    if (took > 0) ns[$syscall] += took
    if ($return < 0 && $return > -4096) failed[$syscall]++
}
"""


def _counts(probe: weft.Probe, name: str) -> Counter[int]:
    value = probe.value(name)
    assert isinstance(value, dict)
    return Counter({key: count for key, count in value.items() if isinstance(key, int)})


def main() -> int:
    """Run a program to its end; the exit code is the program's."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("program", nargs="+")
    options = parser.parse_args()
    with weft.run(options.program, weaver="clone", is_held=True) as program:
        probe = program.session.insert("/Syscall/*", SNIPPET)
        code = program.wait() or 0
        calls, ns, failed = (_counts(probe, name) for name in ("calls", "ns", "failed"))
    print(f"{'calls':>8} {'failed':>7} {'ms':>10}  system call")
    for number, count in calls.most_common():
        milliseconds = ns[number] / 1e6
        print(f"{count:>8} {failed[number]:>7} {milliseconds:>10.3f}  {name_of(number)}")
    return code


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except WeftError as error:
        raise SystemExit(f"error: {error}") from None
