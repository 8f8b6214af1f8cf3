"""The limits of a topic's deliveries at this broker: most a second, and most in flight.

Its loader asks before it reserves and before it pushes (`core.throttle` decides). The settings are read each
time, since they can change while the topic runs; without limits that is all that is done.

In flight are the messages under a live lease that this broker granted: reserved ones, those at its
consumers, and *abandoned* ones, whose consumer has left before it settled them. A broker whose consumers
have all buckets looks the abandoned leases up when the limit is set or the last other consumer has left, so
that those count too which were granted before, in an earlier run or by another broker. While they leave no
room it looks whether they still live: the consumer may have settled them at another broker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from chronoline.broker.metrics import BrokerMetrics
from chronoline.broker.store_access import StoreAccess
from chronoline.broker.subscription import Subscription
from chronoline.core.change import EXTENSIONS, Change
from chronoline.core.message import Lease
from chronoline.core.outcome import LEASE_IS_OVER, Outcome
from chronoline.core.ranges import BucketRange
from chronoline.core.throttle import DeliveryLimits, LimitType, Throttle
from chronoline.core.topic import Topic
from chronoline.stores.contract import Page, Store

_PAGE = 1_000
_MOST_PAGES = 100
"""The most pages of held messages that it looks through for live leases."""
_LOOK_EVERY_MS = 1_000
"""The interval between looks at abandoned leases: what other brokers do to them has no signal."""


class TopicLimits:
    """The limits of one topic, for its loader. Owned by the event loop."""

    def __init__(self, access: StoreAccess, metrics: BrokerMetrics) -> None:
        self._access = access
        self._metrics = metrics
        self._throttle: Throttle | None = None
        self._part = 1.0
        self._has_all = False
        self._has_looked = False
        # The leases whose consumer has left, by id; those that were looked at last come last.
        self._abandoned: dict[str, Lease] = {}
        self._looked_ms = 0
        # While it looks for leases: those that end.
        self._ended: set[str] | None = None
        self._held = self._away = 0
        self._closed_by: LimitType | None = None
        self._closed_ms = 0

    def dealt(self, topic: Topic, ranges: Iterable[BucketRange]) -> None:
        """The consumers of this broker have these buckets of their own from now on."""
        buckets = topic.settings.buckets
        own = sum(stop - start for start, stop in ranges)
        self._has_all = own >= buckets
        self._has_looked &= self._has_all
        self._part = min(1.0, max(own, 1) / buckets)

    def _limits(self, topic: Topic) -> DeliveryLimits | None:
        settings = topic.settings
        if settings.most_in_flight is None:
            self._has_looked = False
            self._abandoned.clear()
            if settings.most_per_s is None:
                return None
        return DeliveryLimits(settings.most_per_s, settings.most_in_flight).part(self._part)

    def _throttle_of(self, topic: Topic, now_ms: int) -> Throttle | None:
        """None without limits."""
        limits = self._limits(topic)
        if limits is None:
            self._throttle = None
        elif self._throttle is None:
            self._throttle = Throttle(limits, now_ms)
        else:
            self._throttle.set(limits, now_ms)
        return self._throttle

    # Reserving

    def room(self, topic: Topic, subscriptions: Iterable[Subscription], now_ms: int) -> int | None:
        """How many more messages may be reserved now; None is any number."""
        throttle = self._throttle_of(topic, now_ms)
        if throttle is None:
            return None
        live = (each for each in self._abandoned.values() if each.until > now_ms)
        self._abandoned = {each.id: each for each in live}
        self._held, self._away = 0, len(self._abandoned)
        for each in subscriptions:
            self._away += len(each.outstanding)
            if each.can_deliver:
                self._held += len(each.agenda)
            else:  # it must not keep the others waiting, but its leases live
                self._away += len(each.agenda)
        return throttle.room(now_ms, held=self._held, away=self._away)

    def opens_at(self, now_ms: int) -> int | None:
        """When there can be room by the time, if a message is left waiting; None if only by an event."""
        assert self._throttle is not None
        at_ms = self._throttle.opens_at(now_ms, held=self._held, away=self._away)
        return self._looks_at(now_ms) if at_ms is None and self._abandoned else at_ms

    def _looks_at(self, now_ms: int) -> int:
        """When to look at abandoned leases again."""
        is_recent = self._looked_ms <= now_ms < self._looked_ms + _LOOK_EVERY_MS
        return self._looked_ms + _LOOK_EVERY_MS if is_recent else now_ms

    def closed(self, topic: Topic, now_ms: int) -> None:
        """A reservation is due and there is no room for it."""
        if self._closed_by is None and self._throttle is not None:
            self._closed_by = self._throttle.closed_by(held=self._held, away=self._away)
            self._closed_ms = now_ms
            self._metrics.add("topic_throttled_count", (self._closed_by.value, topic.name))

    def opened(self, topic: Topic, now_ms: int) -> None:
        """Reservations can be made."""
        if self._closed_by is not None:
            took_ms = max(0, now_ms - self._closed_ms)
            self._metrics.add(
                "topic_throttled_duration_ms", (self._closed_by.value, topic.name), took_ms
            )
            self._closed_by = None

    # Pushing

    def may_leave(self, topic: Topic, now_ms: int) -> int | None:
        """How many messages may be pushed now; None is any number."""
        throttle = self._throttle_of(topic, now_ms)
        return None if throttle is None else throttle.may_leave(now_ms)

    def leaves_at(self, now_ms: int) -> int:
        """When messages may be pushed again."""
        assert self._throttle is not None
        return self._throttle.leaves_at(now_ms)

    def left(self, count: int, now_ms: int) -> None:
        if self._throttle is not None:
            self._throttle.left(count, now_ms)

    # Leases without a consumer

    def abandoned(self, topic: Topic, leases: Iterable[Lease]) -> None:
        """Their consumer has left, and they live on."""
        if topic.settings.most_in_flight is not None:
            self._abandoned.update((each.id, each) for each in leases)

    def resumed(self, ids: Iterable[str]) -> None:
        """Their consumer has returned."""
        if self._abandoned:
            for each in ids:
                self._abandoned.pop(each, None)

    def changed(self, change: Change, outcome: Outcome) -> bool:
        """A lease was changed whose consumer is not subscribed here. Whether there is more room by that."""
        if change.operation in EXTENSIONS:
            if outcome.done and (lease := self._abandoned.get(change.id)) is not None:
                self._abandoned[change.id] = lease.extended(outcome.version, outcome.at)
        elif outcome.done or outcome.refusal in LEASE_IS_OVER:
            if self._ended is not None:
                self._ended.add(change.id)
            return self._abandoned.pop(change.id, None) is not None
        return False

    def has_to_look(self, topic: Topic, now_ms: int) -> bool:
        """Whether leases may live that it does not know, or those may have ended that leave no room."""
        if topic.settings.most_in_flight is None:
            return False
        is_closed = self._closed_by is not None and bool(self._abandoned)
        return self._has_to_find or (is_closed and self._looks_at(now_ms) <= now_ms)

    @property
    def _has_to_find(self) -> bool:
        return self._has_all and not self._has_looked

    async def look(
        self, topic: Topic, subscriptions: Callable[[], Sequence[Subscription]], now_ms: int
    ) -> None:
        """Forgets leases that ended, and finds those that no consumer here holds.

        Raises `ChronolineError`.
        """
        self._looked_ms = now_ms
        await self._forget_ended(topic)
        if self._has_to_find:
            await self._find(topic, subscriptions, now_ms)

    async def _forget_ended(self, topic: Topic) -> None:
        """Compares some abandoned leases with the store: each change of a message gives it a version."""
        asked = list(self._abandoned.values())[:_PAGE]
        if not asked:
            return
        ids = [each.id for each in asked]
        found = await self._access.call(
            "held", lambda store: store.lookup(topic.uid, ids), topic=topic.name
        )
        for lease in asked:
            if self._abandoned.get(lease.id) is lease:
                del self._abandoned[lease.id]
                if lease.id in found and found[lease.id].version == lease.version:
                    self._abandoned[lease.id] = lease

    async def _find(
        self, topic: Topic, subscriptions: Callable[[], Sequence[Subscription]], now_ms: int
    ) -> None:
        here = _leased_to(subscriptions())
        self._ended = here
        try:
            found = await self._access.call(
                "held", lambda store: _live_leases(store, topic.uid, now_ms), topic=topic.name
            )
        finally:
            self._ended = None
        here |= _leased_to(subscriptions())
        self._abandoned.update((each.id, each) for each in found if each.id not in here)
        self._has_looked = True


def _leased_to(subscriptions: Sequence[Subscription]) -> set[str]:
    """The ids of the messages that are leased to these consumers."""
    found = {id for each in subscriptions for id in each.outstanding}
    found.update(lease.id for each in subscriptions for lease in each.agenda.leases())
    return found


def _live_leases(store: Store, topic_uid: int, now_ms: int) -> list[Lease]:
    """All live leases of a topic."""
    found: list[Lease] = []
    page: Page | None = None
    for _ in range(_MOST_PAGES):
        after = page.messages[-1] if page is not None else None
        page = store.scan_held(topic_uid, after=after, limit=_PAGE)
        found += (
            Lease(
                id=each.id,
                consumer=each.lock_consumer or "",
                version=each.version,
                until=each.ts,
            )
            for each in page.messages
            if each.ts > now_ms
        )
        if not page.more:
            break
    return found
