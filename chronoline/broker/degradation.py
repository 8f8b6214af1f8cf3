"""Degradations: why the broker is not ready, and what else is not as it should be.

`/readyz`, `status`, the metric `broker_degradation_state` and the log all read them here. Each begins and
ends by measured conditions alone. The closures of the node's gate make it unready:

- storage: the store does not answer, or takes no changes (no room, or another process writes);
- coordination: the broker's session with the coordination service is not trusted, its entries are refused,
  or its store is not that of the cluster;
- clock: the broker's clock is too far from the store's;
- stopping: the node is stopping.

*Notices* are shown, and the node stays ready:

- drift: clocks of other brokers, or of the coordination service, are too far from the broker's;
- peers: brokers vanished without leaving;
- consumers: most consumers of a topic return errors or are busy; those with errors get single messages;
- producers: most requests of some producers fail; these are throttled.

The first two are about others. One broker that vanishes, or whose clock is off, is noticed by all: they are
shown apart from the state of the broker itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from chronoline.broker.gate import ClosureType, Gate
from chronoline.core.errors import BrokerUnavailable, StoreUnavailable

if (
    TYPE_CHECKING
):  # its libraries do not come with the base install, whose `status` reads this module
    from chronoline.broker.store_probe import StoreProbe

logger = logging.getLogger(__name__)


class DegradationType(StrEnum):
    STOPPING = ClosureType.STOPPING.value
    STORAGE = ClosureType.STORAGE.value
    COORDINATION = ClosureType.COORDINATION.value
    CLOCK = ClosureType.CLOCK.value
    DRIFT = "drift"
    PEERS = "peers"
    CONSUMERS = "consumers"
    PRODUCERS = "producers"


NOTICES = frozenset(
    {
        DegradationType.DRIFT,
        DegradationType.PEERS,
        DegradationType.CONSUMERS,
        DegradationType.PRODUCERS,
    }
)
"""Types that are shown, and leave the node ready."""
OF_OTHERS = frozenset({DegradationType.DRIFT, DegradationType.PEERS})
"""The notices that say nothing about this broker: it has seen them of others, as all the others may have."""


@dataclass(frozen=True, slots=True)
class Degradation:
    """One degradation."""

    type: DegradationType
    reason: str
    """For the log, and for clients with a token."""
    public: str
    """For clients without a token. It names no hosts, unlike an error of the store's driver."""
    topic: str = ""
    """Its topic, if it concerns one alone."""


class Degradations:
    """The current degradations of a node. Owned by the event loop."""

    def __init__(self, probe: StoreProbe, gate: Gate) -> None:
        self._probe = probe
        self._gate = gate
        self._told: frozenset[DegradationType] = frozenset()
        self._finders: list[Callable[[], Iterable[Degradation]]] = []
        self._noticed: dict[tuple[DegradationType, str], Degradation] = {}

    def watch(self, find: Callable[[], Iterable[Degradation]]) -> None:
        """Asks this part for its notices."""
        self._finders.append(find)

    @property
    def notices(self) -> tuple[Degradation, ...]:
        """The degradations that leave the node ready."""
        return tuple(each for find in self._finders for each in find())

    @property
    def store_problem(self) -> str:
        """Why the store does not answer; empty while it does."""
        return self._gate.store_problem

    @property
    def current(self) -> tuple[Degradation, ...]:
        """Why the node is not ready, without a call of the store. Empty while it is ready."""
        return tuple(
            Degradation(DegradationType(each.type.value), each.reason, each.public)
            for each in self._gate.closures
        )

    async def refresh(self) -> tuple[Degradation, ...]:
        """Asks the store, unless it was asked a moment ago; then `current` and `notices`."""
        if not self._gate.stopping:
            await self._probe.ask()
        self.log_changes()
        return (*self.current, *self.notices)

    async def check(self) -> None:
        """Raises `BrokerUnavailable` or `StoreUnavailable`, with the public reasons."""
        await self.refresh()
        found = self.current
        if not found:
            return
        words = "; ".join(each.public for each in found)
        if found[0].type is DegradationType.STORAGE:
            raise StoreUnavailable(words)
        raise BrokerUnavailable(words)

    def stop(self) -> None:
        """The node stops. May be called twice."""
        self._gate.stopping = True

    def log_changes(self) -> None:
        """Logs new degradations, and the end of all."""
        # The caller of `stop` logs that the node stops.
        found = [each for each in self.current if each.type is not DegradationType.STOPPING]
        types = frozenset(each.type for each in found)
        before, self._told = self._told, types
        if types - before:
            logger.warning(
                "not ready: %s",
                "; ".join(each.reason for each in found),
                extra={"action": "not_ready", "degraded": sorted(types)},
            )
        elif before and not types:
            logger.warning("ready again", extra={"action": "ready"})
        self._log_notices()

    def _log_notices(self) -> None:
        found = {(each.type, each.topic): each for each in self.notices}
        before, self._noticed = self._noticed, found
        for key, each in found.items():
            if key not in before:
                entities = {"degraded": [each.type.value], "topic": each.topic}
                logger.warning(
                    "degraded: %s", each.reason, extra={"action": "degraded", **entities}
                )
        for key, each in before.items():
            if key not in found:
                entities = {"degraded": [each.type.value], "topic": each.topic}
                logger.warning(
                    "no longer degraded: %s", each.reason, extra={"action": "recovered", **entities}
                )
