"""The timeline in dictionaries: for tests, for the simulator, and as the rules in their plainest form.

One lock serves everything. Bounded by memory, gone with the process.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from chronoline.stores.memory.engine import MemoryEngine
from chronoline.stores.timeline import Timeline

__all__ = ["MemoryEngine", "MemoryStore"]


class MemoryStore(Timeline):
    """A store that lives in this process: `Timeline(MemoryEngine())`."""

    engine: MemoryEngine

    def __init__(self, random_bytes: Callable[[int], bytes] = os.urandom) -> None:
        super().__init__(MemoryEngine(), random_bytes)
