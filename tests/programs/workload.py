"""Threads, exceptions, garbage and generators. Works until its input ends."""

import gc
import hashlib
import sys
import threading
import zlib

finished = threading.Event()
broken: list[str] = []


def compress() -> None:
    text = b"weft weaves measurement into running programs " * 50
    if zlib.decompress(zlib.compress(text)) != text:
        broken.append("compression")
    if hashlib.sha256(text).hexdigest()[:8] != digest:
        broken.append("hash")


def raise_and_catch() -> None:
    def fall(depth: int) -> int:
        return fall(depth - 1) + 1 if depth else 1 // 0

    try:
        fall(30)
        broken.append("no exception")
    except ZeroDivisionError as error:
        depth, frame = 0, error.__traceback__
        while frame:
            depth, frame = depth + 1, frame.tb_next
        if depth != 32:
            broken.append(f"a traceback of {depth} frames")


def make_cycles() -> None:
    for _ in range(200):
        cycle: list[object] = []
        cycle.append(cycle)
    gc.collect(0)


def generate() -> None:
    if sum(n * n for n in range(1000)) != 332833500:
        broken.append("a sum")


def repeat(step: object) -> None:
    assert callable(step)
    step()
    while not finished.is_set():
        step()


digest = hashlib.sha256(b"weft weaves measurement into running programs " * 50).hexdigest()[:8]
steps = [compress, raise_and_catch, make_cycles, generate]
threads = [threading.Thread(target=repeat, args=(step,)) for step in steps]
for thread in threads:
    thread.start()
print("ready", flush=True)
if sys.stdin.read():
    broken.append("input")
finished.set()
for thread in threads:
    thread.join()
print("broken:", broken)
sys.exit(7)
