"""Pools of processes, forked and spawned, a queue, and memory that they share."""

import multiprocessing
from multiprocessing import shared_memory


def square(n: int) -> int:
    return n * n


def fill(name: str, at: int) -> None:
    block = shared_memory.SharedMemory(name)
    block.buf[at] = at * 7 % 256
    block.close()


def main() -> None:
    for method in ("fork", "spawn", "forkserver"):
        context = multiprocessing.get_context(method)
        with context.Pool(3) as pool:
            print(method, sum(pool.map(square, range(1000))))
    block = shared_memory.SharedMemory(create=True, size=16)
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=fill, args=(block.name, at)) for at in range(16)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    print(bytes(block.buf[:16]).hex(), [worker.exitcode for worker in workers])
    block.close()
    block.unlink()


if __name__ == "__main__":
    main()
