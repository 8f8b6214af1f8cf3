"""What is damaged is named, and keeps nobody from the rest."""

from pathlib import Path

import pytest

from chronoline.log import Log
from chronoline.log.format import DamagedObject
from tests.log import timed
from tests.log.timed import fill

clock = timed.clock
log = timed.log

THE_OTHERS = [(0, 0), (0, 1), (2, 0), (2, 1), (3, 0), (3, 1)]


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))


@pytest.fixture(params=[_flip, Path.unlink], ids=["changed", "missing"])
def damaged(request: pytest.FixtureRequest, log: Log, tmp_path: Path) -> str:
    """Of two events in each partition, the first of partition 1 is damaged: its object's name."""
    for partition in range(4):
        fill(log, 2, partition)
    (chunk,) = log._index.chunks(log.topic("t").uid, 1, from_sequence=0, limit=1)
    (path,) = tmp_path.glob(f"log/objects/*/{chunk.object_name}.events")
    request.param(path)
    return chunk.object_name


@pytest.mark.parametrize("group", [None, "g"], ids=["alone", "group"])
def test_damage_is_raised_when_the_other_partitions_have_been_read(
    log: Log, damaged: str, group: str | None
) -> None:
    seen: list[tuple[int, int]] = []
    reader = log.read("t", group=group, follow=False)
    with pytest.raises(DamagedObject, match=damaged):
        seen.extend((event.partition, event.sequence) for event in reader)
    assert sorted(seen) == THE_OTHERS


def test_damage_ends_processing_when_the_other_partitions_have_been_processed(
    log: Log, damaged: str
) -> None:
    seen: list[tuple[int, int]] = []
    with pytest.raises(DamagedObject, match=damaged):
        log.process(
            "t", "g", lambda event: seen.append((event.partition, event.sequence)), follow=False
        )
    assert sorted(seen) == THE_OTHERS
    assert [each.lag for each in log.groups("t")] == [0, 2, 0, 0]


@pytest.mark.parametrize("group", [None, "g"], ids=["alone", "group"])
def test_a_reader_that_follows_goes_on_with_the_others_and_names_the_damage(
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


@pytest.mark.usefixtures("damaged")
def test_compaction_leaves_what_is_damaged_and_goes_on(log: Log) -> None:
    compacted = log.compact("t")
    assert (compacted.chunks_before, compacted.chunks_after) == (8, 5)
    assert [e.sequence for e in log.read("t", partition=3, follow=False)] == [0, 1]
    assert [e.sequence for e in log.read("t", partition=1, start=1, follow=False)] == [1]
