"""Bad input: good items are done, bad items are refused by name, and nothing is half done."""

from collections.abc import Callable
from typing import Any

import pytest

from chronoline.core.errors import InvalidInput, TopicNotFound
from chronoline.core.limits import MAX_TIME_MS
from chronoline.core.message import Lease
from chronoline.core.outcome import Refusal
from chronoline.core.permissions import System
from chronoline.core.ranges import BucketRange
from chronoline.stores.contract import Store
from tests.stores.line import NOW, OWNERS, Line, new, words

BAD_NAMES: dict[str, Any] = {
    "empty": "",
    "513 bytes": "x" * 513,
    "514 bytes in UTF-8": "é" * 257,
    "lone surrogate": "a\ud800",
    "NUL": "a\0b",
    "bytes": b"a",
    "number": 7,
    "nothing": None,
    "list": ["a"],
}
BAD_TIMES: dict[str, Any] = {
    "before 1970": -1,
    "after 9999": MAX_TIME_MS + 1,
    "beyond 64 bits": 2**64,
    "fraction": 1.5,
    "text": "1",
    "nothing": None,
    "truth": True,
}
BAD_REASONS: dict[str, Any] = {
    "1,001 characters": "x" * 1_001,
    "lone surrogate": "a\ud800",
    "NUL": "a\0b",
    "bytes": b"a",
    "number": 7,
    "nothing": None,
}
BAD_FIELDS: dict[str, dict[str, Any]] = {
    "body over the limit": {"body": b"x" * (1024 * 1024 + 1)},
    "body of text": {"body": "x"},
    "key of text": {"key": "x"},
    "key over the limit": {"key": b"x" * 65_537},
    "a thousand headers": {"headers": (("h", b""),) * 1_000},
    "headers over the limit": {"headers": (("h", b"x" * 65_536),)},
    "header of text": {"headers": (("h", "x"),)},
    "header name of bytes": {"headers": ((b"h", b"x"),)},
    "header name with NUL": {"headers": (("h\0", b"x"),)},
    "header name of lone surrogate": {"headers": (("\ud800", b"x"),)},
    "no headers at all": {"headers": None},
    "expires at due": {"expires": NOW},
    "expires after 9999": {"expires": MAX_TIME_MS + 1},
    "empty producer group": {"producer_group": ""},
    "producer group with NUL": {"producer_group": "a\0"},
}


def assert_named(line: Line, *bad: Any) -> None:
    """Creates bad messages among good ones."""
    outcomes = line.store.create(line.uid, [new("good 1"), *bad, new("good 2")], now_ms=NOW)
    assert words(outcomes) == ["done", *["invalid"] * len(bad), "done"]
    assert all(outcome.detail for outcome in outcomes[1:-1])
    assert sorted(line.reserved()) == ["good 1", "good 2"]


@pytest.mark.parametrize("case", BAD_NAMES)
def test_create_with_a_bad_id(line: Line, case: str) -> None:
    assert_named(line, new(BAD_NAMES[case]))


@pytest.mark.parametrize("case", BAD_TIMES)
def test_create_with_a_bad_due(line: Line, case: str) -> None:
    assert_named(line, new("bad", BAD_TIMES[case]))


@pytest.mark.parametrize("case", BAD_FIELDS)
def test_create_with_a_bad_field(line: Line, case: str) -> None:
    assert_named(line, new("bad", **BAD_FIELDS[case]))


def test_everything_bad_in_one_batch(line: Line) -> None:
    assert_named(
        line,
        *(new(name) for name in BAD_NAMES.values()),
        *(new("bad", due) for due in BAD_TIMES.values()),
        *(new("bad", **fields) for fields in BAD_FIELDS.values()),
    )


def test_reason_names_the_problem_and_the_id(line: Line) -> None:
    outcomes = line.store.create(line.uid, [new("x" * 513), new(BAD_NAMES["number"])], now_ms=NOW)
    assert [(each.id, each.reason) for each in outcomes] == [
        ("x" * 513, "id has 513 bytes; at most 512 are allowed"),
        ("7", "id must be text, not int"),
    ]


