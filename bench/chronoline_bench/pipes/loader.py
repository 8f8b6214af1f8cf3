"""Publishes messages with deadlines at a rate, as an application would, and says afterwards what it did.

`python -m chronoline_bench.pipes.loader LOAD`, where LOAD is a `Load` as JSON. What the broker acknowledged
stands in the load's file, number and due time; one line of JSON on the output says when it began and ended.
SIGTERM ends it early, and in order.
"""

from __future__ import annotations

import json
import random
import signal
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from confluent_kafka import KafkaError, Message, Producer

from chronoline.core.errors import ChronolineError
from chronoline_bench.pipes.records import write_pairs

ID_HEADER = "chronosMessageId"
DEADLINE_HEADER = "chronosDeadline"
_TICK_S = 0.005
_POLL_EVERY = 1_000
_FLUSH_S = 120.0
_PRODUCER = {
    "acks": "all",
    "enable.idempotence": True,
    "linger.ms": 5,
    "message.timeout.ms": 120_000,
    "queue.buffering.max.messages": 1_000_000,
    # A broker that was away is found again at once: it is the pipe that is measured.
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 100,
    "log_level": 0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What is to be published."""

    bootstrap: str
    topic: str
    path: str
    """Where it is written down."""
    first: int
    """The number of the first message; the others follow."""
    count: int
    rate: float = 0.0
    """Messages a second; 0 is as fast as it goes."""
    shortest_ms: int = 3_000
    longest_ms: int = 10_000
    """Deadlines lie so far ahead, evenly spread."""
    due_ms: int | None = None
    """One deadline for all, instead."""
    seed: int = 5
    scene: str = "load"
    """Begins the ids, which are told apart across loads by the numbers."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, text: str) -> Self:
        return cls(**json.loads(text))

    def id(self, number: int) -> str:
        return f"{self.scene}-{number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """When a load began and ended, and how much of it the broker has acknowledged."""

    started_ms: int
    ended_ms: int
    published: int
    failed: int = 0

    @property
    def rate(self) -> float:
        return self.published * 1000 / max(1, self.ended_ms - self.started_ms)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, text: str) -> Self:
        return cls(**json.loads(text))


class Loader:
    """One load. `stop` may be called by another thread, or by a signal."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._chance = random.Random(load.seed + load.first)
        self._due: dict[int, int] = {}
        self._failed: list[int] = []
        self._stopping = threading.Event()
        self._producer = Producer(
            {**_PRODUCER, "bootstrap.servers": load.bootstrap, "on_delivery": self._on_delivery}
        )

    def stop(self) -> None:
        self._stopping.set()

    def run(self) -> Loaded:
        """Publishes everything, and waits for the acknowledgements."""
        started = time.monotonic()
        started_ms = time.time_ns() // 1_000_000
        for number in self._paced(started):
            self._publish(number)
        ended_ms = time.time_ns() // 1_000_000
        if left := self._producer.flush(_FLUSH_S):
            raise ChronolineError(f"{left} messages of the load were not acknowledged in time")
        for number in self._failed:
            del self._due[number]
        write_pairs(Path(self._load.path), self._due.items())
        return Loaded(
            started_ms=started_ms,
            ended_ms=ended_ms,
            published=len(self._due),
            failed=len(self._failed),
        )

    def _paced(self, started: float) -> Iterator[int]:
        """The numbers, each when it is its turn: a few at a time, since to sleep costs too."""
        load = self._load
        for done in range(load.count):
            if load.rate:
                while (time.monotonic() - started) * load.rate < done:
                    self._producer.poll(0)
                    if self._stopping.wait(_TICK_S):
                        return
            elif done % _POLL_EVERY == 0:
                self._producer.poll(0)
            if self._stopping.is_set():
                return
            yield load.first + done

    def _publish(self, number: int) -> None:
        load = self._load
        due_ms = load.due_ms
        if due_ms is None:
            delay_ms = self._chance.randint(load.shortest_ms, load.longest_ms)
            due_ms = time.time_ns() // 1_000_000 + delay_ms
        self._due[number] = due_ms
        while True:
            try:
                self._producer.produce(
                    load.topic,
                    key=b"%d" % number,
                    value=b'{"task":"remind","number":%d,"due":%d,"text":"see you then"}'
                    % (number, due_ms),
                    headers=[(ID_HEADER, load.id(number)), (DEADLINE_HEADER, as_deadline(due_ms))],
                )
                return
            except BufferError:
                self._producer.poll(0.1)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failed.append(number_of(message))


def as_deadline(due_ms: int) -> str:
    """A moment as the header has it: RFC 3339, to the millisecond."""
    moment = datetime.fromtimestamp(due_ms // 1000, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{due_ms % 1000:03}Z"


def number_of(message: Message) -> int:
    """A message's number, by its key."""
    return int(message.key() or b"-1")


def main(text: str) -> None:
    loader = Loader(Load.parse(text))
    signal.signal(signal.SIGTERM, lambda *_: loader.stop())
    print(loader.run().to_json(), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
