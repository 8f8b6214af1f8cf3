"""Topics that change while they are served: changes by other processes reach this broker's loaders.

The store itself grants no leases on a paused topic. The broker has to know of it so that it gives back what
it reserved, tells its consumers, and shows it. It reads the changed topics after each notice of the store
that may concern them, and every few seconds, because a notice can be lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence

from chronoline.broker.metrics import Sample
from chronoline.broker.store_access import StoreAccess
from chronoline.core.errors import ChronolineError
from chronoline.core.topic import Topic
from chronoline.runtime.alarm import Alarm
from chronoline.runtime.service import AsyncService
from chronoline.runtime.tasks import supervise
from chronoline.stores.contract import Notice

logger = logging.getLogger(__name__)

_LOOK_EVERY_S = 5.0
"""The interval between two reads without a notice."""
_REST_S = 0.1
"""The shortest interval between two reads. On SQLite each commit of another process is a notice."""


class TopicWatch(AsyncService):
    """Watches from `start` to `stop`; then it does not start again. Owned by the event loop."""

    def __init__(
        self,
        access: StoreAccess,
        changed: Callable[[Topic], None],
        failed: Callable[[str, str], None],
    ) -> None:
        """`changed` gets each topic whose revision is new to this broker."""
        self._access = access
        self._changed = changed
        self._failed = failed
        self._known: dict[int, Topic] = {}
        self._to_look = Alarm()
        self._looking: asyncio.Task[None] | None = None
        self._problem = ""

    @property
    def paused(self) -> Sequence[Topic]:
        """The paused topics, as far as this broker knows."""
        return [each for each in self._known.values() if each.pause is not None]

    def noticed(self, notices: Iterable[Notice]) -> None:
        """Passes on the notices of the store's watch."""
        if any(each.topic_changed or each.topic_uid is None for each in notices):
            self._to_look.ring()

    def learn(self, topic: Topic) -> None:
        """A topic as the store has it, or had it a moment ago."""
        known = self._known.get(topic.uid)
        if known is None or known.revision < topic.revision:
            self._known[topic.uid] = topic
            self._changed(topic)

    def latest(self, topic: Topic) -> Topic:
        """The topic as it was learned last, if that is newer than what another read has found."""
        known = self._known.get(topic.uid)
        return topic if known is None or known.revision <= topic.revision else known

    def samples(self) -> Iterable[Sample]:
        for topic in self.paused:
            yield "topic_paused", (topic.name,), 1.0

    async def _start(self) -> None:
        self._to_look.ring()  # a store that does not answer must not delay the start
        self._looking = supervise("watching topics", self._watch, self._failed)

    async def _stop(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_REST_S)
            await self._to_look.sleep(_LOOK_EVERY_S - _REST_S)
            await self._look()

    async def _look(self) -> None:
        before = set(self._known)
        try:
            found = await self._access.call("changed_topics", lambda store: store.changed_topics())
        except ChronolineError as error:
            if not self._problem:
                logger.warning("reading the changed topics failed; trying again: %s", error)
            self._problem = str(error)
            return
        self._problem = ""
        for topic in found:
            self.learn(topic)
        for uid in before - {topic.uid for topic in found}:
            self._known.pop(uid, None)
