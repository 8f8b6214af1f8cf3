"""The invariants of a cluster, judged on a recorded history: those of `brokers`, and of several brokers.

A broker without etcd grants no leases (15), and one consumer name is served at one place (18). That every
bucket has a consumer (17) shows in the drain: a message of a forgotten range is not served (13).

A broker without its store grants no leases either (15), and keeps no messages waiting (13): within
`TAKE_OVER_MS` the others serve its consumers, or their buckets. It is cut off while nothing else is broken;
so a message that waits then, while others that came later are served, waits for that broker.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from tests.torture.brokers.judge import judge as judge_messages
from tests.torture.brokers.model import Delivery, History, Message
from tests.torture.brokers.stage import LEASE_S
from tests.torture.cluster.stage import TTL_MS
from tests.torture.history import Event, Violation

GRANTED_WITHOUT_ETCD = "15 lease granted without etcd"
GRANTED_WITHOUT_STORE = "15 lease granted without the store"
SERVED_TWICE = "18 one name served at two places"
KEPT_WAITING = "13 message kept waiting by a broker without its store"

TAKE_OVER_MS = 4_000
"""The time after a cut from the store in which other brokers take over."""
_WAIT_MS = 2_000
"""A message that waits longer, after that time, is kept waiting, if others that came later were served."""
_OVERTAKEN_BY = 2
_MOST_LATE = 3
"""One or two late messages can have a slow consumer."""
STEADY = "-main"
"""The topic whose consumers do not fail on purpose."""

_UNDER_WAY_MS = 1_000
"""The time for which a granted lease may be under way to its consumer on a busy machine."""
_SPAN_MS = 4_000
_MOST_SWITCHES = 4
"""Two processes that take a name from each other need a reconnection for each switch."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A time without etcd, or without the store: of one broker, or of all."""

    broker: int | None
    begin_ms: float
    end_ms: float


def judge(events: Sequence[Event]) -> list[Violation]:
    """Returns every violation in a history, in the order of the rules."""
    history = History(events)
    found = [
        *judge_messages(events),
        *(Violation(GRANTED_WITHOUT_ETCD, why) for why in _granted_without_etcd(history, events)),
        *(Violation(GRANTED_WITHOUT_STORE, why) for why in _granted_without_store(history, events)),
        *(Violation(KEPT_WAITING, why) for why in _kept_waiting(history, events)),
        *(Violation(SERVED_TWICE, why) for why in _served_twice(history)),
    ]
    return sorted(found, key=lambda violation: (int(violation.rule.split()[0]), violation.rule))


def _granted_without_etcd(history: History, events: Sequence[Event]) -> Iterator[str]:
    """15: a session ends within its TTL, and from then on the broker grants nothing."""
    yield from _granted(history, _cuts(history, events, "etcd"), after_ms=TTL_MS)


def _granted_without_store(history: History, events: Sequence[Event]) -> Iterator[str]:
    """15: a lease is a change of the store."""
    yield from _granted(history, _cuts(history, events, "postgres"), after_ms=0)


def _granted(history: History, cuts: Iterable[Cut], *, after_ms: float) -> Iterator[str]:
    """The leases that brokers granted when they had been cut off for a time."""
    cuts = list(cuts)
    for message in history.messages.values():
        for delivery in message.deliveries:
            for cut in cuts:
                if (
                    _is_of(history, delivery, cut)
                    and _is_granted_in(history, delivery, cut, after_ms)
                    and not _is_resumed(message, delivery)
                ):
                    yield f"{message}: {delivery}, cut from {cut.begin_ms:.0f} to {cut.end_ms:.0f}"


def _kept_waiting(history: History, events: Sequence[Event]) -> Iterator[str]:
    """13: the others serve the buckets of a broker that is cut off from its store."""
    lives = [
        _Life(came_ms, message.deliveries[0].at_ms if message.deliveries else math.inf, message)
        for message in history.messages.values()
        if message.topic.endswith(STEADY) and (came_ms := _came_ms(history, message)) is not None
    ]
    for cut in _cuts(history, events, "postgres"):
        from_ms = cut.begin_ms + TAKE_OVER_MS + _UNDER_WAY_MS
        kept = [
            life
            for life in lives
            if from_ms <= life.came_ms <= cut.end_ms - _WAIT_MS
            and life.served_ms > life.came_ms + _WAIT_MS
            and sum(life.is_overtaken_by(other) for other in lives) >= _OVERTAKEN_BY
        ]
        if len(kept) >= _MOST_LATE:
            shown = ", ".join(f"{life.message} came at {life.came_ms:.0f}" for life in kept[:3])
            yield f"{len(kept)} messages, cut from {cut.begin_ms:.0f} to {cut.end_ms:.0f}: {shown}"


