"""A receiver of callbacks, to see timers pop: it answers every call with 200."""

from __future__ import annotations

import sys
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_MOST_BYTES = 1024 * 1024


def receiver(port: int, came: Callable[[str, str, bytes], None]) -> ThreadingHTTPServer:
    """A server on loopback that answers 200 and passes on path, sequence and body of each callback."""

    class _CallbackHandler(BaseHTTPRequestHandler):
        """One callback."""

        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            length = self.headers.get("Content-Length", "0")
            body = self.rfile.read(min(int(length), _MOST_BYTES) if length.isdecimal() else 0)
            came(self.path, self.headers.get("X-Sequence-Number", "-"), body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    return _CallbackServer(("127.0.0.1", port), _CallbackHandler)


class _CallbackServer(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore callers that have disconnected."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)
