"""Queries that are started again when they fail, after rests that grow."""

from __future__ import annotations

from typing import Any, cast

import pytest
from pyspark.sql.streaming.query import StreamingQuery

from chronoline.pipe.spark import queries
from chronoline.pipe.spark.queries import SupervisedQuery


class Progress:
    def __init__(self, batch: int) -> None:
        self.batchId = batch


class Query:
    """As much of a streaming query as is looked at."""

    def __init__(self) -> None:
        self.isActive = True
        self.ended: list[Progress] = []

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


def test_last_micro_batch_is_known(kept: SupervisedQuery, started: list[Query]) -> None:
    assert kept.done == -1
    kept.keep()
    assert kept.done == -1
    started[-1].ended = [Progress(0), Progress(1)]
    assert kept.done == 1
    kept.stop()
    assert not kept.active
    assert kept.done == -1


def test_query_hangs_without_beats_and_progress(
    kept: SupervisedQuery, started: list[Query], time: Time
) -> None:
    beaten_s = time.now_s

    def hangs() -> bool:
        return kept.hangs(beaten_s, patience_s=20)

    assert not hangs()
    kept.keep()
    time.now_s += 21
    beaten_s = time.now_s - 1
    assert not hangs()  # a task beats, however long it serves
    time.now_s += 20
    started[-1].ended = [Progress(0)]
    assert not hangs()  # a micro-batch has ended
    time.now_s += 21
    assert hangs()


def test_hanging_query_restarts_after_a_rest(
    kept: SupervisedQuery, started: list[Query], time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    kept.keep()
    kept.restart("it hangs")
    assert not started[0].isActive
    kept.keep()
    assert not kept.active
    time.now_s += 0.5
    kept.keep()
    assert kept.active
    assert (len(started), kept.restarts) == (2, 1)
    assert caplog.messages == ["the lane is restarted: it hangs"]
