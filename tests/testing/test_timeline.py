"""The scheduled messages, and assertions that show them on failure."""

from datetime import UTC, datetime

import pytest

from chronoline.core.errors import ChronolineError, InvalidInput, TopicNotFound
from chronoline.store import NewMessage, Topic, TopicSettings, raise_for_refused
from chronoline.testing import (
    ManualClock,
    MemoryStore,
    assert_not_scheduled,
    assert_scheduled,
    scheduled,
)

NOW = ManualClock().now_ms()


@pytest.fixture
def topic(chronoline_store: MemoryStore) -> Topic:
    return chronoline_store.create_topic("reminders", TopicSettings(max_attempts=2), now_ms=NOW)


@pytest.fixture
def store(chronoline_store: MemoryStore, topic: Topic) -> MemoryStore:
    """A timeline of three."""
    messages = [
        NewMessage(id="late", due=NOW + 9_000, body=None),
        NewMessage(id="soon", due=NOW + 1_000, body=b"hello", headers=(("a", b"1"), ("b", None))),
        NewMessage(id="now", due=NOW, body=b"x" * 100),
    ]
    raise_for_refused(chronoline_store.create(topic.uid, messages, now_ms=NOW))
    return chronoline_store


def test_scheduled_returns_messages_in_order_of_due(store: MemoryStore, topic: Topic) -> None:
    found = scheduled(store, topic)
    assert [(each.id, each.due - NOW, each.body) for each in found] == [
        ("now", 0, b"x" * 100),
        ("soon", 1_000, b"hello"),
        ("late", 9_000, None),
    ]
    assert found[1].headers == (("a", b"1"), ("b", None))


def test_leased_message_stays_on_the_timeline(store: MemoryStore, topic: Topic) -> None:
    store.reserve(topic.uid, topic.all_buckets, consumer="c", limit=1, lease_ms=60_000, now_ms=NOW)
    assert [each.id for each in scheduled(store, topic)] == ["now", "soon", "late"]


def test_topic_is_given_as_object_name_or_uid(store: MemoryStore, topic: Topic) -> None:
    assert scheduled(store, topic) == scheduled(store, "reminders") == scheduled(store, topic.uid)
    with pytest.raises(TopicNotFound, match=r"no topic named 'other'; there are: \['reminders'\]"):
        scheduled(store, "other")
    store.delete_topic(topic.uid, now_ms=NOW)
    with pytest.raises(TopicNotFound):
        scheduled(store, topic)


def test_too_long_timeline_is_refused(store: MemoryStore, topic: Topic) -> None:
    many = [NewMessage(id=str(number), due=NOW) for number in range(10_000)]
    store.create(topic.uid, many, now_ms=NOW)
    with pytest.raises(ChronolineError, match="more than 10000"):
        scheduled(store, topic)


def test_message_is_found_by_any_field(store: MemoryStore, topic: Topic) -> None:
    assert assert_scheduled(store, topic).id == "now"
    assert assert_scheduled(store, topic, id="soon").body == b"hello"
    assert assert_scheduled(store, topic, due=NOW + 1_000).id == "soon"
    assert (
        assert_scheduled(store, topic, due=datetime(2026, 1, 1, 0, 0, 9, tzinfo=UTC)).id == "late"
    )
    assert assert_scheduled(store, topic, due=NOW + 1_050, within_ms=50).id == "soon"
    assert assert_scheduled(store, topic, due=NOW + 950, within_ms=50).id == "soon"
    assert assert_scheduled(store, topic, body=b"hello").id == "soon"
    assert assert_scheduled(store, topic, body=None).id == "late"
    assert assert_scheduled(store, topic, headers=[("b", None)]).id == "soon"
    everything = assert_scheduled(
        store, topic, id="soon", due=NOW + 1_000, body=b"hello", headers=(("b", None), ("a", b"1"))
    )
    assert everything.id == "soon"


