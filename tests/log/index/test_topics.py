"""Topics: a name is taken once, and its partitions begin at nothing."""

import pytest

from chronoline.core.errors import TopicExists
from chronoline.log.contract import Head, Index, LogTopic
from tests.log.index.conftest import Open
from tests.log.index.steps import OTHER, TOPIC, append, at_once, ends


def test_a_topic_is_found_by_its_name(index: Index) -> None:
    assert index.find_topic("t") == TOPIC
    assert index.find_topic("T") is None
    assert index.find_topic("nobody") is None


def test_topics_are_listed_by_name(index: Index) -> None:
    index.create_topic(OTHER)
    umlaut = LogTopic(uid=1, name="Ärger", partitions=1)
    capital = LogTopic(uid=2, name="Z", partitions=1)
    index.create_topic(umlaut)
    index.create_topic(capital)
    assert index.list_topics() == [capital, OTHER, TOPIC, umlaut]


def test_new_index_is_empty(empty_index: Index) -> None:
    assert empty_index.list_topics() == []
    assert empty_index.find_topic("t") is None
    assert empty_index.heads(TOPIC.uid) == []


def test_a_taken_name_is_refused_and_nothing_changes(index: Index) -> None:
    append(index, "o", {0: 3})
    with pytest.raises(TopicExists):
        index.create_topic(LogTopic(uid=1, name="t", partitions=9))
    assert index.list_topics() == [TOPIC]
    assert index.heads(1) == []
    assert ends(index)[0] == (0, 3)


def test_partitions_begin_at_nothing(index: Index) -> None:
    assert index.heads(TOPIC.uid) == [Head(partition, 0, 0) for partition in range(4)]


def test_a_topic_may_have_many_partitions(empty_index: Index) -> None:
    empty_index.create_topic(LogTopic(uid=1, name="wide", partitions=300))
    assert [head.partition for head in empty_index.heads(1)] == list(range(300))


def test_another_process_sees_a_topic_at_once(index: Index, another: Open) -> None:
    other = another()
    index.create_topic(OTHER)
    assert other.find_topic("other") == OTHER
    assert len(other.heads(OTHER.uid)) == OTHER.partitions


def test_one_concurrent_create_of_a_name_succeeds(empty_index: Index, another: Open) -> None:
    handles = [empty_index, another()] * 4

    def create(number: int) -> bool:
        try:
            handles[number].create_topic(LogTopic(uid=number + 1, name="t", partitions=2))
        except TopicExists:
            return False
        return True

    made = at_once(create, range(8))
    assert made.count(True) == 1
    (topic,) = empty_index.list_topics()
    assert topic.uid == made.index(True) + 1
    assert [len(empty_index.heads(uid)) for uid in range(1, 9)] == [2 * each for each in made]


def test_content_survives_a_close(index: Index, another: Open) -> None:
    append(index, "o", {1: 2})
    index.close()
    index.close()
    assert another().list_topics() == [TOPIC]
    assert ends(another())[1] == (0, 2)
