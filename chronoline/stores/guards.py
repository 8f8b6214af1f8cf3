"""Guards of changes: what a stored row allows, why a change is refused, and which one was made before."""

from __future__ import annotations

from collections.abc import Mapping

from chronoline.core.change import DELETIONS, EXTENSIONS, LEASE_OPERATIONS, Change
from chronoline.core.limits import MIN_LEASE_MS, SETTLED_AFTER_MS
from chronoline.core.message import NewMessage
from chronoline.core.outcome import Outcome, Refusal
from chronoline.core.permissions import (
    TRAITS,
    Actor,
    Consumer,
    Effect,
    NewTime,
    Operation,
    Producer,
    Role,
    System,
    changes_with,
    refusal_of,
)
from chronoline.core.session import instance_of
from chronoline.core.status import Life
from chronoline.core.topic import Topic
from chronoline.stores.contract import StoredRow
from chronoline.stores.engine import ChangedRows, LeaseRequest

NEEDS_TIME_AHEAD = changes_with(NewTime.AHEAD)
SETS_TIME = NEEDS_TIME_AHEAD | changes_with(NewTime.ANY)
"""Changes that put the message, or the end of its lease, at a time of its own."""
_MOVES = changes_with(Effect.MOVES) | changes_with(Effect.RETRIES)
_OF_OWNERS = changes_with(Role.OWNER)
_LIVES: Mapping[Effect, tuple[Life, ...]] = {
    Effect.EXTENDS: (Life.LIVE,),
    Effect.MOVES: (Life.LIVE,),
    Effect.RETRIES: (Life.LIVE, Life.DEAD),
    Effect.BURIES: (Life.DEAD,),
    Effect.DELETES: (Life.GONE,),
}
"""The kinds of rows that a change can leave."""


def settled(now_ms: int) -> int:
    """Versions below this can be forgotten, once the topic's floor stands above them.

    Every create that is under way begins above them, although its clock may be behind and it may have waited.
    Later ones begin above the floor, whatever their clock says. A row whose version is not settled, or lies
    above the floor, leaves a mark.
    """
    return now_ms - SETTLED_AFTER_MS


def taken_until(topic: Topic, now_ms: int) -> int:
    """Until when the mark of a message that is deleted now keeps its id taken.

    Without a dedupe time every clock has passed it: the mark only keeps the version.
    """
    dedupe_ms = topic.settings.dedupe_ms
    return now_ms + dedupe_ms if dedupe_ms else passed_by_all(now_ms)


def passed_by_all(now_ms: int) -> int:
    """A moment that every clock has passed."""
    return max(0, settled(now_ms))


def may_remove(topic: Topic, change: Change, now_ms: int) -> bool:
    """Whether a deletion needs no mark, if the topic's floor has reached the row's version.

    A holder names the version, so it is known beforehand; the others find it in the row.
    """
    if change.operation not in DELETIONS or topic.settings.dedupe_ms:
        return False
    return change.operation not in LEASE_OPERATIONS or change.version < settled(now_ms)


def dues_of(changes: ChangedRows, now_ms: int) -> dict[str, int]:
    """The new times of messages for which a sleeper may have to wake, by id."""
    operation = changes[0][1].operation
    if operation in EXTENSIONS:
        return {change.id: change.to_ms for _, change in changes if _shortens(change)}
    if operation not in _MOVES:
        return {}
    if operation in SETS_TIME:
        return {change.id: change.to_ms for _, change in changes}
    # The write finds the new time in the row: a sleeper looks now.
    return dict.fromkeys((change.id for _, change in changes), now_ms)


def _shortens(change: Change) -> bool:
    """Whether an extension ends before the lease does, as its holder knows it."""
    until: object = change.until  # nothing checked it
    return isinstance(until, int) and change.to_ms < until


def explain(row: StoredRow | None, change: Change, now_ms: int) -> Refusal | None:
    """Why this change is refused, or None if it is allowed."""
    operation = change.operation
    refusal = refusal_of(operation, _actor_of(change), row, now_ms)
    if refusal is not None:
        return refusal
    # An owner may name the version that was looked at; a holder always names that of the lease.
    names_version = operation in LEASE_OPERATIONS or change.version != 0
    if names_version and row is not None and row.version != change.version:
        return Refusal.STALE
    if operation is Operation.RESCHEDULE and row is not None:
        ends = row.expires if change.expires is None else change.expires
        if ends is not None and ends <= max(change.to_ms, now_ms):
            return Refusal.EXPIRED
    if operation in NEEDS_TIME_AHEAD:
        # A lease that ended before the due would make the message available before it.
        earliest = max(now_ms, row.due) if operation in EXTENSIONS and row else now_ms
        if change.to_ms < earliest + MIN_LEASE_MS:
            return Refusal.TOO_SOON
    return None


def _actor_of(change: Change) -> Actor:
    """On whose behalf a change is made."""
    if change.operation in LEASE_OPERATIONS:
        return Consumer(change.name)
    is_of_owner = change.operation in _OF_OWNERS or bool(change.name)  # else of any dead letter
    return Producer(change.name) if is_of_owner else System()


