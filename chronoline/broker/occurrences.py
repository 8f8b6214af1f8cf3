"""Creates the occurrences of schedules, a bounded time ahead.

State: the moment of the next round. A round reads all schedules with an occurrence within `AHEAD_MS`, creates
these, and sleeps until the first of the others is half of that time ahead. So the rounds are seldom and each
serves many schedules, and messages are on the timeline long before they are due. A notice of a changed
schedule begins a round at once.

All brokers of a store work alike. A step is one transaction, on the condition that the schedule still has
the state that was read, so it is done once, by any of them. To spare the others the work, brokers begin one
after the other, in the order of their names.

Failure: what cannot be done now is tried again after a second, what cannot be read in the next round, and
the others go on: a schedule that another process holds is passed over for that second. A broker that dies
leaves either the whole step or nothing of it. If all brokers are away for longer than the occurrences reach
ahead, the catch-up of each schedule says what becomes of those that were missed. However many are made up
for, a round begins with the schedules that are in time.

Quotas: occurrences are creates of their producer group. Where its quota leaves no room, or cannot be counted,
the schedules of this group and topic keep their state and are passed over, for a second or more; `held_back`
has the reason.
Occurrences that are late by then are missed, and the catch-up decides.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import NamedTuple

from chronoline.broker.gate import Gate, Work
from chronoline.broker.metrics import BrokerMetrics
from chronoline.broker.quotas import QuotaRoom, Quotas
from chronoline.broker.store_access import StoreAccess
from chronoline.broker.topics import Topics
from chronoline.core.errors import ChronolineError, OutcomeUnknown, RowsLocked, TopicNotFound
from chronoline.core.schedule import (
    AHEAD_MS,
    MISSED_AFTER_MS,
    CatchUpRule,
    Plan,
    Schedule,
    occurrence,
    plan,
)
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
_LONGEST_HOLD_S = 10.0
"""A quota that left no room is asked again after this time at the latest."""
_TELL_HELD_EVERY_S = 60.0
_MOST_TOLD = 1_000
"""The states of schedules that do not fire of which it remembers that they were logged."""

Owner = tuple[int, str]
"""The topic and the producer group of a schedule, which have one quota."""
_State = tuple[int, int]
"""The uid and the version of a schedule."""


class _Hold(NamedTuple):
    """A quota that leaves no room, or could not be counted."""

    until_s: float
    """When to ask again, by the monotonic clock."""
    reason: str


class _Planned(NamedTuple):
    """The occurrences of a schedule to create now."""

    schedule: Schedule
    plan: Plan

    @property
    def owner(self) -> Owner:
        return self.schedule.topic_uid, self.schedule.producer_group

    @property
    def state(self) -> _State:
        return self.schedule.uid, self.schedule.version

    def step(self, now_ms: int) -> ScheduleStep:
        messages = [occurrence(self.schedule, each, now_ms) for each in self.plan.times]
        return ScheduleStep(self.schedule, self.plan.next_ms, messages)


class _Page(NamedTuple):
    """Some schedules, and the steps that they need."""

    planned: list[_Planned]
    held: list[Schedule]
    """Schedules that wait for a quota."""
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
        topics: Topics,
        quotas: Quotas,
        *,
        turn: Callable[[], int] = lambda: 0,
    ) -> None:
        """`turn` is the number of brokers that begin before this one."""
        self._access = access
        self._gate = gate
        self._metrics = metrics
        self._topics = topics
        self._quotas = quotas
        self._turn = turn
        self._holds: dict[Owner, _Hold] = {}
        # The schedules whose step could not be made, and when to try again, by the monotonic clock.
        self._busy: dict[_State, float] = {}
        self._is_behind = False
        """The last round left occurrences that are to be made up for."""
        self._alarm = Alarm()
        self._begun_s = 0.0
        self._round_s = 0.0
        """When the next round begins, by the monotonic clock."""
        self._told = BoundedCache[_State, None](_MOST_TOLD)
        self._held_told = BoundedCache[int, float](_MOST_TOLD)
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

    def held_back(self, schedule: Schedule) -> str:
        """Why occurrences that are due soon were not created; empty if no quota is in their way here."""
        hold = self._holds.get((schedule.topic_uid, schedule.producer_group))
        if hold is None or schedule.paused or schedule.next_ms is None:
            return ""
        return hold.reason if schedule.next_ms <= self._access.clock.now_ms() + AHEAD_MS else ""

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
        now_s = time.monotonic()
        self._holds = {each: hold for each, hold in self._holds.items() if hold.until_s > now_s}
        self._busy = {each: until_s for each, until_s in self._busy.items() if until_s > now_s}
        wait_s = await self._create_until(until_ms)
        again_s = [*(each.until_s for each in self._holds.values()), *self._busy.values()]
        now_s = time.monotonic()
        return min([wait_s, *(max(0.0, each - now_s) for each in again_s)])

    async def _create_until(self, until_ms: int) -> float:
        missed_ms = until_ms - AHEAD_MS - MISSED_AFTER_MS
        was_behind, self._is_behind = self._is_behind, False
        # While others catch up, those in time have a round half as far ahead: fewer and larger steps.
        in_time_ms = until_ms - AHEAD_MS // 2 if was_behind else until_ms
        for after, before_ms in ((SchedulePlace(missed_ms, ""), in_time_ms), (None, missed_ms - 1)):
            if await self._create_behind(after, before_ms, until_ms):
                self._is_behind = after is None
                return 0.0
        if was_behind:
            return 0.0
        next_ms = await self._access.call(
            "next_schedule", lambda store: store.next_schedule_ms(until_ms)
        )
        if next_ms is None:
            return _RESCAN_S
        wait_ms = next_ms - AHEAD_MS // 2 - self._access.clock.now_ms()
        return max(0, wait_ms) / 1000 + _TURN_S * min(self._turn(), _MOST_TURNS)

    async def _create_behind(
        self, after: SchedulePlace | None, before_ms: int, until_ms: int
    ) -> bool:
        """Serves the schedules from a place to a moment. True if a step could not hold all occurrences."""
        while True:
            begun_s = time.monotonic()
            page = await self._access.call(
                "due_schedules",
                partial(
                    self._plan,
                    after=after,
                    before_ms=before_ms,
                    until_ms=until_ms,
                    holds=self._holds.copy(),
                    busy=self._busy.copy(),
                ),
            )
            for schedule in page.held:
                self._tell_held(schedule, self._holds[schedule.topic_uid, schedule.producer_group])
            if page.planned:
                await self._step(page.planned)
            if page.last is None and not page.is_cut:
                return False
            urgent = page.is_urgent(self._access.clock.now_ms())
            rests = _URGENT_REST if urgent else _REST
            await asyncio.sleep(rests * (time.monotonic() - begun_s))
            if page.is_cut:
                return True
            after = page.last

    async def _step(self, planned: Sequence[_Planned]) -> None:
        """Makes steps, as far as quotas admit them."""
        # Together, so that a quota that cannot be counted delays the steps once.
        rooms = await asyncio.gather(*(self._admit(each) for each in planned))
        admitted = [
            (each, room)
            for each, room in zip(planned, rooms, strict=True)
            if room.allowed or not each.plan.times
        ]
        steps = [each._replace(plan=each.plan.first(may.allowed)) for each, may in admitted]
        created = [0] * len(steps)
        try:
            done = await self._access.call(
                "step_schedules", partial(self._write, steps), changes=True
            )
            created = [0 if each is None else each.created for each in done]
        except (OutcomeUnknown, asyncio.CancelledError):
            created = [may.allowed for _, may in admitted]  # they may be; the next count tells
            raise
        finally:
            for (_, may), count in zip(admitted, created, strict=True):
                may.settle(count)
        for step, stepped in zip(steps, done, strict=True):
            if stepped is not None and stepped.done:
                self._stepped(step, stepped.created)
            else:
                self._busy[step.state] = time.monotonic() + _RETRY_S

    async def _admit(self, planned: _Planned) -> QuotaRoom:
        """The number of occurrences that the quota of their group admits."""
        schedule = planned.schedule
        if (hold := self._holds.get(planned.owner)) is not None:
            self._tell_held(schedule, hold)
            return QuotaRoom(0)
        group, wanted = schedule.producer_group, len(planned.plan.times)
        begun_s = time.monotonic()
        try:
            topic = await self._topics.get(schedule.topic_uid)
            room = await self._quotas.admit(topic, group, wanted)
        except TopicNotFound:  # the store refuses the step
            return QuotaRoom(wanted)
        except ChronolineError as error:  # no other schedule waits for that
            hold = _held(
                group,
                self._topics.name_of(schedule.topic_uid),
                str(error),
                time.monotonic() - begun_s,
            )
            room = QuotaRoom(0)
        else:
            if room.refusal is None:
                return room
            wait_s = room.refusal.retry_after_ms / 1000
            hold = _held(group, topic.name, room.refusal.reason, wait_s)
        self._holds[planned.owner] = hold
        self._tell_held(schedule, hold)
        return room

    def _stepped(self, step: _Planned, created: int) -> None:
        self._count(step.schedule, "created", created)
        if step.plan.skipped:
            self._tell_missed(step.schedule)
        if created < len(step.plan.times):
            self._count(step.schedule, "refused", len(step.plan.times) - created)
            logger.warning(
                "occurrences of schedule %r were not created: their ids are taken, or the topic takes no "
                "such message",
                step.schedule.name,
                extra={"action": "schedule_refused"},
            )

    def _count(self, schedule: Schedule, outcome: str, occurrences: int) -> None:
        if topic := self._topics.name_of(schedule.topic_uid):
            self._metrics.add("topic_schedule_occurrences_count", (outcome, topic), occurrences)

    def _tell_held(self, schedule: Schedule, hold: _Hold) -> None:
        now_s = time.monotonic()
        told_s = self._held_told.get(schedule.uid)
        if told_s is not None and now_s < told_s + _TELL_HELD_EVERY_S:
            return
        self._held_told.put(schedule.uid, now_s)
        if topic := self._topics.name_of(schedule.topic_uid):
            self._metrics.add("topic_schedule_held_count", (topic,))
        logger.warning(
            "schedule %r is held back: %s",
            schedule.name,
            hold.reason,
            extra={"action": "schedule_held_back"},
        )

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

    def _plan(
        self,
        store: Store,
        *,
        after: SchedulePlace | None,
        before_ms: int,
        until_ms: int,
        holds: Collection[Owner],
        busy: Collection[_State],
    ) -> _Page:
        found = store.due_schedules(before_ms, after=after, limit=_PAGE)
        now_ms = self._access.clock.now_ms()
        steps: list[_Planned] = []
        held: list[Schedule] = []
        left, left_bytes = _MOST_OCCURRENCES, _MOST_BYTES
        # One that makes up for many uses the step up: the others come before it.
        for schedule in sorted(found, key=lambda each: _makes_up_for_all(each, now_ms)):
            assert schedule.next_ms is not None
            if (schedule.topic_uid, schedule.producer_group) in holds:
                held.append(schedule)
                continue
            if (schedule.uid, schedule.version) in busy:
                continue
            most = min(left, left_bytes // max(1, schedule.content_bytes))
            if most <= 0:
                return _Page(steps, held, True, None)
            try:
                planned = _planned(schedule, now_ms, until_ms, most)
            except ChronolineError as error:
                self._tell_unreadable(schedule, error)
                continue
            steps.append(_Planned(schedule, planned))
            left -= len(planned.times)
            left_bytes -= len(planned.times) * schedule.content_bytes
            if planned.next_ms is not None and planned.next_ms <= until_ms:
                return _Page(steps, held, True, None)
        last = None
        if len(found) == _PAGE and found[-1].next_ms is not None:
            last = SchedulePlace(found[-1].next_ms, found[-1].name)
        return _Page(steps, held, False, last)

    def _write(self, steps: Sequence[_Planned], store: Store) -> list[Stepped | None]:
        """Makes steps; where one of them cannot be made, the others alone. None for those that failed."""
        now_ms = self._access.clock.now_ms()
        try:
            return [*store.step_schedules([each.step(now_ms) for each in steps], now_ms=now_ms)]
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


def _held(group: str, topic: str, reason: str, wait_s: float) -> _Hold:
    wait_s = min(max(_RETRY_S, wait_s), _LONGEST_HOLD_S)
    return _Hold(
        time.monotonic() + wait_s,
        f"it waits for a quota of producer group {group!r} on topic {topic!r}: {reason}",
    )


def _makes_up_for_all(schedule: Schedule, now_ms: int) -> bool:
    is_late = schedule.next_ms is not None and schedule.next_ms < now_ms - MISSED_AFTER_MS
    return is_late and schedule.catch_up is CatchUpRule.ALL


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
