"""Moments: as milliseconds, as datetimes, and as text (RFC 3339, or relative to now)."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from chronoline.core.errors import InvalidInput
from chronoline.core.limits import MAX_TIME_MS, time_problem
from chronoline.core.units import find_duration_ms

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
_RFC_3339 = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})"
)


def to_ms(moment: datetime, what: str = "the moment") -> int:
    """A moment as whole milliseconds since 1970, UTC, fractions rounded up. It must have a zone."""
    if not isinstance(moment, datetime):
        raise InvalidInput(f"{what} must be a datetime with its zone, not {type(moment).__name__}")
    if moment.utcoffset() is None:
        raise InvalidInput(f"{what} {moment} has no time zone: add one, such as datetime.UTC")
    return -((_EPOCH - moment) // _MS)


def from_ms(moment_ms: int) -> datetime:
    """A moment as a datetime in UTC; at most the year 9999."""
    return _EPOCH + min(moment_ms, MAX_TIME_MS) * _MS


def show_moment(moment: int | datetime) -> str:
    """A moment as RFC 3339, such as 2026-01-31T12:00:00.000Z."""
    utc = from_ms(moment) if isinstance(moment, int) else moment.astimezone(UTC)
    return utc.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_moment_ms(text: str, what: str) -> int:
    """RFC 3339 with its zone, in UTC milliseconds, fractions rounded up."""
    if not _RFC_3339.fullmatch(text):
        raise InvalidInput(
            f"{what} {text!r:.60} is not a time with its zone and seconds, such as 2027-01-31T12:00:00Z"
        )
    try:
        moment_ms = to_ms(datetime.fromisoformat(text.upper()))
    except ValueError as error:
        raise InvalidInput(f"{what} {text!r:.60} is not a time: {error}") from None
    if problem := time_problem(what, moment_ms):
        raise InvalidInput(problem)
    return moment_ms


def parse_when_ms(text: str, what: str, now_ms: int) -> int:
    """A moment, now, or a time ahead or ago: +1h, 1h, -10m."""
    near = text.strip()
    if near.lower() == "now":
        return now_ms
    ahead_ms = find_duration_ms(near.removeprefix("+"))
    if ahead_ms is not None:
        return min(now_ms + ahead_ms, MAX_TIME_MS)
    ago_ms = find_duration_ms(near[1:]) if near.startswith("-") else None
    if ago_ms is not None:
        return max(now_ms - ago_ms, 0)
    try:
        return parse_moment_ms(near, what)
    except InvalidInput:
        raise InvalidInput(
            f"{what} {text!r:.60} is no moment: write now, +1h, -10m, or a time with its zone such as "
            "2026-01-31T12:00:00Z"
        ) from None
