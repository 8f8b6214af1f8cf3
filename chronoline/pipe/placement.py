"""Who serves what among the pipes that live, the same everywhere that sees the same pipes.

Views may differ for a moment. Then two pipes reach for the same messages, or the same partition, and the
store gives each to one of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from chronoline.core.ranges import BucketRange


def split_range(whole: BucketRange, pieces: int) -> list[BucketRange]:
    """A range cut into neighbours of about the same size; some are empty if it is small."""
    start, size = whole.start, whole.stop - whole.start
    return [
        BucketRange(start + piece * size // pieces, start + (piece + 1) * size // pieces)
        for piece in range(pieces)
    ]


def deal_partitions(members: Iterable[str], me: str, partitions: Sequence[int]) -> list[int]:
    """The partitions of one member, in turn among all by name."""
    names = sorted({*members, me})
    place = names.index(me)
    return [each for nth, each in enumerate(sorted(partitions)) if nth % len(names) == place]
