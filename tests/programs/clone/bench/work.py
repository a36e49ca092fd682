"""Recursion, json, re and sorting, as often as told; prints what came of it."""

import json
import random
import re
import sys


def fib(n: int) -> int:
    return n if n < 2 else fib(n - 1) + fib(n - 2)


def once(seed: int) -> int:
    chance = random.Random(seed)
    total = fib(21)
    items = [{"id": n, "name": f"n{chance.randrange(999)}", "tags": [n % 3]} for n in range(4000)]
    text = json.dumps(items)
    total += len(json.loads(text))
    total += len(re.findall(r'"name": "n(\d)\d*\1"', text))
    numbers = [chance.random() for _ in range(40000)]
    numbers.sort()
    return total + sorted(text.split(","), key=len)[100].count("n")


print(sum(once(seed) for seed in range(int(sys.argv[1]))))
