"""The contract of a pipe's input once more, written for clarity, to compare the fast one with.

It shares nothing with it: dates come from the standard library, and fractions are fractions.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction

Header = tuple[str, bytes | None]

ID, DEADLINE, ACTION = "chronosMessageId", "chronosDeadline", "chronosAction"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LAST_MS = (datetime(9999, 12, 31, 23, 59, 59, 999_000, UTC) - EPOCH) // timedelta(milliseconds=1)
MOST_BYTES = 65_536
RFC_3339 = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt ](\d\d):(\d\d):(\d\d)(?:\.(\d+))?(?:[Zz]|([+-])(\d\d):(\d\d))?",
    re.ASCII,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A record of an input topic."""

    headers: tuple[Header, ...] | None = None
    key: bytes | None = None
    value: bytes | None = None
    topic: str = "in"
    partition: int = 0
    offset: int = 0
    time_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRecord:
    """A record as the contract reads it."""

    partition: int
    offset: int
    action: str
    id: str | None = None
    due: int | None = None
    reason: str | None = None
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


class Wrong(Exception):
    """Why a record is rejected."""


def read(
    record: Record, *, delay_ms: int | None = None, most_value_bytes: int = 1 << 20
) -> ReadRecord:
    """Returns the expected result."""
    headers = record.headers or ()
    others = tuple(header for header in headers if header[0] not in (ID, DEADLINE, ACTION))
    wrong: list[str] = []
    asked = ReadRecord(
        partition=record.partition,
        offset=record.offset,
        action="create",
        key=record.key,
        value=record.value,
        headers=others,
    )
    if delay_ms is not None and others == headers:
        asked = _by_delay(asked, record, delay_ms, wrong)
    else:
        asked = _by_headers(asked, headers, wrong, mixed=delay_ms is not None)
    wrong += _limits(record, others, most_value_bytes)
    if wrong:
        return replace(
            asked, action="reject", id=None, due=None, reason="; ".join(wrong), headers=headers
        )
    return asked


def _by_delay(asked: ReadRecord, record: Record, delay_ms: int, wrong: list[str]) -> ReadRecord:
    name = f"{record.topic}-{record.partition}-{record.offset}"
    if len(name) > 128:
        wrong.append(f"id has {len(name)} characters; at most 128 are allowed")
    due = record.time_ms + delay_ms
    if record.time_ms < 0:
        wrong.append("the record has no time to which the delay could be added")
    elif due > LAST_MS:
        wrong.append("the record's time and the delay end after the year 9999")
    return replace(asked, id=name, due=due)


def _by_headers(
    asked: ReadRecord, headers: Sequence[Header], wrong: list[str], *, mixed: bool
) -> ReadRecord:
    try:
        action = _action(headers)
    except Wrong as why:
        action = None
        wrong.append(str(why))
    try:
        asked = replace(asked, id=_id(_only(headers, ID, mixed=mixed)))
    except Wrong as why:
        wrong.append(str(why))
    if action in ("create", "reschedule"):
        try:
            asked = replace(asked, due=due_ms(_only(headers, DEADLINE, mixed=mixed)))
        except Wrong as why:
            wrong.append(str(why))
    return replace(asked, action=action or "reject")


def _action(headers: Sequence[Header]) -> str:
    if not any(name == ACTION for name, _ in headers):
        return "create"
    given = _only(headers, ACTION)
    if given not in (b"cancel", b"reschedule"):
        said = f"'{given.decode()}'" if _printable(given) else "something else"
        raise Wrong(f"header {ACTION} is {said}; write cancel or reschedule, or leave it out")
    return given.decode()


def _id(given: bytes) -> str:
    try:
        name = given.decode()
    except UnicodeDecodeError:
        raise Wrong("id is not valid UTF-8") from None
    if not name:
        raise Wrong("id is empty")
    if len(name) > 128:
        raise Wrong(f"id has {len(name)} characters; at most 128 are allowed")
    if "\0" in name:
        raise Wrong("id contains a NUL character")
    return name


def _only(headers: Sequence[Header], name: str, *, mixed: bool = False) -> bytes:
    values = [value for each, value in headers if each == name]
    if not values:
        hint = "; the delay is for records without any of these headers" if mixed else ""
        raise Wrong(f"header {name} is missing{hint}")
    if len(values) > 1:
        raise Wrong(f"header {name} is given {len(values)} times; give it once")
    if values[0] is None:
        raise Wrong(f"header {name} has no value")
    return values[0]


def due_ms(given: bytes) -> int:
    """A deadline in UTC milliseconds."""
    said = f"deadline '{given.decode()}'" if _printable(given) else "deadline"
    match = RFC_3339.fullmatch(given.decode(errors="replace"))
    if match is None:
        raise Wrong(f"{said} is not a time as in RFC 3339, such as 2026-01-31T12:00:00.123Z")
    day, hour, minute, second, fraction, sign, offset_hours, offset_minutes = match.groups()
    # The standard library knows no year 0, which was a leap year as 2000 was.
    year_zero = day.startswith("0000")
    try:
        midnight = datetime.fromisoformat(day.replace("0000", "2000", 1) if year_zero else day)
    except ValueError:
        raise Wrong(f"{said} names a day that does not exist") from None
    if int(hour) > 23 or int(minute) > 59 or int(second) > 60:
        raise Wrong(f"{said} names a time of day that does not exist")
    if int(second) == 60:
        raise Wrong(f"{said} is a leap second, which no clock here has; write the next one")
    if sign and (int(offset_hours) > 23 or int(offset_minutes) > 59):
        raise Wrong(f"{said} has an offset that does not exist")
    since = midnight.replace(tzinfo=UTC) - EPOCH
    seconds = Fraction(f"{second}.{fraction or 0}") + 60 * int(minute) + 3_600 * int(hour)
    if sign:
        seconds -= int(f"{sign}1") * (3_600 * int(offset_hours) + 60 * int(offset_minutes))
    due = math.ceil(1_000 * (Fraction(since.total_seconds()) + seconds))
    if year_zero or not 0 <= due <= LAST_MS:
        raise Wrong(f"{said} is not between 1970 and the year 9999")
    return due


def _printable(given: bytes) -> bool:
    return 1 <= len(given) <= 64 and all(32 <= each < 127 for each in given)


def _limits(record: Record, others: Sequence[Header], most_value_bytes: int) -> list[str]:
    sizes = [
        ("key has", len(record.key or b""), "bytes", MOST_BYTES),
        ("value has", len(record.value or b""), "bytes", most_value_bytes),
        ("there are", len(others), "headers", 256),
        (
            "the headers have",
            sum(len(name.encode()) + len(value or b"") for name, value in others),
            "bytes",
            MOST_BYTES,
        ),
    ]
    wrong = [
        f"{what} {size} {unit}; at most {most} are allowed"
        for what, size, unit, most in sizes
        if size > most
    ]
    names = [_name_problem(name) for name, _ in others]
    return wrong + list(dict.fromkeys(each for each in names if each))


def _name_problem(name: str) -> str | None:
    if len(name.encode()) > 255:
        return "the name of a header has more than 255 bytes"
    return "the name of a header contains a NUL character" if "\0" in name else None
