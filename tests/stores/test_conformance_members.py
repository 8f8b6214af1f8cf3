"""Members of a group, by their heartbeats."""

import pytest

from chronoline.core.errors import InvalidInput
from chronoline.core.topic import Topic, TopicSettings
from chronoline.stores.contract import Store
from chronoline.stores.members import (
    FORGOTTEN_AFTER_MS,
    MAX_DETAILS_BYTES,
    Member,
    pipe_group,
    pipe_groups,
    pipe_members,
)
from tests.stores.line import NOW

GROUP = "pipe"


@pytest.fixture(autouse=True)
def _nobody(store: Store) -> None:
    """Removes the rows of other tests from a shared database."""
    for member in store.members(GROUP):
        store.leave(GROUP, member.name)


def beat(store: Store, name: str, *, now: int = NOW, details: str = "") -> list[Member]:
    return store.beat(GROUP, name, until_ms=now + 1_000, details=details, now_ms=now)


def test_members_see_each_other_with_their_details(store: Store, other_store: Store) -> None:
    beat(store, "b", details='{"fired": 1}')
    found = beat(other_store, "a")
    assert [(each.name, each.details) for each in found] == [("a", ""), ("b", '{"fired": 1}')]
    assert [each.until_ms for each in store.members(GROUP)] == [NOW + 1_000] * 2
    assert store.members("another") == []


def test_member_is_alive_until_its_deadline(store: Store) -> None:
    (member,) = beat(store, "a")
    assert (member.alive(NOW + 999), member.alive(NOW + 1_000)) == (True, False)
    (member,) = beat(store, "a", now=NOW + 5_000)
    assert member.alive(NOW + 5_999)


def test_stop_request_reaches_one_or_all_and_stays(store: Store) -> None:
    beat(store, "a")
    beat(store, "b")
    assert store.ask_to_stop(GROUP, "a") == 1
    assert [each.stopping for each in beat(store, "a")] == [True, False]
    assert store.ask_to_stop(GROUP) == 2
    assert [each.stopping for each in store.members(GROUP)] == [True, True]
    assert store.ask_to_stop("another") == 0
    assert store.ask_to_stop(GROUP, "c") == 0


def test_member_that_leaves_may_join_again(store: Store) -> None:
    beat(store, "a")
    store.ask_to_stop(GROUP)
    store.leave(GROUP, "a")
    store.leave(GROUP, "a")
    assert store.members(GROUP) == []
    assert [each.stopping for each in beat(store, "a")] == [False]


def test_dead_members_are_forgotten_after_an_hour(store: Store) -> None:
    beat(store, "dead")
    gone = NOW + 1_000 + FORGOTTEN_AFTER_MS
    assert [each.name for each in beat(store, "a", now=gone - 1)] == ["a", "dead"]
    assert [each.name for each in beat(store, "a", now=gone)] == ["a"]


def test_dead_members_of_all_groups_are_forgotten(store: Store) -> None:
    store.beat("of a dropped topic", "a", until_ms=NOW + 1_000, now_ms=NOW)
    beat(store, "b", now=NOW + 1_000 + FORGOTTEN_AFTER_MS)
    assert store.members("of a dropped topic") == []


def test_a_group_lives_while_one_of_its_members_does(store: Store) -> None:
    beat(store, "dies")
    beat(store, "lives", now=NOW + 500)
    assert GROUP in store.live_groups(now_ms=NOW + 1_499)
    assert GROUP not in store.live_groups(now_ms=NOW + 1_500)
    store.leave(GROUP, "lives")
    assert GROUP in store.live_groups(now_ms=NOW)
    assert GROUP not in store.live_groups(now_ms=NOW + 1_000)


def test_older_pipes_are_found_by_topic_name(store: Store) -> None:
    topic = Topic(uid=7_001, name=GROUP, settings=TopicSettings())
    beat(store, "older")
    store.beat(pipe_group(topic), "newer", until_ms=NOW + 1_000, now_ms=NOW)
    assert {each.name for each in pipe_members(store, topic)} == {"newer", "older"}
    store.leave(pipe_group(topic), "newer")
    named_like_a_group = Topic(uid=7_002, name=pipe_group(topic), settings=TopicSettings())
    assert pipe_groups(named_like_a_group) == (pipe_group(named_like_a_group),)


def test_bad_input_is_refused(store: Store) -> None:
    with pytest.raises(InvalidInput, match="member is empty"):
        beat(store, "")
    with pytest.raises(InvalidInput, match="details have at most"):
        beat(store, "a", details="x" * (MAX_DETAILS_BYTES + 1))
