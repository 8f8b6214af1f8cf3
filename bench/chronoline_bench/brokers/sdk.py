"""Through the SDK: `AsyncClient`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from chronoline.client.aio import AsyncClient, ToSend
from chronoline.client.leases import AsyncLease
from chronoline.core.errors import ChronolineError
from chronoline_bench.brokers.lines import Line, Notes, body_of, message_id, now_us, number_of_id

_LEASE_S = 60.0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class SdkLine(Line):
    """A topic of a broker. Acks are not waited for one by one: what is in hand is bounded by `prefetch`."""

    def __init__(self, address: str, topic: str, prefetch: int = 256) -> None:
        self._topic = topic
        self._prefetch = prefetch
        self._client = AsyncClient(address, timeout=60.0)

    async def open(self) -> None:
        await self._client.topic(self._topic)

    async def close(self) -> None:
        await self._client.close()

    async def put(self, number: int, delay_s: int, hand: int = 0) -> int:
        due_ms = -(-now_us() // 1_000) + delay_s * 1_000
        await self._client.send(
            self._topic, body_of(number), id=message_id(number), due=_moment(due_ms)
        )
        return due_ms * 1_000

    async def consume(self, notes: Notes, ready: Callable[[], None]) -> None:
        stream = await self._client.subscribe(
            [self._topic], lease=_LEASE_S, prefetch=self._prefetch
        )
        acks: set[asyncio.Task[None]] = set()
        ready()
        try:
            while True:
                lease = await stream.next()
                notes.came(number_of_id(lease.id))
                task = asyncio.create_task(_ack(lease, notes))
                acks.add(task)
                task.add_done_callback(acks.discard)
        finally:
            await asyncio.gather(*acks)
            await self._client.unsubscribe(stream)

    def batch(self, first: int, count: int, delay_s: int) -> list[ToSend]:
        """Messages to be sent at once, later."""
        due = datetime.now(UTC) + timedelta(seconds=delay_s)
        return [
            ToSend(id=message_id(number), body=body_of(number), due=due)
            for number in range(first, first + count)
        ]

    async def put_many(self, messages: list[ToSend]) -> None:
        (await self._client.send_many(self._topic, messages)).raise_for_refused()


async def _ack(lease: AsyncLease, notes: Notes) -> None:
    try:
        await lease.ack()
    except ChronolineError:
        notes.settled(refused=1)
    else:
        notes.settled(acked=1)


def _moment(ms: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=ms)
