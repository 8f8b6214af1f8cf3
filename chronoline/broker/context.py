"""The parts of a broker that its interfaces (gRPC, HTTP, targets) share."""

from __future__ import annotations

from dataclasses import dataclass

from chronoline.broker.carrier import Carrier
from chronoline.broker.client_clocks import Timekeeper
from chronoline.broker.degradation import Degradations
from chronoline.broker.limits import Limits
from chronoline.broker.loaders import Loaders
from chronoline.broker.metrics import BrokerMetrics
from chronoline.broker.store_access import StoreAccess
from chronoline.broker.topics import Topics
from chronoline.runtime.admission import Admission
from chronoline.runtime.clock import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerContext:
    """The shared parts of one broker."""

    broker: str
    version: str
    access: StoreAccess
    topics: Topics
    loaders: Loaders
    carrier: Carrier
    degradation: Degradations
    clock: Clock
    """For reads. A time that is written comes from `access.clock`, which can refuse."""
    timekeeper: Timekeeper
    metrics: BrokerMetrics
    limits: Limits
    admission: Admission
