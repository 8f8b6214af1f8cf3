"""Windows: periods of equal length, which the lanes of a pipe serve in turn, and the turn of a task.

Window n is the n-th period since 1970, so all pipes have the same windows. Lane k of m serves the windows
whose number modulo m is k: while one lane serves, the task of the next is ready and waits.

A task's turn begins with its first window. It lasts until the start of its successor's: another task of the
same piece, whose turn is later and which beats. Without a successor the task goes on with the next window,
which it decides before the end is within reach of a reservation, so that nothing is late. A task whose
predecessor does not beat begins at once.

This module does not import Arrow, which receipts need, so that commands start fast.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Turn(NamedTuple):
    """The order of the tasks of one piece: by first window, then by the number of the attempt."""

    first: int
    """The number of the first window."""
    attempt: int


class Term(NamedTuple):
    """The time that a task serves; a start of 0 means at once."""

    start_ms: int
    end_ms: int


def first_window(lane: int, lanes: int, *, window_ms: int, now_ms: int) -> int:
    """The number of a lane's current or next window. A window that is over is never begun."""
    current = now_ms // window_ms
    return current + (lane - current) % lanes


def term_of(
    turn: Turn, others: Iterable[Turn], *, window_ms: int, lead_ms: int, now_ms: int
) -> Term:
    """The term of a task beside the others of its piece that beat.

    `lead_ms` is the time before the end of a window at which the task decides to go on.
    """
    others = list(others)
    has_predecessor = any(each < turn for each in others)
    start_ms = turn.first * window_ms if has_predecessor else 0
    later = [each.first for each in others if each > turn]
    if later:  # relieved: at the start of the successor's turn, or now if that has begun
        return Term(start_ms, max(min(later) * window_ms, now_ms))
    last = max(turn.first, (now_ms + lead_ms) // window_ms)
    return Term(start_ms, (last + 1) * window_ms)
