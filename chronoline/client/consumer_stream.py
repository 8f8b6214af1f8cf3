"""The client's side of a consumer's stream: pushed messages wait for their due, then are handed over."""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from chronoline.client.brokers import Brokers
from chronoline.client.leases import AsyncLease
from chronoline.client.outcomes import Outcome
from chronoline.client.requests import RequestKind, change_bytes
from chronoline.client.stream import Stream
from chronoline.client.topics import Topic
from chronoline.core.change import Change
from chronoline.core.errors import (
    BrokerUnavailable,
    ChronolineError,
    ClientClosed,
    ConsumerReplaced,
    NotSubscribed,
    OutcomeUnknown,
    TopicNotFound,
)
from chronoline.runtime.alarm import PreciseAlarm
from chronoline.runtime.tasks import TaskSet
from chronoline.wire.codec import write_changes
from chronoline.wire.codes import FailureKind, error_of
from chronoline.wire.v1 import chronoline_pb2 as pb

logger = logging.getLogger(__name__)

_LEAVING_S = 2.0
_NO_LEASE_MS = 1_000
_ACCEPTED_S = 3.0
"""The first wait for an accepted subscription while there is another broker to go to; it doubles."""
_ACCEPTED_AT_MOST_S = 48.0
_GRANTED_PARTS = 4
"""Credit leaves by itself when it is this part of what is free."""


@dataclass(slots=True, eq=False)
class _Subscription:
    topic: Topic
    lease_ms: int
    """The requested duration, 0 for the topic's default; after the answer, the one from the broker."""
    prefetch: int
    subscribed: asyncio.Future[None]
    """Done when the broker has answered on this stream."""
    held: dict[str, AsyncLease] = field(default_factory=dict)
    """Pushed and not settled: leases that wait for their due or for a handler, and those under work."""
    to_grant: int = 0
    """Credit that became free, and that the broker does not know of."""
    is_granting: bool = False
    """Whether a frame with credit leaves in this turn of the loop."""
    paused: str = ""
    """The broker's reason for pushing nothing to any consumer for now."""
    asked: bool = False
    """Whether the request was sent on this stream."""
    resting: asyncio.TimerHandle | None = None
    """The wait before it is repeated, on this stream."""
    accepted: bool = False
    """Whether the broker has accepted it once."""
    unanswered: int = 0
    """The number of requests since the last answer: each may have made new versions of the held leases."""
    leaving: bool = False
    """No more messages are wanted; held ones are still processed."""
    left: asyncio.Future[None] | None = None
    """Done when the broker has confirmed, and pushes nothing more."""

    @property
    def can_wait(self) -> bool:
        """Whether the broker has most of the credit anyway, so that the rest travels with another frame.

        A frame for each message would cost as much as its ack.
        """
        return _GRANTED_PARTS * self.to_grant < self.prefetch - len(self.held)


