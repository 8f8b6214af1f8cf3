"""The lives of messages: the work of consumers on them, and the invariants that must hold."""

from __future__ import annotations

import asyncio
import heapq
import random
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Literal

from chronoline.client.leases import AsyncLease
from chronoline.core.errors import OutcomeUnknown, Refused
from chronoline.runtime.timestamps import to_ms
from chronoline.testing import ManualClock

Fate = Literal["ack", "work", "extend", "retry", "release", "abandon", "late"]
MINUTE_MS = 60_000
LEASE_MS = 10 * MINUTE_MS
_FATES: dict[Fate, int] = {
    "ack": 50,
    "work": 10,
    "extend": 5,
    "retry": 10,
    "release": 10,
    "abandon": 8,
    "late": 7,
}
_MOST_FATES = 3
NOT_DONE = (Refused, OutcomeUnknown)
"""A change after the end of its lease is refused, or unknown when an earlier attempt had no answer."""


@dataclass(slots=True)
class Grip:
    """One delivery: its consumer, its begin and its end in simulated time."""

    consumer: str
    version: int
    due_ms: int
    from_ms: int
    to_ms: int
    """The end of the lease, or the moment when the consumer settled it."""


@dataclass(slots=True)
class Life:
    """One message and its expected state."""

    id: str
    dues_ms: set[int]
    """The possible dues; several while the outcome of a change is unknown."""
    by_ms: int
    """The latest moment of its next delivery."""
    chance: random.Random
    """Random numbers of this message alone, so other messages do not influence it."""
    fates: list[Fate] = field(default_factory=list)
    """The next actions of its consumers, in order; after the last one it is acked."""
    grips: list[Grip] = field(default_factory=list)
    acks: int = 0
    cancelled: bool = False

    @property
    def is_over(self) -> bool:
        return self.acks > 0 or self.cancelled

    def draw_ms(self, least_minutes: float, most_minutes: float) -> int:
        return int(self.chance.uniform(least_minutes, most_minutes) * MINUTE_MS)


