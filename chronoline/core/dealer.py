"""The dealer: shares of a topic's buckets for its consumers, the same on every broker with the same members.

A share is a list of bucket ranges. A consumer is served from its *own* ranges first. Its *backups*, in order,
are the ranges of others, which it is served from while its own ones give nothing. Own ranges cover every
bucket exactly once. Backups overlap with them on purpose: the store gives each message to one consumer, and
the loser of a race gets no lease.

Simple ranges. Consumers in order of their names get neighbouring ranges of about the same size. There are no
backups: the range of a lost consumer waits for the next window.

Rack-aware. Consumers in order of rack and name get neighbouring ranges of about the same size, so the own
ranges of a rack are one region, as large as the rack. Every rack backs up every other one: its consumers
divide the other's region evenly, however many they are. So each bucket has exactly one backup in each other
rack. A rack begins with the region of the rack after it, and goes on in a circle: different racks come first
for different regions. With one rack this is the same as simple ranges.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import NamedTuple

from chronoline.core.placement import deal_ranges, even_ranges, split_range
from chronoline.core.ranges import BucketRange, cut_ranges


class Share(NamedTuple):
    """The bucket ranges of one consumer of a topic."""

    own: tuple[BucketRange, ...] = ()
    backups: tuple[BucketRange, ...] = ()
    """In the order in which it is served from them."""


NO_SHARE = Share()


class Dealer(StrEnum):
    """A way to deal buckets."""

    SIMPLE = "simple"
    RACK_AWARE = "rack-aware"

    def deal(self, consumers: Mapping[str, str], buckets: int) -> dict[str, Share]:
        """The share of each consumer. The mapping has their racks."""
        if self is Dealer.SIMPLE:
            return deal_simple(consumers, buckets)
        return deal_rack_aware(consumers, buckets)


def deal_simple(consumers: Collection[str], buckets: int) -> dict[str, Share]:
    """Simple ranges. With more consumers than buckets some have none."""
    dealt = deal_ranges(consumers, buckets)
    return {name: Share(own=_filled(own)) for name, own in dealt.items()}


def deal_rack_aware(consumers: Mapping[str, str], buckets: int) -> dict[str, Share]:
    """Rack-aware shares. The mapping has the rack of each consumer."""
    racks: dict[str, list[str]] = {}
    for rack, name in sorted((rack, name) for name, rack in consumers.items()):
        racks.setdefault(rack, []).append(name)
    in_order = [name for names in racks.values() for name in names]
    own = dict(zip(in_order, even_ranges(len(in_order), buckets), strict=True))
    regions = [BucketRange(own[each[0]].start, own[each[-1]].stop) for each in racks.values()]
    shares: dict[str, Share] = {}
    for place, names in enumerate(racks.values()):
        others = [*regions[place + 1 :], *regions[:place]]
        pieces = [split_range(region, len(names)) for region in others]
        for nth, name in enumerate(names):
            shares[name] = Share(_filled(own[name]), _filled(*(each[nth] for each in pieces)))
    return shares


def _filled(*ranges: BucketRange) -> tuple[BucketRange, ...]:
    return tuple(each for each in ranges if each.start < each.stop)


def pass_on(shares: Mapping[str, Share], lost: Collection[str]) -> dict[str, Share]:
    """The shares while some consumers are lost: their backups own the buckets, until they are dealt anew.

    Of the living backups of a bucket the one gets it in whose order it comes earliest. A bucket without one
    stays with the lost consumer.
    """
    own = {name: list(share.own) for name, share in shares.items()}
    living = sorted(shares.keys() - set(lost))
    turns = max((len(share.backups) for share in shares.values()), default=0)
    for name in sorted(shares.keys() & set(lost)):
        rest = list(shares[name].own)
        for turn in range(turns):
            for heir in living:
                for backup in shares[heir].backups[turn : turn + 1]:
                    inherited, rest = cut_ranges(rest, backup)
                    own[heir] += inherited
        own[name] = rest
    return {name: Share(tuple(own[name]), share.backups) for name, share in shares.items()}