class ConsumerStream(Stream):
    """Its name is the consumer. `next` returns leases, each at its due."""

    method = "Consume"
    frame_type = pb.ConsumerFrame
    reply_type = pb.ConsumerReply
    kind = pb.PreferRequest.KIND_CONSUMER

    def __init__(self, brokers: Brokers, name: str, *, timeout_s: float) -> None:
        super().__init__(brokers, name, timeout_s=timeout_s)
        self._subscriptions: dict[int, _Subscription] = {}
        self._early: list[tuple[int, int, AsyncLease]] = []  # a heap by due
        self._order = 0
        self._alarm = PreciseAlarm(self._hand_over)
        self._due: deque[AsyncLease] = deque()
        self._handed = asyncio.Event()
        self._settled = asyncio.Event()
        self._ended: ChronolineError | None = None
        self._last: ChronolineError | None = None
        self._rests = False
        self._accepted_s = _ACCEPTED_S
        self._giving = TaskSet()

    # The interface for consumers

    async def subscribe(self, topic: Topic, *, lease_ms: int = 0, prefetch: int) -> None:
        """Subscribes to a topic. Raises the broker's error."""
        if self.failure is not None:
            raise self.failure
        future = asyncio.get_running_loop().create_future()
        subscription = _Subscription(topic, lease_ms, prefetch, future)
        self._subscriptions[topic.uid] = subscription
        self._topic_uid = self._topic_uid or topic.uid
        self.open()
        if self._ready:
            self._ask_for(subscription)
        try:
            async with asyncio.timeout(self._timeout_s):
                await asyncio.shield(future)
        except TimeoutError:
            self._subscriptions.pop(topic.uid, None)
            raise BrokerUnavailable(
                f"{self._connection.address} did not accept the subscription to topic {topic.name!r} within "
                f"{self._timeout_s:g} s{self._because}"
            ) from None
        except ChronolineError:
            self._subscriptions.pop(topic.uid, None)
            raise

    async def next(self) -> AsyncLease:
        """Waits for the next message that is due.

        Raises `TopicNotFound` when a topic was deleted, and `ConsumerReplaced` when another process has
        connected under this consumer's name.
        """
        while True:
            while self._due:
                lease = self._due.popleft()
                if lease.is_live:
                    lease.in_hand = True
                    lease.handed_over_us = self.time.now_us()
                    return lease
                self.lose(lease)
            error = self._ended or self.failure
            if error is not None:
                raise error
            self._handed.clear()
            await self._handed.wait()

    def lease_ms(self, topic_uid: int) -> int:
        """The duration of its leases."""
        subscription = self._subscriptions.get(topic_uid)
        if subscription is None:
            raise NotSubscribed
        return subscription.lease_ms

    @property
    def shortest_lease_s(self) -> float:
        """The shortest duration of the leases of all its topics."""
        known_ms = [each.lease_ms for each in self._subscriptions.values() if each.lease_ms]
        return min(known_ms, default=_NO_LEASE_MS) / 1000

    @property
    def held(self) -> list[AsyncLease]:
        """All leases that are not settled."""
        return [each for one in self._subscriptions.values() for each in one.held.values()]

    async def settle(self, lease: AsyncLease, change: Change, *, again: bool = False) -> Outcome:
        """Sends a change of a lease. Raises `OutcomeUnknown` also if the store cannot tell its outcome.

        The change leaves with the version that the lease has at that moment.
        """
        kind = RequestKind(change.operation, lease.topic_uid)
        outcome: Outcome
        (outcome,) = await self.request(kind, [(lease, change)], again=again)
        if outcome.unknown:
            raise OutcomeUnknown(
                f"the {change.operation} of message {lease.id!r}: {outcome.reason}"
            )
        return outcome

    def done_with(self, lease: AsyncLease) -> None:
        """The lease is settled: there is room for another."""
        subscription = self._subscriptions.get(lease.topic_uid)
        if subscription is None or subscription.held.get(lease.id) is not lease:
            return
        del subscription.held[lease.id]
        if subscription.leaving:
            self._settled.set()
            return
        subscription.to_grant += 1
        if not subscription.is_granting and not subscription.can_wait:
            subscription.is_granting = True
            asyncio.get_running_loop().call_soon(self._grant, subscription)

    def lose(self, lease: AsyncLease) -> None:
        """The lease is lost."""
        lease.lost.set()
        self.done_with(lease)

    def _grant(self, subscription: _Subscription) -> None:
        """Sends one frame for all credit that became free in this turn of the loop."""
        subscription.is_granting = False
        for frame in self._credit_of(subscription):
            self._send_frame(frame)

    def _riders(self) -> list[pb.ConsumerFrame]:
        return [
            frame
            for subscription in self._subscriptions.values()
            for frame in self._credit_of(subscription)
        ]

    def _credit_of(self, subscription: _Subscription) -> list[pb.ConsumerFrame]:
        """The frame that grants what became free; none if nothing did, or nothing is wanted now."""
        wanted = not self._rests and not subscription.leaving
        if not (self._ready and wanted and subscription.to_grant):
            return []
        more, subscription.to_grant = subscription.to_grant, 0
        return [pb.ConsumerFrame(credit=pb.Credit(topic_uid=subscription.topic.uid, more=more))]

    async def all_settled(self) -> None:
        """Waits until no lease is held: settled, lost, or without hope of an answer."""
        while self.held and not self._closed and self.failure is None:
            self._settled.clear()
            await self._settled.wait()

    async def close(self) -> None:
        await super().close()
        for subscription in self._subscriptions.values():
            _settle(subscription.subscribed, ClientClosed())
        self._settled.set()
        self._alarm.close()
        self._ended = self._ended or ClientClosed()
        self._handed.set()

    def _fail(self, error: ChronolineError) -> None:
        super()._fail(error)
        for subscription in self._subscriptions.values():
            _settle(subscription.subscribed, error)
        if isinstance(error, ConsumerReplaced):
            for lease in self.held:
                self.lose(lease)
        self._handed.set()
        self._settled.set()

    async def unsubscribe_all(self) -> None:
        """Stops pushes. Gives back messages that were not handed over; the others are still renewed."""
        waiting = []
        for subscription in self._wanted:
            subscription.leaving = True
            if self._ready:
                subscription.left = asyncio.get_running_loop().create_future()
                waiting.append(subscription.left)
                self._send_unsubscribe(subscription)
        if waiting:
            await asyncio.wait(waiting, timeout=_LEAVING_S)
        await self._give_back_unbegun()

    async def rest(self) -> None:
        """Gives back messages that wait here; grants no credit before `go_on`."""
        self._rests = True
        await self._give_back_unbegun()

    def go_on(self) -> None:
        """Grants credit again: a handler is free."""
        if self._rests:
            self._rests = False
            for subscription in self._subscriptions.values():
                self._grant(subscription)

    async def _give_back_unbegun(self, topic_uid: int | None = None) -> None:
        """Gives back waiting messages of one topic, or of all."""

        def leaves(lease: AsyncLease) -> bool:
            return topic_uid in (None, lease.topic_uid)

        waiting = [*(each for _, _, each in self._early), *self._due]
        unbegun = list(filter(leaves, waiting))
        self._early = [each for each in self._early if not leaves(each[2])]
        heapq.heapify(self._early)
        self._due = deque(each for each in self._due if not leaves(each))
        with suppress(TimeoutError):  # then they lapse
            async with asyncio.timeout(_LEAVING_S):
                live = (each for each in unbegun if each.is_live)
                await asyncio.gather(*map(self._give_back, live))

    async def _give_back(self, lease: AsyncLease) -> None:
        try:
            await lease.give_back()
        except ChronolineError as error:
            logger.info("message %r could not be given back: %s", lease.id, error)

    @property
    def _because(self) -> str:
        return "" if self._last is None else f": {self._last}"

    def _interrupted(self, error: ChronolineError) -> None:
        super()._interrupted(error)
        self._last = error
        for subscription in self._subscriptions.values():
            if subscription.resting is not None:
                subscription.resting.cancel()  # the next stream repeats it by itself

    # The stream

    def _request_frame(
        self, kind: RequestKind, items: Sequence[Any], seq: int, *, again: bool
    ) -> pb.ConsumerFrame:
        frame = pb.ConsumerFrame(seq=seq)
        changes = [change._replace(version=lease.version) for lease, change in items]
        write_changes(frame, kind.topic_uid, changes, again=again)
        return frame

    def _size_bytes(self, kind: RequestKind, item: tuple[AsyncLease, Change]) -> int:
        return change_bytes(item[1])

    async def _welcomed(self) -> None:
        """Subscribes again and names the held leases, which come back under new versions.

        Until then no change of them is sent: it would name the old versions. A broker that accepts none for a
        while may be cut off from the store; another one is tried.
        """
        for subscription in self._subscriptions.values():
            subscription.asked = False
            if subscription.subscribed.done():
                subscription.subscribed = asyncio.get_running_loop().create_future()
        while waiting := [each for each in self._to_resume if not each.subscribed.done()]:
            for subscription in waiting:
                if not subscription.asked:
                    self._ask_for(subscription)
            done, _ = await asyncio.wait(
                [each.subscribed for each in waiting],
                return_when=asyncio.FIRST_COMPLETED,
                timeout=self._accepted_s if self._brokers.has_others else None,
            )
            if not done:
                self._accepted_s = min(2 * self._accepted_s, _ACCEPTED_AT_MOST_S)
                raise BrokerUnavailable(
                    f"{self._connection.address} does not accept the subscription{self._because}"
                )
        for subscription in self._to_resume:
            if subscription.leaving:
                self._send_unsubscribe(subscription)
            else:
                asyncio.get_running_loop().call_soon(self._grant, subscription)

    @property
    def _wanted(self) -> list[_Subscription]:
        return [each for each in self._subscriptions.values() if not each.leaving]

    @property
    def _to_resume(self) -> list[_Subscription]:
        """The wanted subscriptions, and ended ones that hold leases, which have to be resumed."""
        return [each for each in self._subscriptions.values() if not each.leaving or each.held]

    def _ask_for(self, subscription: _Subscription) -> None:
        subscription.asked = True
        self._send_frame(self._subscribe_frame(subscription))

    def _send_unsubscribe(self, subscription: _Subscription) -> None:
        uid = subscription.topic.uid
        self._send_frame(pb.ConsumerFrame(unsubscribe=pb.Unsubscribe(topic_uid=uid), seq=-uid))

    def _subscribe_frame(self, subscription: _Subscription) -> pb.ConsumerFrame:
        subscription.to_grant = 0
        subscription.unanswered += 1
        free = 0 if subscription.leaving else subscription.prefetch - len(subscription.held)
        return pb.ConsumerFrame(
            subscribe=pb.Subscribe(
                topic_uid=subscription.topic.uid,
                lease_ms=subscription.lease_ms,
                credit=max(0, free),
                holding=[each.held for each in subscription.held.values()],
                unanswered=subscription.unanswered - 1,
                returning=subscription.accepted,
            ),
            seq=-subscription.topic.uid,
        )

    def _received(self, reply: pb.ConsumerReply) -> None:
        match reply.WhichOneof("what"):
            case "push":
                self._pushed(reply.push)
            case "subscribed":
                self._subscribed(reply.subscribed)
            case "share":
                self._shared(reply.share)
            case "topic_ended":
                self._end(reply.topic_ended.topic_uid, TopicNotFound(reply.topic_ended.message))
            case "failure":
                self._failed(reply)
            case "outcomes":
                self._left(reply.seq)

    def _shared(self, share: pb.Share) -> None:
        """With a reason no consumer has any buckets, and waiting messages are given back."""
        subscription = self._subscriptions.get(share.topic_uid)
        if subscription is None:
            return
        before, subscription.paused = subscription.paused, share.reason
        if share.reason:
            self._giving.start(self._give_back_unbegun(share.topic_uid))
        if share.reason and not before:
            logger.warning("no messages are pushed until this ends: %s", share.reason)
        elif before and not share.reason:
            logger.warning("topic %r is served again", subscription.topic.name)

    def _left(self, seq: int) -> bool:
        """Whether it was the answer to an unsubscribe."""
        subscription = self._subscriptions.get(-seq)
        if subscription is None or subscription.left is None:
            return False
        _settle(subscription.left, None)
        return True

    def _failed(self, reply: pb.ConsumerReply) -> None:
        subscription = self._subscriptions.get(-reply.seq)
        error = error_of(reply.failure)
        if subscription is None or subscription.subscribed.done():
            if not self._left(reply.seq):
                logger.warning("an error from the broker: %s", error)
        elif reply.failure.kind == FailureKind.REFUSED.value:
            self._end(subscription.topic.uid, error)
        else:
            self._last = error
            rest_s = (reply.failure.retry_after_ms or 100) / 1000
            subscription.resting = asyncio.get_running_loop().call_later(
                rest_s, self._ask_again, subscription
            )

    def _ask_again(self, subscription: _Subscription) -> None:
        if subscription in self._to_resume and not subscription.subscribed.done():
            self._ask_for(subscription)

    def _end(self, topic_uid: int, error: ChronolineError) -> None:
        """No more messages of this topic will come."""
        subscription = self._subscriptions.pop(topic_uid, None)
        if subscription is None:
            return
        for lease in subscription.held.values():
            lease.lost.set()
        if subscription.accepted:
            self._ended = error
        _settle(subscription.subscribed, error)
        self._handed.set()
        self._settled.set()

    def _subscribed(self, reply: pb.Subscribed) -> None:
        subscription = self._subscriptions.get(reply.topic_uid)
        if subscription is None:
            return
        subscription.lease_ms = reply.lease_ms
        subscription.accepted = True
        subscription.unanswered = 0
        self._log("subscribed", "is subscribed to topic %r", subscription.topic.name)
        self._accepted_s = _ACCEPTED_S
        kept = {each.id: each for each in reply.kept}
        for lease in list(subscription.held.values()):
            if lease.id in kept:
                lease.renewed(kept[lease.id].version, kept[lease.id].until_ms)
            elif not lease.is_settled:  # otherwise its ack may have been done, and is repeated
                self.lose(lease)
        _settle(subscription.subscribed, None)

    # Hand-over

    def _pushed(self, push: pb.Push) -> None:
        subscription = self._subscriptions.get(push.topic_uid)
        if subscription is None:
            return
        topic = subscription.topic
        for delivery in push.deliveries:
            lease = AsyncLease(self, topic.name, topic.uid, delivery)
            older = subscription.held.get(lease.id)
            if older is not None:
                self.lose(older)  # it lapsed, and was pushed to us again
            subscription.held[lease.id] = lease
            self._order += 1
            heapq.heappush(self._early, (delivery.due_ms, self._order, lease))
        self._hand_over()

    def _hand_over(self) -> None:
        now_us = self.time.now_us()
        handed = False
        while self._early and self._early[0][0] * 1000 <= now_us:
            _, _, lease = heapq.heappop(self._early)
            self._due.append(lease)
            handed = True
        if self._early:
            wait_s = (self._early[0][0] * 1000 - now_us) / 1_000_000
            self._alarm.set(wait_s)
        if handed:
            self._handed.set()


def _settle(future: asyncio.Future[None], error: ChronolineError | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
        future.exception()  # a waiting caller gets it; there may be none
