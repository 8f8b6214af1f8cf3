"""The tasks of the contenders in the races. Each task records every change that the store said was done."""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from chronoline.core.errors import OutcomeUnknown, StoreBusy
from chronoline.core.message import Lease, LeasedMessage
from chronoline.core.outcome import Outcome, Refusal
from chronoline.core.permissions import Operation
from chronoline.core.topic import Topic
from chronoline.stores.contract import Store
from tests.stores.histories import Event
from tests.stores.line import NOW, OWNERS, new

LEASE_MS = 40
AHEAD_MS = 100
MOST_TRIES = 50

Result = TypeVar("Result")


def unless_busy(call: Callable[[], Result]) -> Result:
    """Repeats a call that changed nothing because the store was busy.

    An error that has an outcome for each item is raised at once: the caller repeats some of the items.
    """
    for _ in range(MOST_TRIES):
        try:
            return call()
        except StoreBusy as error:
            if error.answered is not None:
                raise
    return call()


@dataclass
class Hand:
    """One contender on one topic, with its own clock."""

    store: Store
    topic: Topic
    name: str
    now: int = NOW
    twice: bool = False
    """Repeat every request; the second one changes nothing."""
    events: list[Event] = field(default_factory=list)
    held: dict[str, LeasedMessage] = field(default_factory=dict)

    # As an owner

    def create(self, ids: Iterable[str], due: int) -> None:
        messages = [new(each, due, body=self.name.encode()) for each in ids]
        outcomes = self._say(self.store.create, messages)
        self._note(Operation.CREATE, outcomes, due=due, until=due)

    def cancel(self, ids: Sequence[str]) -> None:
        outcomes = self._say(self.store.cancel, ids, producer_group=OWNERS)
        self._note(Operation.CANCEL, outcomes, until=self.now + self.topic.settings.dedupe_ms)

    def reschedule(self, ids: Sequence[str], due: int) -> None:
        moves = [(each, due) for each in ids]
        outcomes = self._ask(self.store.reschedule, moves, producer_group=OWNERS)
        self._note(Operation.RESCHEDULE, outcomes, due=due, until=due)

    # As a consumer

    def reserve(self, limit: int, *, ahead_ms: int = 0, lease_ms: int = LEASE_MS) -> int:
        grant = unless_busy(
            lambda: self.store.reserve(
                self.topic.uid,
                self.topic.all_buckets,
                consumer=self.name,
                limit=limit,
                lease_ms=lease_ms,
                reserve_ahead_ms=ahead_ms,
                now_ms=self.now,
            )
        )
        return self._hold(grant.leased, ahead_ms, lease_ms)

    def lease(self, wanted: Sequence[tuple[str, int]], *, ahead_ms: int = 0) -> int:
        grant = unless_busy(
            lambda: self.store.lease(
                self.topic.uid,
                wanted,
                consumer=self.name,
                lease_ms=LEASE_MS,
                reserve_ahead_ms=ahead_ms,
                now_ms=self.now,
            )
        )
        assert len(grant.leased) + len(grant.refused) == len(wanted)
        return self._hold(grant.leased, ahead_ms, LEASE_MS)

    def ack(self) -> None:
        leases = self._give_up()
        until = self.now + self.topic.settings.dedupe_ms
        self._note(Operation.ACK, self._say(self.store.ack, leases), leases, until=until)

    def unreserve(self) -> None:
        held = dict(self.held)
        leases = self._give_up()
        for outcome in self._say(self.store.unreserve, leases):
            due = held[outcome.id].message.due
            self._note(Operation.UNRESERVE, [outcome], leases, due=due, until=due)

    def move(self, did: Operation, to: int) -> None:
        """Extends, releases or retries a held message."""
        held = dict(self.held)
        leases = self._give_up()
        method = getattr(self.store, did.value)
        for outcome in self._say(method, [(lease, to) for lease in leases]):
            due = held[outcome.id].message.due if did is Operation.EXTEND else to
            self._note(did, [outcome], leases, due=due, until=to)

    # Records of the changes

    def _say(
        self, request: Callable[..., list[Outcome]], items: Sequence[Any], **named: Any
    ) -> list[Outcome]:
        outcomes = self._ask(request, items, **named)
        if self.twice:
            again = self._ask(request, items, **named)
            self._compare(request.__name__, outcomes, again)
        return outcomes

    def _ask(
        self, request: Callable[..., list[Outcome]], items: Sequence[Any], **named: Any
    ) -> list[Outcome]:
        """Repeats the request for the messages that another contender's transaction holds."""

        def answers(some: Sequence[Any]) -> Sequence[Outcome]:
            try:
                return unless_busy(lambda: request(self.topic.uid, some, now_ms=self.now, **named))
            except (StoreBusy, OutcomeUnknown) as error:
                if error.answered is None:
                    raise
                return error.answered

        outcomes = list(answers(items))
        for _ in range(MOST_TRIES):
            held = [at for at, each in enumerate(outcomes) if each.refusal is Refusal.BUSY]
            if not held:
                return outcomes
            for at, outcome in zip(held, answers([items[at] for at in held]), strict=True):
                outcomes[at] = outcome
        raise AssertionError(f"other transactions held {outcomes} in {MOST_TRIES} tries")

    def _compare(self, what: str, first: list[Outcome], again: list[Outcome]) -> None:
        for once, twice in zip(first, again, strict=True):
            if once.done and what in ("ack", "cancel"):
                assert twice == once
            elif once.done:
                assert not twice.done, f"{what} was done twice: {once}, {twice}"

    def _hold(self, leased: Iterable[LeasedMessage], ahead_ms: int, lease_ms: int) -> int:
        count = 0
        for each in leased:
            lease, message = each.lease, each.message
            assert (lease.id, lease.consumer, lease.version) == (
                message.id,
                self.name,
                message.version,
            )
            assert lease.until == message.ts == max(message.due, self.now) + lease_ms
            self.held[lease.id] = each
            self.events.append(
                Event(
                    id=lease.id,
                    version=lease.version,
                    did=Operation.LEASE,
                    who=self.name,
                    now=self.now,
                    due=message.due,
                    until=lease.until,
                    reserve_ahead_ms=ahead_ms,
                )
            )
            count += 1
        return count

    def _give_up(self) -> list[Lease]:
        leases = [each.lease for each in self.held.values()]
        self.held.clear()
        return leases

    def _note(
        self,
        did: Operation,
        outcomes: Iterable[Outcome],
        leases: Sequence[Lease] = (),
        *,
        due: int = 0,
        until: int,
    ) -> None:
        versions = {lease.id: lease.version for lease in leases}
        for outcome in outcomes:
            if outcome.done:
                self.events.append(
                    Event(
                        id=outcome.id,
                        version=outcome.version,
                        did=did,
                        who=self.name,
                        now=self.now,
                        due=due,
                        until=until,
                        leased_at=versions.get(outcome.id, 0),
                    )
                )


