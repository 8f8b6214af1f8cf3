"""The number of rows of a commit, learnt from earlier commits."""

from __future__ import annotations

FEWEST_ROWS = 200
"""The fewest rows of a commit, whatever a row costs, except when one is halved to learn the costs."""
MOST_ROWS = 5_000
_FEW_ROWS = 10  # commits that differ by less do not show the cost of a row
_HALVED_EVERY = 10
_SMOOTHING = 0.1


class Pace:
    """The number of rows for the next commit, by the costs of the last ones.

    A line through the last commits, the latest weighing most, gives the cost of the flush and the cost of a
    row. The rows may take `commit_ms`, or as long as the flush if that is more: more rows share a slow flush.
    Under full load all commits have one size, which shows neither, so from time to time one is halved.
    """

    def __init__(self, commit_ms: float) -> None:
        self._commit_ms = commit_ms
        self._row_ms = commit_ms / FEWEST_ROWS
        self._learnt = 0
        # Weighted means of the observations, and their variation.
        self._rows = self._took_ms = 0.0
        self._rows_variance = self._covariance = 0.0

    def rows(self) -> int:
        flush_ms = self._took_ms - self._row_ms * self._rows
        most_ms = max(self._commit_ms, flush_ms)
        if most_ms >= MOST_ROWS * self._row_ms:
            rows = MOST_ROWS
        else:
            rows = max(FEWEST_ROWS, int(most_ms / self._row_ms))
        return rows // 2 if self._learnt % _HALVED_EVERY == _HALVED_EVERY - 1 else rows

    def learn(self, rows: int, took_ms: float) -> None:
        weight = _SMOOTHING if self._learnt else 1.0
        self._learnt += 1
        more_rows, longer_ms = rows - self._rows, took_ms - self._took_ms
        self._rows += weight * more_rows
        self._took_ms += weight * longer_ms
        kept = 1 - weight
        self._rows_variance = kept * (self._rows_variance + weight * more_rows**2)
        self._covariance = kept * (self._covariance + weight * more_rows * longer_ms)
        if self._rows_variance >= _FEW_ROWS**2:
            self._row_ms = max(0.0, self._covariance / self._rows_variance)
