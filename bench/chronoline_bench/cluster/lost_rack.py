"""A rack is lost: how late its messages are, and what backups cost before. Simulated on the memory store.

`python -m chronoline_bench.cluster.lost_rack` prints Markdown, as docs/design/placement.md has it. Two racks
of two consumers share a topic; rack B is lost in the middle. Consumers handle a message in no time, and calls
of the store take none: the figures show the rules, and not a machine. The seed is fixed.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from chronoline.core.agenda import Agenda
from chronoline.core.dealer import NO_SHARE, Dealer
from chronoline.core.delivery import Delivery, Reserve
from chronoline.core.generation import NO_MEMBERS, TopicMember, next_generation, window_at
from chronoline.core.message import LeasedMessage, NewMessage
from chronoline.core.session import Session
from chronoline.core.topic import TopicSettings
from chronoline.stores.contract import Store
from chronoline.stores.factory import open_store

RATES = (1, 10, 100, 1_000)
CONSUMERS = {"A1": "A", "A2": "A", "B1": "B", "B2": "B"}
BEGIN_MS = 1_000_000
LOST_MS = BEGIN_MS + 10_500
SEEN_MS = LOST_MS + 3_000
"""The coordination service notices the loss: a lease of two seconds, and a margin."""
END_MS = BEGIN_MS + 20_000
LEASE_MS = 30_000
_BATCH = 500


@dataclass(slots=True)
class Figures:
    """The figures of one run."""

    messages: int = 0
    reservations: int = 0
    """Until the loss."""
    empty_looks: int = 0
    """Reservations in backup ranges that found nothing, until the loss."""
    by_backups: int = 0
    """Messages that a backup got, until the loss."""
    late_ms: dict[str, int] = field(default_factory=dict)
    """The lateness of messages that fell due after the loss."""


class Simulation:
    """One topic with its consumers, in simulated time."""

    def __init__(self, store: Store, dealer: Dealer, rate: int) -> None:
        self._store = store
        self._dealer = dealer
        settings = TopicSettings(window_ms=2_000)
        self._topic = store.create_topic("t", settings, now_ms=BEGIN_MS)
        self._deliveries = {
            name: Delivery(Agenda(), Session(name, "s"), consumer=name, lease_ms=LEASE_MS)
            for name in CONSUMERS
        }
        self._members = frozenset(TopicMember(name, rack=rack) for name, rack in CONSUMERS.items())
        self._generation = NO_MEMBERS
        self._lost: frozenset[str] = frozenset()
        self._dues = _dues(rate)
        self.figures = Figures(messages=len(self._dues))

    def run(self) -> Figures:
        now_ms = BEGIN_MS
        for number, due in enumerate(self._dues):
            self._create(f"m{number}", due)
        while now_ms < END_MS:
            self._at(now_ms)
            moments = (
                moment
                for each in self._living()
                for moment in (each.reserve_at(now_ms), each.deliver_at(now_ms))
                if moment is not None
            )
            bounds = [each for each in (LOST_MS, SEEN_MS) if each > now_ms]
            window_ms = self._topic.settings.window_ms
            next_window_ms = (now_ms // window_ms + 1) * window_ms
            now_ms = max(now_ms + 1, min((*moments, *bounds, next_window_ms)))
        return self.figures

    def _living(self) -> list[Delivery]:
        return [each for name, each in self._deliveries.items() if name not in self._lost]

    def _create(self, message_id: str, due: int) -> None:
        message = NewMessage(id=message_id, due=due)
        self._store.create(self._topic.uid, [message], now_ms=BEGIN_MS)

    def _at(self, now_ms: int) -> None:
        if now_ms >= LOST_MS:
            self._lost = frozenset(name for name, rack in CONSUMERS.items() if rack == "B")
        self._deal(now_ms)
        for each in self._living():
            while (command := each.reserve(now_ms)) is not None:
                self._reserve(each, command, now_ms)
            for leased in each.deliver(now_ms):
                self._deliver(each, leased, now_ms)

    def _deal(self, now_ms: int) -> None:
        window = window_at(now_ms, self._topic.settings.window_ms)
        gone = self._lost if now_ms >= SEEN_MS else frozenset()
        observed = (each for each in self._members if each.consumer not in gone)
        following = next_generation(self._generation, observed, window=window)
        self._generation = following or self._generation
        shares = self._generation.shares_in(
            window, buckets=self._topic.settings.buckets, dealer=self._dealer
        )
        for name, delivery in self._deliveries.items():
            share = shares.get(name, NO_SHARE)
            delivery.cover(share.own, share.backups)

    def _reserve(self, delivery: Delivery, command: Reserve, now_ms: int) -> None:
        grant = self._store.reserve(
            self._topic.uid,
            command.ranges,
            consumer=delivery.consumer,
            limit=min(command.limit, _BATCH),
            lease_ms=command.lease_ms,
            reserve_ahead_ms=command.reach_ms,
            session=command.session,
            now_ms=now_ms,
        )
        if now_ms < LOST_MS:
            self.figures.reservations += 1
            self.figures.empty_looks += command.is_backup and not grant.leased
            self.figures.by_backups += command.is_backup * len(grant.leased)
        next_ts = now_ms if grant.leased else self._store.next_ts(self._topic.uid, command.ranges)
        delivery.reserved(command, grant.leased)
        delivery.completed(command, next_ts=next_ts, more=grant.more)

    def _deliver(self, delivery: Delivery, leased: LeasedMessage, now_ms: int) -> None:
        due = leased.message.due
        if due >= LOST_MS:
            self.figures.late_ms[leased.message.id] = now_ms - due
        self._store.ack(self._topic.uid, [leased.lease], now_ms=now_ms)
        delivery.forget(leased.lease)


def _dues(rate: int) -> list[int]:
    """Due times at random moments from the first second on; the last messages have time to be late."""
    seeded = random.Random(rate)  # no secret
    count = rate * (END_MS - BEGIN_MS) // 1000
    return sorted(seeded.randrange(BEGIN_MS + 1_000, END_MS - 2_000) for _ in range(count))


def simulate(dealer: Dealer, rate: int) -> Figures:
    with open_store("memory:") as store:
        return Simulation(store, dealer, rate).run()


def lines() -> Iterator[str]:
    """The table."""
    yield (
        "| messages/s | dealer | late at most | late by more than 100 ms | reservations before the loss"
        " | of these in vain by backups | messages that backups got |"
    )
    yield "| ---: | --- | ---: | ---: | ---: | ---: | ---: |"
    for rate in RATES:
        for dealer in Dealer:
            found = simulate(dealer, rate)
            late = found.late_ms.values()
            overdue = sum(each > 100 for each in late)  # noqa: PLR2004  # the title says it
            yield (
                f"| {rate:,} | {dealer} | {max(late):,} ms | {overdue:,} of {len(late):,}"
                f" | {found.reservations:,} | {found.empty_looks:,} | {found.by_backups:,} |"
            )


if __name__ == "__main__":
    print("\n".join(lines()))
