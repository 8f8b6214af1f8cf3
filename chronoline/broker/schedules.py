"""Schedules, as clients make, change and see them.

Each change reads the schedule, decides, and writes on the condition that nobody was faster; else it begins
again. A change takes back the occurrences that were created ahead and are not leased, from one second on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from chronoline.broker.occurrences import Occurrences
from chronoline.broker.store_access import StoreAccess
from chronoline.broker.topics import Topics
from chronoline.core.errors import (
    ChronolineError,
    InvalidInput,
    ScheduleExists,
    ScheduleNotFound,
    StoreBusy,
    TooManySchedules,
)
from chronoline.core.schedule import (
    Schedule,
    Times,
    changes_from,
    check_new_schedule,
    check_schedule_name,
    created_ahead,
)
from chronoline.core.topic import Topic
from chronoline.runtime import audit
from chronoline.runtime.cron import readable_times, times_of

Check = Callable[[Schedule, str], None]
"""Raises unless the caller may change a schedule, given with the name of its topic.

That is `ScheduleNotFound` for a schedule that it may not see."""
MOST_TIMES = 1_000
"""The most times of a schedule in one answer."""
_SHOWN_MS = 100 * 366 * 24 * 3_600_000
"""Times are shown up to this long after the first: those of a rare rule, such as 29 February, take long to
find."""
MOST_LISTED = 1_000
"""The most schedules of a page."""
_TRIES = 10


class ShownSchedule(NamedTuple):
    """A schedule, its topic, and its next times."""

    schedule: Schedule
    topic: Topic
    times: tuple[int, ...]


class Schedules:
    """One for each node."""

    def __init__(
        self, access: StoreAccess, topics: Topics, occurrences: Occurrences, *, most: int
    ) -> None:
        """`most` bounds the schedules of a topic."""
        self._access = access
        self._most = most
        self._topics = topics
        self._occurrences = occurrences

    async def create(
        self, given: Schedule, check: Check, *, replacing: bool = False, dry_run: bool = False
    ) -> Schedule:
        """Creates a schedule, or with `replacing` changes the one of its name.

        A schedule that says the same is answered as it is. Raises `InvalidInput`, also for one that never
        fires, `TopicNotFound`, `ScheduleExists` and `TooManySchedules`. With `dry_run` nothing is written.
        """
        check_new_schedule(given)
        if dry_run:
            audit.note(dry_run=True)
        else:
            self._check_able(given.name)
        topic = await self._topics.get(given.topic_uid)
        check(given, topic.name)
        if len(given.body or b"") > topic.settings.largest_body_bytes:
            raise InvalidInput(
                f"the body has {len(given.body or b'')} bytes; topic {topic.name!r} allows "
                f"{topic.settings.largest_body_bytes}"
            )
        for _ in range(_TRIES):
            before = await self._find(given.name)
            if before is not None and replacing:
                await self._check_replaced(before, check)
            floor_ms = 0 if before is not None else await self._floor_ms(given.name)
            new, cancel = await asyncio.to_thread(
                _decided, given, before, floor_ms, self._access.clock.now_ms()
            )
            if before is not None and before.says_the_same(new):
                await self._access.await_durable()
                return before
            if before is not None and not replacing:
                raise ScheduleExists(
                    f"another schedule named {given.name!r} exists; to change it, replace it"
                )
            if before is None or before.topic_uid != new.topic_uid:
                await self._check_room(topic)
            if dry_run:
                return new
            if stored := await self._put(new, before, cancel):
                return stored
        raise _busy(given.name)

    async def _check_replaced(self, before: Schedule, check: Check) -> None:
        """Names of schedules are taken at all topics: that one has this name cannot be hidden."""
        try:
            check(before, (await self._topics.get(before.topic_uid)).name)
        except ScheduleNotFound:
            raise ScheduleExists(
                f"a schedule that you may not see has the name {before.name!r}: choose another"
            ) from None

    async def pause(self, name: str, check: Check) -> Schedule:
        """Stops creating occurrences, and takes back those that were created ahead. May be called twice.

        Raises `ScheduleNotFound`.
        """
        return await self._set_paused(name, check, paused=True)

    async def resume(self, name: str, check: Check) -> Schedule:
        """Goes on with the first occurrence from now; those of the pause are left out."""
        return await self._set_paused(name, check, paused=False)

    def _check_able(self, name: str) -> None:
        """Raises the reason for which this broker can change no schedules now. It is an act nevertheless."""
        try:
            self._topics.check_able()
        except ChronolineError:
            audit.note(schedule=name)
            raise

    async def _set_paused(self, name: str, check: Check, *, paused: bool) -> Schedule:
        self._check_able(name)
        for _ in range(_TRIES):
            before = await self.find(name)
            check(before, (await self._topics.get(before.topic_uid)).name)
            if before.paused is paused:
                await self._access.await_durable()
                return before
            times = readable_times(before)
            now_ms = self._access.clock.now_ms()
            next_ms = await asyncio.to_thread(times, changes_from(now_ms))
            cancel = created_ahead(before, times, now_ms) if paused else []
            new = replace(before, paused=paused, next_ms=next_ms)
            if stored := await self._put(new, before, cancel):
                return stored
        raise _busy(name)

    async def delete(self, name: str, check: Check) -> bool:
        """Deletes a schedule, and takes back what was created ahead. False if there is none."""
        check_schedule_name(name)
        self._check_able(name)
        for _ in range(_TRIES):
            before = await self._find(name)
            if before is None:
                await self._access.await_durable()
                return False
            try:
                check(before, (await self._topics.get(before.topic_uid)).name)
            except ScheduleNotFound:  # it is hidden from the caller
                audit.refused("schedule_not_found")
                return False
            now_ms = self._access.clock.now_ms()
            cancel: list[int] = []
            if not before.problem and not before.paused:
                cancel = created_ahead(before, readable_times(before), now_ms)
            until_ms = changes_from(now_ms)
            if before.paused and before.next_ms is not None:
                # The pause has left what comes before, by a clock that may be ahead of ours.
                until_ms = max(until_ms, min(before.next_ms - 1, changes_from(until_ms)))
            if await self._delete(before, cancel, until_ms, now_ms):
                return True
        raise _busy(name)

    async def find(self, name: str) -> Schedule:
        """Raises `ScheduleNotFound`."""
        check_schedule_name(name)
        found = await self._find(name)
        if found is None:
            raise not_found(name)
        return found

    async def page(self, *, topic_uid: int | None, after: str, limit: int) -> list[Schedule]:
        """A page of schedules by name, without their bodies."""
        return await self._access.call(
            "schedules",
            lambda store: store.list_schedules(topic_uid=topic_uid, after=after, limit=limit),
        )

    async def shown(self, schedule: Schedule, count: int) -> ShownSchedule:
        """A schedule with its next times, as if it were not paused."""
        if not 0 <= count <= MOST_TIMES:
            raise InvalidInput(f"the number of times is from 0 to {MOST_TIMES}, not {count}")
        topic = await self._topics.get(schedule.topic_uid)
        if not count or schedule.problem:
            return self._with_hold(ShownSchedule(schedule, topic, ()))
        now_ms = self._access.clock.now_ms()
        times = await asyncio.to_thread(_next_times, schedule, now_ms, count)
        return self._with_hold(ShownSchedule(schedule, topic, times))

    async def with_next(self, found: Sequence[ShownSchedule]) -> list[ShownSchedule]:
        """Schedules with the next time of each that fires."""
        now_ms = self._access.clock.now_ms()
        timed = await asyncio.to_thread(
            lambda: [
                each._replace(
                    times=() if _is_off(each.schedule) else _next_times(each.schedule, now_ms, 1)
                )
                for each in found
            ]
        )
        return [self._with_hold(each) for each in timed]

    def _with_hold(self, shown: ShownSchedule) -> ShownSchedule:
        reason = shown.schedule.problem or self._occurrences.held_back(shown.schedule)
        return shown._replace(schedule=replace(shown.schedule, problem=reason))

    def clock_moved(self) -> None:
        """The next round begins by the clock as it is now."""
        self._occurrences.changed()

    async def _check_room(self, topic: Topic) -> None:
        """Brokers that create schedules at the same moment can exceed the number by some."""
        most = self._most
        count = await self._access.call(
            "schedule", lambda store: store.count_schedules(topic.uid, most=most), topic=topic.name
        )
        if count >= most:
            raise TooManySchedules(
                f"topic {topic.name!r} has {count:,} schedules, and this node allows {most:,} for a topic: "
                "delete some, use another topic, or raise `limits.schedules` in the node's settings"
            )

    async def _find(self, name: str) -> Schedule | None:
        return await self._access.call("schedule", lambda store: store.find_schedule(name))

    async def _floor_ms(self, name: str) -> int:
        return await self._access.call("schedule", lambda store: store.schedule_floor_ms(name))

    async def _put(
        self, new: Schedule, before: Schedule | None, cancel: list[int]
    ) -> Schedule | None:
        now_ms = self._access.clock.now_ms()
        stored = await self._access.call(
            "put_schedule",
            lambda store: store.put_schedule(new, instead_of=before, cancel=cancel, now_ms=now_ms),
            changes=True,
        )
        self._occurrences.changed()
        return stored

    async def _delete(
        self, before: Schedule, cancel: list[int], until_ms: int, now_ms: int
    ) -> bool:
        return await self._access.call(
            "delete_schedule",
            lambda store: store.delete_schedule(
                before, cancel=cancel, until_ms=until_ms, now_ms=now_ms
            ),
            changes=True,
        )


def _decided(
    given: Schedule, before: Schedule | None, floor_ms: int, now_ms: int
) -> tuple[Schedule, list[int]]:
    """The schedule to write, and the times of the occurrences to take back."""
    new = replace(given, made_ms=now_ms, paused=False)
    from_ms = max(now_ms, floor_ms)
    cancel: list[int] = []
    if before is not None:
        new = replace(new, paused=before.paused)
        if before.recurrence == given.recurrence and not before.problem:
            new = replace(new, made_ms=before.made_ms)  # an interval keeps its phase
        from_ms = changes_from(now_ms)
        if not before.problem and not before.paused:
            cancel = created_ahead(before, readable_times(before), now_ms)
    next_ms = times_of(new.recurrence, new.made_ms)(from_ms)
    if next_ms is None:
        raise InvalidInput(
            f"schedule {given.name!r} never fires: no time of its recurrence comes within 50 years"
        )
    return replace(new, next_ms=next_ms), cancel


def _next_times(schedule: Schedule, now_ms: int, count: int) -> tuple[int, ...]:
    times: Times = readable_times(schedule)
    found: list[int] = []
    next_ms = times(now_ms)
    while next_ms is not None and len(found) < count:
        if found and next_ms > found[0] + _SHOWN_MS:
            break
        found.append(next_ms)
        next_ms = times(next_ms)
    return tuple(found)


def _is_off(schedule: Schedule) -> bool:
    return schedule.paused or bool(schedule.problem)


def not_found(name: str) -> ScheduleNotFound:
    return ScheduleNotFound(
        f"there is no schedule {name!r}; `chronoline schedule list` shows those that you may see"
    )


def _busy(name: str) -> StoreBusy:
    return StoreBusy(
        f"others change schedule {name!r} all the time; nothing was changed. Try again"
    )
