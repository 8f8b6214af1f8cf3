"""The times of recurrences: intervals, and cron expressions in a time zone.

`cronsim` reads the expression and walks the calendar, as Debian's cron does. It is given times without a zone
here, and this module places them in the zone, by one rule for expressions with and without seconds:

- An expression that names its minutes and its hours means times of the wall clock. Where the clock is put
  forward, a time that does not exist is replaced by the moment of the change. Where it is put back, the first
  of two equal times counts.
- An expression whose minute or hour begins with `*` means intervals. It fires at each matching time that the
  clock shows: twice in an hour that is repeated, and not in one that is left out.
"""

from __future__ import annotations

import calendar
import difflib
import zoneinfo
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from chronoline.core.errors import InvalidInput
from chronoline.core.limits import MAX_TIME_MS
from chronoline.core.schedule import Recurrence, Schedule, Times, interval_times, not_before
from chronoline.runtime.extras import needs

with needs("Cron expressions", "server"):
    from cronsim import CronSim, CronSimError

MAX_CRON_CHARACTERS = 255
_DAY_S = 86_400
_SECOND = timedelta(seconds=1)
_FIELDS = {
    "second": "0 to 59",
    "minute": "0 to 59",
    "hour": "0 to 23",
    "day-of-month": "1 to 31, L for the last day, or LW for the last weekday",
    "month": "1 to 12, or JAN to DEC",
    "day-of-week": "0 (Sunday) to 7 or SUN to SAT, 5L for the last Friday, MON#2 for the second Monday",
}
_SHORT = 5
"""The number of fields without seconds."""
_NICKNAMES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_EXAMPLE = (
    "write minute, hour, day of month, month and day of week, such as '0 9 * * MON-FRI'; a sixth field in "
    "front is the second"
)


