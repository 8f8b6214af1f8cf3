"""Whole timelines, page by page, for exports: messages or dead letters with their bodies."""

from __future__ import annotations

from chronoline.core.filters import ListPlace
from chronoline.core.message import DeadLetter, Message, SavedMessage
from chronoline.core.permissions import System
from chronoline.stores.contract import Store

_BODIES_BYTES = 64 * 1024 * 1024
"""The most bytes of one read of bodies, if each were as large as the topic allows."""
_MOST_BODIES = 500


def export_page(
    store: Store,
    topic_uid: int,
    *,
    dead_letters: bool = False,
    after: ListPlace | None = None,
    limit: int,
    most_bytes: int,
    now_ms: int,
) -> tuple[list[SavedMessage], ListPlace | None]:
    """A page, and where the next one begins; None at the end.

    It ends early when its contents reach `most_bytes`. Messages come in the order of their key, which no
    change moves: one that is there all the time comes exactly once.
    """
    listed, more = _listed(store, topic_uid, dead_letters, after, limit)
    largest = store.get_topic(topic_uid).settings.largest_body_bytes
    at_once = max(1, min(_MOST_BODIES, _BODIES_BYTES // max(1, largest)))
    saved: list[SavedMessage] = []
    total_bytes = 0
    for first in range(0, len(listed), at_once):
        some = listed[first : first + at_once]
        ids = [message.id for message, _, _ in some]
        bodies = store.bodies(topic_uid, ids, actor=System(), now_ms=now_ms)
        for message, reason, died in some:
            if message.id in bodies.found:  # else it was acked or cancelled meanwhile
                saved.append(_saved(message, bodies.found[message.id], reason, died))
                total_bytes += saved[-1].content_bytes
        last = first + len(some) == len(listed)
        if last or total_bytes >= most_bytes:
            message, _, died = some[-1]
            place = ListPlace(died, 0, message.id) if dead_letters else ListPlace.of(message)
            return saved, None if last and not more else place
    return saved, None


def _listed(
    store: Store, topic_uid: int, dead_letters: bool, after: ListPlace | None, limit: int
) -> tuple[list[tuple[Message, str, int]], bool]:
    """Messages with the reason and the time of their death, and whether there may be more."""
    if dead_letters:
        place = None if after is None else DeadLetter.place(after.id, after.ts)
        letters = store.dead_letters(topic_uid, after=place, limit=limit)
        return [(each.message, each.reason, each.died) for each in letters], len(letters) == limit
    key = None if after is None else (after.bucket, after.id)
    page = store.select_prefix(topic_uid, "", after=key, limit=limit)
    return [(each, "", 0) for each in page.messages], page.more


def _saved(message: Message, body: bytes | None, reason: str, died: int) -> SavedMessage:
    return SavedMessage(
        id=message.id,
        due=message.due,
        expires=message.expires,
        attempts=message.attempts,
        producer_group=message.producer_group,
        key=message.key,
        headers=message.headers,
        body=body,
        reason=reason,
        died=died,
    )
