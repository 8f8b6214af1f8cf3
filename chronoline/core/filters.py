"""Filters: which messages of a topic an operator means, and places in a list of them."""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass, field
from typing import NamedTuple

from chronoline.core.errors import InvalidInput
from chronoline.core.limits import (
    MAX_ID_BYTES,
    MAX_TIME_MS,
    id_problem,
    name_problem,
    reason_problem,
    time_problem,
)
from chronoline.core.message import DeadLetter, Message
from chronoline.core.status import Status, status_of

_LAST = "\U0010ffff"
_MOST_PLACE_CHARACTERS = 8_000
_MOST_STATUSES = 100
_NO_PLACE = "`after` is not the `next` of an earlier answer"
_SURROGATES = range(0xD800, 0xE000)


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageFilter:
    """The messages for which all given conditions hold. Without a condition it means all of them.

    Of dead letters, `start` and `end` bound when they died; holder and status mean nothing.
    """

    producer_group: str = ""
    consumer: str = ""
    """The holder of the lease, or of the last one if it lapsed."""
    prefix: str = ""
    """The beginning of the id."""
    start: int = 0
    """The earliest position, in UTC ms; the position of a leased message is the end of its lease."""
    end: int | None = None
    """The position before which they lie."""
    statuses: frozenset[Status] = field(default_factory=frozenset)
    reason: str = ""
    """Why a dead letter died."""

    def __post_init__(self) -> None:
        problems = [
            self.producer_group and name_problem("producer group", self.producer_group),
            self.consumer and name_problem("consumer", self.consumer),
            self.prefix and name_problem("prefix", self.prefix, MAX_ID_BYTES),
            time_problem("start", self.start),
            None if self.end is None else time_problem("end", self.end),
            reason_problem(self.reason),
        ]
        if found := [each for each in problems if each]:
            raise InvalidInput("; ".join(found))
        if self.end is not None and self.end < self.start:
            raise InvalidInput(
                f"the end {self.end} lies before the start {self.start}: give the earlier one first"
            )

    @property
    def has_times(self) -> bool:
        return self.start > 0 or self.end is not None

    def matches(self, message: Message, now_ms: int) -> bool:
        status = status_of(message.ts, message.lock_consumer is not None, now_ms)
        return (
            (not self.producer_group or message.producer_group == self.producer_group)
            and (not self.consumer or message.lock_consumer == self.consumer)
            and message.id.startswith(self.prefix)
            and self._covers(message.ts)
            and (not self.statuses or status in self.statuses)
        )

    def matches_letter(self, letter: DeadLetter) -> bool:
        message = letter.message
        return (
            (not self.producer_group or message.producer_group == self.producer_group)
            and message.id.startswith(self.prefix)
            and self._covers(letter.died)
            and (not self.reason or letter.reason == self.reason)
        )

    def _covers(self, moment_ms: int) -> bool:
        return self.start <= moment_ms and (self.end is None or moment_ms < self.end)


def statuses_of(names: list[str]) -> frozenset[Status]:
    """Raises `InvalidInput` for a name that is no status, and for a list of hundreds."""
    if len(names) > _MOST_STATUSES:
        raise InvalidInput(f"{len(names)} statuses; there are {len(Status)}")
    try:
        return frozenset(Status(each) for each in names)
    except ValueError:
        known = ", ".join(Status)
        raise InvalidInput(f"a status is one of {known}, not {names!r:.100}") from None


def end_of_prefix(prefix: str) -> str:
    """A bound above all ids that begin with the prefix, and below all later ones."""
    kept = prefix.rstrip(_LAST)
    if not kept:
        return _LAST * (MAX_ID_BYTES // 4 + 1)
    following = ord(kept[-1]) + 1
    if following in _SURROGATES:
        following = _SURROGATES.stop
    return kept[:-1] + chr(following)


def place_before(message_id: str) -> str:
    """A bound below an id, and above the lower ones, but for some that nobody gives."""
    before = ord(message_id[-1]) - 1
    if not before:
        return message_id[:-1]
    if before in _SURROGATES:
        before = _SURROGATES.start - 1
    bound = message_id[:-1] + chr(before)
    return bound if len(bound.encode()) + len(_LAST.encode()) > MAX_ID_BYTES else bound + _LAST


class ListPlace(NamedTuple):
    """A place in a list of messages: behind the message with this position, bucket and id.

    Of dead letters `ts` is when they died. A list by producer group has the `group` too, and an empty `id`
    where the group begins.
    """

    ts: int
    bucket: int
    id: str
    group: str = ""

    @classmethod
    def of(cls, message: Message) -> ListPlace:
        return cls(message.ts, message.bucket, message.id)

    @classmethod
    def of_letter(cls, letter: DeadLetter) -> ListPlace:
        return cls(letter.died, 0, letter.message.id)

    def to_text(self) -> str:
        """For clients, which give it back to continue."""
        parts = self if self.group else self[:3]
        return base64.urlsafe_b64encode(json.dumps(parts).encode()).decode()

    @classmethod
    def from_text(cls, text: str) -> ListPlace | None:
        """None for an empty text: the beginning. Raises `InvalidInput`."""
        if not text:
            return None
        if len(text) > _MOST_PLACE_CHARACTERS:
            raise InvalidInput(_NO_PLACE)
        try:
            parts = json.loads(base64.urlsafe_b64decode(text.encode()))
        except (binascii.Error, ValueError, RecursionError):
            parts = None
        types = [type(each) for each in parts] if isinstance(parts, list) else []
        if types not in ([int, int, str], [int, int, str, str]):
            raise InvalidInput(_NO_PLACE)
        place = cls(*parts)
        is_time = 0 <= place.ts <= 2 * MAX_TIME_MS  # a lease may end behind the last millisecond
        begins_group = bool(place.group) and not place.id
        if not is_time or place.bucket < 0 or (id_problem(place.id) and not begins_group):
            raise InvalidInput(_NO_PLACE)
        if place.group and name_problem("producer group", place.group):
            raise InvalidInput(_NO_PLACE)
        return place
