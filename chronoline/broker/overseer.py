"""The overseer: what a broker knows of the cluster, and where it sends clients.

Each broker watches the entries of all brokers and of their consumers in the coordination service. From these
it answers which brokers a client should try, in order (`core.selector`), and suggests to its own clients to
move when that would help and the reason lasts. A broker that is alone answers with itself.

A client that was sent to a broker counts there until the coordination service shows it, or for 10 s:
clients that ask at the same moment would all get the same answer otherwise. A broker whose entry has vanished
is shown as inactive for 10 minutes, unless it said that it was stopping.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from chronoline.broker.degradation import NOTICES, OF_OTHERS, DegradationType
from chronoline.coordination.contract import Coordination, KeyWatch, View
from chronoline.coordination.membership import (
    BROKERS,
    CONSUMERS,
    BrokerRecord,
    ConsumerRecord,
    brokers_of,
    consumers_of,
)
from chronoline.core.selector import (
    BrokerHealth,
    BrokerState,
    ClientKind,
    MoveReason,
    SuggestedMove,
    Suggestion,
    preferred_brokers,
    wanted_move,
)
from chronoline.runtime.alarm import Alarm
from chronoline.runtime.service import AsyncService
from chronoline.runtime.tasks import supervise

_SENT_MS = 10_000
"""How long a client counts at the broker to which it was sent, unless its entry comes before."""
_INACTIVE_MS = 600_000
"""How long a broker that has vanished is shown."""
_LOOK_EVERY_S = 1.0
_LOOK_WHEN_DEGRADED_S = 0.25
"""The interval between two looks for moves: a reason that lasts has no event."""
_LOAD_OVER_S = 5.0
_CARRIER = "carrier"
_STOPPING = DegradationType.STOPPING.value
_COORDINATION = DegradationType.COORDINATION.value
_ANY_TOPIC = ""
"""Producers have no topic of their own: they move for the broker's sake alone."""


@dataclass(frozen=True, slots=True)
class KnownBroker:
    """A broker of the cluster, as this one sees it."""

    record: BrokerRecord
    health: BrokerHealth


@dataclass(frozen=True, slots=True)
class _Sent:
    """A client that was sent to a broker."""

    broker: str
    topic: str
    kind: ClientKind
    until_ms: int


