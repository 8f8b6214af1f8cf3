"""Queries that are started again when they fail, after rests that grow."""

from __future__ import annotations

from typing import Any, cast

import pytest
from pyspark.sql.streaming.query import StreamingQuery

from chronoline.pipe.spark import queries
from chronoline.pipe.spark.lane_query import OBSERVED
from chronoline.pipe.spark.queries import SupervisedQuery, longest_stillness_s


class Row:
    def __init__(self, fired: int) -> None:
        self._fired = fired

    def asDict(self) -> dict[str, int]:
        return {"fired": self._fired}


class Progress:
    def __init__(self, batch: int, fired: int | None) -> None:
        self.batchId = batch
        self.observedMetrics = {} if fired is None else {OBSERVED: Row(fired)}


class Query:
    """As much of a streaming query as is looked at."""

    def __init__(self) -> None:
        self.isActive = True
        self.ended: list[Progress] = []
        self.fetched = 0

    @property
    def recentProgress(self) -> list[Progress]:
        self.fetched += 1
        return self.ended

    @property
    def lastProgress(self) -> Progress | None:
        return self.ended[-1] if self.ended else None

    def exception(self) -> Any:
        return None if self.isActive else "it broke\n\nand a long trace"

    def stop(self) -> None:
        self.isActive = False


class Time:
    def __init__(self) -> None:
        self.now_s = 1_000.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    time = Time()
    monkeypatch.setattr(queries, "time", time)
    return time


@pytest.fixture
def started() -> list[Query]:
    return []


@pytest.fixture
def kept(started: list[Query], time: Time) -> SupervisedQuery:
    def start() -> StreamingQuery:
        started.append(Query())
        return cast(StreamingQuery, started[-1])

    return SupervisedQuery("the lane", start)


def test_failed_query_restarts_after_growing_rests(
    kept: SupervisedQuery, started: list[Query], time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    kept.keep()
    assert kept.active
    kept.keep()
    assert len(started) == 1
    rests = []
    for _ in range(9):
        started[-1].isActive = False
        failed_s = time.now_s
        count = len(started)
        while len(started) == count:
            kept.keep()
            time.now_s += 0.5
        rests.append(time.now_s - 0.5 - failed_s)
    assert rests == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]
    assert kept.restarts == 9
    assert caplog.messages[0] == "the lane failed and is restarted: it broke"
    # One that was well for a while rests shortly again.
    time.now_s += 61
    started[-1].isActive = False
    kept.keep()
    time.now_s += 0.5
    kept.keep()
    assert kept.active


def test_observation_is_reported_once(kept: SupervisedQuery, started: list[Query]) -> None:
    kept.keep()
    assert kept.done == -1
    started[-1].ended = [Progress(0, 3), Progress(1, None)]
    assert [each["fired"] for each in kept.observed()] == [3]
    started[-1].ended += [Progress(2, 4)]
    assert [each["fired"] for each in kept.observed()] == [4]
    assert kept.done == 2
    kept.stop()
    assert not kept.active
    assert list(kept.observed()) == []
    kept.start()
    started[-1].ended = [Progress(0, 5)]
    assert [each["fired"] for each in kept.observed()] == [5]


def test_all_are_fetched_only_if_several_are_new(
    kept: SupervisedQuery, started: list[Query]
) -> None:
    kept.keep()
    for number in range(3):
        started[-1].ended.append(Progress(number, number))
        assert [each["fired"] for each in kept.observed()] == [number]
        assert list(kept.observed()) == []
    assert started[-1].fetched == 0
    started[-1].ended += [Progress(3, 3), Progress(4, 4)]
    assert [each["fired"] for each in kept.observed()] == [3, 4]
    assert started[-1].fetched == 1


def test_idle_query_is_checked_before_it_counts(
    kept: SupervisedQuery, started: list[Query], time: Time
) -> None:
    def stillness_s() -> float:
        return longest_stillness_s([kept], suspicious_s=20)

    kept.keep()
    started[-1].ended = [Progress(0, 1)]
    assert list(kept.observed())
    # The observer is busy for a while; the query moves.
    time.now_s += 15
    started[-1].ended.append(Progress(1, 2))
    assert stillness_s() == 15
    time.now_s += 15
    assert stillness_s() == 0
    assert [each["fired"] for each in kept.observed()] == [2]
    # It does not move, and a new start is no movement.
    time.now_s += 30
    assert stillness_s() == 30
    started[-1].isActive = False
    kept.keep()
    time.now_s += 1
    kept.keep()
    assert kept.active
    assert stillness_s() == 31
    started[-1].ended = [Progress(0, 1)]
    assert stillness_s() == 0


def test_longest_idle_query_counts(kept: SupervisedQuery, started: list[Query], time: Time) -> None:
    # Another query that starts the same.
    other = SupervisedQuery("another lane", kept._start)
    for query in (kept, other):
        query.start()
    time.now_s += 30
    started[0].ended = [Progress(0, 1)]
    assert longest_stillness_s([kept, other], suspicious_s=20) == 30
    started[1].ended = [Progress(0, 1)]
    assert longest_stillness_s([kept, other], suspicious_s=20) == 0
