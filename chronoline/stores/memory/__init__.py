"""The timeline in a dictionary: for tests, for the simulator, and as the rules in their plainest form.

One lock serves everything. Bounded by memory, gone with the process.
"""

from chronoline.stores.memory.store import MemoryStore

__all__ = ["MemoryStore"]
