"""Groups: how readers share the partitions of a topic, and their progress."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from chronoline.log.contract import GroupState, Head


def share_of(member: str, members: Sequence[str], partitions: int) -> range:
    """The partitions of one member: neighbouring ones, as many as the others have, or one more.

    Every reader computes it from the sorted names, so that shares cover every partition once. A reader that
    is not a member, or one of more members than partitions, may have an empty share.
    """
    ordered = sorted(set(members))
    if member not in ordered:
        return range(0)
    place, count = ordered.index(member), len(ordered)
    return range(partitions * place // count, partitions * (place + 1) // count)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupProgress:
    """The progress of a group on one partition, with its holder and the end of the hold."""

    group: str
    partition: int
    sequence: int
    """The next event to read."""
    lag: int
    """The number of events from there on."""
    holder: str | None
    until_ms: int | None


def progress_of(state: GroupState, head: Head) -> GroupProgress:
    """Events that retention deleted count neither as read nor as lag."""
    sequence = max(state.sequence, head.first_sequence)
    return GroupProgress(
        group=state.group,
        partition=state.partition,
        sequence=sequence,
        lag=max(0, head.next_sequence - sequence),
        holder=state.holder,
        until_ms=state.until_ms if state.holder else None,
    )
