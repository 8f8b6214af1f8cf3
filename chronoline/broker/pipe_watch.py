"""Topics that a pipe fires: while the pipe is alive, consumers of its topic get nothing.

A pipe shows by heartbeats in the store that it is alive (`stores/members.py`), and the broker's clock
decides. One read of the store answers for all topics. It is made when a consumer subscribes, and in every
window while there are loaders: a pipe that starts pauses the consumers, and one that ends resumes them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from chronoline.broker.loader import Loader
from chronoline.broker.metrics import BrokerMetrics
from chronoline.broker.store_access import StoreAccess
from chronoline.core.errors import ChronolineError
from chronoline.core.topic import Topic
from chronoline.runtime.alarm import Alarm
from chronoline.runtime.tasks import supervise
from chronoline.stores.members import lane_group, pipe_groups

_SHORTEST_MS = 200
_LONGEST_MS = 2_000
"""The shortest and the longest interval between two reads, whatever the windows of the topics are."""


class PipeWatch:
    """Pauses the loaders of topics that a pipe fires. Owned by the event loop."""

    def __init__(
        self, access: StoreAccess, metrics: BrokerMetrics, loaders: Callable[[], Iterable[Loader]]
    ) -> None:
        self._access = access
        self._metrics = metrics
        self._loaders = loaders
        self._loader_added = Alarm()
        self._asking: asyncio.Task[None] | None = None

    def loader_added(self) -> None:
        """A loader was added."""
        if self._asking is None:
            self._asking = supervise("asking for pipes", self._ask, self._metrics.failed)
        self._loader_added.ring()

    def stop(self) -> None:
        """May be called twice."""
        if self._asking is not None:
            self._asking.cancel()

    async def why_paused(self, topic: Topic) -> str:
        """Why consumers of the topic get nothing; empty if no pipe fires it."""
        return _reason(topic, await self._live_groups())

    async def _ask(self) -> None:
        while True:
            while (rest_s := self._rest_s) is None:
                await self._loader_added.sleep(None)
            await asyncio.sleep(rest_s)
            try:
                groups = await self._live_groups()
            except ChronolineError:
                continue  # the loaders notice it too; nothing changes until the store answers
            for loader in self._loaders():
                loader.pause(_reason(loader.topic, groups))

    @property
    def _rest_s(self) -> float | None:
        windows_ms = [each.topic.settings.window_ms for each in self._loaders()]
        if not windows_ms:
            return None
        return max(_SHORTEST_MS, min(_LONGEST_MS, *windows_ms)) / 1000

    async def _live_groups(self) -> frozenset[str]:
        now_ms = self._access.clock.now_ms()
        return await self._access.call("members", lambda store: store.live_groups(now_ms=now_ms))


def _reason(topic: Topic, live_groups: frozenset[str]) -> str:
    # The tasks of a pipe go on firing while its own process hangs, or drains them.
    if live_groups.isdisjoint((*pipe_groups(topic), lane_group(topic))):
        return ""
    return (
        f"a pipe fires topic {topic.name!r}, so it accepts no consumers: read the pipe's output topic, "
        f"or stop the pipe with `chronoline pipe stop --name {topic.name}`"
    )
