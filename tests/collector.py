"""A collector of OTLP that keeps what it is sent."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)


class Collector(ThreadingHTTPServer):
    """Keeps what it is sent."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Receiver)
        self.requests: list[tuple[str, ExportMetricsServiceRequest]] = []
        self.arrived = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Receiver(BaseHTTPRequestHandler):
    """Reads one request."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        assert isinstance(self.server, Collector)
        self.server.requests.append((self.path, ExportMetricsServiceRequest.FromString(body)))
        self.server.arrived.set()
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


@contextmanager
def collecting() -> Iterator[Collector]:
    """Run one."""
    with Collector() as collector:
        thread = threading.Thread(target=collector.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield collector
        finally:
            collector.shutdown()
            thread.join()


def attributes(holder: Any) -> dict[str, Any]:
    return {
        entry.key: getattr(entry.value, entry.value.WhichOneof("value"))
        for entry in holder.attributes
    }
