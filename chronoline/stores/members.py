"""Members: which processes share a piece of work, by heartbeats in the store.

A member is alive until a moment that it moves ahead with each beat. That is a hint on who should do what;
what keeps two of them from doing the same is the conditional write of each change.

The pipes that fire a topic are a group, named by the topic's uid: a topic that is dropped and created again
has pipes of its own. Older versions named the group by the topic's name. Their members count while they live.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from chronoline.core.topic import Topic

FORGOTTEN_AFTER_MS = 3_600_000
"""How long a member that is dead can still be looked at."""
MAX_DETAILS_BYTES = 65_536
_PIPES = "pipes of topic "


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    name: str
    until_ms: int
    """It is alive before this moment."""
    stopping: bool
    """Somebody asked it to stop."""
    details: str
    """What it says of itself: text that the store does not read."""

    def alive(self, now_ms: int) -> bool:
        return now_ms < self.until_ms


class Members(ABC):
    """The members of the groups of a store."""

    @abstractmethod
    def beat(
        self, group: str, name: str, *, until_ms: int, details: str = "", now_ms: int
    ) -> list[Member]:
        """Says that a member is alive until a moment, and answers all members as `members` does.

        One that was asked to stop stays so. Those that have been dead for an hour are forgotten, in all
        groups: a group whose topic was dropped has nobody who beats.
        """

    @abstractmethod
    def members(self, group: str) -> list[Member]:
        """All members of a group by name, also those that died a while ago."""

    @abstractmethod
    def live_groups(self, *, now_ms: int) -> frozenset[str]:
        """The groups with a member that is alive."""

    @abstractmethod
    def ask_to_stop(self, group: str, name: str | None = None) -> int:
        """Asks one member, or all, to stop; says how many were asked."""

    @abstractmethod
    def leave(self, group: str, name: str) -> None:
        """Forgets a member. Fine if it is not there."""


def pipe_group(topic: Topic) -> str:
    """The group of the pipes that fire a topic."""
    return f"{_PIPES}{topic.uid}"


def pipe_groups(topic: Topic) -> tuple[str, ...]:
    """The group of the pipes that fire a topic, and the group of those of an older version."""
    if topic.name.startswith(_PIPES):  # it could be the group of another topic
        return (pipe_group(topic),)
    return (pipe_group(topic), topic.name)


def pipe_members(store: Members, topic: Topic) -> list[Member]:
    """The pipes that fire a topic, of any version, also those that died a while ago."""
    return [member for group in pipe_groups(topic) for member in store.members(group)]
