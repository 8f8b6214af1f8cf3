"""One consumer's subscription to one topic: what it may still be given, what is held for it, what it has."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Protocol

from chronoline.core.agenda import DEFAULT_RESERVE_AHEAD_MS, Agenda
from chronoline.core.limits import MAX_HEADER_BYTES, MAX_KEY_BYTES
from chronoline.core.message import Lease, LeasedMessage, content_bytes
from chronoline.core.ranges import BucketRange
from chronoline.core.session import Session
from chronoline.core.topic import Topic
from chronoline.runtime.message_ids import new_id
from chronoline.stores.contract import Returned

MAX_CREDIT = 10_000
RESERVE_ROWS = 500
"""So many are reserved in one statement at most: some milliseconds of the store's time."""
_MOST_BYTES = 64 * 1024 * 1024
_PAGE = 1_000
_MOST_AT_ONCE_BYTES = 256 * 1024 * 1024
"""No answer of the store brings more, should all messages be as large as the topic allows."""
_SPARE = 4
"""The next messages may be so many times as large as the largest of those that came last."""
_BUNDLE_MS = 15
"""What falls due so soon after a message leaves with it: one frame for all of them."""
NO_BUCKETS = BucketRange(0, 0)
Holding = Mapping[str, Container[int]]
"""What a consumer says that it holds: by id, the versions that are its own."""
NOTHING_HELD: Holding = MappingProxyType({})


class Receiver(Protocol):
    """Where the messages of a consumer go: a stream, or a request that waits."""

    @property
    def name(self) -> str:
        """The consumer."""

    @property
    def instance(self) -> str:
        """The consumer's process: another one under the same name is its twin."""

    @property
    def busy(self) -> bool:
        """It wants nothing for now."""

    @property
    def clogged(self) -> bool:
        """It does not take what it was given fast enough; it rings when it has."""

    @property
    def advance_ms(self) -> int:
        """How much before its due a message has to leave in order to arrive in time; 0 if at its due."""

    def push(self, topic: Topic, leased: Sequence[LeasedMessage]) -> None:
        """Takes messages, some of them a little early if it has an advance. Never waits."""

    def shared(self, topic: Topic, share: BucketRange) -> None:
        """From now on it serves these buckets."""

    def paused(self, topic: Topic, reason: str) -> None:
        """From now on it is given nothing; with an empty reason it is served again."""

    def ended(self, topic: Topic, reason: str) -> None:
        """The topic is gone."""

    def replaced(self, topic: Topic) -> None:
        """Another consumer has taken its name, at another broker."""


