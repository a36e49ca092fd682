"""Six workers share a cache that asks the database for what it does not have."""

from __future__ import annotations

import threading
import time

from operations import Operations


class Cache:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.rows: dict[int, str] = {}

    def fetch(self, key: int) -> str:
        time.sleep(0.003)
        return f"row {key}"

    def read_row(self, key: int, operations: Operations) -> str:
        with self.lock:
            self.rows[key % 100] = self.fetch(key)
            operations.count()
            return self.rows[key % 100]


def work(cache: Cache, first: int, operations: Operations) -> None:
    for key in range(first, 1 << 60, 6):
        cache.read_row(key, operations)
        time.sleep(0.0001)


def main() -> None:
    operations = Operations()
    cache = Cache()
    threads = [
        threading.Thread(target=work, args=(cache, first, operations), name=f"worker-{first}")
        for first in range(6)
    ]
    for thread in threads:
        thread.start()
    threads[0].join()


main()
