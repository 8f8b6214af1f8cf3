"""Rules that are easily broken at their edges."""

from collections.abc import Callable, Sequence

import pytest

from chronoline.core.message import Lease, NewMessage
from chronoline.core.outcome import Refusal
from chronoline.core.topic import Topic, TopicSettings
from chronoline.runtime.bounded_cache import BoundedCache
from chronoline.stores import writer
from chronoline.stores.contract import Store
from chronoline.stores.timeline import Timeline
from tests.stores.line import NOW, MakeLine, new


def test_extension_cannot_end_before_due(make_line: MakeLine) -> None:
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


def test_message_that_expires_before_due_is_not_leased(make_line: MakeLine) -> None:
    line = make_line()
    store, uid = line.store, line.uid
    store.create(uid, [NewMessage(id="a", due=NOW, expires=NOW + 50)], now_ms=NOW)
    taken = store.reserve(
        uid, line.topic.all_buckets, consumer="c", limit=1, lease_ms=500, now_ms=NOW
    )
    (retried,) = store.retry(uid, [(taken.leased[0].lease, NOW + 100)], now_ms=NOW)
    assert retried.done
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
    news = [NewMessage(id=each, due=NOW - number) for number, each in enumerate(ids)]
    store.create(uid, news, now_ms=NOW)
    store.reserve(uid, line.topic.all_buckets, consumer="c", limit=5, lease_ms=500, now_ms=NOW)
    found: list[Lease] = []
    more = True
    while more:
        after = found[-1].id if found else ""
        grant = store.resume(uid, "c", after=after, limit=2, now_ms=NOW)
        found += [each.lease for each in grant.leased]
        more = grant.more
    assert [each.id for each in found] == ids
    assert line.ack(*found) == ["done"] * len(ids)


def test_a_uid_that_is_taken_is_drawn_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    draws = iter([b"\0\0\1", b"\0\0\1", b"\0\0\2"])
    assert isinstance(store, Timeline)
    # Two topics that draw the same uid.
    monkeypatch.setattr(store.topics, "_random_bytes", lambda _: next(draws))
    first = store.create_topic("first", TopicSettings(buckets=2), now_ms=NOW)
    second = store.create_topic("second", TopicSettings(buckets=4), now_ms=NOW)
    assert first.uid != second.uid
    assert store.get_topic(second.uid).settings.buckets == 4


def counted(store: Store, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many messages each create of the engine was given."""
    sizes: list[int] = []
    assert isinstance(store, Timeline)
    create: Callable[..., dict[str, int]] = store.engine.create

    def count(
        connection: object, topic: Topic, messages: Sequence[object], *others: object
    ) -> dict[str, int]:
        sizes.append(len(messages))
        return create(connection, topic, messages, *others)

    monkeypatch.setattr(store.engine, "create", count)
    return sizes


def test_large_bodies_are_written_in_several_statements(
    make_line: MakeLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = make_line(largest_body_bytes=9_000_000)
    body = bytes(9_000_000)
    news = [NewMessage(id=f"m{number}", due=NOW, body=body) for number in range(4)]
    sizes = counted(line.store, monkeypatch)
    outcomes = line.store.create(line.uid, news, now_ms=NOW)
    assert [outcome.done for outcome in outcomes] == [True] * 4
    assert sizes == [2, 2]
    assert line.store.lookup(line.uid, ["m0", "m3"]).keys() == {"m0", "m3"}


def test_large_keys_and_headers_are_written_in_several_statements(
    make_line: MakeLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = make_line()
    # No setting: a small bound is reached soon.
    monkeypatch.setattr(writer, "_STATEMENT_BYTES", 100_000)
    headers = (("h", bytes(20_000)), ("none", None))
    news = [NewMessage(id=f"{n}", due=NOW, key=bytes(30_000), headers=headers) for n in range(4)]
    sizes = counted(line.store, monkeypatch)
    outcomes = line.store.create(line.uid, news, now_ms=NOW)
    assert [outcome.done for outcome in outcomes] == [True] * 4
    assert sizes == [2, 2]


def test_repeated_id_in_a_batch_is_written_once(
    make_line: MakeLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = make_line()
    line.put("taken")
    sizes = counted(line.store, monkeypatch)
    batch = [new(each) for each in ["a", "taken", "a", "taken", "b", "a"]]
    assert line.create(*batch) == ["done", "exists", "exists", "exists", "done", "exists"]
    assert sizes == [3]
    assert line.create(*batch, if_exists="replace") == ["done"] * len(batch)
    assert sizes == [3, 3, 2, 1]


def test_the_topics_that_a_store_remembers_are_bounded(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(store, Timeline)
    # No setting: a small bound is reached soon.
    monkeypatch.setattr(store.topics, "_known", BoundedCache(2))
    for name in "abc":
        store.create_topic(name, now_ms=NOW)
        assert len(store.topics._known) <= 2


def test_a_topic_is_ensured_once(store: Store) -> None:
    made = store.ensure_topic("t", TopicSettings(buckets=2), now_ms=NOW)
    assert store.ensure_topic("t", now_ms=NOW) == made
    assert store.list_topics() == [made]
