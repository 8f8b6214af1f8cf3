"""A unit of a lane's work runs once for each task attempt, whatever becomes of its receipts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from chronoline.pipe.lane_work import LaneWork
from chronoline.pipe.receipts import Fired, as_batch
from chronoline.pipe.spark.lane_query import OBSERVED, start_lane
from chronoline.pipe.windows import SERVED
from tests.spark.pipes.scene import until

RANGES = 2
WINDOWS = 4
WINDOW = 7


@dataclass(frozen=True)
class NotedWork:
    """As a lane's work, but all that it does is to note that it was asked."""

    notes: str
    pipe: str = "executions"
    lane: int = 0
    ranges: int = RANGES

    def serve(self, piece: int, attempt: str) -> pa.RecordBatch:
        with Path(self.notes).open("a") as notes:
            notes.write(f"{piece} {attempt}\n")
        fired = [Fired(f"{piece}-{attempt}", 0, 1_500, False)]
        return as_batch(fired, outcome=SERVED, window=WINDOW, node="node")


@pytest.mark.parametrize("archived", [True, False])
def test_each_unit_runs_once(spark: SparkSession, tmp_path: Path, archived: bool) -> None:
    notes = tmp_path / "notes"
    receipts = str(tmp_path / "receipts") if archived else None
    query = start_lane(
        spark,
        cast(LaneWork, NotedWork(str(notes))),
        checkpoint=str(tmp_path / "checkpoint"),
        receipts=receipts,
    )
    try:
        until(
            lambda: len(query.recentProgress) > WINDOWS or query.exception(), "windows are served"
        )
        assert query.exception() is None
    finally:
        query.stop()
    observed = _observed(query.recentProgress)
    units = [tuple(line.split()) for line in notes.read_text().splitlines()]
    attempts = Counter(attempt for _, attempt in units)
    assert max(attempts.values()) == 1
    by_piece = Counter(piece for piece, _ in units)
    assert by_piece.keys() == {"0", "1"}
    # The windows that have ended, and one more that may have been under way.
    for count in by_piece.values():
        assert observed["windows"] <= count <= observed["windows"] + 2
    assert observed["fired"] == observed["served"] == observed["windows"] * RANGES
    assert observed["late"] == observed["fired"]
    assert observed["late_sum_ms"] == 1.5 * observed["fired"]
    assert observed["first_window"] == observed["window"] == WINDOW * observed["windows"]
    if archived:
        rows = spark.read.parquet(cast(str, receipts)).select("id", "outcome").collect()
        assert len({row.id for row in rows}) == len(rows) >= observed["fired"]
        assert {row.outcome for row in rows} == {"fired"}


def _observed(progress: Any) -> Counter[str]:
    counted: Counter[str] = Counter()
    for each in progress:
        row = each.observedMetrics[OBSERVED].asDict()
        late = row["late_1"]  # 1.5 ms is above the first bound and within the second
        counted.update(windows=1, fired=row["fired"], served=row["served"], late=late)
        counted.update(late_sum_ms=row["late_sum_ms"] or 0)
        counted.update(first_window=row["first_window"], window=row["window"])
    return counted
