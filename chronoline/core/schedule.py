"""Recurring schedules: their rules, the ids of their occurrences, and the decision what to create now.

A schedule names a topic, a recurrence and a message. Each of its times is an *occurrence*: an ordinary
message, which is created a bounded time ahead of its due. `next_ms` of the schedule is its first occurrence
that was not created yet.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from chronoline.core.errors import InvalidInput
from chronoline.core.limits import (
    CLOCK_BOUND_MS,
    MAX_TIME_MS,
    message_problem,
    name_problem,
    new_name_problem,
    time_problem,
)
from chronoline.core.message import DEFAULT_PRODUCER_GROUP, Header, NewMessage, content_bytes

SCHEDULE_HEADER = "chronolineSchedule"
"""The header of an occurrence with the name of its schedule."""
TIME_HEADER = "chronolineScheduledFor"
"""The header of an occurrence with its nominal time, RFC 3339. Its due is later if it was caught up."""
MIN_INTERVAL_MS = 1_000
MAX_CONTENT_BYTES = 65_536
"""Body, key and headers of a schedule: each of its occurrences has a copy."""
AHEAD_MS = 60_000
"""Occurrences are created at most this long before they are due."""
MISSED_AFTER_MS = 1_000
"""An occurrence that was not created by this time after its moment was missed."""
NO_TOPIC = 0
"""The topic of a deleted schedule, whose row is kept for a while: see `stores.schedules`."""
_FIRST_LOOK_BACK_MS = 120_000
_LOOK_BACK_GROWTH = 4
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Times = Callable[[int], int | None]
"""The first time of a recurrence after a moment; None if there is none."""


class CatchUpRule(StrEnum):
    """How many of the occurrences that no broker created in time are made up for."""

    NONE = "none"
    """They are left out."""
    ONE = "one"
    """The latest of them is created, due at once."""
    ALL = "all"
    """All of them are created, due at once."""

    @classmethod
    def parse(cls, text: str) -> CatchUpRule:
        """Raises `InvalidInput`."""
        try:
            return cls(text)
        except ValueError:
            raise InvalidInput(f"catch-up is one of {', '.join(cls)}, not {text[:100]!r}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurrence:
    """When a schedule fires: a cron expression in a zone, or an interval. Invalid ones raise `InvalidInput`.

    The expression and the zone are read where the times are computed.
    """

    cron: str | None = None
    zone: str = "UTC"
    every_ms: int | None = None
    start_ms: int | None = None
    """It does not fire before. An interval counts from here; without it, from when the schedule was made."""

    def __post_init__(self) -> None:
        problem = None
        if (self.cron is None) == (self.every_ms is None):
            problem = "give a cron expression or an interval, and not both"
        elif self.start_ms is not None:
            problem = time_problem("start", self.start_ms)
        if problem is None:
            problem = name_problem("zone", self.zone)
        if problem is None and self.every_ms is not None:
            problem = _interval_problem(self.every_ms, self.zone)
        if problem:
            raise InvalidInput(f"schedule: {problem}")


def _interval_problem(every_ms: int, zone: str) -> str | None:
    if not MIN_INTERVAL_MS <= every_ms <= MAX_TIME_MS:
        return f"an interval is at least 1 second, not {every_ms} ms"
    return None if zone == "UTC" else "an interval has no time zone: leave it out"


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A schedule as the store knows it."""

    name: str
    topic_uid: int
    recurrence: Recurrence
    catch_up: CatchUpRule = CatchUpRule.ONE
    producer_group: str = DEFAULT_PRODUCER_GROUP
    """The owner of the occurrences."""
    body: bytes | None = b""
    key: bytes | None = None
    headers: tuple[Header, ...] = ()
    made_ms: int = 0
    """When this recurrence was given."""
    next_ms: int | None = None
    """The first occurrence that was not created yet; None if none follows."""
    paused: bool = False
    uid: int = 0
    """Of this life of the name: a schedule that is deleted and created again has another one."""
    version: int = 0
    """Grows with every write of its row."""
    problem: str = ""
    """Why its stored recurrence cannot be read, if a later version wrote it. Then it stays as it is."""

    @property
    def content_bytes(self) -> int:
        return content_bytes(self.body, self.key, self.headers)

    def says_the_same(self, other: Schedule) -> bool:
        """Whether both were given the same."""
        return _given(self) == _given(other)


def _given(schedule: Schedule) -> Schedule:
    return replace(schedule, made_ms=0, next_ms=None, paused=False, uid=0, version=0)


def check_schedule_name(name: str) -> None:
    """Raises `InvalidInput` unless this can name a schedule."""
    problem = name_problem("schedule name", name)
    if problem is None and any(not each.isprintable() for each in name):
        problem = "schedule name contains a character that cannot be printed"
    if problem:
        raise InvalidInput(problem)


