"""json, re, sorting, classes, generators, zlib, threads, sqlite, ctypes, signals, subprocess."""

import collections
import ctypes
import decimal
import hashlib
import json
import random
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import zlib
from pathlib import Path

text = Path(sys.argv[1]).read_text()
words = text.split()
print(collections.Counter(words).most_common(5))
print(len(re.findall(r"\b(\w\w)\w*\1\b", text)), hashlib.sha256(text.encode()).hexdigest())
packed = zlib.compress(text.encode(), 9)
print(len(packed), zlib.decompress(packed) == text.encode())


def fib(n: int) -> int:
    return n if n < 2 else fib(n - 1) + fib(n - 2)


class Tree:
    def __init__(self, depth: int) -> None:
        self.parts = [Tree(depth - 1), Tree(depth - 1)] if depth else []

    def __iter__(self):
        yield self
        for part in self.parts:
            yield from part


print(fib(20), sum(1 for _ in Tree(12)))
chance = random.Random(7)
numbers = [chance.random() for _ in range(50000)]
print(sorted(numbers)[1000], sum(numbers))
items = [{"name": word, "place": place} for place, word in enumerate(words[:5000])]
Path("out.json").write_text(json.dumps(items))
print(json.loads(Path("out.json").read_text()) == items)

total = 0
lock = threading.Lock()


def work(n: int) -> None:
    global total
    for i in range(2000):
        with lock:
            total += i ^ n


threads = [threading.Thread(target=work, args=(n,)) for n in range(16)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(total)
with sqlite3.connect(":memory:") as base:
    base.execute("create table t(a, b)")
    base.executemany("insert into t values(?, ?)", enumerate(words))
    print(
        base.execute("select b, count(*) from t group by b order by 2 desc, 1 limit 3").fetchall()
    )
libc = ctypes.CDLL(None)
compare = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int))
array = (ctypes.c_int * 500)(*[chance.randrange(1000) for _ in range(500)])
libc.qsort(array, 500, 4, compare(lambda a, b: a[0] - b[0]))
print(list(array) == sorted(array))
caught = []
signal.signal(signal.SIGALRM, lambda *_: caught.append(1))
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
while len(caught) < 20:
    signal.pause()
signal.setitimer(signal.ITIMER_REAL, 0)
print("signals came")
decimal.getcontext().prec = 200
print(decimal.Decimal(2).sqrt())
print(subprocess.run(["sh", "-c", "echo from a child; exit 3"], capture_output=True, text=True))
try:
    raise ExceptionGroup("two", [ValueError(1), TypeError(2)])
except* ValueError as group:
    print(group.exceptions)
except* TypeError:
    pass
