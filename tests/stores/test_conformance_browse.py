"""Pages of the messages that a filter means, and changes that name the version that was looked at."""

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from chronoline.core.change import Change
from chronoline.core.errors import InvalidInput
from chronoline.core.filters import ListPlace, MessageFilter, end_of_prefix, statuses_of
from chronoline.core.message import Message
from chronoline.core.permissions import Operation
from chronoline.core.status import Life, Status
from chronoline.stores.browse import Found, browse, sweep, sweep_letters
from tests.stores.line import LEASE_MS, NOW, OWNERS, Line, MakeLine, new

IDS = [f"{kind}-{number:02}" for kind, number in product(("a", "b", "ä"), range(20))]


@pytest.fixture
def full(make_line: MakeLine) -> Line:
    """Sixty messages of two groups, a second apart; three are leased, and one of these leases has lapsed."""
    line = make_line(max_attempts=1)
    line.create(
        *(
            new(each, NOW + 1_000 * place, producer_group=OWNERS if place % 2 else "others")
            for place, each in enumerate(IDS)
        )
    )
    line.now = NOW + 2_000
    line.reserve("c", limit=1, lease_ms=10)
    line.reserve("c", limit=2, lease_ms=3_600_000)
    line.now = NOW + 2_500
    return line


def pages(
    line: Line,
    how: Callable[..., Found[Message]],
    wanted: MessageFilter,
    limit: int,
) -> list[Message]:
    found: list[Message] = []
    after: ListPlace | None = None
    while True:
        page = how(line.store, line.uid, wanted, after=after, limit=limit, now_ms=line.now)
        found += page.items
        if page.next is None:
            return found
        after = ListPlace.from_text(page.next.to_text())


@pytest.mark.parametrize("how", [browse, sweep])
@pytest.mark.parametrize("limit", [1, 7, 1_000])
@pytest.mark.parametrize(
    "conditions",
    [
        {},
        {"producer_group": OWNERS},
        {"producer_group": OWNERS, "prefix": "b-"},
        {"producer_group": "nobody"},
        {"consumer": "c"},
        {"consumer": "c", "prefix": "a-01"},
        {"prefix": "ä-1"},
        {"prefix": "b-", "start": NOW + 25_000, "end": NOW + 30_000},
        {"start": NOW + 25_000},
        {"end": NOW + 2_500},
        {"start": NOW + 10_000, "end": NOW + 12_001, "producer_group": OWNERS},
        {"statuses": frozenset({Status.AVAILABLE})},
        {"statuses": frozenset({Status.PROCESSING, Status.WAITING}), "prefix": "a-0"},
    ],
)
def test_pages_have_what_the_filter_means_once(
    full: Line, how: Callable[..., Found[Message]], limit: int, conditions: dict[str, Any]
) -> None:
    wanted = MessageFilter(**conditions)
    everything = full.store.lookup(full.uid, IDS).values()
    expected = {each.id: each for each in everything if wanted.matches(each, full.now)}
    found = pages(full, how, wanted, limit)
    assert {each.id: each for each in found} == expected
    assert len(found) == len(expected)


@pytest.mark.parametrize("most", [10_000, 2])
@pytest.mark.parametrize(
    ("conditions", "count"), [({}, 60), ({"producer_group": OWNERS}, 30), ({"consumer": "c"}, 3)]
)
def test_people_get_messages_by_position(
    full: Line,
    monkeypatch: pytest.MonkeyPatch,
    conditions: dict[str, Any],
    count: int,
    most: int,
) -> None:
    # No setting: it would take ten thousand messages of one owner.
    monkeypatch.setattr("chronoline.stores.browse._MOST_LOOKED", most)
    assert full.reschedule((IDS[3], NOW + 7_200_000)) == ["done"]  # so that ids have another order
    found = pages(full, browse, MessageFilter(**conditions), 7)
    assert found == sorted(found, key=lambda each: (each.ts, each.id))
    assert len(found) == count


def test_filter_conditions_select_some_of_the_fixture(full: Line) -> None:
    """The fixture has messages of each kind, so that the conditions mean something."""

    def count(**conditions: Any) -> int:
        return len(pages(full, browse, MessageFilter(**conditions), 1_000))

    assert count() == 60
    assert count(producer_group=OWNERS) == 30
    assert count(consumer="c") == 3
    assert [count(statuses=frozenset({each})) for each in Status] == [1, 2, 57]


