"""Four threads score documents, all in one interpreter."""

from __future__ import annotations

import threading

from operations import Operations


def score(document: str) -> int:
    total = 0
    for letter in document:
        total = (total * 31 + ord(letter)) % 65521
    return total


def work(operations: Operations) -> None:
    document = "the quick brown fox " * 500
    while True:
        score(document)
        operations.count()


def main() -> None:
    operations = Operations()
    threads = [threading.Thread(target=work, args=(operations,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    threads[0].join()


main()
