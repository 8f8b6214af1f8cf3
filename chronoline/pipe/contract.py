"""The contract of a pipe's input: what a record asks for, or why it is malformed.

The headers of a record have an id, a deadline, and optionally an action. A record becomes

- a `NewMessage`, which is put on the timeline;
- a `Cancel` or a `Reschedule` of a waiting message, if the action says so;
- `Malformed`, with all of its problems.

Key, value and the other headers stay unchanged, in order, with repeated names and nulls. The pipe's own
headers are removed, except from malformed records, which are kept whole so that they can be repaired.

Times are counted in whole milliseconds and rounded up: a message is never early.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from typing import Literal, NamedTuple

from chronoline.core.limits import (
    MAX_HEADER_BYTES,
    MAX_HEADERS,
    MAX_KEY_BYTES,
    MAX_NAME_BYTES,
    MAX_TIME_MS,
)
from chronoline.core.message import Header, NewMessage
from chronoline.core.topic import DEFAULT_SETTINGS
from chronoline.stores.inputs import Cancel, Reschedule

MAX_ID_CHARACTERS = 128

Action = Literal["create", "cancel", "reschedule"]
_Values = list[bytes | None]

_ACTIONS: dict[bytes, Action] = {b"cancel": "cancel", b"reschedule": "reschedule"}
_DAY_MS, _HOUR_MS, _MINUTE_MS, _SECOND_MS = 86_400_000, 3_600_000, 60_000, 1_000
_LAST_HOUR, _LAST_MINUTE, _LEAP_SECOND = 23, 59, 60
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_RFC_3339 = re.compile(
    rb"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,3})([0-9]*))?"
    rb"(?:[Zz]|([+-])([0-9]{2}):([0-9]{2}))?"
)
_SHOWN = re.compile(rb"[ -~]{1,64}")
"""Text of a record that a reason may repeat: short, and without control characters."""


class SourceRecord(NamedTuple):
    """A record of an input topic."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header]
    time_ms: int
    """Its own time; negative if it has none."""
    problem: str = ""
    """Why its headers could not be read; then they are empty."""


class Malformed(NamedTuple):
    """A record that breaks the contract."""

    reason: str


class _Wrong(Exception):
    """A problem of a record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """The headers, the delay and the limits by which records of an input are read."""

    topic: str
    """The input's topic, which is a part of the ids of records without headers."""
    producer_group: str
    """The group of the messages."""
    id_header: str = "chronosMessageId"
    deadline_header: str = "chronosDeadline"
    action_header: str = "chronosAction"
    delay_ms: int | None = None
    """Records without the pipe's headers are due this long after their own time; None: they are malformed."""
    early_cancel_ms: int = 0
    """How long a cancel waits for its create."""
    largest_value_bytes: int = DEFAULT_SETTINGS.largest_body_bytes
    """The limit of the timeline."""

    def read(self, record: SourceRecord) -> NewMessage | Cancel | Reschedule | Malformed:
        """Reads a record. It raises nothing."""
        if record.problem:
            return Malformed(record.problem)
        ids, deadlines, actions, others = self._deal(record.headers)
        problems: list[str] = []
        action: Action | None = "create"
        due: int | None = None
        if self.delay_ms is not None and len(others) == len(record.headers):
            name, due = self._by_delay(record, self.delay_ms, problems)
        else:
            action = self._action(actions, problems)
            name = self._id(ids, problems)
            if action in ("create", "reschedule"):
                due = self._due(deadlines, problems)
        problems += _limit_problems(record, others, self.largest_value_bytes)
        if problems:
            return Malformed("; ".join(problems))
        if action == "cancel":
            return Cancel(name, self.early_cancel_ms)
        assert due is not None  # else there would be a problem
        if action == "reschedule":
            return Reschedule(name, due)
        return NewMessage(
            id=name,
            due=due,
            body=record.value,
            key=record.key,
            headers=tuple(others),
            producer_group=self.producer_group,
        )

    def _deal(self, headers: Sequence[Header]) -> tuple[_Values, _Values, _Values, list[Header]]:
        """The values of each own header, and the other headers."""
        ids: _Values = []
        deadlines: _Values = []
        actions: _Values = []
        others: list[Header] = []
        for header in headers:
            name, value = header
            if name == self.id_header:
                ids.append(value)
            elif name == self.deadline_header:
                deadlines.append(value)
            elif name == self.action_header:
                actions.append(value)
            else:
                others.append(header)
        return ids, deadlines, actions, others

    def _by_delay(
        self, record: SourceRecord, delay_ms: int, problems: list[str]
    ) -> tuple[str, int]:
        """The id and due time of a record without headers: the same when the record is read again."""
        name = f"{self.topic}-{record.partition}-{record.offset}"
        due = record.time_ms + delay_ms
        if len(name) > MAX_ID_CHARACTERS:
            problems.append(_too_many("id has", len(name), "characters", MAX_ID_CHARACTERS))
        if record.time_ms < 0:
            problems.append("the record has no time to which the delay could be added")
        elif due > MAX_TIME_MS:
            problems.append("the record's time and the delay end after the year 9999")
        return name, due

    def _action(self, given: _Values, problems: list[str]) -> Action | None:
        if not given:
            return "create"
        try:
            value = _only(self.action_header, given)
        except _Wrong as wrong:
            problems.append(str(wrong))
            return None
        if value not in _ACTIONS:
            said = f"'{value.decode()}'" if _SHOWN.fullmatch(value) else "something else"
            problems.append(
                f"header {self.action_header} is {said}; write cancel or reschedule, or leave it out"
            )
        return _ACTIONS.get(value)

    def _id(self, given: _Values, problems: list[str]) -> str:
        try:
            return _read_id(_only(self.id_header, given, hint=self._hint))
        except _Wrong as wrong:
            problems.append(str(wrong))
            return ""

    def _due(self, given: _Values, problems: list[str]) -> int | None:
        try:
            return _read_deadline(_only(self.deadline_header, given, hint=self._hint))
        except _Wrong as wrong:
            problems.append(str(wrong))
            return None

    @property
    def _hint(self) -> str:
        if self.delay_ms is None:
            return ""
        return "; the delay is for records without any of these headers"


