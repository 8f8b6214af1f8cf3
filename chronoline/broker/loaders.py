"""The loaders of a node: one for each topic while it has consumers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator

from chronoline.broker.degradation import Degradation
from chronoline.broker.gate import ClosureType, Gate, Work
from chronoline.broker.loader import Loader, pause_words
from chronoline.broker.metrics import BrokerMetrics
from chronoline.broker.pipe_watch import PipeWatch
from chronoline.broker.shares import LocalShares, ShareFactory
from chronoline.broker.store_access import StoreAccess
from chronoline.broker.subscription import NOTHING_HELD, HeldVersions, Receiver, Subscription
from chronoline.core.errors import InvalidInput, TopicPiped
from chronoline.core.message import Lease
from chronoline.core.topic import Topic
from chronoline.runtime.clock import Clock
from chronoline.runtime.tasks import TaskSet
from chronoline.stores.contract import Notice


class Loaders:
    """The loaders by topic. Owned by the event loop."""

    def __init__(
        self,
        access: StoreAccess,
        clock: Clock,
        metrics: BrokerMetrics,
        gate: Gate,
        shares: ShareFactory = LocalShares,
        *,
        latest: Callable[[Topic], Topic] = lambda topic: topic,
    ) -> None:
        """`shares` makes the source of a topic's shares. `latest` answers a topic as it is known by now."""
        self._access = access
        self._gate = gate
        self._shares = shares
        self._latest = latest
        self._clock = clock
        self._metrics = metrics
        self._loaders: dict[int, Loader] = {}
        self._ending = TaskSet()
        self._pipes = PipeWatch(access, metrics, lambda: tuple(self._loaders.values()))

    @property
    def subscriptions(self) -> list[Subscription]:
        return [each for loader in self._loaders.values() for each in loader.subscriptions]

    def of(self, topic_uid: int) -> Loader | None:
        """The loader of a topic; None while the topic has no consumers here."""
        return self._loaders.get(topic_uid)

    async def subscribe(
        self,
        topic: Topic,
        receiver: Receiver,
        *,
        lease_ms: int,
        credit: int,
        holding: HeldVersions = NOTHING_HELD,
        for_target: bool = False,
        returning: bool = False,
    ) -> tuple[Subscription, list[Lease]]:
        """Subscribes a receiver to a topic.

        Raises `AlreadySubscribed`, `TopicPiped`, and `InvalidInput` for a topic that has a target. A
        `returning` receiver was subscribed before, and is accepted although a pipe fires the topic: it gets
        nothing until the pipe has ended. So is a target. All are accepted while the topic is paused.
        """
        if topic.settings.target is not None and not for_target:
            raise InvalidInput(
                f"topic {topic.name!r} has a target, which gets its messages instead of consumers; "
                f"`chronoline topic show {topic.name}` says which"
            )
        paused = await self._pipes.why_paused(topic)
        topic = self._latest(topic)
        if paused and not (returning or for_target):
            raise TopicPiped(paused)
        loader = self._loaders.get(topic.uid)
        if loader is None or loader.ended:
            loader = self._loaders[topic.uid] = Loader(
                topic,
                self._access,
                self._clock,
                self._metrics,
                self._gate.for_topic(),
                shares=self._shares,
                ended=self._retire,
            )
            loader.start()
            self._pipes.loader_added()
        loader.pause(paused)
        loader.pause(pause_words(topic), by=ClosureType.PAUSED)
        try:
            return await loader.subscribe(
                receiver, lease_ms=lease_ms, credit=credit, holding=holding
            )
        finally:
            self._retire(loader)

    def topic_changed(self, topic: Topic) -> None:
        """A topic has other settings, or was paused or resumed."""
        if (loader := self._loaders.get(topic.uid)) is not None:
            loader.topic_changed(topic)

    def unsubscribe(self, subscription: Subscription) -> None:
        loader = self._loaders.get(subscription.topic.uid)
        if loader is not None:
            loader.unsubscribe(subscription)
            self._retire(loader)

    def noticed(self, notices: Iterable[Notice]) -> None:
        """Passes on the notices of the store's watch. A topic that is not known may be any."""
        for notice in notices:
            if notice.topic_uid is None:
                for loader in self._loaders.values():
                    loader.noticed(notice.due)  # in any bucket
            elif (loader_of := self._loaders.get(notice.topic_uid)) is None:
                continue
            elif notice.returned is not None:
                loader_of.returned(notice.returned)
            else:
                loader_of.noticed(notice.due, notice.buckets)

    def degradations(self) -> Iterator[Degradation]:
        """The topics most of whose consumers return errors or are busy."""
        for loader in self._loaders.values():
            if (degradation := loader.degradation()) is not None:
                yield degradation

    def moved(self) -> None:
        """The clock was moved, or the store does not answer: sleepers compute their wait anew."""
        for loader in self._loaders.values():
            loader.changed()

    def store_changed(self) -> None:
        """The store does not answer any more, or does again: the other brokers hear of it at once."""
        for loader in self._loaders.values():
            loader.store_changed()

    def tidy(self) -> None:
        """Forgets lapsed leases."""
        now_ms = self._clock.now_ms()
        if self._gate.closure(Work.FORGET) is None:
            for subscription in self.subscriptions:
                subscription.forget_lapsed(now_ms)
        self.moved()  # a consumer on trial may get its next message

    async def stop(self) -> None:
        self._pipes.stop()
        loaders, self._loaders = list(self._loaders.values()), {}
        await asyncio.gather(*(loader.stop() for loader in loaders), *self._ending)

    def _retire(self, loader: Loader) -> None:
        if not loader.subscriptions and self._loaders.get(loader.topic.uid) is loader:
            del self._loaders[loader.topic.uid]
            self._ending.start(loader.stop())
