"""Members: processes that share a piece of work, known by heartbeats in the store.

A member is alive until a moment that it moves ahead with each beat. That is a hint for the division of work.
Safety comes from the conditional write of each change.

The pipes that fire a topic are a group, named by the topic's uid: a topic that is deleted and created again
has pipes of its own. Older versions named the group by the topic's name. Their members count while they live.
The tasks of their lanes are another group, so that nobody takes a task for a pipe.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from chronoline.core.topic import Topic

if TYPE_CHECKING:
    from chronoline.stores.contract import Store

FORGOTTEN_AFTER_MS = 3_600_000
"""A dead member is deleted after this time."""
MAX_DETAILS_BYTES = 65_536
_PIPES = "pipes of topic "
_LANES = "lanes of topic "
_BEATS_ALIVE = 4
_SHORTEST_LIFE_MS = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A process of a group."""

    name: str
    until_ms: int
    """It is alive before this moment."""
    stopping: bool
    """Whether it was asked to stop."""
    details: str
    """Its own description: text that the store does not read."""

    def alive(self, now_ms: int) -> bool:
        return now_ms < self.until_ms


def life_ms(beat_every_ms: int) -> int:
    """The time for which a beat is valid: a member counts as dead after four missing beats, at least 2 s."""
    return max(_SHORTEST_LIFE_MS, _BEATS_ALIVE * beat_every_ms)


def pipe_group(topic: Topic) -> str:
    """The group of the pipes that fire a topic."""
    return f"{_PIPES}{topic.uid}"


def lane_group(topic: Topic) -> str:
    """The group of the tasks of the lanes that fire a topic."""
    return f"{_LANES}{topic.uid}"


def pipe_groups(topic: Topic) -> tuple[str, ...]:
    """The group of the pipes that fire a topic, and the group of those of an older version."""
    if topic.name.startswith((_PIPES, _LANES)):  # it could be the group of another topic
        return (pipe_group(topic),)
    return (pipe_group(topic), topic.name)


def pipe_members(store: Store, topic: Topic) -> list[Member]:
    """The pipes that fire a topic, of any version, also those that died less than an hour ago."""
    return [member for group in pipe_groups(topic) for member in store.members(group)]
