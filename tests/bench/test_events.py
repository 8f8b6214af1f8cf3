import pytest

from chronoline.log.partitioner import partition_id
from chronoline_bench.log.events import PARTITIONS, VALUE_BYTES, Book, make_events
from chronoline_bench.log.object_per_event import Item
from chronoline_bench.tally import Tally

FOUR = [Item(0, 0, b"a"), Item(0, 1, b"b"), Item(1, 0, b"c"), Item(1, 1, b"d")]


@pytest.fixture
def tally() -> Tally:
    return Tally()


@pytest.fixture
def book(tally: Tally) -> Book:
    book = Book(tally)
    book.note(FOUR, FOUR)
    return book


def test_events_are_distinct_and_spread() -> None:
    events = make_events(200) + make_events(200)
    assert {len(event.value or b"") for event in events} == {VALUE_BYTES}
    assert len({event.value for event in events}) == len({event.key for event in events}) == 400
    assert {partition_id(event.key or b"", PARTITIONS) for event in events} == set(
        range(PARTITIONS)
    )


def test_events_in_their_acknowledged_places_are_clean(book: Book, tally: Tally) -> None:
    book.check(reversed(FOUR))
    assert tally.clean


@pytest.mark.parametrize(
    ("found", "counted"),
    [
        (FOUR[1:], Tally(lost=1)),
        (FOUR[:3], Tally(lost=1)),
        ([], Tally(lost=4)),
        ([*FOUR, FOUR[2]], Tally(duplicated=1)),
        ([*FOUR, FOUR[2], FOUR[2]], Tally(duplicated=2)),
        ([*FOUR, Item(1, 2, b"e")], Tally(duplicated=1)),
        ([*FOUR, Item(2, 0, b"e")], Tally(duplicated=1)),
        ([*FOUR[:3], Item(1, 1, b"x")], Tally(lost=1)),
        ([*FOUR, Item(1, 4, b"e")], Tally(lost=2, duplicated=1)),
    ],
)
def test_each_kind_of_fault_is_counted(
    book: Book, tally: Tally, found: list[Item], counted: Tally
) -> None:
    book.check(found)
    assert tally == counted


def test_missing_sequence_is_lost(book: Book, tally: Tally) -> None:
    later = [Item(1, 4, b"e")]
    book.note(later, later)
    book.check(FOUR + later)
    assert tally == Tally(lost=2)


def test_one_of_two_events_in_one_place_is_lost(book: Book, tally: Tally) -> None:
    book.note(FOUR[:1], FOUR[:1])
    assert tally == Tally(lost=1)


def test_new_page_begins_where_the_last_ended(book: Book, tally: Tally) -> None:
    book.turn()
    book.check([])
    assert tally.clean
    more = [Item(0, 2, b"e"), Item(1, 2, b"f")]
    book.note(more, more)
    book.check(more)
    assert tally.clean
    book.check([*more, FOUR[0]])
    assert tally == Tally(duplicated=1)


def test_gap_between_two_pages_is_lost(book: Book, tally: Tally) -> None:
    book.turn()
    behind = [Item(0, 3, b"e")]
    book.note(behind, behind)
    book.check(behind)
    assert tally == Tally(lost=1)
