"""Cleans lists of addresses: every address once, in the order in which they came."""

from __future__ import annotations

import random

from operations import Operations


def without_doubles(addresses: list[str]) -> list[str]:
    seen: list[str] = []
    for address in addresses:
        if address not in seen:
            seen.append(address)
    return seen


def main() -> None:
    operations = Operations()
    chance = random.Random(7)
    while True:
        addresses = [f"user{chance.randrange(3000)}@example.org" for _ in range(2000)]
        without_doubles(addresses)
        operations.count()


main()
