"""Deleted topics and groups disappear at once, are purged completely, and never come back."""

import pytest

from chronoline.core.errors import TopicNotFound
from chronoline.log.contract import GroupNotFound, Index, LogTopic
from tests.log.index.conftest import Open
from tests.log.index.steps import (
    NOW,
    OTHER,
    TOPIC,
    all_chunks,
    append,
    at_once,
    ends,
    fill,
    held,
    merge,
    new_chunks,
    take,
)

AGAIN = LogTopic(uid=TOPIC.uid + 9, name=TOPIC.name, partitions=2)


def purge(index: Index) -> None:
    while index.purge_topic(TOPIC.uid):
        pass


# Topics


def test_a_deleted_topic_is_gone_at_once(index: Index, another: Open) -> None:
    fill(index, 2)
    other = another()
    assert ends(other)[0] == (0, 2)
    assert index.delete_topic(TOPIC.uid)
    for handle in (index, other):
        assert handle.find_topic("t") is None
        assert handle.list_topics() == []
        assert handle.heads(TOPIC.uid) == []
        for partition in (0, 1):  # one that has events, and one that never had any
            with pytest.raises(TopicNotFound):
                append(handle, "late", {partition: 1})
    assert not index.delete_topic(TOPIC.uid)
    assert not index.delete_topic(99)


def test_name_is_reusable_before_the_purge(index: Index) -> None:
    fill(index, 3)
    take(index, "a")
    index.delete_topic(TOPIC.uid)
    index.create_topic(AGAIN)
    assert index.find_topic("t") == AGAIN
    assert ends(index, AGAIN.uid) == [(0, 0)] * 2
    assert append(index, "new", {0: 1}, topic_uid=AGAIN.uid) == [0]
    purge(index)
    assert index.groups(AGAIN.uid) == []
    assert [each.object_name for each in all_chunks(index, 0, AGAIN.uid)] == ["new"]


def test_any_process_can_finish_a_purge(index: Index, another: Open) -> None:
    fill(index, 5)
    append(index, "wide", {1: 1, 2: 1})
    index.open_group("g", TOPIC.uid, uid=7)
    index.join("g", TOPIC.uid, "a", until_ms=NOW + 9, now_ms=NOW)
    take(index, "a")
    index.max_chunks_per_commit = 2
    index.delete_topic(TOPIC.uid)
    assert another().deleted_topics() == [TOPIC.uid]
    index.purge_topic(TOPIC.uid)  # and dies
    purge(another())
    assert index.deleted_topics() == []
    assert sorted(index.unreferenced(10)) == [*(f"o{number}" for number in range(5)), "wide"]
    assert all_chunks(index) == []
    assert index.groups(TOPIC.uid) == []
    assert not index.purge_topic(TOPIC.uid)


def test_concurrent_purges_are_safe(index: Index, another: Open) -> None:
    fill(index, 12)
    index.max_chunks_per_commit = 3
    index.delete_topic(TOPIC.uid)
    at_once(purge, [index, another(), another()])
    assert index.deleted_topics() == []
    assert len(index.unreferenced(99)) == 12


def test_objects_that_other_topics_share_stay(index: Index) -> None:
    index.create_topic(OTHER)
    index.commit("both", [*new_chunks({0: 1}), *new_chunks({0: 2}, OTHER.uid)], now_ms=NOW)
    index.delete_topic(TOPIC.uid)
    purge(index)
    assert index.unreferenced(10) == []
    assert ends(index, OTHER.uid)[0] == (0, 2)
    index.trim(OTHER.uid, 0, before_sequence=2)
    assert index.unreferenced(10) == ["both"]


def test_upkeep_of_a_deleted_topic_harms_nothing(index: Index) -> None:
    chunks = fill(index, 3)
    append(index, "last", {1: 1})
    index.delete_topic(TOPIC.uid)
    index.trim(TOPIC.uid, 0, before_sequence=1)
    merge(index, chunks[1:], "merged")
    purge(index)
    assert all_chunks(index) == []
    assert {*index.unreferenced(10)} - {"merged"} == {"o0", "o1", "o2", "last"}


