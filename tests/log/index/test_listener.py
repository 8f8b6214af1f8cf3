"""The listener: an engine with notifications reports appends of other processes at once."""

from queue import SimpleQueue

import pytest

from chronoline.log.contract import Index, LogTopic, NewChunk
from tests.log.index.conftest import Open
from tests.log.index.steps import NOW, OTHER, PATIENCE_S, TOPIC, append, new_chunks

Heard = SimpleQueue[set[int] | None]


@pytest.fixture
def heard() -> Heard:
    return SimpleQueue()


@pytest.fixture
def listening(another: Open, heard: Heard) -> Index:
    """A handle whose listener has started; engines without a listener are skipped."""
    index = another()
    if type(index).listen is Index.listen:
        pytest.skip("the engine hears nothing")
    index.listen(heard.put)
    assert heard.get(timeout=PATIENCE_S) is None
    return index


def test_engine_without_a_listener_hears_nothing(index: Index) -> None:
    assert not index.hearing


def test_append_of_another_process_is_heard(index: Index, listening: Index, heard: Heard) -> None:
    assert listening.hearing
    index.create_topic(OTHER)
    append(index, "a", {0: 1})
    assert heard.get(timeout=PATIENCE_S) == {TOPIC.uid}
    chunks = [*new_chunks({0: 1, 1: 1}), *new_chunks({0: 1}, OTHER.uid)]
    index.commit("b", chunks, now_ms=NOW)
    assert heard.get(timeout=PATIENCE_S) == {TOPIC.uid, OTHER.uid}


def test_own_append_is_not_heard(index: Index, listening: Index, heard: Heard) -> None:
    index.create_topic(OTHER)
    append(listening, "a", {0: 1})
    append(index, "b", {0: 1}, topic_uid=OTHER.uid)
    assert heard.get(timeout=PATIENCE_S) == {OTHER.uid}


def test_repeated_commit_is_not_announced_again(
    index: Index, listening: Index, heard: Heard
) -> None:
    append(index, "a", {0: 1})
    append(index, "a", {0: 1})
    index.create_topic(OTHER)
    append(index, "b", {0: 1}, topic_uid=OTHER.uid)
    assert [heard.get(timeout=PATIENCE_S) for _ in range(2)] == [{TOPIC.uid}, {OTHER.uid}]


def test_an_append_to_very_many_topics_is_heard(
    index: Index, listening: Index, heard: Heard
) -> None:
    count = min(index.max_chunks_per_commit, 1_000)
    topics = [
        LogTopic(uid=10**15 + number, name=f"t{number}", partitions=1) for number in range(count)
    ]
    for topic in topics:
        index.create_topic(topic)
    index.commit("a", [NewChunk(topic.uid, 0, 1, 8, 10) for topic in topics], now_ms=NOW)
    heard_of = heard.get(timeout=PATIENCE_S)
    assert heard_of is None or heard_of == {topic.uid for topic in topics}


def test_closing_ends_the_listening(listening: Index) -> None:
    listening.close()
    assert not listening.hearing
    listening.close()
