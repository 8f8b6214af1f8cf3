"""`chronoline timers listen`: a receiver of callbacks, to try timers with."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Annotated, Any

import typer

from chronoline.cli.rendering import printable
from chronoline.core.errors import InvalidInput

_MOST_BYTES = 1024 * 1024


def listen(
    port: Annotated[int, typer.Argument(min=1, max=65_535, help="On 127.0.0.1.")] = 9000,
) -> None:
    """Take callbacks and show them, to see timers pop. Ctrl-C stops it.

    chronoline timers listen 9000
    """
    try:
        server = receiver(port, _show)
    except OSError as error:
        raise InvalidInput(
            f"127.0.0.1:{port} cannot be listened at: {error.strerror}; name another port"
        ) from None
    print(f"Waiting for callbacks at http://127.0.0.1:{port}/ (Ctrl-C stops it)", flush=True)
    with server:
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return


def _show(path: str, sequence: str, body: bytes) -> None:
    now = datetime.now().astimezone().strftime("%H:%M:%S.%f")[:-3]
    text = printable(body.decode("utf-8", "replace"))
    print(f"{now}  {printable(path)}  sequence {printable(sequence)}  {text}", flush=True)


def receiver(port: int, came: Callable[[str, str, bytes], None]) -> ThreadingHTTPServer:
    """A server on loopback that tells of each callback its path, sequence and body, and answers 200."""

    class Taken(BaseHTTPRequestHandler):
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
            """Nothing besides."""

    return _Server(("127.0.0.1", port), Taken)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever called may be gone; that is nothing to tell of."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)
