"""A broker whose machine's clock jumps by ten seconds while producers and consumers work.

The clock is that of a real `chronoline up`, moved by libfaketime. Ours, and that of PostgreSQL, stay right.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from itertools import count, pairwise
from pathlib import Path

import httpx
import pytest

from chronoline.client import TopicSettings
from chronoline.client.aio import AsyncClient, ToSend
from chronoline.core.errors import BrokerUnavailable, MissingExtra
from chronoline.testing.postgres import PostgresServer
from chronoline_bench.servers.faketime import FakeTime
from tests.broker.acceptance.brokers import BrokerProcess, broker_process
from tests.broker.acceptance.history import History
from tests.conftest import miss
from tests.deadline import until

_CONSUMERS = {"quick": 0.0, "slow": 0.3}
"""By name, how long each works on a message, in seconds."""
_MORE = 30
"""The number of messages that prove that work continues."""
_SETTINGS = TopicSettings(window=0.2)


@pytest.fixture
def wall(tmp_path: Path) -> FakeTime:
    """The clock of the broker's machine."""
    try:
        return FakeTime(tmp_path)
    except MissingExtra as error:
        miss("libfaketime", error)


@asynccontextmanager
async def _consuming(address: str, history: History, lease_s: float) -> AsyncIterator[None]:
    """Consumers that ack what they get."""

    async def consume(name: str, work_s: float) -> None:
        async with AsyncClient(address) as client:
            acking: set[asyncio.Task[None]] = set()
            async for lease in client.consume("work", consumer=name, lease=lease_s):
                task = asyncio.create_task(history.ack(lease, work_s))
                acking.add(task)
                task.add_done_callback(acking.discard)

    tasks = [asyncio.create_task(consume(*each)) for each in _CONSUMERS.items()]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _is_done(client: AsyncClient) -> bool:
    return (await client.count("work")).total == 0


# On PostgreSQL, by whose clock the broker sees that its own is wrong


async def _state(broker: BrokerProcess) -> tuple[int, str]:
    """Whether it is ready, and what it says to that."""
    async with httpx.AsyncClient(base_url=f"http://{broker.http_address}", timeout=30) as http:
        answer = await http.get("/readyz")
        return answer.status_code, answer.json().get("detail", "")


async def _metrics(broker: BrokerProcess) -> str:
    async with httpx.AsyncClient(base_url=f"http://{broker.http_address}", timeout=30) as http:
        return (await http.get("/metrics")).text


def test_clock_jump_away_from_postgres_pauses_broker(
    wall: FakeTime, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    url = postgres_server.create_database("clocks")
    history, sent = History(), set[str]()

    async def jump(by_s: int, broker: BrokerProcess, client: AsyncClient) -> None:
        """Everything falls due while the clock is off; nothing comes before it is right."""
        begin = datetime.now(UTC) + timedelta(seconds=1.5)
        batch = [
            ToSend(id=f"{by_s}-{number}", due=begin + timedelta(milliseconds=10 * number))
            for number in range(100)
        ]
        (await client.send_many("work", batch)).raise_for_refused()
        sent.update(each.id for each in batch if each.id is not None)
        wall.move(by_s)

        async def is_off() -> bool:
            return (await _state(broker))[0] == 503

        async def is_right() -> bool:
            return (await _state(broker))[0] == 200

        await until(is_off)
        off_at_ms = time.time() * 1000
        where = "ahead of" if by_s > 0 else "behind"
        assert f"s {where} the store's" in (await _state(broker))[1]
        figures = await _metrics(broker)
        assert 'broker_degradation_state{cluster="default",topic="",type="clock"} 1.0' in figures
        async with AsyncClient(broker.address, timeout=2) as other:
            with pytest.raises(BrokerUnavailable, match="nothing was changed"):
                await other.send("work", id="refused")
        sending = asyncio.create_task(client.send("work", id=f"{by_s}-meanwhile"))
        await until(lambda: datetime.now(UTC) > begin + timedelta(seconds=1.5))
        pushed = [each for each in history.seen if history.seen[each][0].due_ms > off_at_ms + 100]
        assert pushed == []
        assert (await client.count("work")).total == len(
            sent - history.acked
        )  # queries are still answered
        wall.move(0)
        sent.add(await sending)
        await until(lambda: _is_done(client))
        await until(is_right)

    async def play() -> None:
        async with (
            broker_process(tmp_path, url, http=True, environment=wall.environment) as broker,
            AsyncClient(broker.address) as client,
        ):
            await client.create_topic("work", _SETTINGS)
            async with _consuming(broker.address, history, lease_s=60):
                await client.send("work", id="first")
                sent.add("first")
                await until(lambda: "first" in history.acked)
                await jump(10, broker, client)
                await jump(-10, broker, client)
        assert set(history.seen) == history.acked == sent
        assert history.early() == []
        assert history.twice() == 0

    asyncio.run(play())


# On SQLite, where the machine's clock is the only one


def test_clock_jump_on_sqlite_is_followed(wall: FakeTime, tmp_path: Path) -> None:
    history, sent_ms = History(), dict[str, float]()
    moves: list[tuple[float, int]] = [(0.0, 0)]

    def move(to_s: int) -> None:
        moves.append((time.time() * 1000, to_s * 1000))
        wall.move(to_s)

    def most_ahead_ms(begin_ms: float, end_ms: float) -> int:
        """How far the broker's clock was ahead of ours at most, from one moment to another."""
        held = zip(moves, [*moves[1:], (end_ms + 1, 0)], strict=True)
        return max(by_ms for (since, by_ms), (to, _) in held if to > begin_ms and since <= end_ms)

    def early() -> list[str]:
        """Handed over before their due by any clock that the broker had since they were sent."""
        return [
            each
            for each, those in history.seen.items()
            if any(
                one.handed_ms + most_ahead_ms(sent_ms[each], one.handed_ms) < one.due_ms
                for one in those
            )
        ]

    def overlapping() -> list[str]:
        """Handed to another while the lease before lived, by any clock that the broker had since."""
        return [
            each
            for each, those in history.seen.items()
            for one, later in pairwise(those)
            if later.handed_ms + most_ahead_ms(one.handed_ms, later.handed_ms) < one.until_ms
        ]

    async def play() -> None:
        async with (
            broker_process(tmp_path, environment=wall.environment) as broker,
            AsyncClient(broker.address) as client,
        ):
            await client.create_topic("work", _SETTINGS)

            async def produce() -> None:
                for number in count():
                    sent_ms[f"m{number}"] = time.time() * 1000
                    await client.send("work", id=f"m{number}", delay=0.1 * (number % 10))
                    await asyncio.sleep(0.01)  # what the slow one can keep up with

            async def work_goes_on() -> None:
                """Messages that are sent from now on come."""
                before = set(sent_ms)
                await until(lambda: len(history.acked - before) >= _MORE)

            async with _consuming(broker.address, history, lease_s=3):
                producing = asyncio.create_task(produce())
                await work_goes_on()
                for to_s in (-10, 0, 10):
                    move(to_s)
                    await work_goes_on()
                producing.cancel()
                with suppress(asyncio.CancelledError):
                    await producing
                await until(lambda: _is_done(client))
        assert history.acked <= set(history.seen) <= set(sent_ms)
        assert len(sent_ms) - len(history.seen) <= 1  # the one whose sending was cut off
        assert early() == []
        assert overlapping() == []
        assert history.came_back() == []
        for those in history.seen.values():
            versions = [each.version for each in those]
            assert versions == sorted(set(versions))

    asyncio.run(play())
