"""The state of a cluster: its brokers, and the consumers of all topics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from chronoline.core.ranges import BucketRange
from chronoline.wire.v1 import chronoline_pb2 as pb


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterBroker:
    """A broker, as the one that answers sees it."""

    name: str
    address: str
    version: str
    """Empty for a broker of a release that does not tell the others."""
    roles: tuple[str, ...]
    rack: str
    health: str
    """`healthy`, `degraded`, or `inactive`: it was connected a while ago, and is not any more."""
    problems: tuple[str, ...]
    """Why it is degraded."""
    notices: tuple[str, ...]
    """Its notices of other brokers: one that vanished, a clock that is off."""
    topics: int
    consumers: int
    messages_per_s: int
    load_percent: int
    """The part of one core that it uses."""
    clock_ahead_ms: float | None
    """The time by which its clock is ahead of that of the answering broker; None if unknown."""

    @classmethod
    def from_wire(cls, wire: pb.Broker) -> Self:
        known = wire.HasField("clock_ahead_us")
        return cls(
            name=wire.id,
            address=wire.address,
            version=wire.version,
            roles=tuple(wire.roles),
            rack=wire.rack,
            health=wire.health,
            problems=tuple(wire.problems),
            notices=tuple(wire.notices),
            topics=wire.topics,
            consumers=wire.consumers,
            messages_per_s=wire.messages_per_s,
            load_percent=wire.load_percent,
            clock_ahead_ms=wire.clock_ahead_us / 1000 if known else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferredBroker:
    """A broker to which clients of a topic go."""

    name: str
    address: str
    rack: str
    health: str
    """`degraded` if it serves clients worse than others do."""

    @classmethod
    def from_wire(cls, wire: pb.Broker) -> Self:
        return cls(name=wire.id, address=wire.address, rack=wire.rack, health=wire.health)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscriber:
    """A consumer of a topic, and the buckets that it serves."""

    consumer: str
    topic: str
    topic_uid: int
    broker: str
    rack: str
    busy: bool
    own: tuple[BucketRange, ...]
    backups: tuple[BucketRange, ...]
    """The ranges that it serves while its own ones give nothing, in order."""

    @classmethod
    def from_wire(cls, wire: pb.Subscriber) -> Self:
        own = tuple(BucketRange(each.start, each.stop) for each in wire.own)
        if not own and wire.start_bucket < wire.stop_bucket:  # a broker of an earlier version
            own = (BucketRange(wire.start_bucket, wire.stop_bucket),)
        return cls(
            consumer=wire.consumer,
            topic=wire.topic,
            topic_uid=wire.topic_uid,
            broker=wire.broker,
            rack=wire.rack,
            busy=wire.busy,
            own=own,
            backups=tuple(BucketRange(each.start, each.stop) for each in wire.backups),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerProblem:
    """A reason why a broker is degraded, or not ready."""

    type: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The brokers and the consumers of a cluster, as one broker sees them."""

    answered_by: str
    brokers: list[ClusterBroker]
    """The one that answers first."""
    subscribers: list[Subscriber]
    coordination_problem: str
    """Why other brokers may have changed since; empty while the coordination service answers."""
    store_problem: str = ""
    """Why the store does not answer; empty while it does."""
    degradations: tuple[BrokerProblem, ...] = ()
    """The problems of the broker that answers."""

    @classmethod
    def from_wire(cls, wire: pb.Cluster) -> Self:
        return cls(
            answered_by=wire.answered_by,
            brokers=[ClusterBroker.from_wire(each) for each in wire.brokers],
            subscribers=[Subscriber.from_wire(each) for each in wire.subscribers],
            coordination_problem=wire.coordination_problem,
            store_problem=wire.store_problem,
            degradations=tuple(
                BrokerProblem(type=each.type, reason=each.reason) for each in wire.degradations
            ),
        )
