"""Groups read everything at least once, in sequence, and only the holder of a partition notes progress."""

import threading
from pathlib import Path

import pytest

from chronoline.core.errors import InvalidInput
from chronoline.log import Event, Log, NewEvent


def fill(log: Log, count: int) -> None:
    log.append_many("t", [NewEvent(value=str(n).encode(), partition=n % 4) for n in range(count)])


def read(log: Log, group: str, limit: int | None = None) -> list[int]:
    return [int(e.value or b"") for e in log.read("t", group=group, follow=False, limit=limit)]


def test_groups_read_everything_independently_and_go_on_where_they_were(log: Log) -> None:
    fill(log, 20)
    first = read(log, "a", limit=7)
    assert sorted(first + read(log, "a")) == list(range(20))
    assert read(log, "a") == []
    assert sorted(read(log, "b")) == list(range(20))


def test_progress_is_noted_for_what_was_processed_when_a_reader_is_closed(log: Log) -> None:
    fill(log, 4)
    reader = log.read("t", group="a", follow=False)
    seen = int(next(reader).value or b"")
    reader.close()  # type: ignore[attr-defined]  # it is a generator
    assert sorted(read(log, "a")) == [0, 1, 2, 3]  # the one that was being processed comes again
    assert seen in range(4)


def test_a_waiting_reader_is_woken_by_an_append(log: Log) -> None:
    found = threading.Event()

    def wait() -> None:
        for _ in log.read("t", group="a", limit=1):
            found.set()

    thread = threading.Thread(target=wait)
    thread.start()
    log.append("t", value=b"0")
    assert found.wait(20)
    thread.join(20)
    assert not thread.is_alive()


def test_what_another_process_appends_is_noticed(log: Log, url: str) -> None:
    found = threading.Event()

    def wait() -> None:
        for _ in log.read("t", limit=1):
            found.set()

    thread = threading.Thread(target=wait)
    thread.start()
    with Log(url) as other:
        other.append("t", value=b"0")
    assert found.wait(20)
    thread.join(20)


def test_two_readers_share_the_partitions(log: Log, url: str) -> None:
    topic = log.topic("t")
    with Log(url, hold_ms=60_000) as other:
        mine, theirs = log._member(topic, "a"), other._member(topic, "a")
        mine._beat()  # it hears of the other
        fill(log, 40)
        shares: list[set[int]] = []
        for reader in (mine, theirs):
            partitions = set()
            while (batch := reader.next_batch(5)) is not None:
                hold, events = batch
                partitions.add(hold.partition)
                assert reader.done(hold, events[-1].sequence + 1)
            shares.append(partitions)
        assert sorted(map(sorted, shares)) == [[0, 1], [2, 3]]
        mine.close()
        theirs._beat()
        assert theirs._share == range(4)
        theirs.close()


def test_a_reader_that_was_frozen_past_its_end_cannot_note_progress(log: Log) -> None:
    topic = log.topic("t")
    index, now = log._index, 1_000
    frozen = index.hold("a", topic.uid, 0, "one", until_ms=now + 10, now_ms=now)
    assert frozen is not None
    assert index.hold("a", topic.uid, 0, "two", until_ms=now + 20, now_ms=now + 9) is None
    assert index.progress(frozen, 1, now_ms=now + 10) is None  # over, though nobody took it
    taken = index.hold("a", topic.uid, 0, "two", until_ms=now + 50, now_ms=now + 10)
    assert taken is not None
    assert taken.fence > frozen.fence
    assert index.renew(frozen, until_ms=now + 99, now_ms=now + 11) is None
    assert index.progress(frozen, 5, now_ms=now + 11) is None
    assert index.progress(taken, 3, now_ms=now + 11) is not None
    assert index.progress(taken, 2, now_ms=now + 11) is None  # never backwards
    index.let_go(frozen)
    assert [(s.holder, s.sequence) for s in index.groups(topic.uid)] == [("two", 3)]


def test_an_error_in_processing_delivers_again_before_anything_behind_it(log: Log) -> None:
    log.append_many("t", [NewEvent(value=str(n).encode(), partition=0) for n in range(3)])
    failures = iter([ValueError("once"), ValueError("twice")])
    seen: list[int] = []

    def handle(event: Event) -> None:
        seen.append(int(event.value or b""))
        if event.sequence == 1:
            for failure in failures:
                raise failure

    assert log.process("t", "a", handle, follow=False, retry_ms=1) == 3
    assert seen == [0, 1, 1, 1, 2]


def test_a_poison_event_goes_to_the_dead_letters(log: Log) -> None:
    log.create_topic("dead", partitions=1)
    log.append_many("t", [NewEvent(value=str(n).encode(), partition=0) for n in range(3)])

    def handle(event: Event) -> None:
        if event.sequence == 1:
            raise ValueError("never")

    log.process(
        "t", "a", handle, follow=False, retry_ms=1, max_attempts=2, dead_letter_topic="dead"
    )
    (letter,) = log.read("dead", follow=False)
    assert letter.value == b"1"
    assert dict(letter.headers)["chronolineError"] == b"ValueError: never"
    assert read(log, "a") == []


def test_seek_by_sequence_and_time_and_skip_to_end(log: Log) -> None:
    fill(log, 8)
    assert len(read(log, "a")) == 8
    log.seek("t", "a", sequence=1)
    assert sorted(read(log, "a")) == [4, 5, 6, 7]
    log.seek("t", "a", ts=0)
    assert len(read(log, "a")) == 8
    log.seek("t", "a", ts=2**47)
    assert read(log, "a") == []
    log.skip_to_end("t", "b")
    assert read(log, "b") == []
    with pytest.raises(InvalidInput):
        log.seek("t", "a")


def test_a_damaged_object_is_named_and_stops_only_its_partition(
    log: Log, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for partition in range(4):
        log.append("t", value=str(partition).encode(), partition=partition)
    damaged = sorted(tmp_path.glob("log/objects/*/*.events"))[0]
    data = bytearray(damaged.read_bytes())
    data[-1] ^= 1
    damaged.write_bytes(bytes(data))
    assert sorted(read(log, "a")) == [1, 2, 3]
    assert damaged.stem in caplog.text


def test_compaction_and_retention_while_a_reader_reads(log: Log) -> None:
    for n in range(20):
        log.append("t", value=str(n).encode(), partition=0)
    reader = log.read("t", partition=0, follow=False)
    seen = [int(next(reader).value or b"")]
    compacted = log.compact("t")
    assert (compacted.chunks_before, compacted.chunks_after) == (20, 1)
    assert log.sweep(grace_ms=0) == 20
    seen += [int(event.value or b"") for event in reader]
    assert seen == list(range(20))
    log.append("t", value=b"20", partition=0)
    assert log.retain("t", max_bytes=1) == 20
    assert [event.sequence for event in log.read("t", follow=False)] == [20]
    assert log.heads("t")[0].first_sequence == 20
