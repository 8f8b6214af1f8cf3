"""The real servers, one of each for all tests: whoever kills or pauses one starts his own."""

import os
from collections.abc import Iterator
from typing import TypeVar

import pytest

from chronoline.core.errors import MissingExtra
from chronoline.testing.dynamodb import DynamoDBServer
from chronoline.testing.postgres import PostgresServer
from chronoline.testing.s3 import S3Server
from chronoline.testing.servers import AWS_ENVIRONMENT, Server

AnyServer = TypeVar("AnyServer", bound=Server)


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    with PostgresServer(tmp_path_factory.mktemp("postgres") / "data") as server:
        yield server


@pytest.fixture(scope="session")
def dynamodb_server() -> Iterator[DynamoDBServer]:
    yield from running(DynamoDBServer())


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """With a bucket named `events`."""
    for server in running(S3Server()):
        server.create_bucket("events")
        yield server


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment with credentials for the local servers, and nothing that leads elsewhere."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in AWS_ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


def running(server: AnyServer) -> Iterator[AnyServer]:
    """A server, or a loud skip where its parts cannot be had; in CI that is a failure."""
    try:
        server.start()
    except MissingExtra as error:
        reason = f"{server.name} is NOT tested: {error}"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    yield server
    server.stop()
