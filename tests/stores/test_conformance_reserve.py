"""Leases by bucket ranges, and by (id, version)."""

from typing import Any

import pytest

from chronoline.core.errors import InvalidInput, TopicNotFound
from chronoline.core.ids import bucket_of
from chronoline.core.message import Lease
from chronoline.core.outcome import Grant
from chronoline.core.ranges import BucketRange
from chronoline.stores.contract import Recipient
from tests.stores.line import LEASE_MS, NOW, Line, MakeLine, ids, new, words

AHEAD = 100


def reserve_in(line: Line, *ranges: BucketRange, limit: int = 100) -> Grant:
    return line.store.reserve(
        line.uid, ranges, consumer="c", limit=limit, lease_ms=LEASE_MS, now_ms=line.now
    )


# The lease


def test_a_lease_moves_ts_and_names_its_holder(line: Line) -> None:
    before = line.put("a", due=NOW - 50, body=b"x")
    (leased,) = line.reserve("c", lease_ms=700).leased
    assert leased.message == line["a"]
    assert leased.message.ts == NOW + 700
    assert leased.message.due == NOW - 50
    assert leased.message.lock_consumer == "c"
    assert leased.message.attempts == 0
    assert leased.message.version == before.version + 1
    assert leased.lease == Lease(id="a", consumer="c", version=NOW + 1, until=NOW + 700)
    assert leased.body == b"x"
    assert not leased.redelivered


@pytest.mark.parametrize("by", ["reserve", "lease"])
@pytest.mark.parametrize("due", [NOW - 10, NOW, NOW + 1, NOW + AHEAD])
def test_lease_length_counts_from_due_or_now(line: Line, by: str, due: int) -> None:
    message = line.put("a", due=due)
    if by == "reserve":
        grant = line.reserve(lease_ms=300, ahead_ms=AHEAD)
    else:
        grant = line.lease(("a", message.version), lease_ms=300, ahead_ms=AHEAD)
    assert grant.leased[0].lease.until == max(due, NOW) + 300
    assert line["a"].due == due


# The time at which a message can be leased


@pytest.mark.parametrize("by", ["reserve", "lease"])
@pytest.mark.parametrize("ahead_ms", [0, AHEAD])
def test_a_message_can_be_leased_from_its_horizon_on(line: Line, by: str, ahead_ms: int) -> None:
    message = line.put("a", due=NOW + ahead_ms)
    line.now = NOW - 1
    refused = (
        line.reserve(ahead_ms=ahead_ms)
        if by == "reserve"
        else line.lease(("a", message.version), ahead_ms=ahead_ms)
    )
    assert refused.leased == ()
    assert words(refused.refused) == ([] if by == "reserve" else ["not_due"])
    assert line["a"] == message
    line.now = NOW
    assert line.take(ahead_ms=ahead_ms).version == message.version + 1


@pytest.mark.parametrize("by", ["reserve", "lease"])
@pytest.mark.parametrize("ahead_ms", [0, AHEAD, 60_000])
def test_a_locked_message_is_never_taken_before_its_end(line: Line, by: str, ahead_ms: int) -> None:
    line.put("a")
    first = line.take("c", lease_ms=500)
    before = line["a"]
    for line.now in (NOW, first.until - AHEAD, first.until - 1):
        if by == "reserve":
            assert line.reserved("d", ahead_ms=ahead_ms) == []
        else:
            grant = line.lease(("a", first.version), consumer="d", ahead_ms=ahead_ms)
            assert words(grant.refused) == ["leased"]
        assert line["a"] == before
    line.now = first.until
    second = line.take("d", ahead_ms=ahead_ms)
    assert second.version == first.version + 1


def test_a_reservation_ahead_that_lapsed_can_be_taken_again(line: Line) -> None:
    line.put("a", due=NOW + AHEAD)
    first = line.take(lease_ms=10, ahead_ms=AHEAD)
    assert first.until == NOW + AHEAD + 10
    line.now = first.until
    (leased,) = line.reserve("d").leased
    assert leased.redelivered
    assert leased.message.attempts == 1
    assert leased.message.due == NOW + AHEAD


def test_owner_can_change_a_message_until_its_reservation(line: Line) -> None:
    line.put("a", "b", due=NOW + AHEAD + 1)
    assert line.reserved(ahead_ms=AHEAD) == []
    assert line.cancel("a") == ["done"]
    assert line.reschedule(("b", NOW + AHEAD)) == ["done"]
    assert line.reserved(ahead_ms=AHEAD) == ["b"]
    assert line.cancel("b") == ["leased"]


# Selection and order


def test_the_oldest_are_leased_first_across_the_ranges(make_line: MakeLine) -> None:
    line = make_line(buckets=16)
    dues = {f"m{number}": NOW - (number * 7919) % 1_000 for number in range(60)}
    line.create(*(new(each, due) for each, due in dues.items()))
    assert len({line[each].bucket for each in dues}) > 8
    by_age = sorted(dues, key=lambda each: dues[each])
    for start in range(0, 60, 20):
        assert ids(line.reserve(limit=20).leased) == by_age[start : start + 20]


