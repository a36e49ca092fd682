"""Talks to redis: what it answers must be right, and what it counts must agree with itself."""

import random
import re
import socket
import sys
import threading

PORT = int(sys.argv[1])


class Client:
    def __init__(self) -> None:
        self.socket = socket.create_connection(("127.0.0.1", PORT))
        self.stream = self.socket.makefile("rb")
        self.asked = 0

    def ask(self, *words):
        parts = [str(word).encode() for word in words]
        text = b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(p), p) for p in parts)
        self.socket.sendall(text)
        self.asked += 1
        return self.answer()

    def answer(self):
        line = self.stream.readline()
        kind, rest = line[:1], line[1:-2]
        if kind == b"$":
            size = int(rest)
            return None if size < 0 else self.stream.read(size + 2)[:-2]
        if kind == b"*":
            return [self.answer() for _ in range(int(rest))]
        if kind == b"-":
            raise RuntimeError(rest)
        return int(rest) if kind == b":" else rest


def work(n, results):
    client, chance, mine = Client(), random.Random(n), {}
    for _ in range(500):
        key, value = f"client{n}:{chance.randrange(50)}", chance.randrange(1000)
        mine[key] = value
        assert client.ask("SET", key, value) == b"OK"
        assert client.ask("GET", key) == b"%d" % value
        client.ask("INCRBY", "sum", value)
        client.ask("ZADD", "board", value, key)
        client.ask("RPUSH", f"list{n}", value)
    assert [int(client.ask("GET", key)) for key in mine] == list(mine.values())
    script = "local s = 0 for i = 1, 1000 do s = s + i * tonumber(ARGV[1]) end return s"
    assert client.ask("EVAL", script, 0, n) == 500500 * n
    results[n] = (sum(mine.values()), client.asked)


def numbers(text):
    return {k: v for k, v in re.findall(r"^([\w.:|-]+):(.*?)\r?$", text, re.MULTILINE)}


results = {}
threads = [threading.Thread(target=work, args=(n, results)) for n in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
client = Client()
before = numbers(client.ask("INFO", "everything").decode())
after = numbers(client.ask("INFO", "everything").decode())
calls = sum(
    int(re.search(r"calls=(\d+)", value)[1])
    for key, value in after.items()
    if key.startswith("cmdstat_")
)
print("sum", client.ask("GET", "sum"), sorted(results.values()))
print("keys agree", f"keys={client.ask('DBSIZE')}," in after["db0"])
print("commands agree", calls == int(after["total_commands_processed"]))
print("one more", int(after["total_commands_processed"]) - int(before["total_commands_processed"]))
print("memory", 0 < int(after["used_memory"]) <= int(after["used_memory_peak"]))
print("errors", after["total_error_replies"], after["rejected_connections"])
print("lists", [client.ask("LLEN", f"list{n}") for n in range(8)])
print("board", client.ask("ZCARD", "board"), client.ask("ZRANGE", "board", 0, 3, "WITHSCORES"))
# Rewriting the log forks the server.
client.ask("BGREWRITEAOF")
while "aof_rewrite_in_progress:1" in client.ask("INFO", "persistence").decode():
    pass
print("rewritten", numbers(client.ask("INFO", "persistence").decode())["aof_last_bgrewrite_status"])
