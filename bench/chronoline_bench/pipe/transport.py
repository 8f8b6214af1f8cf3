"""The topics of a scene, in Kafka or in a log: how they are made, written and watched.

A place is `kafka://HOST:PORT`, or the URL of a log.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from chronoline.core.errors import ChronolineError
from chronoline.log import Log, NewEvent, Position
from chronoline_bench.harness.agent import freeze_heap
from chronoline_bench.harness.passage import Notes, wall_us
from chronoline_bench.servers.kafka import KafkaServer

KAFKA = "kafka://"
_POLL_S = 0.02
_FLUSH_S = 120.0
_ASK_S = 30.0
_LOOK_MS = 1
"""The polling interval of the log's watcher, which is in its own process."""
_PRODUCER = {
    "acks": "all",
    "enable.idempotence": True,
    "linger.ms": 5,
    "message.timeout.ms": 120_000,
    "queue.buffering.max.messages": 1_000_000,
    # Reconnects to a broker at once: the pipe is measured, not this client.
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 100,
    "log_level": 0,
}
_CONSUMER = {
    "group.id": "chronoline-bench-watcher",
    "enable.auto.commit": False,
    "fetch.wait.max.ms": 100,
    # Reconnects to a broker at once: the pipe is measured, not this client.
    "fetch.error.backoff.ms": 20,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 50,
    "socket.nagle.disable": True,
    "log_level": 0,
}

Headers = list[tuple[str, bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Topics:
    """The topics that a node reads and writes."""

    place: str
    input: str
    output: str

    @property
    def bootstrap(self) -> str:
        """Kafka's address for clients."""
        return self.place.removeprefix(KAFKA)

    def flags(self) -> dict[str, str]:
        """Returns the settings of a pipe between the two topics."""
        name, value = "log", self.place
        if self.place.startswith(KAFKA):
            name, value = "kafka.bootstrap.servers", self.bootstrap
        return {
            "input.topic": self.input,
            f"input.{name}": value,
            "output.topic": self.output,
            f"output.{name}": value,
        }


class KafkaPlace:
    """Topics of a Kafka server."""

    def __init__(self, server: KafkaServer) -> None:
        self._server = server

    @property
    def url(self) -> str:
        return f"{KAFKA}{self._server.bootstrap}"

    def create_topic(self, name: str, partitions: int) -> None:
        self._server.create_topic(name, partitions)


class LogPlace:
    """Topics of a log in a folder."""

    def __init__(self, folder: Path) -> None:
        self.url = folder.as_uri()

    def create_topic(self, name: str, partitions: int) -> None:
        with Log(self.url) as log:
            log.create_topic(name, partitions=partitions)


Place = KafkaPlace | LogPlace


class Sender(ABC):
    """Publishes numbered messages to one topic."""

    @abstractmethod
    def send(self, number: int, value: bytes, headers: Headers) -> None:
        """Publishes a message, perhaps later."""

    @abstractmethod
    def poll(self) -> None:
        """Hands over what was sent, and hears of the answers; called often."""

    @abstractmethod
    def finish(self) -> list[int]:
        """Waits for all acknowledgements; returns the numbers of refused messages."""


def open_sender(place: str, topic: str) -> Sender:
    if place.startswith(KAFKA):
        return KafkaSender(place.removeprefix(KAFKA), topic)
    return LogSender(place, topic)


def watch(place: str, topic: str, notes: Notes, ready: threading.Event) -> None:
    """Notes the arrival time of each new message, until the process ends."""
    if place.startswith(KAFKA):
        _watch_kafka(place.removeprefix(KAFKA), topic, notes, ready)
    else:
        _watch_log(place, topic, notes, ready)


class KafkaSender(Sender):
    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        self._failed: list[int] = []
        self._producer = Producer(
            {**_PRODUCER, "bootstrap.servers": bootstrap, "on_delivery": self._on_delivery}
        )

    def send(self, number: int, value: bytes, headers: Headers) -> None:
        while True:
            try:
                self._producer.produce(
                    self._topic, key=b"%d" % number, value=value, headers=list(headers)
                )
                return
            except BufferError:
                self._producer.poll(0.1)

    def poll(self) -> None:
        self._producer.poll(0)

    def finish(self) -> list[int]:
        if left := self._producer.flush(_FLUSH_S):
            raise ChronolineError(f"{left} messages of the load were not acknowledged in time")
        return self._failed

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failed.append(_number_of(message.key()))


class LogSender(Sender):
    """Each poll appends the messages that were sent since the last one."""

    def __init__(self, url: str, topic: str) -> None:
        self._log = Log(url)
        self._topic = topic
        self._events: list[NewEvent] = []
        self._appends: list[tuple[list[NewEvent], Future[list[Position]]]] = []

    def send(self, number: int, value: bytes, headers: Headers) -> None:
        self._events.append(NewEvent(key=b"%d" % number, value=value, headers=tuple(headers)))

    def poll(self) -> None:
        if self._events:
            self._appends.append((self._events, self._log.append_later(self._topic, self._events)))
            self._events = []

    def finish(self) -> list[int]:
        self.poll()
        with self._log:
            return [
                _number_of(event.key)
                for events, append in self._appends
                if append.exception(_FLUSH_S) is not None
                for event in events
            ]


def _watch_kafka(bootstrap: str, topic: str, notes: Notes, ready: threading.Event) -> None:
    consumer = Consumer({**_CONSUMER, "bootstrap.servers": bootstrap})
    consumer.assign(_ends(consumer, topic))
    freeze_heap()
    ready.set()
    while True:
        message = consumer.poll(_POLL_S)
        now_us = wall_us()
        if message is not None and message.error() is None:
            notes.came(_number_of(message.key()), now_us)


def _ends(consumer: Consumer, topic: str) -> list[TopicPartition]:
    known = consumer.list_topics(topic, timeout=_ASK_S).topics[topic].partitions
    places = [TopicPartition(topic, partition) for partition in known]
    for place in places:
        _, place.offset = consumer.get_watermark_offsets(place, timeout=_ASK_S)
    return places


def _watch_log(url: str, topic: str, notes: Notes, ready: threading.Event) -> None:
    with Log(url, max_latency_ms=_LOOK_MS) as log:
        events = log.read(topic, start="latest")
        freeze_heap()
        ready.set()
        for event in events:
            notes.came(_number_of(event.key), wall_us())


def _number_of(key: bytes | str | None) -> int:
    """Returns a message's number, which is its key."""
    return int(key or b"-1")