class ClientPlacement:
    """The state of the overseer, and its decisions. Time is an argument."""

    def __init__(self, me: str) -> None:
        self._me = me
        self._brokers: dict[str, BrokerRecord] = {}
        self._vanished: dict[str, tuple[BrokerRecord, int]] = {}
        """Brokers that are not there any more, and since when."""
        self._seen: Mapping[int, Mapping[str, ConsumerRecord]] | None = None
        self._counted: dict[str, Counter[str]] = {}
        """The number of consumers by broker and topic."""
        self._sent: list[_Sent] = []
        self._suggestions: dict[tuple[str, ClientKind], Suggestion] = {}

    def saw_brokers(self, brokers: Mapping[str, BrokerRecord], now_ms: int) -> None:
        for name, record in self._brokers.items():
            if name not in brokers and _STOPPING not in record.problems:
                self._vanished[name] = (record, now_ms)
        self._brokers = dict(brokers)
        self._vanished = {
            name: (record, since_ms)
            for name, (record, since_ms) in self._vanished.items()
            if name not in brokers and _is_recent(since_ms, now_ms)
        }

    def saw_consumers(self, consumers: Mapping[int, Mapping[str, ConsumerRecord]]) -> None:
        """Clients that were sent, and are shown now, count once. The same object is counted once."""
        if consumers is self._seen:
            return
        self._seen = consumers
        counted: dict[str, Counter[str]] = {}
        for uid, by_name in consumers.items():
            for record in by_name.values():
                counted.setdefault(record.broker, Counter())[str(uid)] += 1
        for broker, topics in counted.items():
            before = self._counted.get(broker, Counter())
            for topic, count in topics.items():
                self._arrived(broker, topic, count - before[topic])
        self._counted = counted

    def _arrived(self, broker: str, topic: str, clients: int) -> None:
        for sent in list(self._sent):
            wanted = (broker, topic, ClientKind.CONSUMER)
            if clients > 0 and (sent.broker, sent.topic, sent.kind) == wanted:
                self._sent.remove(sent)
                clients -= 1

    def known(self, now_ms: int) -> list[KnownBroker]:
        """All brokers, this one first; those that vanished a while ago last."""
        there = sorted(self._brokers.values(), key=lambda each: (each.name != self._me, each.name))
        gone = [
            KnownBroker(record, BrokerHealth.INACTIVE)
            for _, (record, since_ms) in sorted(self._vanished.items())
            if _is_recent(since_ms, now_ms)
        ]
        return [KnownBroker(each, _health_of(each)) for each in there] + gone

    @property
    def others(self) -> list[str]:
        """The addresses of the other brokers."""
        return [each.address for name, each in sorted(self._brokers.items()) if name != self._me]

    def prefer(
        self, topic: str, kind: ClientKind, rack: str, now_ms: int, *, only_look: bool = False
    ) -> list[KnownBroker]:
        """The brokers that a client should try, in order.

        It counts at the first one, unless it only looks.
        """
        states = self._states(now_ms)
        names = preferred_brokers(topic, states.values(), kind=kind, rack=rack)
        if names and not only_look:
            self._sent.append(_Sent(names[0], topic, kind, now_ms + _SENT_MS))
        return [KnownBroker(self._brokers[name], states[name].health) for name in names]

    def _states(self, now_ms: int) -> dict[str, BrokerState]:
        """The brokers that take messages, with the clients that are on their way."""
        self._sent = [each for each in self._sent if 0 <= each.until_ms - now_ms <= _SENT_MS]
        states = {
            name: BrokerState(
                broker=name,
                consumers=self._counted.get(name, {}),
                load=record.load.core_percent / 100,
                health=_fitness_of(record),
                rack=record.rack,
            )
            for name, record in self._brokers.items()
            if _CARRIER in record.roles or not record.roles
        }
        for sent in self._sent:
            if sent.broker in states:
                states[sent.broker] = states[sent.broker].with_clients(sent.kind, sent.topic, 1)
        return states

    def moves(
        self, consumers: Mapping[str, int], producers: int, now_ms: int
    ) -> list[SuggestedMove]:
        """The moves to suggest now to the streams of this broker: consumers by topic, and producers."""
        states = self._states(now_ms)
        if self._me in states:
            states[self._me] = _with_streams(states[self._me], consumers, producers)
        clients = [*((each, ClientKind.CONSUMER) for each in consumers)]
        clients.append((_ANY_TOPIC, ClientKind.PRODUCER))
        self._suggestions = {
            key: state for key, state in self._suggestions.items() if key in clients
        }
        found = (self._move(topic, kind, states, now_ms) for topic, kind in clients)
        return [each for each in found if each is not None]

    def _move(
        self, topic: str, kind: ClientKind, states: Mapping[str, BrokerState], now_ms: int
    ) -> SuggestedMove | None:
        wanted = wanted_move(self._me, topic, list(states.values()), kind=kind)
        if wanted is not None and kind is ClientKind.PRODUCER:
            wanted = wanted if self._hinders_producers else None
        before = self._suggestions.get((topic, kind), Suggestion())
        self._suggestions[topic, kind], move = before.next(wanted, now_ms)
        if move is not None:
            until_ms = now_ms + _SENT_MS
            self._sent += [_Sent(move.to, topic, kind, until_ms)] * move.clients
        return move

    @property
    def _hinders_producers(self) -> bool:
        """Whether this broker is degraded for producers, too: they need no coordination service."""
        problems = self._brokers[self._me].problems
        return any(each not in NOTICES and each != _COORDINATION for each in problems)

    def address_of(self, broker: str) -> str:
        record = self._brokers.get(broker)
        return "" if record is None else record.address


