"""How many rows a commit should have, as it is learnt from those before."""

from __future__ import annotations

FEWEST_ROWS = 200
"""No commit is cut to fewer, whatever a row costs, except to half now and then to learn what it does."""
MOST_ROWS = 5_000
_FEW_ROWS = 10  # commits that differ by less say nothing of what a row costs
_HALVED_EVERY = 10
_SMOOTHING = 0.1


class Pace:
    """How many rows a commit should have, by what the last ones cost.

    A line through the last commits, the latest weighing most, tells what the flush costs and what a row
    costs beyond it. The rows may take `commit_ms`, or as long as the flush if that is more: a slow flush is
    shared by more rows. In a rush all commits have one size, which tells neither, so now and then one is cut
    to half.
    """

    def __init__(self, commit_ms: float) -> None:
        self._commit_ms = commit_ms
        self._row_ms = commit_ms / FEWEST_ROWS
        self._learnt = 0
        # Weighted means of what was seen, and how it varied around them.
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