def test_page_that_looks_in_vain_says_where_it_stopped(
    make_line: MakeLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No settings: it would take ten thousand messages.
    monkeypatch.setattr("chronoline.stores.browse._MOST_LOOKED", 4)
    # As above.
    monkeypatch.setattr("chronoline.stores.browse._LEAST_CHUNK", 2)
    line = make_line()
    line.put(*IDS)
    wanted = MessageFilter(statuses=frozenset({Status.PROCESSING}))
    page = browse(line.store, line.uid, wanted, limit=1, now_ms=NOW)
    assert (page.items, page.looked) == ((), 4)
    assert page.next is not None
    assert pages(line, browse, wanted, 1) == []


def test_dead_letters_are_swept_by_time_group_prefix_and_reason(make_line: MakeLine) -> None:
    line = make_line()
    for place, each in enumerate(IDS[:10]):
        line.now = NOW + place
        line.put(each, due=line.now, producer_group=OWNERS if place % 2 else "others")
        line.bury(line.take(), "x" if place % 3 else "y")

    def swept(**conditions: Any) -> list[str]:
        found: list[str] = []
        after: ListPlace | None = None
        while True:
            page = sweep_letters(
                line.store, line.uid, MessageFilter(**conditions), after=after, limit=3
            )
            found += [each.message.id for each in page.items]
            if page.next is None:
                return found
            after = page.next

    assert swept() == IDS[:10]
    assert swept(producer_group=OWNERS) == IDS[1:10:2]
    assert swept(reason="y") == IDS[:10:3]
    assert swept(prefix=IDS[4]) == [IDS[4]]
    assert swept(start=NOW + 2, end=NOW + 5) == IDS[2:5]


def test_rows_show_marks_and_dead_letters(line: Line) -> None:
    line.put("acked", "dead", "cancelled", "waiting", due=NOW)
    leases = {each.lease.id: each.lease for each in line.reserve().leased}
    line.ack(leases["acked"])
    line.bury(leases["dead"])
    line.unreserve(leases["cancelled"], leases["waiting"])
    line.cancel("cancelled")
    rows = line.store.rows(line.uid, ["acked", "dead", "cancelled", "waiting", "none", ""])
    assert {each: row.life for each, row in rows.items()} == {
        "acked": Life.GONE,
        "dead": Life.DEAD,
        "cancelled": Life.GONE,
        "waiting": Life.LIVE,
    }
    assert (rows["acked"].lock_consumer, rows["cancelled"].lock_consumer) == ("c", None)
    assert rows["acked"].ts == NOW + line.topic.settings.dedupe_ms


@pytest.mark.parametrize("dedupe_ms", [0, 300_000])
def test_change_that_names_a_version_spares_what_moved_since(
    make_line: MakeLine, dedupe_ms: int
) -> None:
    line = make_line(dedupe_ms=dedupe_ms)
    seen = line.put("a", due=NOW + LEASE_MS)
    assert line.reschedule(("a", NOW + 2 * LEASE_MS)) == ["done"]
    late = Change(Operation.CANCEL, "a", OWNERS, seen.version)
    assert line.apply(late) == ["stale"]
    moved = Change(Operation.RESCHEDULE, "a", OWNERS, seen.version, NOW + 5)
    assert line.apply(moved) == ["stale"]
    assert line["a"].due == NOW + 2 * LEASE_MS
    assert line.apply(late._replace(version=line["a"].version)) == ["done"]
    assert "a" not in line


@pytest.mark.parametrize("operation", [Operation.REDRIVE, Operation.DISCARD])
def test_change_of_a_letter_can_name_its_version(line: Line, operation: Operation) -> None:
    line.put("a")
    line.bury(line.take())
    (letter,) = line.dead()
    change = Change(operation, "a", "", letter.message.version - 1, NOW + 5)
    assert line.apply(change) == ["stale"]
    assert line.dead() == [letter]
    assert line.apply(change._replace(version=letter.message.version)) == ["done"]


# The filter itself


@pytest.mark.parametrize("prefix", ["a", "a\ud7ff", "ab\U0010ffff", "\U0010ffff", "", "\x01"])
def test_end_of_a_prefix_bounds_its_ids(prefix: str) -> None:
    end = end_of_prefix(prefix)
    assert prefix < end
    assert prefix + "\U0010ffff" * 100 < end
    end.encode()  # no surrogates
    if kept := prefix.rstrip("\U0010ffff"):
        assert not end.startswith(prefix)
        assert len(end) == len(kept)


@pytest.mark.parametrize(
    "conditions",
    [
        {"start": -1},
        {"start": 5, "end": 4},
        {"producer_group": "x" * 256},
        {"prefix": "a\0"},
        {"reason": "x" * 1_001},
    ],
)
def test_bad_filter_is_refused(conditions: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        MessageFilter(**conditions)


def test_many_groups_without_a_match_take_several_pages(line: Line) -> None:
    for group in range(150):
        line.put(f"x-{group}", producer_group=f"g{group:03}")
    line.put("a-1", producer_group="last")
    first = sweep(line.store, line.uid, MessageFilter(prefix="a-"), limit=10, now_ms=line.now)
    assert (first.items, first.next) == ((), ListPlace(0, 0, "", "g100"))
    assert [each.id for each in pages(line, sweep, MessageFilter(prefix="a-"), 10)] == ["a-1"]


def test_place_of_an_older_broker_goes_on_by_key(full: Line) -> None:
    wanted = MessageFilter(prefix="b-")
    everything = full.store.select_prefix(full.uid, "b-", limit=100).messages
    after = ListPlace.of(everything[4])
    found = sweep(full.store, full.uid, wanted, after=after, limit=100, now_ms=full.now)
    assert found.items == everything[5:]


@pytest.mark.parametrize("text", ["x", "W10=", "WzEsMiwiIl0=", "WzEsMiwzXQ==", "é", "[]"])
def test_foreign_place_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="is not the `next` of an earlier answer"):
        ListPlace.from_text(text)


def test_unknown_status_is_refused_with_the_known_ones() -> None:
    assert statuses_of(["waiting"]) == {Status.WAITING}
    with pytest.raises(InvalidInput, match="available, processing, waiting"):
        statuses_of(["asleep"])


def test_place_of_a_message_is_its_own(line: Line) -> None:
    message = line.put("a")
    assert ListPlace.of(message) == ListPlace(NOW, message.bucket, "a")
    assert ListPlace.of(replace(message, ts=5)).ts == 5
