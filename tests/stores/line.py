"""A topic for tests: simulated time, short calls, and outcomes as words."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from chronoline.core.change import Change
from chronoline.core.message import DeadLetter, Lease, LeasedMessage, Message, NewMessage
from chronoline.core.outcome import Grant, Outcome
from chronoline.core.topic import Topic, TopicSettings
from chronoline.stores.contract import IfExists, Store

NOW = 1_800_000_000_000
OWNERS = "owners"
LEASE_MS = 1_000


def new(message_id: str, due: int = NOW, **fields: Any) -> NewMessage:
    return NewMessage(**{"id": message_id, "due": due, "producer_group": OWNERS, **fields})


def words(outcomes: Iterable[Outcome]) -> list[str]:
    """For each outcome "done" or the name of the refusal."""
    return [outcome.refusal or "done" for outcome in outcomes]


def ids(messages: Iterable[LeasedMessage | Message | DeadLetter]) -> list[str]:
    found = []
    for each in messages:
        found.append(each.id if isinstance(each, Message) else each.message.id)
    return found


@dataclass
class Line:
    """One topic of a store, with a manual clock."""

    store: Store
    topic: Topic
    now: int = NOW

    @property
    def uid(self) -> int:
        return self.topic.uid

    # Producers

    def create(self, *messages: NewMessage, if_exists: IfExists = "refuse") -> list[str]:
        return words(self.store.create(self.uid, messages, if_exists=if_exists, now_ms=self.now))

    def put(self, *message_ids: str, due: int = NOW, **fields: Any) -> Message:
        """Creates messages, asserts that they are done, and returns the last one."""
        made = self.create(*(new(each, due, **fields) for each in message_ids))
        assert made == ["done"] * len(message_ids)
        return self[message_ids[-1]]

    def reschedule(self, *moves: tuple[str, int], group: str = OWNERS) -> list[str]:
        return words(self.store.reschedule(self.uid, moves, producer_group=group, now_ms=self.now))

    def cancel(self, *message_ids: str, group: str = OWNERS) -> list[str]:
        return words(
            self.store.cancel(self.uid, message_ids, producer_group=group, now_ms=self.now)
        )

    # Consumers

    def reserve(
        self, consumer: str = "c", *, limit: int = 100, lease_ms: int = LEASE_MS, ahead_ms: int = 0
    ) -> Grant:
        return self.store.reserve(
            self.uid,
            self.topic.all_buckets,
            consumer=consumer,
            limit=limit,
            lease_ms=lease_ms,
            reserve_ahead_ms=ahead_ms,
            now_ms=self.now,
        )

    def reserved(self, consumer: str = "c", *, ahead_ms: int = 0) -> list[str]:
        """Returns the ids that a reservation leases now."""
        return ids(self.reserve(consumer, ahead_ms=ahead_ms).leased)

    def take(self, consumer: str = "c", *, lease_ms: int = LEASE_MS, ahead_ms: int = 0) -> Lease:
        """Leases the only message that can be leased now."""
        (leased,) = self.reserve(consumer, lease_ms=lease_ms, ahead_ms=ahead_ms).leased
        return leased.lease

    def lease(
        self,
        *wanted: tuple[str, int],
        consumer: str = "c",
        lease_ms: int = LEASE_MS,
        ahead_ms: int = 0,
    ) -> Grant:
        return self.store.lease(
            self.uid,
            wanted,
            consumer=consumer,
            lease_ms=lease_ms,
            reserve_ahead_ms=ahead_ms,
            now_ms=self.now,
        )

    def resume(self, consumer: str = "c", *, limit: int = 100) -> Grant:
        return self.store.resume(self.uid, consumer, limit=limit, now_ms=self.now)

    def extend(self, lease: Lease, to: int) -> str:
        return words(self.store.extend(self.uid, [(lease, to)], now_ms=self.now))[0]

    def release(self, lease: Lease, to: int) -> str:
        return words(self.store.release(self.uid, [(lease, to)], now_ms=self.now))[0]

    def retry(self, lease: Lease, to: int) -> str:
        return words(self.store.retry(self.uid, [(lease, to)], now_ms=self.now))[0]

    def bury(self, lease: Lease, reason: str = "no use") -> str:
        return words(self.store.bury(self.uid, [(lease, reason)], now_ms=self.now))[0]

    def unreserve(self, *leases: Lease) -> list[str]:
        return words(self.store.unreserve(self.uid, leases, now_ms=self.now))

    def ack(self, *leases: Lease) -> list[str]:
        return words(self.store.ack(self.uid, leases, now_ms=self.now))

    def apply(self, *changes: Change) -> list[str]:
        return words(self.store.apply(self.uid, changes, now_ms=self.now))

    def stale_answers(self, lease: Lease) -> set[str]:
        """Returns the answers to every operation of a holder."""
        to = self.now + LEASE_MS
        answers = {self.extend(lease, to), self.release(lease, to), self.retry(lease, to)}
        return answers | {self.bury(lease), *self.unreserve(lease), *self.ack(lease)}

    # Reads

    def __getitem__(self, message_id: str) -> Message:
        return self.store.lookup(self.uid, [message_id])[message_id]

    def __contains__(self, message_id: str) -> bool:
        return message_id in self.store.lookup(self.uid, [message_id])

    def next_ts(self) -> int | None:
        return self.store.next_ts(self.uid, self.topic.all_buckets)

    # Dead letters

    def dead(self) -> list[DeadLetter]:
        return self.store.dead_letters(self.uid, limit=100)

    def redrive(self, *message_ids: str, due: int) -> list[str]:
        return words(self.store.redrive(self.uid, message_ids, due=due, now_ms=self.now))

    def discard(self, *message_ids: str) -> list[str]:
        return words(self.store.discard(self.uid, message_ids, now_ms=self.now))

    def purge(self, limit: int = 1_000) -> int:
        return self.store.purge(limit=limit, now_ms=self.now)

    def drop(self) -> bool:
        return self.store.delete_topic(self.uid, now_ms=self.now)


@dataclass
class MakeLine:
    """Makes topics with names of their own."""

    store: Store
    made: int = 0

    def __call__(self, **settings: Any) -> Line:
        self.made += 1
        topic = self.store.create_topic(f"topic {self.made}", TopicSettings(**settings), now_ms=NOW)
        return Line(self.store, topic)


def leases_of(grant: Grant) -> Sequence[Lease]:
    return [each.lease for each in grant.leased]