def test_difference_in_one_field_is_not_found(store: MemoryStore, topic: Topic) -> None:
    with pytest.raises(AssertionError, match=r"'soon' .* differs in due \(-1 ms\)"):
        assert_scheduled(store, topic, id="soon", due=NOW + 1_001)
    with pytest.raises(AssertionError, match=r"differs in due \(-51 ms\)"):
        assert_scheduled(store, topic, id="soon", due=NOW + 1_051, within_ms=50)
    with pytest.raises(AssertionError, match="differs in body"):
        assert_scheduled(store, topic, id="soon", body=b"other")
    with pytest.raises(AssertionError, match="differs in body"):
        assert_scheduled(store, topic, id="soon", body=None)
    with pytest.raises(AssertionError, match="differs in headers"):
        assert_scheduled(store, topic, id="soon", headers=[("a", b"2")])
    with pytest.raises(AssertionError, match="differs in id"):
        assert_scheduled(store, topic, id="other", due=NOW + 1_000)
    with pytest.raises(InvalidInput, match="no time zone"):
        assert_scheduled(store, topic, due=datetime(2026, 1, 1))


def test_failure_shows_the_timeline(store: MemoryStore, topic: Topic) -> None:
    store.reserve(topic.uid, topic.all_buckets, consumer="c", limit=1, lease_ms=60_000, now_ms=NOW)
    with pytest.raises(AssertionError) as failure:
        assert_scheduled(store, topic, id="soon", due=NOW + 3_000, within_ms=100, body=b"hello")
    assert str(failure.value).splitlines() == [
        "no message on 'reminders' has id 'soon', due 2026-01-01T00:00:03.000Z = 1767225603000"
        " ± 100 ms, body b'hello'.",
        "The timeline holds 3:",
        f"  2026-01-01T00:00:00.000Z = 1767225600000  'now'  {b'x' * 60!r}… (100 bytes)"
        "  leased to 'c' until 1767225660000  <- differs in id, due (-3,000 ms), body",
        "  2026-01-01T00:00:01.000Z = 1767225601000  'soon'  b'hello'  {a: b'1', b: None}"
        "  <- differs in due (-2,000 ms)",
        "  2026-01-01T00:00:09.000Z = 1767225609000  'late'  None"
        "  <- differs in id, due (+6,000 ms), body",
    ]


def test_failure_shows_the_nearest_of_many(store: MemoryStore, topic: Topic) -> None:
    many = [NewMessage(id=f"many-{number}", due=NOW, body=b"b") for number in range(30)]
    store.create(topic.uid, many, now_ms=NOW)
    with pytest.raises(AssertionError, match=r"'late' .* differs in body\n  and 13 more"):
        assert_scheduled(store, topic, id="late", body=b"c")


def test_failure_mentions_empty_timeline_and_dead_letters(store: MemoryStore, topic: Topic) -> None:
    for now_ms in (NOW, NOW + 10_000):
        (leased,) = store.lease(
            topic.uid,
            [("now", store.lookup(topic.uid, ["now"])["now"].version)],
            consumer="c",
            lease_ms=1_000,
            now_ms=now_ms,
        ).leased
        store.retry(topic.uid, [(leased.lease, now_ms + 10_000)], now_ms=now_ms)
    store.cancel(topic.uid, ["soon", "late"], producer_group="default", now_ms=NOW)
    assert_not_scheduled(store, topic)
    with pytest.raises(AssertionError) as failure:
        assert_scheduled(store, topic, headers=[("a", b"1")])
    assert str(failure.value).splitlines() == [
        "no message on 'reminders' has headers {a: b'1'}.",
        "The timeline is empty.",
        "Among the dead letters: 'now' (attempts)",
    ]


def test_unwanted_message_is_shown(store: MemoryStore, topic: Topic) -> None:
    assert_not_scheduled(store, topic, id="other")
    assert_not_scheduled(store, topic, id="soon", due=NOW)
    assert_not_scheduled(store, topic, body=b"hell")
    with pytest.raises(AssertionError) as failure:
        assert_not_scheduled(store, topic, id="soon")
    assert "1 on 'reminders' should not be there, with id 'soon'." in str(failure.value)
    assert "'soon'  b'hello'  {a: b'1', b: None}  <- matches" in str(failure.value)
    with pytest.raises(AssertionError, match="3 on 'reminders' should not be there, with anything"):
        assert_not_scheduled(store, topic)


def test_failed_attempts_are_shown(store: MemoryStore, topic: Topic) -> None:
    grant = store.reserve(
        topic.uid, topic.all_buckets, consumer="c", limit=1, lease_ms=1_000, now_ms=NOW
    )
    store.retry(topic.uid, [(grant.leased[0].lease, NOW + 500)], now_ms=NOW)
    with pytest.raises(AssertionError, match=r"'now' .* after 1 failed attempts"):
        assert_scheduled(store, topic, id="now", due=NOW)