def check_schedule(schedule: Schedule) -> None:
    """Raises `InvalidInput` for a name or a content that no occurrence can have."""
    check_schedule_name(schedule.name)
    problem = None
    if schedule.content_bytes > MAX_CONTENT_BYTES:
        problem = (
            f"body, key and headers of a schedule have at most {MAX_CONTENT_BYTES} bytes, not "
            f"{schedule.content_bytes}, since each occurrence has a copy: send the name of a larger body"
        )
    problem = problem or message_problem(occurrence(schedule, 0, 0), MAX_CONTENT_BYTES)
    if problem:
        raise InvalidInput(problem)


def check_new_schedule(schedule: Schedule) -> None:
    """Like `check_schedule`, for one that is made now."""
    check_schedule(schedule)
    if problem := new_name_problem("schedule name", schedule.name):
        raise InvalidInput(problem)


# Occurrences


def occurrence_id(name: str, time_ms: int) -> str:
    """Name and time, such as `report@2026-01-31T12:00:00.000Z`."""
    return f"{name}@{_shown(time_ms)}"


def occurrence(schedule: Schedule, time_ms: int, now_ms: int) -> NewMessage:
    """The message of one time. It is due then, or now if that is over."""
    return NewMessage(
        id=occurrence_id(schedule.name, time_ms),
        due=max(time_ms, now_ms),
        body=schedule.body,
        key=schedule.key,
        headers=(
            *schedule.headers,
            (SCHEDULE_HEADER, schedule.name.encode(errors="replace")),
            (TIME_HEADER, _shown(time_ms).encode()),
        ),
        producer_group=schedule.producer_group,
    )


def _shown(time_ms: int) -> str:
    moment = _EPOCH + timedelta(milliseconds=time_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


# Times


def interval_times(every_ms: int, start_ms: int) -> Times:
    """The times of an interval: its start, and so on."""

    def next_after(moment_ms: int) -> int | None:
        periods = 0 if moment_ms < start_ms else (moment_ms - start_ms) // every_ms + 1
        found = start_ms + periods * every_ms
        return found if found <= MAX_TIME_MS else None

    return next_after


def not_before(times: Times, start_ms: int) -> Times:
    """The times from a moment on."""
    return lambda moment_ms: times(max(moment_ms, start_ms - 1))


class Plan(NamedTuple):
    """The occurrences of one schedule to create now."""

    times: tuple[int, ...]
    next_ms: int | None
    """The first one that is left, also where there are more than may be created at once."""
    skipped: bool
    """Occurrences were missed, and are left out."""

    def first(self, count: int) -> Plan:
        """The first occurrences alone."""
        if count >= len(self.times):
            return self
        return Plan(self.times[:count], self.times[count], self.skipped)


def plan(
    first_ms: int, times: Times, catch_up: CatchUpRule, *, now_ms: int, until_ms: int, most: int
) -> Plan:
    """Decides which occurrences from `first_ms` to `until_ms` to create now, up to a number."""
    next_ms: int | None = first_ms
    found: list[int] = []
    skipped = False
    missed_before_ms = now_ms - MISSED_AFTER_MS
    if first_ms < missed_before_ms and catch_up is not CatchUpRule.ALL:
        last_ms = _last(first_ms, times, missed_before_ms)
        if catch_up is CatchUpRule.ONE:
            found.append(last_ms)
        skipped = catch_up is CatchUpRule.NONE or last_ms > first_ms
        next_ms = times(last_ms)
    while next_ms is not None and next_ms <= until_ms and len(found) < most:
        found.append(next_ms)
        next_ms = times(next_ms)
    return Plan(tuple(found), next_ms, skipped)


def _last(first_ms: int, times: Times, before_ms: int) -> int:
    """The last time from `first_ms` on and before a moment.

    It looks back from the moment, ever further, since there can be millions of times after the first.
    """
    look_back_ms = _FIRST_LOOK_BACK_MS
    while True:
        begin_ms = max(first_ms, before_ms - look_back_ms)
        last_ms = first_ms if begin_ms == first_ms else None
        next_ms = times(begin_ms)
        while next_ms is not None and next_ms < before_ms:
            last_ms, next_ms = next_ms, times(next_ms)
        if last_ms is not None:
            return last_ms
        look_back_ms *= _LOOK_BACK_GROWTH


def changes_from(now_ms: int) -> int:
    """The moment after which a change of a schedule takes effect.

    An occurrence that falls due before may be with a consumer already, by a clock that is ahead of ours.
    """
    return now_ms + CLOCK_BOUND_MS


def created_ahead(schedule: Schedule, times: Times, now_ms: int) -> list[int]:
    """The times of the occurrences that were created and that a change now takes back."""
    from_ms = changes_from(now_ms)
    upto_ms = from_ms + AHEAD_MS + CLOCK_BOUND_MS
    if schedule.next_ms is not None:
        upto_ms = min(upto_ms, schedule.next_ms - 1)
    found: list[int] = []
    next_ms = times(from_ms)
    while next_ms is not None and next_ms <= upto_ms:
        found.append(next_ms)
        next_ms = times(next_ms)
    return found
