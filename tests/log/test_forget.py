"""Names of objects are forgotten, and a stalled writer loses and doubles nothing."""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from chronoline.core.errors import InvalidInput, OutcomeUnknown
from chronoline.log import Log, NewEvent, Numbered
from chronoline.log import appender as writer_module
from chronoline.log.contract import NewChunk
from chronoline.testing import ManualClock
from tests.log.internals import index_of, objects_of, upkeep_of
from tests.log.places import place

ENGINES = [("folder", "sqlite"), ("folder", "postgres"), ("s3", "dynamodb")]
GRACE_MS = 3_600_000
DAYS_MS = 10 * 24 * 3_600_000
YEARS_MS = 1_000 * DAYS_MS


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=ENGINES, ids="-".join)
def place_url(request: pytest.FixtureRequest) -> str:
    return place(request, *request.param)


@pytest.fixture
def writer(place_url: str, clock: ManualClock) -> Iterator[Log]:
    with Log(place_url, clock=clock) as log:
        log.create_topic("t", partitions=2)
        log.append("t", value=b"before", partition=0)
        yield log


@pytest.fixture
def upkeep(writer: Log, place_url: str, clock: ManualClock) -> Iterator[Log]:
    """Another process."""
    with Log(place_url, clock=clock) as log:
        yield log


def values(log: Log) -> list[tuple[int, bytes | None]]:
    return [(event.sequence, event.value) for event in log.read("t", partition=0, follow=False)]


def sweep_later(log: Log, clock: ManualClock) -> None:
    """Objects have the time of the machine that holds them, names that of the clock."""
    clock.advance(DAYS_MS)
    upkeep_of(log).sweep(grace_ms=-YEARS_MS, now_ms=clock.now_ms(), progress=lambda done: None)
    upkeep_of(log).collect()
    upkeep_of(log).forget(before_ms=clock.now_ms() - GRACE_MS)


def around_commit(
    monkeypatch: pytest.MonkeyPatch,
    log: Log,
    *,
    before: Callable[[], None] = lambda: None,
    lose: int = 0,
) -> list[str]:
    """Does something before the first commit of a log, and loses the answers of the first ones."""
    commit = index_of(log).commit
    names: list[str] = []

    def slow(name: str, chunks: Sequence[NewChunk], **more: Any) -> list[int]:
        names.append(name)
        if len(names) == 1:
            before()
        given = commit(name, chunks, **more)
        if len(names) <= lose:
            raise OutcomeUnknown("no answer came")
        return given

    monkeypatch.setattr(index_of(log), "commit", slow)
    # No setting: the test does not wait for the usual time.
    monkeypatch.setattr(writer_module, "_SETTLE_WAIT_S", 0)
    return names


