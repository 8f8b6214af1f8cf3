"""As much of Google Cloud Storage as objects need: enough to try the dialect, not its server."""

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.sax.saxutils import escape

import pytest

BUCKET = "/events"


class GoogleServer:
    """One bucket, `events`. To delete what is not there is an error, as it is at Google's."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.kept = self.kept
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


@pytest.fixture
def gs_url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of its bucket, and the environment that reaches it."""
    with GoogleServer() as server:
        account = {"gcs_base_url": server.endpoint, "disable_oauth": True}
        nobody = dict.fromkeys(("client_email", "private_key", "private_key_id"), "")
        monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT_KEY", json.dumps(account | nobody))
        yield f"gs://events/prefix?endpoint={quote(server.endpoint, safe='')}"


class _Server(ThreadingHTTPServer):
    kept: dict[str, bytes]
    daemon_threads = True
    block_on_close = False


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    # An answer in two parts would wait for the client's delayed acknowledgement.
    wbufsize = -1
    disable_nagle_algorithm = True

    def do_PUT(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        fresh = self.headers["x-goog-if-generation-match"] == "0"
        if fresh and self._key in self.server.kept:
            self._answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")
        else:
            self.server.kept[self._key] = data
            self._answer(200, b"", ETag='"1"')

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        if path == BUCKET:
            return self._list()
        if not path.startswith(f"{BUCKET}/"):
            return self._answer(404, b"<Error><Code>NoSuchBucket</Code></Error>")
        data = self.server.kept.get(self._key)
        if data is None:
            return self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
        about = {"ETag": '"1"', "Last-Modified": self.date_time_string()}
        if "Range" not in self.headers:
            return self._answer(200, data, **about)
        first, last = map(int, self.headers["Range"].removeprefix("bytes=").split("-"))
        if first >= len(data):
            return self._answer(416, b"<Error><Code>InvalidRange</Code></Error>")
        part = data[first : last + 1]
        about["Content-Range"] = f"bytes {first}-{first + len(part) - 1}/{len(data)}"
        return self._answer(206, part, **about)

    def do_DELETE(self) -> None:
        if self.server.kept.pop(self._key, None) is None:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
        else:
            self._answer(204, b"")

    def _list(self) -> None:
        prefix = parse_qs(urlsplit(self.path).query).get("prefix", [""])[0]
        now = datetime.now(UTC).isoformat()
        rows = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(data)}</Size>"
            f"<LastModified>{now}</LastModified></Contents>"
            for key, data in self.server.kept.items()
            if key.startswith(prefix)
        )
        self._answer(200, f"<ListBucketResult>{rows}</ListBucketResult>".encode())

    @property
    def _key(self) -> str:
        return unquote(urlsplit(self.path).path.removeprefix(f"{BUCKET}/"))

    def _answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass
