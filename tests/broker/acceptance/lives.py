"""What becomes of messages in the hands of consumers, and what must never become of them."""

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
from chronoline.runtime.clock import to_ms
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
"""A lease that ended while nobody answered leaves it open: an earlier attempt may have been under way."""


@dataclass(slots=True)
class Grip:
    """One delivery: who had it, and from when until when, in made-up time."""

    consumer: str
    version: int
    due_ms: int
    from_ms: int
    to_ms: int
    """The end of its lease, or when its consumer let go of it."""


@dataclass(slots=True)
class Life:
    """One message, as the test knows it."""

    id: str
    dues_ms: set[int]
    """When it may be due; several while nobody knows whether it was moved."""
    by_ms: int
    """From then on somebody should have it."""
    chance: random.Random
    """Its own, so that what it meets does not depend on what becomes of others."""
    fates: list[Fate] = field(default_factory=list)
    """What consumers do with it, one after the other; then it is acked."""
    grips: list[Grip] = field(default_factory=list)
    acks: int = 0
    cancelled: bool = False

    @property
    def is_over(self) -> bool:
        return self.acks > 0 or self.cancelled

    def draw_ms(self, least_minutes: float, most_minutes: float) -> int:
        return int(self.chance.uniform(least_minutes, most_minutes) * MINUTE_MS)


class Lives:
    """All messages of a test, and those who work on them."""

    def __init__(self, clock: ManualClock, seed: int, end_ms: int) -> None:
        """What is put off is put off to before `end_ms`, or a little later than that."""
        self._clock = clock
        self._seed = seed
        self._end_ms = end_ms
        self.lives: dict[str, Life] = {}
        self.done: Counter[str] = Counter()
        """What was done how often."""
        self.wrong: list[str] = []
        """What was seen that must not be."""
        self.news = asyncio.Event()
        """Set whenever something happens."""
        self._working: dict[asyncio.Task[None], int] = {}  # when each goes on
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
        """When something has to happen next: a delivery, or somebody goes on. None if all is over."""
        moments = [*self._working.values(), *(each.by_ms for each in self.unfinished)]
        return min(moments, default=None)

    @property
    def is_quiet(self) -> bool:
        """Nothing has to happen before the clock is turned."""
        return self.next_ms is None or self.next_ms > self._clock.now_ms()

    def wake(self) -> None:
        """The clock was turned."""
        while self._sleepers and self._sleepers[0][0] <= self._clock.now_ms():
            *_, sleeper = heapq.heappop(self._sleepers)
            sleeper.set_result(None)

    # Those who work

    def handed(self, lease: AsyncLease) -> None:
        """A consumer got a message, and begins."""
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
        except NOT_DONE:  # the lease is over; or it was done, and not answered
            self.done["refused"] += 1
            life.by_ms = max(life.by_ms, due_ms)
        else:
            self.moved(life, due_ms)

    # What must hold

    def early(self) -> list[Life]:
        """Handed over before their due."""
        return [
            each
            for each in self.lives.values()
            if any(grip.from_ms < grip.due_ms for grip in each.grips)
        ]

    def overlapping(self) -> list[Life]:
        """In two hands at a time, or under versions that do not grow."""
        return [
            each
            for each in self.lives.values()
            if any(
                later.from_ms < earlier.to_ms or later.version <= earlier.version
                for earlier, later in pairwise(each.grips)
            )
        ]

    def not_once(self) -> list[Life]:
        """Neither acked once nor cancelled; or both."""
        return [each for each in self.lives.values() if each.acks != (0 if each.cancelled else 1)]
