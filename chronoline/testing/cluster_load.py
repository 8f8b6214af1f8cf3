"""Messages and consumers of one topic of a cluster, with the time of each delivery."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import cycle

from chronoline.client import AsyncLease, TopicSettings, ToSend
from chronoline.client.aio import AsyncClient
from chronoline.core.errors import ChronolineError
from chronoline.core.outcome import Refusal
from chronoline.runtime.message_ids import new_id
from chronoline.runtime.service import AsyncService
from chronoline.runtime.tasks import TaskSet
from chronoline.runtime.timestamps import to_ms

_TURN_S = 0.02
_BUCKETS = 64
_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class ClusterDelivery:
    """A message as a consumer got it."""

    id: str
    consumer: str
    at_s: float
    """By the monotonic clock."""
    late_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterTally:
    """The results of a load. `lost`, `early` and `double` are 0 if all is well."""

    sent: int
    """Messages whose sending was acknowledged."""
    delivered: int
    lost: int
    early: int
    double: int
    """Deliveries after the acknowledged ack."""
    again: int
    """Deliveries of a message whose ack was not acknowledged: the broker, or its answer, was lost."""


class ClusterLoad(AsyncService):
    """Consumers and a sender. Owned by the event loop."""

    def __init__(
        self,
        addresses: Sequence[str],
        *,
        topic: str,
        consumers: Iterable[str],
        per_s: float,
        ahead_ms: tuple[int, int] = (500, 2_000),
        clients: int | None = None,
        racks: Sequence[str] = ("",),
    ) -> None:
        """Messages fall due between the two times of `ahead_ms` after they are sent.

        The consumers share `clients`; without that number each has its own. The clients are in these racks in
        turn.
        """
        self._addresses = list(addresses)
        self._topic = topic
        self._names = list(consumers)
        self._clients = len(self._names) if clients is None else clients
        self._per_s = per_s
        self._racks = racks
        self._ahead_ms = ahead_ms
        self._tasks = TaskSet()
        self._acks = TaskSet()
        self._running: list[asyncio.Task[None]] = []
        self._sending: asyncio.Task[None] | None = None
        self._came = asyncio.Event()
        self.due_ms: dict[str, int] = {}
        """Of messages whose sending was acknowledged."""
        self.deliveries: list[ClusterDelivery] = []
        self._came_ids: set[str] = set()
        self._waiting: set[str] = set()
        """Messages that were sent, and have not been delivered."""
        self._latest_s: dict[str, float] = {}
        """The last delivery of each consumer."""
        self.acked_s: dict[str, float] = {}
        """When the ack of a message was acknowledged."""
        self.troubles: Counter[str] = Counter()
        """Errors that reached the application, by their class."""

    async def _start(self) -> None:
        async with self._client() as client:
            settings = TopicSettings(default_lease=10, buckets=max(_BUCKETS, len(self._names)))
            await client.create_topic(self._topic, settings)
        shared = [self._names[first :: self._clients] for first in range(self._clients)]
        self._running = [
            asyncio.create_task(self._consume_all(names, rack))
            for names, rack in zip(shared, cycle(self._racks), strict=False)
        ]
        self._sending = asyncio.create_task(self._send())

    async def _stop(self) -> None:
        await self.end_sending()
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def end_sending(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)
            self._sending = None

    async def until(self, holds: Callable[[], bool], patience_s: float) -> bool:
        """Waits until a condition holds, which is checked after each delivery; false if it does not."""
        try:
            async with asyncio.timeout(patience_s):
                while not holds():
                    self._came.clear()
                    await self._came.wait()
        except TimeoutError:
            return holds()
        return True

    @property
    def served(self) -> set[str]:
        """Consumers that have got a message."""
        return set(self._latest_s)

    @property
    def is_complete(self) -> bool:
        """Whether every message that was sent has been delivered."""
        return not self._waiting

    def were_served(self, consumers: Iterable[str], since_s: float) -> bool:
        """Whether each of these consumers has got a message since a moment."""
        return all(self._latest_s.get(each, -math.inf) > since_s for each in consumers)

    def gaps_s(self, consumers: Iterable[str], since_s: float) -> dict[str, float]:
        """The time from a moment to the next message of each of these consumers that got one."""
        gaps: dict[str, float] = {}
        wanted = set(consumers)
        for each in self.deliveries:
            if each.at_s > since_s and each.consumer in wanted:
                gaps.setdefault(each.consumer, each.at_s - since_s)
        return gaps

    def tally(self) -> ClusterTally:
        counts = Counter(each.id for each in self.deliveries)
        double = sum(each.at_s > self.acked_s.get(each.id, math.inf) for each in self.deliveries)
        return ClusterTally(
            sent=len(self.due_ms),
            delivered=len(counts),
            lost=len(set(self.due_ms) - set(counts)),
            early=sum(each.late_ms < 0 for each in self.deliveries),
            double=double,
            again=counts.total() - len(counts) - double,
        )

    # Inside

    def _client(self, rack: str = "") -> AsyncClient:
        return AsyncClient(self._addresses, timeout=_TIMEOUT_S, rack=rack)

    async def _consume_all(self, names: Sequence[str], rack: str) -> None:
        async with self._client(rack) as client:
            await asyncio.gather(*(self._consume(client, name) for name in names))

    async def _consume(self, client: AsyncClient, name: str) -> None:
        while True:
            try:
                async for lease in client.consume(self._topic, consumer=name):
                    self._take(name, lease)
            except ChronolineError as error:
                self.troubles[type(error).__name__] += 1

    def note_sent(self, id: str, due_ms: int) -> None:
        self.due_ms[id] = due_ms
        if id not in self._came_ids:
            self._waiting.add(id)

    def note_delivery(self, delivery: ClusterDelivery) -> None:
        self.deliveries.append(delivery)
        self._came_ids.add(delivery.id)
        self._waiting.discard(delivery.id)
        self._latest_s[delivery.consumer] = delivery.at_s

    def _take(self, name: str, lease: AsyncLease) -> None:
        late_ms = time.time() * 1000 - to_ms(lease.due)
        self.note_delivery(ClusterDelivery(lease.id, name, time.monotonic(), late_ms))
        self._acks.start(self._ack(lease))
        self._came.set()

    async def _ack(self, lease: AsyncLease) -> None:
        try:
            await lease.ack()
        except ChronolineError as error:
            self.troubles[type(error).__name__] += 1
        else:
            self.acked_s.setdefault(lease.id, time.monotonic())

    async def _send(self) -> None:
        began_s, sent = time.monotonic(), 0
        async with self._client() as client:
            while True:
                wanted = int((time.monotonic() - began_s) * self._per_s) - sent
                if wanted > 0:
                    sent += wanted
                    self._tasks.start(self._send_batch(client, wanted))
                await asyncio.sleep(_TURN_S)  # the pace of the load

    async def _send_batch(self, client: AsyncClient, number: int) -> None:
        now_ms = time.time_ns() // 1_000_000
        dues = {new_id(): now_ms + random.randint(*self._ahead_ms) for _ in range(number)}
        messages = [
            ToSend(id=id, due=datetime.fromtimestamp(due_ms / 1000, UTC))
            for id, due_ms in dues.items()
        ]
        try:
            outcomes = await client.send_many(self._topic, messages)
        except ChronolineError as error:
            self.troubles[type(error).__name__] += 1
            return
        for outcome in outcomes:
            # The SDK repeats a request whose answer was lost: then the message exists already.
            if outcome.refusal in (None, Refusal.EXISTS):
                self.note_sent(outcome.id, dues[outcome.id])
            else:
                self.troubles[outcome.refusal.value] += 1