@dataclass(frozen=True)
class Brawl:
    """Each contender does every operation on the same few messages, in its own order."""

    topic: Topic
    ids: tuple[str, ...]
    steps: int
    twice: bool = False

    def __call__(self, store: Store, who: int) -> list[Event]:
        choose = random.Random(who)
        hand = Hand(store, self.topic, f"c{who}", twice=self.twice)
        for _ in range(self.steps):
            hand.now += choose.choice((0, 1, 5, 30))
            some = choose.sample(self.ids, 3)
            soon = hand.now + choose.choice((10, 50, 150))
            match choose.randrange(10):
                case 0:
                    hand.create(some, due=soon)
                case 1:
                    hand.cancel(some[:1])
                case 2:
                    hand.reschedule(some[:2], due=soon)
                case 3 | 4:
                    hand.reserve(2, ahead_ms=AHEAD_MS)
                case 5:
                    found = store.lookup(self.topic.uid, some)
                    wanted = [(each.id, each.version) for each in found.values()]
                    hand.lease(wanted, ahead_ms=AHEAD_MS)
                case 6:
                    hand.ack()
                case 7:
                    hand.unreserve()
                case 8:
                    hand.move(Operation.EXTEND, soon)
                case _:
                    hand.move(choose.choice((Operation.RELEASE, Operation.RETRY)), soon)
        return hand.events