def _only(name: str, given: _Values, *, hint: str = "") -> bytes:
    if not given:
        raise _Wrong(f"header {name} is missing{hint}")
    if len(given) > 1:
        raise _Wrong(f"header {name} is given {len(given)} times; give it once")
    if given[0] is None:
        raise _Wrong(f"header {name} has no value")
    return given[0]


def _read_id(given: bytes) -> str:
    try:
        name = given.decode()
    except UnicodeDecodeError:
        raise _Wrong("id is not valid UTF-8") from None
    if not name:
        raise _Wrong("id is empty")
    if len(name) > MAX_ID_CHARACTERS:
        raise _Wrong(_too_many("id has", len(name), "characters", MAX_ID_CHARACTERS))
    if "\0" in name:
        raise _Wrong("id contains a NUL character")
    return name


# Deadlines


def _read_deadline(given: bytes) -> int:
    """A deadline in UTC, rounded up to the millisecond; without an offset it is UTC."""
    match = _RFC_3339.fullmatch(given)
    if match is None:
        raise _odd(given, "is not a time as in RFC 3339, such as 2026-01-31T12:00:00.123Z")
    day_text, hours, minutes, seconds, thousandths, rest, sign, off_hours, off_minutes = (
        match.groups()
    )
    day, hour, minute, second = _day(day_text), int(hours), int(minutes), int(seconds)
    if day is None:
        raise _odd(given, "names a day that does not exist")
    if hour > _LAST_HOUR or minute > _LAST_MINUTE or second > _LEAP_SECOND:
        raise _odd(given, "names a time of day that does not exist")
    if second == _LEAP_SECOND:
        raise _odd(given, "is a leap second, which no clock here has; write the next one")
    due = day * _DAY_MS + hour * _HOUR_MS + minute * _MINUTE_MS + second * _SECOND_MS
    if thousandths:
        due += int(thousandths.ljust(3, b"0")) + bool(rest.strip(b"0"))
    if sign:
        hour, minute = int(off_hours), int(off_minutes)
        if hour > _LAST_HOUR or minute > _LAST_MINUTE:
            raise _odd(given, "has an offset that does not exist")
        offset_ms = hour * _HOUR_MS + minute * _MINUTE_MS
        due += offset_ms if sign == b"-" else -offset_ms
    if not 0 <= due <= MAX_TIME_MS:
        raise _odd(given, "is not between 1970 and the year 9999")
    return due


@lru_cache(maxsize=1_024)
def _day(text: bytes) -> int | None:
    """A day, counted from 1970; None if it does not exist."""
    year, month, day = int(text[:4]), int(text[5:7]), int(text[8:])
    try:
        # Dates begin with the year 1. The year 0 was a leap year as 2000 was, and is long before 1970.
        return date(year or 2000, month, day).toordinal() - (_EPOCH_DAY if year else 1_000_000)
    except ValueError:
        return None


def _odd(given: bytes, words: str) -> _Wrong:
    said = f"deadline '{given.decode()}'" if _SHOWN.fullmatch(given) else "deadline"
    return _Wrong(f"{said} {words}")


# Limits


def _limit_problems(
    record: SourceRecord, others: Sequence[Header], largest_value_bytes: int
) -> list[str]:
    problems = []
    if record.key is not None and len(record.key) > MAX_KEY_BYTES:
        problems.append(_too_many("key has", len(record.key), "bytes", MAX_KEY_BYTES))
    if record.value is not None and len(record.value) > largest_value_bytes:
        problems.append(_too_many("value has", len(record.value), "bytes", largest_value_bytes))
    if others:
        problems += _header_problems(others)
    return problems


def _header_problems(others: Sequence[Header]) -> list[str]:
    problems = []
    names = [name.encode() for name, _ in others]
    total = sum(map(len, names)) + sum(len(value) for _, value in others if value)
    if len(others) > MAX_HEADERS:
        problems.append(_too_many("there are", len(others), "headers", MAX_HEADERS))
    if total > MAX_HEADER_BYTES:
        problems.append(_too_many("the headers have", total, "bytes", MAX_HEADER_BYTES))
    of_names = (_name_problem(name) for name in names)
    return problems + list(dict.fromkeys(each for each in of_names if each))


def _name_problem(name: bytes) -> str | None:
    """The problem of a header's name. It may be empty; otherwise the rules of names apply."""
    if len(name) > MAX_NAME_BYTES:
        return f"the name of a header has more than {MAX_NAME_BYTES} bytes"
    return "the name of a header contains a NUL character" if b"\0" in name else None


def _too_many(what: str, number: int, unit: str, most: int) -> str:
    return f"{what} {number} {unit}; at most {most} are allowed"
