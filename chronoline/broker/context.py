"""The parts of a broker that its interfaces (gRPC, HTTP, targets) share."""

from __future__ import annotations

from dataclasses import dataclass

from chronoline.broker.carrier import Carrier
from chronoline.broker.client_clocks import Timekeeper
from chronoline.broker.cluster.agreement import Agreement
from chronoline.broker.cluster.clocks import ClusterClocks
from chronoline.broker.cluster.member import ClusterMember
from chronoline.broker.degradation import Degradations
from chronoline.broker.gate import Gate
from chronoline.broker.limits import Limits
from chronoline.broker.loaders import Loaders
from chronoline.broker.metrics import BrokerMetrics
from chronoline.broker.overseer import Overseer
from chronoline.broker.schedules import Schedules
from chronoline.broker.store_access import StoreAccess
from chronoline.broker.topics import Topics
from chronoline.runtime.admission import Admission
from chronoline.runtime.clock import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerContext:
    """The shared parts of one broker."""

    broker: str
    """The name of the broker in its cluster."""
    run: str
    """Unique to this run of the broker."""
    version: str
    member: ClusterMember
    overseer: Overseer
    clocks: ClusterClocks
    agreement: Agreement | None
    """With other brokers; None for a broker that is alone."""
    access: StoreAccess
    topics: Topics
    loaders: Loaders
    carrier: Carrier
    schedules: Schedules
    gate: Gate
    degradation: Degradations
    clock: Clock
    """For reads. A time that is written comes from `access.clock`, which can refuse."""
    timekeeper: Timekeeper
    metrics: BrokerMetrics
    limits: Limits
    admission: Admission
