"""Placement of buckets among members: the same wherever the same members are seen.

Views may differ for a moment. Then two members reach for the same messages, and the store gives each to one
of them.
"""

from __future__ import annotations

from collections.abc import Iterable

from chronoline.core.ranges import BucketRange


def deal_ranges(members: Iterable[str], buckets: int) -> dict[str, BucketRange]:
    """Simple ranges: by name, each member gets neighbours, about as many as every other.

    They cover every bucket exactly once, if there are members. With more of them than buckets some get an
    empty range.
    """
    names = sorted(set(members))
    if not names:
        return {}
    edges = [_edge(place, len(names), buckets) for place in range(len(names) + 1)]
    return {name: BucketRange(edges[place], edges[place + 1]) for place, name in enumerate(names)}


def _edge(place: int, members: int, buckets: int) -> int:
    """Where the range of a place begins: its part of the buckets, rounded half up."""
    return (2 * place * buckets + members) // (2 * members)


def deal_buckets(members: Iterable[str], me: str, buckets: int) -> BucketRange:
    """The buckets of one member, who is one whether the others know it already or not."""
    return deal_ranges({*members, me}, buckets)[me]
