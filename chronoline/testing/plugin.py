"""The pytest plugin: fixtures for projects that have Chronoline installed.

pytest imports this module in every such project, so it imports no driver and no server.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chronoline.testing import ManualClock, MemoryStore

# By its name, because this package may not import the broker.
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
