"""A real DynamoDB server for tests and benchmarks: Amazon's own for one machine, a program for the JVM.

It keeps conditions and transactions as the service does. Its jars are fetched once, see `jars`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing, suppress
from http.client import HTTPConnection
from urllib.parse import quote

from chronoline.core.errors import MissingExtra
from chronoline_bench.servers import jars, java

try:
    from chronoline_bench.servers.server import AWS_ENVIRONMENT, PATIENCE_S, REGION, Server
except ModuleNotFoundError as error:  # psutil
    raise MissingExtra("a DynamoDB server for tests needs a package: pip install psutil") from error

_MAIN = "com.amazonaws.services.dynamodbv2.local.main.ServerRunner"
_JVM = ("-Xmx256m", *java.ON_FEW_CORES)


class DynamoDBServer(Server):
    """A DynamoDB server with its own port, which it opens on all of the machine's addresses.

    It keeps everything in memory: a server that was stopped or killed starts again empty. The first time on
    a machine its jars are fetched.
    """

    name = "the DynamoDB server"

    @property
    def endpoint(self) -> str:
        """Where it is reached; valid from the first start on."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def environment(self) -> dict[str, str]:
        """What a client needs in its environment."""
        return dict(AWS_ENVIRONMENT)

    def url(self, table: str) -> str:
        """The URL of a log's index on this server."""
        return f"dynamodb://{table}?region={REGION}&endpoint={quote(self.endpoint, safe='')}"

    def _command(self) -> Sequence[str]:
        program = java.find_java("a DynamoDB server for tests")
        classpath = f"{jars.resolve('dynamodb')}/*"
        # One database for all regions and credentials.
        server = (_MAIN, "-inMemory", "-sharedDb", "-disableTelemetry", "-port", str(self._port))
        return [program, *_JVM, "-cp", classpath, *server]

    def _is_ready(self) -> bool:
        if not self._listens():
            return False
        line = HTTPConnection("127.0.0.1", self._port, timeout=PATIENCE_S)
        with closing(line), suppress(OSError):
            line.request("GET", "/")
            return line.getresponse().status > 0  # whatever it says to a stranger
        return False
