"""The selector: the order in which a client should try the brokers, and when it should move to another.

Every broker with a consumer of a topic reads that topic from the store, so a topic should have few brokers,
and none of them too many of its consumers. The same holds for producers and writes. In this order:

1. brokers that serve the topic already, until each has `FILL` of its clients, the fullest first;
2. another broker, the one with the fewest topics first;
3. brokers that serve the topic, until each has `MOST`, the emptiest first;
4. the least loaded.

A client that names its rack tries the brokers of this rack first, in the order of 1 to 3, and then those of
the others. A broker with `MOST` of the topic's clients does not come first for its rack. Brokers that are
degraded come last, in the same order. As long as a broker lives, there is an answer.

Moves. A broker suggests to some of its clients to move when `wanted_move` finds a reason, and the reason has
lasted for its time (`Suggestion`): 0.5 s if the broker is degraded, 30 s if the load is uneven. Three gaps
keep suggestions from going back and forth. A topic that is spread over two brokers of one rack is joined only
if both together have less than `FILL` clients. A full broker sheds clients only to brokers that stay below
`FILL`. A loaded broker (`HIGH_LOAD`) sheds one client at a time, only if the other one stays clearly below it
(`LOAD_GAP`). Of the brokers that can take them, those of the same rack come first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

FILL = 4
"""The clients of a topic at one broker before another broker is opened for it."""
MOST = 7
"""The clients of a topic at one broker while there is a choice."""
HIGH_LOAD = 0.8
LOW_LOAD = 0.5
LOAD_GAP = 0.3
_DEGRADED_FOR_MS = 500
_UNEVEN_FOR_MS = 30_000
_REST_MS = 30_000


class ClientKind(StrEnum):
    CONSUMER = "consumer"
    PRODUCER = "producer"


class BrokerHealth(StrEnum):
    HEALTHY = "healthy"
    DEGRADED = "degraded"
    """For any reason, a clock that is not trusted included."""
    INACTIVE = "inactive"
    """Not connected. It is not selected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerState:
    """One broker, as the coordination service shows it."""

    broker: str
    consumers: Mapping[str, int] = field(default_factory=dict)
    """The number of its consumers by topic."""
    producers: Mapping[str, int] = field(default_factory=dict)
    load: float = 0.0
    """The part of its capacity that it uses; 1 is all of it."""
    health: BrokerHealth = BrokerHealth.HEALTHY
    rack: str = ""

    @property
    def topics(self) -> frozenset[str]:
        """The topics that it serves."""
        of_both = (*self.consumers.items(), *self.producers.items())
        return frozenset(topic for topic, clients in of_both if clients)

    def clients(self, kind: ClientKind) -> Mapping[str, int]:
        return self.consumers if kind is ClientKind.CONSUMER else self.producers

    @property
    def all_clients(self) -> int:
        return sum(self.consumers.values()) + sum(self.producers.values())

    def with_clients(self, kind: ClientKind, topic: str, more: int) -> BrokerState:
        """The state after some clients of a topic came, or left if there are less than 0 more."""
        clients = {**self.clients(kind), topic: self.clients(kind).get(topic, 0) + more}
        if kind is ClientKind.CONSUMER:
            return replace(self, consumers=clients)
        return replace(self, producers=clients)


def preferred_brokers(
    topic: str,
    brokers: Iterable[BrokerState],
    *,
    kind: ClientKind = ClientKind.CONSUMER,
    rack: str = "",
) -> list[str]:
    """The brokers in the order in which a client of a topic should try them.

    Without a rack of the client, those of the brokers do not matter.
    """
    active = (each for each in brokers if each.health is not BrokerHealth.INACTIVE)
    return [each.broker for each in sorted(active, key=lambda each: _rank(each, topic, kind, rack))]


def _rank(broker: BrokerState, topic: str, kind: ClientKind, rack: str) -> tuple[object, ...]:
    clients = broker.clients(kind).get(topic, 0)
    step: tuple[float, ...]
    if topic not in broker.topics:
        step = (2, len(broker.topics))
    elif clients < FILL:
        step = (1, -clients)
    elif clients < MOST:
        step = (3, clients)
    else:
        step = (4, broker.load)
    degraded = broker.health is BrokerHealth.DEGRADED
    is_full, is_foreign = clients >= MOST, bool(rack) and broker.rack != rack
    group = (is_full, is_foreign and not is_full)  # among full ones the load decides
    return degraded, group, step, is_foreign, broker.load, broker.all_clients, broker.broker


