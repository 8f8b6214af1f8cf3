"""Receipts: the rows in which the tasks of a lane report their work through Spark.

There is one row for each message that was published and acknowledged, and one row of each task for its piece
of the window.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa

from chronoline.pipe.windows import FIRED

SCHEMA = pa.schema(
    [
        pa.field("outcome", pa.string()),
        pa.field("window", pa.int64()),
        pa.field("id", pa.string()),
        pa.field("due", pa.timestamp("us", tz="UTC")),
        pa.field("fired", pa.timestamp("us", tz="UTC")),
        pa.field("lateness_ms", pa.float64()),
        pa.field("redelivered", pa.bool_()),
        pa.field("node", pa.string()),
    ]
)
DDL = (
    "outcome STRING, window BIGINT, id STRING, due TIMESTAMP, fired TIMESTAMP, lateness_ms DOUBLE, "
    "redelivered BOOLEAN, node STRING"
)


class Fired(NamedTuple):
    id: str
    due_ms: int
    fired_us: int
    redelivered: bool


def as_batch(fired: Sequence[Fired], *, outcome: str, window: int, node: str) -> pa.RecordBatch:
    """The receipts of a task: one for each message, and one for its piece of the window."""
    count = len(fired)
    late = [each.fired_us / 1000 - each.due_ms for each in fired]
    columns = [
        pa.array([FIRED] * count + [outcome], pa.string()),
        pa.array([window] * (count + 1), pa.int64()),
        pa.array([each.id for each in fired] + [None], pa.string()),
        _moments([each.due_ms * 1000 for each in fired]),
        _moments([each.fired_us for each in fired]),
        pa.array([*late, None], pa.float64()),
        pa.array([each.redelivered for each in fired] + [None], pa.bool_()),
        pa.array([node] * (count + 1), pa.string()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _moments(moments_us: list[int]) -> pa.Array:
    return pa.array([*moments_us, None], pa.int64()).cast(pa.timestamp("us", tz="UTC"))
