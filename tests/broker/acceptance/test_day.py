"""Twenty-four simulated hours with stops and crashes of brokers: every message is completed once."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count, islice
from pathlib import Path

import pytest

from chronoline.client import TopicSettings
from chronoline.client.aio import AsyncClient, ToSend
from chronoline.client.consumer_stream import ConsumerStream
from chronoline.core.errors import ClientClosed
from chronoline.core.outcome import Refusal
from chronoline.testing import ManualClock
from chronoline.testing.postgres import PostgresServer
from tests.broker.acceptance.message_lives import LEASE_MS, MINUTE_MS, Life, Lives
from tests.broker.acceptance.simulated_node import SimulatedNode
from tests.deadline import until

_TOPIC = "day"
_HOUR_MS = 60 * MINUTE_MS
_DAY_MS = 24 * _HOUR_MS
_WINDOW_MS = 1_000
_SETTINGS = TopicSettings(window=_WINDOW_MS / 1000, max_attempts=1_000, dedupe=_HOUR_MS / 1000)
_PREFETCH = 100
_CHANGED = 0.2
"""The share of messages that their owner changes later, if they still wait."""
_STOPS_AN_HOUR = 16
_IDLE_S = 0.02
"""After this time without an event, simulated time advances by a window."""
_PATIENCE_S = 60
_STOP_AT = (3, 14)
"""At these hours the broker is stopped, and started again."""
_DIE_AT = (5, 11, 17, 21)
"""At these it dies while it works."""
_AWAY_AT = {8: "stop", 19: "die"}
"""At these it is away until leases have lapsed."""
_LEAVE_AT = (2, 10, 16)
"""At these a consumer leaves, and another comes."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change by the owner of a message: another due, or a cancel."""

    id: str
    due_ms: int | None


