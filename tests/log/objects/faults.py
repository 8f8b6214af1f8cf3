"""A proxy before an S3 server that loses answers, breaks connections, and makes up errors."""

import http.client
import socket
import struct
import threading
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class FaultyServer:
    """Passes requests on, and does to each what comes next in `faults`.

    `close` and `reset` lose the answer to a request that was done, `cut` half of it; `not sent` loses the
    request. A number is answered at once, as a status without a text.
    """

    def __init__(self, upstream: str) -> None:
        self.faults: deque[str] = deque()
        self.asked: list[str] = []
        """The methods, in order."""
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.owner = self
        self.upstream = urlsplit(upstream).netloc
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    owner: FaultyServer
    daemon_threads = True
    block_on_close = False

    def shutdown_request(self, request: socket.socket | tuple[bytes, socket.socket]) -> None:
        assert isinstance(request, socket.socket)
        request.close()  # without a goodbye, which would come before a reset


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        owner = self.server.owner
        owner.asked.append(self.command)
        fault = owner.faults.popleft() if owner.faults else ""
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if fault.isdigit():
            return self._answer(int(fault), [], b"")
        if fault == "not sent":
            return self._break(reset=True)
        status, headers, answer = self._pass_on(body)
        if fault in ("close", "reset"):
            return self._break(reset=fault == "reset")
        return self._answer(status, headers, answer, cut=fault == "cut")

    do_PUT = do_POST = do_DELETE = do_HEAD = do_GET

    def _pass_on(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        upstream = http.client.HTTPConnection(self.server.owner.upstream)
        try:
            upstream.request(self.command, self.path, body, dict(self.headers))
            answer = upstream.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            upstream.close()

    def _answer(
        self, status: int, headers: list[tuple[str, str]], body: bytes, *, cut: bool = False
    ) -> None:
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if cut else body)
        self.close_connection = cut

    def _break(self, *, reset: bool) -> None:
        if reset:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        pass
