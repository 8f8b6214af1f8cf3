"""Generations in the coordination service: the members of each topic, as all its brokers agreed on them.

The entry `members/generations/UID` holds the generation of a topic (`core.generation`). Any broker that
serves the topic may write the next one, by compare-and-swap and only if the members changed. The entry
belongs to no session: the members outlive the broker that wrote them down.

Consumers and generations are under one prefix, `MEMBERS`, so that one view shows both at one revision. With
two views a broker could see a generation before the consumer that it names, and take that one for lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple, Self

from chronoline.coordination.contract import (
    Absent,
    Condition,
    Coordination,
    Delete,
    Put,
    Unchanged,
    View,
    key_of,
    parts_of,
    prefix_of,
)
from chronoline.coordination.membership import ConsumerRecord, consumers_of
from chronoline.coordination.records import Record, is_newer, record_of
from chronoline.coordination.topics import is_open_condition
from chronoline.core.generation import NO_MEMBERS, Generation, TopicMember
from chronoline.core.topic import Topic

GENERATIONS = prefix_of("members", "generations")

Places = Mapping[str, int]


@dataclass(frozen=True)
class MemberList(Record):
    """The members of a topic, in columns: thousands fit into an entry."""

    consumers: tuple[str, ...]
    brokers: tuple[int, ...]
    """For each its place in the brokers of the generation."""
    racks: tuple[int, ...]
    """For each its place in the racks of the generation."""
    busy: tuple[int, ...] = ()
    """The places of those that are busy."""

    @classmethod
    def of(cls, members: Sequence[TopicMember], brokers: Places, racks: Places) -> Self:
        return cls(
            tuple(each.consumer for each in members),
            tuple(brokers[each.broker] for each in members),
            tuple(racks[each.rack] for each in members),
            tuple(place for place, each in enumerate(members) if each.busy),
        )

    def members(self, brokers: Sequence[str], racks: Sequence[str]) -> tuple[TopicMember, ...]:
        busy = frozenset(self.busy)
        columns = zip(self.consumers, self.brokers, self.racks, strict=True)
        return tuple(
            TopicMember(consumer, brokers[broker], racks[rack], place in busy)
            for place, (consumer, broker, rack) in enumerate(columns)
        )


@dataclass(frozen=True)
class GenerationRecord(Record):
    """The generation of a topic."""

    FORMAT: ClassVar[int] = 2

    topic_uid: int
    number: int
    window: int
    brokers: tuple[str, ...]
    racks: tuple[str, ...]
    members: MemberList
    before: MemberList | None = None
    """None if they are the same as `members`."""
    lost: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raises `ValueError` for places that are not there."""
        try:
            _ = self.generation
        except IndexError as error:
            raise ValueError("it names a broker or a rack that it does not have") from error

    @classmethod
    def of(cls, topic_uid: int, generation: Generation) -> Self:
        everyone = (*generation.members, *generation.before)
        brokers = _places(each.broker for each in everyone)
        racks = _places(each.rack for each in everyone)
        same = generation.before == generation.members
        return cls(
            topic_uid,
            generation.number,
            generation.window,
            tuple(brokers),
            tuple(racks),
            MemberList.of(generation.members, brokers, racks),
            None if same else MemberList.of(generation.before, brokers, racks),
            tuple(sorted(generation.lost)),
        )

    @cached_property
    def generation(self) -> Generation:
        members = self.members.members(self.brokers, self.racks)
        before = self.before
        return Generation(
            number=self.number,
            window=self.window,
            members=members,
            before=members if before is None else before.members(self.brokers, self.racks),
            lost=frozenset(self.lost),
        )


class AgreedGeneration(NamedTuple):
    """The generation of a topic, and the version of its entry."""

    generation: Generation = NO_MEMBERS
    version: int = 0
    """0 if there is no entry."""


NOTHING_AGREED = AgreedGeneration()


class Members(NamedTuple):
    """The consumers and the generation of each topic, by its uid, at one revision."""

    consumers: dict[int, dict[str, ConsumerRecord]]
    generations: dict[int, AgreedGeneration]

    @classmethod
    def of(cls, view: View) -> Self:
        """From a view of `MEMBERS`. An unreadable generation has no members, and can be replaced."""
        generations = {}
        for entry in view.under(GENERATIONS).entries.values():
            record = record_of(GenerationRecord, entry)
            uid = parts_of(entry.key)[-1]
            if record is not None:
                generations[record.topic_uid] = AgreedGeneration(record.generation, entry.version)
            elif uid.isdecimal() and not is_newer(GenerationRecord, entry):
                generations[int(uid)] = AgreedGeneration(NO_MEMBERS, entry.version)
        return cls(consumers_of(view), generations)

    def observed(self, topic_uid: int) -> list[TopicMember]:
        """The members of a topic that are connected, at whatever broker."""
        return [
            TopicMember(each.name, each.broker, each.rack, each.busy)
            for each in self.consumers.get(topic_uid, {}).values()
        ]


async def write_generation(
    coordination: Coordination, topic: Topic, present: AgreedGeneration, following: Generation
) -> bool:
    """Writes the generation after the present one; False if another broker has written one.

    The first one needs the topic's open entry in the registry, else it raises `TopicNotReady`: a broker that
    has not heard of a deletion yet would leave a generation that nobody removes. An unknown outcome raises
    `CommitUnknown`; the next view settles it.
    """
    key = key_of("members", "generations", topic.uid)
    value = GenerationRecord.of(topic.uid, following).encode()
    when: list[Condition] = [Unchanged(key, present.version)]
    if not present.version:
        when = [Absent(key), await is_open_condition(coordination, topic)]
    return (await coordination.commit([Put(key, value)], when=when)).is_made


async def forget_generation(coordination: Coordination, topic_uid: int) -> None:
    """Deletes the generation of a topic that was deleted. May be repeated."""
    await coordination.commit([Delete(key_of("members", "generations", topic_uid))])


def _places(names: Iterable[str]) -> Places:
    """A place for each name, in their order."""
    return {name: place for place, name in enumerate(sorted(set(names)))}
