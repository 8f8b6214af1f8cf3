"""Messages for measurements: how they are made, written in bulk, consumed and counted."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass

from chronoline.core.ids import ID_ENTROPY_BYTES, make_id
from chronoline.core.message import NewMessage
from chronoline.core.topic import Topic
from chronoline.runtime.clock import Clock
from chronoline.stores.contract import Store
from chronoline_bench.tally import Served

BODY_BYTES = 256
DAY_MS = 86_400_000
AHEAD_MS = 60_000
"""The shortest delay of waiting messages: none falls due during a measurement."""
SERVE_BATCH = 500
CONSUMER = "bench"
LEASE_MS = 30_000
ID_DIGITS = 25
_PRIME = 15_485_863
"""Steps of this size, modulo the total, visit every place once, in an order like a shuffled one."""
_CHANCE = random.Random(3)


def make_waiting(count: int, now_ms: int) -> list[NewMessage]:
    """Returns messages that fall due during the next day."""
    return make_messages(count, now_ms, now_ms + AHEAD_MS, now_ms + DAY_MS)


def make_due(count: int, now_ms: int, body_bytes: int = BODY_BYTES) -> list[NewMessage]:
    """Returns messages that fell due during the last ten seconds."""
    return make_messages(count, now_ms, now_ms - 10_000, now_ms, body_bytes)


def make_messages(
    count: int, now_ms: int, first_ms: int, last_ms: int, body_bytes: int = BODY_BYTES
) -> list[NewMessage]:
    """Returns messages with generated ids, random bodies, and due times in random order."""
    return [
        NewMessage(
            id=make_id(now_ms, _CHANCE.randbytes(ID_ENTROPY_BYTES)),
            due=_CHANCE.randint(first_ms, last_ms),
            body=_CHANCE.randbytes(body_bytes),
        )
        for _ in range(count)
    ]


def in_batches(messages: list[NewMessage], size: int) -> Iterator[list[NewMessage]]:
    for start in range(0, len(messages), size):
        yield messages[start : start + size]


def count_all(store: Store, topic: Topic, now_ms: int) -> int:
    """Returns the store's count of a topic's messages."""
    whole = store.count(
        topic.uid, topic.all_buckets, start=0, end=now_ms + 10 * DAY_MS, now_ms=now_ms
    )
    return whole.total


def serve(store: Store, topic: Topic, clock: Clock, served: Served, most: int) -> list[float]:
    """Leases and acks up to `most` due messages in batches; returns the seconds of each batch."""
    batches_s: list[float] = []
    left = most
    while left > 0:
        started = time.perf_counter()
        now_ms = clock.now_ms()
        grant = store.reserve(
            topic.uid,
            topic.all_buckets,
            consumer=CONSUMER,
            limit=min(SERVE_BATCH, left),
            lease_ms=LEASE_MS,
            now_ms=now_ms,
        )
        if not grant.leased:
            break
        leases = [leased.lease for leased in grant.leased]
        acked = store.ack(topic.uid, leases, now_ms=clock.now_ms())
        batches_s.append(time.perf_counter() - started)
        served.add(grant, acked, now_ms)
        left -= len(grant.leased)
    return batches_s


def message_id(number: int) -> str:
    """Returns an id of the same length as generated ids."""
    return f"m{number:0{ID_DIGITS}}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Filling:
    """Many waiting messages, evenly spread over a span of time.

    They are written by number, and `number * stride % total` is a message's place on the timeline. Producers
    with various delays write messages in shuffled order: neighbours in time lie apart on disk. Producers with
    a fixed delay write them in order.
    """

    total: int
    start_ms: int
    span_ms: int
    now_ms: int
    shuffled: bool = True
    body_bytes: int = BODY_BYTES

    @property
    def stride(self) -> int:
        return _PRIME if self.shuffled else 1

    def id(self, number: int) -> str:
        return message_id(number)

    def due(self, number: int) -> int:
        return self.moment(number * self.stride % self.total)

    def moment(self, place: int) -> int:
        """The due time of the message with this place."""
        return self.start_ms + place * self.span_ms // self.total
