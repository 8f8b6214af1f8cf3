"""How the readers of a group share the partitions of a topic, and how far they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from chronoline.log.contract import GroupState, Head


def share_of(member: str, members: Sequence[str], partitions: int) -> range:
    """The partitions of one member: neighbouring ones, as many as the others have, or one more.

    Computed the same by everybody from the sorted names, so that shares cover every partition once. Who is
    not among the members, or has no share because there are more members than partitions, has an empty one.
    """
    ordered = sorted(set(members))
    if member not in ordered:
        return range(0)
    place, count = ordered.index(member), len(ordered)
    return range(partitions * place // count, partitions * (place + 1) // count)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupProgress:
    """How far a group is on one partition, and who works on it until when."""

    group: str
    partition: int
    sequence: int
    """The next event to read."""
    lag: int
    """How many events there are from it on."""
    holder: str | None
    until_ms: int | None


def progress_of(state: GroupState, head: Head) -> GroupProgress:
    """What retention has dropped is neither read nor behind."""
    sequence = max(state.sequence, head.first_sequence)
    return GroupProgress(
        group=state.group,
        partition=state.partition,
        sequence=sequence,
        lag=max(0, head.next_sequence - sequence),
        holder=state.holder,
        until_ms=state.until_ms if state.holder else None,
    )