class _Life(NamedTuple):
    """A message that was created and is not changed by its owner."""

    came_ms: float
    served_ms: float
    message: Message

    def is_overtaken_by(self, other: _Life) -> bool:
        """Whether the other came later, and was served while this one was kept waiting."""
        return self.came_ms < other.came_ms and other.served_ms <= self.came_ms + _WAIT_MS


def _came_ms(history: History, message: Message) -> float | None:
    """When a message could be served first; None if nothing is certain about it."""
    if len(message.calls) != 1 or message.calls[0].op != "create" or not message.calls[0].done:
        return None
    (call,) = message.calls
    if history.dropped(message.topic, call.began_ms, math.inf):
        return None
    return max(call.ended_ms, float(call.asked["due"]))


def _is_of(history: History, delivery: Delivery, cut: Cut) -> bool:
    """Whether the delivery surely came from the cut broker: a poll goes to one broker alone."""
    if cut.broker is None:
        return True
    if delivery.door == "http":
        return history.broker_of.get(delivery.process) == cut.broker
    return delivery.broker == cut.broker


def _is_resumed(message: Message, delivery: Delivery) -> bool:
    """Whether the consumer may have had this lease before: without etcd held leases go on."""
    return any(
        other.consumer == delivery.consumer and other.version < delivery.version
        for other in message.deliveries
    )


def _is_granted_in(history: History, delivery: Delivery, cut: Cut, after_ms: float) -> bool:
    """Whether its lease began in the cut, this long after its begin.

    A lease begins with its grant, or at the due time if that is later; a consumer's clock may be off.
    """
    from_ms = cut.begin_ms + after_ms + _UNDER_WAY_MS
    return from_ms < delivery.at_ms < cut.end_ms and _lease_began_ms(delivery) > from_ms


def _lease_began_ms(delivery: Delivery) -> float:
    return delivery.views[0].until_ms - LEASE_S * 1000


def _served_twice(history: History) -> Iterator[str]:
    """18: of two processes with one name, the latest is served, and the other one is disconnected."""
    served: dict[str, list[Delivery]] = defaultdict(list)
    for message in history.messages.values():
        for delivery in message.deliveries:
            if delivery.door == "grpc" and _is_granted_anew(history, message, delivery):
                served[delivery.consumer].append(delivery)
    for consumer, deliveries in served.items():
        deliveries.sort(key=_lease_began_ms)
        switches = [
            _lease_began_ms(two) for one, two in pairwise(deliveries) if one.process != two.process
        ]
        for first, last in zip(switches, switches[_MOST_SWITCHES:], strict=False):
            if last - first < _SPAN_MS:
                yield f"{consumer!r}: {_MOST_SWITCHES + 1} switches from {first:.0f} to {last:.0f}"
                break


def _is_granted_anew(history: History, message: Message, delivery: Delivery) -> bool:
    """Whether the lease was granted to this very process.

    A process that takes a name over resumes its live leases, which keep their ends. They would count as
    granted among the deliveries of the process that had the name before.
    """
    if _lease_began_ms(delivery) < history.began.get(delivery.process, 0):
        return False
    return not any(
        other.consumer == delivery.consumer
        and other.process != delivery.process
        and other.version <= delivery.version
        for other in message.deliveries
    )


def _cuts(history: History, events: Sequence[Event], part: str) -> Iterator[Cut]:
    """Yields the times without a part."""
    begun: dict[int | None, float] = {}
    for event in events:
        if event.kind != "cut" or event["part"] != part:
            continue
        if event["is_cut"]:
            begun[event["broker"]] = history.at_ms(event)
        elif event["broker"] in begun:
            yield Cut(event["broker"], begun.pop(event["broker"]), history.at_ms(event))
    for broker, begin_ms in begun.items():
        yield Cut(broker, begin_ms, math.inf)
