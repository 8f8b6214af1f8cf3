"""Exports and restored messages: every field comes back, and a repetition changes nothing."""

from dataclasses import replace
from typing import Any

import pytest

from chronoline.core.errors import InvalidInput
from chronoline.core.filters import ListPlace
from chronoline.core.message import SavedMessage
from chronoline.core.permissions import System
from chronoline.stores.contract import Store
from chronoline.stores.transfer import export_page
from tests.stores.line import NOW, OWNERS, Line, MakeLine, new, words

LARGE = b"\xff\x00" * 5_000


def saved(message_id: str, **fields: Any) -> SavedMessage:
    whole: dict[str, Any] = {
        "id": message_id,
        "due": NOW + 60_000,
        "expires": None,
        "attempts": 0,
        "producer_group": OWNERS,
        "key": None,
        "headers": (),
        "body": b"x",
        **fields,
    }
    return SavedMessage(**whole)


MESSAGES = [
    saved("plain"),
    saved("full", expires=NOW + 90_000, attempts=3, key=b"\xff", producer_group="others"),
    saved("headers", headers=(("b", b"\x00\xff"), ("a", None), ("b", b""), ("ä", b"2"))),
    saved("no body", body=None),
    saved("empty", body=b"", key=b""),
    saved("large", body=LARGE),
    saved("overdue", due=NOW - 60_000),
    saved("behind its end", due=NOW + 90_000, expires=NOW + 30_000, attempts=1),
    saved("dead", attempts=20, reason="attempts", died=NOW - 5_000),
    saved("buried", reason="no use", died=NOW - 1, expires=NOW - 50, due=NOW - 20),
    saved("buried without a word", died=NOW - 3),
]


def exported(store: Store, uid: int, **given: Any) -> list[SavedMessage]:
    found: list[SavedMessage] = []
    for dead_letters in (False, True):
        after: ListPlace | None = None
        while True:
            page, after = export_page(
                store,
                uid,
                dead_letters=dead_letters,
                after=after,
                now_ms=NOW,
                **{"limit": 100, "most_bytes": 1_000_000, **given},
            )
            found += page
            if after is None:
                break
    return sorted(found, key=lambda each: each.id)


@pytest.mark.parametrize("given", [{}, {"limit": 1}, {"limit": 3}, {"most_bytes": 1}])
def test_every_field_comes_back(make_line: MakeLine, given: dict[str, int]) -> None:
    line = make_line(spread_ms=5_000)  # what is restored is not spread again
    assert words(line.store.restore(line.uid, MESSAGES, now_ms=NOW)) == ["done"] * len(MESSAGES)
    found = exported(line.store, line.uid, **given)
    assert found == sorted(MESSAGES, key=lambda each: each.id)
    other = make_line(buckets=3)
    assert words(other.store.restore(other.uid, found, now_ms=NOW)) == ["done"] * len(found)
    assert exported(other.store, other.uid) == found


def test_sleepers_hear_of_the_saved_due_on_a_spread_topic(make_line: MakeLine) -> None:
    line = make_line(spread_ms=3_600_000)
    with line.store.watch() as watch:
        line.store.restore(line.uid, [saved("a", due=NOW + 500)], now_ms=NOW)
        heard = [*watch.wait(10), *watch.wait(1)]  # the first can be that it listens now
    assert NOW + 500 in [each.due for each in heard if each.topic_uid == line.uid]


def test_repeated_restoration_changes_nothing(line: Line) -> None:
    line.store.restore(line.uid, MESSAGES, now_ms=NOW)
    before = {each: line[each] for each in ("plain", "full")}
    line.cancel("no body")
    again = line.store.restore(line.uid, [*MESSAGES, saved("new")], now_ms=NOW)
    assert words(again) == ["exists"] * len(MESSAGES) + ["done"]
    assert {each: line[each] for each in before} == before
    assert len(line.dead()) == 3


def test_restored_message_is_served_with_its_attempts(make_line: MakeLine) -> None:
    line = make_line(max_attempts=4)
    line.store.restore(line.uid, [saved("a", due=NOW, attempts=3)], now_ms=NOW)
    (leased,) = line.reserve().leased
    assert (leased.message.attempts, leased.body) == (3, b"x")
    assert line.retry(leased.lease, NOW + 50) == "done"
    assert [each.reason for each in line.dead()] == ["attempts"]


def test_restored_letter_is_put_back(line: Line) -> None:
    line.store.restore(line.uid, [saved("a", reason="odd", died=NOW - 5)], now_ms=NOW)
    assert line.reserved() == []
    assert [(each.reason, each.died) for each in line.dead()] == [("odd", NOW - 5)]
    assert line.redrive("a", due=NOW) == ["done"]
    bodies = line.store.bodies(line.uid, ["a"], actor=System(), now_ms=NOW)
    assert bodies.found == {"a": b"x"}
    assert line.reserved() == ["a"]


def test_leased_message_is_saved_as_if_it_was_not(line: Line) -> None:
    line.put("a", body=b"x", headers=(("h", b"1"),))
    before = exported(line.store, line.uid)
    line.take()
    assert exported(line.store, line.uid) == before


def test_refused_ones_do_not_stop_the_others(make_line: MakeLine) -> None:
    line = make_line(largest_body_bytes=10)
    given = [saved("a"), saved("b", body=b"x" * 11), saved("c"), saved("c", body=b"y")]
    assert words(line.store.restore(line.uid, given, now_ms=NOW)) == [
        "done",
        "invalid",
        "done",
        "exists",
    ]
    assert [each.body for each in exported(line.store, line.uid)] == [b"x", b"x"]


@pytest.mark.parametrize("fields", [{"attempts": -1}, {"due": -1}, {"died": -1}, {"reason": "\0"}])
def test_bad_history_is_refused(line: Line, fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        line.store.restore(line.uid, [replace(saved("a"), **fields)], now_ms=NOW)
    assert exported(line.store, line.uid) == []


def test_export_passes_over_what_is_deleted_meanwhile(line: Line) -> None:
    line.create(*(new(f"m{number}", NOW + 60_000) for number in range(5)))
    page, place = export_page(line.store, line.uid, limit=2, most_bytes=1_000, now_ms=NOW)
    assert place is not None
    line.cancel(*(f"m{number}" for number in range(5)))
    rest, end = export_page(
        line.store, line.uid, after=place, limit=2, most_bytes=1_000, now_ms=NOW
    )
    assert (len(page), rest, end) == (2, [], None)
