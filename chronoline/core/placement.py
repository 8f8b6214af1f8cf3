"""Placement of buckets and partitions on members: the same everywhere that sees the same members.

Views may differ for a moment. Then two members reach for the same messages, or the same partition, and the
store gives each to one of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from chronoline.core.ranges import BucketRange


def deal_ranges(members: Iterable[str], buckets: int) -> dict[str, BucketRange]:
    """Simple ranges: by name, each member gets neighbours, about as many as every other.

    They cover every bucket exactly once, if there are members. With more of them than buckets some get an
    empty range.
    """
    names = sorted(set(members))
    return dict(zip(names, even_ranges(len(names), buckets), strict=True))


def even_ranges(pieces: int, buckets: int) -> list[BucketRange]:
    """Neighbours that cover every bucket; their edges are rounded half up."""
    if not pieces:
        return []
    edges = [(2 * place * buckets + pieces) // (2 * pieces) for place in range(pieces + 1)]
    return [BucketRange(*edge) for edge in pairwise(edges)]


def deal_buckets(members: Iterable[str], me: str, buckets: int) -> BucketRange:
    """The buckets of one member, who is one whether the others know it already or not."""
    return deal_ranges({*members, me}, buckets)[me]


def split_range(whole: BucketRange, pieces: int) -> list[BucketRange]:
    """Cuts a range into neighbours of about the same size; some are empty if it is small."""
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
