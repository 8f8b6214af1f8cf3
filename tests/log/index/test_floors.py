"""Floors: names below them are refused unless they are known, so those of gone objects can be forgotten."""

from collections.abc import Sequence

import pytest

from chronoline.core.errors import TopicNotFound
from chronoline.core.ids import ID_ENTROPY_BYTES, make_id
from chronoline.log.contract import Index, ObjectSwept, ObjectTooOld, Source
from tests.log.index.conftest import Open
from tests.log.index.steps import (
    NOW,
    OTHER,
    TOPIC,
    all_chunks,
    append,
    at_once,
    ends,
    merge,
    new_chunks,
)


def name(number: int, ms: int = 0) -> str:
    """The name of an object that is made at a moment."""
    return make_id(NOW + ms, number.to_bytes(ID_ENTROPY_BYTES))


OLD = [name(number) for number in range(5)]
FLOOR = name(0, 100)
YOUNG = name(1, 100)


def commit_all(index: Index, names: Sequence[str]) -> None:
    for each in names:
        append(index, each, {0: 1})


def collect(index: Index) -> None:
    """Deletes everything of partition 0, and notes that its objects were deleted."""
    index.trim(TOPIC.uid, 0, before_sequence=ends(index)[0][1])
    index.forget(index.unreferenced(100))


def known(index: Index, names: Sequence[str]) -> list[str]:
    return [each for each in names if index.was_committed(each) is not None]


def test_gone_names_below_the_floor_are_forgotten(index: Index) -> None:
    commit_all(index, OLD[:2])
    append(index, OLD[2], {1: 1})
    index.sweep([OLD[3]], now_ms=NOW)
    append(index, YOUNG, {0: 1})
    collect(index)
    index.raise_floor(FLOOR)
    assert index.forget_names(10) == 3
    assert index.forget_names(10) == 0
    assert known(index, [*OLD, YOUNG]) == [OLD[2], YOUNG]


def test_a_forgotten_name_is_refused_for_good(index: Index, another: Open) -> None:
    commit_all(index, OLD[:1])
    index.sweep([OLD[1]], now_ms=NOW)
    collect(index)
    index.raise_floor(FLOOR)
    index.forget_names(10)
    for handle in (index, another()):
        for each in OLD[:3]:  # committed, swept, and never heard of
            with pytest.raises(ObjectTooOld) as refused:
                append(handle, each, {0: 1, 1: 1})
            assert refused.value.floor == FLOOR
    assert ends(index)[:2] == [(1, 1), (0, 0)]
    assert all_chunks(index) == []
    assert append(index, FLOOR, {0: 1}) == [1]


def test_known_name_below_the_floor_keeps_its_answer(index: Index) -> None:
    commit_all(index, OLD[:3])
    index.sweep([OLD[3]], now_ms=NOW)
    index.raise_floor(FLOOR)
    assert append(index, OLD[2], {0: 1}) == [2]
    with pytest.raises(ObjectSwept):
        append(index, OLD[3], {0: 1})


def test_names_are_forgotten_in_parts(index: Index) -> None:
    commit_all(index, OLD)
    collect(index)
    index.raise_floor(FLOOR)
    assert [index.forget_names(2) for _ in range(4)] == [2, 2, 1, 0]


def test_a_floor_never_falls(index: Index) -> None:
    index.sweep([OLD[0]], now_ms=NOW)
    index.raise_floor(FLOOR)
    index.raise_floor(OLD[1])
    with pytest.raises(ObjectTooOld):
        append(index, OLD[2], {0: 1})


def test_a_floor_stays_while_nothing_can_be_forgotten(index: Index) -> None:
    append(index, OLD[0], {0: 1})
    index.sweep([YOUNG], now_ms=NOW)
    index.raise_floor(FLOOR)
    assert append(index, OLD[1], {0: 1}) == [1]


def test_a_new_topic_has_the_floor_of_the_others(index: Index) -> None:
    index.sweep([OLD[0]], now_ms=NOW)
    index.raise_floor(FLOOR)
    index.create_topic(OTHER)
    with pytest.raises(ObjectTooOld):
        append(index, OLD[1], {0: 1}, topic_uid=OTHER.uid)
    assert append(index, YOUNG, {0: 1}, topic_uid=OTHER.uid) == [0]