class Lives:
    """All messages of a test, and the tasks that work on them."""

    def __init__(self, clock: ManualClock, seed: int, end_ms: int) -> None:
        """`end_ms` bounds the new dues of retries and releases, except those just before it."""
        self._clock = clock
        self._seed = seed
        self._end_ms = end_ms
        self.lives: dict[str, Life] = {}
        self.done: Counter[str] = Counter()
        """The number of actions by kind."""
        self.wrong: list[str] = []
        """The violations found so far."""
        self.news = asyncio.Event()
        """Set at each event."""
        self._working: dict[asyncio.Task[None], int] = {}  # by task, the moment when it continues
        self._sleepers: list[tuple[int, int, asyncio.Future[None]]] = []

    def add(self, message_id: str, due_ms: int) -> None:
        chance = random.Random(f"{self._seed} {message_id}")
        life = self.lives[message_id] = Life(message_id, {due_ms}, due_ms, chance)
        how_many = chance.randint(1, _MOST_FATES)
        life.fates = chance.choices(list(_FATES), list(_FATES.values()), k=how_many)

    def moved(self, life: Life, due_ms: int) -> None:
        life.dues_ms, life.by_ms = {due_ms}, due_ms
        self.news.set()

    @property
    def unfinished(self) -> list[Life]:
        return [each for each in self.lives.values() if not each.is_over]

    @property
    def next_ms(self) -> int | None:
        """The moment of the next delivery or action; None when no message is left."""
        moments = [*self._working.values(), *(each.by_ms for each in self.unfinished)]
        return min(moments, default=None)

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is expected before the clock advances."""
        return self.next_ms is None or self.next_ms > self._clock.now_ms()

    def wake(self) -> None:
        """Wake the tasks whose moment has come, after the clock advanced."""
        while self._sleepers and self._sleepers[0][0] <= self._clock.now_ms():
            *_, sleeper = heapq.heappop(self._sleepers)
            sleeper.set_result(None)

    # Consumers

    def handed(self, lease: AsyncLease) -> None:
        """Begin the work on a message that a consumer received."""
        life = self.lives[lease.id]
        now_ms = self._clock.now_ms()
        grip = Grip(lease.consumer, lease.version, to_ms(lease.due), now_ms, to_ms(lease.until))
        life.grips.append(grip)
        if life.is_over:
            self.wrong.append(f"it came again: {life}")
        if grip.due_ms not in life.dues_ms:
            self.wrong.append(f"it came for another due: {life}")
        life.by_ms = to_ms(lease.until)
        self.done["redelivered"] += lease.redelivered
        task = asyncio.create_task(self._work(life, grip, lease))
        self._working[task] = now_ms
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._working[task]
        self.news.set()
        if error := task.exception():
            self.wrong.append(repr(error))

    async def _work(self, life: Life, grip: Grip, lease: AsyncLease) -> None:
        fate: Fate = life.fates.pop(0) if life.fates else "ack"
        self.done[fate] += 1
        match fate:
            case "ack":
                await self._ack(life, grip, lease)
            case "work":
                await self._reach(grip.from_ms + life.draw_ms(1, 9))
                await self._ack(life, grip, lease)
            case "extend":
                await self._reach(grip.from_ms + life.draw_ms(5, 9))
                await self._extend(life, grip, lease)
                await self._reach(grip.from_ms + life.draw_ms(11, 14))
                await self._ack(life, grip, lease)
            case "retry" | "release":
                await self._put_off(life, grip, lease, fate)
            case "late":
                await self._reach(to_ms(lease.until) + life.draw_ms(0, 5))
                await self._ack(life, grip, lease)
            case "abandon":
                pass

    async def _reach(self, moment_ms: int) -> None:
        task = asyncio.current_task()
        assert task is not None
        if moment_ms > self._clock.now_ms():
            sleeper = asyncio.get_running_loop().create_future()
            heapq.heappush(self._sleepers, (moment_ms, id(sleeper), sleeper))
            self._working[task] = moment_ms
            self.news.set()
            await sleeper

    async def _ack(self, life: Life, grip: Grip, lease: AsyncLease) -> None:
        asked_ms = self._clock.now_ms()
        grip.to_ms = min(grip.to_ms, asked_ms)
        try:
            await lease.ack()
        except NOT_DONE:
            self.done["refused"] += 1
        else:
            life.acks += 1
            if asked_ms >= to_ms(lease.until):
                self.wrong.append(f"it was acked after its lease: {life}")

    async def _extend(self, life: Life, grip: Grip, lease: AsyncLease) -> None:
        try:
            await lease.extend(timedelta(milliseconds=LEASE_MS))
        except NOT_DONE:
            self.done["refused"] += 1
            return
        grip.to_ms = to_ms(lease.until)
        if life.grips[-1] is grip:
            life.by_ms = to_ms(lease.until)

    async def _put_off(
        self, life: Life, grip: Grip, lease: AsyncLease, how: Literal["retry", "release"]
    ) -> None:
        now_ms = self._clock.now_ms()
        due_ms = min(now_ms + life.draw_ms(1, 90), max(self._end_ms, now_ms + MINUTE_MS))
        due = datetime.fromtimestamp(due_ms / 1000, UTC)
        grip.to_ms = now_ms
        life.dues_ms.add(due_ms)
        try:
            await (lease.retry(due=due) if how == "retry" else lease.release(due=due))
        except NOT_DONE:  # the lease has ended, or the change is stored without an answer
            self.done["refused"] += 1
            life.by_ms = max(life.by_ms, due_ms)
        else:
            self.moved(life, due_ms)

    # Invariants

    def early(self) -> list[Life]:
        """Messages delivered before their due."""
        return [
            each
            for each in self.lives.values()
            if any(grip.from_ms < grip.due_ms for grip in each.grips)
        ]

    def overlapping(self) -> list[Life]:
        """Messages with overlapping deliveries, or with versions that do not increase."""
        return [
            each
            for each in self.lives.values()
            if any(
                later.from_ms < earlier.to_ms or later.version <= earlier.version
                for earlier, later in pairwise(each.grips)
            )
        ]

    def not_once(self) -> list[Life]:
        """Messages that were not either acked exactly once or cancelled."""
        return [each for each in self.lives.values() if each.acks != (0 if each.cancelled else 1)]