def _is_recent(since_ms: int, now_ms: int) -> bool:
    """Whether a broker that has vanished at this moment is still shown."""
    return 0 <= now_ms - since_ms < _INACTIVE_MS


def _with_streams(state: BrokerState, consumers: Mapping[str, int], producers: int) -> BrokerState:
    """A broker knows its own streams before the coordination service shows them, which also shows pollers."""
    counted = {each: max(count, state.consumers.get(each, 0)) for each, count in consumers.items()}
    with_mine = replace(state, consumers={**state.consumers, **counted})
    return with_mine.with_clients(ClientKind.PRODUCER, _ANY_TOPIC, producers)


def _health_of(record: BrokerRecord) -> BrokerHealth:
    """Its own state, for people: what it has noticed of others is not its own."""
    is_degraded = any(problem not in OF_OTHERS for problem in record.problems)
    return BrokerHealth.DEGRADED if is_degraded else BrokerHealth.HEALTHY


def _fitness_of(record: BrokerRecord) -> BrokerHealth:
    """Its health for the selector: a notice, such as a peer that vanished, is no reason to avoid a broker."""
    hinders = any(each not in NOTICES for each in record.problems)
    return BrokerHealth.DEGRADED if hinders else BrokerHealth.HEALTHY


@dataclass(frozen=True, slots=True)
class MoveNotice:
    """A suggestion to some clients of this broker."""

    move: SuggestedMove
    address: str

    @property
    def message(self) -> str:
        """The reason, for people."""
        words = {
            MoveReason.DEGRADED: "this broker is degraded",
            MoveReason.SPREAD: "another broker serves the topic, and has room",
            MoveReason.FULL: "this broker has many clients of the topic",
            MoveReason.LOAD: "this broker is loaded more than another",
        }
        return words[self.move.reason]


class LocalClients:
    """The clients of this broker, as the overseer sees them. The gRPC server fills it in."""

    def consumers(self) -> dict[str, int]:
        """The consumers here that can move, by the uid of their first topic. The others follow that one."""
        return {}

    def producers(self) -> int:
        return 0

    def suggest(self, notice: MoveNotice) -> None:
        """Suggests a move to some of them."""

    def brokers_changed(self, others: Sequence[str]) -> None:
        """Tells all of them the addresses of the other brokers."""


