"""Places for pipes, and pipes in the shared session."""

from collections.abc import Iterator

import pytest

from chronoline.testing.postgres import PostgresServer
from chronoline_bench.servers.kafka import KafkaServer
from tests.conftest import running
from tests.spark.pipes.places import Embedded, OnServers, Place
from tests.spark.pipes.secured import SecuredKafkaServer


@pytest.fixture(scope="module", params=["embedded", "servers"])
def place(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    """On each of the two."""
    if request.param == "embedded":
        with Embedded(tmp_path_factory.mktemp("embedded")) as embedded:
            yield embedded
    else:
        yield request.getfixturevalue("servers")


@pytest.fixture(scope="module")
def servers(kafka_server: KafkaServer, postgres_server: PostgresServer) -> Iterator[OnServers]:
    with OnServers(kafka_server, postgres_server) as place:
        yield place


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    with Embedded(tmp_path_factory.mktemp("embedded")) as place:
        yield place


@pytest.fixture(scope="session")
def spare_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafkaServer]:
    """For tests that stop and start it, and for those that need its second door."""
    yield from running(SecuredKafkaServer(tmp_path_factory.mktemp("spare-kafka") / "data"))
