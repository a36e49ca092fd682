"""An HTTP server that has little to do."""

from __future__ import annotations

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from operations import Operations


class Handler(BaseHTTPRequestHandler):
    operations = Operations()

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "6")
        self.end_headers()
        self.wfile.write(b"hello\n")
        self.operations.count()

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""


ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Handler).serve_forever()
