"""Leases and fencing across failovers, judged on a recorded history. Pure: no clock, no I/O.

The director records the state of the standby: `behind` when it begins to miss commits, `lost` when the
primary is about to be lost, `promoted` when the standby has taken over. So each failover has an epoch before
it, one after it, and a moment up to which the standby surely has everything. Events in between, and calls
that end in another epoch than they began in, belong to neither.

A standby that was not behind keeps all answers, and all rules of `brokers` hold. Of one that was behind the
answers that it lacks may be gone, all of them together (45): no version is given out again, no lease is
granted beside a live one, and nothing is left that was begun after an answer that is gone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tests.torture.brokers.judge import (
    EARLY,
    OVERLAP,
    STALE_SUCCESS,
    VERSION_TWICE,
    lives_at,
)
from tests.torture.brokers.judge import judge as judge_messages
from tests.torture.brokers.model import (
    CREATING,
    SETTLING,
    Call,
    Delivery,
    History,
    Message,
    stage_of,
)
from tests.torture.history import Event, Violation

GIVEN_AGAIN = "45 version given out again after a failover"
WENT_BACK = "45 version went back over a failover"
BESIDE_LIVE = "3 lease beside a live one after a failover"
STALE_AFTER = "2 stale holder was served after a failover"
ACK_UNDONE = "7 acknowledged end undone by a failover"
CREATE_UNDONE = "6 acknowledged message undone by a failover"
UNDONE_IN_PART = "45 undone in part by a failover"

_WHATEVER_IS_UNDONE = frozenset({EARLY, OVERLAP, STALE_SUCCESS, VERSION_TWICE})
"""The rules of `brokers` that hold also if the standby lacks something."""


@dataclass(frozen=True, slots=True)
class Failover:
    """A primary was lost, and its standby took over."""

    since_ms: float
    """The old epoch begins."""
    kept_ms: float
    """All that was answered before is on the standby."""
    lost_ms: float
    """The old epoch ends: the primary answers nothing any more."""
    promoted_ms: float
    """The new epoch begins."""

    @property
    def lacks(self) -> bool:
        return self.kept_ms < self.lost_ms

    def is_before(self, call: Call) -> bool:
        """Whether a call was made in the old epoch."""
        return call.done and call.began_ms >= self.since_ms and call.ended_ms <= self.lost_ms

    def is_after(self, call: Call) -> bool:
        """Whether a call was made in the new epoch, or later."""
        return call.done and call.began_ms >= self.promoted_ms


def judge(events: Sequence[Event]) -> list[Violation]:
    """Returns every violation in a history, in the order of the rules."""
    history = History(events)
    failovers = list(_failovers(history, events))
    found = judge_messages(events)
    if any(each.lacks for each in failovers):
        found = [each for each in found if each.rule in _WHATEVER_IS_UNDONE]
    for failover in failovers:
        for message in history.messages.values():
            for rule in (_versions, _leases, _fencing, _undone):
                found += [
                    Violation(name, f"{message}: {why}")
                    for name, why in rule(history, message, failover)
                ]
        found += [Violation(UNDONE_IN_PART, why) for why in _undone_in_part(history, failover)]
    return sorted(found, key=lambda violation: (int(violation.rule.split()[0]), violation.rule))


def _failovers(history: History, events: Sequence[Event]) -> Iterator[Failover]:
    since_ms, kept_ms, lost_ms = -math.inf, math.inf, math.inf
    for event in events:
        if event.kind != "standby":
            continue
        at_ms = history.at_ms(event)
        match event["state"]:
            case "behind":
                kept_ms = at_ms
            case "lost":
                lost_ms = at_ms
            case "promoted":
                yield Failover(since_ms, min(kept_ms, lost_ms), lost_ms, at_ms)
                since_ms, kept_ms, lost_ms = at_ms, math.inf, math.inf


Found = Iterator[tuple[str, str]]


# Versions and leases: they hold whatever the standby lacks


class _Given(NamedTuple):
    """A version in the answer to a caller."""

    version: int
    began_ms: float
    told_ms: float
    by: str
    delivery: str = ""
    """The name of the delivery, if it was one."""


def _given_out(message: Message) -> Iterator[_Given]:
    for delivery in message.deliveries:
        for view in delivery.views:
            told_ms = view.since_ms
            yield _Given(view.version, told_ms, told_ms, str(delivery), delivery.name)
    for call in message.calls:
        if call.done and call.version is not None:
            yield _Given(call.version, call.began_ms, call.ended_ms, str(call))


def _versions(history: History, message: Message, failover: Failover) -> Found:
    """45: a version that is given out after a failover is greater than all before it.

    A repeated deletion answers the version of the first. It ends a life, and fences nothing.
    """
    given = sorted(_given_out(message))
    before = [each for each in given if each.told_ms <= failover.lost_ms]
    if not before:
        return
    newest = before[-1]
    ends = {str(call) for call in message.of("cancel", "discard")}
    for each in given:
        if each.began_ms < failover.promoted_ms or each.by in ends:
            continue
        same = [one for one in before if one.version == each.version]
        is_own = any(one.delivery == each.delivery != "" for one in same)
        if each.version <= newest.version and not is_own:
            why = f"v{newest.version} by {newest.by}, then v{each.version} by {each.by}"
            yield (GIVEN_AGAIN if same else WENT_BACK), why


def _leases(history: History, message: Message, failover: Failover) -> Found:
    """3: while a lease of before the failover lives, nobody else is granted one."""
    for older in message.deliveries:
        if older.at_ms > failover.lost_ms:
            continue
        for newer in message.deliveries:
            if newer.at_ms < failover.promoted_ms or _is_same_holder(older, newer):
                continue
            if history.dropped(message.topic, older.at_ms, newer.at_ms):
                continue
            if lives_at(history, message, older, newer.at_ms):
                yield BESIDE_LIVE, f"{older}, then {newer}"


def _is_same_holder(one: Delivery, two: Delivery) -> bool:
    return one.name == two.name or one.consumer == two.consumer


def _fencing(history: History, message: Message, failover: Failover) -> Found:
    """2: a holder of before the failover is refused once another holds the message."""
    for delivery, call in message.settlings(*SETTLING, "extend"):
        if delivery.at_ms > failover.lost_ms or not failover.is_after(call):
            continue
        for other in message.deliveries:
            is_granted = failover.promoted_ms <= other.at_ms < call.began_ms
            if is_granted and other.name != delivery.name:
                yield STALE_AFTER, f"{call} of {delivery}, after {other}"


# Answers: they hold up to the moment at which the standby began to miss commits


def _ends(message: Message, failover: Failover) -> Iterator[Call]:
    """Yields the calls that deleted the message for good, of before the failover."""
    calls = [*message.of("cancel", "discard"), *(call for _, call in message.settlings("ack"))]
    for call in calls:
        if failover.is_before(call) and not message.made_anew(call.began_ms, math.inf):
            yield call


def _is_back(message: Message, end: Call, failover: Failover) -> str:
    """How a message that had ended shows after a failover; empty if it does not."""
    again = [call for call in message.of(*CREATING) if call.overlaps(end.ended_ms, math.inf)]
    if again:
        return ""
    for delivery in message.deliveries:
        if delivery.at_ms >= failover.promoted_ms:
            return str(delivery)
    row = message.row
    return "" if row is None or row.state == "gone" else f"row {row.state} v{row.version}"


def _is_missing(history: History, message: Message, failover: Failover) -> bool:
    """Whether the store knows nothing of a message at the end, and nobody saw it after the failover."""
    if stage_of(message.topic) not in history.drained or message.row is not None:
        return False
    if history.dropped(message.topic, -math.inf, math.inf):
        return False
    return all(delivery.at_ms < failover.promoted_ms for delivery in message.deliveries)


def _undone(history: History, message: Message, failover: Failover) -> Found:
    """6 and 7: an answer that the standby has is not undone."""
    for call in _ends(message, failover):
        if call.ended_ms <= failover.kept_ms and (back := _is_back(message, call, failover)):
            yield ACK_UNDONE, f"{call}, then {back}"
    for call in message.of(*CREATING):
        is_kept = failover.is_before(call) and call.ended_ms <= failover.kept_ms
        if is_kept and _is_missing(history, message, failover):
            yield CREATE_UNDONE, f"{call}; there is no row"


def _undone_in_part(history: History, failover: Failover) -> Iterator[str]:
    """45: if an answer is undone, so is everything that was begun after it in the old epoch."""
    undone: list[tuple[Call, Message]] = []
    kept: list[tuple[Call, Message]] = []
    for message in history.messages.values():
        for call in _ends(message, failover):
            back = _is_back(message, call, failover)
            if back:
                undone.append((call, message))
            elif message.row is not None and message.row.state == "gone":
                kept.append((call, message))
        created = message.of(*CREATING)
        if any(call.overlaps(failover.lost_ms, math.inf) for call in created):
            continue
        for call in created:
            if failover.is_before(call):
                missing = _is_missing(history, message, failover)
                (undone if missing else kept).append((call, message))
    if not undone or not kept:
        return
    first, lost = min(undone, key=lambda each: each[0].ended_ms)
    last, there = max(kept, key=lambda each: each[0].began_ms)
    if last.began_ms > first.ended_ms:
        yield f"{lost}: {first} is gone, and {there}: {last} is not"
