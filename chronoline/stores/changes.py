"""The small values that pass between `EngineStore` and an engine, and the naming of refusals."""

from __future__ import annotations

from typing import Any, NamedTuple

from chronoline.core.expiry import DeathReason
from chronoline.core.limits import MIN_LEASE_MS, SETTLED_AFTER_MS
from chronoline.core.message import Message
from chronoline.core.outcome import Outcome, Refusal
from chronoline.core.permissions import (
    Actor,
    Consumer,
    Operation,
    Producer,
    System,
    refusal_of,
)
from chronoline.core.session import instance_of
from chronoline.core.status import Life
from chronoline.core.topic import Topic

LEASE_OPERATIONS = frozenset(
    {
        Operation.EXTEND,
        Operation.RELEASE,
        Operation.RETRY,
        Operation.BURY,
        Operation.UNRESERVE,
        Operation.ACK,
    }
)
DELETIONS = frozenset({Operation.ACK, Operation.CANCEL, Operation.DISCARD})
_MOVES = frozenset(
    {
        Operation.RELEASE,
        Operation.RETRY,
        Operation.UNRESERVE,
        Operation.RESCHEDULE,
        Operation.REDRIVE,
    }
)
_NEEDS_TIME_AHEAD = frozenset({Operation.EXTEND, Operation.RELEASE, Operation.RETRY})


class Change(NamedTuple):
    """One item of a batch of changes; what an operation does not use is left at its default."""

    bucket: int
    id: str
    name: str = ""
    """The consumer, or the producer group, on whose behalf it is made."""
    version: int = 0
    to: int = 0
    """The new time."""
    shortens: bool = False
    """Whether that is before the end of the lease, as its holder knows it."""
    reason: str = ""
    """Why a message is buried."""
    session: str = ""
    """Which session the lease was granted to."""


class RowsHeld(Exception):
    """Other transactions hold some rows of a batch, and all others are done: what an engine raises."""

    def __init__(self, made: dict[str, int], held: frozenset[str]) -> None:
        super().__init__(f"{len(held)} rows are held by other transactions")
        self.made = made
        self.held = held


class StoredRow(NamedTuple):
    """What the rules want to know of a row."""

    life: Life
    ts: int
    producer_group: str
    lock_consumer: str | None
    version: int
    due: int
    lock_session: str | None = None
    """Which session was granted the last lease; kept when that session gives the message back."""


class LeaseRequest(NamedTuple):
    """The part of a request for leases that is the same for all messages."""

    consumer: str
    lease_ms: int
    reserve_ahead_ms: int
    session: str | None
    now_ms: int


class ResumeRequest(NamedTuple):
    """Which live leases a returning consumer wants back, and under which session."""

    consumer: str
    session: str | None
    after: str
    limit: int
    now_ms: int


def settled(now_ms: int) -> int:
    """Versions below this can be forgotten, once the topic's floor stands above them.

    Every create that is under way begins above them, though its clock may be behind and it may have had to
    wait; those that follow begin above the floor, whatever their clock says. A row whose version is not
    settled, or lies above the floor, leaves a mark.
    """
    return now_ms - SETTLED_AFTER_MS


def taken_until(topic: Topic, now_ms: int) -> int:
    """Until when the mark of a message that is deleted now keeps its id taken.

    Without a dedupe time that is a moment that every clock has passed: the mark only keeps the version.
    """
    dedupe_ms = topic.settings.dedupe_ms
    return now_ms + dedupe_ms if dedupe_ms else max(0, settled(now_ms))


def may_remove(operation: Operation, topic: Topic, change: Change, now_ms: int) -> bool:
    """Whether a deletion may do without a mark, if the topic's floor has reached the row's version.

    An ack names the version, so it is known beforehand; the others find it in the row.
    """
    if operation not in DELETIONS or topic.settings.dedupe_ms:
        return False
    return operation is not Operation.ACK or change.version < settled(now_ms)


def is_move(operation: Operation, change: Change) -> bool:
    """Whether it puts a message where a sleeper may have to wake for it."""
    return operation in _MOVES or (operation is Operation.EXTEND and change.shortens)


