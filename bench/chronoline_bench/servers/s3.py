"""A real S3 server for tests and benchmarks, from the package `moto`.

It runs as a process of its own, so that it can be killed, and paused like one that hangs. The process is this
module as a program: `python -m chronoline_bench.servers.s3 PORT`.
"""

from __future__ import annotations

import logging
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any
from urllib.parse import quote

from chronoline.core.errors import ChronolineError, MissingExtra

_NEEDS_PACKAGES = (
    "an S3 server for tests needs its packages: pip install 'moto[s3]' flask flask-cors psutil"
)

try:
    from chronoline_bench.servers.server import AWS_ENVIRONMENT, PATIENCE_S, Server, without
except ModuleNotFoundError as error:  # psutil
    raise MissingExtra(_NEEDS_PACKAGES) from error


class S3Server(Server):
    """An S3 server with its own port on 127.0.0.1.

    It keeps everything in memory: a server that was stopped or killed starts again empty.
    """

    name = "the S3 server"

    def __init__(self) -> None:
        if not all(map(find_spec, ("moto", "flask", "flask_cors"))):
            raise MissingExtra(_NEEDS_PACKAGES)
        super().__init__()

    @property
    def endpoint(self) -> str:
        """Where it is reached; valid from the first start on."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def environment(self) -> dict[str, str]:
        """What a client needs in its environment."""
        return dict(AWS_ENVIRONMENT)

    def url(self, bucket: str, prefix: str = "") -> str:
        """The URL of a log's objects on this server."""
        place = f"{bucket}/{quote(prefix)}" if prefix else bucket
        return f"s3://{place}?endpoint={quote(self.endpoint, safe='')}"

    def create_bucket(self, name: str) -> str:
        """Makes a bucket, if it is not there, and answers the URL of a log's objects in it."""
        self._ask("PUT", f"/{quote(name, safe='')}")
        return self.url(name)

    def check_credentials(self, wanted: bool) -> None:
        """Whether credentials are checked. The server knows no users: while it checks, it refuses all."""
        self._ask("POST", "/moto-api/reset-auth", b"0" if wanted else b"inf")

    def _command(self) -> Sequence[str]:
        return [sys.executable, "-m", __name__, str(self._port)]

    def _options(self) -> dict[str, Any]:
        return {"env": without("AWS_", "MOTO_", "INITIAL_NO_AUTH_ACTION_COUNT")}

    def _is_ready(self) -> bool:
        return self._listens()

    def _ask(self, method: str, path: str, body: bytes | None = None) -> None:
        request = urllib.request.Request(
            self.endpoint + path, body, {"Content-Type": "text/plain"}, method=method
        )
        try:
            urllib.request.urlopen(request, timeout=PATIENCE_S).close()
        except urllib.error.HTTPError as error:
            said = error.read().decode(errors="replace")
            raise ChronolineError(f"{method} {path} failed: {error}: {said}") from error


def _serve(port: int) -> None:
    from moto.server import main  # noqa: PLC0415 - only the child needs it

    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # not a line for each request
    main(["--host", "127.0.0.1", "--port", str(port)])


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
