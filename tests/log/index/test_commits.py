"""Commits: sequences without gaps, and one lasting answer for each name."""

import pytest

from chronoline.core.errors import TopicNotFound
from chronoline.log.contract import Index, LogTopic, NewChunk, ObjectSwept
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
    merge,
    new_chunks,
)


def test_sequences_count_per_partition(index: Index) -> None:
    assert append(index, "a", {0: 3, 1: 1}) == [0, 0]
    assert append(index, "b", {1: 2, 2: 5}) == [1, 0]
    assert append(index, "c", {0: 1, 1: 1, 2: 1}) == [3, 3, 5]
    assert ends(index) == [(0, 4), (0, 4), (0, 6), (0, 0)]


def test_answer_follows_the_order_of_the_chunks(index: Index) -> None:
    append(index, "a", {0: 1, 1: 2, 2: 3, 3: 4})
    assert append(index, "b", {2: 1, 0: 1, 3: 1, 1: 1}) == [3, 1, 4, 2]
    assert append(index, "b", {2: 1, 0: 1, 3: 1, 1: 1}) == [3, 1, 4, 2]


def test_one_commit_appends_to_several_topics(index: Index) -> None:
    index.create_topic(OTHER)
    chunks = [*new_chunks({0: 2}, OTHER.uid), *new_chunks({0: 3, 1: 1})]
    assert index.commit("a", chunks, now_ms=NOW) == [0, 0, 0]
    assert index.commit("b", chunks[::-1], now_ms=NOW) == [1, 3, 2]
    assert ends(index, OTHER.uid) == [(0, 4), (0, 0)]
    assert ends(index)[:2] == [(0, 6), (0, 2)]


def test_commit_takes_the_declared_number_of_chunks(index: Index) -> None:
    count = min(index.max_chunks_per_commit, 2_000)
    index.create_topic(LogTopic(uid=1, name="wide", partitions=count))
    for number in range(3):
        given = append(index, f"o{number}", dict.fromkeys(range(count), 2), topic_uid=1)
        assert given == [2 * number] * count
    assert ends(index, 1) == [(0, 6)] * count


def test_another_process_sees_a_commit(index: Index, another: Open) -> None:
    other = another()
    append(index, "a", {0: 2})
    assert [chunk.object_name for chunk in all_chunks(other)] == ["a"]
    assert append(other, "b", {0: 1}) == [2]
    assert [chunk.object_name for chunk in all_chunks(index)] == ["a", "b"]


# The same name again


def test_repeated_commit_gets_the_first_answer(index: Index, another: Open) -> None:
    append(index, "a", {0: 1, 1: 1})
    assert append(index, "b", {1: 2, 0: 3}) == [1, 1]
    append(index, "c", {0: 1, 1: 1})
    before = ends(index), all_chunks(index)
    assert append(index, "b", {1: 2, 0: 3}, now_ms=NOW + 99) == [1, 1]
    assert append(another(), "b", {1: 2, 0: 3}) == [1, 1]
    assert (ends(index), all_chunks(index)) == before


def test_repeated_commit_after_trim_gets_the_first_answer(index: Index) -> None:
    fill(index, 4, events=3)
    index.trim(TOPIC.uid, 0, before_sequence=12)
    assert append(index, "o2", {0: 3}) == [6]
    assert ends(index)[0] == (12, 12)
    assert all_chunks(index) == []


def test_repeated_commit_after_compaction_gets_the_first_answer(index: Index) -> None:
    assert merge(index, fill(index, 4, events=3), "merged")
    assert append(index, "o2", {0: 3}) == [6]
    assert [chunk.object_name for chunk in all_chunks(index)] == ["merged"]
    assert ends(index)[0] == (0, 12)


def test_a_swept_name_is_refused_and_leaves_nothing(index: Index, another: Open) -> None:
    assert index.sweep(["a"], now_ms=NOW) == ["a"]
    for handle in (index, another(), index):
        with pytest.raises(ObjectSwept):
            append(handle, "a", {0: 1})
    assert ends(index)[0] == (0, 0)
    assert all_chunks(index) == []
    assert append(index, "b", {0: 1}) == [0]


def test_answer_of_a_collected_name_is_kept(index: Index) -> None:
    fill(index, 3)
    index.trim(TOPIC.uid, 0, before_sequence=3)
    index.forget(index.unreferenced(10))
    for _ in range(2):
        assert append(index, "o2", {0: 1}) == [2]
    assert index.sweep(["o2"], now_ms=NOW) == ["o2"]  # should its object still be there
    assert append(index, "o2", {0: 1}) == [2]
    assert ends(index)[0] == (3, 3)


