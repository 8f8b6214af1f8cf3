"""Reads: select, lookup, bodies, held, owned, next_ts, count, forecast, scan. They change nothing."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from chronoline.core.errors import InvalidInput
from chronoline.core.limits import MAX_TIME_MS
from chronoline.core.message import Message
from chronoline.core.permissions import Consumer, Producer, System
from chronoline.core.ranges import BucketRange
from chronoline.stores.contract import Counts, ForecastStep, Page
from tests.stores.line import NOW, OWNERS, Line, MakeLine, ids, new, words


def select(line: Line, *, limit: int = 100, max_ts: int = MAX_TIME_MS) -> Page:
    return line.store.select(line.uid, line.topic.all_buckets, limit=limit, max_ts=max_ts)


def held(line: Line, consumer: str = "c", *, after: str = "", limit: int = 100) -> Page:
    return line.store.select_held(line.uid, consumer, after=after, limit=limit)


def owned(line: Line, group: str = OWNERS, *, after: str = "", limit: int = 100) -> Page:
    return line.store.select_owned(line.uid, group, after=after, limit=limit)


def count(line: Line, start: int = 0, end: int = MAX_TIME_MS) -> Counts:
    return line.store.count(line.uid, line.topic.all_buckets, start=start, end=end, now_ms=line.now)


def forecast(line: Line, start: int, end: int, step_ms: int) -> list[ForecastStep]:
    return line.store.forecast(
        line.uid, line.topic.all_buckets, start=start, end=end, step_ms=step_ms, now_ms=line.now
    )


def scan(
    line: Line,
    ranges: Sequence[BucketRange] | None = None,
    *,
    start: int = 0,
    end: int | None = None,
    limit: int = 100,
) -> list[Message]:
    """All pages, one after the other."""
    buckets = ranges if ranges is not None else line.topic.all_buckets
    found: list[Message] = []
    more = True
    while more:
        last = found[-1] if found else None
        page = line.store.scan(line.uid, buckets, start=start, end=end, after=last, limit=limit)
        assert len(page.messages) <= limit
        found += page.messages
        more = page.more
    return found


# Select


def test_select_is_oldest_first_across_the_ranges(make_line: MakeLine) -> None:
    line = make_line(buckets=16)
    dues = {f"m{number}": NOW + (number * 7919) % 1_000 for number in range(60)}
    line.create(*(new(each, due) for each, due in dues.items()))
    by_age = sorted(dues, key=lambda each: dues[each])
    assert ids(select(line).messages) == by_age
    assert ids(select(line, limit=7).messages) == by_age[:7]


def test_select_looks_at_ts_and_ends_at_max_ts(line: Line) -> None:
    line.put("leased", due=NOW)
    line.take(lease_ms=200)
    line.put("a", due=NOW + 100)
    assert ids(select(line, max_ts=NOW + 99).messages) == []
    assert ids(select(line, max_ts=NOW + 100).messages) == ["a"]
    assert ids(select(line, max_ts=NOW + 199).messages) == ["a"]
    assert ids(select(line, max_ts=NOW + 200).messages) == ["a", "leased"]


@pytest.mark.parametrize(("limit", "more"), [(1, True), (2, True), (3, False), (4, False)])
def test_select_says_whether_there_is_more(line: Line, limit: int, more: bool) -> None:
    line.put("a", "b", "c")
    page = select(line, limit=limit)
    assert len(page.messages) == min(limit, 3)
    assert page.more == more


def test_select_only_these_ranges(make_line: MakeLine) -> None:
    line = make_line(buckets=4)
    names = [f"m{number}" for number in range(40)]
    line.put(*names)
    some = (BucketRange(3, 4), BucketRange(0, 1), BucketRange(0, 1))
    found = line.store.select(line.uid, some, limit=100, max_ts=NOW).messages
    assert set(ids(found)) == {each for each in names if line[each].bucket in (0, 3)}
    assert len(found) == len(set(ids(found)))
    assert line.store.select(line.uid, [], limit=100, max_ts=NOW) == Page(messages=(), more=False)


def test_reads_show_the_whole_message_and_change_nothing(line: Line) -> None:
    line.put("a", key=b"k", headers=(("h", None),), expires=NOW + 9)
    line.take()
    message = line["a"]
    assert select(line).messages == held(line).messages == owned(line).messages == (message,)
    assert message.lock_consumer == "c"
    assert line["a"] == message


# Lookup


def test_lookup_omits_deleted_dead_and_missing_messages(make_line: MakeLine) -> None:
    line = make_line(max_attempts=1)
    line.put("dead")
    line.retry(line.take(), NOW + 100)
    line.put("acked")
    line.ack(line.take())
    line.put("cancelled", "good", "lapsed")
    line.cancel("cancelled")
    line.lease(("lapsed", NOW), lease_ms=10)
    line.now = NOW + 10
    names = ["dead", "acked", "cancelled", "nothing", "lapsed", "good", "good"]
    assert set(line.store.lookup(line.uid, names)) == {"good", "lapsed"}
    assert line.store.lookup(line.uid, []) == {}


def test_dead_and_deleted_messages_are_not_on_the_timeline(make_line: MakeLine) -> None:
    line = make_line(max_attempts=1)
    line.put("dead")
    line.retry(line.take(), NOW + 100)
    line.put("acked")
    line.ack(line.take())
    assert select(line).messages == held(line).messages == owned(line).messages == ()
    assert line.next_ts() is None
    assert count(line) == Counts()


# Bodies


def test_bodies_need_permission(line: Line) -> None:
    line.put("a", body=b"mine")
    line.lease(("a", NOW), consumer="c")
    line.put("b", body=b"yours", producer_group="others")

    def bodies(actor: Producer | Consumer | System) -> tuple[dict[str, bytes | None], list[str]]:
        names = ["b", "a", "nothing", "a"]
        answer = line.store.bodies(line.uid, names, actor=actor, now_ms=NOW)
        return answer.found, [f"{each.id}: {each.refusal}" for each in answer.refused]

    nothing = "nothing: not_found"
    assert bodies(System()) == ({"b": b"yours", "a": b"mine"}, [nothing])
    assert bodies(Producer(OWNERS)) == ({"a": b"mine"}, ["b: not_owner", nothing])
    assert bodies(Producer("others")) == ({"b": b"yours"}, ["a: not_owner", nothing])
    assert bodies(Consumer("c")) == ({"a": b"mine"}, ["b: not_holder", nothing])
    assert bodies(Consumer("d")) == ({}, ["b: not_holder", "a: not_holder", nothing])


def test_the_holder_reads_a_body_until_its_lease_ends(line: Line) -> None:
    line.put("a", body=b"x")
    lease = line.take("c")
    answers = []
    for now_ms in (lease.until - 1, lease.until):
        bodies = line.store.bodies(line.uid, ["a"], actor=Consumer("c"), now_ms=now_ms)
        answers.append((bodies.found, words(bodies.refused)))
    assert answers == [({"a": b"x"}, []), ({}, ["lapsed"])]


# Held and owned


def test_held_messages_include_lapsed_leases(line: Line) -> None:
    line.put("lapsed", "other", "free")
    line.lease(("lapsed", NOW), consumer="c", lease_ms=10)
    line.lease(("other", NOW), consumer="d")
    line.now = NOW + 10
    line.put("live")
    line.lease(("live", line.now), consumer="c")
    assert sorted(ids(held(line, "c").messages)) == ["lapsed", "live"]
    assert ids(held(line, "d").messages) == ["other"]
    assert held(line, "nobody") == Page(messages=(), more=False)


@pytest.mark.parametrize(("limit", "more"), [(2, True), (3, False)])
def test_held_messages_up_to_a_limit(line: Line, limit: int, more: bool) -> None:
    line.put("a", "b", "c")
    line.reserve("c")
    page = held(line, limit=limit)
    assert len(page.messages) == limit
    assert page.more == more


def test_released_message_is_no_longer_held(line: Line) -> None:
    line.put("a", "b", "c", "d")
    a, b, c, d = sorted((each.lease for each in line.reserve().leased), key=lambda each: each.id)
    line.release(a, NOW + 10)
    line.retry(b, NOW + 10)
    line.unreserve(c)
    line.ack(d)
    assert held(line).messages == ()


NAMES = ["Z", "a", "B", "aa", "é", "z", "\uffff", "📅", "a b", "_"]


def by_pages(look: Callable[..., Page], line: Line) -> list[str]:
    """The ids of all pages of three."""
    seen: list[str] = []
    more = True
    while more:
        page = look(line, after=seen[-1] if seen else "", limit=3)
        seen += ids(page.messages)
        more = page.more
    return seen


def test_held_messages_come_by_id_and_in_pages(line: Line) -> None:
    line.create(*(new(each, NOW - place) for place, each in enumerate(NAMES)))
    line.reserve("c", lease_ms=10)
    line.put("other")
    line.reserve("d")
    assert ids(held(line).messages) == by_pages(held, line) == sorted(NAMES)


def test_owned_messages_come_by_id_and_in_pages(line: Line) -> None:
    line.put(*NAMES)
    line.put("other", producer_group="others")
    assert ids(owned(line).messages) == by_pages(owned, line) == sorted(NAMES)
    assert ids(owned(line, "others").messages) == ["other"]
    assert owned(line, "nobody") == Page(messages=(), more=False)


# Next ts


def test_next_ts_is_that_of_the_oldest_message(line: Line) -> None:
    assert line.next_ts() is None
    line.put("b", due=NOW + 50)
    assert line.next_ts() == NOW + 50
    line.put("a", due=NOW - 50)
    assert line.next_ts() == NOW - 50
    line.take(lease_ms=500)
    assert line.next_ts() == NOW + 50
    line.reschedule(("b", NOW + 900))
    assert line.next_ts() == NOW + 500


def test_next_ts_of_some_ranges(make_line: MakeLine) -> None:
    line = make_line(buckets=4)
    names = [f"m{number}" for number in range(20)]
    line.create(*(new(each, NOW + number) for number, each in enumerate(names)))
    for bucket in range(4):
        expected = min(line[each].ts for each in names if line[each].bucket == bucket)
        assert line.store.next_ts(line.uid, [BucketRange(bucket, bucket + 1)]) == expected
    assert line.store.next_ts(line.uid, []) is None


# Count and forecast


def test_count_by_status_at_the_three_instants(line: Line) -> None:
    line.put("leased", due=NOW - 1_000)
    line.take(lease_ms=100)
    line.put("free", due=NOW + 100)
    assert line["leased"].ts == line["free"].ts == NOW + 100
    counts = {}
    for line.now in (NOW + 99, NOW + 100, NOW + 101):
        counts[line.now - NOW] = count(line)
    assert counts == {
        99: Counts(processing=1, waiting=1),
        100: Counts(available=2),
        101: Counts(available=2),
    }
    assert counts[99].total == 2


def test_count_from_start_up_to_but_not_including_end(line: Line) -> None:
    line.create(*(new(f"m{ts}", NOW + ts) for ts in (9, 10, 15, 19, 20)))
    assert count(line, NOW + 10, NOW + 20).total == 3
    assert count(line, NOW + 10, NOW + 10).total == 0
    assert count(line, NOW + 10, NOW + 11).total == 1


def test_count_some_ranges(make_line: MakeLine) -> None:
    line = make_line(buckets=4)
    names = [f"m{number}" for number in range(40)]
    line.put(*names)
    in_one = sum(line[each].bucket == 1 for each in names)
    counted = line.store.count(line.uid, [BucketRange(1, 2)], start=0, end=NOW + 1, now_ms=NOW)
    assert counted == Counts(available=in_one)
    assert line.store.count(line.uid, [], start=0, end=NOW + 1, now_ms=NOW) == Counts()


def test_forecast_counts_each_step_including_empty_ones(line: Line) -> None:
    line.put("leased", due=NOW - 5)
    line.take(lease_ms=25)
    line.create(*(new(f"m{ts}", NOW + ts) for ts in (-1, 0, 9, 10, 29, 34, 35)))
    steps = forecast(line, NOW - 1, NOW + 35, 10)
    assert steps == [
        ForecastStep(start=NOW - 1, counts=Counts(available=2)),
        ForecastStep(start=NOW + 9, counts=Counts(waiting=2)),
        ForecastStep(start=NOW + 19, counts=Counts(processing=1)),
        ForecastStep(start=NOW + 29, counts=Counts(waiting=2)),
    ]


def test_a_forecast_of_nothing(line: Line) -> None:
    assert forecast(line, NOW, NOW, 10) == []
    assert forecast(line, NOW, NOW + 15, 10) == [
        ForecastStep(start=NOW, counts=Counts()),
        ForecastStep(start=NOW + 10, counts=Counts()),
    ]


def test_a_forecast_has_at_most_100_000_steps(line: Line) -> None:
    line.put("a", due=NOW + 99_999)
    steps = forecast(line, NOW, NOW + 100_000, 1)
    assert len(steps) == 100_000
    assert steps[-1].counts == Counts(waiting=1)
    with pytest.raises(InvalidInput, match="at most 100000 steps, not 100001"):
        forecast(line, NOW, NOW + 100_001, 1)


# Scan


@pytest.mark.parametrize("limit", [1, 7, 60, 61])
@pytest.mark.parametrize("buckets", [1, 40, 2_048])
def test_a_scan_gives_each_message_once(make_line: MakeLine, buckets: int, limit: int) -> None:
    line = make_line(buckets=buckets)
    dues = {f"m{number}": NOW + number % 5 for number in range(60)}
    line.create(*(new(each, due) for each, due in dues.items()))
    found = scan(line, limit=limit)
    assert sorted(ids(found)) == sorted(dues)
    assert {each.id: each for each in found} == line.store.lookup(line.uid, list(dues))


def test_scan_includes_start_and_excludes_end(line: Line) -> None:
    line.put("leased", due=NOW)
    line.take(lease_ms=200)
    line.create(*(new(f"m{ts}", NOW + ts) for ts in (0, 1, 99, 100)))
    assert sorted(ids(scan(line, start=NOW + 1, end=NOW + 100, limit=1))) == ["m1", "m99"]
    assert ids(scan(line, start=NOW + 200, limit=1)) == ["leased"]
    assert scan(line, start=NOW, end=NOW) == []


def test_a_scan_without_an_end_reaches_the_last_moment(line: Line) -> None:
    line.put("last", due=MAX_TIME_MS)
    assert ids(scan(line)) == ["last"]
    assert scan(line, end=MAX_TIME_MS) == []


def test_a_scan_of_some_ranges_that_share_a_stripe(make_line: MakeLine) -> None:
    line = make_line(buckets=64)  # four buckets a stripe
    names = [f"m{number}" for number in range(300)]
    line.put(*names)
    some = [BucketRange(2, 3), BucketRange(0, 1), BucketRange(7, 40), BucketRange(8, 9)]
    wanted = {0, 2, *range(7, 40)}
    found = scan(line, some, limit=10)
    assert sorted(ids(found)) == sorted(each for each in names if line[each].bucket in wanted)
    assert scan(line, []) == []


def test_scan_continues_after_a_deleted_message(make_line: MakeLine) -> None:
    line = make_line(buckets=1)
    line.create(*(new(each, NOW) for each in "abcd"))
    page = line.store.scan(line.uid, line.topic.all_buckets, start=0, end=NOW + 1, limit=2)
    assert ids(page.messages) == ["a", "b"]
    line.cancel("b")
    rest = line.store.scan(
        line.uid,
        line.topic.all_buckets,
        start=0,
        end=NOW + 1,
        after=page.messages[-1],
        limit=2,
    )
    assert ids(rest.messages) == ["c", "d"]
    assert not rest.more


def test_scan_continues_after_a_message_only(line: Line) -> None:
    nonsense: Any = "m1"
    with pytest.raises(InvalidInput, match="after must be a Message, not str"):
        line.store.scan(line.uid, line.topic.all_buckets, start=0, end=1, after=nonsense, limit=1)


@pytest.mark.parametrize("limit", [1, 2, 100])
def test_a_scan_of_held_messages(line: Line, limit: int) -> None:
    line.put(*"abcdef")
    wanted = [("f", "c1"), ("a", "c2"), ("c", "c1"), ("b", "c3")]
    for message_id, consumer in wanted:
        line.lease((message_id, NOW), consumer=consumer)
    line.now += 2_000  # their leases lapse
    line.lease(("b", NOW + 1), consumer="c4")
    line.cancel("a")
    found: list[Message] = []
    while True:
        page = line.store.scan_held(line.uid, after=found[-1] if found else None, limit=limit)
        found += page.messages
        if not page.more:
            break
    assert [(each.id, each.lock_consumer) for each in found] == [
        ("c", "c1"),
        ("f", "c1"),
        ("b", "c4"),
    ]
    with pytest.raises(InvalidInput, match="after must be a Message with a holder"):
        line.store.scan_held(line.uid, after=line["d"], limit=1)


# Owners


def test_groups_follow_each_other_by_name(line: Line) -> None:
    line.put("a", producer_group="m")
    line.put("b", "c", producer_group="x")
    line.put("d", producer_group="é")
    (leased,) = line.reserve(limit=1).leased
    line.ack(leased.lease)
    left = sorted({"a": "m", "b": "x", "c": "x", "d": "é"}[each] for each in "abcd" if each in line)
    found: list[str] = []
    while group := line.store.next_group(line.uid, after=found[-1] if found else ""):
        found.append(group)
    assert found == sorted(set(left))


def test_count_of_a_producer_group_has_an_end(line: Line) -> None:
    line.put("a", "b", "c")
    line.put("x", producer_group="others")
    assert line.store.count_owned(line.uid, OWNERS, most=10) == 3
    assert line.store.count_owned(line.uid, OWNERS, most=2) == 2
    assert line.store.count_owned(line.uid, "others", most=10) == 1
    assert line.store.count_owned(line.uid, "nobody", most=10) == 0


def test_count_of_a_producer_group_has_leased_messages_and_no_deleted_ones(line: Line) -> None:
    line.put("a", "b", "c", "d")
    leased = line.reserve(limit=1).leased
    assert len(leased) == 1
    assert line.store.count_owned(line.uid, OWNERS, most=10) == 4
    line.ack(leased[0].lease)
    assert line.store.count_owned(line.uid, OWNERS, most=10) == 3


@pytest.mark.parametrize("most", [0, -1, 1.5, None, True])
def test_count_of_a_producer_group_up_to_a_bad_number(line: Line, most: Any) -> None:
    with pytest.raises(InvalidInput, match="most"):
        line.store.count_owned(line.uid, OWNERS, most=most)
