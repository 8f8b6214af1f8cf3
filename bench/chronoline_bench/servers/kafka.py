"""A real Kafka server for tests and benchmarks: broker and controller in one process, a program for the JVM.

Its jars are fetched once, see `jars`. With an archive of its classes it starts with half of the work, see
`java`; `python -m chronoline_bench.servers.kafka` makes it.
"""

from __future__ import annotations

import argparse
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic  # where its type is known

from chronoline.core.errors import ChronolineError
from chronoline.runtime.child_process import PATIENCE_S, Server
from chronoline_bench.servers import jars, java

_LOOK_EVERY_S = 0.01
_JVM = (
    *java.ON_FEW_CORES,
    "-Xmx512m",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd HH:mm:ss.SSS",
)
_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "auto.create.topics.enable": "false",
    # Tests write messages with any timestamp: none is too old to be kept.
    "log.retention.ms": "-1",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    # A killed broker can return only after its controller's session for the earlier one has ended.
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "400",
    # The default is a quarter of the heap.
    "log.cleaner.dedupe.buffer.size": "2097152",
}


class KafkaServer(Server):
    """A Kafka server with its own data folder and its own port on 127.0.0.1; its controller has the next.

    It can be stopped and started again, with the same data and port. As usual with Kafka the system decides
    when data is flushed: acknowledged data survives a crash of the server, not of the machine.

    Without `data_dir` the data lies in a temporary folder, which is removed at exit. The first time on a
    machine its jars are fetched.
    """

    name = "Kafka"
    jvm_options: Sequence[str] = ()

    def __init__(self, data_dir: Path | None = None) -> None:
        self._is_temporary = data_dir is None
        self.data_dir = (data_dir or Path(tempfile.mkdtemp(prefix="chronoline-kafka-"))).absolute()
        super().__init__()

    @property
    def bootstrap(self) -> str:
        """Its address for clients (`bootstrap.servers`); valid from the first start on."""
        return f"127.0.0.1:{self._port}"

    @property
    def log_path(self) -> Path:
        """The server's log: warnings and errors."""
        return self.data_dir / "server.log"

    def create_topic(self, name: str, partitions: int = 1) -> None:
        """Makes an empty topic, and waits until all of its partitions have a leader."""
        admin = self._admin()
        try:
            admin.create_topics([NewTopic(name, partitions, 1)])[name].result(PATIENCE_S)
        except KafkaException as error:
            raise ChronolineError(f"topic {name!r} was not created: {error}") from error
        give_up = time.monotonic() + PATIENCE_S
        while not _is_led(admin, name, partitions):
            if time.monotonic() > give_up:
                raise ChronolineError(f"topic {name!r} was created, but has no leader")
            time.sleep(_LOOK_EVERY_S)  # a server prints nothing when it is ready

    # How it is started

    def _prepare(self) -> None:
        if not (self._log_dir / "meta.properties").exists():
            self.data_dir.mkdir(parents=True, exist_ok=True)
            self._format()

    def _command(self) -> Sequence[str | Path]:
        return [*_java("kafka.Kafka", *self.jvm_options), self._write_settings()]

    def _open_output(self) -> IO[bytes]:
        return self.log_path.open("a+b")

    def _folders(self) -> Sequence[Path]:
        return [self.data_dir] if self._is_temporary else []

    def _is_ready(self) -> bool:
        if not self._listens():
            return False
        try:
            return bool(self._admin().list_topics(timeout=PATIENCE_S).brokers)
        except KafkaException:
            return False

    def _leave(self) -> None:
        super()._leave()
        if os.getpid() == self._owner_pid and self._is_temporary:
            shutil.rmtree(self.data_dir, ignore_errors=True)

    @property
    def _log_dir(self) -> Path:
        return self.data_dir / "data"

    def _format(self) -> None:
        """Makes the folder of a new cluster."""
        done = subprocess.run(
            [
                *(*_java("kafka.tools.StorageTool"), "format"),
                *("--config", self._write_settings(), f"--cluster-id={secrets.token_urlsafe(16)}"),
            ],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            cwd="/",
            check=False,
        )
        if done.returncode:
            raise ChronolineError(f"Kafka's format failed:\n{done.stdout}{done.stderr}")

    def _settings(self) -> dict[str, str]:
        controller = f"127.0.0.1:{self._port + 1}"
        return _SETTINGS | {
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://{controller}",
            "controller.quorum.voters": f"1@{controller}",
            "log.dirs": str(self._log_dir),
        }

    def _write_settings(self) -> Path:
        path = self.data_dir / "server.properties"
        lines = [f"{name}={value}\n" for name, value in self._settings().items()]
        path.write_text("".join(lines))
        return path

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})


def _java(main: str, *options: str) -> list[str]:
    program = java.find_java("a Kafka server for tests")
    archived = java.archive_options(archive_path())
    return [program, *_JVM, *archived, *options, "-cp", f"{jars.resolve('kafka')}/*", main]


def archive_path() -> Path:
    """Returns the path of the archive of Kafka's classes, which may not exist."""
    return java.path_of_archive(jars.resolve("kafka").name)


def make_archive() -> Path:
    """Makes the archive of Kafka's classes if it is missing."""
    return java.make_archive_at(archive_path(), _run_kafka)


def _run_kafka(option: str, folder: Path) -> None:
    server = KafkaServer(folder / "data")
    server.jvm_options = (option,)
    with server:
        server.create_topic("events")
        producer = Producer({"bootstrap.servers": server.bootstrap, "log_level": 0})
        producer.produce("events", b"event")
        assert producer.flush(PATIENCE_S) == 0
        reader = {"group.id": "reader", "auto.offset.reset": "earliest", "log_level": 0}
        consumer = Consumer({"bootstrap.servers": server.bootstrap, **reader})
        consumer.subscribe(["events"])
        assert len(consumer.consume(1, timeout=PATIENCE_S)) == 1
        consumer.commit(asynchronous=False)
        consumer.close()


def _is_led(admin: AdminClient, topic: str, partitions: int) -> bool:
    known = admin.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions.values()
    return len(known) == partitions and all(each.leader >= 0 for each in known)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m chronoline_bench.servers.kafka",
        description="Archives Kafka's classes, so that it starts faster in tests, and prints the path.",
    )
    parser.parse_args(arguments)
    print(make_archive())


if __name__ == "__main__":
    try:
        main()
    except ChronolineError as error:
        sys.exit(f"chronoline: {error}")
