"""One consumer's subscription to one topic: a delivery, and the receiver that it goes to."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from chronoline.core.agenda import DEFAULT_RESERVE_AHEAD_MS, Agenda
from chronoline.core.delivery import RESERVE_ROWS, Delivery, Rules
from chronoline.core.limits import MAX_HEADER_BYTES, MAX_KEY_BYTES
from chronoline.core.message import LeasedMessage, content_bytes
from chronoline.core.ranges import BucketRange
from chronoline.core.session import Session
from chronoline.core.topic import Topic
from chronoline.runtime.message_ids import new_id
from chronoline.stores.contract import Returned

MAX_CREDIT = 10_000
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


class Subscription(Delivery):
    """The delivery to one consumer of a topic. Its loader works on it, in the event loop alone."""

    def __init__(
        self, topic: Topic, receiver: Receiver, *, lease_ms: int, credit: int, now_ms: int
    ) -> None:
        self._largest_bytes = topic.settings.largest_body_bytes + MAX_KEY_BYTES + MAX_HEADER_BYTES
        most = max(1, _MOST_AT_ONCE_BYTES // self._largest_bytes)
        agenda = Agenda(capacity=MAX_CREDIT, most_bytes=_MOST_BYTES)
        agenda.largest_bytes = self._largest_bytes
        super().__init__(
            agenda,
            Session(receiver.instance, new_id()),
            consumer=receiver.name,
            lease_ms=lease_ms,
            credit=credit,
            rules=Rules(rows=min(RESERVE_ROWS, most)),
        )
        self.topic = topic
        self.receiver = receiver
        self.dry_ms = now_ms if credit <= 0 else None
        """Since when it has no credit."""
        self.joined = False
        """It knows which of its leases live. Before that nothing is reserved or pushed, which it could not
        tell from those."""
        self.page = min(_PAGE, most)
        """How many of its leases to resume at a time."""
        self.returned = Returned(0, "", receiver.name)
        """When it took its name; of two that have it the later one keeps it."""

    @property
    def name(self) -> str:
        return self.receiver.name

    @property
    def share(self) -> BucketRange:
        return self.ranges[0] if self.ranges else NO_BUCKETS

    @property
    def can_reserve(self) -> bool:
        receiver = self.receiver
        return super().can_reserve and self.joined and not (receiver.busy or receiver.clogged)

    @property
    def can_deliver(self) -> bool:
        return super().can_deliver and self.joined and not self.receiver.clogged

    def reserve_at(self, now_ms: int) -> int | None:
        """When to reserve for it next. A message that leaves early has to be here earlier."""
        leaves_ms = self.receiver.advance_ms + 2 * _BUNDLE_MS
        self.agenda.reserve_ahead_ms = max(DEFAULT_RESERVE_AHEAD_MS, leaves_ms)
        return super().reserve_at(now_ms)

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
        advance_ms = self.receiver.advance_ms
        ready = self.deliver(now_ms, ahead_ms=advance_ms + _BUNDLE_MS if advance_ms else 0)
        self.add_credit(0, now_ms)
        return ready

    def push_at(self, now_ms: int) -> int | None:
        """When something leaves next; None means not before something changes."""
        due = self.deliver_at(now_ms)
        return None if due is None else due - self.receiver.advance_ms

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

    def forget_lapsed(self, now_ms: int) -> None:
        for lease in self.ending_by(now_ms):
            self.forget(lease)
