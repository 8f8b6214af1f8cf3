"""The load of a soak: messages for consumers, messages for a target, and timers, with the lateness of each;
and what `side_loads` has.

It forgets what was settled, so that it can run for hours.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Self

import aiohttp
from aiohttp import web

from chronoline.client import AsyncClient, AsyncLease, TopicSettings, ToSend
from chronoline.core.errors import ChronolineError
from chronoline.core.lateness import Lateness
from chronoline.core.outcome import Refusal
from chronoline.runtime.message_ids import new_id
from chronoline.runtime.tasks import TaskSet
from chronoline.runtime.timestamps import from_ms, to_ms
from tests.torture.soak.side_loads import LongWork, Schedules, operate, watch_console

TOPIC, TARGETED = "soak", "soak-target"
CONSUMERS = 8
_TURN_S = 0.05
_AHEAD_MS = (500, 2_000)
_TIMER_S = 1
_DEDUPE_S = 5.0
_KEPT_S = 60.0
"""How long acked ids are remembered, to find messages that are served again."""


class Load:
    """Sends and consumes until it is stopped. Owned by the event loop."""

    def __init__(
        self,
        addresses: Sequence[str],
        timers: str,
        http: Sequence[str],
        *,
        tokens: Mapping[str, str],
        per_s: float,
    ) -> None:
        self._addresses, self._timers, self._http = addresses, timers, http
        self._tokens, self._per_s = tokens, per_s
        self._exits = AsyncExitStack()
        self._tasks = TaskSet()
        self._running: list[asyncio.Task[None]] = []
        self._senders: list[asyncio.Task[None]] = []
        self._receiver = ""
        self._due_ms: dict[str, int] = {}
        """Messages for consumers that were sent, and have not come."""
        self._acked_s: dict[str, float] = {}
        self._calls: set[str] = set()
        self._pops: set[str] = set()
        self.counts: Counter[str] = Counter()
        """sent, delivered, double, early, called, popped, and errors by their class."""
        self._late_ms: list[float] = []
        self._schedules = Schedules(self._client, self.counts)
        self._work = LongWork(self._client, self.counts)

    async def __aenter__(self) -> Self:
        await self._serve()
        await self._create_topics()
        client = await self._exits.enter_async_context(self._client("sender"))
        headers = {"authorization": f"Bearer {self._tokens['timers']}"}
        session = await self._exits.enter_async_context(aiohttp.ClientSession(headers=headers))
        topics = [TOPIC, TARGETED]
        works = [
            *(self._consume(number) for number in range(CONSUMERS)),
            self._schedules.consume(),
            self._work.consume(),
            operate(self._client, self.counts, topics),
            *(watch_console(each, self._tokens["observer"], self.counts) for each in self._http),
        ]
        self._running = [asyncio.create_task(work) for work in works]
        self._senders = [
            asyncio.create_task(self._work.send()),
            asyncio.create_task(self._send(client, TOPIC, self._per_s * 0.95)),
            asyncio.create_task(self._send(client, TARGETED, self._per_s * 0.05)),
            asyncio.create_task(self._set_timers(session, max(1.0, self._per_s * 0.01))),
        ]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in (*self._senders, *self._running):
            task.cancel()
        await asyncio.gather(*self._senders, *self._running, return_exceptions=True)
        await self._exits.aclose()

    async def _create_topics(self) -> None:
        """With quotas and limits that the load does not reach."""
        async with self._client("operator") as client:
            await client.create_topic(
                TOPIC,
                TopicSettings(
                    dedupe=_DEDUPE_S,
                    default_lease=10,
                    group_waiting=1_000_000,
                    group_creates_per_s=20_000,
                ),
            )
            await client.create_topic(
                TARGETED,
                TopicSettings(
                    dedupe=_DEDUPE_S,
                    target=f"{self._receiver}/call",
                    most_per_s=1_000,
                    most_in_flight=1_000,
                ),
            )
        await self._schedules.create()
        await self._work.create()

    async def drain(self, patience_s: float) -> None:
        """Ends sending, and waits until all that was sent has come, for this time at most."""
        for task in self._senders:
            task.cancel()
        await asyncio.gather(*self._senders, return_exceptions=True)
        give_up = time.monotonic() + patience_s
        while any(self.left().values()) and time.monotonic() < give_up:
            await asyncio.sleep(_TURN_S)  # they come to three places

    def left(self) -> dict[str, int]:
        """The counts of messages and timers that were sent and have not come."""
        return {
            "lost": len(self._due_ms),
            "uncalled": len(self._calls),
            "unpopped": len(self._pops),
            "unscheduled": self._schedules.missing,
        }

    def lateness(self) -> Lateness | None:
        """The lateness of what came since the last call."""
        late_ms, self._late_ms = self._late_ms, []
        return Lateness.of(late_ms) if late_ms else None

    def forget(self) -> None:
        """Forgets ids that were acked long ago."""
        old = time.monotonic() - _KEPT_S
        self._acked_s = {id: at_s for id, at_s in self._acked_s.items() if at_s > old}

    # Consumers, the target and the timers' receiver

    def _client(self, token: str) -> AsyncClient:
        return AsyncClient(self._addresses, token=self._tokens[token], timeout=30)

    async def _consume(self, number: int) -> None:
        async with self._client("consumer") as client:
            while True:
                try:
                    async for lease in client.consume(TOPIC, consumer=f"consumer-{number}"):
                        self._take(lease)
                except ChronolineError as error:
                    self.counts[type(error).__name__] += 1

    def _take(self, lease: AsyncLease) -> None:
        late_ms = time.time() * 1000 - to_ms(lease.due)
        self.counts["delivered"] += 1
        self.counts["early"] += late_ms < 0
        self.counts["double"] += lease.id in self._acked_s
        if self._due_ms.pop(lease.id, None) is not None:
            self._late_ms.append(late_ms)
        self._tasks.start(self._ack(lease))

    async def _ack(self, lease: AsyncLease) -> None:
        try:
            await lease.ack()
        except ChronolineError as error:
            self.counts[type(error).__name__] += 1
        else:
            self._acked_s[lease.id] = time.monotonic()

    async def _serve(self) -> None:
        runner = web.ServerRunner(web.Server(self._called, access_log=None), shutdown_timeout=0.1)
        await runner.setup()
        self._exits.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self._receiver = f"http://127.0.0.1:{runner.addresses[0][1]}"

    async def _called(self, request: web.BaseRequest) -> web.Response:
        body = await request.text()
        if request.path == "/pop":
            self._pops.discard(body)
            self.counts["popped"] += 1
        else:
            self._calls.discard(body)
            self.counts["called"] += 1
        return web.Response()

    # Senders

    async def _send(self, client: AsyncClient, topic: str, per_s: float) -> None:
        begun, sent = time.monotonic(), 0
        while True:
            wanted = int((time.monotonic() - begun) * per_s) - sent
            if wanted > 0:
                sent += wanted
                self._tasks.start(self._send_batch(client, topic, wanted))
            await asyncio.sleep(_TURN_S)  # the pace of the load

    async def _send_batch(self, client: AsyncClient, topic: str, number: int) -> None:
        now_ms = time.time_ns() // 1_000_000
        dues = {new_id(): now_ms + random.randint(*_AHEAD_MS) for _ in range(number)}
        # Before they are sent: some come before the answer.
        if topic == TOPIC:
            self._due_ms |= dues
        else:
            self._calls |= dues.keys()
        messages = [ToSend(body=i, id=i, due=from_ms(due)) for i, due in dues.items()]
        try:
            outcomes = await client.send_many(topic, messages)
        except ChronolineError as error:
            self.counts[type(error).__name__] += 1
            self._forget_unsent(dues)
            return
        # The SDK repeats a request whose answer was lost: then the message exists already.
        self.counts["sent"] += sum(each.refusal in (None, Refusal.EXISTS) for each in outcomes)
        refused = [each.id for each in outcomes if each.refusal not in (None, Refusal.EXISTS)]
        self.counts["refused"] += len(refused)
        self._forget_unsent(refused)

    def _forget_unsent(self, ids: Iterable[str]) -> None:
        for id in ids:
            self._due_ms.pop(id, None)
            self._calls.discard(id)

    async def _set_timers(self, session: aiohttp.ClientSession, per_s: float) -> None:
        while True:
            self._tasks.start(self._set_timer(session))
            await asyncio.sleep(1 / per_s)  # the pace of the load

    async def _set_timer(self, session: aiohttp.ClientSession) -> None:
        label = new_id()
        callback = {"http": {"uri": f"{self._receiver}/pop", "opaque": label}}
        timer = {"timing": {"interval": _TIMER_S}, "callback": callback}
        self._pops.add(label)
        try:
            async with session.post(f"http://{self._timers}/timers", json=timer) as answer:
                answer.raise_for_status()
        except aiohttp.ClientError as error:
            self.counts[type(error).__name__] += 1
            self._pops.discard(label)
        else:
            self.counts["timers"] += 1
