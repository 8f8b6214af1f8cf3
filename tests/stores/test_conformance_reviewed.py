"""Rules that are easily broken at their edges."""

import pytest

from chronoline.core.message import NewMessage
from chronoline.core.outcome import Refusal
from chronoline.core.topic import TopicSettings
from chronoline.stores.contract import Store
from tests.stores.line import NOW, MakeLine


def test_an_extension_never_makes_a_message_available_before_its_due(make_line: MakeLine) -> None:
    line = make_line()
    store, uid = line.store, line.uid
    store.create(uid, [NewMessage(id="a", due=NOW + 1_000)], now_ms=NOW)
    (leased,) = store.reserve(
        uid,
        line.topic.all_buckets,
        consumer="c",
        limit=1,
        lease_ms=500,
        reserve_ahead_ms=1_000,
        now_ms=NOW,
    ).leased
    (early,) = store.extend(uid, [(leased.lease, NOW + 1_009)], now_ms=NOW)
    assert early.refusal is Refusal.TOO_SOON
    (late,) = store.extend(uid, [(leased.lease, NOW + 1_010)], now_ms=NOW)
    assert late.done


def test_what_would_expire_before_its_due_is_not_leased_ahead(make_line: MakeLine) -> None:
    line = make_line()
    store, uid = line.store, line.uid
    store.create(uid, [NewMessage(id="a", due=NOW, expires=NOW + 50)], now_ms=NOW)
    store.reschedule(uid, [("a", NOW + 100)], producer_group="default", now_ms=NOW)
    grant = store.reserve(
        uid,
        line.topic.all_buckets,
        consumer="c",
        limit=1,
        lease_ms=500,
        reserve_ahead_ms=100,
        now_ms=NOW + 20,
    )
    assert grant.leased == ()
    assert [letter.reason for letter in store.dead_letters(uid, limit=1)] == ["expired"]


def test_resuming_by_pages_gives_each_lease_once(make_line: MakeLine) -> None:
    line = make_line()
    store, uid = line.store, line.uid
    ids = [f"m{number}" for number in range(5)]
    store.create(uid, [NewMessage(id=each, due=NOW) for each in ids], now_ms=NOW)
    store.reserve(uid, line.topic.all_buckets, consumer="c", limit=5, lease_ms=500, now_ms=NOW)
    found: list[str] = []
    more = True
    while more:
        after = max(found, default="")
        grant = store.resume(uid, "c", after=after, limit=2, now_ms=NOW)
        found += [each.lease.id for each in grant.leased]
        more = grant.more
    assert sorted(found) == ids


def test_a_uid_that_is_taken_is_drawn_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    draws = iter([b"\0\0\1", b"\0\0\1", b"\0\0\2"])
    monkeypatch.setattr(store, "_random_bytes", lambda _: next(draws))
    first = store.create_topic("first", TopicSettings(buckets=2), now_ms=NOW)
    second = store.create_topic("second", TopicSettings(buckets=4), now_ms=NOW)
    assert first.uid != second.uid
    assert store.get_topic(second.uid).settings.buckets == 4


def test_large_bodies_are_written_in_several_statements(make_line: MakeLine) -> None:
    line = make_line(largest_body_bytes=9_000_000)
    body = bytes(9_000_000)
    new = [NewMessage(id=f"m{number}", due=NOW, body=body) for number in range(4)]
    outcomes = line.store.create(line.uid, new, now_ms=NOW)
    assert [outcome.done for outcome in outcomes] == [True] * 4
    assert line.store.lookup(line.uid, ["m0", "m3"]).keys() == {"m0", "m3"}


def test_a_topic_is_ensured_once(store: Store) -> None:
    made = store.ensure_topic("t", TopicSettings(buckets=2), now_ms=NOW)
    assert store.ensure_topic("t", now_ms=NOW) == made
    assert store.list_topics() == [made]