def sets_time(operation: Operation) -> bool:
    """Whether the change puts the message, or the end of its lease, at a time of its own."""
    return operation in _NEEDS_TIME_AHEAD or operation in (Operation.RESCHEDULE, Operation.REDRIVE)


def lease_values(topic: Topic, request: LeaseRequest) -> dict[str, Any]:
    """What the SQL engines' queries for leases want to know."""
    return {
        "topic": topic.uid,
        "now": request.now_ms,
        "horizon": request.now_ms + request.reserve_ahead_ms,
        "consumer": request.consumer,
        "session": request.session,
        "lease_ms": request.lease_ms,
        "max_attempts": topic.settings.max_attempts,
        "max_lateness_ms": topic.settings.max_lateness_ms,
    }


def resume_values(topic: Topic, request: ResumeRequest) -> dict[str, Any]:
    """The values of the SQL engines' queries for resumed leases."""
    values = request._asdict()
    return {"topic": topic.uid, "now": values.pop("now_ms"), **values}


def change_values(topic: Topic, now_ms: int) -> dict[str, Any]:
    """What the SQL engines' queries for changes want to know, apart from the change itself."""
    return {
        "topic": topic.uid,
        "now": now_ms,
        "min_lease_ms": MIN_LEASE_MS,
        "max_attempts": topic.settings.max_attempts,
        "until": taken_until(topic, now_ms),
    }


class Span(NamedTuple):
    """A stretch of the timeline that is counted in steps."""

    start: int
    end: int
    step_ms: int
    now_ms: int


def span_values(topic: Topic, span: Span) -> dict[str, int]:
    """What the SQL engines' forecasts want to know, apart from the cells."""
    return {
        "topic": topic.uid,
        "from": span.start,
        "end": span.end,
        "step_ms": span.step_ms,
        "now": span.now_ms,
    }


class Taken(NamedTuple):
    """A message that an engine leased, or sent to the dead letters instead."""

    message: Message
    body: bytes | None
    redelivered: bool
    death: DeathReason | None
    taken_from: str | None = None
    """Who held it when its last lease lapsed."""
    resumed_from: str | None = None
    """Which session held it before it was resumed."""


def actor_of(operation: Operation, change: Change) -> Actor:
    """On whose behalf a change is made."""
    if operation in LEASE_OPERATIONS:
        return Consumer(change.name)
    if operation in (Operation.REDRIVE, Operation.DISCARD):
        return System()
    return Producer(change.name)


def explain(
    operation: Operation, row: StoredRow | None, change: Change, now_ms: int
) -> Refusal | None:
    """Why this change is refused, or None if nothing speaks against it."""
    refusal = refusal_of(operation, actor_of(operation, change), row, now_ms)
    if refusal is not None:
        return refusal
    if operation in LEASE_OPERATIONS and row is not None and row.version != change.version:
        return Refusal.STALE
    if operation in _NEEDS_TIME_AHEAD:
        # A lease that ended before the due would make the message available before it.
        earliest = max(now_ms, row.due) if operation is Operation.EXTEND and row else now_ms
        if change.to < earliest + MIN_LEASE_MS:
            return Refusal.TOO_SOON
    return None


def explain_lease(row: StoredRow | None, change: Change, request: LeaseRequest) -> Refusal | None:
    """Why this message is not leased, or None if nothing speaks against it."""
    actor, ahead_ms = Consumer(request.consumer), request.reserve_ahead_ms
    refusal = refusal_of(Operation.LEASE, actor, row, request.now_ms, reserve_ahead_ms=ahead_ms)
    if refusal is None and row is not None and row.version != change.version:
        return Refusal.STALE
    return refusal


def explain_create(
    row: StoredRow | None, change: Change, replace: bool, now_ms: int
) -> Refusal | None:
    """Why this message is not created, or None if nothing speaks against it."""
    actor = Producer(change.name)
    refusal = refusal_of(Operation.CREATE, actor, row, now_ms)
    if refusal is None or row is None or not replace:
        return refusal
    if row.life is Life.LIVE:
        return refusal_of(Operation.CANCEL, actor, row, now_ms)
    return None if row.producer_group == change.name else Refusal.NOT_OWNER


