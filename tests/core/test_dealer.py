"""The dealer: own ranges cover every bucket once, and backups lie in other racks."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from chronoline.core.dealer import Dealer, Share, deal_rack_aware, deal_simple, pass_on
from chronoline.core.placement import deal_ranges
from chronoline.core.ranges import BucketRange

names = st.text("abcxyz019-", min_size=1, max_size=3)
in_racks = st.dictionaries(names, st.sampled_from(["", "r1", "r2", "r3"]), min_size=1, max_size=12)
buckets_of_a_topic = st.integers(1, 300)


def owners(shares: dict[str, Share], buckets: int) -> list[list[str]]:
    """The names whose own ranges have each bucket."""
    found: list[list[str]] = [[] for _ in range(buckets)]
    for name, share in shares.items():
        for each in share.own:
            for bucket in range(*each):
                found[bucket].append(name)
    return found


def backups(shares: dict[str, Share], buckets: int) -> list[list[str]]:
    as_own = {name: Share(own=share.backups) for name, share in shares.items()}
    return owners(as_own, buckets)


def from_one(share: Share) -> list[tuple[int, int]]:
    """Its ranges in the notation of the examples, whose buckets begin at 1."""
    return [(start + 1, stop + 1) for start, stop in (*share.own, *share.backups)]


def test_two_racks_of_two() -> None:
    """Twelve buckets on A1, A2, B1 and B2: each has three of its own, and those of its backup.

    The example from which this comes has two slips. It gives A2 [4, 8), which has bucket 7 a second time. And
    it writes [10, 13) for "A1, backup of B1" and [7, 10) for "A2, backup of B2": the ranges are swapped, as
    its text shows, in which A1 meets B1 at bucket 7.
    """
    shares = deal_rack_aware({"A1": "A", "A2": "A", "B1": "B", "B2": "B"}, 12)
    assert {name: from_one(share) for name, share in shares.items()} == {
        "A1": [(1, 4), (7, 10)],
        "A2": [(4, 7), (10, 13)],
        "B1": [(7, 10), (1, 4)],
        "B2": [(10, 13), (4, 7)],
    }


def test_racks_of_four_one_and_two() -> None:
    """Own ranges are equal for consumers, not for racks; B1 backs up all that A and C have."""
    racks = {"A1": "A", "A2": "A", "A3": "A", "A4": "A", "B1": "B", "C1": "C", "C2": "C"}
    shares = deal_rack_aware(racks, 28)
    assert {name: from_one(share) for name, share in shares.items()} == {
        "A1": [(1, 5), (17, 18), (21, 23)],
        "A2": [(5, 9), (18, 19), (23, 25)],
        "A3": [(9, 13), (19, 20), (25, 27)],
        "A4": [(13, 17), (20, 21), (27, 29)],
        "B1": [(17, 21), (21, 29), (1, 17)],
        "C1": [(21, 25), (1, 9), (17, 19)],
        "C2": [(25, 29), (9, 17), (19, 21)],
    }


@given(in_racks, buckets_of_a_topic)
def test_own_ranges_cover_every_bucket_once_and_evenly(racks: dict[str, str], buckets: int) -> None:
    for dealer in Dealer:
        shares = dealer.deal(racks, buckets)
        assert shares.keys() == racks.keys()
        assert {len(each) for each in owners(shares, buckets)} == {1}
        sizes = [sum(stop - start for start, stop in share.own) for share in shares.values()]
        assert max(sizes) - min(sizes) <= 1


@given(in_racks, buckets_of_a_topic)
def test_each_bucket_has_one_backup_in_each_other_rack(racks: dict[str, str], buckets: int) -> None:
    shares = deal_rack_aware(racks, buckets)
    for (owner,), others in zip(owners(shares, buckets), backups(shares, buckets), strict=True):
        in_other_racks = sorted(set(racks.values()) - {racks[owner]})
        assert sorted(racks[each] for each in others) == in_other_racks


@given(in_racks, buckets_of_a_topic, st.randoms(use_true_random=False))
def test_any_order_of_consumers_gives_the_same_shares(
    racks: dict[str, str], buckets: int, random: Random
) -> None:
    shuffled = list(racks.items())
    random.shuffle(shuffled)
    for dealer in Dealer:
        assert dealer.deal(dict(shuffled), buckets) == dealer.deal(racks, buckets)


@given(st.sets(names, min_size=1), buckets_of_a_topic)
def test_one_rack_gets_simple_ranges(consumers: set[str], buckets: int) -> None:
    shares = deal_rack_aware(dict.fromkeys(consumers, "r"), buckets)
    assert shares == deal_simple(consumers, buckets)
    ranges = deal_ranges(consumers, buckets)
    assert shares == {
        name: Share(own=(each,) if each.start < each.stop else ()) for name, each in ranges.items()
    }


def test_no_consumers_have_no_shares() -> None:
    assert [dealer.deal({}, 12) for dealer in Dealer] == [{}, {}]


# Lost consumers


@given(in_racks, buckets_of_a_topic, st.data())
def test_lost_buckets_have_one_living_owner_if_a_rack_lives(
    racks: dict[str, str], buckets: int, data: st.DataObject
) -> None:
    lost = data.draw(st.sets(st.sampled_from(sorted(racks))))
    shares = deal_rack_aware(racks, buckets)
    passed = pass_on(shares, lost)
    helpers = backups(shares, buckets)
    for before, after, others in zip(
        owners(shares, buckets), owners(passed, buckets), helpers, strict=True
    ):
        living = set(others) - lost
        assert len(after) == 1
        assert after == before if before[0] not in lost or not living else after[0] in living
    assert {name: each.backups for name, each in passed.items()} == {
        name: each.backups for name, each in shares.items()
    }


def test_first_backups_inherit_a_lost_range() -> None:
    shares = deal_rack_aware({"A1": "A", "A2": "A", "B1": "B", "B2": "B"}, 12)
    passed = pass_on(shares, {"B1"})
    assert passed["A1"].own == (BucketRange(0, 3), BucketRange(6, 9))
    assert passed["B1"].own == ()
    assert pass_on(shares, {"A1", "B1"})["A1"].own == (
        BucketRange(0, 3),
    )  # both of its hands are gone


def test_racks_come_first_for_different_regions() -> None:
    """The lost C1 goes to rack B, which begins with C; the lost B1 goes to rack A."""
    shares = deal_rack_aware({"A1": "A", "B1": "B", "C1": "C"}, 9)
    assert pass_on(shares, {"C1"})["B1"].own == (BucketRange(3, 6), BucketRange(6, 9))
    assert pass_on(shares, {"B1"})["A1"].own == (BucketRange(0, 3), BucketRange(3, 6))


def test_simple_ranges_of_a_lost_consumer_wait() -> None:
    shares = deal_simple(["a", "b"], 4)
    assert pass_on(shares, {"a"}) == shares
