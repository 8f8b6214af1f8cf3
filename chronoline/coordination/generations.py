"""Generations in the coordination service: the members of each topic, as all its brokers agreed on them.

The entry `members/generations/UID` holds the generation of a topic (`core.generation`). Any broker that
serves the topic may write the next one, by compare-and-swap and only if the members changed. The entry
belongs to no session: the members outlive the broker that wrote them down.

Consumers and generations are under one prefix, `MEMBERS`, so that one view shows both at one revision. With
two views a broker could see a generation before the consumer that it names, and take that one for lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

from chronoline.coordination.contract import (
    Absent,
    Coordination,
    Delete,
    Put,
    Unchanged,
    View,
    key_of,
    prefix_of,
)
from chronoline.coordination.membership import ConsumerRecord, consumers_of
from chronoline.coordination.records import Record, records_of
from chronoline.core.generation import NO_MEMBERS, Generation, TopicMember

GENERATIONS = prefix_of("members", "generations")


@dataclass(frozen=True)
class MemberRecord(Record):
    """A member of a topic."""

    consumer: str
    broker: str = ""
    rack: str = ""
    busy: bool = False

    @property
    def member(self) -> TopicMember:
        return TopicMember(self.consumer, self.broker, self.rack, self.busy)


@dataclass(frozen=True)
class GenerationRecord(Record):
    """The generation of a topic."""

    topic_uid: int
    number: int
    window: int
    members: tuple[MemberRecord, ...] = ()
    before: tuple[MemberRecord, ...] | None = None
    """None if they are the same as `members`."""
    lost: tuple[str, ...] = ()

    @classmethod
    def of(cls, topic_uid: int, generation: Generation) -> Self:
        same = generation.before == generation.members
        return cls(
            topic_uid,
            generation.number,
            generation.window,
            _records(generation.members),
            None if same else _records(generation.before),
            tuple(sorted(generation.lost)),
        )

    @property
    def generation(self) -> Generation:
        before = self.members if self.before is None else self.before
        return Generation(
            number=self.number,
            window=self.window,
            members=tuple(each.member for each in self.members),
            before=tuple(each.member for each in before),
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
        """From a view of `MEMBERS`."""
        generations = {
            record.topic_uid: AgreedGeneration(record.generation, entry.version)
            for entry, record in records_of(GenerationRecord, view.under(GENERATIONS))
        }
        return cls(consumers_of(view), generations)

    def observed(self, topic_uid: int) -> list[TopicMember]:
        """The members of a topic that are connected, at whatever broker."""
        return [
            TopicMember(each.name, each.broker, each.rack, each.busy)
            for each in self.consumers.get(topic_uid, {}).values()
        ]


async def write_generation(
    coordination: Coordination, topic_uid: int, present: AgreedGeneration, following: Generation
) -> bool:
    """Writes the generation after the present one; False if another broker has written one.

    An unknown outcome raises `CommitUnknown`; the next view settles it.
    """
    key = key_of("members", "generations", topic_uid)
    value = GenerationRecord.of(topic_uid, following).encode()
    when = Unchanged(key, present.version) if present.version else Absent(key)
    return (await coordination.commit([Put(key, value)], when=[when])).is_made


async def forget_generation(coordination: Coordination, topic_uid: int) -> None:
    """Deletes the generation of a topic that was deleted. May be repeated."""
    await coordination.commit([Delete(key_of("members", "generations", topic_uid))])


def _records(members: Sequence[TopicMember]) -> tuple[MemberRecord, ...]:
    return tuple(MemberRecord(*each) for each in members)
