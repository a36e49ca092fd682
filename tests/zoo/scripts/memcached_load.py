"""Talks to memcached from eight threads: what it answers must be right."""

import random
import socket
import sys
import threading

PORT = int(sys.argv[1])


def work(n, results):
    chance, mine, total = random.Random(n), {}, 0
    connection = socket.create_connection(("127.0.0.1", PORT))
    stream = connection.makefile("rwb")

    def ask(text):
        stream.write(text)
        stream.flush()
        return stream.readline()

    for _ in range(1200):
        key = b"key%d:%d" % (n, chance.randrange(200))
        if key in mine and chance.random() < 0.6:
            header = ask(b"get %s\r\n" % key).split()
            value = stream.read(int(header[3]) + 2)[:-2]
            assert value == mine[key] and stream.readline() == b"END\r\n", header
            total += len(value)
        else:
            mine[key] = bytes([97 + n]) * chance.randrange(1, 3000)
            answer = ask(b"set %s 0 0 %d\r\n%s\r\n" % (key, len(mine[key]), mine[key]))
            assert answer == b"STORED\r\n", answer
    ask(b"add counter%d 0 0 1\r\n0\r\n" % n)
    for _ in range(1200):
        last = ask(b"incr counter%d 3\r\n" % n)
    results[n] = (total, last)
    connection.close()


results = {}
threads = [threading.Thread(target=work, args=(n, results)) for n in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(sorted(results.items()))
