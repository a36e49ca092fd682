"""Fetches files from a server by eight threads, each on a connection that it keeps."""

import hashlib
import http.client
import sys
import threading

PORT, PATHS = int(sys.argv[1]), sys.argv[2:]


def work(n, results):
    connection = http.client.HTTPConnection("127.0.0.1", PORT)
    digest = hashlib.sha256()
    for i in range(500):
        connection.request("GET", "/" + PATHS[i % len(PATHS)] if i % 3 else "/")
        answer = connection.getresponse()
        digest.update(b"%d" % answer.status + answer.read())
    results[n] = digest.hexdigest()


results = {}
threads = [threading.Thread(target=work, args=(n, results)) for n in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(results), set(results.values()))
