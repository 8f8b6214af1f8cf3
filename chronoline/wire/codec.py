"""Conversion between the core's values and the messages of the wire. Values are validated elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from itertools import islice
from typing import Any

from chronoline.core.limits import MAX_HEADERS
from chronoline.core.message import (
    DeadLetter,
    Header,
    Lease,
    LeasedMessage,
    Message,
    NewMessage,
)
from chronoline.core.outcome import Outcome, Refusal
from chronoline.core.topic import Topic, TopicSettings
from chronoline.wire.v1 import chronoline_pb2 as pb

# Topics


def settings_to_wire(settings: TopicSettings) -> pb.TopicSettings:
    given = {each.name: getattr(settings, each.name) for each in fields(settings)}
    return pb.TopicSettings(**{name: value for name, value in given.items() if value is not None})


def settings_from_wire(settings: pb.TopicSettings) -> TopicSettings:
    """Unset fields get their defaults. Raises `InvalidInput`."""
    given: dict[str, Any] = {each.name: value for each, value in settings.ListFields()}
    return TopicSettings(**given)


def topic_to_wire(topic: Topic) -> pb.Topic:
    return pb.Topic(uid=topic.uid, name=topic.name, settings=settings_to_wire(topic.settings))


def topic_from_wire(topic: pb.Topic) -> Topic:
    return Topic(uid=topic.uid, name=topic.name, settings=settings_from_wire(topic.settings))


# Messages


def headers_to_wire(headers: Iterable[Header]) -> list[pb.Header]:
    return [pb.Header(name=name, value=value) for name, value in headers]


def headers_from_wire(headers: Iterable[pb.Header]) -> tuple[Header, ...]:
    """Reads at most one header more than the limit, so that validation fails: a frame can hold millions."""
    return tuple(
        (each.name, each.value if each.HasField("value") else None)
        for each in islice(headers, MAX_HEADERS + 1)
    )


def new_to_wire(message: NewMessage, delay_ms: int | None = None) -> pb.NewMessage:
    """With a delay, the broker computes `due`."""
    wire = pb.NewMessage(
        id=message.id, body=message.body, key=message.key, expires_ms=message.expires
    )
    if delay_ms is None:
        wire.due_ms = message.due
    else:
        wire.delay_ms = delay_ms
    if message.headers:
        wire.headers.extend(headers_to_wire(message.headers))
    return wire


def new_from_wire(wire: pb.NewMessage, producer_group: str, now_ms: int) -> NewMessage:
    return NewMessage(
        id=wire.id,
        due=wire.due_ms if wire.HasField("due_ms") else now_ms + wire.delay_ms,
        body=wire.body if wire.HasField("body") else None,
        key=wire.key if wire.HasField("key") else None,
        headers=headers_from_wire(wire.headers) if wire.headers else (),
        expires=wire.expires_ms if wire.HasField("expires_ms") else None,
        producer_group=producer_group,
    )


def message_to_wire(message: Message) -> pb.Message:
    return pb.Message(
        id=message.id,
        ts_ms=message.ts,
        due_ms=message.due,
        bucket=message.bucket,
        producer_group=message.producer_group,
        lock_consumer=message.lock_consumer,
        version=message.version,
        attempts=message.attempts,
        expires_ms=message.expires,
        key=message.key,
        headers=headers_to_wire(message.headers),
    )


def message_from_wire(wire: pb.Message) -> Message:
    return Message(
        id=wire.id,
        ts=wire.ts_ms,
        due=wire.due_ms,
        bucket=wire.bucket,
        producer_group=wire.producer_group,
        lock_consumer=wire.lock_consumer if wire.HasField("lock_consumer") else None,
        version=wire.version,
        attempts=wire.attempts,
        expires=wire.expires_ms if wire.HasField("expires_ms") else None,
        key=wire.key if wire.HasField("key") else None,
        headers=headers_from_wire(wire.headers),
    )


def delivery_to_wire(leased: LeasedMessage) -> pb.Delivery:
    message = leased.message
    wire = pb.Delivery(
        id=message.id,
        due_ms=message.due,
        version=leased.lease.version,
        until_ms=leased.lease.until,
        attempts=message.attempts,
        redelivered=leased.redelivered,
        producer_group=message.producer_group,
        body=leased.body,
        key=message.key,
        expires_ms=message.expires,
    )
    if message.headers:
        wire.headers.extend(headers_to_wire(message.headers))
    return wire


# Outcomes


def outcomes_to_wire(outcomes: Iterable[Outcome]) -> list[pb.Outcome]:
    return [
        pb.Outcome(
            id=each.id,
            refusal="" if each.refusal is None else each.refusal.value,
            version=each.version,
            detail=each.detail,
            unknown=each.unknown,
        )
        for each in outcomes
    ]


def outcomes_from_wire(outcomes: Iterable[pb.Outcome]) -> list[Outcome]:
    return [
        Outcome(
            id=each.id,
            refusal=_refusal(each.refusal) if each.refusal else None,
            version=each.version,
            detail=each.detail,
            unknown=each.unknown,
        )
        for each in outcomes
    ]


def _refusal(name: str) -> Refusal:
    """An unknown name, of a newer broker, becomes `NOT_ALLOWED`; the detail has its text."""
    try:
        return Refusal(name)
    except ValueError:
        return Refusal.NOT_ALLOWED


def letter_to_wire(letter: DeadLetter) -> pb.DeadLetter:
    return pb.DeadLetter(
        message=message_to_wire(letter.message), reason=letter.reason, died_ms=letter.died
    )


def letter_from_wire(wire: pb.DeadLetter) -> DeadLetter:
    return DeadLetter(
        message=message_from_wire(wire.message), reason=wire.reason, died=wire.died_ms
    )


def leases_from_wire(
    refs: Sequence[pb.LeaseRef | pb.LeaseMove], consumer: str, *, session: str
) -> list[Lease]:
    """A lease is identified by id, consumer and version; the store knows its end."""
    return [
        Lease(id=each.id, consumer=consumer, version=each.version, until=0, session=session)
        for each in refs
    ]
