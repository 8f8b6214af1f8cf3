"""Changes of all messages that a filter means: cancel, reschedule, put back, discard.

One call looks at a bounded page of messages and changes those that match, by conditional writes that name
the version that was seen: nothing that is leased is broken, and nothing that moved meanwhile is changed. The
answer says where the next call goes on. So the work can be watched, interrupted and resumed, the broker
keeps no state between two calls, and any broker can make the next one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from chronoline.broker.context import BrokerContext
from chronoline.broker.principals import Principal
from chronoline.core.change import Change
from chronoline.core.errors import InvalidInput
from chronoline.core.filters import ListPlace, MessageFilter
from chronoline.core.message import After, LeaseTime, Message
from chronoline.core.outcome import Refusal
from chronoline.core.permissions import Operation
from chronoline.core.rights import RightKind
from chronoline.core.status import Status, status_of
from chronoline.core.topic import Topic
from chronoline.runtime import audit
from chronoline.stores.browse import sweep, sweep_letters

OF_MESSAGES = frozenset({Operation.CANCEL, Operation.RESCHEDULE})
OF_LETTERS = frozenset({Operation.REDRIVE, Operation.DISCARD})
_MOVES = frozenset({Operation.RESCHEDULE, Operation.REDRIVE})
_PAGE = 1_000
"""The messages that one batch looks at. Other writers of a SQLite file wait for its write."""
_SAMPLE = 10
_TRIES = 3
"""The attempts for messages that another transaction holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkRequest:
    """One batch of a change."""

    operation: Operation
    wanted: MessageFilter
    to: LeaseTime | None = None
    """The new due."""
    dry_run: bool = False
    after: ListPlace | None = None
    limit: int = 0
    """The most messages to look at; 0 is a usual number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkAnswer:
    """The result of one batch, done or dry."""

    looked: int
    matched: int
    done: int
    refused: Mapping[str, int] = field(default_factory=dict)
    sample: Sequence[str] = ()
    next: ListPlace | None = None
    due: int | None = None


async def change_matching(
    parts: BrokerContext, principal: Principal, topic: Topic, asked: BulkRequest
) -> BulkAnswer:
    """Does one batch. Raises `Forbidden`, as `check_bulk_change` does."""
    _check(asked)
    check_bulk_change(principal, topic.name, asked.wanted)
    audit.note(topic.name, operation=asked.operation.value, **_conditions(asked))
    now_ms = parts.access.clock.now_ms()
    due = now_ms + asked.to.delay_ms if isinstance(asked.to, After) else asked.to
    most = min(asked.limit or _PAGE, parts.limits.batch)
    seen, looked, next_place = await _look(parts, topic, asked, most, now_ms)
    if asked.operation is Operation.RESCHEDULE and asked.wanted.has_times:
        # Read by time, a message that an earlier batch has moved within the range is met again.
        seen = [each for each in seen if each.due != _due(topic, each, due)]
    changes: list[Change] = []
    refused: Counter[str] = Counter()
    for message in seen:
        if _is_leased(asked.operation, message, now_ms):
            refused[Refusal.LEASED] += 1
        elif asked.operation is Operation.RESCHEDULE and _would_expire(
            message, _due(topic, message, due), now_ms
        ):
            refused[Refusal.EXPIRED] += 1
        elif asked.operation is not Operation.RESCHEDULE or message.due != _due(
            topic, message, due
        ):
            changes.append(
                Change(
                    asked.operation,
                    message.id,
                    message.producer_group,
                    message.version,
                    due or 0,
                )
            )
    done = len(seen) - refused.total() - len(changes)  # they are where they shall be
    if asked.dry_run:
        done += len(changes)
    else:
        done += await _change(parts, topic, changes, refused)
    audit.note(topic.name, items=len(seen), refused=refused.total())
    return BulkAnswer(
        looked=looked,
        matched=len(seen),
        done=done,
        refused=refused,
        sample=[each.id for each in seen[:_SAMPLE]],
        next=next_place,
        due=due,
    )


def check_bulk_change(principal: Principal, topic: str, wanted: MessageFilter) -> None:
    """Raises `Forbidden`. Without a producer group a change takes the right to administer."""
    if wanted.producer_group and not principal.may(RightKind.ADMINISTER, topic):
        principal.check(RightKind.PRODUCE, topic, wanted.producer_group)
    else:
        principal.check(RightKind.ADMINISTER, topic)


def _conditions(asked: BulkRequest) -> dict[str, Any]:
    """The conditions of a batch for the audit trail, and whether it is a dry run."""
    wanted = {name: value for name, value in asdict(asked.wanted).items() if value}
    if asked.wanted.statuses:
        wanted["statuses"] = sorted(asked.wanted.statuses)
    return wanted | ({"dry_run": True} if asked.dry_run else {})


def _check(asked: BulkRequest) -> None:
    if asked.operation in _MOVES and asked.to is None:
        raise InvalidInput("say when the messages shall be due: give a time or a delay")
    if asked.operation not in _MOVES and asked.to is not None:
        raise InvalidInput(f"a {asked.operation} has no time")
    wanted = asked.wanted
    if asked.operation in OF_LETTERS and (wanted.consumer or wanted.statuses):
        raise InvalidInput("dead letters have neither a holder nor a status")
    if asked.operation in OF_MESSAGES and wanted.reason:
        raise InvalidInput("only dead letters have a reason")


async def _look(
    parts: BrokerContext, topic: Topic, asked: BulkRequest, limit: int, now_ms: int
) -> tuple[list[Message], int, ListPlace | None]:
    if asked.operation in OF_LETTERS:
        letters = await parts.carrier.read(
            "sweep",
            topic.uid,
            lambda store: sweep_letters(
                store, topic.uid, asked.wanted, after=asked.after, limit=limit
            ),
        )
        return [each.message for each in letters.items], letters.looked, letters.next
    found = await parts.carrier.read(
        "sweep",
        topic.uid,
        lambda store: sweep(
            store, topic.uid, asked.wanted, after=asked.after, limit=limit, now_ms=now_ms
        ),
    )
    return list(found.items), found.looked, found.next


async def _change(
    parts: BrokerContext, topic: Topic, changes: Sequence[Change], refused: Counter[str]
) -> int:
    """Makes the changes; those that are refused are counted by their reason. Returns how many were made."""
    left = list(changes)
    done = 0
    for tries_left in reversed(range(_TRIES)):
        outcomes = await parts.carrier.change(topic.uid, left)
        busy = []
        for change, outcome in zip(left, outcomes, strict=True):
            if outcome.done:
                done += 1
            elif outcome.refusal is Refusal.BUSY and tries_left:
                busy.append(change)
            else:
                refused[outcome.refusal or "unknown"] += 1
        if not busy:
            break
        left = busy
    return done


def _is_leased(operation: Operation, message: Message, now_ms: int) -> bool:
    locked = message.lock_consumer is not None
    return operation in OF_MESSAGES and status_of(message.ts, locked, now_ms) is Status.PROCESSING


def _would_expire(message: Message, due: int | None, now_ms: int) -> bool:
    """Whether a message would be past its `expires` at its new due."""
    return message.expires is not None and message.expires <= max(due or 0, now_ms)


def _due(topic: Topic, message: Message, due: int | None) -> int | None:
    return None if due is None else topic.spread(message.id, due)
