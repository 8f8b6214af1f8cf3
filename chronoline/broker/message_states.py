"""The states of messages, on their timeline and after it, as far as rows and marks still say them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from chronoline.core.filters import place_before
from chronoline.core.message import DeadLetter, Message
from chronoline.core.status import Life, status_of
from chronoline.stores.contract import Store, StoredRow

MOST_STATES = 1_000
"""The most messages of one request: each dead letter is a read of its own."""
_NEIGHBOURS = 10
"""The letters that are read to find one: it is the first, but for very odd ids."""


class Fate(StrEnum):
    """States of messages that are no longer on their timeline."""

    DELIVERED = "delivered"
    """A consumer acked it."""
    CANCELLED = "cancelled"
    """Its owner cancelled it, or its dead letter was discarded."""
    DEAD = "dead"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownState:
    """The state of one message."""

    id: str
    state: str
    """A status of a message on its timeline, or a fate."""
    producer_group: str
    message: Message | None = None
    """While it is on its timeline."""
    consumer: str = ""
    """The one that acked it."""
    until: int = 0
    """When the mark of a deleted message ends, and its id is free."""
    died: int = 0
    reason: str = ""
    """Why it died."""


def known_states(
    store: Store, topic_uid: int, ids: Sequence[str], *, now_ms: int
) -> list[KnownState]:
    """The states of those messages of which something is known, in the order of the ids."""
    rows = store.rows(topic_uid, ids)
    live = [each for each, row in rows.items() if row.life is Life.LIVE]
    messages = store.lookup(topic_uid, live) if live else {}
    found = []
    for message_id in dict.fromkeys(ids):
        row = rows.get(message_id)
        if row is None or (row.life is Life.GONE and row.ts <= now_ms):
            continue
        if row.life is Life.GONE:
            found.append(_deleted(message_id, row))
        elif row.life is Life.DEAD:
            found.append(_dead(store, topic_uid, message_id, row))
        elif (message := messages.get(message_id)) is not None:
            found.append(_live(message, now_ms))
    return found


def _live(message: Message, now_ms: int) -> KnownState:
    status = status_of(message.ts, message.lock_consumer is not None, now_ms)
    return KnownState(
        id=message.id,
        state=status.value,
        producer_group=message.producer_group,
        message=message,
    )


def _deleted(message_id: str, row: StoredRow) -> KnownState:
    fate = Fate.CANCELLED if row.lock_consumer is None else Fate.DELIVERED
    return KnownState(
        id=message_id,
        state=fate.value,
        producer_group=row.producer_group,
        consumer=row.lock_consumer or "",
        until=row.ts,
    )


def _dead(store: Store, topic_uid: int, message_id: str, row: StoredRow) -> KnownState:
    # The list of dead letters is by time, then id.
    before = DeadLetter.place(place_before(message_id), row.ts)
    letters = store.dead_letters(topic_uid, after=before, limit=_NEIGHBOURS)
    letter = next((each for each in letters if each.message.id == message_id), None)
    return KnownState(
        id=message_id,
        state=Fate.DEAD.value,
        producer_group=row.producer_group,
        died=row.ts,
        reason="" if letter is None else letter.reason,
    )
