"""Much of the interpreter in one thread, with nothing that depends on time or addresses."""

import collections
import contextlib
import dataclasses
import functools
import itertools
import re
import sys

with open("text.txt") as file:
    text = file.read()
words = text.split()
print(collections.Counter(words).most_common(5))
print(len(re.findall(r"\b(\w\w)\w*\1\b", text[:4000])), re.sub(r"[aeiou]+", "-", text[:200]))


def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


class Tree:
    def __init__(self, depth):
        self.parts = [Tree(depth - 1), Tree(depth - 1)] if depth else []

    def __iter__(self):
        yield self
        for part in self.parts:
            yield from part

    def __eq__(self, other):
        return isinstance(other, Tree) and self.parts == other.parts

    __hash__ = None


@dataclasses.dataclass(order=True, frozen=True)
class Item:
    name: str
    place: int = 0


@contextlib.contextmanager
def swallowing():
    with contextlib.suppress(KeyError):
        yield


def coroutine():
    total = 0
    while True:
        got = yield total
        total += got


print(fib(14), sum(1 for _ in Tree(7)), Tree(3) == Tree(3))
print(sorted(Item(word, place) for place, word in enumerate(words[:60]))[:2])
with swallowing():
    {}["nothing"]
sender = coroutine()
next(sender)
print([sender.send(n) for n in range(5)])
for attempt in range(20):
    try:
        try:
            [][attempt]
        finally:
            int("x" * attempt)
    except ValueError as error:
        assert isinstance(error.__context__, IndexError)
print(functools.reduce(lambda a, b: a * b, range(1, 200)) % 10**9 + 7, 3**400 // 7**90, -(2**100) >> 3)
print([f"{n:>8.3f}|{n!r:^6}|{n:e}" for n in (0.1, 1e10, -2.5)], "%s %05d %x" % ("a", 42, 255))
print(list(itertools.islice(itertools.permutations("abcd"), 5)), {n % 7: {n} for n in range(50)})
print("é".encode(), b"abc".decode("latin-1"), "ß".upper(), "a,b,c".partition(","), "x".join("abc"))
match words[:3]:
    case [first, *rest]:
        print(first, len(rest))
print(eval(compile("sum(i * i for i in range(100) if i % 3)", "made", "eval")))
exec("\n".join(f"def f{n}(a, *b, c={n}, **d): return a + c + len(b) + len(d)" for n in range(20)))
print([globals()[f"f{n}"](1, 2, x=3) for n in range(20)], complex(1, 2) ** 2, divmod(-7, 3), round(2.5))
print(bytearray(b"abc") + memoryview(b"def")[1:], set("abc") ^ set("bcd") == {"a", "d"}, frozenset("a"))
numbers = [(n * 7919) % 1009 for n in range(2000)]
print(sorted(numbers)[10:13], sorted(numbers, key=lambda n: -n)[:3], numbers.index(8), sys.getsizeof(()))