def test_a_grant_is_in_order_of_due(line: Line) -> None:
    line.put("old", due=NOW - 500)
    line.take(lease_ms=10)
    line.put("young", due=NOW - 5)
    line.now = NOW + 10
    assert line["old"].ts > line["young"].ts
    assert line.reserved() == ["old", "young"]


def test_a_late_commit_is_not_passed_over(line: Line) -> None:
    line.put("b", due=NOW)
    assert line.reserved(ahead_ms=AHEAD) == ["b"]
    line.put("a", due=NOW - 10_000_000)
    assert line.reserved(ahead_ms=AHEAD) == ["a"]


def test_only_these_ranges_are_leased(make_line: MakeLine) -> None:
    line = make_line(buckets=4)
    names = [f"m{number}" for number in range(40)]
    line.put(*names)
    buckets = {each: line[each].bucket for each in names}
    assert set(buckets.values()) == {0, 1, 2, 3}
    assert reserve_in(line).leased == ()
    assert reserve_in(line, BucketRange(2, 2)).leased == ()
    some = reserve_in(line, BucketRange(2, 3), BucketRange(0, 1))
    assert set(ids(some.leased)) == {each for each in names if buckets[each] in (0, 2)}
    rest = reserve_in(line, BucketRange(0, 3), BucketRange(1, 4))
    assert set(ids(rest.leased)) == {each for each in names if buckets[each] in (1, 3)}


@pytest.mark.parametrize(("limit", "more"), [(1, True), (3, True), (4, False)])
def test_more_says_that_the_limit_was_reached(line: Line, limit: int, more: bool) -> None:
    line.put("a", "b", "c")
    grant = line.reserve(limit=limit)
    assert len(grant.leased) == min(limit, 3)
    assert grant.more == more


def reserve_since(line: Line, since_ms: int, *, limit: int = 100, ahead_ms: int = 0) -> Grant:
    return line.store.reserve(
        line.uid,
        line.topic.all_buckets,
        consumer="d",
        limit=limit,
        lease_ms=LEASE_MS,
        reserve_ahead_ms=ahead_ms,
        since_ms=since_ms,
        now_ms=line.now,
    )


def test_search_from_where_nothing_was_left_finds_all_that_is_due_later(line: Line) -> None:
    line.put("first", due=NOW - 10)
    line.put("lapses", due=NOW - 5)
    ended = line.lease(("lapses", line["lapses"].version), lease_ms=50)
    line.put("ahead", due=NOW + 20)
    clear_ms = line.reserve(ahead_ms=AHEAD).clear_ms
    line.put("later", due=NOW + 40)
    line.now = ended.leased[0].lease.until
    assert ids(reserve_since(line, clear_ms).leased) == ["lapses", "later"]


