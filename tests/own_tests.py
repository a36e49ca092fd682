"""The own tests of programs, native and cloned: CPython's suite, a module at a time.

    python -m tests.own_tests [--prefix WORDS] [--list] [MODULE ...]

What came of each single test must be the same in both. Some tests are about time, and this machine
may be busy: what came out differently has to do so in three runs out of three. This takes about an
hour and belongs to `make soak`.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass

from tests.clone import cloned
from tests.cpython import Outcome, differences, parse, python_with_tests

PATIENCE = 900.0
TRIES = 3

# Left out: what needs a display, the network or gigabytes, what debugs, traces or names the process
# from outside, and what is empty on Linux.
NAMES = """
    grammar opcodes dict builtin exceptions types unittest doctest __future__ abc
    abstract_numbers argparse array ast asyncgen asyncio atexit audioop augassign base64
    baseexception bdb binascii binop bisect bool buffer bufio bytes bz2 calendar call
    charmapcodec class cmath cmd cmd_line code codeccallbacks codecs codeop collections colorsys
    compare compile complex concurrent_futures configparser contains context contextlib
    contextlib_async copy copyreg coroutines cprofile csv ctypes dataclasses datetime dbm
    decimal decorators defaultdict deque descr dictcomps dictviews difflib dis dynamic email
    enum enumerate eof epoll errno except_star exception_group exception_variations extcall
    faulthandler fcntl file file_eintr filecmp fileinput fileio finalization float fnmatch fork1
    format fractions frame fstring ftplib funcattrs functools gc generators genericalias genexps
    getopt gettext glob graphlib grp gzip hash hashlib heapq hmac html htmlparser http_cookiejar
    http_cookies httplib imaplib import importlib index inspect int io ipaddress isinstance iter
    itertools json largefile linecache list listcomps locale logging long lzma mailbox marshal
    math memoryio memoryview metaclass minidom mmap module multibytecodec multiprocessing_fork
    multiprocessing_spawn named_expressions numeric_tower opcache openpty operator optparse
    ordered_dict os pathlib patma peepholer pickle picklebuffer pickletools pkgutil plistlib
    poll popen posix posixpath pow pprint print property pty pwd pyexpat queue quopri raise
    random range re repl reprlib resource richcmp runpy sax sched scope select selectors set
    shelve shlex shutil signal slice socket socketserver sort ssl stat statistics strftime
    string strptime strtod struct structseq subprocess super symtable syntax sys sys_setprofile
    sys_settrace tarfile tempfile textwrap thread threadedtempfile threading threading_local
    threadsignals time timeit timeout tokenize traceback tracemalloc tuple typing unicode
    unicodedata unpack urllib urlparse userdict userlist uuid wait3 wait4 warnings weakref
    weakset with xml_etree xml_etree_c xmlrpc yield_from zipfile zipimport zlib zoneinfo
"""
MODULES = [f"test_{name}" for name in NAMES.split()]


@dataclass(frozen=True)
class Ran:
    """What came of a module: of each test, and of all together."""

    outcome: Outcome
    code: int | None
    seconds: float


def run(prefix: Sequence[str], python: str, module: str) -> Ran:
    """Run a module of the suite in a folder of its own."""
    # What uses virtual sockets waits forever where a machine has them but nobody answers.
    command = [*prefix, python, "-m", "test", "-v", "-i", "*VSOCK*", "-i", "*Vsock*", module]
    start = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="weft-tests-") as folder,
        tempfile.TemporaryFile() as file,
        subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process,
    ):
        code: int | None = None
        try:
            code = process.wait(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        file.seek(0)
        output = file.read().decode(errors="replace")
    return Ran(parse(output), code, time.monotonic() - start)


def compare(prefix: Sequence[str], python: str, module: str) -> tuple[Ran, Ran, list[str]]:
    """Run a module natively and with a prefix: both, and what is not the same in all tries."""
    lasting: set[str] | None = None
    for _ in range(TRIES):
        native, clone = run([], python, module), run(prefix, python, module)
        found = set(differences(native.outcome, clone.outcome, "cloned"))
        if native.code != clone.code:
            found.add(f"{module} ended with {native.code} alone, {clone.code} cloned")
        lasting = found if lasting is None else lasting & found
        if not lasting:
            break
    return native, clone, sorted(lasting or ())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--prefix", help="what to put before a command, instead of weft")
    parser.add_argument("--list", action="store_true", help="name all modules and end")
    parser.add_argument("modules", nargs="*", metavar="MODULE")
    options = parser.parse_args()
    if options.list:
        print("\n".join(MODULES))
        return
    python = python_with_tests()
    if not python:
        sys.exit("no interpreter here has its test suite")
    prefix = cloned() if options.prefix is None else shlex.split(options.prefix)
    modules = options.modules or MODULES
    tests, failed, empty = 0, 0, 0
    for number, module in enumerate(modules, start=1):
        native, clone, found = compare(prefix, python, module)
        tests += len(native.outcome)
        failed += bool(found)
        times = f"{native.seconds:6.1f} s {clone.seconds:6.1f} s"
        what = f"{len(found)} came out differently" if found else "same"
        if not native.outcome and not found:
            what = "nothing was run"
            empty += 1
        line = f"{module:30} {len(native.outcome):5} tests {times}"
        print(f"{number:3}/{len(modules)} {line} {what}", flush=True)
        for difference in found[:10]:
            print(f"    {difference}", flush=True)
    same = len(modules) - failed - empty
    print(f"{same} of {len(modules)} modules are the same, with {tests} tests; {empty} ran nothing")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
