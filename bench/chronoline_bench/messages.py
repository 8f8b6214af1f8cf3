"""Messages to measure with."""

from __future__ import annotations

import random
from collections.abc import Iterator

from chronoline.core.ids import ID_ENTROPY_BYTES, make_id
from chronoline.core.message import NewMessage
from chronoline.core.topic import Topic
from chronoline.stores.contract import Store

BODY_BYTES = 256
DAY_MS = 86_400_000
AHEAD_MS = 60_000
"""What waits lies at least this far ahead: farther than anybody has to be woken for."""
_CHANCE = random.Random(3)


def make_waiting(count: int, now_ms: int) -> list[NewMessage]:
    """Messages that fall due during the next day."""
    return make_messages(count, now_ms, now_ms + AHEAD_MS, now_ms + DAY_MS)


def make_due(count: int, now_ms: int, body_bytes: int = BODY_BYTES) -> list[NewMessage]:
    """Messages that fell due during the last ten seconds."""
    return make_messages(count, now_ms, now_ms - 10_000, now_ms, body_bytes)


def make_messages(
    count: int, now_ms: int, first_ms: int, last_ms: int, body_bytes: int = BODY_BYTES
) -> list[NewMessage]:
    """Messages with ids of ours, random bodies, and due times in no order."""
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
    """How many messages a topic has, as the store tells."""
    whole = store.count(
        topic.uid, topic.all_buckets, start=0, end=now_ms + 10 * DAY_MS, now_ms=now_ms
    )
    return whole.total