@dataclass(frozen=True)
class Drain:
    """Reserves a few messages at a time until none is left."""

    topic: Topic
    limit: int

    def __call__(self, store: Store, who: int) -> list[Event]:
        hand = Hand(store, self.topic, f"c{who}")
        while hand.reserve(self.limit):
            pass
        return hand.events


@dataclass(frozen=True)
class LeaseAll:
    """Leases every message it saw, in its own order."""

    topic: Topic
    seen: tuple[tuple[str, int], ...]

    def __call__(self, store: Store, who: int) -> list[Event]:
        hand = Hand(store, self.topic, f"c{who}")
        wanted = list(self.seen)
        random.Random(who).shuffle(wanted)
        for place in range(0, len(wanted), 10):
            hand.lease(wanted[place : place + 10])
        return hand.events


@dataclass(frozen=True)
class CreateAll:
    """Creates the same ids as the other contenders, in its own order."""

    topic: Topic
    ids: tuple[str, ...]

    def __call__(self, store: Store, who: int) -> list[Event]:
        hand = Hand(store, self.topic, f"c{who}")
        mine = list(self.ids)
        random.Random(who).shuffle(mine)
        hand.create(mine, due=NOW)
        return hand.events


@dataclass(frozen=True)
class OwnOrConsume:
    """Contenders with even numbers cancel the messages; those with odd numbers lease and ack them."""

    topic: Topic
    ids: tuple[str, ...]

    def __call__(self, store: Store, who: int) -> list[Event]:
        hand = Hand(store, self.topic, f"c{who}")
        if who % 2:
            while hand.reserve(3):
                hand.ack()
            return hand.events
        mine = list(self.ids)
        random.Random(who).shuffle(mine)
        for place, message_id in enumerate(mine):
            if place % 2:
                hand.cancel([message_id])
            else:
                hand.reschedule([message_id], due=NOW - place)
        return hand.events


@dataclass(frozen=True)
class ReserveAhead:
    """Reserves ahead at every millisecond while leases end one after the other."""

    topic: Topic
    last: int

    def __call__(self, store: Store, who: int) -> list[Event]:
        hand = Hand(store, self.topic, f"c{who}", now=NOW + who % 3)
        while hand.now <= self.last:
            hand.reserve(100, ahead_ms=AHEAD_MS, lease_ms=10_000)
            hand.now += 3
        return hand.events


@dataclass(frozen=True)
class PurgeOrReuse:
    """Contenders with even numbers purge marks; those with odd numbers create and lease the same ids."""

    topic: Topic
    ids: tuple[str, ...]
    now: int

    def __call__(self, store: Store, who: int) -> list[Event]:
        hand = Hand(store, self.topic, f"c{who}", now=self.now)
        mine = list(self.ids)
        random.Random(who).shuffle(mine)
        for place in range(0, len(mine), 10):
            if who % 2 == 0:
                unless_busy(lambda: store.purge(limit=7, now_ms=self.now))
            else:
                hand.create(mine[place : place + 10], due=self.now)
                hand.reserve(10)
        return hand.events


@dataclass(frozen=True)
class Purge:
    """Purges a few rows at a time until none is left; returns the number removed."""

    now: int
    limit: int

    def __call__(self, store: Store, who: int) -> int:
        removed = 0
        while count := unless_busy(lambda: store.purge(limit=self.limit, now_ms=self.now)):
            removed += count
        return removed