def test_the_first_and_the_last_millisecond_are_good(line: Line) -> None:
    assert line.create(new("first", 0), new("last", MAX_TIME_MS)) == ["done", "done"]
    assert (line["first"].due, line["last"].due) == (0, MAX_TIME_MS)


# Changes


@pytest.mark.parametrize("case", BAD_NAMES)
def test_changes_with_a_bad_id(line: Line, case: str) -> None:
    bad = BAD_NAMES[case]
    line.put("a", "b", "c", "d", "e", "f", "g", "h")
    held = {each.lease.id: each.lease for each in line.reserve().leased}
    broken = Lease(id=bad, consumer="c", version=1, until=NOW)
    store, uid, to = line.store, line.uid, NOW + 500
    assert words(store.extend(uid, [(broken, to), (held["a"], to)], now_ms=NOW)) == MIXED
    assert words(store.release(uid, [(broken, to), (held["b"], to)], now_ms=NOW)) == MIXED
    assert words(store.retry(uid, [(broken, to), (held["c"], to)], now_ms=NOW)) == MIXED
    assert words(store.bury(uid, [(broken, "x"), (held["f"], "x")], now_ms=NOW)) == MIXED
    assert words(store.unreserve(uid, [broken, held["d"]], now_ms=NOW)) == MIXED
    assert words(store.ack(uid, [broken, held["e"]], now_ms=NOW)) == MIXED
    assert line.reschedule((bad, to), ("b", to)) == MIXED
    assert line.cancel(bad, "b") == MIXED
    assert line.redrive(bad, due=NOW) == ["invalid"]
    assert line.discard(bad) == ["invalid"]


MIXED = ["invalid", "done"]


@pytest.mark.parametrize("case", BAD_NAMES)
def test_looking_with_a_bad_id(line: Line, case: str) -> None:
    bad = BAD_NAMES[case]
    line.put("a", body=b"x")
    grant = line.lease((bad, NOW), ("a", NOW))
    assert words(grant.refused) == ["invalid"]
    assert [each.lease.id for each in grant.leased] == ["a"]
    assert set(line.store.lookup(line.uid, [bad, "a"])) == {"a"}
    bodies = line.store.bodies(line.uid, [bad, "a"], actor=System(), now_ms=NOW)
    assert bodies.found == {"a": b"x"}
    assert words(bodies.refused) == ["invalid"]


@pytest.mark.parametrize("case", BAD_TIMES)
def test_changes_to_a_bad_time(line: Line, case: str) -> None:
    bad = BAD_TIMES[case]
    line.put("a")
    lease = line.take()
    line.put("b")
    before = line["a"], line["b"]
    assert line.extend(lease, bad) == "invalid"
    assert line.release(lease, bad) == "invalid"
    assert line.retry(lease, bad) == "invalid"
    assert line.reschedule(("b", bad)) == ["invalid"]
    assert (line["a"], line["b"]) == before


@pytest.mark.parametrize("case", BAD_REASONS)
def test_a_bad_reason(line: Line, case: str) -> None:
    line.put("a", "b")
    bad, good = [each.lease for each in line.reserve().leased]
    before = line[bad.id]
    batch = [(bad, BAD_REASONS[case]), (good, "x")]
    outcomes = line.store.bury(line.uid, batch, now_ms=NOW)
    assert words(outcomes) == MIXED
    assert "reason" in outcomes[0].reason
    assert line[bad.id] == before


@pytest.mark.parametrize("reason", ["", "x" * 1_000, "📅" * 1_000, " a\n\tb "])
def test_a_reason_is_kept_as_given(line: Line, reason: str) -> None:
    line.put("a")
    assert line.bury(line.take(), reason) == "done"
    assert [letter.reason for letter in line.dead()] == [reason]


