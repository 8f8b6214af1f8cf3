"""The work of a lane runs once for each task attempt, in as many tasks as the buckets have pieces."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from pyspark.sql import SparkSession

from chronoline.pipe.lane_work import LaneWork
from chronoline.pipe.spark.lane_query import start_lane
from tests.spark.pipes.scene import until

RANGES = 2
WINDOWS = 4


@dataclass(frozen=True)
class NotedWork:
    """As a lane's work, but all that it does is to note that it was asked."""

    notes: str
    pipe: str = "executions"
    lane: int = 0
    ranges: int = RANGES

    def serve(self, piece: int, attempt: int) -> None:
        with Path(self.notes).open("a") as notes:
            notes.write(f"{piece} {attempt}\n")


def test_each_task_runs_once(spark: SparkSession, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    query = start_lane(
        spark,
        cast(LaneWork, NotedWork(str(notes))),
        checkpoint=str(tmp_path / "checkpoint"),
    )
    try:
        until(
            lambda: len(query.recentProgress) > WINDOWS or query.exception(), "windows are served"
        )
        assert query.exception() is None
    finally:
        query.stop()
    windows = len(query.recentProgress)
    units = [tuple(line.split()) for line in notes.read_text().splitlines()]
    assert max(Counter(attempt for _, attempt in units).values()) == 1
    by_piece = Counter(piece for piece, _ in units)
    assert by_piece.keys() == {"0", "1"}
    # The windows that have ended, and one more that may have been under way.
    for count in by_piece.values():
        assert windows <= count <= windows + 2
