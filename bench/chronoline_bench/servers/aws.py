"""Local servers of two AWS services for tests and benchmarks: S3 and DynamoDB.

Each runs in its own process, which can be killed or paused. S3 comes from the package `moto`; its process
runs this module, `python -m chronoline_bench.servers.aws PORT`. DynamoDB is Amazon's local server, a program
for the JVM; its jars are fetched once, see `jars`.
"""

from __future__ import annotations

import logging
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from contextlib import closing, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote

from chronoline.core.errors import ChronolineError
from chronoline.runtime.child_process import PATIENCE_S, Server, without
from chronoline_bench.servers import jars, java

REGION = "us-east-1"
AWS_ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "chronoline",
    "AWS_SECRET_ACCESS_KEY": "chronoline",
    "AWS_REGION": REGION,
    "AWS_DEFAULT_REGION": REGION,
    "AWS_EC2_METADATA_DISABLED": "true",
}
"""The environment of a client: any credentials are accepted, and no others are looked up."""
_DYNAMODB = "com.amazonaws.services.dynamodbv2.local.main.ServerRunner"
_JVM = ("-Xmx256m", *java.ON_FEW_CORES)


class _AwsServer(Server):
    """A server with its own port that keeps everything in memory: after a stop or a kill it starts empty."""

    @property
    def endpoint(self) -> str:
        """The URL of the server; valid from the first start on."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables that a client needs."""
        return dict(AWS_ENVIRONMENT)


class S3Server(_AwsServer):
    """An S3 server on 127.0.0.1."""

    name = "the S3 server"

    def __init__(self, tls: tuple[Path, Path] | None = None) -> None:
        """`tls` are the files of a certificate and of its key: then it speaks https."""
        super().__init__()
        self._tls = tls

    @property
    def endpoint(self) -> str:
        return f"{'http' if self._tls is None else 'https'}://127.0.0.1:{self._port}"

    def url(self, bucket: str, prefix: str = "") -> str:
        """The URL of a log's objects on this server."""
        place = f"{bucket}/{quote(prefix)}" if prefix else bucket
        return f"s3://{place}?endpoint={quote(self.endpoint, safe='')}"

    def create_bucket(self, name: str) -> str:
        """Makes a bucket, unless it exists; returns the URL of a log's objects in it."""
        self._ask("PUT", f"/{quote(name, safe='')}")
        return self.url(name)

    def check_credentials(self, wanted: bool) -> None:
        """Turns the check of credentials on or off. If on, it refuses all: it has no users."""
        self._ask("POST", "/moto-api/reset-auth", b"0" if wanted else b"inf")

    def _command(self) -> Sequence[str]:
        return [sys.executable, "-m", __name__, str(self._port), *map(str, self._tls or ())]

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


class DynamoDBServer(_AwsServer):
    """A DynamoDB server with conditions and transactions; it listens on all addresses of the machine."""

    name = "the DynamoDB server"

    def url(self, table: str) -> str:
        """The URL of a log's index on this server."""
        return f"dynamodb://{table}?region={REGION}&endpoint={quote(self.endpoint, safe='')}"

    def _command(self) -> Sequence[str]:
        program = java.find_java("a DynamoDB server for tests")
        classpath = f"{jars.resolve('dynamodb')}/*"
        # One database for all regions and credentials.
        server = (
            _DYNAMODB,
            "-inMemory",
            "-sharedDb",
            "-disableTelemetry",
            "-port",
            str(self._port),
        )
        return [program, *_JVM, "-cp", classpath, *server]

    def _is_ready(self) -> bool:
        if not self._listens():
            return False
        line = HTTPConnection("127.0.0.1", self._port, timeout=PATIENCE_S)
        with closing(line), suppress(OSError):
            line.request("GET", "/")
            return line.getresponse().status > 0  # any answer will do
        return False


def _serve(port: int, tls: Sequence[str]) -> None:
    from moto.server import main  # noqa: PLC0415 - only the child process needs it

    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # no line for each request
    files = ["--ssl-cert", tls[0], "--ssl-key", tls[1]] if tls else []
    main(["--host", "127.0.0.1", "--port", str(port), *files])


if __name__ == "__main__":
    _serve(int(sys.argv[1]), sys.argv[2:])
