"""The real servers, one of each for all tests: a test that kills or pauses one starts its own."""

import gc
import os
import signal
from collections.abc import Iterator
from typing import NoReturn, TypeVar

import hypothesis
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from chronoline.core.errors import MissingExtra
from chronoline.runtime.child_process import Server
from chronoline.testing.etcd import EtcdServer
from chronoline.testing.postgres import PostgresServer
from chronoline_bench.servers import java
from chronoline_bench.servers.aws import AWS_ENVIRONMENT, DynamoDBServer, S3Server
from chronoline_bench.servers.kafka import KafkaServer

AnyServer = TypeVar("AnyServer", bound=Server)

# How long an example takes is the machine's affair: no test asserts a time.
hypothesis.settings.register_profile("without deadlines", deadline=None)
hypothesis.settings.load_profile("without deadlines")

# For every JVM that a test starts, and those that these start.
os.environ["JAVA_TOOL_OPTIONS"] = f"{os.environ.get('JAVA_TOOL_OPTIONS', '')} {java.options()}"

# A shell starts a background job with Ctrl-C ignored, and processes of tests would inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# Until all tests are collected nearly every object stays.
gc.disable()


def pytest_collection_finish() -> None:
    """Excludes the modules and the collected tests from garbage collections: a tenth less work."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    with PostgresServer(tmp_path_factory.mktemp("postgres") / "data") as server:
        yield server


@pytest.fixture(scope="session")
def dynamodb_server() -> Iterator[DynamoDBServer]:
    yield from running(DynamoDBServer())


@pytest.fixture(scope="session")
def etcd_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    yield from running(EtcdServer(tmp_path_factory.mktemp("etcd")))


@pytest.fixture(scope="session")
def kafka_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    yield from running(KafkaServer(tmp_path_factory.mktemp("kafka") / "data"))


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
        miss(server.name, error)
    yield server
    server.stop()


def miss(name: str, error: MissingExtra) -> NoReturn:
    """A loud skip for want of a part; in CI that is a failure."""
    reason = f"{name} is NOT tested: {error}"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def consume(server: KafkaServer, topic: str, partition: int = 0) -> list[Message]:
    """All messages that a partition of a topic has."""
    consumer = Consumer(
        {"bootstrap.servers": server.bootstrap, "group.id": "reader", "enable.partition.eof": True}
    )
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        found: list[Message] = []
        while True:
            (message,) = consumer.consume(1, timeout=60)
            error = message.error()
            if error is None:
                found.append(message)
            # The library's documented name.
            elif error.code() == KafkaError._PARTITION_EOF:
                return found
            else:
                raise KafkaException(error)
    finally:
        consumer.close()