class MoveReason(StrEnum):
    DEGRADED = "degraded"
    SPREAD = "spread"
    """The topic has few clients here, and another broker of this rack that serves it has room for them."""
    FULL = "full"
    """More than `MOST` clients of the topic."""
    LOAD = "load"


@dataclass(frozen=True, slots=True, kw_only=True)
class SuggestedMove:
    """Some clients of a topic should move to another broker."""

    topic: str
    kind: ClientKind
    to: str
    clients: int
    reason: MoveReason


def wanted_move(
    me: str,
    topic: str,
    brokers: Sequence[BrokerState],
    *,
    kind: ClientKind = ClientKind.CONSUMER,
) -> SuggestedMove | None:
    """The move of clients of a topic that would help now; None if all are well where they are."""
    states = {each.broker: each for each in brokers}
    here = states.get(me)
    mine = 0 if here is None else here.clients(kind).get(topic, 0)
    healthy = [each for each in brokers if each.health is BrokerHealth.HEALTHY]
    rack = "" if here is None else here.rack
    others = (each for each in healthy if each.broker != me)
    order = preferred_brokers(topic, others, kind=kind, rack=rack)
    if here is None or not mine or not order:
        return None

    def move(to: str, clients: int, reason: MoveReason) -> SuggestedMove:
        return SuggestedMove(topic=topic, kind=kind, to=to, clients=clients, reason=reason)

    if here.health is not BrokerHealth.HEALTHY:
        return move(order[0], mine, MoveReason.DEGRADED)
    for to in order:
        there = states[to]
        if _can_join(here, there, topic, kind):
            return move(to, mine, MoveReason.SPREAD)
        if mine > MOST and (room := _room(here, there, topic, kind)):
            return move(to, min(room, mine - MOST), MoveReason.FULL)
        if here.load >= HIGH_LOAD and there.load + _weight(here) <= here.load - LOAD_GAP:
            return move(to, 1, MoveReason.LOAD)
    return None


def _weight(broker: BrokerState) -> float:
    """The load of one of its clients, on average."""
    return broker.load / max(1, broker.all_clients)


def _can_join(here: BrokerState, there: BrokerState, topic: str, kind: ClientKind) -> bool:
    """Whether the few clients here fit beside those there. The broker with fewer gives them up."""
    mine, theirs = here.clients(kind).get(topic, 0), there.clients(kind).get(topic, 0)
    is_smaller = (mine, here.broker) < (theirs, there.broker)
    stays_calm = there.load + mine * _weight(here) <= LOW_LOAD
    is_near = here.rack == there.rack  # clients of two racks would move back to their own
    return is_near and is_smaller and mine + theirs < FILL and stays_calm


def _room(here: BrokerState, there: BrokerState, topic: str, kind: ClientKind) -> int:
    """The number of clients that another broker should take from a full one."""
    room = FILL - 1 - there.clients(kind).get(topic, 0)
    while room > 0 and there.load + room * _weight(here) > LOW_LOAD:
        room -= 1
    return max(0, room)


@dataclass(frozen=True, slots=True)
class Suggestion:
    """The state of the suggestions to the clients of one topic, for `next`."""

    reason: MoveReason | None = None
    since_ms: int = 0
    """The moment since which there is this reason."""
    rests_until_ms: int = 0
    """After a suggestion the clients have time to move."""

    def next(
        self, wanted: SuggestedMove | None, now_ms: int
    ) -> tuple[Suggestion, SuggestedMove | None]:
        """The following state, and the move to suggest now, if any."""
        if wanted is None:
            return Suggestion(rests_until_ms=self.rests_until_ms), None
        continues = wanted.reason is self.reason and self.since_ms <= now_ms
        state = replace(self, reason=wanted.reason, since_ms=self.since_ms if continues else now_ms)
        is_degraded = wanted.reason is MoveReason.DEGRADED
        lasts_ms = _DEGRADED_FOR_MS if is_degraded else _UNEVEN_FOR_MS
        # A rest that is longer than all was planned before the clock was put back.
        rests = 0 < self.rests_until_ms - now_ms <= _REST_MS and not is_degraded
        if rests or now_ms - state.since_ms < lasts_ms:
            return state, None
        return Suggestion(rests_until_ms=now_ms + _REST_MS), wanted