def test_nothing_is_appended_once_a_deletion_is_answered(index: Index, another: Open) -> None:
    other = another()
    given: list[int] = []

    def write() -> None:
        for number in range(200):
            try:
                given.extend(append(other, f"w{number}", {0: 1}))
            except TopicNotFound:
                return

    def drop() -> None:
        while not given:
            pass
        index.delete_topic(TOPIC.uid)
        purge(index)

    at_once(lambda action: action(), [write, drop])
    with pytest.raises(TopicNotFound):
        append(other, "late", {0: 1})
    assert given == list(range(len(given)))
    assert all_chunks(index) == []
    assert sorted(index.unreferenced(999)) == sorted(f"w{number}" for number in given)


def test_a_deleted_topic_takes_no_readers(index: Index) -> None:
    index.delete_topic(TOPIC.uid)
    with pytest.raises(TopicNotFound):
        index.open_group("g", TOPIC.uid, uid=1)
    purge(index)
    with pytest.raises(TopicNotFound):
        index.open_group("g", TOPIC.uid, uid=1)


# Groups


def test_first_reader_sets_the_group_uid(index: Index, another: Open) -> None:
    assert index.open_group("g", TOPIC.uid, uid=5) == 5
    assert another().open_group("g", TOPIC.uid, uid=6) == 5
    assert index.open_group("h", TOPIC.uid, uid=6) == 6


def test_readers_of_a_deleted_group_lose_their_holds(index: Index, another: Open) -> None:
    fill(index, 9)
    index.open_group("g", TOPIC.uid, uid=5)
    times = {"until_ms": NOW + 100, "now_ms": NOW}
    (zombie,) = index.hold("g", TOPIC.uid, [0], "a", **times, group_uid=5)
    index.progress(zombie, 4, now_ms=NOW)
    assert another().delete_group("g", TOPIC.uid)
    for _ in range(2):
        assert index.progress(zombie, 6, now_ms=NOW) is None
        assert index.renew([zombie], **times) == []
        with pytest.raises(GroupNotFound):
            index.join("g", TOPIC.uid, "a", **times, group_uid=5)
        with pytest.raises(GroupNotFound):
            index.hold("g", TOPIC.uid, [0, 1], "a", **times, group_uid=5)
        # The second time, there is a new group of that name.
        assert index.open_group("g", TOPIC.uid, uid=6) == 6


def test_a_group_of_a_deleted_name_begins_anew(index: Index) -> None:
    fill(index, 9)
    old = held(take(index, "a"))
    index.progress(old, 4, now_ms=NOW)
    index.join("g", TOPIC.uid, "a", until_ms=NOW + 100, now_ms=NOW)
    assert index.delete_group("g", TOPIC.uid)
    assert index.groups(TOPIC.uid) == []
    uid = index.open_group("g", TOPIC.uid, uid=6)
    times = {"until_ms": NOW + 100, "now_ms": NOW, "group_uid": uid}
    assert index.join("g", TOPIC.uid, "b", **times) == ["b"]
    (new,) = index.hold("g", TOPIC.uid, [0], "b", **times)
    assert new.sequence == 0
    assert index.progress(old, 6, now_ms=NOW) is None
    index.let_go([old])
    assert [(each.holder, each.sequence) for each in index.groups(TOPIC.uid)] == [("b", 0)]


def test_other_groups_stay_as_they_are(index: Index) -> None:
    index.create_topic(OTHER)
    take(index, "a", group="h")
    take(index, "a")
    index.hold("g", OTHER.uid, [0], "a", until_ms=NOW + 100, now_ms=NOW)
    assert index.delete_group("g", TOPIC.uid)
    assert [each.group for each in index.groups(TOPIC.uid)] == ["h"]
    assert [each.group for each in index.groups(OTHER.uid)] == ["g"]
    assert not index.delete_group("g", TOPIC.uid)
    assert not index.delete_group("never", TOPIC.uid)


def test_readers_of_a_group_under_deletion_leave_no_progress(index: Index, another: Open) -> None:
    fill(index, 3)
    other = another()
    for round_number in range(10):
        uid = index.open_group("g", TOPIC.uid, uid=100 + round_number)

        def come(uid: int = uid) -> None:
            times = {"until_ms": NOW + 100, "now_ms": NOW, "group_uid": uid}
            try:
                for hold in other.hold("g", TOPIC.uid, [0, 1, 2], "a", **times):
                    other.progress(hold, 1, now_ms=NOW)
            except GroupNotFound:
                pass

        at_once(
            lambda action: action(),
            [come, lambda: assert_deleted(index)],
        )
        assert index.groups(TOPIC.uid) == []


def assert_deleted(index: Index) -> None:
    assert index.delete_group("g", TOPIC.uid)
