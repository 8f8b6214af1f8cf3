"""Stores, and storage threads on them."""

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from chronoline.core.topic import Topic
from chronoline.delivery.lane import summary
from chronoline.delivery.storage_threads import StorageThreads
from chronoline.stores.contract import Store
from chronoline.stores.factory import open_store
from tests.delivery.inbox import Inbox
from tests.delivery.stores import Tap


@pytest.fixture(autouse=True)
def _no_earlier_lines() -> None:
    """The lines of one test do not wait for the next."""
    summary.flush()


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/t.db"


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with open_store(url) as opened:
        yield opened


@pytest.fixture
def tap(store: Store) -> Iterator[Tap]:
    tap = Tap(store)
    yield tap
    tap.gate.set()


@pytest.fixture
def topic(store: Store) -> Topic:
    return store.create_topic("t", now_ms=0)


@pytest.fixture
def inbox() -> Inbox:
    return Inbox()


@pytest.fixture
def threads(tap: Tap) -> Iterator[StorageThreads]:
    # Waits at the gate look like slow work: here they must not make the commits smaller.
    opened = StorageThreads(cast(Store, tap), commit_ms=60_000)
    yield opened
    tap.gate.set()
    opened.close()
