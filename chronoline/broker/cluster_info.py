"""The state of the cluster, as one broker sees it: for gRPC, HTTP and the command line alike."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from chronoline.broker.context import BrokerContext
from chronoline.broker.degradation import OF_OTHERS, Degradation
from chronoline.broker.subscription import Subscription
from chronoline.coordination.generations import NOTHING_AGREED
from chronoline.coordination.membership import BrokerRecord, ConsumerRecord
from chronoline.core.dealer import NO_SHARE, Dealer, Share
from chronoline.core.errors import ChronolineError
from chronoline.core.generation import window_at
from chronoline.core.selector import BrokerHealth
from chronoline.core.topic import Topic

_NOT_CURRENT = "the coordination service does not answer; other brokers may have changed since"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerInfo:
    """A broker of the cluster."""

    record: BrokerRecord
    health: BrokerHealth
    problems: tuple[str, ...] = ()
    """Why it is degraded, in words; of other brokers those that name no hosts."""
    notices: tuple[str, ...] = ()
    """Its notices of other brokers: they are not its own state, and change no choice."""
    clock_ahead_ms: float | None = None
    """The time by which its clock is ahead of ours; None if it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriberInfo:
    """A consumer of a topic, at any broker."""

    consumer: str
    topic_uid: int
    topic: str
    """Empty if it is not known: neither the store nor the registry answers."""
    broker: str
    rack: str
    busy: bool
    share: Share


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterInfo:
    """The brokers, this one first, and all consumers."""

    brokers: list[BrokerInfo]
    subscribers: list[SubscriberInfo]
    degradations: tuple[Degradation, ...]
    coordination_problem: str


async def cluster_info(parts: BrokerContext) -> ClusterInfo:
    """The state of now; whether the store answers is asked."""
    degraded = await parts.degradation.refresh()
    own = [_local(parts, each) for each in parts.loaders.subscriptions]
    there = {(each.topic_uid, each.consumer) for each in own}
    others = [
        await _remote(parts, record)
        for consumers in parts.overseer.consumers.values()
        for record in consumers.values()
        if record.broker != parts.broker and (record.topic_uid, record.name) not in there
    ]
    return ClusterInfo(
        brokers=list(_brokers(parts, degraded)),
        subscribers=own + others,
        degradations=degraded,
        coordination_problem="" if parts.overseer.is_current else _NOT_CURRENT,
    )


def _brokers(parts: BrokerContext, degraded: tuple[Degradation, ...]) -> Iterator[BrokerInfo]:
    own = parts.member.record
    others = [each for each in parts.overseer.known() if each.record.name != own.name]
    own_state = [each for each in degraded if each.type not in OF_OTHERS]
    yield BrokerInfo(
        record=own,
        health=BrokerHealth.DEGRADED if own_state else BrokerHealth.HEALTHY,
        problems=tuple(each.reason for each in own_state),
        notices=tuple(each.reason for each in degraded if each.type in OF_OTHERS),
        clock_ahead_ms=0.0,
    )
    offsets = {name: each.likely_ms for name, each in parts.clocks.offsets.items()}
    for other in others:
        told = other.record.told
        yield BrokerInfo(
            record=other.record,
            health=other.health,
            problems=tuple(words for type, words in told if type not in OF_OTHERS),
            notices=tuple(words for type, words in told if type in OF_OTHERS),
            clock_ahead_ms=offsets.get(other.record.name),
        )


def _local(parts: BrokerContext, subscription: Subscription) -> SubscriberInfo:
    return SubscriberInfo(
        consumer=subscription.name,
        topic_uid=subscription.topic.uid,
        topic=subscription.topic.name,
        broker=parts.broker,
        rack=subscription.receiver.rack,
        busy=subscription.receiver.busy,
        share=subscription.dealt,
    )


async def _remote(parts: BrokerContext, record: ConsumerRecord) -> SubscriberInfo:
    topic = parts.topics.known(record.topic_uid)
    if topic is None and not parts.gate.store_problem:  # else each question waits for its time-out
        with suppress(ChronolineError):  # it was deleted, or the store does not answer
            topic = await parts.topics.get(record.topic_uid)
    share = NO_SHARE if topic is None else _agreed_share(parts, topic, record.name)
    return SubscriberInfo(
        consumer=record.name,
        topic_uid=record.topic_uid,
        topic=parts.topics.name_of(record.topic_uid),
        broker=record.broker,
        rack=record.rack,
        busy=record.busy,
        share=share,
    )


def _agreed_share(parts: BrokerContext, topic: Topic, consumer: str) -> Share:
    """The share of a consumer of another broker, by the topic's generation."""
    if parts.agreement is None:
        return NO_SHARE
    agreed = parts.agreement.members.generations.get(topic.uid, NOTHING_AGREED)
    window = window_at(parts.clock.now_ms(), topic.settings.window_ms)
    shares = agreed.generation.shares_in(
        window, buckets=topic.settings.buckets, dealer=Dealer.RACK_AWARE
    )
    return shares.get(consumer, NO_SHARE)
