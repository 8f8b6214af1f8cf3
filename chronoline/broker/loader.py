"""The loader of a topic: deals its buckets among consumers, reserves ahead for each, and pushes in time.

It is the asyncio shell of `core.delivery`: a `Subscription` is the delivery to one consumer and decides, the
loader acts. It has three tasks: one reserves, one pushes, one settles and looks up reservations in the store.
Each asks only the subscriptions that changed, or whose moment has come (`core.moments`).

Dealing. Consumers that are connected and not busy have shares of the buckets, from a `ShareSource`; one that
has had no credit for a whole window counts as busy, because its share would wait for it while others are
idle. A change of the consumers takes effect at the topic's next window; if the topic had none, at once. A
consumer that returns before that keeps its share. Messages that were reserved for a consumer before its share
changed stay its own.

Reserving. The loader reserves for the consumers whose reservation is due, each within its credit, the longest
waiting first, by one write; only a few that are behind have a write each. Planned reservations begin on a
grid of 25 ms, so that those of several consumers come together. So a topic with a thousand consumers does not
keep others from the store.

Pushing. A message leaves for its consumer at its due, less the travel time; in order of `due` for each
consumer. A consumer without credit, or one that does not read, gets no pushes.

Leaving. Messages that were reserved and not pushed are given back at once. A pushed message belongs to the
consumer until its lease is over; a consumer that comes back under its name gets its live leases first, under
new versions, as many as it may hold; the rest is given back.

Failures. If the store fails, reserving waits a moment; held messages are pushed while their leases live.
Meanwhile the consumers of other brokers, which may reach the store, get the shares of these.
While the broker's clock is too far from the store's nothing is reserved or pushed, and held messages are
given back.

Errors. A consumer that retries nearly all its messages gets single ones, further and further apart, until it
handles one; others get its share meanwhile (`consumer_health`).

Limits. On a topic with limits (`topic_limits`) it reserves no more than may leave soon, and the rest stays
available; consumers get room in the order in which they have waited.

Pausing. While a pipe fires the topic, or an operator has paused it, nothing is reserved or pushed, messages
that were not pushed are given back, and the consumers get a notice. They stay subscribed, keep their leases,
and are served again when that ends.
"""

from __future__ import annotations

import asyncio
import logging
import random
from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from typing import NamedTuple

from chronoline.broker.degradation import Degradation, DegradationType
from chronoline.broker.gate import OF_A_TOPIC, ClosureType, TopicGate, Work
from chronoline.broker.message_spans import record_delivered
from chronoline.broker.metrics import BrokerMetrics
from chronoline.broker.shares import ConnectedConsumer, ShareFactory
from chronoline.broker.store_access import StoreAccess
from chronoline.broker.subscription import (
    NOTHING_HELD,
    HeldVersions,
    Receiver,
    Subscription,
)
from chronoline.broker.topic_limits import TopicLimits
from chronoline.core.change import EXTENSIONS, Change, lease_change
from chronoline.core.dealer import NO_SHARE, Share
from chronoline.core.delivery import Chore, Command, Look, Reserve, Settle, is_unknown
from chronoline.core.errors import AlreadySubscribed, ChronolineError, TopicNotFound
from chronoline.core.generation import TopicMember
from chronoline.core.ids import bucket_of
from chronoline.core.message import Lease, LeasedMessage, Message, NewMessage
from chronoline.core.moments import Moments
from chronoline.core.outcome import LEASE_IS_OVER, Grant, Outcome
from chronoline.core.permissions import Operation
from chronoline.core.ranges import BucketRange
from chronoline.core.session import instance_of
from chronoline.core.topic import Topic
from chronoline.delivery.storage_threads import StorageThreads
from chronoline.runtime.alarm import Alarm
from chronoline.runtime.clock import Clock
from chronoline.runtime.log_summary import LogSummary
from chronoline.runtime.tasks import TaskSet, supervise
from chronoline.runtime.terminal_text import printable
from chronoline.runtime.timestamps import show_moment
from chronoline.stores.contract import Recipient, Returned, Store

logger = logging.getLogger(__name__)
_summary = LogSummary(logger)