@pytest.mark.parametrize("version", [-1, 2**64, 1.5, "1", None])
def test_invalid_version_is_refused(line: Line, version: Any) -> None:
    line.put("a")
    assert words(line.lease(("a", version)).refused) == ["invalid"]
    lease = line.take()
    broken = Lease(id="a", consumer="c", version=version, until=lease.until)
    assert line.stale_answers(broken) == {"invalid"}
    assert line.ack(broken, lease) == ["invalid", "done"]


@pytest.mark.parametrize("version", [0, 1, MAX_TIME_MS])
def test_a_version_that_is_not_the_current_one(line: Line, version: int) -> None:
    line.put("a")
    assert words(line.lease(("a", version)).refused) == ["stale"]
    line.take()
    assert line.stale_answers(Lease(id="a", consumer="c", version=version, until=0)) == {"stale"}


@pytest.mark.parametrize("case", BAD_NAMES)
def test_a_lease_of_a_bad_consumer(line: Line, case: str) -> None:
    line.put("a")
    lease = line.take()
    broken = Lease(id="a", consumer=BAD_NAMES[case], version=lease.version, until=lease.until)
    assert line.ack(broken, lease) == ["invalid", "done"]


# Errors of the whole call

BAD_CALLS: dict[str, Callable[[Line, Any], object]] = {
    "create": lambda line, now: line.store.create(line.uid, [new("a")], now_ms=now),
    "reschedule": lambda line, now: line.store.reschedule(
        line.uid, [("a", NOW)], producer_group=OWNERS, now_ms=now
    ),
    "cancel": lambda line, now: line.store.cancel(
        line.uid, ["a"], producer_group=OWNERS, now_ms=now
    ),
    "reserve": lambda line, now: line.store.reserve(
        line.uid, line.topic.all_buckets, consumer="c", limit=1, lease_ms=10, now_ms=now
    ),
    "lease": lambda line, now: line.store.lease(
        line.uid, [("a", 1)], consumer="c", lease_ms=10, now_ms=now
    ),
    "resume": lambda line, now: line.store.resume(line.uid, "c", limit=1, now_ms=now),
    "ack": lambda line, now: line.store.ack(
        line.uid, [Lease(id="a", consumer="c", version=1, until=1)], now_ms=now
    ),
    "bury": lambda line, now: line.store.bury(
        line.uid, [(Lease(id="a", consumer="c", version=1, until=1), "x")], now_ms=now
    ),
    "bodies": lambda line, now: line.store.bodies(line.uid, ["a"], actor=System(), now_ms=now),
    "count": lambda line, now: line.store.count(
        line.uid, line.topic.all_buckets, start=0, end=1, now_ms=now
    ),
    "redrive": lambda line, now: line.store.redrive(line.uid, ["a"], due=NOW, now_ms=now),
    "discard": lambda line, now: line.store.discard(line.uid, ["a"], now_ms=now),
    "purge": lambda line, now: line.store.purge(now_ms=now),
    "create_topic": lambda line, now: line.store.create_topic("t", now_ms=now),
}


@pytest.mark.parametrize("call", BAD_CALLS)
def test_a_bad_now(line: Line, call: str) -> None:
    for bad in BAD_TIMES.values():
        with pytest.raises(InvalidInput, match="now_ms"):
            BAD_CALLS[call](line, bad)


@pytest.mark.parametrize("limit", [0, -1, 10_001, 1.5, "1", None, True])
def test_a_bad_limit(line: Line, limit: Any) -> None:
    line.put("a")
    buckets = line.topic.all_buckets
    for call in (
        lambda: line.reserve(limit=limit),
        lambda: line.resume(limit=limit),
        lambda: line.store.select(line.uid, buckets, limit=limit, max_ts=NOW),
        lambda: line.store.select_held(line.uid, "c", limit=limit),
        lambda: line.store.select_owned(line.uid, OWNERS, limit=limit),
        lambda: line.store.dead_letters(line.uid, limit=limit),
    ):
        with pytest.raises(InvalidInput, match="limit"):
            call()


