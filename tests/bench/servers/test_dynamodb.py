"""The DynamoDB server of the tests. `tests.runtime.test_child_process` has the rules of all servers."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError

from chronoline.core.errors import MissingExtra
from chronoline.log.index.dynamodb import table_definition
from chronoline_bench.servers.aws import DynamoDBServer
from tests.conftest import running

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


@pytest.fixture(scope="module")
def shared() -> Iterator[DynamoDBServer]:
    yield from running(DynamoDBServer())


@pytest.fixture
def server(shared: DynamoDBServer) -> DynamoDBServer:
    """A running server, started again if the test before stopped it."""
    shared.resume()
    shared.start()
    return shared


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


def test_restart_is_empty_on_the_same_port(
    server: DynamoDBServer, clients: "list[DynamoDBClient]"
) -> None:
    connect(server, clients).create_table(**table_definition("kept"))
    assert tables(server, clients) == ["kept"]
    endpoint = server.endpoint
    server.kill()
    with pytest.raises(BotoCoreError):
        tables(server, clients)
    server.start()
    assert server.endpoint == endpoint
    assert tables(server, clients) == []


def test_a_missing_java_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(MissingExtra, match="a DynamoDB server for tests needs Java 17"):
        DynamoDBServer().start()