_REST_MS = 200
"""The wait after a failure of the store without a time to try again, or while the clock is off."""
_LOOK_WHEN_PAUSED_MS = 2_000
"""The interval between two lookups of a paused topic, which may have been deleted."""
_PAGE = 1_000
_MOST_BUCKETS = 64
"""Of more messages the buckets are not computed: nearly all consumers have one of them."""
_AT_ONCE = 4
"""The most consumers that are behind and for which it reserves each by itself."""
_FEW = 16
"""With more consumers the shares are not looked at for each change of one of them."""
_DEAL_EVERY_MS = 50
_DEAL_MS_EACH = 0.25
"""With many consumers the shares are looked at this much less often for each of them."""
_GRID_MS = 25
"""Reservations that were planned begin at these intervals, those of several consumers by one write."""
_DENSE = 3
"""A reservation that found fewer messages asks when the next is due; else the next tick looks for it."""
_MOST_TOGETHER = 256
"""The number of consumers of a topic for which it reserves at a time."""
_LAST_WORK_S = 4.0
"""The longest wait of a stop for a reservation under way, and to give its messages back."""


class Reservation(NamedTuple):
    """A reservation, and the consumer that it is for."""

    subscription: Subscription
    command: Reserve

    @property
    def recipient(self) -> Recipient:
        command = self.command
        return Recipient(self.subscription.name, command.session, command.ranges, command.limit)