def test_index_stays_tied_to_its_first_log(another: Open) -> None:
    index = another()
    assert index.log_id() is None
    assert index.tie("one") == "one"
    assert another().tie("two") == "one"
    assert another().log_id() == "one"


# Missing topics and partitions

UNKNOWN = {
    "topic": NewChunk(99, 0, 1, 108, 10),
    "partition": NewChunk(TOPIC.uid, TOPIC.partitions, 1, 108, 10),
}


@pytest.mark.parametrize("what", UNKNOWN)
def test_commit_to_a_missing_topic_leaves_nothing(index: Index, what: str) -> None:
    chunks = [NewChunk(TOPIC.uid, 0, 1, 8, 10), UNKNOWN[what], NewChunk(TOPIC.uid, 1, 1, 208, 10)]
    for _ in range(2):
        with pytest.raises(TopicNotFound):
            index.commit("a", chunks, now_ms=NOW)
    assert ends(index) == [(0, 0)] * 4
    assert all_chunks(index) == []
    assert index.unreferenced(10) == []
    assert append(index, "a", {0: 1}) == [0]  # the name is not taken either


# Time


def test_commit_times_never_decrease_in_a_partition(index: Index) -> None:
    for name, now_ms in (("a", NOW + 50), ("b", NOW), ("c", NOW + 49), ("d", NOW + 51)):
        append(index, name, {0: 1}, now_ms=now_ms)
    append(index, "e", {0: 1, 1: 1}, now_ms=NOW)
    times = [chunk.appended_ms - NOW for chunk in all_chunks(index)]
    assert times == [50, 50, 50, 51, 51]
    assert [chunk.appended_ms - NOW for chunk in all_chunks(index, 1)] == [0]


# Concurrency


def test_many_writers_leave_no_gaps_and_no_duplicates(index: Index, another: Open) -> None:
    handles = [index, another()]
    answers: dict[str, list[int]] = {}

    def events(writer: int, number: int) -> dict[int, int]:
        """In another order for each commit."""
        partitions = [0, 1, 2, 3] if (writer + number) % 3 else [3, 1, 0]
        return {partition: 1 + (writer + partition) % 3 for partition in partitions}

    def write(writer: int) -> None:
        for number in range(8):
            name = f"w{writer}-{number}"
            answers[name] = append(handles[writer % 2], name, events(writer, number))

    at_once(write, range(8))
    for partition, (first, end) in enumerate(ends(index)):
        sequence = first
        for chunk in all_chunks(index, partition):
            assert chunk.first_sequence == sequence
            writer, number = map(int, chunk.object_name[1:].split("-"))
            wanted = events(writer, number)
            assert chunk.events == wanted[partition]
            place = list(wanted).index(partition)
            assert answers[chunk.object_name][place] == chunk.first_sequence
            sequence += chunk.events
        assert sequence == end
    before = ends(index)
    for name, answer in answers.items():
        writer, number = map(int, name[1:].split("-"))
        assert append(handles[number % 2], name, events(writer, number)) == answer
    assert ends(index) == before
    assert len(all_chunks(index)) == 64


def test_concurrent_commits_of_a_name_get_one_answer(index: Index, another: Open) -> None:
    handles = [index, another()] * 4
    append(index, "before", {0: 5})
    for name in ("a", "b", "c"):
        start = ends(index)[0][1]

        def ask(handle: Index, name: str = name) -> list[int]:
            return append(handle, name, {0: 2, 1: 1})

        answers = at_once(ask, handles)
        assert answers == [[start, (start - 5) // 2]] * 8
    assert ends(index)[:2] == [(0, 11), (0, 3)]


def test_an_object_is_either_committed_or_swept(index: Index, another: Open) -> None:
    other = another()
    names = [f"o{number}" for number in range(40)]

    def commit_all() -> set[str]:
        done = set()
        for name in names:
            try:
                append(index, name, {0: 1, 1: 1})
            except ObjectSwept:
                continue
            done.add(name)
        return done

    def sweep_all() -> set[str]:
        swept: set[str] = set()
        for first in range(len(names) - 1, -1, -4):
            swept.update(other.sweep(names[max(0, first - 3) : first + 1], now_ms=NOW))
        return swept

    committed, swept = at_once(lambda action: action(), [commit_all, sweep_all])
    assert committed | swept == set(names)
    assert committed & swept == set()
    assert {chunk.object_name for chunk in all_chunks(index)} == committed
    assert ends(index)[0] == (0, len(committed))
