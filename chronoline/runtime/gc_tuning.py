"""Python's search for cyclic garbage, in processes that make and drop messages by the thousand.

Each message is a few objects without cycles, and the search walks over those that wait in batches again and
again: more than a third of the processor time of a bulk write, and pauses for a lane or a broker.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_SELDOM = (50_000, 50, 100)


def search_seldom() -> None:
    """For a process that is ours; what it has loaded by now is not looked at again."""
    if gc.get_threshold() != _SELDOM:
        gc.freeze()
        gc.set_threshold(*_SELDOM)


@contextmanager
def searched_seldom() -> Iterator[None]:
    """For a while, in a process that runs others' code too."""
    before = gc.get_threshold()
    gc.set_threshold(*_SELDOM)
    try:
        yield
    finally:
        gc.set_threshold(*before)
