"""Messages that another transaction holds: only their callers wait."""

from __future__ import annotations

import asyncio
import time

import psycopg
import pytest

from chronoline.client import AsyncClient
from chronoline.core.errors import BrokerUnavailable, OutcomeUnknown
from chronoline.core.message import NewMessage
from chronoline.core.outcome import Refusal
from chronoline.stores.factory import open_store
from chronoline.testing.postgres import PostgresServer
from tests.broker.http.served import serving


def test_send_waits_alone_for_a_foreign_transaction(
    postgres_server: PostgresServer,
) -> None:
    async def play() -> None:
        url = postgres_server.create_database("held messages")
        with open_store(url) as store, psycopg.connect(url) as caller:
            async with serving(store) as served, served.client() as client:
                topic = await client.create_topic("jobs")
                now_ms = time.time_ns() // 1_000_000
                caller.execute(
                    "SELECT chronoline.send('jobs', 'held', %s, '', %s)", [now_ms, now_ms]
                )
                held = asyncio.create_task(client.send("jobs", b"", id="held", delay=60))
                others = [client.send("jobs", b"", id=f"m{n}", delay=60) for n in range(20)]
                await asyncio.gather(*others)
                assert not held.done()

                assert served.node.parts is not None
                carrier = served.node.parts.carrier
                news = [NewMessage(id=each, due=now_ms) for each in ("held", "more")]
                outcomes = await carrier.create(topic.uid, news)
                assert [each.refusal for each in outcomes] == [Refusal.BUSY, None]
                assert served.node.parts.access.refusal == ""
                assert served.node.parts.access.problem == ""

                caller.rollback()
                await held

    asyncio.run(play())


def test_batch_with_a_held_message_is_unknown_when_a_part_was_done(
    postgres_server: PostgresServer,
) -> None:
    async def play() -> None:
        url = postgres_server.create_database("a part is held")
        with open_store(url) as store, psycopg.connect(url) as caller:
            async with serving(store) as served, AsyncClient(served.address, timeout=1) as client:
                await client.create_topic("jobs")
                for each in ("free", "held"):
                    await client.send("jobs", b"", id=each, delay=60)
                caller.execute("SELECT 1 FROM chronoline.messages WHERE id = 'held' FOR UPDATE")
                with pytest.raises(OutcomeUnknown, match="another transaction"):
                    await client.cancel_many("jobs", ["free", "held"])
                caller.rollback()
                assert await client.lookup("jobs", "free") is None

    asyncio.run(play())


def test_held_send_times_out(
    postgres_server: PostgresServer,
) -> None:
    async def play() -> None:
        url = postgres_server.create_database("held for long")
        with open_store(url) as store, psycopg.connect(url) as caller:
            async with serving(store) as served, AsyncClient(served.address, timeout=1) as client:
                await client.create_topic("jobs")
                now_ms = time.time_ns() // 1_000_000
                caller.execute(
                    "SELECT chronoline.send('jobs', 'held', %s, '', %s)", [now_ms, now_ms]
                )
                with pytest.raises(
                    BrokerUnavailable, match=r"nothing was changed.*another transaction"
                ):
                    await client.send("jobs", b"", id="held", delay=60)

    asyncio.run(play())
