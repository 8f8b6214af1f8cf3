"""A consumer whose ack and extend do not reach the broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from chronoline.client import TopicSettings
from chronoline.client.aio import AsyncClient, ToSend
from chronoline.client.leases import AsyncLease
from chronoline.core.errors import Refused
from chronoline.core.outcome import Refusal
from tests.broker.nodes import running
from tests.broker.tcp_proxy import TcpProxy, tcp_proxy
from tests.deadline import until

_OVER = (Refusal.LAPSED, Refusal.NOT_HOLDER, Refusal.STALE)


@dataclass(frozen=True, slots=True)
class _Scene:
    """A consumer holds two messages, and its connection to the broker is cut."""

    way: TcpProxy
    near: AsyncClient
    """A client with a working connection."""
    acking: asyncio.Task[None]
    extending: asyncio.Task[None]
    held: dict[str, AsyncLease]
    """The lease to ack and the lease to extend, by id."""
    versions: dict[str, int]


@asynccontextmanager
async def _cut_off(folder: Path, *, lease_s: float) -> AsyncIterator[_Scene]:
    """The consumer acks one message and extends another while the connection is cut."""
    async with (
        running(folder) as broker,
        broker.client() as near,
        tcp_proxy(broker.address) as way,
        AsyncClient(way.address) as far,
    ):
        await near.create_topic("jobs", TopicSettings(window=0.1))
        await near.send_many("jobs", [ToSend(id="acked"), ToSend(id="extended")])
        leases = far.consume("jobs", consumer="far", lease=lease_s)
        held = {each.id: each for each in [await anext(leases), await anext(leases)]}
        versions = {each.id: each.version for each in held.values()}
        way.cut()
        acking = asyncio.ensure_future(held["acked"].ack())
        extending = asyncio.ensure_future(held["extended"].extend(600))
        await until(lambda: way.turned_away > 0)  # the client tries to connect
        yield _Scene(way, near, acking, extending, held, versions)


def test_late_ack_and_extend_within_the_lease_are_done(
    tmp_path: Path,
) -> None:
    async def play() -> None:
        async with _cut_off(tmp_path, lease_s=60) as scene:
            assert (await scene.near.count("jobs")).processing == 2
            scene.way.heal()
            await asyncio.gather(scene.acking, scene.extending)  # the SDK repeats both
            extended = scene.held["extended"]
            assert not extended.is_lost
            assert extended.version > scene.versions["extended"]
            assert await scene.near.lookup("jobs", "acked") is None
            await extended.ack()
            assert (await scene.near.count("jobs")).total == 0

    asyncio.run(play())


def test_ack_and_extend_after_the_lease_are_refused(
    tmp_path: Path,
) -> None:
    async def play() -> None:
        async with _cut_off(tmp_path, lease_s=2) as scene:
            others = scene.near.consume("jobs", consumer="other", lease=60)
            again = {each.id: each for each in [await anext(others), await anext(others)]}
            assert set(again) == {"acked", "extended"}
            for each in again.values():
                assert (each.attempts, each.redelivered) == (1, True)
                assert each.version > scene.versions[each.id]
            await until(lambda: scene.held["extended"].is_lost)  # it can know, and has to stop
            scene.way.heal()
            for asking in (scene.acking, scene.extending):
                with pytest.raises(Refused) as refused:
                    await asking
                assert refused.value.outcomes[0].refusal in _OVER
            for each in again.values():  # and the other has them still
                assert not each.is_lost
                await each.ack()
            assert (await scene.near.count("jobs")).total == 0
            await others.aclose()

    asyncio.run(play())


def test_first_request_waits_for_a_slow_connection(tmp_path: Path) -> None:
    async def play() -> None:
        async with running(tmp_path) as broker, tcp_proxy(broker.address) as way:
            way.accept_after_s = 0.5
            async with AsyncClient(way.address) as client:
                assert await client.topics() == []

    asyncio.run(play())
