"""The whole log on every pair of engines: what holds in a folder holds in a bucket."""

import queue
import threading
from collections.abc import Iterator

import pytest

from chronoline.log import Event, Log, NewEvent
from tests.log.internals import arrivals_of, objects_of
from tests.log.places import PLACES, place

WRITERS = 8


@pytest.fixture(params=PLACES, ids="+".join)
def url(request: pytest.FixtureRequest) -> str:
    return place(request, *request.param)


@pytest.fixture
def log(url: str) -> Iterator[Log]:
    with Log(url, hold_ms=60_000) as log:
        log.create_topic("t", partitions=4)
        yield log


def read(log: Log, group: str) -> list[Event]:
    return list(log.read("t", group=group, follow=False))


def test_many_writers_of_two_processes_leave_no_gaps(log: Log, url: str) -> None:
    def write(writer: int, target: Log) -> None:
        for n in range(10):
            target.append("t", key=b"%d" % writer, value=b"%d-%d" % (writer, n))

    with Log(url) as other:
        threads = [
            threading.Thread(target=write, args=(writer, (log, other)[writer % 2]))
            for writer in range(WRITERS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found: dict[bytes, list[bytes]] = {}
    for partition in range(4):
        events = list(log.read("t", partition=partition, follow=False))
        assert [event.sequence for event in events] == list(range(len(events)))
        for event in events:
            found.setdefault(event.key or b"", []).append(event.value or b"")
    assert found == {b"%d" % w: [b"%d-%d" % (w, n) for n in range(10)] for w in range(WRITERS)}


def test_group_continues_in_another_process(log: Log, url: str) -> None:
    log.append_many("t", [NewEvent(value=b"%d" % n) for n in range(40)])
    first = [next(reader) for reader in [log.read("t", group="g", limit=10)] for _ in range(10)]
    log.read_until_current("t", "h", 2, lambda event: None)
    with Log(url) as other:
        rest = read(other, "g")
        assert {int(event.value or b"") for event in first + rest} == set(range(40))
        assert len(rest) < 40
        assert {each.group: each.lag for each in other.groups("t") if each.partition == 2} == {
            "g": 0,
            "h": 0,
        }


def test_compaction_retention_and_sweeping(log: Log) -> None:
    for n in range(12):
        log.append("t", value=b"%d" % n, partition=n % 2)
    assert log.compact("t").chunks_after == 2
    objects_of(log).put("0000000000000000000orphan", b"nobody speaks of it")
    assert log.sweep(grace_ms=0) == 1
    assert len(list(objects_of(log).list())) == 2
    odd = [int(event.value or b"") for event in log.read("t", partition=1, follow=False)]
    assert odd == list(range(1, 12, 2))
    log.append("t", value=b"12", partition=0)
    assert log.retain("t", max_bytes=1) == 6
    assert [head.first_sequence for head in log.heads("t")] == [6, 0, 0, 0]


def test_append_of_another_process_wakes_a_reader(
    log: Log, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: queue.Queue[bytes | None] = queue.Queue()
    waits = threading.Event()
    wait_for = arrivals_of(log).wait

    def signal_and_wait(topic_uid: int, seen: int, timeout_s: float) -> bool:
        waits.set()
        return wait_for(topic_uid, seen, timeout_s)

    def read_two() -> None:
        for event in log.read("t", group="g", limit=2):
            found.put(event.value)

    monkeypatch.setattr(arrivals_of(log), "wait", signal_and_wait)
    thread = threading.Thread(target=read_two)
    thread.start()
    try:
        with Log(url) as other:
            for value in (b"0", b"1"):
                assert waits.wait(60)
                waits.clear()
                other.append("t", value=value)
                assert found.get(timeout=60) == value
    finally:
        log.stop()
        thread.join()


def test_a_notifier_hears_of_each_partition(url: str) -> None:
    told: set[int] = set()
    with Log(url, notifier=lambda notification: told.add(notification.partition)) as log:
        log.create_topic("t", partitions=2)
        log.append("t", value=b"0", partition=0)
        log.append("t", value=b"1", partition=1)
    assert told == {0, 1}