def explain_lease(row: StoredRow | None, version: int, request: LeaseRequest) -> Refusal | None:
    """Why this version of a message is not leased, or None if it is allowed."""
    actor, ahead_ms = Consumer(request.consumer), request.reserve_ahead_ms
    refusal = refusal_of(Operation.LEASE, actor, row, request.now_ms, reserve_ahead_ms=ahead_ms)
    if refusal is None and row is not None and row.version != version:
        return Refusal.STALE
    return refusal


def explain_create(
    row: StoredRow | None, new: NewMessage, replace: bool, now_ms: int
) -> Refusal | None:
    """Why this message is not created, or None if it is allowed."""
    actor = Producer(new.producer_group)
    refusal = refusal_of(Operation.CREATE, actor, row, now_ms)
    if refusal is None or row is None or not replace:
        return refusal
    if row.life is Life.LIVE:
        return refusal_of(Operation.CANCEL, actor, row, now_ms)
    if row.life is Life.GONE and has_digest_of(row, new):
        return refusal
    return None if row.producer_group == new.producer_group else Refusal.NOT_OWNER


def has_digest_of(row: StoredRow | None, new: NewMessage) -> bool:
    """Whether a row was created with the digest of this message."""
    return row is not None and row.digest is not None and row.digest == new.digest


def judge(row: StoredRow | None, change: Change, now_ms: int, *, again: bool) -> Outcome:
    """The outcome of a change that the engine did not make, by the row that it met.

    `again` says that an earlier attempt was not answered.
    """
    if _is_repeated(row, change, now_ms, again=again):
        assert row is not None
        at = row.ts if change.operation in NEEDS_TIME_AHEAD and row.life is Life.LIVE else 0
        return Outcome(id=change.id, version=row.version, at=at)
    refusal = explain(row, change, now_ms)
    if again and _is_undecided(row, change, refusal):
        return Outcome(id=change.id, unknown=True)
    return refused(change.id, refusal)


def refused(message_id: str, refusal: Refusal | None) -> Outcome:
    """A refusal; without a reason another changed the message at this very moment."""
    if refusal is None:
        detail = "the message was changed by another at the same moment; try again"
        return Outcome(id=message_id, refusal=Refusal.STALE, detail=detail)
    return Outcome(id=message_id, refusal=refusal)


def _is_repeated(row: StoredRow | None, change: Change, now_ms: int, *, again: bool) -> bool:
    """Whether the same hand has made this very change before.

    A mark counts for the topic's dedupe time; with `again` until it is purged. An extension leaves the lease
    with its holder, who may ask for another with an old version: it is a repetition with `again` alone.
    """
    if row is None or (row.life is Life.GONE and row.ts <= now_ms and not again):
        return False
    if change.operation in _OF_OWNERS & DELETIONS:
        deleted = row.life is Life.GONE and row.lock_consumer is None
        return deleted and row.producer_group == change.name
    if change.operation in EXTENSIONS and not again:
        return False
    return change.operation in LEASE_OPERATIONS and _is_made_by(row, change, now_ms)


def _is_made_by(row: StoredRow, change: Change, now_ms: int) -> bool:
    """Whether the row is the result of this change of a lease, and names its session as the last hand.

    Only one change can have made the next version. An extension has to be of the very lease, since a later
    reservation of the same instance looks the same.
    """
    effect = TRAITS[change.operation].effect
    if row.version != change.version + 1 or row.life not in _LIVES[effect]:
        return False
    if effect is Effect.DELETES:
        return row.lock_consumer == change.name
    if effect is Effect.EXTENDS:
        held = row.lock_consumer == change.name and row.ts > now_ms
        return held and bool(change.session) and row.lock_session == change.session
    instance = instance_of(change.session)
    is_same = bool(instance) and instance_of(row.lock_session) == instance
    return row.lock_consumer is None and is_same


def _may_be_made_by(row: StoredRow, change: Change) -> bool:
    """Whether the row looks like the result of this change, which does not name its session.

    Of a lease that was granted elsewhere only the instance is known: `instance/`.
    """
    effect = TRAITS[change.operation].effect
    if effect is Effect.DELETES:
        return False  # a mark names its consumer
    if row.life not in _LIVES[effect]:
        return False
    instance = instance_of(change.session)
    if effect is Effect.EXTENDS:
        is_alike = row.lock_consumer == change.name
        is_partly_known = change.session.endswith("/") and instance == instance_of(row.lock_session)
        return is_alike and (not instance or is_partly_known)
    return not instance and row.lock_consumer is None


def _is_undecided(row: StoredRow | None, change: Change, refusal: Refusal | None) -> bool:
    """Whether a row leaves open if an earlier, unanswered attempt was done, or will be.

    The row of a lease that still has its version may yet be changed by that attempt, whose clock was earlier.
    A row that is more than one version ahead does not say who made the first of them. A row that is one
    version ahead says it by its session, if the change names one.
    """
    operation = change.operation
    if operation in LEASE_OPERATIONS:
        if row is None or row.version > change.version + 1:
            return True
        if row.version == change.version + 1:
            return _may_be_made_by(row, change)
        return row.version == change.version and row.lock_consumer == change.name
    if operation in _OF_OWNERS & DELETIONS:
        return refusal is Refusal.NOT_FOUND
    overtaken = {
        Refusal.NOT_FOUND,
        Refusal.LEASED,
        Refusal.DELETED,
        Refusal.DEAD,
        Refusal.EXPIRED,  # the earlier attempt may have come in time
    }
    return operation in _OF_OWNERS and refusal in overtaken
