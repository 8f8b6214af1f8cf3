"""Tuning of garbage collection and thread switches, for processes that handle thousands of messages.

Each message is a few objects without cycles, and the garbage collector walks over the waiting ones again and
again: more than a third of the processor time of a bulk write, and pauses for a lane or a broker.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_SELDOM = (50_000, 50, 100)
_SWITCH_S = 0.0005


def search_seldom() -> None:
    """Collects seldom, for a process of our own; objects that exist now are never visited again."""
    if gc.get_threshold() != _SELDOM:
        gc.freeze()
        gc.set_threshold(*_SELDOM)


@contextmanager
def searched_seldom() -> Iterator[None]:
    """Collects seldom within the block, for a process that also runs other code."""
    before = gc.get_threshold()
    gc.set_threshold(*_SELDOM)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def switch_often() -> None:
    """Switches threads every half millisecond. With Python's 5 ms, the others would delay a punctual one."""
    sys.setswitchinterval(min(sys.getswitchinterval(), _SWITCH_S))
