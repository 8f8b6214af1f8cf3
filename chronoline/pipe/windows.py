"""Windows: time cut into stretches of one length, which the lanes of a pipe serve in turn.

Window n is the n-th stretch since 1970, so all pipes cut time alike. Lane k of m serves the windows whose
number leaves k when divided by m: while one lane serves, the task of the next is up and waits.

This module does without Arrow, which receipts need, so that commands that only count start fast.
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
    """The window that a lane serves now, or waits for: one that is over is never begun."""
    current = now_ms // window_ms
    number = current + (lane - current) % lanes
    return Window(number, number * window_ms, (number + 1) * window_ms)


def windows_between(last: int, window: int, lanes: int) -> int:
    """How many windows of one lane, of so many, lie between two that a task came to."""
    return max(0, (window - last) // lanes - 1)
