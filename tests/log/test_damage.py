"""A damaged or unreadable object is named, and does not block the other partitions."""

from collections.abc import Callable
from pathlib import Path

import pytest

from chronoline.log import Log
from chronoline.log.format import DamagedObject
from chronoline.log.group_reader import GroupReader
from chronoline.log.partition_reader import UnreadableObject
from chronoline.testing import ManualClock
from tests.log import timed
from tests.log.internals import arrivals_of, index_of, readers_of
from tests.log.timed import fill

clock = timed.clock
log = timed.log

UNREADABLE = (DamagedObject, UnreadableObject)
THE_OTHERS = [(0, 0), (0, 1), (2, 0), (2, 1), (3, 0), (3, 1)]


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _make_unreadable(path: Path) -> None:
    """It can be opened, and every read fails."""
    path.unlink()
    path.mkdir()


@pytest.fixture
def first(log: Log, tmp_path: Path) -> Path:
    """Of two events in each partition, the first of partition 1: its object."""
    for partition in range(4):
        fill(log, 2, partition)
    (chunk,) = index_of(log).chunks(log.topic("t").uid, 1, from_sequence=0, limit=1)
    (path,) = tmp_path.glob(f"log/objects/*/{chunk.object_name}.events")
    return path


@pytest.fixture(
    params=[_flip, _empty, Path.unlink, _make_unreadable],
    ids=["changed", "empty", "missing", "unreadable"],
)
def damaged(request: pytest.FixtureRequest, first: Path) -> str:
    """The name of the object that cannot be read."""
    request.param(first)
    return first.stem


@pytest.mark.parametrize("group", [None, "g"], ids=["alone", "group"])
def test_damage_is_raised_after_the_other_partitions(
    log: Log, damaged: str, group: str | None
) -> None:
    seen: list[tuple[int, int]] = []
    reader = log.read("t", group=group, follow=False)
    where = "'t', partition 1, from sequence 0"
    with pytest.raises(UNREADABLE, match=f"{damaged}.*{where}"):
        seen.extend((event.partition, event.sequence) for event in reader)
    assert sorted(seen) == THE_OTHERS


def test_damage_ends_processing_after_the_other_partitions(log: Log, damaged: str) -> None:
    seen: list[tuple[int, int]] = []
    with pytest.raises(UNREADABLE, match=damaged):
        log.process(
            "t", "g", lambda event: seen.append((event.partition, event.sequence)), follow=False
        )
    assert sorted(seen) == THE_OTHERS
    assert [each.lag for each in log.groups("t")] == [0, 2, 0, 0]


@pytest.mark.parametrize("group", [None, "g"], ids=["alone", "group"])
def test_following_reader_logs_damage_and_continues(
    log: Log, damaged: str, group: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    reader = log.read("t", group=group)
    seen = [next(reader) for _ in THE_OTHERS]
    assert sorted((event.partition, event.sequence) for event in seen) == THE_OTHERS
    fill(log, 1, partition=3)
    event = next(reader)
    assert (event.partition, event.sequence) == (3, 2)
    assert damaged in caplog.text
    reader.close()


@pytest.mark.parametrize("hearing", [False, True], ids=["deaf", "hearing"])
@pytest.mark.parametrize("group", [None, "g"], ids=["alone", "group"])
@pytest.mark.parametrize(
    ("spoil", "rest_ms"), [(_flip, 5_000), (_make_unreadable, 1_000)], ids=["damage", "unreadable"]
)
def test_only_the_damaged_partition_rests(
    log: Log,
    first: Path,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    *,
    group: str | None,
    hearing: bool,
    spoil: Callable[[Path], object],
    rest_ms: int,
) -> None:
    data = first.read_bytes()
    spoil(first)
    began_ms = clock.now_ms()
    waits_s: list[float] = []

    def wait(topic_uid: int, seen: int, timeout_s: float) -> bool:
        waits_s.append(timeout_s)
        assert len(waits_s) < 100, "it waits in vain"
        if len(waits_s) == 1:
            fill(log, 1, partition=3)
            if first.is_dir():
                first.rmdir()
            first.write_bytes(data)
        clock.advance(seconds=timeout_s)
        return False

    monkeypatch.setattr(arrivals_of(log), "wait", wait)
    monkeypatch.setattr(type(index_of(log)), "hearing", hearing)
    # The test beats by itself: each step is the test's.
    monkeypatch.setattr(GroupReader, "_keep_alive", lambda self: None)
    # Longer than the log was opened with.
    monkeypatch.setattr(readers_of(log), "_hold_ms", 60_000)
    reader = log.read("t", group=group)
    places = [(event.partition, event.sequence) for event in (next(reader) for _ in range(9))]
    assert sorted(places[:6]) == THE_OTHERS
    assert sorted(places[6:]) == [(1, 0), (1, 1), (3, 2)]
    assert clock.now_ms() - began_ms in range(rest_ms, rest_ms + 150)
    if not hearing:  # it polls as often as before
        assert waits_s[0] <= 0.1
        assert places[6] == (3, 2)
    reader.close()


@pytest.mark.usefixtures("damaged")
def test_compaction_skips_damaged_chunks(log: Log) -> None:
    compacted = log.compact("t")
    assert (compacted.chunks_before, compacted.chunks_after) == (8, 5)
    assert [e.sequence for e in log.read("t", partition=3, follow=False)] == [0, 1]
    assert [e.sequence for e in log.read("t", partition=1, start=1, follow=False)] == [1]
