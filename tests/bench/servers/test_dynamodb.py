"""A real DynamoDB server that starts, stops, crashes and hangs on demand."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import boto3
import psutil  # type: ignore[import-untyped]  # it ships no types
import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError

from chronoline.core.errors import ChronolineError, MissingExtra
from chronoline.log.index.dynamodb import table_definition
from chronoline_bench.servers.aws import DynamoDBServer
from tests.conftest import running

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

# Starts a server, says what it is, survives the exit of a fork, and waits to be killed.
OWNER = """
import os, sys
from chronoline_bench.servers.aws import DynamoDBServer

server = DynamoDBServer()
server.start()
if os.fork() == 0:
    sys.exit()
os.wait()
server.pause()
print(server.pid, flush=True)
sys.stdin.readline()
"""


@pytest.fixture(scope="module")
def shared() -> Iterator[DynamoDBServer]:
    yield from running(DynamoDBServer())


@pytest.fixture
def server(shared: DynamoDBServer) -> DynamoDBServer:
    """One that runs, whatever the test before did to it."""
    shared.resume()
    shared.start()
    return shared


@pytest.fixture
def new_server(shared: DynamoDBServer) -> Iterator[DynamoDBServer]:
    """One that was never started, where one can be."""
    server = DynamoDBServer()
    yield server
    server.stop()


@pytest.fixture
def clients() -> "Iterator[list[DynamoDBClient]]":
    made: list[DynamoDBClient] = []
    yield made
    for client in made:
        client.close()


def tables(
    server: DynamoDBServer, clients: "list[DynamoDBClient]", *, patience_s: float = 30
) -> list[str]:
    return connect(server, clients, patience_s=patience_s).list_tables()["TableNames"]


def connect(
    server: DynamoDBServer, clients: "list[DynamoDBClient]", *, patience_s: float = 30
) -> "DynamoDBClient":
    config = Config(read_timeout=patience_s, retries={"total_max_attempts": 1})
    environment = server.environment
    client = boto3.session.Session().client(
        "dynamodb",
        endpoint_url=server.endpoint,
        region_name=environment["AWS_REGION"],
        aws_access_key_id=environment["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
        config=config,
    )
    clients.append(client)
    return client


def is_over(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def test_it_starts_empty_and_on_the_same_port(
    server: DynamoDBServer, clients: "list[DynamoDBClient]"
) -> None:
    for end in (server.stop, server.kill):
        connect(server, clients).create_table(**table_definition("kept"))
        assert tables(server, clients) == ["kept"]
        pid, endpoint = server.pid, server.endpoint
        server.start()
        assert server.pid == pid
        end()
        end()
        assert server.pid is None
        with pytest.raises(BotoCoreError):
            tables(server, clients)
        server.start()
        assert server.endpoint == endpoint
        assert tables(server, clients) == []


def test_a_paused_server_answers_when_it_is_resumed(
    server: DynamoDBServer, clients: "list[DynamoDBClient]"
) -> None:
    server.pause()
    with pytest.raises(BotoCoreError):
        tables(server, clients, patience_s=0.2)
    server.resume()
    assert tables(server, clients) == []
    server.pause()
    server.stop()
    assert server.pid is None


def test_before_the_start_everything_is_fine(new_server: DynamoDBServer) -> None:
    new_server.stop()
    new_server.kill()
    new_server.pause()
    new_server.resume()
    assert new_server.pid is None


def test_a_port_that_was_taken_meanwhile_is_left_to_the_other(
    new_server: DynamoDBServer, clients: "list[DynamoDBClient]"
) -> None:
    taken = urlsplit(new_server.endpoint).port
    with socket.create_server(("", taken or 0)):
        new_server.start()
        assert urlsplit(new_server.endpoint).port != taken
    assert tables(new_server, clients) == []
    new_server.stop()
    with (
        socket.create_server(("", urlsplit(new_server.endpoint).port or 0)),
        pytest.raises(ChronolineError, match="did not start"),
    ):
        new_server.start()


def test_it_ends_with_the_process_that_started_it(shared: DynamoDBServer) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as owner:
        assert owner.stdout
        process = psutil.Process(int(owner.stdout.readline()))
        owner.kill()
    give_up = time.monotonic() + 60
    while not is_over(process):
        assert time.monotonic() < give_up, "the server outlives its owner"
        time.sleep(0.01)


def test_a_missing_java_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(MissingExtra, match="a DynamoDB server for tests needs Java 17"):
        DynamoDBServer().start()
