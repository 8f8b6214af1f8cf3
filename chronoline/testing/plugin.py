"""The pytest plugin: fixtures for projects that have Chronoline installed.

pytest imports this module in every such project, so it imports no driver and no server.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chronoline.testing import ManualClock, MemoryStore
from chronoline.testing.broker import LocalBroker


@pytest.fixture
def chronoline_clock() -> ManualClock:
    """A clock that stands at the beginning of 2026 until the test advances it."""
    return ManualClock()


@pytest.fixture
def chronoline_store() -> Iterator[MemoryStore]:
    """An empty store in memory, closed after the test."""
    with MemoryStore() as store:
        yield store


@pytest.fixture
def chronoline_broker(
    chronoline_store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """The address of a broker in this process, on `chronoline_store`. CHRONOLINE_ADDRESS names it too."""
    with LocalBroker(chronoline_store) as broker:
        monkeypatch.setenv("CHRONOLINE_ADDRESS", broker.address)
        monkeypatch.delenv("CHRONOLINE_TOKEN", raising=False)
        yield broker.address
