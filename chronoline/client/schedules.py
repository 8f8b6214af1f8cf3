"""Recurring schedules, with datetimes and timedeltas."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Self

from chronoline.client.times import Delay, duration_ms, moment_ms
from chronoline.core.errors import InvalidInput
from chronoline.core.message import Header
from chronoline.core.schedule import Recurrence
from chronoline.runtime.timestamps import from_ms
from chronoline.wire.codec import headers_from_wire
from chronoline.wire.v1 import chronoline_pb2 as pb


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A schedule as the broker knows it. Its moments are in UTC."""

    name: str
    topic: str
    cron: str | None
    zone: str
    """The time zone of `cron`."""
    every: timedelta | None
    start: datetime | None
    catch_up: str
    """How many of the occurrences that were not created in time are made up for: `none`, `one` or `all`."""
    producer_group: str
    body: bytes | None
    """None in lists, and for those who may not read it."""
    key: bytes | None
    headers: tuple[Header, ...]
    paused: bool
    next: datetime | None
    """The first occurrence that was not created yet; None if none follows."""
    times: tuple[datetime, ...]
    """The next times, as many as were asked for; in lists one. Some of them may have been created already."""
    problem: str
    """Why it does not fire; empty if nothing prevents it."""

    @classmethod
    def from_wire(cls, wire: pb.Schedule) -> Self:
        return cls(
            name=wire.name,
            topic=wire.topic,
            cron=wire.cron or None,
            zone=wire.zone,
            every=timedelta(milliseconds=wire.every_ms) if wire.every_ms else None,
            start=from_ms(wire.start_ms) if wire.HasField("start_ms") else None,
            catch_up=wire.catch_up,
            producer_group=wire.producer_group,
            body=wire.body if wire.HasField("body") else None,
            key=wire.key if wire.HasField("key") else None,
            headers=headers_from_wire(wire.headers),
            paused=wire.paused,
            next=from_ms(wire.next_ms) if wire.HasField("next_ms") else None,
            times=tuple(from_ms(each) for each in wire.times_ms),
            problem=wire.problem,
        )


def recurrence_of(
    cron: str | None, zone: str | None, every: Delay | None, start: datetime | None
) -> Recurrence:
    """The recurrence that a user gives. Raises `InvalidInput`."""
    for what, value in (("cron", cron), ("zone", zone)):
        if value is not None and not isinstance(value, str):
            raise InvalidInput(f"{what} must be text, not {type(value).__name__}")
    return Recurrence(
        cron=cron,
        zone="UTC" if zone is None else zone,
        every_ms=None if every is None else duration_ms(every, "every"),
        start_ms=None if start is None else moment_ms(start, "start"),
    )
