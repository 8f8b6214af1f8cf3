"""A topic with many consumers at one broker: reservations that are due together are one write."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from chronoline.client import TopicSettings
from chronoline.client.aio import AsyncClient, ToSend
from chronoline.core.errors import OutcomeUnknown, StoreUnavailable
from chronoline.stores.contract import Store
from chronoline.stores.factory import open_store
from chronoline.testing.postgres import PostgresServer
from tests.broker.http.served import Served, serving
from tests.deadline import until
from tests.delivery.stores import Tap

_CONSUMERS = 24
_BUCKETS = 48
_IDS = [f"m{number}" for number in range(200)]
_DONE = OutcomeUnknown("the answer was lost")
_NOT_DONE = StoreUnavailable("not now")


class _Crowd:
    """Many consumers of one topic, and the messages that they got."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self.came: list[tuple[str, int]] = []

    async def consume(self, name: str) -> None:
        async for lease in self._client.consume("jobs", consumer=name, prefetch=2):
            self.came.append((lease.id, lease.attempts))
            await lease.ack()


@asynccontextmanager
async def crowded(
    served: Served, consumers: int = _CONSUMERS
) -> AsyncIterator[tuple[AsyncClient, _Crowd]]:
    """A topic whose consumers all have their share."""
    async with served.client() as client:
        await client.create_topic("jobs", TopicSettings(window=0.1, buckets=_BUCKETS))
        crowd = _Crowd(client)
        names = [f"c{number:02}" for number in range(consumers)]
        tasks = [asyncio.ensure_future(crowd.consume(name)) for name in names]
        await until(lambda: len(served.subscriptions) == consumers)
        await until(lambda: all(each.share.stop for each in served.subscriptions))
        yield client, crowd
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'timeline.db'}"
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return server.create_database(request.node.name)


def play(
    store: Store,
    fault: Exception | None = None,
    *,
    after: bool = False,
    consumers: int = _CONSUMERS,
) -> list[int]:
    """Sends messages to a crowd; the first reservations for several consumers fail.

    Returns the number of consumers of each such reservation.
    """
    tap: Any = Tap(store)
    left = [fault] * 3

    def fail(asked: str) -> None:
        if asked == "reserve_for" and left and (error := left.pop()) is not None:
            raise error

    async def scene() -> None:
        async with (
            serving(tap, patience_s=30) as served,
            crowded(served, consumers) as (client, crowd),
        ):
            setattr(tap, "lose" if after else "fail", fail)
            await client.send_many("jobs", [ToSend(id=each, delay=0.3) for each in _IDS])
            await until(lambda: len(crowd.came) >= len(_IDS))
            assert sorted(message_id for message_id, _ in crowd.came) == sorted(_IDS)
            assert {attempts for _, attempts in crowd.came} == {0}

    asyncio.run(scene())
    return [items for asked, items in tap.commits if asked == "reserve_for"]


def test_messages_of_many_consumers_come_once(url: str) -> None:
    with open_store(url) as store:
        assert max(play(store)) > 4


@pytest.mark.parametrize("fault", [_DONE, _NOT_DONE], ids=["unknown", "refused"])
def test_failed_joint_reservation_costs_no_attempt(tmp_path: Path, fault: Exception) -> None:
    with open_store(f"sqlite:///{tmp_path / 'timeline.db'}") as store:
        assert len(play(store, fault, after=fault is _DONE)) > 3


def test_few_idle_consumers_reserve_together(tmp_path: Path) -> None:
    with open_store(f"sqlite:///{tmp_path / 'timeline.db'}") as store:
        assert max(play(store, consumers=2)) == 2


def test_reservation_of_one_message_is_not_followed_by_one_in_vain(tmp_path: Path) -> None:
    with open_store(f"sqlite:///{tmp_path / 'timeline.db'}") as store:
        tap: Any = Tap(store)

        async def scene() -> None:
            async with serving(tap) as served, crowded(served, 1) as (client, crowd):
                await until(lambda: bool(tap.commits))  # the first look of the consumer
                tap.commits.clear()
                messages = [ToSend(id="first", delay=0.3), ToSend(id="second", delay=1.2)]
                await client.send_many("jobs", messages)
                await until(lambda: len(crowd.came) == len(messages))

        asyncio.run(scene())
        assert [asked for asked, _ in tap.commits].count("reserve") == 2