def repeated(
    operation: Operation, row: StoredRow | None, change: Change, now_ms: int, *, again: bool = False
) -> Outcome | None:
    """Done, if the same hand has made this very change before.

    A mark is believed for the topic's dedupe time, or for as long as it is there if the caller says that an
    earlier attempt was not answered.
    """
    if row is None or (row.life is Life.GONE and row.ts <= now_ms and not again):
        return None
    if operation is Operation.CANCEL:
        cancelled = row.life is Life.GONE and row.lock_consumer is None
        same = cancelled and row.producer_group == change.name
    else:
        same = operation in LEASE_OPERATIONS and _made_by(operation, row, change, now_ms)
    if not same:
        return None
    at = row.ts if operation in _NEEDS_TIME_AHEAD and row.life is Life.LIVE else 0
    return Outcome(id=change.id, version=row.version, at=at)


def _made_by(operation: Operation, row: StoredRow, change: Change, now_ms: int) -> bool:
    """Whether the row is what this change of a lease makes, and names its session as the last hand.

    Only one change can have made the next version. An extension has to be of the very lease, since a later
    reservation of the same instance looks the same.
    """
    if row.version != change.version + 1:
        return False
    if operation is Operation.ACK:
        return row.life is Life.GONE and row.lock_consumer == change.name
    if operation is Operation.EXTEND:
        held = row.life is Life.LIVE and row.lock_consumer == change.name and row.ts > now_ms
        return held and bool(change.session) and row.lock_session == change.session
    instance = instance_of(change.session)
    if row.lock_consumer is not None or not instance or instance_of(row.lock_session) != instance:
        return False
    dead, live = row.life is Life.DEAD, row.life is Life.LIVE
    return dead if operation is Operation.BURY else live or (dead and operation is Operation.RETRY)


def _may_be_made_by(operation: Operation, row: StoredRow, change: Change) -> bool:
    """Whether the row looks like what this change makes, and the change does not name its session.

    Of a lease that was granted elsewhere only the instance is known: `instance/`.
    """
    if operation is Operation.ACK:
        return False  # a mark names its consumer
    instance = instance_of(change.session)
    if operation is Operation.EXTEND:
        is_alike = row.life is Life.LIVE and row.lock_consumer == change.name
        is_partly_known = change.session.endswith("/") and instance == instance_of(row.lock_session)
        return is_alike and (not instance or is_partly_known)
    made = {Operation.BURY: (Life.DEAD,), Operation.RETRY: (Life.LIVE, Life.DEAD)}
    lives = made.get(operation, (Life.LIVE,))
    return not instance and row.life in lives and row.lock_consumer is None


def is_undecided(
    operation: Operation, row: StoredRow | None, change: Change, refusal: Refusal | None
) -> bool:
    """Whether a row leaves open if an earlier, unanswered attempt was done, or will be.

    The row of a lease that still has its version may yet be changed by that attempt, whose clock was earlier;
    one that has moved on by more than one version does not tell who made the first. One that has moved on by
    one version tells it by its session, if the change names one.
    """
    if operation in LEASE_OPERATIONS:
        if row is None or row.version > change.version + 1:
            return True
        if row.version == change.version + 1:
            return _may_be_made_by(operation, row, change)
        return row.version == change.version and row.lock_consumer == change.name
    if operation is Operation.CANCEL:
        return refusal is Refusal.NOT_FOUND
    overtaken = (Refusal.NOT_FOUND, Refusal.LEASED, Refusal.DELETED, Refusal.DEAD)
    return operation is Operation.RESCHEDULE and refusal in overtaken


def unknown(message_id: str) -> Outcome:
    """An earlier attempt was not answered, and the row does not tell."""
    return Outcome(id=message_id, unknown=True)


def refused(message_id: str, refusal: Refusal | None) -> Outcome:
    """A refusal; without a reason the message was changed by another at this very moment."""
    if refusal is None:
        detail = "the message was changed by another at the same moment; try again"
        return Outcome(id=message_id, refusal=Refusal.STALE, detail=detail)
    return Outcome(id=message_id, refusal=refusal)
