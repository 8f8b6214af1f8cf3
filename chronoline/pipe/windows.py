"""Windows: periods of equal length, which the lanes of a pipe serve in turn.

Window n is the n-th period since 1970, so all pipes have the same windows. Lane k of m serves the windows
whose number modulo m is k: while one lane serves, the task of the next is ready and waits.

This module does not import Arrow, which receipts need, so that commands start fast.
"""

from __future__ import annotations

from typing import NamedTuple

FIRED, SERVED, SKIPPED, STOPPED = "fired", "served", "skipped", "stopped"
"""The outcomes that a receipt can state. Fired: a message was published. Served: a window was served.

Skipped: the window was over before its task came to it, or the store could not be reached.
Stopped: the pipe was asked to stop before the task began, and the task did nothing.
"""


class Window(NamedTuple):
    number: int
    start_ms: int
    end_ms: int


def window_of(lane: int, lanes: int, *, window_ms: int, now_ms: int) -> Window:
    """The current or next window of a lane. A window that is over is never begun."""
    current = now_ms // window_ms
    number = current + (lane - current) % lanes
    return Window(number, number * window_ms, (number + 1) * window_ms)


def windows_between(last: int, window: int, lanes: int) -> int:
    """The number of a lane's windows between two that its tasks came to; `lanes` is the number of lanes."""
    return max(0, (window - last) // lanes - 1)
