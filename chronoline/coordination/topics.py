"""The topic registry: which topics the cluster has, and in which state.

One entry for each name, `topics/NAME`, goes from *creating* to *open* to *deleting*, and vanishes. It is
keyed by name, not by uid, for two reasons: a name is unique without a second entry, until the last step of
a deletion; and the store gives the uid only when it provisions the topic, after the registration. From then
on the uid is in the entry, and each change compares it.

Entries belong to no session: a topic outlives its broker. A broker that works on a topic in *creating* or
*deleting* takes a claim (`claims`); another one goes on when that broker dies. Where registry and store
disagree, the store is right. The steps of a broker that has a claim are conditional on it (`guards`): one
that was overtaken changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from typing import Any

from chronoline.coordination.contract import (
    Absent,
    Condition,
    Coordination,
    Delete,
    KeyValue,
    Put,
    Unchanged,
    View,
    key_of,
    prefix_of,
)
from chronoline.coordination.records import Record, record_of, records_of
from chronoline.coordination.settlement import commit_surely
from chronoline.core.errors import SessionLost, TopicExists, TopicNotFound, TopicNotReady
from chronoline.core.topic import Topic

TOPICS = prefix_of("topics")
_OVERTAKEN = "the claim to the topic is another's; nothing was changed"


class TopicState(StrEnum):
    """The state of a topic in the registry."""

    CREATING = "creating"
    """Registered; its storage may be missing. Clients are refused."""
    OPEN = "open"
    DELETING = "deleting"
    """Clients are refused, and its storage is removed. The name is taken."""


@dataclass(frozen=True)
class RegisteredTopic(Record):
    """A topic of the registry."""

    name: str
    state: TopicState
    request: str
    """The request that created it: it recognises its own entry after a lost answer."""
    uid: int | None = None
    """None until its storage is provisioned."""
    settings: dict[str, Any] = field(default_factory=dict)
    """With which any broker can finish the creation."""

    @property
    def key(self) -> str:
        return key_of("topics", self.name)


def topics_of(view: View) -> dict[str, RegisteredTopic]:
    """The topics of a view of `TOPICS`, by name."""
    return {record.name: record for _, record in records_of(RegisteredTopic, view)}


async def is_open_condition(coordination: Coordination, topic: Topic) -> Unchanged:
    """The condition that a topic is open, and stays so. Raises `TopicNotReady` unless it is."""
    entry = await coordination.get(key_of("topics", topic.name))
    found = None if entry is None else record_of(RegisteredTopic, entry)
    if (
        entry is None
        or found is None
        or found.uid != topic.uid
        or found.state is not TopicState.OPEN
    ):
        raise TopicNotReady(f"topic {topic.name!r} is not open in the registry")
    return Unchanged(entry.key, entry.version)


class TopicRegistry:
    """Changes of the registry. Each is one compare-and-swap, and can be repeated after any error."""

    def __init__(self, coordination: Coordination) -> None:
        self._coordination = coordination

    async def find(self, name: str) -> RegisteredTopic | None:
        """The topic with this name, as it is now, in whatever state."""
        entry = await self._coordination.get(key_of("topics", name))
        return None if entry is None else record_of(RegisteredTopic, entry)

    async def register(
        self,
        name: str,
        *,
        request: str,
        settings: Mapping[str, Any] | None = None,
        guards: Sequence[Condition] = (),
    ) -> RegisteredTopic:
        """Registers a topic in *creating*. A repetition of the same request returns the topic as it is.

        Raises `TopicExists` while the name is taken by another request's topic, and `SessionLost` if a guard
        does not hold.
        """
        topic = RegisteredTopic(name, TopicState.CREATING, request, settings=dict(settings or {}))
        done = await commit_surely(
            self._coordination,
            [Put(topic.key, topic.encode())],
            when=[Absent(topic.key), *guards],
            is_ours=lambda found: _is_of(found, request),
        )
        if done.is_made:
            return topic
        found = await self.find(name)
        if found is None and guards:
            raise SessionLost(_OVERTAKEN)
        if found is None or found.request != request:
            raise TopicExists(f"topic {name!r} exists already, or is still being deleted")
        return found

    async def adopt(
        self, name: str, *, uid: int, state: TopicState = TopicState.OPEN
    ) -> RegisteredTopic | None:
        """Registers a topic that the store has and the registry lacks; None if the name has an entry."""
        topic = RegisteredTopic(name, state, request=f"adopted-{uid}", uid=uid)
        value = topic.encode()
        done = await commit_surely(
            self._coordination,
            [Put(topic.key, value)],
            when=[Absent(topic.key)],
            is_ours=partial(_has_value, value),
        )
        return topic if done.is_made else None

    async def open(
        self, name: str, *, request: str, uid: int, guards: Sequence[Condition] = ()
    ) -> RegisteredTopic:
        """The storage is provisioned, with this uid: clients may come.

        Raises `TopicNotFound` if the topic of this request is not there, or is deleted, and `SessionLost` if
        a guard does not hold.
        """
        return await self._change(name, TopicState.OPEN, request=request, uid=uid, guards=guards)

    async def delete(self, name: str, *, uid: int) -> RegisteredTopic:
        """Begins the deletion. Raises `TopicNotFound` unless the topic has this uid."""
        return await self._change(name, TopicState.DELETING, uid=uid)

    async def abort(
        self, name: str, *, request: str, guards: Sequence[Condition] = ()
    ) -> RegisteredTopic:
        """Begins to undo a creation that cannot be finished.

        Raises `TopicNotFound`, also if the topic is open, and `SessionLost` if a guard does not hold.
        """
        return await self._change(name, TopicState.DELETING, request=request, guards=guards)

    async def remove(self, name: str, *, request: str) -> None:
        """The last step of a deletion: the name is free. Nothing is done if it is not *deleting*."""
        await self._remove(
            name, lambda found: found.request == request and found.state is TopicState.DELETING
        )

    async def forget(self, name: str, *, uid: int) -> None:
        """Removes the entry of an open topic, and nothing else. Nothing is done if it is not this one."""
        await self._remove(name, lambda found: found.uid == uid and found.state is TopicState.OPEN)

    async def _remove(self, name: str, is_meant: Callable[[RegisteredTopic], bool]) -> None:
        entry = await self._coordination.get(key_of("topics", name))
        found = None if entry is None else record_of(RegisteredTopic, entry)
        if entry is not None and found is not None and is_meant(found):
            await commit_surely(
                self._coordination,
                [Delete(entry.key)],
                when=[Unchanged(entry.key, entry.version)],
                is_ours=lambda found: found is None,
            )

    async def _change(
        self,
        name: str,
        state: TopicState,
        *,
        request: str | None = None,
        uid: int | None = None,
        guards: Sequence[Condition] = (),
    ) -> RegisteredTopic:
        refused_at: int | None = None
        while True:
            entry = await self._coordination.get(key_of("topics", name))
            found = None if entry is None else record_of(RegisteredTopic, entry)
            if entry is None or found is None or not _may_become(found, state, request, uid):
                raise TopicNotFound(f"topic {name!r} is not there to become {state}")
            changed = replace(found, state=state, uid=found.uid if uid is None else uid)
            if changed == found:
                return found
            if entry.version == refused_at:  # so it was a guard that did not hold
                raise SessionLost(_OVERTAKEN)
            value = changed.encode()
            done = await commit_surely(
                self._coordination,
                [Put(entry.key, value)],
                when=[Unchanged(entry.key, entry.version), *guards],
                is_ours=partial(_has_value, value),
            )
            if done.is_made:
                return changed
            refused_at = entry.version


def _may_become(
    topic: RegisteredTopic, state: TopicState, request: str | None, uid: int | None
) -> bool:
    """Whether this is the topic that is meant, and is not past that state."""
    if request is not None and topic.request != request:
        return False
    if state is TopicState.OPEN:
        return topic.state is TopicState.CREATING or (
            topic.state is TopicState.OPEN and topic.uid == uid
        )
    if uid is None:  # an undone creation
        return topic.state is not TopicState.OPEN and topic.uid is None
    return topic.uid == uid


def _has_value(value: bytes, found: KeyValue | None) -> bool:
    return found is not None and found.value == value


def _is_of(found: KeyValue | None, request: str) -> bool:
    topic = None if found is None else record_of(RegisteredTopic, found)
    return topic is not None and topic.request == request
