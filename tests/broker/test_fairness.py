"""Topics and clients do not wait for each other: one with very much to do does not delay another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from chronoline.broker.store_access import StoreAccess
from chronoline.client import TopicSettings
from chronoline.client.aio import AsyncClient
from chronoline.client.leases import AsyncLease
from chronoline.core.message import NewMessage
from chronoline.runtime.admission import served_client
from chronoline.runtime.clock import SystemClock
from chronoline.stores.contract import Store
from chronoline.stores.factory import open_store
from tests.broker.gated_store import Permits, running_gated
from tests.broker.http.served import Served, serving
from tests.deadline import until

_OVERDUE = 20_000
"""Enough messages that all of the other topic arrive, one by one, before half of these are done."""
_BATCH = 10_000
_OTHERS = 6
_PREFETCH = 1_000


@dataclass(slots=True)
class _Flood:
    """The consumer of the topic with too much to do, and what it got."""

    came: int = 0
    acked: int = 0
    acking: set[asyncio.Task[None]] = field(default_factory=set)

    async def consume(self, client: AsyncClient) -> None:
        async for lease in client.consume("flooded", prefetch=_PREFETCH):
            self.came += 1
            task = asyncio.create_task(self._ack(lease))
            self.acking.add(task)
            task.add_done_callback(self.acking.discard)

    async def _ack(self, lease: AsyncLease) -> None:
        await lease.ack()
        self.acked += 1


def _fill(store: Store) -> None:
    """Two topics; all of the first is overdue."""
    now_ms = SystemClock().now_ms()
    topic = store.create_topic("flooded", now_ms=now_ms)
    store.create_topic("other", now_ms=now_ms)
    for start in range(0, _OVERDUE, _BATCH):
        batch = [
            NewMessage(id=f"m{number:06}", due=1 + number)
            for number in range(start, start + _BATCH)
        ]
        assert all(each.done for each in store.create(topic.uid, batch, now_ms=now_ms))


@asynccontextmanager
async def _flooded(folder: Path) -> AsyncIterator[tuple[Served, _Flood]]:
    """A node whose one topic is being worked off."""
    with open_store(f"sqlite:///{folder / 'timeline.db'}") as store:
        _fill(store)
        async with serving(store) as served, served.client() as client:
            flood = _Flood()
            consuming = asyncio.ensure_future(flood.consume(client))
            await until(lambda: flood.acked > 0)
            yield served, flood
            consuming.cancel()
            await asyncio.gather(consuming, return_exceptions=True)


def test_overdue_backlog_delays_no_other_topic(tmp_path: Path) -> None:
    async def play() -> None:
        async with _flooded(tmp_path) as (served, flood), served.client() as client:
            leases = client.consume("other")
            came_before: list[int] = []  # of the flood, when each of the others came
            for number in range(_OTHERS):
                sent = await client.send("other", b"x", id=f"o{number}")
                lease = await anext(leases)
                assert lease.id == sent
                came_before.append(flood.came)
                await lease.ack()
            assert came_before[-1] < _OVERDUE / 2  # far from done
            assert came_before[0] < came_before[-1]  # and neither does the other delay the flood
            await until(lambda: flood.acked == _OVERDUE)
            await leases.aclose()

    asyncio.run(play())


def test_reads_of_one_client_delay_no_other_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = 50

    async def play() -> None:
        async with (
            running_gated(tmp_path, "count") as (broker, store),
            broker.client() as flood,
            broker.client() as other,
        ):
            await flood.create_topic("t")
            assert broker.node.parts is not None
            seen = _Reads(broker.node.parts.access, monkeypatch)
            permits = store.gate = Permits()
            counts = [asyncio.ensure_future(flood.count("t")) for _ in range(reads)]
            await until(lambda: len(seen.of("count")) == reads and store.waiting > 0)
            state = asyncio.ensure_future(other.state("t", "a"))
            await until(lambda: bool(seen.of("states")))
            permits.give(reads // 2)
            await state
            permits.set()
            await asyncio.gather(*counts)

    asyncio.run(play())


def test_reads_belong_to_the_client_of_their_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play() -> None:
        async with serving(tmp_path) as served, served.client() as client:
            await client.create_topic("t", TopicSettings(group_waiting=10))
            assert served.node.parts is not None
            seen = _Reads(served.node.parts.access, monkeypatch)
            await served.http.get("/v1/topics/t/counts")
            await client.state("t", "a")
            await client.send("t", b"x")
            by_http, by_call = seen.of("count"), seen.of("states")
            by_stream = seen.of("count_owned")
            assert all(each and each[0] for each in (by_http, by_call, by_stream))
            assert by_http != by_call

    asyncio.run(play())


class _Reads:
    """The clients of the reads of a store, by query."""

    def __init__(self, access: StoreAccess, monkeypatch: pytest.MonkeyPatch) -> None:
        self._seen: list[tuple[str, str]] = []
        call = access.call

        async def spy(query: str, *given: Any, **named: Any) -> Any:
            self._seen.append((query, served_client()))
            return await call(query, *given, **named)

        monkeypatch.setattr(access, "call", spy)

    def of(self, query: str) -> list[str]:
        return [client for each, client in self._seen if each == query]
