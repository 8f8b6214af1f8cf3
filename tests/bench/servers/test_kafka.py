"""A real Kafka server that starts, stops, crashes and hangs on demand."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]  # it ships no types
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient

from chronoline.core.errors import ChronolineError, MissingExtra
from chronoline_bench.servers.kafka import KafkaServer
from tests.conftest import consume, running

# Starts a server, says what it is, survives the exit of a fork, and waits to be killed.
OWNER = """
import os, sys
from chronoline_bench.servers.kafka import KafkaServer

server = KafkaServer()
server.start()
if os.fork() == 0:
    sys.exit()
os.wait()
server.create_topic("after_the_fork")
server.pause()
print(server.pid, server.data_dir, flush=True)
sys.stdin.readline()
"""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    yield from running(KafkaServer(tmp_path_factory.mktemp("kafka") / "data"))


@pytest.fixture
def server(shared: KafkaServer) -> KafkaServer:
    """One that runs, whatever the test before did to it."""
    shared.resume()
    shared.start()
    return shared


@pytest.fixture
def new_server(shared: KafkaServer, tmp_path: Path) -> Iterator[KafkaServer]:
    """One that was never started, where one can be."""
    server = KafkaServer(tmp_path / "data")
    yield server
    server.stop()


def client(server: KafkaServer, **settings: str | int) -> dict[str, Any]:
    own = {name.replace("_", "."): value for name, value in settings.items()}
    return {"bootstrap.servers": server.bootstrap, "log_level": 0, **own}


def topics(server: KafkaServer, *, patience_s: float = 30) -> dict[str, int]:
    """How many partitions each has."""
    found = AdminClient(client(server)).list_topics(timeout=patience_s).topics.values()
    return {str(each): len(each.partitions) for each in found}


def values(server: KafkaServer, topic: str) -> list[str | bytes | None]:
    return [message.value() for message in consume(server, topic)]


def produce(server: KafkaServer, topic: str, *values: bytes) -> None:
    producer = Producer(client(server))
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(60) == 0


def is_over(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def port_of(server: KafkaServer) -> int:
    return int(server.bootstrap.partition(":")[2])


def test_topics_are_made_by_hand_only(server: KafkaServer) -> None:
    server.create_topic("one")
    server.create_topic("four", partitions=4)
    found = topics(server)
    assert found["one"] == 1
    assert found["four"] == 4
    with pytest.raises(ChronolineError, match="already exists"):
        server.create_topic("one")
    with pytest.raises(ChronolineError, match="invalid"):
        server.create_topic("no/name")
    producer = Producer(client(server, topic_metadata_propagation_max_ms=0))
    refused: list[KafkaError | None] = []
    producer.produce("nobody_made_it", b"", on_delivery=lambda error, _: refused.append(error))
    assert producer.flush(60) == 0
    assert [error and error.code() for error in refused] == [KafkaError.UNKNOWN_TOPIC_OR_PART]
    assert "nobody_made_it" not in topics(server)


def test_messages_come_out_as_they_went_in(server: KafkaServer) -> None:
    server.create_topic("whole", partitions=2)
    every_byte = bytes(range(256))
    headers: list[tuple[str, str | bytes | None]] = [
        ("b", b"1"),
        ("a", every_byte),
        ("b", None),
        ("", b""),
        ("ä", b"2"),
        ("b", b"1"),
    ]
    producer = Producer(client(server))
    producer.produce("whole", every_byte, every_byte, partition=1, headers=headers, timestamp=1)
    producer.produce("whole", None, None, partition=1)
    producer.produce("whole", b"", b"", partition=1)
    assert producer.flush(60) == 0
    assert consume(server, "whole", partition=0) == []
    first, nothing, empty = consume(server, "whole", partition=1)
    assert (first.key(), first.value(), first.headers()) == (every_byte, every_byte, headers)
    assert first.timestamp()[1] == 1
    assert (nothing.key(), nothing.value(), nothing.headers()) == (None, None, None)
    assert (empty.key(), empty.value()) == (b"", b"")


def test_groups_and_transactions_do_with_one_server(server: KafkaServer) -> None:
    server.create_topic("grouped")
    producer = Producer(client(server, transactional_id="writer"))
    producer.init_transactions(60)
    for value, end in (
        (b"aborted", producer.abort_transaction),
        (b"committed", producer.commit_transaction),
    ):
        producer.begin_transaction()
        producer.produce("grouped", value)
        assert producer.flush(60) == 0
        end(60)
    consumer = Consumer(client(server, group_id="group", auto_offset_reset="earliest"))
    consumer.subscribe(["grouped"])
    (message,) = consumer.consume(1, timeout=60)
    assert message.value() == b"committed"
    (committed,) = consumer.commit(message=message, asynchronous=False)
    assert committed.error is None
    consumer.close()


def test_stopping_and_starting_keeps_data_and_port(server: KafkaServer) -> None:
    server.create_topic("kept")
    produce(server, "kept", b"1", b"2")
    pid, bootstrap = server.pid, server.bootstrap
    server.start()
    assert server.pid == pid
    server.stop()
    server.stop()
    assert server.pid is None
    with pytest.raises(KafkaException):
        topics(server, patience_s=0.2)
    server.start()
    assert server.bootstrap == bootstrap
    assert values(server, "kept") == [b"1", b"2"]


def test_a_killed_server_keeps_what_it_acknowledged(server: KafkaServer) -> None:
    server.create_topic("crashed")
    acknowledged: list[bytes] = []

    def keep(error: KafkaError | None, message: Message) -> None:
        if error is None:
            acknowledged.append(bytes(message.value() or b""))

    producer = Producer(client(server, linger_ms=0, batch_num_messages=10))
    for number in range(50_000):
        producer.produce("crashed", str(number).encode(), on_delivery=keep)
    while len(acknowledged) < 1_000:
        assert producer.poll(60)
    server.kill()
    server.kill()
    assert server.pid is None
    producer.purge()
    assert producer.flush(60) == 0
    assert len(acknowledged) < 50_000
    server.start()
    assert set(acknowledged) <= set(values(server, "crashed"))


def test_a_paused_server_answers_when_it_is_resumed(server: KafkaServer) -> None:
    server.create_topic("paused")
    produce(server, "paused", b"before")
    server.pause()
    with pytest.raises(KafkaException):
        topics(server, patience_s=0.2)
    producer = Producer(client(server))
    producer.produce("paused", b"meanwhile")
    assert producer.flush(0.2) == 1
    server.resume()
    assert producer.flush(60) == 0
    assert values(server, "paused") == [b"before", b"meanwhile"]
    server.pause()
    server.stop()
    assert server.pid is None


def test_before_the_start_everything_is_fine(new_server: KafkaServer) -> None:
    new_server.stop()
    new_server.kill()
    new_server.pause()
    new_server.resume()
    assert new_server.pid is None
    assert not new_server.data_dir.exists()


@pytest.mark.parametrize("which", [0, 1], ids=["broker", "controller"])
def test_a_port_that_was_taken_meanwhile_is_left_to_the_other(
    new_server: KafkaServer, which: int
) -> None:
    taken = port_of(new_server) + which
    with socket.create_server(("127.0.0.1", taken)):
        new_server.start()
        assert port_of(new_server) + which != taken
    new_server.create_topic("here")
    assert topics(new_server) == {"here": 1}


def test_it_ends_with_the_process_that_started_it(shared: KafkaServer) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as owner:
        assert owner.stdout
        pid, data_dir = owner.stdout.readline().split()
        process = psutil.Process(int(pid))
        assert Path(data_dir).exists()
        owner.kill()
    give_up = time.monotonic() + 60
    while not is_over(process) or Path(data_dir).exists():
        assert time.monotonic() < give_up, "the server outlives its owner"
        time.sleep(0.01)


def test_a_missing_java_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(MissingExtra, match="a Kafka server for tests needs Java 17"):
        KafkaServer(tmp_path / "data").start()
