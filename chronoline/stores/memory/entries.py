"""A message in memory, and the result of each operation on it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from chronoline.core.change import LEASE_OPERATIONS, Change
from chronoline.core.expiry import DeathReason, death_of
from chronoline.core.message import Message, NewMessage
from chronoline.core.permissions import Operation
from chronoline.core.status import Life
from chronoline.core.topic import Topic
from chronoline.stores.contract import StoredRow
from chronoline.stores.engine import LeaseRequest, Taken
from chronoline.stores.guards import settled, taken_until


@dataclass(slots=True)
class Entry:
    """A message, the mark of a deleted one, or a dead letter."""

    message: Message
    body: bytes | None
    life: Life = Life.LIVE
    death: str | None = None
    session: str | None = None
    """The session that was granted its last lease."""
    digest: bytes | None = None
    early_cancel: str | None = None

    def row(self) -> StoredRow:
        m = self.message
        return StoredRow(
            self.life,
            m.ts,
            m.producer_group,
            m.lock_consumer,
            m.version,
            m.due,
            m.expires,
            self.session,
            self.digest,
            self.early_cancel,
        )


def new_message(bucket: int, new: NewMessage, version: int) -> Message:
    return Message(
        id=new.id,
        ts=new.due,
        due=new.due,
        bucket=bucket,
        producer_group=new.producer_group,
        lock_consumer=None,
        version=version,
        attempts=0,
        expires=new.expires,
        key=new.key,
        headers=tuple(new.headers),
    )


def apply(entry: Entry, change: Change, topic: Topic, now_ms: int) -> None:
    """Makes a change whose guard holds."""
    old = entry.message
    version = old.version + 1
    if change.operation not in LEASE_OPERATIONS:
        entry.session = None
    match change.operation:
        case Operation.EXTEND:
            entry.message = replace(old, ts=change.to_ms, version=version)
        case Operation.UNRESERVE:
            entry.message = replace(old, ts=old.due, lock_consumer=None, version=version)
        case Operation.RELEASE:
            entry.message = _moved(old, change)
        case Operation.RETRY if old.attempts + 1 >= topic.settings.max_attempts:
            bury(entry, old.attempts + 1, DeathReason.ATTEMPTS, now_ms)
        case Operation.RETRY:
            entry.message = replace(_moved(old, change), attempts=old.attempts + 1)
        case Operation.BURY:
            bury(entry, old.attempts + 1, change.reason, now_ms)
        case Operation.RESCHEDULE:
            lapsed = old.lock_consumer is not None
            expires = old.expires if change.expires is None else change.expires
            entry.message = replace(
                _moved(old, change), attempts=old.attempts + lapsed, expires=expires
            )
        case Operation.REDRIVE:
            kept = old.expires is not None and old.expires > max(change.to_ms, now_ms)
            expires = old.expires if kept else None
            entry.life, entry.death = Life.LIVE, None
            entry.message = replace(_moved(old, change), attempts=0, expires=expires)
        case Operation.ACK:
            mark(entry, change.name, taken_until(topic, now_ms))
        case Operation.CANCEL | Operation.DISCARD:
            mark(entry, None, taken_until(topic, now_ms))


def _moved(old: Message, change: Change) -> Message:
    to_ms = change.to_ms
    return replace(old, ts=to_ms, due=to_ms, lock_consumer=None, version=old.version + 1)


def take(entry: Entry, topic: Topic, request: LeaseRequest) -> Taken:
    old = entry.message
    lapsed = old.lock_consumer is not None
    attempts = old.attempts + (1 if lapsed else 0)
    death = death_of(old, attempts, topic.settings, request.now_ms)
    if death is not None:
        bury(entry, attempts, death, request.now_ms)
        entry.session = None
    else:
        entry.session = request.session
        entry.message = replace(
            old,
            ts=max(old.due, request.now_ms) + request.lease_ms,
            lock_consumer=request.consumer,
            version=old.version + 1,
            attempts=attempts,
        )
    return Taken(entry.message, entry.body, lapsed, death, old.lock_consumer)


def bury(entry: Entry, attempts: int, death: str, now_ms: int) -> None:
    entry.life, entry.death = Life.DEAD, death
    entry.message = replace(
        entry.message,
        ts=now_ms,
        lock_consumer=None,
        version=entry.message.version + 1,
        attempts=attempts,
    )


def mark(entry: Entry, hand: str | None, until: int) -> None:
    entry.life, entry.death, entry.body = Life.GONE, None, None
    entry.message = replace(
        entry.message,
        ts=until,
        lock_consumer=hand,
        version=entry.message.version + 1,
        key=None,
        headers=(),
    )


def is_waste(entry: Entry, topic: Topic, now_ms: int) -> bool:
    if entry.message.version >= settled(now_ms):
        return False
    if entry.life is Life.GONE:
        return entry.message.ts <= now_ms
    return entry.life is Life.DEAD and not topic.settings.dead_letters