class Cron:
    """A valid expression in a zone."""

    def __init__(self, text: str, zone: str) -> None:
        """Raises `InvalidInput`, which names the field that cannot be read."""
        self._fields = _fields_of(text)
        self._zone = zone_named(zone)
        self._expression = " ".join(self._fields)
        minute, hour = self._fields[1:3]
        self._is_wall_clock = not minute.startswith("*") and not hour.startswith("*")

    def next_after(self, moment_ms: int) -> int | None:
        """The first time after a moment, in milliseconds; None if there is none for 50 years."""
        try:
            find = self._next_on_wall if self._is_wall_clock else self._next_in_hours
            found = find(moment_ms // 1000)
        except (OverflowError, ValueError):  # it lies behind the year 9999
            return None
        return None if found is None or found * 1000 > MAX_TIME_MS else found * 1000

    def _next_on_wall(self, after_s: int) -> int | None:
        for wall in self._walls_after(self._wall(after_s, self._offset_s(after_s))):
            found = self._instant(wall)
            if found > after_s:  # else the clock was put back, and this time has been
                return found
        return None

    def _next_in_hours(self, after_s: int) -> int | None:
        """The next match under the offset of the zone; searched again where the offset changes before it."""
        begin_s, known_s = after_s, after_s
        while True:
            offset_s = self._offset_s(known_s)
            wall = next(self._walls_after(self._wall(begin_s, offset_s)), None)
            if wall is None:
                return None
            found = calendar.timegm(wall.timetuple()) - offset_s
            near_s = min(found, known_s + _DAY_S)
            change = self._change(known_s, near_s)
            if change is None:
                change = self._change(near_s, found)
            if change is None:
                return found
            begin_s, known_s = change - 1, change

    def _walls_after(self, wall: datetime) -> Iterator[datetime]:
        """The times that match, without a zone."""
        return CronSim(self._expression, wall)

    def _instant(self, wall: datetime) -> int:
        """The moment at which the clock first shows a time, or that at which it is put forward over it."""
        early = calendar.timegm(wall.replace(tzinfo=self._zone, fold=0).utctimetuple())
        if self._wall(early, self._offset_s(early)) == wall:
            return early
        before = calendar.timegm(wall.replace(tzinfo=self._zone, fold=1).utctimetuple())
        change = self._change(before, early)
        return early if change is None else change

    def _change(self, begin_s: int, end_s: int) -> int | None:
        """A second in (begin, end] from which on the zone has another offset than at the beginning."""
        offset_s = self._offset_s(begin_s)
        if self._offset_s(end_s) == offset_s:
            return None
        while end_s - begin_s > 1:
            middle_s = (begin_s + end_s) // 2
            if self._offset_s(middle_s) == offset_s:
                begin_s = middle_s
            else:
                end_s = middle_s
        return end_s

    def _offset_s(self, moment_s: int) -> int:
        offset = datetime.fromtimestamp(moment_s, self._zone).utcoffset()
        return 0 if offset is None else offset // _SECOND

    def _wall(self, moment_s: int, offset_s: int) -> datetime:
        return datetime.fromtimestamp(moment_s + offset_s, UTC).replace(tzinfo=None)


@lru_cache(maxsize=1_000)
def cron_of(text: str, zone: str) -> Cron:
    """The expression, read once. Raises `InvalidInput`."""
    return Cron(text, zone)


def _fields_of(text: str) -> list[str]:
    """The six fields of an expression. Raises `InvalidInput`."""
    if len(text) > MAX_CRON_CHARACTERS:
        raise InvalidInput(f"a cron expression has at most {MAX_CRON_CHARACTERS} characters")
    fields = _NICKNAMES.get(text.strip().lower(), text).upper().split()
    if len(fields) == _SHORT:
        fields.insert(0, "0")
    if len(fields) != _SHORT + 1:
        raise InvalidInput(f"cron {text!r} needs 5 or 6 fields, not {len(fields)}: {_EXAMPLE}")
    begin = datetime(2000, 1, 1)
    for name, place in zip(_FIELDS, range(_SHORT + 1), strict=True):
        alone = [*("*" for _ in fields)]
        alone[place] = fields[place]
        try:
            CronSim(" ".join(alone), begin)
        except (CronSimError, AssertionError, TypeError):
            raise InvalidInput(
                f"the {name} field {fields[place]!r} of cron {text!r} cannot be read: write "
                f"{_FIELDS[name]}; with lists (1,3), ranges (1-5) and steps (*/15), such as '0 9 * * MON-FRI'"
            ) from None
    try:
        CronSim(" ".join(fields), begin)
    except CronSimError:
        raise InvalidInput(
            f"cron {text!r} never fires: none of its months has such a day"
        ) from None
    return fields


def times_of(recurrence: Recurrence, made_ms: int) -> Times:
    """The times of a recurrence that was given at a moment. Raises `InvalidInput`."""
    start_ms = recurrence.start_ms
    if recurrence.cron is not None:
        times = cron_of(recurrence.cron, recurrence.zone).next_after
        return times if start_ms is None else not_before(times, start_ms)
    assert recurrence.every_ms is not None
    if start_ms is None:
        start_ms = -(-(made_ms + recurrence.every_ms) // 1000) * 1000  # at a whole second
    return interval_times(recurrence.every_ms, start_ms)


def readable_times(schedule: Schedule) -> Times:
    """The times of a stored schedule. Raises `InvalidInput` if this version, or its zones, cannot read it."""
    if schedule.problem:
        raise InvalidInput(f"schedule {schedule.name!r}: {schedule.problem}")
    return times_of(schedule.recurrence, schedule.made_ms)


# Zones


@lru_cache(maxsize=1_000)
def zone_named(name: str) -> ZoneInfo:
    """A zone of the IANA database. Raises `InvalidInput`, with names that are similar."""
    try:
        return ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        similar = difflib.get_close_matches(name.title(), sorted(_names()), n=3)
        hint = f"did you mean {' or '.join(similar)}?" if similar else "write Europe/Berlin or UTC"
        raise InvalidInput(f"there is no time zone {name[:100]!r}: {hint}") from None


@lru_cache(maxsize=1)
def _names() -> frozenset[str]:
    return frozenset(zoneinfo.available_timezones())