def test_compaction_with_a_name_below_the_floor_changes_nothing(index: Index) -> None:
    commit_all(index, [YOUNG, name(2, 100)])
    index.sweep([OLD[0]], now_ms=NOW)
    index.raise_floor(FLOOR)
    index.forget_names(10)
    before = all_chunks(index)
    assert not merge(index, before, OLD[0])
    assert all_chunks(index) == before
    assert merge(index, before, name(3, 100))


def test_orphans_below_the_floor_are_answered_and_not_noted(index: Index) -> None:
    append(index, OLD[0], {0: 1})
    index.sweep([OLD[1]], now_ms=NOW)
    index.raise_floor(FLOOR)
    assert sorted(index.sweep(OLD[:4], now_ms=NOW)) == OLD[1:4]
    index.forget_names(10)
    assert known(index, OLD) == OLD[:1]


def test_a_name_is_committed_or_forgotten_never_both(index: Index, another: Open) -> None:
    """Writers are slow: their names are swept, and forgotten, while they commit."""
    names = [name(number, number) for number in range(60)]
    handles = [index, another(), another()]

    def write(handle: Index, mine: Sequence[str]) -> list[str]:
        done = []
        for each in mine:
            try:
                append(handle, each, {0: 1, 1: 1})
            except (ObjectSwept, ObjectTooOld):
                continue
            done.append(each)
        return done

    def upkeep() -> list[str]:
        swept: list[str] = []
        for first in range(0, 60, 6):
            swept += handles[2].sweep(names[first : first + 6], now_ms=NOW)
            handles[2].raise_floor(names[first + 5])
            handles[2].forget_names(100)
        return swept

    actions = [
        lambda: write(handles[0], names[::2]),
        lambda: write(handles[1], names[1::2]),
        upkeep,
    ]
    even, odd, swept = at_once(lambda action: action(), actions)
    assert not set(swept) & {*even, *odd}
    assert {chunk.object_name for chunk in all_chunks(index)} == {*even, *odd}
    assert ends(index)[:2] == [(0, len(even) + len(odd))] * 2
    assert set(known(index, names)) <= {*even, *odd, *names[-2:]}


# Sources

PREFIX = "once-a-"


def keyed(number: int, prefix: str = PREFIX) -> str:
    return f"{prefix}{number:04}"


def settle(index: Index, number: int, floor: int, *, prefix: str = PREFIX) -> list[int]:
    source = Source(TOPIC.uid, prefix, keyed(floor, prefix))
    chunks = new_chunks({0: 1})
    return index.commit(keyed(number, prefix), chunks, now_ms=NOW, source=source)


def test_keys_below_the_floor_of_their_source_are_settled(index: Index, another: Open) -> None:
    assert [settle(index, number, number - 1) for number in (1, 2, 5)] == [[0], [1], [2]]
    for number in (0, 3):
        with pytest.raises(ObjectTooOld):
            settle(another(), number, 0)
    assert settle(index, 4, 0) == [3]
    assert settle(index, 1, 0) == [0]  # known as long as its object is there
    with pytest.raises(ObjectTooOld):
        settle(index, 3, 9)
    assert ends(index)[0] == (0, 4)


def test_settled_keys_are_forgotten_and_the_others_stay(index: Index) -> None:
    for number in range(5):
        settle(index, number, number - 1)
    settle(index, 0, 0, prefix="once-b-")
    collect(index)
    index.raise_floor(FLOOR)
    assert index.forget_names(10) == 3
    names = [*map(keyed, range(5)), keyed(0, "once-b-")]
    assert known(index, names) == names[3:]
    with pytest.raises(ObjectTooOld):
        settle(index, 2, 0)
    assert settle(index, 3, 0) == [3]
    assert ends(index)[0] == (6, 6)


def test_a_refused_commit_settles_nothing(index: Index) -> None:
    index.sweep([keyed(7)], now_ms=NOW)
    with pytest.raises(ObjectSwept):
        settle(index, 7, 7)
    assert settle(index, 1, 0) == [0]
    with pytest.raises(TopicNotFound):
        index.commit(
            keyed(8),
            new_chunks({9: 1}),
            now_ms=NOW,
            source=Source(TOPIC.uid, PREFIX, keyed(8)),
        )
    assert settle(index, 2, 0) == [1]
