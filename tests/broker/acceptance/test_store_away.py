"""PostgreSQL is killed under load and returns: nothing is lost, and clients get errors meanwhile."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

import httpx
import pytest

from chronoline.client import TopicSettings
from chronoline.client.aio import AsyncClient
from chronoline.testing.postgres import PostgresServer
from chronoline.wire.v1 import chronoline_pb2 as pb
from tests.broker.acceptance.brokers import broker_process
from tests.broker.acceptance.history import History
from tests.broker.raw_streams import RawStream, raw_stream
from tests.deadline import until

_BATCH = 10
_EVERY_S = 0.02
_MOST_WAITING = 200
_LEASE_S = 3.0


class Producer:
    """Sends all the time, under ids of its own, and sends again what was not answered as done."""

    def __init__(self, stream: RawStream, topic_uid: int) -> None:
        self._stream = stream
        self._topic_uid = topic_uid
        self._seq = count(1)
        self._number = count()
        self._waiting: dict[int, list[str]] = {}
        self._again: deque[tuple[float, list[str]]] = deque()
        self.acked: set[str] = set()
        self.failures: list[pb.Failure] = []
        self._stopping = False

    async def finish(self) -> None:
        """Sends nothing new, and waits until everything was acknowledged."""
        self._stopping = True
        await until(lambda: not self._waiting and not self._again)

    async def send(self) -> None:
        while True:
            now_s = asyncio.get_running_loop().time()
            while self._again and self._again[0][0] <= now_s:
                await self._say(self._again.popleft()[1])
            if not self._stopping and len(self._waiting) + len(self._again) < _MOST_WAITING:
                await self._say([f"m{next(self._number)}" for _ in range(_BATCH)])
            await self._stream.say(ping=pb.Ping())
            await asyncio.sleep(_EVERY_S)  # at this rate

    async def _say(self, ids: list[str]) -> None:
        seq = next(self._seq)
        self._waiting[seq] = ids
        messages = [pb.NewMessage(id=each, delay_ms=200) for each in ids]
        create = pb.CreateBatch(topic_uid=self._topic_uid, messages=messages)
        await self._stream.say(seq=seq, create=create)

    async def hear(self) -> None:
        while True:
            reply = await self._stream.hear()
            match reply.WhichOneof("what"):
                case "outcomes":
                    self._answered(self._waiting.pop(reply.seq), reply.outcomes.outcomes)
                case "failure":
                    self._failed(self._waiting.pop(reply.seq), reply.failure)

    def _answered(self, ids: list[str], outcomes: Iterable[pb.Outcome]) -> None:
        # An id that is there already was made by an attempt whose outcome was not known.
        assert {each.refusal for each in outcomes} <= {"", "exists"}
        self.acked |= set(ids)

    def _failed(self, ids: list[str], failure: pb.Failure) -> None:
        self.failures.append(failure)
        now_s = asyncio.get_running_loop().time()
        self._again.append((now_s + failure.retry_after_ms / 1000, ids))


@asynccontextmanager
async def _producing(address: str, topic_uid: int) -> AsyncIterator[Producer]:
    async with raw_stream(address, "Produce", "p") as stream:
        await stream.hears("welcome")
        producer = Producer(stream, topic_uid)
        tasks = [asyncio.ensure_future(work()) for work in (producer.send, producer.hear)]
        try:
            yield producer
        finally:
            for task in tasks:
                if task.done():
                    task.result()  # what went wrong with it is the reason for all that follows
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def _consuming(address: str, history: History) -> AsyncIterator[None]:
    tasks = [
        asyncio.create_task(history.consume(address, name, lease_s=_LEASE_S)) for name in ("a", "b")
    ]
    yield
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _is(http: httpx.AsyncClient, status: int) -> None:
    """Waits until the node says that it is ready, or not."""

    async def says() -> bool:
        return (await http.get("/readyz")).status_code == status

    await until(says)


@pytest.mark.timeout(180)
def test_postgres_killed_twice_under_load_loses_nothing(tmp_path: Path) -> None:
    async def play() -> None:
        history = History()
        with PostgresServer(tmp_path / "postgres") as server:
            async with (
                broker_process(tmp_path, server.url(), http=True) as broker,
                AsyncClient(broker.address) as client,
                httpx.AsyncClient(base_url=f"http://{broker.http_address}", timeout=20) as http,
            ):
                topic = await client.create_topic("work", TopicSettings(window=0.5))
                async with (
                    _consuming(broker.address, history),
                    _producing(broker.address, topic.uid) as producer,
                ):
                    for away_s in (0, _LEASE_S):
                        await _is_served(history, producer)
                        await asyncio.to_thread(server.kill)
                        await _is_told(producer, http)
                        await asyncio.sleep(away_s)  # the second time until leases are over
                        await asyncio.to_thread(server.start)
                    await _is_served(history, producer)
                    await _is(http, 200)
                    await producer.finish()

                    async def is_done() -> bool:
                        return (await client.count("work")).total == 0

                    await until(is_done)
            assert set(history.seen) >= producer.acked  # nothing acknowledged is lost
            assert history.came_back() == []
            assert history.early() == []
            assert history.overlapping(bound_ms=5) == []

    asyncio.run(play())


async def _is_served(history: History, producer: Producer) -> None:
    """Check that new messages are acknowledged, consumed and acked."""
    before = set(producer.acked)
    await until(lambda: len((history.acked & producer.acked) - before) > 200)


async def _is_told(producer: Producer, http: httpx.AsyncClient) -> None:
    """Producers are refused early and told when to try again; the node says that it is not ready."""
    before = len(producer.failures)

    def refused() -> bool:
        return any(each.code == "store_unavailable" for each in producer.failures[before:])

    await until(refused)
    await _is(http, 503)
    failures = producer.failures[before:]
    assert all(each.kind in ("try_again", "unknown") for each in failures)
    assert all(each.retry_after_ms > 0 for each in failures)
