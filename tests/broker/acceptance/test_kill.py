"""Brokers and consumers die or freeze while they work: nothing is lost, nothing is leased twice."""

from __future__ import annotations

import asyncio
import random
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from chronoline.client import TopicSettings
from chronoline.client.aio import AsyncClient, ToSend
from chronoline.core.outcome import Refusal
from tests.broker.acceptance.brokers import broker_process
from tests.broker.acceptance.history import History
from tests.deadline import until

_MESSAGES = 2_400
_KILLS = 4
_TOGETHER = 300
"""The number of messages that fall due at one instant before each kill."""
_LEASE_S = 3.0


async def _consumer_process(address: str) -> asyncio.subprocess.Process:
    """Prints the id of its message; after a line on stdin it acks the message and prints the outcome."""
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.broker.acceptance.one_consumer", address),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )


async def _line(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    return (await process.stdout.readline()).decode().strip()


async def _send(client: AsyncClient, ids: Sequence[str], span_s: float) -> set[str]:
    begin = datetime.now(UTC)
    messages = [
        ToSend(
            id=each,
            body=b"x",
            due=begin + timedelta(seconds=span_s * number / len(ids)),
        )
        for number, each in enumerate(ids)
    ]
    acked: set[str] = set()
    for start in range(0, len(ids), 500):
        part = messages[start : start + 500]
        outcomes = await client.send_many("work", part)
        # An id of ours that is there already was made by an attempt that was not answered.
        assert all(each.done or each.refusal is Refusal.EXISTS for each in outcomes)
        acked |= {each.id for each in outcomes}
    return acked


async def _handed(history: History, ids: Sequence[str], count: int) -> None:
    """Wait until `count` of these messages are delivered."""
    await until(lambda: sum(each in history.seen for each in ids) >= count)


@pytest.mark.timeout(180)
def test_killed_broker_loses_nothing_and_leases_once(
    tmp_path: Path,
) -> None:
    async def play() -> None:
        history = History()
        chance = random.Random(6)
        async with broker_process(tmp_path) as broker, AsyncClient(broker.address) as client:
            await client.create_topic("work", TopicSettings(window=0.5))
            names = ("a", "b", "c", "d")
            consuming = [
                asyncio.create_task(history.consume(broker.address, name, lease_s=_LEASE_S))
                for name in names
            ]
            ids = [f"m{number}" for number in range(_MESSAGES - _KILLS * _TOGETHER)]
            sending = [asyncio.create_task(_send(client, ids, 5.0))]
            for kill in range(_KILLS):
                together = [f"together{kill}-{number}" for number in range(_TOGETHER)]
                sending.append(asyncio.create_task(_send(client, together, 0)))
                await _handed(history, together, chance.randint(1, _TOGETHER // 2))
                broker.kill()  # while consumers work on the others
                await broker.start()
            sent = set[str]().union(*await asyncio.gather(*sending))
            assert len(sent) == _MESSAGES

            async def is_done() -> bool:
                return (await client.count("work")).total == 0

            await until(is_done)
            for task in consuming:
                task.cancel()
            await asyncio.gather(*consuming, return_exceptions=True)
        assert set(history.seen) == sent  # nothing acknowledged is lost
        assert history.came_back() == []
        assert history.early() == []
        assert history.overlapping(bound_ms=5) == []

    asyncio.run(play())


def test_consumer_frozen_past_its_lease_is_refused(tmp_path: Path) -> None:
    async def play() -> None:
        quick = ("limits.ping_interval_ms=100", "limits.ping_timeout_ms=1000")
        async with (
            broker_process(tmp_path, settings=quick) as broker,
            AsyncClient(broker.address) as client,
        ):
            await client.create_topic("work", TopicSettings(window=0.1))
            await client.send("work", b"x", id="m")
            frozen = await _consumer_process(broker.address)
            try:
                assert await _line(frozen) == "m"
                frozen.send_signal(signal.SIGSTOP)
                again = client.consume("work", consumer="other", lease=30)
                lease = await anext(again)
                assert lease.id == "m"
                frozen.send_signal(signal.SIGCONT)
                assert frozen.stdin is not None
                frozen.stdin.write(b"ack\n")
                assert await _line(frozen) in ("not_holder", "stale", "lapsed")
                await lease.ack()
                await again.aclose()
            finally:
                with suppress(ProcessLookupError):  # it has ended by itself
                    frozen.kill()
                await frozen.wait()

    asyncio.run(play())


def test_full_consumer_leaves_its_share_to_others(tmp_path: Path) -> None:
    async def play() -> None:
        async with broker_process(tmp_path) as broker, AsyncClient(broker.address) as client:
            await client.create_topic("work", TopicSettings(window=0.1))
            full = client.consume("work", consumer="full", prefetch=1)
            await client.send("work", b"x", id="first")
            first = await anext(full)
            free = client.consume("work", consumer="free")
            waiting = {f"m{number}" for number in range(50)}
            for each in waiting:
                await client.send("work", b"x", id=each)
            while waiting:
                lease = await anext(free)
                waiting.remove(lease.id)
                await lease.ack()
            await first.ack()
            await full.aclose()
            await free.aclose()

    asyncio.run(play())


def test_returning_consumer_gets_its_leases_under_new_versions(tmp_path: Path) -> None:
    async def play() -> None:
        async with broker_process(tmp_path) as broker:
            twin = AsyncClient(broker.address)
            await twin.create_topic("work")
            await twin.send("work", b"x", id="m")
            before = await anext(twin.consume("work", consumer="c", lease=30))
            async with AsyncClient(broker.address) as client:
                again = client.consume("work", consumer="c", lease=30)
                after = await anext(again)
                assert (after.id, after.redelivered) == ("m", True)
                assert after.version > before.version
                assert after.until == before.until
                await after.ack()
                await again.aclose()
            await twin.close()

    asyncio.run(play())


def test_sigterm_answers_pending_requests_and_exits_with_0(
    tmp_path: Path,
) -> None:
    async def play() -> None:
        async with broker_process(tmp_path) as broker, AsyncClient(broker.address) as client:
            await client.create_topic("work")
            sending = [
                asyncio.create_task(client.send("work", b"x", id=f"m{number}", delay=60))
                for number in range(500)
            ]
            await asyncio.sleep(0)  # they are on their way
            assert await broker.stop() == 0
            await broker.start()
            assert {await each for each in sending} == {f"m{number}" for number in range(500)}
            assert (await client.count("work")).total == 500

    asyncio.run(play())
