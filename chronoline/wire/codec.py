"""Conversion between the core's values and the messages of the wire. Values are validated elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from itertools import islice
from typing import Any, NamedTuple

from chronoline.core.change import LEASE_OPERATIONS, Change
from chronoline.core.errors import InvalidInput
from chronoline.core.filters import MessageFilter, statuses_of
from chronoline.core.limits import MAX_HEADERS
from chronoline.core.message import (
    DEFAULT_PRODUCER_GROUP,
    After,
    DeadLetter,
    Header,
    LeasedMessage,
    LeaseTime,
    Message,
    NewMessage,
    SavedMessage,
)
from chronoline.core.outcome import Outcome
from chronoline.core.permissions import Operation
from chronoline.core.schedule import CatchUpRule, Recurrence, Schedule
from chronoline.core.topic import Pause, Topic, TopicSettings
from chronoline.wire.v1 import chronoline_pb2 as pb

# Topics


def settings_to_wire(settings: TopicSettings) -> pb.TopicSettings:
    given = {each.name: getattr(settings, each.name) for each in fields(settings)}
    return pb.TopicSettings(**{name: value for name, value in given.items() if value is not None})


def settings_from_wire(settings: pb.TopicSettings) -> TopicSettings:
    """Unset fields get their defaults. Raises `InvalidInput`."""
    given: dict[str, Any] = {each.name: value for each, value in settings.ListFields()}
    return TopicSettings(**given)


def changed_settings(
    settings: TopicSettings, changes: pb.TopicSettings, unset: Iterable[str]
) -> TopicSettings:
    """The settings with the fields that are set, and without those to be unset. Raises `InvalidInput`."""
    given: dict[str, Any] = {each.name: value for each, value in changes.ListFields()}
    known = {each.name for each in fields(settings)}
    for name in unset:
        if name not in known:
            raise InvalidInput(f"there is no topic setting {name!r:.60}")
        given[name] = None
    return replace(settings, **given)


def topic_to_wire(topic: Topic) -> pb.Topic:
    wire = pb.Topic(
        uid=topic.uid,
        name=topic.name,
        settings=settings_to_wire(topic.settings),
        revision=topic.revision,
    )
    if (pause := topic.pause) is not None:
        wire.paused_since_ms, wire.paused_by, wire.pause_reason = (
            pause.since,
            pause.by,
            pause.reason,
        )
    return wire


def topic_from_wire(topic: pb.Topic) -> Topic:
    pause = None
    if topic.HasField("paused_since_ms"):
        pause = Pause(since=topic.paused_since_ms, by=topic.paused_by, reason=topic.pause_reason)
    return Topic(
        uid=topic.uid,
        name=topic.name,
        settings=settings_from_wire(topic.settings),
        revision=topic.revision,
        pause=pause,
    )


# Schedules


def schedule_to_wire(
    schedule: Schedule, topic: str = "", times_ms: Sequence[int] = ()
) -> pb.Schedule:
    recurrence = schedule.recurrence
    return pb.Schedule(
        name=schedule.name,
        topic_uid=schedule.topic_uid,
        cron=recurrence.cron or "",
        every_ms=recurrence.every_ms or 0,
        zone=recurrence.zone,
        start_ms=recurrence.start_ms,
        catch_up=schedule.catch_up.value,
        producer_group=schedule.producer_group,
        body=schedule.body,
        key=schedule.key,
        headers=headers_to_wire(schedule.headers),
        topic=topic,
        paused=schedule.paused,
        next_ms=schedule.next_ms,
        times_ms=times_ms,
        problem=schedule.problem,
    )


def schedule_from_wire(wire: pb.Schedule) -> Schedule:
    """A schedule as it is given or told. Raises `InvalidInput`."""
    return Schedule(
        name=wire.name,
        topic_uid=wire.topic_uid,
        recurrence=Recurrence(
            cron=wire.cron or None,
            zone=wire.zone or "UTC",
            every_ms=wire.every_ms or None,
            start_ms=wire.start_ms if wire.HasField("start_ms") else None,
        ),
        catch_up=CatchUpRule.parse(wire.catch_up or CatchUpRule.ONE),
        producer_group=wire.producer_group or DEFAULT_PRODUCER_GROUP,
        body=wire.body if wire.HasField("body") else None,
        key=wire.key if wire.HasField("key") else None,
        headers=headers_from_wire(wire.headers),
        paused=wire.paused,
        next_ms=wire.next_ms if wire.HasField("next_ms") else None,
        problem=wire.problem,
    )


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


def outcomes_to_wire(outcomes: Iterable[Outcome], *, with_dues: bool = True) -> list[pb.Outcome]:
    """Outcomes, with the dues that the changes set; those of moves travel beside them."""
    return [
        pb.Outcome(
            id=each.id,
            refusal="" if each.refusal is None else each.refusal.value,
            version=each.version,
            detail=each.detail,
            unknown=each.unknown,
            due_ms=each.at if with_dues and each.done else 0,
            retry_after_ms=each.retry_after_ms or 0,
            warning=each.warning,
        )
        for each in outcomes
    ]


def letter_to_wire(letter: DeadLetter) -> pb.DeadLetter:
    return pb.DeadLetter(
        message=message_to_wire(letter.message), reason=letter.reason, died_ms=letter.died
    )


# Administration


def filter_from_wire(wire: pb.MessageFilter) -> MessageFilter:
    """Raises `InvalidInput`."""
    return MessageFilter(
        producer_group=wire.producer_group,
        consumer=wire.consumer,
        prefix=wire.prefix,
        start=wire.start_ms,
        end=wire.end_ms if wire.HasField("end_ms") else None,
        statuses=statuses_of(list(wire.statuses)),
        reason=wire.reason,
    )


def saved_to_wire(saved: SavedMessage) -> pb.SavedMessage:
    return pb.SavedMessage(
        id=saved.id,
        due_ms=saved.due,
        expires_ms=saved.expires,
        attempts=saved.attempts,
        producer_group=saved.producer_group,
        key=saved.key,
        headers=headers_to_wire(saved.headers),
        body=saved.body,
        reason=saved.reason,
        died_ms=saved.died,
    )


def saved_from_wire(wire: pb.SavedMessage) -> SavedMessage:
    return SavedMessage(
        id=wire.id,
        due=wire.due_ms,
        expires=wire.expires_ms if wire.HasField("expires_ms") else None,
        attempts=wire.attempts,
        producer_group=wire.producer_group,
        key=wire.key if wire.HasField("key") else None,
        headers=headers_from_wire(wire.headers),
        body=wire.body if wire.HasField("body") else None,
        reason=wire.reason,
        died=wire.died_ms,
    )


# Changes


class _Form(NamedTuple):
    """How changes of one operation travel: as which batch of a frame, and as which items of it."""

    batch: str
    items: str
    ids_alone: bool = False
    """An item is the id, and not a message."""
    time: str = ""
    """The field of a new time that is absolute; a relative one is `delay_ms`."""
    has_reason: bool = False
    has_expires: bool = False
    kind: int = 0
    """Of a batch that several operations share."""


_FORMS: dict[Operation, _Form] = {
    Operation.RESCHEDULE: _Form("reschedule", "moves", time="due_ms", has_expires=True),
    Operation.CANCEL: _Form("cancel", "ids", ids_alone=True),
    Operation.ACK: _Form("ack", "leases"),
    Operation.EXTEND: _Form("move", "moves", time="at_ms", kind=pb.MoveBatch.KIND_EXTEND),
    Operation.RELEASE: _Form("move", "moves", time="at_ms", kind=pb.MoveBatch.KIND_RELEASE),
    Operation.RETRY: _Form("move", "moves", time="at_ms", kind=pb.MoveBatch.KIND_RETRY),
    Operation.BURY: _Form("move", "moves", has_reason=True, kind=pb.MoveBatch.KIND_BURY),
    Operation.UNRESERVE: _Form("move", "moves", kind=pb.MoveBatch.KIND_UNRESERVE),
}
MESSAGE_FRAMES = frozenset({"create"}) | {form.batch for form in _FORMS.values()}
"""The names of the frames that change messages, as in `frame.WhichOneof("what")`."""
_OPERATIONS = {(form.batch, form.kind): operation for operation, form in _FORMS.items()}
_MOVES = [operation for operation, form in _FORMS.items() if form.batch == "move"]


class ChangeBatch(NamedTuple):
    """The changes that a frame asks for, all of one operation."""

    operation: Operation
    topic_uid: int
    again: bool
    """An earlier attempt was not answered."""
    items: Sequence[Any]

    def changes(self, name: str, session: str = "") -> list[Change]:
        """The changes, on behalf of the consumer or the producer group of this name."""
        operation, form = self.operation, _FORMS[self.operation]
        if form.ids_alone:
            return [Change(operation, each, name) for each in self.items]
        leased = operation in LEASE_OPERATIONS
        changes = []
        for each in self.items:
            to: LeaseTime = 0
            if form.time:
                absolute = each.HasField(form.time)
                to = getattr(each, form.time) if absolute else After(each.delay_ms)
            version = each.version if leased else 0
            reason = each.reason if form.has_reason else ""
            has_expires = form.has_expires and each.HasField("expires_ms")
            expires = each.expires_ms if has_expires else None
            changes.append(
                Change(
                    operation,
                    each.id,
                    name,
                    version,
                    to,
                    reason=reason,
                    session=session,
                    expires=expires,
                )
            )
        return changes


def write_changes(
    frame: pb.ProducerFrame | pb.ConsumerFrame,
    topic_uid: int,
    changes: Sequence[Change],
    *,
    again: bool,
) -> None:
    """Puts changes of one operation into a frame. `again`: an earlier attempt was not answered."""
    form = _FORMS[changes[0].operation]
    batch = getattr(frame, form.batch)
    batch.topic_uid, batch.again = topic_uid, again
    if form.kind:
        batch.kind = form.kind
    items = getattr(batch, form.items)
    if form.ids_alone:
        items.extend(change.id for change in changes)
        return
    for change in changes:
        item = items.add()
        item.id = change.id
        if change.version:
            item.version = change.version
        if form.time and isinstance(change.to, After):
            item.delay_ms = change.to.delay_ms
        elif form.time:
            setattr(item, form.time, change.to)
        if form.has_reason:
            item.reason = change.reason
        if form.has_expires and change.expires is not None:
            item.expires_ms = change.expires


def read_changes(frame: pb.ProducerFrame | pb.ConsumerFrame) -> ChangeBatch:
    """The changes that a frame asks for. Raises `InvalidInput` for a frame that asks for none."""
    name = frame.WhichOneof("what") or ""
    batch = getattr(frame, name, None)
    operation = _OPERATIONS.get((name, getattr(batch, "kind", 0)))
    if operation is None and name == "move":
        *kinds, last = _MOVES
        raise InvalidInput(f"a move has to be of a kind: {', '.join(kinds)} or {last}")
    if operation is None or batch is None:
        raise InvalidInput("the frame asks for nothing that this broker knows")
    items = getattr(batch, _FORMS[operation].items)
    return ChangeBatch(operation, batch.topic_uid, batch.again, items)


def write_answer(
    reply: pb.ProducerReply | pb.ConsumerReply, operation: Operation, outcomes: Sequence[Outcome]
) -> None:
    """Puts the outcomes of changes into a reply; of moves with the times from which they hold."""
    if operation in _MOVES:
        reply.moved.outcomes.extend(outcomes_to_wire(outcomes, with_dues=False))  # type: ignore[union-attr]  # a consumer's
        reply.moved.at_ms.extend(each.at if each.done else 0 for each in outcomes)  # type: ignore[union-attr]  # as above
    else:
        reply.outcomes.outcomes.extend(outcomes_to_wire(outcomes))
