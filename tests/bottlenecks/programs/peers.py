"""What programs need beside them: services that take their time, and visitors.

Each says "ready" when it is.

peers.py lines PORT_OR_PATH MS    answers each line after so many milliseconds
peers.py http PORT MS             the same, as an HTTP server
peers.py datagrams PORT MS        answers every second datagram
peers.py visit PORT RATE          asks an HTTP server so many times a second
"""

from __future__ import annotations

import asyncio
import socket
import sys
import time
import urllib.request
from contextlib import suppress


async def serve_lines(place: str, seconds: float) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while line := await reader.readline():
                await asyncio.sleep(seconds)
                writer.write(line)
                await writer.drain()

    if place.isdigit():
        server = await asyncio.start_server(answer, "127.0.0.1", int(place))
    else:
        server = await asyncio.start_unix_server(answer, place)
    print("ready", flush=True)
    await server.serve_forever()


async def serve_http(port: int, seconds: float) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while await reader.readline():
                while (await reader.readline()).strip():
                    pass
                await asyncio.sleep(seconds)
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n")
                await writer.drain()

    server = await asyncio.start_server(answer, "127.0.0.1", port)
    print("ready", flush=True)
    await server.serve_forever()


def serve_datagrams(port: int, seconds: float) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", port))
        number = 0
        print("ready", flush=True)
        while True:
            question, sender = server.recvfrom(512)
            number += 1
            if number % 2:
                time.sleep(seconds)
                server.sendto(question, sender)


def visit(port: int, rate: float) -> None:
    print("ready", flush=True)
    while True:
        # It may be about to start, or to end.
        with (
            suppress(OSError),
            urllib.request.urlopen(f"http://127.0.0.1:{port}/page", timeout=5) as answer,
        ):
            answer.read()
        time.sleep(1 / rate)


def main() -> None:
    kind, place, number = sys.argv[1], sys.argv[2], float(sys.argv[3])
    if kind == "lines":
        asyncio.run(serve_lines(place, number / 1000))
    elif kind == "http":
        asyncio.run(serve_http(int(place), number / 1000))
    elif kind == "datagrams":
        serve_datagrams(int(place), number / 1000)
    else:
        visit(int(place), number)


if __name__ == "__main__":
    main()
