"""How the readers of a group share the partitions of a topic."""

from __future__ import annotations

from collections.abc import Sequence


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
