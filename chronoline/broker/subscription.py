"""One consumer's subscription to one topic: a delivery, and the receiver that it goes to."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from chronoline.broker.consumer_health import ConsumerHealth
from chronoline.core.agenda import DEFAULT_RESERVE_AHEAD_MS, Agenda
from chronoline.core.change import Change
from chronoline.core.dealer import NO_SHARE, Share
from chronoline.core.delivery import RESERVE_ROWS, Delivery, DeliveryOptions
from chronoline.core.generation import TopicMember
from chronoline.core.limits import MAX_HEADER_BYTES, MAX_KEY_BYTES
from chronoline.core.message import Lease, LeasedMessage
from chronoline.core.ranges import BucketRange
from chronoline.core.session import Session
from chronoline.core.topic import Topic
from chronoline.runtime.message_ids import new_id
from chronoline.stores.contract import Returned

MAX_CREDIT = 10_000
_MOST_BYTES = 64 * 1024 * 1024
_PAGE = 1_000
_MOST_AT_ONCE_BYTES = 256 * 1024 * 1024
"""The most bytes of one reservation, if all its messages are as large as the topic allows."""
_SPARE = 4
"""The next messages may be larger than the largest recent one by this factor."""
_BUNDLE_MS = 15
"""Messages that fall due within this time after a message leave with it, in one frame."""
_REACH_STEP_MS = 50
_MOST_MARGIN_MS = 500
"""The rest of a lease with which a message is still pushed; with less its consumer could not extend it."""
NO_BUCKETS = BucketRange(0, 0)
HeldVersions = Mapping[str, Container[int]]
"""The leases that a consumer says it holds: by id, the versions that are its own."""
NOTHING_HELD: HeldVersions = MappingProxyType({})


class Receiver(Protocol):
    """The destination of a consumer's messages: a stream, or a waiting request."""

    @property
    def name(self) -> str:
        """The consumer's name."""

    @property
    def instance(self) -> str:
        """The consumer's process: another one under the same name is its twin."""

    @property
    def rack(self) -> str:
        """Where it runs, if it says so; else empty."""

    @property
    def busy(self) -> bool:
        """Whether it wants no messages for now."""

    @property
    def clogged(self) -> bool:
        """Whether it does not accept its messages fast enough; it rings when it has caught up."""

    @property
    def advance_ms(self) -> int:
        """How much before its due a message has to leave in order to arrive in time; 0 if at its due."""

    def push(self, topic: Topic, leased: Sequence[LeasedMessage]) -> None:
        """Accepts messages, some of them a little early if it has an advance. Never waits."""

    def shared(self, topic: Topic, share: BucketRange) -> None:
        """Sets the buckets that it serves from now on."""

    def paused(self, topic: Topic, reason: str) -> None:
        """Stops its deliveries for a reason; an empty reason resumes them."""

    def ended(self, topic: Topic, reason: str) -> None:
        """The topic was deleted."""

    def replaced(self, topic: Topic) -> None:
        """Another consumer has taken its name, at another broker."""


