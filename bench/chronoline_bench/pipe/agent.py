"""The agent of the bench `pipe`: a loader of the input topic, or a watcher of the output topic."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from chronoline.core.errors import ChronolineError
from chronoline_bench.harness.agent import Figures, freeze_heap
from chronoline_bench.harness.passage import Notes, wall_us, write_pairs
from chronoline_bench.pipe.polling_queue import DEADLINE_HEADER, ID_HEADER

_TICK_S = 0.005
_POLL_EVERY = 1_000
_POLL_S = 0.02
_FLUSH_S = 120.0
_ASK_S = 30.0
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


class Agent:
    """The agent's commands."""

    def __init__(self) -> None:
        self._notes = Notes()
        self._watching: asyncio.Future[None] | None = None

    async def load(self, **load: Any) -> Figures:
        """Publishes a `Load`; writes the due times of the acknowledged messages to its file."""
        return await asyncio.to_thread(Loader(Load(**load)).run)

    async def watch(self, bootstrap: str, topic: str) -> Figures:
        """Starts to note the arrivals on a topic."""
        ready = threading.Event()
        self._watching = asyncio.ensure_future(
            asyncio.to_thread(_watch, bootstrap, topic, self._notes, ready)
        )
        while not await asyncio.to_thread(ready.wait, _POLL_S):
            await self.count()
        return {}

    async def count(self) -> Figures:
        """Returns the number of messages that came."""
        if self._watching is not None and self._watching.done():
            self._watching.result()  # raises its error
        return {"came": len(self._notes.numbers)}

    async def take(self, path: str) -> Figures:
        """Writes the arrival times since the last call to a file."""
        write_pairs(Path(path), self._notes.take())
        return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Messages to publish."""

    bootstrap: str
    topic: str
    path: str
    first: int
    """The number of the first message."""
    count: int
    rate: float = 0.0
    """Messages per second; 0 is as fast as possible."""
    shortest_ms: int = 3_000
    longest_ms: int = 10_000
    """The range of the delays, which are evenly spread."""
    due_ms: int | None = None
    """One deadline for all messages, instead of delays."""
    seed: int = 5
    scene: str = "load"
    """The prefix of the ids."""


class Loader:
    """Publishes one load."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._chance = random.Random(load.seed + load.first)
        self._due_ms: dict[int, int] = {}
        self._failed: list[int] = []
        self._producer = Producer(
            {**_PRODUCER, "bootstrap.servers": load.bootstrap, "on_delivery": self._on_delivery}
        )

    def run(self) -> Figures:
        """Publishes all messages and waits for the acknowledgements; returns the start and end times."""
        started = time.monotonic()
        started_us = wall_us()
        for number in self._paced(started):
            self._publish(number)
        ended_us = wall_us()
        if left := self._producer.flush(_FLUSH_S):
            raise ChronolineError(f"{left} messages of the load were not acknowledged in time")
        for number in self._failed:
            del self._due_ms[number]
        write_pairs(
            Path(self._load.path), ((number, due * 1_000) for number, due in self._due_ms.items())
        )
        return {"started_us": started_us, "ended_us": ended_us, "failed": len(self._failed)}

    def _paced(self, started: float) -> Iterator[int]:
        """Yields the numbers at the load's rate, a few at a time, since a sleep costs time too."""
        load = self._load
        for done in range(load.count):
            if load.rate:
                while (time.monotonic() - started) * load.rate < done:
                    self._producer.poll(0)
                    time.sleep(_TICK_S)
            elif done % _POLL_EVERY == 0:
                self._producer.poll(0)
            yield load.first + done

    def _publish(self, number: int) -> None:
        load = self._load
        due_ms = load.due_ms
        if due_ms is None:
            delay_ms = self._chance.randint(load.shortest_ms, load.longest_ms)
            due_ms = time.time_ns() // 1_000_000 + delay_ms
        self._due_ms[number] = due_ms
        while True:
            try:
                self._producer.produce(
                    load.topic,
                    key=b"%d" % number,
                    value=b'{"task":"remind","number":%d,"due":%d,"text":"see you then"}'
                    % (number, due_ms),
                    headers=[
                        (ID_HEADER, f"{load.scene}-{number}"),
                        (DEADLINE_HEADER, as_deadline(due_ms)),
                    ],
                )
                return
            except BufferError:
                self._producer.poll(0.1)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failed.append(number_of(message))


def as_deadline(due_ms: int) -> str:
    """Returns the value of the deadline header: RFC 3339, to the millisecond."""
    moment = datetime.fromtimestamp(due_ms // 1000, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{due_ms % 1000:03}Z"


def number_of(message: Message) -> int:
    """Returns a message's number, which is its key."""
    return int(message.key() or b"-1")


def _watch(bootstrap: str, topic: str, notes: Notes, ready: threading.Event) -> None:
    """Notes the arrival time of each message, until the process ends."""
    consumer = Consumer({**_CONSUMER, "bootstrap.servers": bootstrap})
    consumer.assign(_ends(consumer, topic))
    freeze_heap()
    ready.set()
    while True:
        message = consumer.poll(_POLL_S)
        now_us = wall_us()
        if message is not None and message.error() is None:
            notes.came(number_of(message), now_us)


def _ends(consumer: Consumer, topic: str) -> list[TopicPartition]:
    known = consumer.list_topics(topic, timeout=_ASK_S).topics[topic].partitions
    places = [TopicPartition(topic, partition) for partition in known]
    for place in places:
        _, place.offset = consumer.get_watermark_offsets(place, timeout=_ASK_S)
    return places
