"""Answered appends exist in order and without gaps; failed ones are invisible."""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from chronoline.core.errors import (
    InvalidInput,
    OutcomeUnknown,
    StoreError,
    StoreUnavailable,
    TopicExists,
    TopicNotFound,
)
from chronoline.log import Log, NewEvent
from chronoline.log import appender as writer_module
from chronoline.log.contract import NewChunk
from chronoline.log.events import MAX_VALUE_BYTES
from chronoline.log.index.sqlite import SqliteIndex
from chronoline.log.partitioner import partition_id
from tests.log.internals import index_of, objects_of
from tests.log.waiters import PATIENCE_S


def values(log: Log, partition: int | None = None) -> list[bytes | None]:
    return [event.value for event in log.read("t", partition=partition, follow=False)]


def test_an_event_comes_back_byte_for_byte(log: Log) -> None:
    headers = [("a", b"1"), ("a", None), ("", b"\xff")]
    position = log.append("t", key=b"k", value=b"\0v", headers=headers, ts=7)
    (event,) = log.read("t", follow=False)
    assert (event.key, event.value, event.headers, event.ts) == (b"k", b"\0v", tuple(headers), 7)
    assert (event.partition, event.sequence) == (position.partition, position.sequence)
    assert position.partition == partition_id(b"k", 4)


def test_without_a_key_events_are_spread_evenly(log: Log) -> None:
    positions = log.append_many("t", [NewEvent(value=b"") for _ in range(12)])
    assert sorted(p.partition for p in positions) == sorted([0, 1, 2, 3] * 3)


def test_many_writers_share_objects_and_leave_no_gaps(log: Log) -> None:
    def write(writer: int) -> list[tuple[int, int]]:
        positions = [log.append("t", value=f"{writer}-{n}".encode()) for n in range(20)]
        return [(p.partition, p.sequence) for p in positions]

    with ThreadPoolExecutor(16) as threads:
        answered = [place for places in threads.map(write, range(16)) for place in places]
    assert len(set(answered)) == 320
    for partition in range(4):
        found = [event.sequence for event in log.read("t", partition=partition, follow=False)]
        assert found == list(range(len(found)))
        assert sorted(s for p, s in answered if p == partition) == found
    assert len(list(objects_of(log).list())) < 320


