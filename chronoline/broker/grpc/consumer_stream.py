"""The stream of a consumer: subscriptions, pushes, and changes of leases."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from chronoline.broker.context import BrokerContext
from chronoline.broker.grpc.client_stream import ClientStream
from chronoline.broker.grpc.consumers import ConsumerNames
from chronoline.broker.subscription import Subscription
from chronoline.core.errors import AlreadySubscribed, InvalidInput, NotSubscribed
from chronoline.core.limits import MAX_TIME_MS, MIN_LEASE_MS
from chronoline.core.message import Lease, LeasedMessage
from chronoline.core.ranges import BucketRange
from chronoline.core.rights import RightKind
from chronoline.core.topic import Topic
from chronoline.runtime.message_ids import new_id
from chronoline.wire.codec import delivery_to_wire
from chronoline.wire.v1 import chronoline_pb2 as pb

_PUSH_BYTES = 1024 * 1024
"""A frame of pushes is closed at about this size; one message may be larger."""
_MOST_HELD = 100_000
"""The most leases that a returning consumer can name in `holding`."""
_MOST_UNANSWERED = 100
"""The most unanswered subscriptions of a consumer that count; after more its leases are pushed again."""


class ConsumerClientStream(ClientStream[pb.ConsumerFrame, pb.ConsumerReply]):
    """Its name is the consumer's id. Loaders push to it."""

    partner = "consumer"
    right = RightKind.CONSUME
    prefix = "c-"
    frame_type = pb.ConsumerFrame
    reply_type = pb.ConsumerReply

    def __init__(self, parts: BrokerContext, names: ConsumerNames, client: str = "") -> None:
        super().__init__(parts, client)
        self._names = names
        self._subscriptions: dict[int, Subscription] = {}
        self._subscribing: dict[int, asyncio.Task[None]] = {}
        self._asked: int | None = None  # the topic of the last request
        self.busy = False
        self.instance = ""
        # Nothing is reserved for it while this is true.
        self._was_clogged = False

    # The interface for loaders

    @property
    def clogged(self) -> bool:
        return self.outbox.clogged

    @property
    def advance_ms(self) -> int:
        return self.measured.advance_ms

    def push(self, topic: Topic, leased: Sequence[LeasedMessage]) -> None:
        frame = pb.Push(topic_uid=topic.uid)
        size_bytes = 0
        for each in leased:
            frame.deliveries.append(delivery_to_wire(each))
            size_bytes += each.content_bytes
            if size_bytes >= _PUSH_BYTES:
                self.outbox.put(self.reply_type(push=frame), size_bytes)
                frame, size_bytes = pb.Push(topic_uid=topic.uid), 0
        if frame.deliveries:
            self.outbox.put(self.reply_type(push=frame), size_bytes)
        self._was_clogged |= self.outbox.clogged

    def shared(self, topic: Topic, share: BucketRange) -> None:
        share_frame = pb.Share(
            topic_uid=topic.uid, start_bucket=share.start, stop_bucket=share.stop
        )
        self.outbox.put(self.reply_type(share=share_frame))

    def paused(self, topic: Topic, reason: str) -> None:
        self.outbox.put(self.reply_type(share=pb.Share(topic_uid=topic.uid, reason=reason)))

    def ended(self, topic: Topic, reason: str) -> None:
        self._subscriptions.pop(topic.uid, None)
        self.outbox.put(
            self.reply_type(topic_ended=pb.TopicEnded(topic_uid=topic.uid, message=reason))
        )

    def replaced(self, topic: Topic) -> None:
        self._names.replace(self.name, self)

    def is_subscribed(self, topic_uid: int) -> bool:
        return topic_uid in self._subscriptions or topic_uid in self._subscribing

    @property
    def first_topic(self) -> int | None:
        """The topic by which its client chooses a broker, also before it is subscribed."""
        return next(iter(self._subscriptions), self._asked)

    # Requests of the client

    def _join(self, name: str, instance: str) -> None:
        self._names.join(name, instance, self)
        self.instance = instance or new_id()
        super()._join(name, instance)

    def leave(self) -> None:
        for task in self._subscribing.values():
            task.cancel()
        for subscription in self._subscriptions.values():
            self._parts.loaders.unsubscribe(subscription)
        self._subscriptions.clear()

    def _left(self) -> None:
        self.leave()
        self._names.leave(self.name, self)

    def _wrote(self) -> None:
        if self._was_clogged and not self.outbox.clogged:
            self._was_clogged = False
            for subscription in self._subscriptions.values():
                subscription.changed()

    def _busied(self, busy: bool) -> None:
        if busy != self.busy:
            self.busy = busy
            for subscription in self._subscriptions.values():
                subscription.changed()

    async def _carry_out(self, frame: pb.ConsumerFrame) -> None:
        match frame.WhichOneof("what"):
            case "credit":
                self._credit(frame.credit)
            case "subscribe":
                await self._subscribe(frame.seq, frame.subscribe)
            case "unsubscribe":
                self._unsubscribe(frame.seq, frame.unsubscribe)
            case _:  # another broker may have granted the leases to this instance
                reply = self.reply_type(seq=frame.seq)
                await self._change(frame, reply, session=f"{self.instance}/")

    async def _subscribe(self, seq: int, asked: pb.Subscribe) -> None:
        uid = self._asked = asked.topic_uid
        await self._check_right(uid)
        topic = await self._parts.topics.get(uid)
        if self.is_subscribed(uid):
            raise AlreadySubscribed(
                f"consumer {self.name!r} is subscribed to topic {topic.name!r} already"
            )
        lease_ms = asked.lease_ms or topic.settings.default_lease_ms
        if not MIN_LEASE_MS <= lease_ms <= MAX_TIME_MS:
            raise InvalidInput(f"a lease of {lease_ms} ms; at least {MIN_LEASE_MS} are needed")
        self._check_credit(asked.credit)
        if len(asked.holding) > _MOST_HELD:
            raise InvalidInput(
                f"{len(asked.holding)} leases held; at most {_MOST_HELD} can be named"
            )
        self._names.subscribing(self.name, uid, self)
        self._subscribing[uid] = _current_task()
        try:
            subscription, kept = await self._parts.loaders.subscribe(
                topic,
                self,
                lease_ms=lease_ms,
                credit=asked.credit,
                holding=_held(asked.holding, asked.unanswered),
                returning=asked.returning,
            )
        finally:
            del self._subscribing[uid]
        self._subscriptions[uid] = subscription
        self.outbox.put(self.reply_type(seq=seq, subscribed=_subscribed(topic, lease_ms, kept)))

    def _unsubscribe(self, seq: int, asked: pb.Unsubscribe) -> None:
        subscription = self._subscriptions.pop(asked.topic_uid, None)
        if subscription is None:
            raise NotSubscribed
        self._parts.loaders.unsubscribe(subscription)
        self.outbox.put(self.reply_type(seq=seq, outcomes=pb.Outcomes()))

    def _credit(self, credit: pb.Credit) -> None:
        self._check_credit(credit.more)
        subscription = self._subscriptions.get(credit.topic_uid)
        if subscription is None:
            return  # the subscription ended while this message was under way
        self._check_credit(subscription.credit + credit.more)
        subscription.grant(credit.more, self._parts.clock.now_ms())

    def _check_credit(self, credit: int) -> None:
        most = self._parts.limits.credit
        if not 0 <= credit <= most:
            raise InvalidInput(f"a credit of {credit}; it must be from 0 to {most}")


def _current_task() -> asyncio.Task[None]:
    task = asyncio.current_task()
    assert task is not None
    return task


def _held(holding: Iterable[pb.HeldLease], unanswered: int) -> dict[str, range]:
    """By id, the versions of leases that are the consumer's own: it can have missed the last ones."""
    unheard = min(max(unanswered, 0), _MOST_UNANSWERED)
    return {
        each.id: range(each.version, each.version + each.extending + unheard + 1)
        for each in holding
    }


def _subscribed(topic: Topic, lease_ms: int, kept: Sequence[Lease]) -> pb.Subscribed:
    return pb.Subscribed(
        topic_uid=topic.uid,
        lease_ms=lease_ms,
        window_ms=topic.settings.window_ms,
        kept=[
            pb.KeptLease(id=lease.id, version=lease.version, until_ms=lease.until) for lease in kept
        ],
    )