class Loader:
    """Serves one topic from `start` to `stop`."""

    def __init__(
        self,
        topic: Topic,
        access: StoreAccess,
        clock: Clock,
        metrics: BrokerMetrics,
        gate: TopicGate,
        *,
        shares: ShareFactory,
        ended: Callable[[Loader], None] = lambda _: None,
    ) -> None:
        """`ended` is called when the topic was deleted."""
        self.topic = topic
        self.gate = gate
        self._tell_ended = ended
        self._access = access
        self._clock = clock
        self._metrics = metrics
        self._subscriptions: dict[str, Subscription] = {}  # by consumer, longest waiting first
        self._make_source = shares
        self._observed: frozenset[TopicMember] = frozenset()
        self._dealt: Mapping[str, Share] | None = None
        self._has_returned = False  # a consumer has subscribed since shares were dealt
        # The starts of the consumers' own ranges, sorted, and those with backup ranges.
        self._owners: list[tuple[int, Subscription]] | None = None
        self._backups: list[Subscription] = []
        # Dealing: whether anything changed, or a consumer did, since the last time, and when it is due again.
        self._is_changed = self._is_touched = True
        self._last_dealt_ms = 0
        self._deals_at: int | None = None
        self._to_reserve = Alarm()
        self._to_push = Alarm()
        self._to_settle = Alarm()
        self._reserves = Moments(self._reserve_moment)
        self._phase_ms = random.randrange(_GRID_MS)  # brokers do not ask the store all at once
        self._pushes = Moments(Subscription.push_at)
        self._chores = Moments[Subscription](Subscription.chore_at)
        self._limits = TopicLimits(access, metrics)
        # Consumers that have left, with changes that are not settled yet.
        self._leaving: list[Subscription] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._background = TaskSet()
        self.ended = False
        self._stopped = False
        self._source = shares(topic, self)  # the last: it may wake the loader

    def start(self) -> None:
        works = {
            "reserving": self._reserving,
            "pushing": self._pushing,
            "giving back": self._giving_back,
        }
        for name, work in works.items():
            self._tasks.append(supervise(name, work, self._metrics.failed, topic=self.topic.name))

    async def stop(self) -> None:
        """Gives back the messages that were not pushed. May be called twice."""
        self._stopped = True
        self._source.close()
        for subscription in self.subscriptions:
            self.unsubscribe(subscription)
        self.changed()  # wakes the tasks
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_LAST_WORK_S)
        tasks = [*self._tasks, *self._background]
        for task in tasks:
            task.cancel()  # leases that it would give back lapse
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks.clear()

    @property
    def subscriptions(self) -> Sequence[Subscription]:
        return tuple(self._subscriptions.values())

    # Subscriptions

    async def subscribe(
        self,
        receiver: Receiver,
        *,
        lease_ms: int,
        credit: int,
        holding: HeldVersions = NOTHING_HELD,
    ) -> tuple[Subscription, list[Lease]]:
        """Returns the subscription, and the live leases among those that the consumer says it holds.

        A lease with a version or an instance that is not its own was held by another consumer meanwhile. That
        one and its other live leases are pushed to it first. Raises `AlreadySubscribed`.
        """
        if receiver.name in self._subscriptions:
            raise AlreadySubscribed(
                f"consumer {receiver.name!r} is subscribed to topic {self.topic.name!r} already"
            )
        subscription = Subscription(
            self.topic,
            receiver,
            lease_ms=lease_ms,
            credit=credit,
            now_ms=self._clock.now_ms(),
            changed=self._touch,
        )
        self._subscriptions[receiver.name] = subscription
        try:
            kept = await self._resume(subscription, holding)
        except BaseException:
            self.unsubscribe(subscription)  # it gives back what it has resumed
            raise
        subscription.joined = self._has_returned = True
        if self.gate.paused:
            self._pause(subscription)
        self.changed()
        return subscription, kept

    async def _resume(self, subscription: Subscription, holding: HeldVersions) -> list[Lease]:
        kept: list[Lease] = []
        session = subscription.session.new_grant()
        after, more = "", True
        while more:
            now_ms = self._clock.now_ms()
            grant = await self._access.change(
                "resume",
                lambda threads, after=after: threads.resume(  # type: ignore[misc]  # of this turn
                    self.topic.uid,
                    subscription.name,
                    after=after,
                    limit=subscription.page,
                    session=session,
                ),
                topic=self.topic.name,
            )
            self._limits.resumed(each.lease.id for each in grant.leased)
            for each in grant.leased:
                in_hand = _is_its_own(each, subscription, holding)
                subscription.resumed(each, in_hand=in_hand, now_ms=now_ms)
                if in_hand:
                    kept.append(each.lease)
            if not after:
                subscription.returned = Returned(grant.at, session, subscription.name)
            more = grant.more
            if grant.leased:
                after = grant.leased[-1].lease.id
        return kept

    def unsubscribe(self, subscription: Subscription) -> None:
        """Gives back the messages that were not pushed; others serve its share from the next window on."""
        if self._subscriptions.get(subscription.name) is subscription:
            del self._subscriptions[subscription.name]
            self._owners = None
        self._reserves.forget(subscription)
        self._pushes.forget(subscription)
        if not subscription.closed:
            subscription.close()
            self._limits.abandoned(self.topic, subscription.outstanding.values())
            self._leaving.append(subscription)
        self.changed()

    def changed(self) -> None:
        """Wakes the tasks: work of any consumer may be due earlier than planned."""
        self._is_changed = True
        for subscription in (*self._subscriptions.values(), *self._leaving):
            self._touch(subscription)
        self._to_reserve.ring()
        self._to_push.ring()
        self._to_settle.ring()

    def store_changed(self) -> None:
        """Shows at once whether the consumers are served here: a reservation under way would delay that."""
        if self.gate.closure(Work.RESERVE) is None:
            self._observe(self._clock.now_ms(), is_open=not self.gate.store_problem)
        self.changed()

    def _touch(self, subscription: Subscription) -> None:
        """Wakes the tasks: work of one consumer may be due earlier than planned."""
        self._is_touched = True
        if not subscription.closed:
            self._reserves.touch(subscription)
            self._pushes.touch(subscription)
        self._chores.touch(subscription)
        self._to_reserve.ring()
        self._to_push.ring()
        self._to_settle.ring()

    def returned(self, other: Returned) -> None:
        """A consumer has subscribed to this topic, here or at another broker: the latest one keeps its name.

        Another stream of the same instance is the same consumer, which has one stream at a time.
        """
        subscription = self._subscriptions.get(other.consumer)
        if subscription is None or not subscription.joined:
            return
        is_twin = instance_of(other.session) != subscription.session.instance
        if is_twin and subscription.returned < other:
            subscription.receiver.replaced(self.topic)

    def noticed(self, due: int | None, buckets: Sequence[int] | None = None) -> None:
        """Messages were put into these buckets, the first at `due`; None if that is unknown.

        A consumer that serves none of the buckets is not woken: with many consumers its reservations in vain
        would keep the store from those that find something.
        """
        for subscription in self._serving(buckets):
            if subscription.noticed(due):
                self._reserves.touch(subscription)
                self._to_reserve.ring()

    def _serving(self, buckets: Sequence[int] | None) -> Collection[Subscription]:
        """The consumers that serve some of these buckets, as their own or as backups."""
        if buckets is None:
            return self._subscriptions.values()
        if self._owners is None:
            serving = self._subscriptions.values()
            self._owners = sorted(
                ((each.start, owner) for owner in serving for each in owner.ranges),
                key=lambda entry: entry[0],
            )
            self._backups = [each for each in serving if each.backups.ranges]
        found = {each: None for each in self._backups if each.covers(buckets)}
        for bucket in buckets:
            place = bisect_right(self._owners, bucket, key=lambda entry: entry[0])
            if place and self._owners[place - 1][1].covers((bucket,)):
                found[self._owners[place - 1][1]] = None
        return found

    # Changes of messages by clients

    def created(self, messages: Sequence[NewMessage], outcomes: Sequence[Outcome]) -> None:
        """Notes the messages that this broker created, sooner than the store's notices come."""
        done = zip(messages, outcomes, strict=True)
        dues = {message.id: outcome.at or message.due for message, outcome in done if outcome.done}
        if dues:
            self.noticed(min(dues.values()), self._buckets_of(dues))

    def _buckets_of(self, ids: Collection[str]) -> list[int] | None:
        """The buckets of messages, sorted; None if they are too many to be worth it."""
        if len(ids) > _MOST_BUCKETS:
            return None
        return sorted({bucket_of(each, self.topic.settings.buckets) for each in ids})

    def with_sessions(self, changes: Sequence[Change]) -> list[Change]:
        """The changes, each with the session of its lease, where this broker granted it."""
        found = [self._subscriptions.get(change.name) for change in changes]
        return [
            change if subscription is None else subscription.with_session(change)
            for change, subscription in zip(changes, found, strict=True)
        ]

    def leases_changed(self, changes: Sequence[Change], outcomes: Sequence[Outcome]) -> None:
        """Notes extended leases, and forgets those that ended; one refused for another reason lives on."""
        for change, outcome in zip(changes, outcomes, strict=True):
            subscription = self._subscriptions.get(change.name)
            if subscription is None:  # it has left, or another broker granted the lease
                if self._limits.changed(change, outcome):
                    self._to_reserve.ring()
                continue
            if change.operation in EXTENSIONS:
                if outcome.done:
                    subscription.moved(change.id, outcome.version, outcome.at)
            elif outcome.done or outcome.refusal in LEASE_IS_OVER:
                subscription.forget(change)
                if self.topic.settings.most_in_flight is not None:
                    self._to_reserve.ring()
                if outcome.done and subscription.handled(change, self._clock.now_ms()):
                    self._touch(subscription)

    def degradation(self) -> Degradation | None:
        """Whether most consumers here return errors or are busy; None if not, or if none returns errors."""
        joined = [each for each in self._subscriptions.values() if each.joined]
        erring = sum(1 for each in joined if each.health.is_erring)
        busy = sum(1 for each in joined if each.receiver.busy and not each.health.is_erring)
        if not erring or 2 * (erring + busy) <= len(joined):
            return None
        words = (
            f"{erring} of {len(joined)} consumers of topic {self.topic.name!r} at this broker return errors"
            f"{f', {busy} are busy' if busy else ''}: those with errors get single messages"
        )
        public = "most consumers of a topic return errors or are busy"
        return Degradation(DegradationType.CONSUMERS, words, public, self.topic.name)

    # Pauses

    def topic_changed(self, topic: Topic) -> None:
        """The topic has other settings, or was paused or resumed."""
        self.topic = topic
        for subscription in self.subscriptions:
            subscription.topic_changed(topic)
        self.pause(pause_words(topic), by=ClosureType.PAUSED)
        self.changed()  # its limits may leave more room

    def pause(self, reason: str, *, by: ClosureType = ClosureType.PIPE) -> None:
        """Stops all deliveries for a reason; an empty reason ends what that closure stopped."""
        before = self.gate.paused
        self.gate.close(by, reason)
        reason = self.gate.paused
        if reason == before:
            return
        logger.warning(
            "%s",
            reason
            or f"topic {self.topic.name!r} is not paused any more: its consumers are served again",
            extra={
                "action": "topic_paused" if reason else "topic_resumed",
                "topic": self.topic.name,
            },
        )
        self._source.close()
        self._source, self._dealt = self._make_source(self.topic, self), None  # it resumes at once
        self._observed = frozenset()
        for subscription in self.subscriptions:
            if subscription.joined:
                self._pause(subscription)
        self.changed()

    def _pause(self, subscription: Subscription) -> None:
        subscription.piped = self.gate.is_piped
        subscription.pause(self.gate.paused)
        subscription.deal(NO_SHARE)
        subscription.receiver.paused(self.topic, self.gate.paused)

    # Dealing

    def _observe(self, now_ms: int, *, is_open: bool = True) -> frozenset[TopicMember]:
        """Shows the consumers to the source of shares. Others get their shares while they are not served."""
        members = {
            name: each.member(now_ms, is_open=is_open) for name, each in self._subscriptions.items()
        }
        observed = frozenset(members.values())
        if observed != self._observed or self._has_returned:
            self._observed = observed
            self._source.observe(
                [
                    ConnectedConsumer(members[name], each.returned)
                    for name, each in self._subscriptions.items()
                    if each.joined
                ]
            )
        return observed

    def _deal(self, now_ms: int) -> None:
        # Other brokers may reach the store. One that is alone keeps its shares, and asks the store by them.
        has_store = not self.gate.store_problem
        observed = self._observe(now_ms, is_open=has_store)
        if not has_store:
            observed = frozenset(each.member(now_ms) for each in self._subscriptions.values())
        shares = self._source.shares(observed, now_ms)
        is_new = shares is not self._dealt and bool(shares or self._dealt)
        if not is_new and not self._has_returned:
            return
        self._dealt, self._has_returned, self._owners = shares, False, None
        for name, subscription in self._subscriptions.items():
            share = shares.get(name, NO_SHARE)
            if is_new or share != subscription.dealt:
                subscription.deal(share)
                self._touch(subscription)
                subscription.receiver.shared(self.topic, subscription.share)
        own = (each for subscription in self.subscriptions for each in subscription.dealt.own)
        self._limits.dealt(self.topic, own)

    def _deal_at(self, now_ms: int) -> int | None:
        """When the shares change, or a consumer turns busy or free by the time; None if that is not known."""
        window_ms = self.topic.settings.window_ms
        serving = (each for each in self._subscriptions.values() if each.is_serving(now_ms))
        moments = [each.dry_ms + window_ms for each in serving if each.dry_ms is not None]
        erring = [each.health for each in self._subscriptions.values() if each.health.is_erring]
        moments += [at for each in erring if (at := each.gate.opens_at(now_ms) or 0) > now_ms]
        if self.gate.store_problem:  # its end has no signal
            moments.append(now_ms + _REST_MS)
        changes_at = self._source.changes_at(now_ms)
        return min(moments if changes_at is None else (*moments, changes_at), default=None)

    # Reserving

    def _reserve_moment(self, subscription: Subscription, now_ms: int) -> int | None:
        """When to reserve for a consumer: with others, unless a message is awaited now.

        A message is still reserved three quarters of `reserve_ahead_ms` before its due at least.
        """
        at_ms = subscription.reserve_at(now_ms)
        if at_ms is None or at_ms == now_ms or len(self._subscriptions) == 1:
            return at_ms
        return at_ms + (self._phase_ms - at_ms) % _GRID_MS

    async def _reserving(self) -> None:
        while not self._stopped:
            now_ms = self._clock.now_ms()
            if (closure := self.gate.closure(Work.RESERVE)) is not None:
                if closure.type is not ClosureType.COORDINATION:  # others see that by themselves
                    self._observe(now_ms, is_open=False)
                self._is_changed = True  # shares are dealt anew when it opens
                await self._rest(closure.type)
                continue
            self._deal_if_due(now_ms)
            if self._limits.has_to_look(self.topic, now_ms):
                await self._look_for_leases(now_ms)
                continue
            room = self._limits.room(self.topic, self._subscriptions.values(), now_ms)
            if room != 0 and (ready := self._ready(now_ms, room)):
                self._limits.opened(self.topic, now_ms)
                await asyncio.gather(*(self._reserve(each) for each in _joined(ready)))
                continue
            next_at = self._reserves.next_at(now_ms)
            if room == 0 and next_at is not None:
                if next_at <= now_ms:
                    self._limits.closed(self.topic, now_ms)
                opens_at = self._limits.opens_at(now_ms)
                next_at = None if opens_at is None else max(opens_at, next_at)
            await self._to_reserve.sleep(self._seconds_until(next_at, self._deals_at))

    async def _look_for_leases(self, now_ms: int) -> None:
        try:
            await self._limits.look(self.topic, lambda: self.subscriptions, now_ms)
        except TopicNotFound:
            self.topic_deleted()
            await self._to_reserve.sleep(None)
        except ChronolineError:
            await self._to_reserve.sleep(_REST_MS / 1000)

    def _deal_if_due(self, now_ms: int) -> None:
        """Deals when something changed; for the sake of single consumers, of many, not all the time."""
        at_ms = self._deals_at
        if self._is_touched and len(self._subscriptions) > _FEW:
            rest_ms = max(_DEAL_EVERY_MS, int(_DEAL_MS_EACH * len(self._subscriptions)))
            soon = self._last_dealt_ms + rest_ms
            at_ms = self._deals_at = soon if at_ms is None else min(at_ms, soon)
        elif self._is_touched:
            at_ms = now_ms
        is_due = at_ms is not None and at_ms <= now_ms
        if self._is_changed or is_due or now_ms < self._last_dealt_ms:
            self._is_changed = self._is_touched = False
            self._last_dealt_ms = now_ms
            self._deal(now_ms)
            self._deals_at = self._deal_at(now_ms)

    async def _rest(self, closed_by: ClosureType) -> None:
        """Waits a moment before it asks the gate again, or until it is woken."""
        if closed_by in OF_A_TOPIC:
            await self._end_if_deleted()
            await self._to_reserve.sleep(_LOOK_WHEN_PAUSED_MS / 1000)
        else:
            await self._to_reserve.sleep(_REST_MS / 1000)

    def _ready(self, now_ms: int, room: int | None = None) -> list[Reservation]:
        """The reservations that are due, the longest waiting first, within the room for messages."""
        ready: list[Reservation] = []
        backups = 0
        limit = _MOST_TOGETHER if room is None else min(room, _MOST_TOGETHER)
        due = self._reserves.due(now_ms, limit)  # the others keep their places
        for place, subscription in enumerate(due):
            most = None if room is None else max(1, room // (len(due) - place))
            command = None if backups == _AT_ONCE else subscription.reserve(now_ms, most)
            if command is not None:
                ready.append(Reservation(subscription, command))
                backups += command.is_backup
                room = None if room is None else room - command.limit
        return ready

    async def _reserve(self, joined: Sequence[Reservation]) -> None:
        """Makes reservations by one write."""
        asked: list[Future[list[Grant]]] = []

        def submit(threads: StorageThreads) -> Future[list[Grant]]:
            command = joined[0].command  # the others have the same times
            asked.append(
                threads.reserve(
                    self.topic.uid,
                    [each.recipient for each in joined],
                    lease_ms=command.lease_ms,
                    reserve_ahead_ms=command.reach_ms,
                )
            )
            return asked[0]

        try:
            grants = await self._access.change("reserve", submit, topic=self.topic.name)
            for (subscription, command), grant in zip(joined, grants, strict=True):
                self._granted(subscription, command, grant)
            answered = list(zip(joined, grants, strict=True))
            # Behind several messages the next one is not far: the next tick looks for it.
            sparse = {
                each.subscription: each.command.ranges
                for each, grant in answered
                if len(grant.leased) < _DENSE
            }
            next_times = await self._next_times(sparse)
            for (subscription, command), grant in answered:
                next_ts = next_times.get(subscription, command.asked_ms)
                subscription.completed(command, next_ts=next_ts, more=grant.more)
        except BaseException as error:
            self._not_reserved(joined, asked, error)
            if not isinstance(error, ChronolineError):
                raise
        finally:
            for subscription, _ in joined:
                self._touch(subscription)

    async def _next_times(
        self, shares: Mapping[Subscription, Sequence[BucketRange]]
    ) -> dict[Subscription, int | None]:
        if not shares:
            return {}
        found = await self._access.call(
            "next_ts",
            lambda store: store.next_times(self.topic.uid, list(shares.values())),
            topic=self.topic.name,
        )
        return dict(zip(shares, found, strict=True))

    def _granted(self, subscription: Subscription, command: Reserve, grant: Grant) -> None:
        self._metrics.reserved(self.topic.name, grant)
        if not subscription.reserved(command, grant.leased):
            return
        subscription.learn_sizes(grant.leased)
        self._pushes.touch(subscription)
        self._to_push.ring()
        for outcome in grant.refused:
            _summary.warning(
                "message_refused",
                "message %r of topic %r was %s",
                outcome.id,
                self.topic.name,
                outcome.reason,
                topic=self.topic.name,
            )

    def _not_reserved(
        self,
        joined: Sequence[Reservation],
        asked: Sequence[Future[list[Grant]]],
        error: BaseException,
    ) -> None:
        rest_ms = _rest_ms(error)
        is_pending = bool(asked) and not asked[0].done() and not self._stopped
        if is_pending and is_unknown(error):
            for subscription, command in joined:
                subscription.late(command, rest_ms=rest_ms, now_ms=self._clock.now_ms())
            self._background.start(self._await_late(joined, asked[0]))
        else:
            for subscription, command in joined:
                self._failed(subscription, command, error)
        if isinstance(error, TopicNotFound):
            self.topic_deleted()
        elif isinstance(error, ChronolineError):
            _summary.warning(
                "reserving_failed",
                "reserving for topic %r failed; trying again in %d ms: %s",
                self.topic.name,
                rest_ms,
                error,
                topic=self.topic.name,
            )

    async def _await_late(self, joined: Sequence[Reservation], answer: Future[list[Grant]]) -> None:
        """Gives the messages back when the answer comes; if it fails instead, looks them up."""
        try:
            grants = await asyncio.wrap_future(answer)
        except Exception as error:
            for subscription, command in joined:
                self._failed(subscription, command, error)
        else:
            for (subscription, command), grant in zip(joined, grants, strict=True):
                subscription.reserved(command, grant.leased)
        for subscription, _ in joined:
            self._touch(subscription)

    def _failed(
        self, subscription: Subscription, command: Command, error: BaseException
    ) -> list[Lease]:
        return subscription.failed(
            command,
            unknown=is_unknown(error),
            rest_ms=_rest_ms(error),
            now_ms=self._clock.now_ms(),
        )

    # Giving back

    async def _giving_back(self) -> None:
        while not self._stopped or self._leaving:
            now_ms = self._clock.now_ms()
            for each in self._chores.due(now_ms):
                while (chore := each.next_chore(now_ms)) is not None:
                    self._background.start(self._do(each, chore))
            for each in [each for each in self._leaving if each.is_finished]:
                self._leaving.remove(each)
                self._chores.forget(each)
            if not self._stopped or self._leaving:
                await self._to_settle.sleep(self._seconds_until(self._chores.next_at(now_ms)))

    async def _do(self, subscription: Subscription, chore: Chore) -> None:
        try:
            if isinstance(chore, Look):
                subscription.found(chore, await self._held(subscription.name, chore.session))
            elif isinstance(chore, Settle):
                await self._unreserve(chore)
                subscription.settled(chore)
                self._given_back(chore.leases)
        except TopicNotFound:
            self.topic_deleted()  # there is no topic to give them back to
        except Exception as error:
            self._not_done(subscription, chore, error)
        self._touch(subscription)

    def _given_back(self, leases: Sequence[Lease]) -> None:
        """Another consumer may get the messages now. The store's notice may come later, and may be lost."""
        self.noticed(None, self._buckets_of([each.id for each in leases]))
        self._to_reserve.ring()  # also if the settling itself moved the reservation

    async def _unreserve(self, chore: Settle) -> None:
        """Gives leases back. If the broker's clock is not trusted, the store's decides whether they live."""
        uid, again = self.topic.uid, chore.again
        changes = [lease_change(Operation.UNRESERVE, each) for each in chore.leases]

        def by_the_stores_clock(store: Store) -> list[Outcome]:
            now_ms = store.clock_ms()
            assert now_ms is not None  # a clock that is not trusted was compared with the store's
            return store.apply(uid, changes, again=again, now_ms=now_ms)

        if self._access.clock.problem:
            await self._access.call(
                "unreserve", by_the_stores_clock, topic=self.topic.name, changes=True
            )
        else:
            await self._access.change(
                "unreserve",
                lambda threads: threads.apply(uid, changes, again=again),
                topic=self.topic.name,
            )

    def _not_done(self, subscription: Subscription, chore: Chore, error: Exception) -> None:
        lapsing = self._failed(subscription, chore, error)
        if not isinstance(error, ChronolineError):
            self._metrics.failed("giving back", self.topic.name)
            logger.exception("giving back for topic %r failed; trying again", self.topic.name)
        if lapsing:
            _summary.warning(
                "not_given_back",
                "message %r of topic %r could not be given back; its lease lapses: %s",
                lapsing[0].id,
                self.topic.name,
                error,
                count=len(lapsing),
                topic=self.topic.name,
            )

    async def _held(self, consumer: str, session: str) -> list[Message]:
        """The rows that name one reservation."""
        found: list[Message] = []
        after, more = "", True
        while more:
            page = await self._access.call(
                "held",
                lambda store, after=after: store.select_held(  # type: ignore[misc]  # of this turn
                    self.topic.uid, consumer, session=session, after=after, limit=_PAGE
                ),
                topic=self.topic.name,
            )
            found += page.messages
            more = page.more
            if page.messages:
                after = page.messages[-1].id
        return found

    def _seconds_until(self, *moments: int | None) -> float | None:
        known = [each for each in moments if each is not None]
        return self._clock.seconds_until(min(known)) if known else None

    async def _end_if_deleted(self) -> None:
        """Without reservations, only this lookup finds that the topic was deleted."""
        try:
            await self._access.call(
                "topic", lambda store: store.get_topic(self.topic.uid), topic=self.topic.name
            )
        except TopicNotFound:
            self.topic_deleted()
        except ChronolineError:
            pass  # the next lookup repeats it

    def topic_deleted(self) -> None:
        """The topic was deleted: notifies its consumers. May be called twice."""
        for left in self._leaving:
            self._chores.forget(left)
        self._leaving.clear()
        if self.ended:
            return
        reason = f"topic {self.topic.name!r} was deleted"
        logger.info(reason, extra={"action": "topic_dropped", "topic": self.topic.name})
        self.ended = True
        for subscription in self.subscriptions:
            subscription.closed = True
            subscription.receiver.ended(self.topic, reason)
            for moments in (self._reserves, self._pushes, self._chores):
                moments.forget(subscription)
        self._subscriptions.clear()
        self._owners = None
        self._tell_ended(self)

    # Pushing

    async def _pushing(self) -> None:
        while not self._stopped:
            now_ms = self._clock.now_ms()
            if (closure := self.gate.closure(Work.PUSH)) is not None:
                is_paused = closure.type in OF_A_TOPIC  # its messages were given back already
                if not is_paused:
                    self._give_all_back()
                await self._to_push.sleep(None if is_paused else _REST_MS / 1000)
                continue
            room = self._limits.may_leave(self.topic, now_ms)
            if room is None:
                for subscription in self._pushes.due(now_ms):
                    self._push(subscription, now_ms)
            elif room:
                for subscription in self._pushes.due(now_ms):  # others stay due
                    room -= self._push(subscription, now_ms, room) if room else 0
            next_at = self._pushes.next_at(now_ms)
            if room == 0 and next_at is not None:
                next_at = max(next_at, self._limits.leaves_at(now_ms))
            await self._to_push.sleep(self._seconds_until(next_at))

    def _give_all_back(self) -> None:
        """Gives messages back while the clock is off: another broker, whose clock is right, can push them."""
        for subscription in self.subscriptions:
            subscription.give_back(subscription.agenda.give_back())

    def _push(self, subscription: Subscription, now_ms: int, most: int | None = None) -> int:
        """Pushes what is due, at most this number of messages, and answers how many left."""
        was_full = subscription.wanted <= 0
        ready = subscription.take_due(now_ms, most)
        if ready:
            subscription.receiver.push(self.topic, ready)
            self._metrics.pushed(self.topic.name, ready, now_ms)
            record_delivered(self.topic.name, ready, now_ms)
            if most is not None:
                self._limits.left(len(ready), now_ms)
                self._to_reserve.ring()
        if lapsed := subscription.take_lapsed():
            _summary.warning(
                "not_pushed",
                "message %r of topic %r was not pushed within its lease; it is served again",
                lapsed[0].id,
                self.topic.name,
                count=len(lapsed),
                topic=self.topic.name,
            )
        if was_full and subscription.wanted > 0:
            self._reserves.touch(subscription)
            self._to_reserve.ring()
        return len(ready)


def pause_words(topic: Topic) -> str:
    """Why the consumers of a paused topic get nothing, in one line; empty if it is not paused."""
    pause = topic.pause
    if pause is None:
        return ""
    by = f" by {pause.by}" if pause.by else ""
    why = f": {pause.reason}" if pause.reason else ""
    words = f"topic {topic.name!r} is paused since {show_moment(pause.since)}{by}{why}"
    return printable(words, instead=" ")


def _joined(ready: Sequence[Reservation]) -> list[list[Reservation]]:
    """The reservations in groups, each for one write.

    Backup ranges overlap: each reservation is single. So are those of a few consumers that are behind: one
    write that finds much for each of them costs more than several.
    """
    groups: dict[object, list[Reservation]] = {}
    for place, each in enumerate(ready):
        command = each.command
        is_alone = command.is_backup or (len(ready) <= _AT_ONCE and not each.subscription.is_idle)
        alike = (command.lease_ms, command.reach_ms)
        groups.setdefault(place if is_alone else alike, []).append(each)
    return list(groups.values())


def _rest_ms(error: BaseException) -> int:
    told_ms = error.retry_after_ms if isinstance(error, ChronolineError) else None
    return told_ms or _REST_MS


def _is_its_own(resumed: LeasedMessage, subscription: Subscription, holding: HeldVersions) -> bool:
    """Whether the consumer itself held a resumed lease: the resumption made one version more.

    A twin increases the version too, so the instance must match as well, if the row names one.
    """
    lease, before = resumed.lease, resumed.resumed_from
    if before is not None and instance_of(before) != subscription.session.instance:
        return False
    return lease.version - 1 in holding.get(lease.id, ())