class Subscription:
    """Its loader's, which works on it in the event loop alone."""

    def __init__(
        self, topic: Topic, receiver: Receiver, *, lease_ms: int, credit: int, now_ms: int
    ) -> None:
        self.topic = topic
        self.receiver = receiver
        self.lease_ms = lease_ms
        # So many more may be pushed; what is held counts as long as it is held.
        self.credit = credit
        # Since when it has none.
        self.dry_ms = now_ms if credit <= 0 else None
        self.share = NO_BUCKETS
        # Pushed, and as far as is known neither settled nor lapsed.
        self.outstanding: dict[str, Lease] = {}
        self.agenda = Agenda(capacity=MAX_CREDIT, most_bytes=_MOST_BYTES)
        self._largest_bytes = topic.settings.largest_body_bytes + MAX_KEY_BYTES + MAX_HEADER_BYTES
        self.agenda.largest_bytes = self._largest_bytes
        # It has been told which of its leases live. Before that nothing is reserved or pushed, which it could
        # not tell from those.
        self.joined = False
        self.closed = False
        # Why nothing is reserved for it or pushed to it; empty while it is served.
        self.paused = ""
        # The earliest that was noticed since the last reservation began, whose answer knows nothing of it.
        self.heard: int | None = None
        self.session = Session(receiver.instance, new_id())
        # When it took its name; of two that have it the later one keeps it.
        self.returned = Returned(0, "", receiver.name)

    @property
    def name(self) -> str:
        return self.receiver.name

    @property
    def wanted(self) -> int:
        """How many to reserve next."""
        most = min(RESERVE_ROWS, max(1, _MOST_AT_ONCE_BYTES // self._largest_bytes))
        return min(self.agenda.room(), self.credit - len(self.agenda), most)

    @property
    def page(self) -> int:
        """How many of its leases to resume at a time."""
        return min(_PAGE, max(1, _MOST_AT_ONCE_BYTES // self._largest_bytes))

    def reserve_at(self, now_ms: int) -> int | None:
        """When to reserve for it next; None means not before something changes."""
        idle = not self.joined or self.closed or self.receiver.busy or self.share == NO_BUCKETS
        if idle or self.receiver.clogged or self.wanted <= 0:
            return None
        # What leaves early has to be here earlier.
        leaves_ms = self.receiver.advance_ms + 2 * _BUNDLE_MS
        self.agenda.reserve_ahead_ms = max(DEFAULT_RESERVE_AHEAD_MS, leaves_ms)
        return self.agenda.reserve_at(now_ms)

    def noticed(self, due: int | None) -> None:
        """Someone put a message at `due`; None if nobody knows where, so that one must look."""
        at_ms = -1 if due is None else due
        self.heard = at_ms if self.heard is None else min(self.heard, at_ms)
        self.agenda.noticed(due)

    def learn_sizes(self, leased: Iterable[LeasedMessage]) -> None:
        """Nobody knows how large the next messages are: not much larger than the last ones, most likely."""
        sizes = [
            content_bytes(each.body, each.message.key, each.message.headers) for each in leased
        ]
        if sizes:
            expected = max(_SPARE * max(sizes), self.agenda.largest_bytes // 2)
            self.agenda.largest_bytes = min(expected, self._largest_bytes)

    def take_due(self, now_ms: int) -> list[LeasedMessage]:
        """What leaves now, in order of `due`."""
        if not self.joined or self.credit <= 0 or self.receiver.clogged:
            return []
        advance_ms = self.receiver.advance_ms
        ahead_ms = advance_ms + _BUNDLE_MS if advance_ms else 0
        ready = self.agenda.deliver(now_ms, self.credit, ahead_ms=ahead_ms)
        self.add_credit(-len(ready), now_ms)
        for each in ready:
            self.outstanding[each.lease.id] = each.lease
        return ready

    def add_credit(self, more: int, now_ms: int) -> None:
        self.credit += more
        if self.credit > 0:
            self.dry_ms = None
        elif self.dry_ms is None:
            self.dry_ms = now_ms

    def is_serving(self, now_ms: int) -> bool:
        """It takes messages, or at least did within the last window: else others should have its share."""
        if self.receiver.busy:
            return False
        return self.dry_ms is None or 0 <= now_ms - self.dry_ms < self.topic.settings.window_ms

    def push_at(self) -> int | None:
        """When something leaves next; None means not before something changes."""
        if not self.joined or self.credit <= 0 or self.receiver.clogged:
            return None
        due = self.agenda.deliver_at()
        return None if due is None else due - self.receiver.advance_ms

    def with_session(self, lease: Lease) -> Lease:
        """A lease with its session, if it is one of those that were pushed here, or was extended since."""
        known = self.outstanding.get(lease.id)
        if known is None or lease.version < known.since:
            return lease
        return replace(lease, session=known.session)

    def settled(self, lease: Lease) -> None:
        """It is over. A later lease of the same message, which the consumer has as well, is not."""
        known = self.outstanding.get(lease.id)
        if known is not None and known.version == lease.version:
            del self.outstanding[lease.id]

    def moved(self, message_id: str, version: int, until_ms: int) -> None:
        """A lease was extended."""
        lease = self.outstanding.get(message_id)
        if lease is not None:
            self.outstanding[message_id] = lease.extended(version, until_ms)

    def forget_lapsed(self, now_ms: int) -> None:
        for lease in [each for each in self.outstanding.values() if each.until <= now_ms]:
            self.settled(lease)