class Subscription(Delivery):
    """The delivery to one consumer of a topic. Its loader uses it, in the event loop alone."""

    def __init__(
        self,
        topic: Topic,
        receiver: Receiver,
        *,
        lease_ms: int,
        credit: int,
        now_ms: int,
        changed: Callable[[Subscription], None],
    ) -> None:
        """`changed` wakes the loader."""
        self._largest_bytes = topic.settings.largest_body_bytes + MAX_KEY_BYTES + MAX_HEADER_BYTES
        most = max(1, _MOST_AT_ONCE_BYTES // self._largest_bytes)
        margin_ms = min(lease_ms // 10, _MOST_MARGIN_MS)
        agenda = Agenda(capacity=MAX_CREDIT, most_bytes=_MOST_BYTES, margin_ms=margin_ms)
        agenda.largest_bytes = self._largest_bytes
        self.health = ConsumerHealth()
        super().__init__(
            agenda,
            Session(receiver.instance, new_id()),
            consumer=receiver.name,
            lease_ms=lease_ms,
            credit=credit,
            gate=self.health.gate,
            options=DeliveryOptions(rows=min(RESERVE_ROWS, most)),
        )
        self.topic = topic
        self.receiver = receiver
        self._changed = changed
        self.dry_ms = now_ms if credit <= 0 else None
        """The moment since which it has no credit."""
        self.dealt = NO_SHARE
        """Its share, with backups."""
        self._member = TopicMember(receiver.name, rack=receiver.rack)
        self._busy_member = self._member._replace(busy=True)
        self.piped = False
        """Whether a pipe fires the topic, which is one of the reasons of a pause."""
        self.joined = False
        """Whether its live leases are known. Before that nothing is reserved or pushed, because it could not
        tell new leases from old ones."""
        self.page = min(_PAGE, most)
        """The number of its leases to resume at a time."""
        self.returned = Returned(0, "", receiver.name)
        """When it took its name; of two consumers with one name the later one keeps it."""

    @property
    def name(self) -> str:
        return self.receiver.name

    @property
    def share(self) -> BucketRange:
        """The first of its own ranges, for display."""
        return self.ranges[0] if self.ranges else NO_BUCKETS

    def topic_changed(self, topic: Topic) -> None:
        """The topic has other settings."""
        self.topic = topic
        self._largest_bytes = topic.settings.largest_body_bytes + MAX_KEY_BYTES + MAX_HEADER_BYTES
        self.agenda.largest_bytes = self._largest_bytes

    def changed(self) -> None:
        """Wakes the loader: work for this consumer may be due earlier than planned."""
        self._changed(self)

    def give_back(self, leases: Sequence[Lease]) -> None:
        super().give_back(leases)
        if leases:
            self.changed()

    def deal(self, share: Share) -> None:
        """Reserves in the ranges of this share from now on."""
        self.dealt = share
        self.cover(share.own, share.backups)

    def member(self, now_ms: int, *, is_open: bool = True) -> TopicMember:
        """The consumer as a member of its topic. It is busy while others get its share."""
        return self._member if is_open and self.is_serving(now_ms) else self._busy_member

    @property
    def can_reserve(self) -> bool:
        receiver = self.receiver
        return super().can_reserve and self.joined and not (receiver.busy or receiver.clogged)

    @property
    def can_deliver(self) -> bool:
        return super().can_deliver and self.joined and not self.receiver.clogged

    def reserve_at(self, now_ms: int) -> int | None:
        """When to reserve for it next. A message that leaves early must be reserved earlier."""
        leaves_ms = self.receiver.advance_ms + 2 * _BUNDLE_MS
        leaves_ms += -leaves_ms % _REACH_STEP_MS  # those with the same reach share a reservation
        self.agenda.reserve_ahead_ms = max(DEFAULT_RESERVE_AHEAD_MS, leaves_ms)
        return super().reserve_at(now_ms)

    def learn_sizes(self, leased: Iterable[LeasedMessage]) -> None:
        """Adapts the assumed size of the next messages: not much larger than the last ones."""
        sizes = [each.content_bytes for each in leased]
        if sizes:
            expected = max(_SPARE * max(sizes), self.agenda.largest_bytes // 2)
            self.agenda.largest_bytes = min(expected, self._largest_bytes)

    def take_due(self, now_ms: int, most: int | None = None) -> list[LeasedMessage]:
        """The messages that leave now, in order of `due`, at most this number."""
        advance_ms = self.receiver.advance_ms
        ready = self.deliver(now_ms, most, ahead_ms=advance_ms + _BUNDLE_MS if advance_ms else 0)
        self.add_credit(0, now_ms)
        return ready

    def push_at(self, now_ms: int) -> int | None:
        """When the next message leaves; None means not before a change."""
        due = self.deliver_at(now_ms)
        if due is None or self.health.is_erring:
            return due
        return due - self.receiver.advance_ms

    def grant(self, more: int, now_ms: int) -> None:
        """Allows this number of further pushes."""
        self.add_credit(more, now_ms)
        self.changed()

    def add_credit(self, more: int, now_ms: int) -> None:
        self.credit += more
        if self.credit > 0:
            self.dry_ms = None
        elif self.dry_ms is None:
            self.dry_ms = now_ms

    def is_serving(self, now_ms: int) -> bool:
        """Whether it has accepted messages within the last window; otherwise others get its share."""
        if self.receiver.busy or not self.health.may_serve(now_ms):
            return False
        return self.dry_ms is None or 0 <= now_ms - self.dry_ms < self.topic.settings.window_ms

    def forget_lapsed(self, now_ms: int) -> None:
        for lease in self.ending_by(now_ms):
            self.forget(lease)
        if not self.outstanding:
            self.health.gate.undecided()  # the message on trial was not settled

    def handled(self, change: Change, now_ms: int) -> bool:
        """Takes in how the consumer settled a message. Whether it is served differently from now on."""
        if self.topic.settings.target is not None:
            return False  # calls have limits and a back-off of their own
        was_erring = self.health.is_erring
        self.health.settled(change.operation, change.id, now_ms)
        if self.health.is_erring and not was_erring:
            self.give_back(self.agenda.give_back())
        return was_erring or self.health.is_erring