class Day:
    """One broker, its producer and its consumers, from midnight to midnight."""

    def __init__(self, broker: SimulatedNode, *, messages: int, seed: int) -> None:
        self._broker = broker
        self._clock = broker.clock
        self._chance = random.Random(seed)
        self._begin_ms = self._clock.now_ms()
        self._end_ms = self._begin_ms + _DAY_MS
        self._an_hour = messages // 24
        self.lives = Lives(self._clock, seed, self._end_ms)
        self._changes: defaultdict[int, list[Change]] = defaultdict(list)  # by hour
        self._ids = (f"m{number}" for number in count())
        self._names = (f"consumer-{number}" for number in count())
        self._consumers: list[Consumer] = []

    async def live_through(self) -> None:
        await self._broker.start()
        async with AsyncExitStack() as exits:
            exits.push_async_callback(self._broker.stop)
            producer = await exits.enter_async_context(self._broker.client())
            await producer.create_topic(_TOPIC, _SETTINGS)
            for _ in range(3):
                await self._join(exits)
            for hour in range(24):
                if hour in _LEAVE_AT:
                    await self._consumers.pop(0).leave()
                    await self._join(exits)
                await self._hour(hour, producer)
            await self._finish()
            for each in self._consumers:
                await each.leave()
            counted = await producer.count(_TOPIC)
            assert (counted.total, await producer.dead_letters(_TOPIC)) == (0, [])

    async def _hour(self, hour: int, producer: AsyncClient) -> None:
        """Begins with what the producer does; the rest of it falls between the stops."""
        begin_ms = self._begin_ms + hour * _HOUR_MS
        await self._send(producer, self._plan(hour, begin_ms))
        for change in self._changes[hour]:
            await self._change(producer, change)
        stops = [begin_ms + self._chance.randrange(_HOUR_MS) for _ in range(_STOPS_AN_HOUR)]
        for place, stop_ms in enumerate(sorted([*stops, begin_ms + _HOUR_MS])):
            self._turn(stop_ms)
            if place == _STOPS_AN_HOUR // 2:
                await self._disturb(hour)
            await self._settle()
        await self._look_closely()

    async def _disturb(self, hour: int) -> None:
        how = _AWAY_AT.get(hour, "stop" if hour in _STOP_AT else "die" if hour in _DIE_AT else None)
        if how is None:
            return
        self._turn(self._clock.now_ms() + _HOUR_MS // 4)  # so that there is much to do
        await self._news()
        await (self._broker.stop() if how == "stop" else self._broker.die())
        self.lives.done[how] += 1
        if hour in _AWAY_AT:
            self._turn(self._clock.now_ms() + LEASE_MS + 5 * MINUTE_MS)
        await self._broker.start()

    async def _finish(self) -> None:
        """Complete the messages that fall due or lapse at the end of the day."""
        while (next_ms := self.lives.next_ms) is not None:
            self._turn(next_ms)
            await self._settle()

    # Time

    def _turn(self, to_ms: int) -> None:
        self._broker.turn(to_ms)
        self.lives.wake()

    async def _settle(self) -> None:
        """Returns when nothing more happens at this moment; or a little later, if something took time."""
        async with asyncio.timeout(_PATIENCE_S):
            while not self.lives.is_quiet:
                assert not self.lives.wrong
                if not await self._news():
                    self._turn(self._clock.now_ms() + _WINDOW_MS)

    async def _news(self) -> bool:
        """Whether anything happened."""
        self.lives.news.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(_IDLE_S):
                await self.lives.news.wait()
        return self.lives.news.is_set()

    async def _look_closely(self) -> None:
        """A message is with its consumer a little before its due, and not handed over until its due."""
        life = min(self.lives.unfinished, key=lambda each: each.by_ms, default=None)
        if life is None or life.by_ms <= self._clock.now_ms() + _WINDOW_MS:
            return
        grips = len(life.grips)
        self._turn(life.by_ms - 1)
        await self._settle()
        if life.dues_ms == {life.by_ms}:  # else a lease lapses then
            await until(lambda: len(life.grips) > grips or self._is_held(life))
            self.lives.done["looked"] += 1
        for _ in range(10):
            await asyncio.sleep(0.001)  # time enough to hand it over by mistake
        self._turn(life.by_ms)
        await self._settle()

    def _is_held(self, life: Life) -> bool:
        return any(each.holds(life.id) for each in self._consumers)

    # The producer

    def _plan(self, hour: int, begin_ms: int) -> dict[str, int]:
        """The messages of this hour with their dues, all over the rest of the day."""
        dues = {}
        for message_id in islice(self._ids, self._an_hour):
            dues[message_id] = self._chance.randrange(begin_ms - MINUTE_MS, self._end_ms)
            if self._chance.random() < _CHANGED:
                at_hour = self._chance.randint(hour, 23)
                due_ms = self._chance.randrange(begin_ms, self._end_ms + 2 * MINUTE_MS)
                is_cancel = self._chance.random() < 0.5
                change = Change(message_id, None if is_cancel else due_ms)
                self._changes[at_hour].append(change)
        return dues

    async def _send(self, producer: AsyncClient, dues: dict[str, int]) -> None:
        for each, due_ms in dues.items():
            self.lives.add(each, due_ms)
        outcomes = await producer.send_many(
            _TOPIC, [ToSend(id=each, due=_moment(due_ms)) for each, due_ms in dues.items()]
        )
        assert all(each.done or each.refusal is Refusal.EXISTS for each in outcomes)
        await self._settle()

    async def _change(self, producer: AsyncClient, change: Change) -> None:
        """Skip a message that is nearly due, leased or finished."""
        life, now_ms = self.lives.lives[change.id], self._clock.now_ms()
        if life.is_over or not _waits(life, now_ms):
            return
        if change.due_ms is None:
            await producer.cancel(_TOPIC, life.id)
            life.cancelled = True
            self.lives.done["cancelled"] += 1
        else:
            due_ms = max(change.due_ms, now_ms + MINUTE_MS)
            await producer.reschedule(_TOPIC, life.id, due=_moment(due_ms))
            self.lives.moved(life, due_ms)
            self.lives.done["rescheduled"] += 1

    # Consumers

    async def _join(self, exits: AsyncExitStack) -> None:
        client = await exits.enter_async_context(self._broker.client())
        consumer = Consumer(client, self.lives)
        await consumer.join(next(self._names))
        self._consumers.append(consumer)


class Consumer:
    """Hand each lease to a task that works on it."""

    def __init__(self, client: AsyncClient, lives: Lives) -> None:
        self._client = client
        self._lives = lives
        self._stream: ConsumerStream | None = None
        self._taking: asyncio.Task[None] | None = None

    async def join(self, name: str) -> None:
        lease = timedelta(milliseconds=LEASE_MS)
        self._stream = await self._client.subscribe(
            [_TOPIC], consumer=name, lease=lease, prefetch=_PREFETCH
        )
        self._taking = asyncio.create_task(self._take(self._stream))

    async def _take(self, stream: ConsumerStream) -> None:
        while True:
            self._lives.handed(await stream.next())

    def holds(self, message_id: str) -> bool:
        assert self._stream is not None
        return any(each.id == message_id for each in self._stream.held)

    async def leave(self) -> None:
        """Leave: return the leases that are not begun, and continue with the others."""
        assert self._stream is not None
        assert self._taking is not None
        await self._client.unsubscribe(self._stream)
        self._taking.cancel()
        with suppress(asyncio.CancelledError, ClientClosed):
            await self._taking


def _waits(life: Life, now_ms: int) -> bool:
    return life.dues_ms == {life.by_ms} and life.by_ms > now_ms + 2 * MINUTE_MS


def _moment(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def _play(url: str, monkeypatch: pytest.MonkeyPatch, *, messages: int, seed: int) -> None:
    day = Day(SimulatedNode(url, ManualClock(), monkeypatch), messages=messages, seed=seed)
    asyncio.run(day.live_through())
    lives = day.lives
    assert len(lives.lives) == messages
    assert lives.wrong == []
    assert lives.not_once() == []
    assert lives.early() == []
    assert lives.overlapping() == []
    fates = ("ack", "work", "extend", "retry", "release", "abandon", "late")
    others = ("rescheduled", "cancelled", "redelivered", "refused", "looked")
    assert all(lives.done[each] >= 5 for each in (*fates, *others)), lives.done
    assert (lives.done["stop"], lives.done["die"]) == (3, 5)


def test_a_day_on_sqlite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _play(f"sqlite:///{tmp_path / 'timeline.db'}", monkeypatch, messages=2_400, seed=6)


def test_a_day_on_postgres(
    postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    _play(postgres_server.create_database("day"), monkeypatch, messages=480, seed=7)