def test_a_writer_stalled_before_its_commit_appends_once(
    writer: Log, upkeep: Log, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = around_commit(monkeypatch, writer, before=lambda: sweep_later(upkeep, clock))
    position = writer.append("t", value=b"stalled", partition=0)
    assert (position.partition, position.sequence) == (0, 1)
    assert len(names) == 2  # the first was refused, and its object is gone
    assert index_of(upkeep).was_committed(names[0]) is None
    assert names[0] not in {each.name for each in objects_of(upkeep).list()}
    assert values(upkeep) == [(0, b"before"), (1, b"stalled")]
    upkeep.append("t", value=b"next", partition=0)
    assert values(upkeep)[-1] == (2, b"next")


def test_commit_with_a_forgotten_name_stays_unknown(
    writer: Log, upkeep: Log, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = index_of(writer).commit
    asked: list[str] = []

    def lost_for_days(name: str, chunks: Sequence[NewChunk], **more: Any) -> list[int]:
        asked.append(name)
        if len(asked) > 1:
            return commit(name, chunks, **more)
        commit(name, chunks, **more)
        upkeep.append("t", value=b"other", partition=0)
        clock.advance(1)
        upkeep.retain("t", max_age_ms=0)
        sweep_later(upkeep, clock)
        raise OutcomeUnknown("no answer came")

    monkeypatch.setattr(index_of(writer), "commit", lost_for_days)
    monkeypatch.setattr(writer_module, "_SETTLE_WAIT_S", 0)
    with pytest.raises(OutcomeUnknown, match="forgotten names"):
        writer.append("t", value=b"once", partition=0)
    assert len(set(asked)) == 1
    assert upkeep.heads("t")[0][1:] == (3, 3)


def test_unknown_commit_with_a_known_name_is_settled(
    writer: Log, upkeep: Log, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = around_commit(monkeypatch, writer, lose=2)
    assert writer.append("t", value=b"once", partition=0).sequence == 1
    assert len(set(names)) == 1
    sweep_later(upkeep, clock)
    assert index_of(upkeep).was_committed(names[0])  # its object is there, so it is never forgotten


def test_a_writer_whose_clock_is_behind_appends(
    writer: Log, upkeep: Log, place_url: str, clock: ManualClock
) -> None:
    behind = ManualClock(clock.now_ms())
    # A name as the log makes it.
    index_of(upkeep).sweep([writer._new_id()], now_ms=clock.now_ms())
    sweep_later(upkeep, clock)
    with Log(place_url, clock=behind) as late:
        for number in range(3):
            assert late.append("t", value=b"%d" % number, partition=0).sequence == number + 1
        late.sweep(grace_ms=GRACE_MS)
    assert len(values(upkeep)) == 4


def test_a_stalled_compactor_changes_nothing(
    writer: Log, upkeep: Log, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        writer.append("t", value=b"%d" % number, partition=0)
    before = values(writer)
    replace = index_of(writer).replace

    def late(*arguments: Any) -> bool:
        sweep_later(upkeep, clock)
        return replace(*arguments)

    monkeypatch.setattr(index_of(writer), "replace", late)
    assert writer.compact("t").chunks_after == 4
    assert values(upkeep) == before


# The index does not grow with commits


def rows(folder: Path, table: str) -> int:
    with sqlite3.connect(folder / "log" / "index.db") as connection:
        (count,) = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
    connection.close()
    return int(count)


def test_only_objects_that_are_there_have_rows(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(30):
        log.append("t", value=b"%d" % number, partition=number % 2)
    log.compact("t")
    assert rows(tmp_path, "objects") == 32
    log.sweep(grace_ms=0)
    assert rows(tmp_path, "objects") == 2 == len(list(objects_of(log).list()))
    log.retain("t", max_age_ms=0)
    log.sweep(grace_ms=0)
    assert rows(tmp_path, "objects") == 0
    assert [event.value for event in log.read("t", follow=False)] == []
    assert log.append("t", value=b"next", partition=0).sequence == 15


# Keys


def drop_all(log: Log) -> None:
    """Deletes every event, as retention does."""
    for head in log.heads("t"):
        index_of(log).trim(log.topic("t").uid, head.partition, before_sequence=head.next_sequence)


def once(log: Log, number: int, *, source: str = "s", kept: int = 3, events: int = 1) -> None:
    packed = log.pack("t", [NewEvent(value=b"%d" % number, partition=0)] * events)
    log.append_once(
        "t", packed, key=f"{source}/{number}", numbered=Numbered(source, number, kept=kept)
    )


@pytest.mark.parametrize(("objects", "index"), ENGINES)
def test_keys_of_old_numbers_are_forgotten_and_add_nothing(
    request: pytest.FixtureRequest, objects: str, index: str
) -> None:
    with Log(place(request, objects, index)) as log:
        log.create_topic("t", partitions=2)
        for number in range(8):
            once(log, number)
        once(log, 2, source="other")
        log.compact("t")
        log.sweep(grace_ms=0)
        for number in range(8):  # all keys are repeated: none is added
            once(log, number)
        once(log, 2, source="other")
        assert len(values(log)) == 9
        once(log, 8)
        assert len(values(log)) == 10


def test_rows_of_keys_do_not_grow_with_numbers(log: Log, tmp_path: Path) -> None:
    for number in range(20):
        once(log, number)
    drop_all(log)
    log.sweep(grace_ms=0)
    assert rows(tmp_path, "objects") == 3
    assert rows(tmp_path, "floors") == 2


def test_a_key_without_a_number_is_never_forgotten(log: Log, tmp_path: Path) -> None:
    for number in range(5):
        log.append_once("t", log.pack("t", [NewEvent(value=b"")]), key=f"k{number}")
    log.compact("t")
    log.sweep(grace_ms=0)
    for number in range(5):
        log.append_once("t", log.pack("t", [NewEvent(value=b"")]), key=f"k{number}")
    assert sum(head.next_sequence for head in log.heads("t")) == 5


def test_key_used_without_a_number_adds_nothing(log: Log) -> None:
    packed = log.pack("t", [NewEvent(value=b"4", partition=0)])
    log.append_once("t", packed, key="s/4")
    once(log, 4)
    assert len(values(log)) == 1
    once(log, 5)
    assert len(values(log)) == 2


def test_close_settles_the_parts_of_a_number(log: Log) -> None:
    def part(key: str, *, number: int) -> None:
        packed = log.pack("t", [NewEvent(value=key.encode(), partition=0)])
        log.append_once("t", packed, key=key, numbered=Numbered("s", number, closes=False))

    part("a", number=1)
    part("a", number=1)
    once(log, 1, kept=0)
    drop_all(log)
    log.sweep(grace_ms=0)
    part("a", number=1)  # a zombie
    assert values(log) == []
    part("a", number=2)
    assert len(values(log)) == 1


@pytest.mark.parametrize(
    "numbered",
    [Numbered("s", -1), Numbered("s", 1 << 63), Numbered("s", True), Numbered("s", 1, kept=-1)],
)
def test_numbers_are_whole_and_not_below_0(log: Log, numbered: Numbered) -> None:
    with pytest.raises(InvalidInput, match=r"number|kept"):
        log.append_once("t", log.pack("t", [NewEvent(value=b"")]), key="k", numbered=numbered)
