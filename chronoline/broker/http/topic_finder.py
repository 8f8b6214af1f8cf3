"""Topics by name, which is all that HTTP says of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from chronoline.broker.topics import Topics
from chronoline.core.errors import TopicNotFound
from chronoline.core.topic import Topic

_MOST_KNOWN = 10_000

Result = TypeVar("Result")


class Finder:
    """Remembers which topic a name means. One that was dropped may have been made anew: then it is that."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._known: dict[str, Topic] = {}

    async def find(self, name: str) -> Topic:
        """As the store has it now. Raises `TopicNotFound`."""
        self._known.pop(name, None)
        topic = await self._topics.find(name)
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[name] = topic
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
