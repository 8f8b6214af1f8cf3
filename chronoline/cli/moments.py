"""Moments, as people write and read them: RFC 3339, to the millisecond."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from chronoline.cli.quantities import parse_duration_ms
from chronoline.clock import to_ms
from chronoline.core.errors import InvalidInput
from chronoline.core.limits import MAX_TIME_MS
from chronoline.log.starting import Start

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SEQUENCE = re.compile(r"[0-9]{1,18}")
_RFC_3339 = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})"
)


def show_moment(moment_ms: int) -> str:
    """Such as 2026-01-31T12:00:00.000Z."""
    return from_ms(moment_ms).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_moment_ms(text: str, what: str) -> int:
    """RFC 3339 with its zone, in UTC milliseconds, fractions rounded up."""
    if not _RFC_3339.fullmatch(text):
        raise InvalidInput(
            f"{what} {text!r} is not a time with its zone, such as 2026-01-31T12:00:00Z"
        )
    try:
        return to_ms(datetime.fromisoformat(text.upper()))
    except ValueError as error:
        raise InvalidInput(f"{what} {text!r} is not a time: {error}") from error


def parse_when_ms(text: str, what: str, now_ms: int) -> int:
    """A moment, or how far it is from now: now, +1h, -10m, or RFC 3339 with its zone."""
    if text == "now":
        return now_ms
    try:
        if text.startswith("+"):
            return min(MAX_TIME_MS, now_ms + parse_duration_ms(text[1:], what))
        if text.startswith("-"):
            return max(0, now_ms - parse_duration_ms(text[1:], what))
        return parse_moment_ms(text, what)
    except InvalidInput as error:
        raise InvalidInput(
            f"{what} {text!r} is no moment: write now, +1h, -10m, or a time with its zone such as "
            "2026-01-31T12:00:00Z"
        ) from error


def parse_start(text: str, what: str, now_ms: int) -> Start:
    """Where reading begins: earliest, latest, a sequence, a time, or how long ago, such as -10m."""
    if text == "earliest":
        return "earliest"
    if text == "latest":
        return "latest"
    if _SEQUENCE.fullmatch(text):
        return int(text)
    try:
        if text.startswith("-"):
            return from_ms(max(0, now_ms - parse_duration_ms(text[1:], what)))
        return from_ms(parse_moment_ms(text, what))
    except InvalidInput as error:
        raise InvalidInput(
            f"{what} {text!r} is not a start: write earliest, latest, a sequence, a time with its "
            "zone such as 2026-01-31T12:00:00Z, or how long ago such as -10m"
        ) from error


def from_ms(moment_ms: int) -> datetime:
    """In UTC; nothing is after the year 9999."""
    return _EPOCH + timedelta(milliseconds=min(moment_ms, MAX_TIME_MS))