def test_a_large_append_is_cut_into_objects_in_order(url: str) -> None:
    with Log(url, object_bytes=1_000) as log:
        log.create_topic("t", partitions=3)
        events = [NewEvent(value=bytes(300), partition=n % 3) for n in range(30)]
        positions = log.append_many("t", events)
        assert [p.sequence for p in positions] == [n // 3 for n in range(30)]
        assert [event.sequence for event in log.read("t", partition=1, follow=False)] == list(
            range(10)
        )
        assert max(stored.size_bytes for stored in objects_of(log).list()) < 2_000


def test_uncommitted_append_is_invisible(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*_: Any, **__: Any) -> list[int]:
        raise StoreUnavailable("gone")

    # No setting: the test does not wait for the usual time.
    monkeypatch.setattr(writer_module, "_SETTLE_WAIT_S", 0)
    with monkeypatch.context() as patch:
        patch.setattr(index_of(log), "commit", lost)
        with pytest.raises(StoreUnavailable):
            log.append("t", value=b"lost")
    assert values(log) == []
    assert log.sweep(grace_ms=0) == 1
    assert log.append("t", value=b"next", partition=0).sequence == 0
    assert values(log) == [b"next"]


def test_unknown_commit_is_settled_by_repetition(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = index_of(log).commit
    failures = iter([OutcomeUnknown("lost"), StoreUnavailable("still gone")])

    def unsure(name: str, chunks: Sequence[NewChunk], **more: Any) -> list[int]:
        answer = commit(name, chunks, **more)
        for failure in failures:
            raise failure
        return answer

    monkeypatch.setattr(writer_module, "_SETTLE_WAIT_S", 0)
    monkeypatch.setattr(index_of(log), "commit", unsure)
    assert log.append("t", value=b"once", partition=1).sequence == 0
    assert values(log) == [b"once"]


def test_unknown_commit_stays_unknown_after_a_refusal(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = index_of(log).commit
    errors = iter([OutcomeUnknown("lost")])

    def done_and_refused(name: str, chunks: Sequence[NewChunk], **more: Any) -> list[int]:
        for error in errors:
            commit(name, chunks, **more)
            raise error
        raise StoreError("the token has expired")

    monkeypatch.setattr(writer_module, "_SETTLE_WAIT_S", 0)
    monkeypatch.setattr(index_of(log), "commit", done_and_refused)
    with pytest.raises(OutcomeUnknown, match=r"lost.*the token has expired"):
        log.append("t", value=b"done")
    assert values(log) == [b"done"]
    with pytest.raises(StoreError, match="expired") as refused:
        log.append("t", value=b"refused")
    assert not isinstance(refused.value, OutcomeUnknown)


def commits(log: Log, monkeypatch: pytest.MonkeyPatch) -> list[Sequence[NewChunk]]:
    """The chunks of each commit that follows."""
    made: list[Sequence[NewChunk]] = []
    commit = index_of(log).commit

    def noted(name: str, chunks: Sequence[NewChunk], **more: Any) -> list[int]:
        made.append(list(chunks))
        return commit(name, chunks, **more)

    monkeypatch.setattr(index_of(log), "commit", noted)
    return made


@pytest.mark.parametrize("count", [201, 1_000, 5_000])
def test_append_of_many_events_is_one_commit(
    log: Log, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    made = commits(log, monkeypatch)
    for _ in range(2):
        log.append_many("t", [NewEvent(value=b"") for _ in range(count)])
    assert [sum(chunk.events for chunk in chunks) for chunks in made] == [count, count]


def test_append_of_object_size_is_one_commit(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Log(url, object_bytes=10_000) as log:
        log.create_topic("t", partitions=5)
        made = commits(log, monkeypatch)
        headers = (("é" * 10, b""),)
        log.append_many("t", [NewEvent(value=bytes(990), headers=headers) for _ in range(10)])
        log.append_many("t", [NewEvent(value=b"") for _ in range(5_000)])
    assert [sum(chunk.events for chunk in chunks) for chunks in made] == [10, 5_000]


class Gathered:
    """Appends that gather while the first waits at a gate, in a log whose commits take three partitions."""

    def __init__(self, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
        self.log = log
        self._entered, self._gate = threading.Event(), threading.Event()
        self._put = objects_of(log).put
        self.made = commits(log, monkeypatch)
        monkeypatch.setattr(objects_of(log), "put", self._put_at_the_gate)

    def _put_at_the_gate(self, name: str, data: bytes) -> None:
        self._entered.set()
        assert self._gate.wait(PATIENCE_S)
        self._put(name, data)

    def append(self, asked: Sequence[Sequence[int]]) -> list[set[int]]:
        """Appends to these partitions; returns the partitions of each commit after the first."""
        self.log.append_later("t", [NewEvent(value=b"0", partition=0)])
        assert self._entered.wait(PATIENCE_S)
        later = [
            self.log.append_later(
                "t", [NewEvent(value=b"%d" % number, partition=each) for each in partitions]
            )
            for number, partitions in enumerate(asked)
        ]
        self._gate.set()
        for each in later:
            each.result(PATIENCE_S)
        return [{chunk.partition for chunk in chunks} for chunks in self.made[1:]]


@pytest.fixture
def gathered(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gathered]:
    monkeypatch.setattr(SqliteIndex, "max_chunks_per_commit", 3)
    with Log(url) as log:
        log.create_topic("t", partitions=8)
        yield Gathered(log, monkeypatch)


def test_chunk_limit_does_not_cut_joint_appends(gathered: Gathered) -> None:
    together = gathered.append([[1, 2], [3, 4], [4, 5, 3], [0, 1, 2, 3], [7, 6], [0]])
    # Only the append with more partitions than a commit takes is cut.
    assert together == [{1, 2}, {3, 4, 5}, {0, 1, 2}, {3}, {7, 6, 0}]


def test_appends_to_one_partition_each_share_commits_with_any(gathered: Gathered) -> None:
    asked = [*([each] for each in (7, 6, 5, 4, 3, 2, 1, 0) * 5), [2, 4, 2], [6, 4]]
    # Appends that fit stay whole, and few commits more are needed.
    assert gathered.append(asked) == [{2, 4, 6}, {7, 5, 3}, {1, 0}]
    for partition in range(8):
        events = gathered.log.read("t", partition=partition, follow=False)
        numbers = [int(event.value or b"") for event in events]
        assert numbers == sorted(numbers)


def test_writer_swept_before_its_commit_writes_again(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = objects_of(log).put
    swept: list[int] = []

    def put_and_freeze(name: str, data: bytes) -> None:
        put(name, data)
        if not swept:
            swept.append(log.sweep(grace_ms=0))

    monkeypatch.setattr(objects_of(log), "put", put_and_freeze)
    assert log.append("t", value=b"slow", partition=2).sequence == 0
    assert swept == [1]
    assert values(log) == [b"slow"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"value": "text"},
        {"value": b"", "key": "text"},
        {"value": bytes(MAX_VALUE_BYTES + 1)},
        {"value": b"", "partition": 4},
        {"value": b"", "partition": True},
        {"value": b"", "ts": -1},
        {"value": b"", "headers": [("a", "text")]},
    ],
)
def test_invalid_event_is_refused_and_nothing_appended(log: Log, wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        log.append("t", **wrong)
    assert values(log) == []


def test_topics(log: Log) -> None:
    with pytest.raises(TopicExists):
        log.create_topic("t")
    with pytest.raises(TopicNotFound, match="'nobody'"):
        log.append("nobody", value=b"")
    with pytest.raises(InvalidInput):
        log.create_topic("u", partitions=0)
    assert [topic.name for topic in log.topics()] == ["t"]


@pytest.mark.parametrize("url", ["nowhere:", "file:relative", "http://host/x"])
def test_a_url_that_names_no_log_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput, match="file:///folder"):
        Log(url)


def test_events_may_come_from_a_generator(log: Log) -> None:
    assert len(log.append_many("t", (NewEvent(value=b"%d" % n) for n in range(3)))) == 3
    assert sorted(value or b"" for value in values(log)) == [b"0", b"1", b"2"]


@pytest.mark.parametrize(
    "settings",
    [
        {"linger_ms": -1},
        {"object_bytes": 0},
        {"max_latency_ms": 0},
        {"hold_ms": 0},
        {"notifier": 5},
    ],
)
def test_invalid_settings_are_refused(url: str, settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        Log(url, **settings)
