"""Topics by name, which is all that HTTP says of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from chronoline.broker.topics import Topics
from chronoline.core.errors import TopicNotFound
from chronoline.core.topic import Topic
from chronoline.runtime.bounded_cache import BoundedCache

_MOST_KNOWN = 10_000

Result = TypeVar("Result")


class Finder:
    """Remembers which topic a name means. One that was dropped may have been made anew: then it is that."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._known = BoundedCache[str, Topic](_MOST_KNOWN)

    async def find(self, name: str) -> Topic:
        """As the store has it now. Raises `TopicNotFound`."""
        self._known.pop(name)
        topic = await self._topics.find(name)
        self._known.put(name, topic)
        return topic

    async def on(self, name: str, work: Callable[[Topic], Awaitable[Result]]) -> Result:
        """Does something with a topic. Raises `TopicNotFound`."""
        known = self._known.get(name)
        if known is not None:
            try:
                return await work(known)
            except TopicNotFound:  # nothing was changed
                self._topics.forget(known.uid)
        return await work(await self.find(name))
