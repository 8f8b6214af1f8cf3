"""Topics: a new uid each time, fixed settings, and a name that is taken until the purge."""

import pytest

from chronoline.core.errors import InvalidInput, TopicExists, TopicNotFound
from chronoline.core.limits import MAX_TIME_MS
from chronoline.core.topic import TopicSettings
from chronoline.stores.contract import Store
from tests.stores.line import NOW, MakeLine

SETTINGS = TopicSettings(
    buckets=7,
    window_ms=500,
    default_lease_ms=12_345,
    max_attempts=3,
    max_lateness_ms=60_000,
    dedupe_ms=0,
    dead_letters=False,
    largest_body_bytes=99,
    target="https://example.com/remind",
)


def test_a_new_store_has_no_topics(store: Store) -> None:
    assert store.list_topics() == []


def test_a_topic_is_found_by_uid_and_by_name(store: Store) -> None:
    made = store.create_topic("orders", SETTINGS, now_ms=NOW)
    assert made.name == "orders"
    assert made.settings == SETTINGS
    assert store.get_topic(made.uid) == made
    assert store.find_topic("orders") == made


def test_every_store_of_a_database_sees_a_topic(store: Store, other_store: Store) -> None:
    default = store.create_topic("default", now_ms=NOW)
    special = store.create_topic("special", SETTINGS, now_ms=NOW)
    assert other_store.list_topics() == [default, special]
    assert other_store.get_topic(special.uid) == special


def test_topics_are_listed_by_name(store: Store) -> None:
    names = ["b", "a", "größe", "Z", "z", "aa"]
    made = {name: store.create_topic(name, now_ms=NOW) for name in names}
    assert store.list_topics() == [made[name] for name in sorted(names)]


def test_every_topic_has_its_own_uid(store: Store) -> None:
    uids = {store.create_topic(f"t{number}", now_ms=NOW).uid for number in range(20)}
    assert len(uids) == 20


def test_a_topic_can_be_made_at_any_time(store: Store) -> None:
    for now_ms in (0, MAX_TIME_MS):
        made = store.create_topic(f"made at {now_ms}", now_ms=now_ms)
        assert store.get_topic(made.uid) == made


def test_missing_topic_is_not_found(store: Store) -> None:
    assert store.find_topic("nothing") is None
    with pytest.raises(TopicNotFound):
        store.get_topic(7)


def test_a_name_is_taken_once(store: Store) -> None:
    made = store.create_topic("orders", now_ms=NOW)
    with pytest.raises(TopicExists, match=r"^a topic named 'orders' exists$"):
        store.create_topic("orders", SETTINGS, now_ms=NOW)
    assert store.list_topics() == [made]


def test_names_differ_by_case_and_by_every_character(store: Store) -> None:
    for name in ("orders", "Orders", "orders ", "o\u0308", "ö"):
        store.create_topic(name, now_ms=NOW)
    assert len(store.list_topics()) == 5


@pytest.mark.parametrize("name", ["", "x" * 256, "a\0b", "a\nb", "\ud800"])
def test_a_bad_name_makes_no_topic(store: Store, name: str) -> None:
    with pytest.raises(InvalidInput, match="topic name"):
        store.create_topic(name, now_ms=NOW)
    assert store.list_topics() == []


def test_topics_do_not_see_each_others_messages(make_line: MakeLine) -> None:
    one, other = make_line(), make_line()
    one.put("a", body=b"one")
    other.put("a", body=b"other")
    one.ack(one.take())
    assert "a" not in one
    assert [each.body for each in other.reserve().leased] == [b"other"]


# Deleting


def test_a_deleted_topic_is_gone_for_everybody(make_line: MakeLine) -> None:
    line = make_line()
    assert line.drop()
    assert line.store.find_topic(line.topic.name) is None
    assert line.store.list_topics() == []
    with pytest.raises(TopicNotFound):
        line.store.get_topic(line.uid)


def test_repeated_drop_changes_nothing(make_line: MakeLine) -> None:
    line = make_line()
    assert line.drop()
    assert not line.drop()
    assert not line.store.delete_topic(7, now_ms=NOW)


def test_the_name_is_taken_until_everything_is_purged(make_line: MakeLine) -> None:
    line = make_line()
    line.put("a", "b", "c")
    line.drop()
    for make in (line.store.create_topic, line.store.ensure_topic):
        assert line.purge(limit=1) == 1
        with pytest.raises(
            TopicExists, match="was deleted, and its messages are still being removed"
        ):
            make(line.topic.name, now_ms=NOW)
    while line.purge(limit=1):
        pass
    again = line.store.create_topic(line.topic.name, now_ms=NOW)
    assert again.uid != line.uid


def test_deleted_topics_are_listed_until_they_are_purged(make_line: MakeLine) -> None:
    line, live = make_line(), make_line()
    line.put("a", "b")
    assert line.store.deleted_topics() == []
    line.drop()
    assert line.purge(limit=1) == 1
    assert line.store.deleted_topics() == [line.topic]
    while line.purge():
        pass
    assert line.store.deleted_topics() == []
    assert line.store.list_topics() == [live.topic]


def test_name_of_an_empty_topic_is_free_after_purge(make_line: MakeLine) -> None:
    line = make_line()
    line.drop()
    line.purge()
    assert line.store.create_topic(line.topic.name, now_ms=NOW).uid != line.uid


def test_old_messages_never_come_back(make_line: MakeLine) -> None:
    line = make_line(max_attempts=1)
    line.put("a", "waiting", "acked", "dead", body=b"x" * 5_000)
    leased = {each.lease.id: each.lease for each in line.reserve().leased}
    line.ack(leased["acked"])
    line.retry(leased["dead"], NOW + 100)
    line.drop()
    while line.purge():
        pass
    line.topic = line.store.create_topic(line.topic.name, now_ms=NOW)
    assert line.next_ts() is None
    assert line.dead() == []
    line.put("a", "waiting", "acked", "dead")
    assert len(line.reserved()) == 4


def test_a_drop_leaves_other_topics_alone(make_line: MakeLine) -> None:
    one, other = make_line(), make_line()
    one.put("a")
    kept = other.put("a")
    one.drop()
    while one.purge():
        pass
    assert other["a"] == kept
