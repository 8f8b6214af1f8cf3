"""Receipts as rows."""

from chronoline.pipe.receipts import Fired, as_batch
from chronoline.pipe.windows import FIRED, SERVED


def test_window_has_one_row_more_than_messages() -> None:
    fired = [Fired("a", 1_000, 1_002_500, False), Fired("b", 2_000, 2_000_000, True)]
    rows = as_batch(fired, outcome=SERVED, window=7, node="n").to_pylist()
    assert [row["outcome"] for row in rows] == [FIRED, FIRED, SERVED]
    assert [row["id"] for row in rows] == ["a", "b", None]
    assert [row["lateness_ms"] for row in rows] == [2.5, 0.0, None]
    assert [row["redelivered"] for row in rows] == [False, True, None]
    assert {(row["window"], row["node"]) for row in rows} == {(7, "n")}
    assert rows[0]["due"].timestamp() == 1
    assert rows[0]["fired"].timestamp() == 1.0025


def test_empty_window_has_one_row() -> None:
    assert len(as_batch([], outcome=SERVED, window=7, node="n")) == 1