@pytest.mark.parametrize("lease_ms", [9, 0, -1, 10.5, None, 2**64])
def test_a_bad_length_of_a_lease(line: Line, lease_ms: Any) -> None:
    before = line.put("a")
    with pytest.raises(InvalidInput, match="lease_ms"):
        line.reserve(lease_ms=lease_ms)
    with pytest.raises(InvalidInput, match="lease_ms"):
        line.lease(("a", NOW), lease_ms=lease_ms)
    assert line["a"] == before


@pytest.mark.parametrize("ahead_ms", [-1, 60_001, 0.5, None])
def test_a_bad_reserve_ahead(line: Line, ahead_ms: Any) -> None:
    before = line.put("a")
    with pytest.raises(InvalidInput, match="reserve_ahead_ms"):
        line.reserve(ahead_ms=ahead_ms)
    assert line["a"] == before


@pytest.mark.parametrize("case", BAD_NAMES)
def test_a_bad_consumer_or_producer_group(line: Line, case: str) -> None:
    bad = BAD_NAMES[case]
    line.put("a")
    for call in (
        lambda: line.reserve(bad),
        lambda: line.lease(("a", NOW), consumer=bad),
        lambda: line.resume(bad),
        lambda: line.store.select_held(line.uid, bad, limit=1),
        lambda: line.store.select_owned(line.uid, bad, limit=1),
        lambda: line.store.count_owned(line.uid, bad, most=1),
        lambda: line.reschedule(("a", NOW), group=bad),
        lambda: line.cancel("a", group=bad),
    ):
        with pytest.raises(InvalidInput, match=r"consumer|producer group"):
            call()


@pytest.mark.parametrize("case", sorted(set(BAD_NAMES) - {"empty"}))
def test_a_page_behind_a_bad_id(line: Line, case: str) -> None:
    bad = BAD_NAMES[case]
    for call in (
        lambda: line.store.select_owned(line.uid, OWNERS, after=bad, limit=1),
        lambda: line.store.select_held(line.uid, "c", after=bad, limit=1),
        lambda: line.store.resume(line.uid, "c", after=bad, limit=1, now_ms=NOW),
    ):
        with pytest.raises(InvalidInput, match="after"):
            call()


def test_page_after_another_object_than_a_dead_letter(line: Line) -> None:
    for bad in ("a", NOW, (NOW, "a"), line.put("a")):
        with pytest.raises(InvalidInput, match="must be a DeadLetter"):
            line.store.dead_letters(line.uid, after=bad, limit=1)  # type: ignore[arg-type]  # as callers do


@pytest.mark.parametrize(("start", "stop"), [(-1, 1), (0, 65), (2, 1)])
def test_a_range_that_is_not_in_the_topic(line: Line, start: int, stop: int) -> None:
    ranges = [BucketRange(0, 1), BucketRange(start, stop)]
    store, uid = line.store, line.uid
    for call in (
        lambda: store.reserve(uid, ranges, consumer="c", limit=1, lease_ms=10, now_ms=NOW),
        lambda: store.select(uid, ranges, limit=1, max_ts=NOW),
        lambda: store.next_ts(uid, ranges),
        lambda: store.count(uid, ranges, start=0, end=1, now_ms=NOW),
        lambda: store.scan(uid, ranges, start=0, end=1, limit=1),
    ):
        with pytest.raises(InvalidInput, match="bucket range"):
            call()


@pytest.mark.parametrize(
    ("start", "end", "step_ms"),
    [(2, 1, 1), (-1, 1, 1), (0, MAX_TIME_MS + 1, 10**9), (0, 1, 0), (0, 1, -1), (0, 1, 0.5)],
)
def test_a_span_that_makes_no_sense(line: Line, start: int, end: int, step_ms: Any) -> None:
    buckets = line.topic.all_buckets
    with pytest.raises(InvalidInput):
        line.store.forecast(line.uid, buckets, start=start, end=end, step_ms=step_ms, now_ms=NOW)


