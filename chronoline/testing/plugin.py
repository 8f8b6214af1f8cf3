"""The pytest plugin: fixtures for everybody who has Chronoline installed.

pytest imports this module in every project of theirs, so it stays cheap: no driver, no server.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chronoline.testing import ManualClock, MemoryStore

# By its name: the broker lies above this.
pytest_plugins = ("chronoline.testing.broker",)


@pytest.fixture
def chronoline_clock() -> ManualClock:
    """A clock that stands at the beginning of 2026 until the test advances it."""
    return ManualClock()


@pytest.fixture
def chronoline_store() -> Iterator[MemoryStore]:
    """An empty store in memory, closed after the test."""
    with MemoryStore() as store:
        yield store