class Overseer(AsyncService):
    """The overseer of one broker, from `start` to `stop`. Owned by the event loop."""

    def __init__(
        self,
        coordination: Coordination,
        own: Callable[[], BrokerRecord],
        failed: Callable[[str, str], None],
        *,
        takes_part: Callable[[], bool] = lambda: True,
    ) -> None:
        """`own` is the entry of this broker as it should be; `failed` counts failures of its tasks.

        While this broker does not take part in the cluster, the others are not shown to its clients.
        """
        self._coordination = coordination
        self._own = own
        self._failed = failed
        self._takes_part = takes_part
        self._placement = ClientPlacement(own().name)
        self._brokers: KeyWatch | None = None
        self._consumers: KeyWatch | None = None
        self._seen_view: View | None = None
        self._seen_consumers: Mapping[int, Mapping[str, ConsumerRecord]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._told: list[str] = []
        self._to_look = Alarm()
        self.clients = LocalClients()

    @property
    def others(self) -> list[str]:
        """The addresses of the other brokers."""
        return self._placement.others

    @property
    def is_current(self) -> bool:
        """Whether the coordination service shows every change."""
        return self._brokers is not None and self._brokers.view.is_current

    @property
    def consumers(self) -> Mapping[int, Mapping[str, ConsumerRecord]]:
        """The consumers of all brokers, by topic uid and name. The same object until they change."""
        view = None if self._consumers is None else self._consumers.view
        if view is not self._seen_view:
            self._seen_view = view
            self._seen_consumers = {} if view is None else consumers_of(view)
        return self._seen_consumers

    def known(self) -> list[KnownBroker]:
        """All brokers, this one first."""
        self._see_brokers()
        return self._placement.known(_now_ms())

    def turn(self) -> int:
        """The number of carriers before this broker, by name: an order for work that any of them does."""
        carriers = sorted(
            each.record.name
            for each in self.known()
            if each.health is not BrokerHealth.INACTIVE and _CARRIER in each.record.roles
        )
        me = self._own().name
        return carriers.index(me) if me in carriers else 0

    def prefer(
        self, topic_uid: int, kind: ClientKind, rack: str, *, only_look: bool = False
    ) -> list[KnownBroker]:
        """The brokers that a client of a topic should try, in order. There is always one."""
        self._see_brokers()
        self._placement.saw_consumers(self.consumers)
        found = self._placement.prefer(str(topic_uid), kind, rack, _now_ms(), only_look=only_look)
        return found or [KnownBroker(self._own(), _fitness_of(self._own()))]

    async def _start(self) -> None:
        self._brokers = self._coordination.watch(BROKERS)
        self._consumers = self._coordination.watch(CONSUMERS)
        works = {"following brokers": self._follow, "looking for moves": self._look_for_moves}
        self._tasks = [supervise(name, work, self._failed) for name, work in works.items()]

    async def _stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for watch in (self._brokers, self._consumers):
            if watch is not None:
                await watch.close()

    def _see_brokers(self) -> None:
        """Its own entry counts as it should be: the service may show it later, or not at all."""
        own = self._own()
        seen: dict[str, BrokerRecord] = {}
        if self._brokers is not None and self._takes_part():
            seen = brokers_of(self._brokers.view)
        listed = {**seen, own.name: own} if own.address else seen
        self._placement.saw_brokers(listed, _now_ms())

    async def _follow(self) -> None:
        assert self._brokers is not None
        async for _ in self._brokers:
            self._see_brokers()
            if self.others != self._told:
                self._told = self.others
                self.clients.brokers_changed(self._told)

    async def _look_for_moves(self) -> None:
        while True:
            is_degraded = _fitness_of(self._own()) is BrokerHealth.DEGRADED
            await self._to_look.sleep(_LOOK_WHEN_DEGRADED_S if is_degraded else _LOOK_EVERY_S)
            for notice in self._notices():
                self.clients.suggest(notice)

    def look(self) -> None:
        """This broker's own state has changed: it looks for moves at once."""
        self._to_look.ring()

    def _notices(self) -> Iterator[MoveNotice]:
        self._see_brokers()
        self._placement.saw_consumers(self.consumers)
        consumers, producers = self.clients.consumers(), self.clients.producers()
        for move in self._placement.moves(consumers, producers, _now_ms()):
            address = self._placement.address_of(move.to)
            if address:
                yield MoveNotice(move, address)


class LoadMeter:
    """The load of this broker over the last seconds, in round figures. Time is an argument."""

    def __init__(self, now_s: float, cpu_s: float) -> None:
        self._since = (now_s, cpu_s, 0)
        self._found = (0, 0)

    def measure(self, now_s: float, cpu_s: float, messages: int) -> tuple[int, int]:
        """The messages that were changed in a second, and the part of one core in per cent."""
        before_s, cpu_before_s, messages_before = self._since
        passed_s = now_s - before_s
        if passed_s >= _LOAD_OVER_S:
            self._since = (now_s, cpu_s, messages)
            per_s = _rounded((messages - messages_before) / passed_s)
            percent = round((cpu_s - cpu_before_s) / passed_s * 10) * 10
            self._found = (per_s, percent)
        return self._found


def _rounded(figure: float) -> int:
    """Two digits are enough: each change is written."""
    digits = len(str(int(figure)))
    return int(round(figure, min(0, 2 - digits)))


def _now_ms() -> int:
    """The monotonic clock: it only measures how long something lasts."""
    return time.monotonic_ns() // 1_000_000