def test_search_step_by_step_leaves_nothing(make_line: MakeLine) -> None:
    line = make_line(buckets=64)
    dues = {f"m{number}": NOW - 100 + number // 3 for number in range(100)}
    line.store.create(line.uid, [new(each, due) for each, due in dues.items()], now_ms=NOW)
    found: list[str] = []
    grant = reserve_since(line, 0, limit=7)
    while grant.leased:
        found += ids(grant.leased)
        grant = reserve_since(line, grant.clear_ms, limit=7)
    assert sorted(found) == sorted(dues)
    assert [dues[each] for each in found] == sorted(dues.values())


def test_a_message_is_leased_once(line: Line) -> None:
    line.put("a")
    assert line.reserved("c") == ["a"]
    assert line.reserved("c") == []
    assert line.reserved("d") == []


# By (id, version)


def test_a_lease_by_id_needs_the_current_version(line: Line) -> None:
    line.put("a")
    line.reschedule(("a", NOW - 1))
    before = line["a"]
    for version in (before.version - 1, before.version + 1):
        grant = line.lease(("a", version))
        assert grant.leased == ()
        assert words(grant.refused) == ["stale"]
    assert line["a"] == before
    (leased,) = line.lease(("a", before.version)).leased
    assert leased.lease.version == before.version + 1


def test_ids_that_cannot_be_leased_have_a_reason(make_line: MakeLine) -> None:
    line = make_line(max_attempts=1)
    line.put("dead")
    line.retry(line.take(), NOW + 100)
    line.put("acked")
    line.ack(line.take())
    line.put("leased")
    line.take()
    line.put("waiting", due=NOW + 1)
    line.put("good", body=b"x")
    names = ["dead", "acked", "leased", "waiting", "nothing", "good", "good"]
    versions = {each: line[each].version for each in names if each in line}
    grant = line.lease(*((each, versions.get(each, NOW)) for each in names))
    assert [(each.lease.id, each.body) for each in grant.leased] == [("good", b"x")]
    assert [(each.id, each.refusal) for each in grant.refused] == [
        ("dead", "dead"),
        ("acked", "deleted"),
        ("leased", "leased"),
        ("waiting", "not_due"),
        ("nothing", "not_found"),
        ("good", "leased"),
    ]
    assert not grant.more


def test_a_lapsed_lease_is_taken_over_by_id(line: Line) -> None:
    line.put("a")
    first = line.take("c")
    line.now = first.until
    (leased,) = line.lease(("a", first.version), consumer="d").leased
    assert leased.redelivered
    assert leased.message.attempts == 1
    assert line.stale_answers(first) == {"not_holder"}


# For several consumers at once

BUCKETS = 32  # two in a stripe
SHARES = {"a": (BucketRange(0, 3),), "b": (BucketRange(3, 4), BucketRange(20, 32)), "d": ()}


def recipients(limit: int = 100) -> list[Recipient]:
    return [Recipient(name, f"i/{name}.1", ranges, limit) for name, ranges in SHARES.items()]


def reserve_for(line: Line, limit: int = 100, ahead_ms: int = 0) -> list[Grant]:
    return line.store.reserve_for(
        line.uid, recipients(limit), lease_ms=LEASE_MS, reserve_ahead_ms=ahead_ms, now_ms=line.now
    )


def fill(make_line: MakeLine) -> Line:
    """Messages of all kinds in all buckets: due, ahead, too far ahead, held, lapsed, dead."""
    line = make_line(buckets=BUCKETS, max_attempts=1, dedupe_ms=0)
    for number in range(200):
        due = NOW - 40 + number
        line.put(f"m{number}", due=due, expires=due + 1 if number % 9 == 0 else None)
    line.now = NOW - 30
    line.reserve("lapses", limit=6, lease_ms=10)
    line.reserve("holds", limit=9, lease_ms=5_000)
    line.now = NOW
    return line


@pytest.mark.parametrize("limit", [1, 3, 100])
def test_joint_reservation_equals_one_for_each_consumer(make_line: MakeLine, limit: int) -> None:
    together, apart = fill(make_line), fill(make_line)
    grants = reserve_for(together, limit, AHEAD)
    assert [bool(grant.leased) for grant in grants] == [True, True, False]
    for (name, session, ranges, _), grant in zip(recipients(), grants, strict=True):
        alone = apart.store.reserve(
            apart.uid,
            ranges,
            consumer=name,
            limit=limit,
            lease_ms=LEASE_MS,
            reserve_ahead_ms=AHEAD,
            session=session,
            now_ms=NOW,
        )
        assert grant.leased == alone.leased
        assert sorted(grant.refused, key=str) == sorted(alone.refused, key=str)
        assert grant.more == alone.more
        held = together.store.select_held(together.uid, name, session=session, limit=200).messages
        assert ids(held) == sorted(ids(grant.leased))


def test_joint_reservation_leaves_other_buckets_alone(make_line: MakeLine) -> None:
    line = fill(make_line)
    served = {bucket for ranges in SHARES.values() for each in ranges for bucket in range(*each)}
    leased = [each.lease.id for grant in reserve_for(line, ahead_ms=AHEAD) for each in grant.leased]
    assert {bucket_of(each, BUCKETS) for each in leased} <= served
    assert [each for grant in reserve_for(line, ahead_ms=AHEAD) for each in grant.leased] == []


def test_joint_reservation_of_a_deleted_topic_is_refused(make_line: MakeLine) -> None:
    line = fill(make_line)
    line.drop()
    with pytest.raises(TopicNotFound):
        reserve_for(line)


@pytest.mark.parametrize(
    "bad",
    [
        Recipient("", "", [BucketRange(0, 1)], 1),
        Recipient("c", "", [BucketRange(0, BUCKETS + 1)], 1),
        Recipient("c", "", [BucketRange(0, 1)], 0),
        Recipient("c", "x" * 10_000, [BucketRange(0, 1)], 1),
    ],
    ids=["name", "range", "limit", "session"],
)
def test_invalid_recipient_is_refused(make_line: MakeLine, bad: Recipient) -> None:
    line = fill(make_line)
    with pytest.raises(InvalidInput):
        line.store.reserve_for(line.uid, [*recipients(), bad], lease_ms=LEASE_MS, now_ms=NOW)
    assert line.store.reserve_for(line.uid, [], lease_ms=LEASE_MS, now_ms=NOW) == []


def test_next_times_of_several_shares(make_line: MakeLine) -> None:
    line = fill(make_line)
    shares: list[Any] = list(SHARES.values())
    found = line.store.next_times(line.uid, shares)
    assert found == [line.store.next_ts(line.uid, ranges) for ranges in shares]
    assert found[2] is None
    assert None not in found[:2]
