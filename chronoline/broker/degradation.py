"""Degradations: the reasons why the broker is not ready.

`/readyz`, `status`, the metric `broker_degradation_state`, the log and the purge all read them here. A type
of degradation begins and ends by measured conditions alone:

- storage: the store does not answer, or takes no changes (no room, or another process writes);
- clock: the broker's clock is too far from the store's;
- stopping: the node is stopping.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from enum import StrEnum

from chronoline.broker.store_access import StoreAccess
from chronoline.core.errors import BrokerUnavailable, ChronolineError, StoreUnavailable

logger = logging.getLogger(__name__)

_ASK_EVERY_S = 0.5
_PATIENCE_S = 2.0
_AWAY = "the store does not answer; see the log and /v1/info"
_NO_CHANGES = "the store takes no changes: it is full, or busy with other processes; see the log"


class DegradationType(StrEnum):
    STOPPING = "stopping"
    STORAGE = "storage"
    CLOCK = "clock"


@dataclass(frozen=True, slots=True)
class Degradation:
    """One degradation."""

    type: DegradationType
    reason: str
    """For the log, and for clients with a token."""
    public: str
    """For clients without a token. It names no hosts, unlike an error of the store's driver."""


class Degradations:
    """The current degradations of a node. Owned by the event loop."""

    def __init__(self, access: StoreAccess) -> None:
        self._access = access
        self._asked_s = -_ASK_EVERY_S
        self._asking: asyncio.Task[None] | None = None
        self._unanswered = ""
        self._told: frozenset[DegradationType] = frozenset()
        self.stopping = False

    @property
    def store_problem(self) -> str:
        """Why the store does not answer; empty while it does."""
        return self._access.problem or self._unanswered

    @property
    def current(self) -> tuple[Degradation, ...]:
        """The known degradations, without a call of the store. Empty while the node is ready."""
        found = []
        if self.stopping:
            words = "the broker is stopping"
            found.append(Degradation(DegradationType.STOPPING, words, words))
        if problem := self.store_problem:
            found.append(Degradation(DegradationType.STORAGE, problem, _AWAY))
        elif refusal := self._access.refusal:
            words = f"the store takes no changes: {refusal}"
            found.append(Degradation(DegradationType.STORAGE, words, _NO_CHANGES))
        if problem := self._access.clock.problem:
            found.append(Degradation(DegradationType.CLOCK, problem, problem))
        return tuple(found)

    async def refresh(self) -> tuple[Degradation, ...]:
        """Calls the store, at most twice a second and for 2 s; then as `current`."""
        due = time.monotonic() - self._asked_s >= _ASK_EVERY_S
        if self._asking is None and due and not self.stopping:
            self._asking = asyncio.create_task(self._ask(), name="asking the store")
        if (asking := self._asking) is not None:
            await asyncio.wait([asking])
            if not asking.cancelled():
                asking.result()
        self.log_changes()
        return self.current

    async def check(self) -> None:
        """Raises `BrokerUnavailable` or `StoreUnavailable`, with the public reasons."""
        found = await self.refresh()
        if not found:
            return
        words = "; ".join(each.public for each in found)
        if found[0].type is DegradationType.STORAGE:
            raise StoreUnavailable(words)
        raise BrokerUnavailable(words)

    async def keep_watch(self) -> None:
        """Logs changes, also without requests. Called every second."""
        if self.current:
            await self.refresh()
        else:
            self.log_changes()

    def stop(self) -> None:
        """The node stops: the store is not called any more. May be called twice."""
        self.stopping = True
        if self._asking is not None:
            self._asking.cancel()

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

    async def _ask(self) -> None:
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await self._access.call("ready", lambda store: store.find_topic("-"))
            self._unanswered = ""
        except TimeoutError:
            self._unanswered = f"the store did not answer within {_PATIENCE_S:g} s"
        except ChronolineError as error:
            self._unanswered = str(error)
        finally:
            self._asked_s = time.monotonic()
            self._asking = None
