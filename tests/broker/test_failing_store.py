"""A real store that fails half of its calls: it gets samples, the rest is refused early, nothing is lost."""

from __future__ import annotations

import asyncio
import threading
from http import HTTPStatus
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from chronoline.core.errors import StoreUnavailable
from chronoline.stores.contract import Store
from chronoline.stores.factory import open_store
from chronoline.testing.postgres import PostgresServer
from tests.broker.http.served import serving
from tests.deadline import run_scene, until

_UNTOUCHED = frozenset({"close", "watch", "announce", "capabilities"})


class FailingStore:
    """A store; while `is_failing`, each second call fails before it reaches the store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._turns = count()
        self._counting = threading.Lock()
        self.is_failing = False
        self.calls = 0
        """Calls that reached this store while it was failing."""

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name in _UNTOUCHED or not callable(method):
            return method

        def call(*values: Any, **named: Any) -> Any:
            if self.is_failing:
                with self._counting:
                    self.calls += 1
                    is_lost = next(self._turns) % 2 == 0
                if is_lost:
                    raise StoreUnavailable("the disk made an error")
            return method(*values, **named)

        return call


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'timeline.db'}"
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return server.create_database(request.node.name)


def test_store_that_fails_half_of_its_calls_is_spared(url: str) -> None:
    async def scene(failing: Any) -> None:
        async with serving(failing) as it, it.client() as client:
            await it.create_topic("jobs")
            parts = it.node.parts
            assert parts is not None
            came, sent = list[str](), list[str]()

            async def consume() -> None:
                async for lease in client.consume("jobs"):
                    came.append(lease.id)
                    await lease.ack()

            async def send(number: int) -> None:
                for turn in range(20):
                    sent.append(await client.send("jobs", id=f"{number}-{turn}"))

            consuming = asyncio.ensure_future(consume())
            await client.send("jobs", id="first")
            await until(lambda: came == ["first"])
            failing.is_failing = True
            senders = [asyncio.ensure_future(send(number)) for number in range(8)]
            await until(lambda: any(each.type == "storage" for each in parts.degradation.current))
            assert (await it.http.get("/readyz")).status_code == HTTPStatus.SERVICE_UNAVAILABLE
            calls = failing.calls
            refusals = 0
            while refusals < 50:  # more than reach the store
                put = await it.http.put("/v1/topics/jobs/messages/late", json={"in": "1h"})
                refusals += put.status_code == HTTPStatus.SERVICE_UNAVAILABLE
            assert failing.calls - calls < refusals

            failing.is_failing = False
            await asyncio.gather(*senders)
            await until(lambda: not list(parts.degradation.current))
            await until(lambda: set(came) >= set(sent))
            assert len(sent) == 8 * 20
            consuming.cancel()
            await asyncio.gather(consuming, return_exceptions=True)

    with open_store(url) as store:
        run_scene(lambda: scene(FailingStore(store)))
