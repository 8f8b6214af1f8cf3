"""Rows that another transaction locks are set aside; all other rows are written."""

from collections.abc import Iterator, Sequence
from typing import Any

import psycopg
import pytest

from chronoline.core.errors import OutcomeUnknown, RowsLocked, StoreBusy, StoreUnavailable
from chronoline.core.outcome import Refusal
from chronoline.delivery.storage_threads import StorageThreads
from chronoline.runtime.group_commit.pace import FEWEST_ROWS
from chronoline.stores.postgres import PostgresStore, locked_rows
from chronoline.stores.postgres.locked_rows import PATIENT_MS, LockedRows, Try
from chronoline.testing import ManualClock
from tests.stores.line import NOW, OWNERS, Line, new

IDS = [f"m{number}" for number in range(40)]
PATIENCE_S = 60


@pytest.fixture
def caller(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
    """A transaction of a user, which stays open."""
    # A busy machine needs longer to split a batch to its end, and would set more rows aside.
    monkeypatch.setattr(locked_rows, "_SPLIT_MS", 1_000 * PATIENCE_S)
    with psycopg.connect(postgres_url) as connection:
        yield connection
        connection.rollback()


def send(caller: psycopg.Connection[tuple[Any, ...]], line: Line, message_id: str) -> int | None:
    row = caller.execute(
        "SELECT chronoline.send(%s, %s, %s, '', %s, %s)",
        [line.topic.name, message_id, NOW, NOW, OWNERS],
    ).fetchone()
    assert row is not None
    return row[0]  # type: ignore[no-any-return]  # a column of the driver's


# In PostgreSQL


def test_creates_beside_a_locked_id_are_done(
    pg: PostgresStore, pg_line: Line, caller: psycopg.Connection[tuple[Any, ...]]
) -> None:
    send(caller, pg_line, "m7")
    with pytest.raises(OutcomeUnknown, match="hold 1 of the messages") as raised:
        pg.create(pg_line.uid, [new(each) for each in IDS], now_ms=NOW)
    answered = raised.value.answered or []
    assert [each.id for each in answered] == IDS
    assert {each.id for each in answered if not each.done} == {"m7"}
    assert pg.lookup(pg_line.uid, IDS).keys() == set(IDS) - {"m7"}
    caller.rollback()
    assert pg_line.create(new("m7")) == ["done"]


def test_create_of_only_locked_ids_is_busy(
    pg: PostgresStore, pg_line: Line, caller: psycopg.Connection[tuple[Any, ...]]
) -> None:
    send(caller, pg_line, "a")
    for _ in range(2):  # the second time the row is known to be locked
        with pytest.raises(StoreBusy, match="nothing was changed"):
            pg.create(pg_line.uid, [new("a")], now_ms=NOW)
    caller.commit()
    assert pg_line.create(new("a")) == ["exists"]


def test_changes_beside_a_locked_row_are_done(
    pg: PostgresStore, pg_line: Line, caller: psycopg.Connection[tuple[Any, ...]]
) -> None:
    pg_line.create(*map(new, IDS))
    leases = [each.lease for each in pg_line.reserve(limit=100).leased]
    caller.execute("SELECT FROM chronoline.messages WHERE id = 'm7' FOR UPDATE")
    with pytest.raises(OutcomeUnknown) as raised:
        pg.ack(pg_line.uid, leases, now_ms=NOW)
    refused = [each for each in raised.value.answered or [] if not each.done]
    assert [(each.id, each.refusal) for each in refused] == [("m7", Refusal.BUSY)]
    caller.rollback()
    assert pg_line.ack(next(each for each in leases if each.id == "m7")) == ["done"]


def test_repeated_send_does_not_lock_a_leased_message(
    pg_line: Line, caller: psycopg.Connection[tuple[Any, ...]]
) -> None:
    pg_line.put("a")
    held = pg_line.take()
    assert send(caller, pg_line, "a") is None
    assert pg_line.ack(held) == ["done"]


def test_repeated_create_in_does_not_lock_a_leased_message(
    pg: PostgresStore, pg_line: Line, caller: psycopg.Connection[tuple[Any, ...]]
) -> None:
    pg_line.put("a")
    held = pg_line.take()
    messages = [new("a"), new("b")]
    first = pg.create_in(caller, pg_line.uid, messages, now_ms=NOW)
    assert [each.done for each in first] == [False, True]
    assert pg_line.ack(held) == ["done"]
    caller.commit()
    assert "b" in pg_line


def test_call_of_several_commits_is_answered_whole(
    pg: PostgresStore, pg_line: Line, caller: psycopg.Connection[tuple[Any, ...]]
) -> None:
    send(caller, pg_line, "m0")
    ids = [f"m{number}" for number in range(3 * FEWEST_ROWS)]
    with StorageThreads(pg, ManualClock(NOW)) as threads:
        creating = threads.create(pg_line.uid, [new(each) for each in ids])
        with pytest.raises(OutcomeUnknown, match="hold 1 of the messages") as raised:
            creating.result(PATIENCE_S)
    answered = raised.value.answered or []
    assert [each.id for each in answered] == ids
    assert {each.id for each in answered if not each.done} == {"m0"}


def test_only_the_call_with_a_locked_message_fails(
    pg: PostgresStore, pg_line: Line, caller: psycopg.Connection[tuple[Any, ...]]
) -> None:
    send(caller, pg_line, "m7")
    with StorageThreads(pg, ManualClock(NOW)) as threads:
        calls = {each: threads.create(pg_line.uid, [new(each)]) for each in IDS}
        both = threads.create(pg_line.uid, [new("m7"), new("other")])
        failed = {each for each, call in calls.items() if call.exception(PATIENCE_S)}
        assert failed == {"m7"}
        assert isinstance(calls["m7"].exception(), StoreBusy)
        assert isinstance(both.exception(PATIENCE_S), OutcomeUnknown)
    assert pg.lookup(pg_line.uid, [*IDS, "other"]).keys() == {*IDS, "other"} - {"m7"}


# How a batch is split


class Table:
    """Records every attempt; some ids are locked."""

    def __init__(self, *held: str) -> None:
        self.held = set(held)
        self.tried: list[tuple[list[str], int]] = []
        self.done: list[str] = []
        self.error: Exception | None = None

    def __call__(self, part: Try[str]) -> list[str]:
        self.tried.append((list(part.items), part.lock_ms))
        if self.held & set(part.items):
            raise RowsLocked
        if self.error is not None and self.done:
            raise self.error
        self.done += part.items
        return list(part.items)


def run(rows: LockedRows, table: Table, ids: Sequence[str]) -> frozenset[str]:
    found, held = rows.run(ids, lambda each: each, table, within_ms=60_000)
    assert sorted([*found, *held]) == sorted(ids)
    return held


def test_batch_without_locked_rows_is_one_statement() -> None:
    table = Table()
    assert run(LockedRows(), table, IDS) == frozenset()
    assert table.tried == [(IDS, PATIENT_MS)]


@pytest.mark.parametrize("held", [["m0"], ["m39"], ["m3", "m4", "m30"], IDS])
def test_exactly_the_locked_rows_are_set_aside(held: list[str]) -> None:
    table = Table(*held)
    assert run(LockedRows(), table, IDS) == set(held)
    assert sorted(table.done) == sorted(set(IDS) - set(held))


def test_known_locked_row_does_not_delay_the_next_batch() -> None:
    rows, table = LockedRows(), Table("m3")
    run(rows, table, IDS)
    table.tried.clear()
    run(rows, table, IDS)
    (others, _), (suspects, lock_ms) = table.tried
    assert suspects == ["m3"]
    assert others == [each for each in IDS if each != "m3"]
    assert lock_ms < PATIENT_MS
    table.held.clear()
    run(rows, table, IDS)
    table.tried.clear()
    run(rows, table, IDS)
    assert [ids for ids, _ in table.tried] == [IDS]


def test_lock_wait_shrinks_after_a_locked_row_and_recovers() -> None:
    rows, table = LockedRows(), Table("m3")
    run(rows, table, IDS)
    table.held.clear()
    table.tried.clear()
    for _ in range(10):
        run(rows, table, ["other"])
    waits_ms = [lock_ms for _, lock_ms in table.tried]
    assert waits_ms[0] < PATIENT_MS
    assert waits_ms == sorted(waits_ms)
    assert waits_ms[-1] == PATIENT_MS


def test_batch_out_of_time_sets_the_rest_aside() -> None:
    table = Table()
    found, held = LockedRows().run(IDS, lambda each: each, table, within_ms=0)
    assert (found, held) == ([], frozenset(IDS))
    assert table.tried == []


def test_failure_after_a_part_leaves_the_outcome_unknown() -> None:
    table = Table("m39")
    table.error = StoreUnavailable("gone")
    with pytest.raises(OutcomeUnknown, match="a part of the batch is done"):
        run(LockedRows(), table, IDS)
