"""Calls about schedules, with one request and one reply."""

from __future__ import annotations

from functools import partial

from chronoline.broker.context import BrokerContext
from chronoline.broker.principals import (
    Principal,
    allowed_topic,
    check_schedule_change,
    visible_schedule,
    visible_schedules,
)
from chronoline.broker.schedules import MOST_LISTED, ShownSchedule
from chronoline.core.limits import MAX_NAME_BYTES
from chronoline.runtime import audit
from chronoline.wire.codec import schedule_from_wire, schedule_to_wire
from chronoline.wire.v1 import chronoline_pb2 as pb


class ScheduleCalls:
    """One method for each call, under its name in the protocol."""

    def __init__(self, parts: BrokerContext) -> None:
        self._parts = parts
        self._schedules = parts.schedules

    async def PutSchedule(self, asked: pb.PutScheduleRequest, principal: Principal) -> pb.Schedule:
        given = asked.schedule

        def check(topic: str) -> None:
            audit.note(topic, schedule=given.name[:MAX_NAME_BYTES])
            principal.check_touches(topic)

        with self._parts.metrics.command("put_schedule", ""):
            await allowed_topic(self._parts.topics, principal, given.topic_uid, check)
            stored = await self._schedules.create(
                schedule_from_wire(given),
                partial(check_schedule_change, principal),
                replacing=asked.replace,
                dry_run=asked.dry_run,
            )
            return _to_wire(await self._schedules.shown(stored, asked.times))

    async def GetSchedule(self, asked: pb.GetScheduleRequest, principal: Principal) -> pb.Schedule:
        with self._parts.metrics.command("get_schedule", ""):
            found = await visible_schedule(self._schedules, principal, asked.name, asked.times)
            return _to_wire(found)

    async def ListSchedules(
        self, asked: pb.ListSchedulesRequest, principal: Principal
    ) -> pb.SchedulePage:
        with self._parts.metrics.command("list_schedules", ""):
            found = await visible_schedules(
                self._schedules,
                self._parts.topics,
                principal,
                topic_uid=asked.topic_uid if asked.HasField("topic_uid") else None,
                after=asked.after,
                limit=min(asked.limit or MOST_LISTED, MOST_LISTED),
            )
        return pb.SchedulePage(schedules=[_to_wire(each) for each in found])

    async def PauseSchedule(self, asked: pb.ScheduleRef, principal: Principal) -> pb.Schedule:
        with self._parts.metrics.command("pause_schedule", ""):
            check = partial(check_schedule_change, principal)
            paused = await self._schedules.pause(asked.name, check)
            return _to_wire(await self._schedules.shown(paused, 0))

    async def ResumeSchedule(self, asked: pb.ScheduleRef, principal: Principal) -> pb.Schedule:
        with self._parts.metrics.command("resume_schedule", ""):
            check = partial(check_schedule_change, principal)
            resumed = await self._schedules.resume(asked.name, check)
            return _to_wire(await self._schedules.shown(resumed, 0))

    async def DeleteSchedule(self, asked: pb.ScheduleRef, principal: Principal) -> pb.Dropped:
        with self._parts.metrics.command("delete_schedule", ""):
            check = partial(check_schedule_change, principal)
            return pb.Dropped(dropped=await self._schedules.delete(asked.name, check))


def _to_wire(shown: ShownSchedule) -> pb.Schedule:
    return schedule_to_wire(shown.schedule, shown.topic.name, shown.times)
