"""Creates the occurrences of schedules, a bounded time ahead.

State: the moment of the next round. A round reads all schedules with an occurrence within `AHEAD_MS`, creates
these, and sleeps until the first of the others is half of that time ahead. So the rounds are seldom and each
serves many schedules, and messages are on the timeline long before they are due. A notice of a changed
schedule begins a round at once.

All brokers of a store work alike. A step is one transaction, on the condition that the schedule still has
the state that was read, so it is done once, by any of them. To spare the others the work, brokers begin one
after the other, in the order of their names.

Failure: what cannot be done now is tried again after a second, what cannot be read in the next round, and
the others go on. A broker that dies leaves either the whole step or nothing of it. If all brokers are away
for longer than the occurrences reach ahead, the catch-up of each schedule says what becomes of those that
were missed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from chronoline.broker.gate import Gate, Work
from chronoline.broker.metrics import BrokerMetrics
from chronoline.broker.store_access import StoreAccess
from chronoline.core.errors import ChronolineError, RowsLocked, TopicNotFound
from chronoline.core.schedule import AHEAD_MS, Plan, Schedule, occurrence, plan
from chronoline.runtime.alarm import Alarm
from chronoline.runtime.bounded_cache import BoundedCache
from chronoline.runtime.cron import readable_times
from chronoline.runtime.service import AsyncService
from chronoline.runtime.tasks import supervise
from chronoline.stores.contract import Store
from chronoline.stores.schedules import SchedulePlace, ScheduleStep, Stepped

logger = logging.getLogger(__name__)

_PAGE = 50
"""The schedules of one step. Steps are short, and rests lie between them: a push waits for neither."""
_MOST_OCCURRENCES = 1_000
"""The most occurrences of one step: a transaction of some milliseconds."""
_MOST_BYTES = 16 * 1024 * 1024
"""The most content of one step."""
_REST, _URGENT_REST = 9, 1
"""How many times as long as a step the rest after it is; while occurrences are due soon, it is shorter."""
_URGENT_MS = 10_000
_RETRY_S = 1.0
_RESCAN_S = 60.0
"""The longest sleep: no notice is needed for what is created this long ahead."""
_TURN_S = 1.0
"""How much later each further broker begins."""
_MOST_TURNS = 10
_MOST_TOLD = 1_000
"""The states of schedules that cannot be read of which it remembers that they were logged."""


class _Page(NamedTuple):
    """Some schedules, and the steps that they need."""

    steps: list[ScheduleStep]
    missed: list[Schedule]
    """Schedules whose missed occurrences are left out."""
    is_cut: bool
    """There were more occurrences than one step creates."""
    last: SchedulePlace | None
    """Where the next page begins."""

    def is_urgent(self, now_ms: int) -> bool:
        """Occurrences of this page or the next are due soon."""
        return self.is_cut or (self.last is not None and self.last.next_ms < now_ms + _URGENT_MS)


class Occurrences(AsyncService):
    """Works from `start` to `stop`; then it does not start again."""

    def __init__(
        self,
        access: StoreAccess,
        gate: Gate,
        metrics: BrokerMetrics,
        *,
        name_of: Callable[[int], str],
        turn: Callable[[], int] = lambda: 0,
    ) -> None:
        """`name_of` names a topic by its uid. `turn` is the number of brokers that begin before this one."""
        self._access = access
        self._gate = gate
        self._metrics = metrics
        self._name_of = name_of
        self._turn = turn
        self._alarm = Alarm()
        self._begun_s = 0.0
        self._round_s = 0.0
        """When the next round begins, by the monotonic clock."""
        self._told = BoundedCache[tuple[int, int], None](_MOST_TOLD)
        self._working: asyncio.Task[None] | None = None

    async def _start(self) -> None:
        self._working = supervise(
            "creating occurrences of schedules", self._work, self._metrics.failed
        )

    async def _stop(self) -> None:
        if self._working is not None:
            self._working.cancel()
            await asyncio.wait([self._working])

    def changed(self, surely: bool = True) -> None:
        """A schedule may be next: looks at once, or soon if that is not sure."""
        now_s = time.monotonic()
        wanted_s = now_s if surely else max(now_s, self._begun_s + _RETRY_S)
        if wanted_s < self._round_s:
            self._round_s = wanted_s
            self._alarm.ring()

    async def _work(self) -> None:
        while True:
            while (left_s := self._round_s - time.monotonic()) > 0:
                await self._alarm.sleep(left_s)
            self._begun_s = time.monotonic()
            self._round_s = (
                self._begun_s + _RESCAN_S
            )  # a notice that comes meanwhile makes it earlier
            try:
                wait_s = await self._round()
            except ChronolineError as error:
                logger.warning(
                    "creating occurrences of schedules failed; trying again: %s",
                    error,
                    extra={"action": "schedules_failed"},
                )
                wait_s = _RETRY_S
            self._round_s = min(self._round_s, time.monotonic() + min(wait_s, _RESCAN_S))

    async def _round(self) -> float:
        """Creates what is to be created now. Answers how long to wait for the next round."""
        if self._gate.closure(Work.SCHEDULE) is not None:
            return _RETRY_S
        until_ms = self._access.clock.now_ms() + AHEAD_MS
        again, place = False, None
        while True:
            begun_s = time.monotonic()
            page = await self._access.call(
                "due_schedules", partial(self._plan, until_ms=until_ms, after=place)
            )
            if page.steps:
                again |= not await self._step(page.steps)
            for schedule in page.missed:
                self._tell_missed(schedule)
            if page.last is None and not page.is_cut:
                break
            urgent = page.is_urgent(self._access.clock.now_ms())
            rests = _URGENT_REST if urgent else _REST
            await asyncio.sleep(rests * (time.monotonic() - begun_s))
            if page.is_cut:
                return _RETRY_S if again else 0.0
            place = page.last
        if again:
            return _RETRY_S
        next_ms = await self._access.call(
            "next_schedule", lambda store: store.next_schedule_ms(until_ms)
        )
        if next_ms is None:
            return _RESCAN_S
        wait_ms = next_ms - AHEAD_MS // 2 - self._access.clock.now_ms()
        return max(0, wait_ms) / 1000 + _TURN_S * min(self._turn(), _MOST_TURNS)

    async def _step(self, steps: Sequence[ScheduleStep]) -> bool:
        """Makes steps. False if some of them should be tried again soon."""
        done = await self._access.call("step_schedules", partial(self._write, steps), changes=True)
        for step, stepped in zip(steps, done, strict=True):
            if stepped is not None and stepped.done:
                self._count(step.schedule, "created", stepped.created)
            if stepped is not None and stepped.done and stepped.created < len(step.occurrences):
                self._count(step.schedule, "refused", len(step.occurrences) - stepped.created)
                logger.warning(
                    "occurrences of schedule %r were not created: their ids are taken, or the topic takes no "
                    "such message",
                    step.schedule.name,
                    extra={"action": "schedule_refused"},
                )
        return all(each is not None and each.done for each in done)

    def _count(self, schedule: Schedule, outcome: str, occurrences: int) -> None:
        if topic := self._name_of(schedule.topic_uid):
            self._metrics.add("topic_schedule_occurrences_count", (outcome, topic), occurrences)

    def _tell_missed(self, schedule: Schedule) -> None:
        logger.warning(
            "schedule %r missed occurrences, which its catch-up %r leaves out",
            schedule.name,
            schedule.catch_up.value,
            extra={"action": "schedule_missed"},
        )

    def _tell_unreadable(self, schedule: Schedule, error: ChronolineError) -> None:
        state = schedule.uid, schedule.version
        if state not in self._told:  # each round meets it
            self._told.put(state, None)
            logger.warning(
                "schedule %r cannot fire: %s",
                schedule.name,
                error,
                extra={"action": "schedule_failed"},
            )

    # In a thread of the store

    def _plan(self, store: Store, *, until_ms: int, after: SchedulePlace | None) -> _Page:
        found = store.due_schedules(until_ms, after=after, limit=_PAGE)
        now_ms = self._access.clock.now_ms()
        steps: list[ScheduleStep] = []
        missed: list[Schedule] = []
        left, left_bytes = _MOST_OCCURRENCES, _MOST_BYTES
        for schedule in found:
            assert schedule.next_ms is not None
            most = min(left, left_bytes // max(1, schedule.content_bytes))
            if most <= 0:
                return _Page(steps, missed, True, None)
            try:
                planned = _planned(schedule, now_ms, until_ms, most)
            except ChronolineError as error:
                self._tell_unreadable(schedule, error)
                continue
            messages = [occurrence(schedule, each, now_ms) for each in planned.times]
            steps.append(ScheduleStep(schedule, planned.next_ms, messages))
            if planned.skipped:
                missed.append(schedule)
            left -= len(messages)
            left_bytes -= len(messages) * schedule.content_bytes
            if planned.next_ms is not None and planned.next_ms <= until_ms:
                return _Page(steps, missed, True, None)
        last = None
        if len(found) == _PAGE and found[-1].next_ms is not None:
            last = SchedulePlace(found[-1].next_ms, found[-1].name)
        return _Page(steps, missed, False, last)

    def _write(self, steps: Sequence[ScheduleStep], store: Store) -> list[Stepped | None]:
        """Makes steps; where one of them cannot be made, the others alone. None for those that failed."""
        try:
            return [*store.step_schedules(steps, now_ms=self._access.clock.now_ms())]
        except (RowsLocked, TopicNotFound) as error:
            if len(steps) == 1:
                logger.warning(
                    "schedule %r cannot fire now: %s",
                    steps[0].schedule.name,
                    error,
                    extra={"action": "schedule_failed"},
                )
                return [None]
        half = len(steps) // 2
        return self._write(steps[:half], store) + self._write(steps[half:], store)


def _planned(schedule: Schedule, now_ms: int, until_ms: int, most: int) -> Plan:
    """Raises `InvalidInput` for a rule that this version, or its time zones, cannot read."""
    times = readable_times(schedule)
    assert schedule.next_ms is not None
    return plan(
        schedule.next_ms,
        times,
        schedule.catch_up,
        now_ms=now_ms,
        until_ms=until_ms,
        most=most,
    )