def test_if_exists_is_refuse_or_replace(line: Line) -> None:
    nonsense: Any = "ignore"
    with pytest.raises(InvalidInput, match="if_exists"):
        line.create(new("a"), if_exists=nonsense)


@pytest.mark.parametrize("due", [-1, MAX_TIME_MS + 1])
def test_redrive_to_a_bad_time(line: Line, due: int) -> None:
    with pytest.raises(InvalidInput, match="due"):
        line.redrive("a", due=due)


def test_a_batch_that_is_too_large_changes_nothing(line: Line) -> None:
    names = [f"m{number}" for number in range(10_001)]
    lease = Lease(id="a", consumer="c", version=1, until=1)
    for call in (
        lambda: line.create(*(new(each) for each in names)),
        lambda: line.reschedule(*((each, NOW) for each in names)),
        lambda: line.cancel(*names),
        lambda: line.lease(*((each, 1) for each in names)),
        lambda: line.ack(*[lease] * 10_001),
        lambda: line.store.lookup(line.uid, names),
        lambda: line.store.bodies(line.uid, names, actor=System(), now_ms=NOW),
        lambda: line.discard(*names),
    ):
        with pytest.raises(InvalidInput, match="at most 10000 items, not 10001"):
            call()
    assert line.next_ts() is None


@pytest.mark.parametrize("name", ["", "a\0b", "\ud800", "x" * 300])
def test_invalid_topic_name_is_not_found(store: Store, name: str) -> None:
    assert store.find_topic(name) is None


@pytest.mark.parametrize("uid", [-1, 0, 2**63 - 1, 2**63, 2**70])
def test_a_uid_that_no_topic_has_is_not_found(store: Store, uid: int) -> None:
    with pytest.raises(TopicNotFound):
        store.get_topic(uid)
    with pytest.raises(TopicNotFound):
        store.create(uid, [new("a")], now_ms=NOW)
    assert not store.delete_topic(uid, now_ms=NOW)


# Items of the wrong kind


def test_items_of_another_type_are_refused_one_by_one(line: Line) -> None:
    store, uid = line.store, line.uid
    wrong: Any = None
    outcomes = store.create(uid, [new("a"), wrong, new("b")], now_ms=NOW)
    assert [outcome.refusal for outcome in outcomes] == [None, Refusal.INVALID, None]
    assert "NewMessage" in outcomes[1].reason
    for lease_outcomes in (
        store.ack(uid, [wrong], now_ms=NOW),
        store.extend(uid, [wrong], now_ms=NOW),
        store.release(uid, [(wrong, NOW + 60)], now_ms=NOW),
        store.bury(uid, [wrong], now_ms=NOW),
        store.bury(uid, [(wrong, "x")], now_ms=NOW),
        store.reschedule(uid, [wrong], producer_group=OWNERS, now_ms=NOW),
    ):
        assert [outcome.refusal for outcome in lease_outcomes] == [Refusal.INVALID]


def test_arguments_of_another_type_are_refused(line: Line) -> None:
    wrong: Any = "ab"
    topic: Any = line.topic
    with pytest.raises(InvalidInput, match="a batch must be"):
        line.store.cancel(line.uid, wrong, producer_group=OWNERS, now_ms=NOW)
    with pytest.raises(InvalidInput, match="by its uid"):
        line.store.create(topic, [new("a")], now_ms=NOW)
    with pytest.raises(InvalidInput, match="actor"):
        line.store.bodies(line.uid, ["a"], actor=wrong, now_ms=NOW)
    with pytest.raises(InvalidInput, match="TopicSettings"):
        line.store.create_topic("t2", wrong, now_ms=NOW)
