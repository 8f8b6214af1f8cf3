"""Routes of recurring schedules, with their requests and responses."""

from __future__ import annotations

from functools import partial
from http import HTTPStatus
from typing import Annotated, Any, Literal, Self

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from chronoline.broker.context import BrokerContext
from chronoline.broker.http.app import (
    OF_A_CHANGE,
    OF_A_TOPIC,
    WITH_A_BODY,
    needs_one_of,
    new_router,
    problems,
)
from chronoline.broker.http.requests import (
    AsJson,
    Base64,
    DurationMs,
    Headers,
    Milliseconds,
    MomentMs,
    ProducerGroup,
    RequestBody,
    RequestPrincipal,
    at_most_one,
    decoded_segment,
    exactly_one,
)
from chronoline.broker.http.responses import Moment, ShownHeaders, moments
from chronoline.broker.principals import (
    check_schedule_change,
    visible_schedule,
    visible_schedules,
)
from chronoline.broker.schedules import MOST_LISTED, MOST_TIMES, ShownSchedule
from chronoline.broker.topics import TopicsByName
from chronoline.core.limits import MAX_NAME_BYTES
from chronoline.core.message import DEFAULT_PRODUCER_GROUP
from chronoline.core.rights import RightKind
from chronoline.core.schedule import (
    MIN_INTERVAL_MS,
    CatchUpRule,
    Recurrence,
    Schedule,
    occurrence_id,
)
from chronoline.runtime import audit
from chronoline.runtime.cron import MAX_CRON_CHARACTERS
from chronoline.runtime.json_bytes import json_fields, json_headers

_PAGE = 100
_TIMES = 5
_OF_ONE = (HTTPStatus.NOT_FOUND,)

ScheduleName = Annotated[
    str,
    BeforeValidator(decoded_segment),
    Path(
        alias="schedule", description="The schedule's name, percent-encoded.", examples=["report"]
    ),
]


# Requests and responses


class CreateScheduleRequest(RequestBody):
    """A schedule to create or to change: when it fires, and the message that it sends."""

    model_config = ConfigDict(
        json_schema_extra={
            "allOf": [
                exactly_one("cron", "every", "every_ms"),
                at_most_one("start", "start_ms"),
                at_most_one("body", "body_base64", "json"),
                at_most_one("key", "key_base64"),
            ],
            "examples": [
                {
                    "name": "report",
                    "topic": "reminders",
                    "cron": "0 9 * * MON-FRI",
                    "zone": "Europe/Berlin",
                    "body": "hello",
                },
                {"name": "poll", "topic": "reminders", "every": "15m"},
            ],
        }
    )

    name: Annotated[str, Field(min_length=1, max_length=MAX_NAME_BYTES)]
    topic: Annotated[str, Field(min_length=1, max_length=MAX_NAME_BYTES)]
    cron: Annotated[str, Field(max_length=MAX_CRON_CHARACTERS)] | None = Field(
        default=None,
        description="Minute, hour, day of month, month, day of week; a sixth field in front is the second.",
        examples=["0 9 * * MON-FRI"],
    )
    zone: Annotated[str, Field(max_length=MAX_NAME_BYTES)] | None = Field(
        default=None, description="The zone of cron; UTC without it.", examples=["Europe/Berlin"]
    )
    every: DurationMs | None = Field(default=None, description="The interval; at least 1s.")
    every_ms: Annotated[Milliseconds, Field(ge=MIN_INTERVAL_MS)] | None = None
    start: MomentMs | None = Field(
        default=None,
        description="It does not fire before. An interval counts from here, else from now.",
    )
    start_ms: Milliseconds | None = None
    catch_up: Literal["none", "one", "all"] = Field(
        default="one",
        description="The occurrences to create of those that no broker created in time: "
        "none, the latest one, or all.",
    )
    body: str | None = Field(default=None, description="As text.")
    body_base64: Base64 | None = None
    json_: AsJson | None = Field(default=None, alias="json", description="Any JSON, as the body.")
    key: str | None = None
    key_base64: Base64 | None = None
    headers: Headers = ()
    producer_group: ProducerGroup = DEFAULT_PRODUCER_GROUP
    if_exists: Literal["refuse", "replace"] = Field(
        default="refuse",
        description="Replace changes a schedule of this name. One that says the same is left as it is.",
    )
    dry_run: bool = Field(default=False, description="Write nothing, and answer what would be.")

    @model_validator(mode="after")
    def _check_fields(self) -> Self:
        self._check_at_most_one("cron", "every", "every_ms")
        self._check_at_most_one("start", "start_ms")
        self._check_at_most_one("body", "body_base64", "json")
        self._check_at_most_one("key", "key_base64")
        return self

    def to_schedule(self, topic_uid: int) -> Schedule:
        """Raises `InvalidInput`."""
        return Schedule(
            name=self.name,
            topic_uid=topic_uid,
            recurrence=Recurrence(
                cron=self.cron,
                zone="UTC" if self.zone is None else self.zone,
                every_ms=self.every if self.every is not None else self.every_ms,
                start_ms=self.start if self.start is not None else self.start_ms,
            ),
            catch_up=CatchUpRule(self.catch_up),
            producer_group=self.producer_group,
            body=self._body(),
            key=self.key.encode() if self.key is not None else self.key_base64,
            headers=self.headers,
        )

    def _body(self) -> bytes | None:
        given = None if self.body is None else self.body.encode()
        for each in (given, self.body_base64, self.json_):
            if each is not None:
                return each
        return None if "body" in self.model_fields_set else b""


class OccurrenceResponse(BaseModel):
    """One time of a schedule."""

    id: str = Field(description="The id of its message, once that is created.")
    due: Moment
    due_ms: int


class ScheduleResponse(BaseModel):
    """A schedule."""

    name: str
    topic: str
    cron: str | None = None
    zone: str
    every_ms: int | None = None
    start: Moment | None = None
    start_ms: int | None = None
    catch_up: str
    producer_group: str
    paused: bool
    next: Moment | None = Field(
        default=None, description="The first occurrence that was not created yet."
    )
    next_ms: int | None = None
    times: list[OccurrenceResponse] = Field(
        description="Its next times, created or not; one in a list."
    )
    key: str | None = None
    key_base64: str | None = None
    headers: ShownHeaders
    body: str | None = None
    body_base64: str | None = None
    problem: str | None = Field(default=None, description="Why it does not fire.")

    @classmethod
    def of(cls, shown: ShownSchedule) -> Self:
        schedule, topic, _ = shown
        recurrence = schedule.recurrence
        return cls(
            name=schedule.name,
            topic=topic.name,
            cron=recurrence.cron,
            zone=recurrence.zone,
            every_ms=recurrence.every_ms,
            catch_up=schedule.catch_up.value,
            producer_group=schedule.producer_group,
            paused=schedule.paused,
            times=_occurrences(shown),
            headers=json_headers(schedule.headers),
            problem=schedule.problem or None,
            **json_fields(key=schedule.key, body=schedule.body),
            **moments(start=recurrence.start_ms, next=schedule.next_ms),
        )


class SchedulesResponse(BaseModel):
    """A page of schedules, by name."""

    schedules: list[ScheduleResponse]
    next: str | None = Field(
        default=None, description="The `after` of the next page, if there may be one."
    )


class NextTimesResponse(BaseModel):
    """The next times of a schedule, as if it were not paused."""

    times: list[OccurrenceResponse]


class DeleteScheduleResponse(BaseModel):
    """The outcome of deleting a schedule."""

    deleted: bool = Field(description="False if there is none.")


def _occurrences(shown: ShownSchedule) -> list[OccurrenceResponse]:
    name = shown.schedule.name
    return [
        OccurrenceResponse(id=occurrence_id(name, each), **moments(due=each))
        for each in shown.times
    ]


# Routes


class ScheduleRoutes:
    """One method for each route."""

    def __init__(self, parts: BrokerContext, topics: TopicsByName) -> None:
        self._parts = parts
        self._schedules = parts.schedules
        self._topics = topics

    def router(self) -> APIRouter:
        router = new_router("schedules")
        found: dict[int | str, dict[str, Any]] = problems(_OF_ONE)
        changed = problems(_OF_ONE, OF_A_CHANGE)
        router.get("/schedules", responses=problems(OF_A_TOPIC))(self.list_schedules)
        router.post(
            "/schedules",
            responses=problems(WITH_A_BODY, _OF_ONE, OF_A_CHANGE, [HTTPStatus.CONFLICT]),
        )(self.create_schedule)
        one = "/schedules/{schedule}"
        router.get(one, responses=found)(self.get_schedule)
        router.get(f"{one}/next", responses=found)(self.next_times)
        router.post(f"{one}/pause", responses=changed)(self.pause_schedule)
        router.post(f"{one}/resume", responses=changed)(self.resume_schedule)
        router.delete(one, responses=changed)(self.delete_schedule)
        return router

    async def list_schedules(
        self,
        principal: RequestPrincipal,
        topic: Annotated[str | None, Query(description="Only those of this topic.")] = None,
        limit: Annotated[int, Query(ge=1, le=MOST_LISTED)] = _PAGE,
        after: Annotated[str, Query(description="The `next` of the previous page.")] = "",
    ) -> SchedulesResponse:
        """List the schedules that the token may see, by name, without their bodies."""
        with self._parts.metrics.command("list_schedules", ""):
            uid = None
            if topic is not None:
                principal.check_touches(topic)
                uid = (await self._topics.find(topic)).uid
            found = await visible_schedules(
                self._schedules,
                self._parts.topics,
                principal,
                topic_uid=uid,
                after=after,
                limit=limit,
            )
        return SchedulesResponse(
            schedules=[ScheduleResponse.of(each) for each in found],
            next=found[-1].schedule.name if len(found) == limit else None,
        )

    @needs_one_of(RightKind.ADMINISTER, RightKind.PRODUCE)
    async def create_schedule(
        self, principal: RequestPrincipal, request: CreateScheduleRequest
    ) -> ScheduleResponse:
        """Create a schedule, or change one. The answer has its next times."""
        audit.note(request.topic)
        principal.check_touches(request.topic)
        with self._parts.metrics.command("put_schedule", ""):
            topic = await self._topics.find(request.topic)
            stored = await self._schedules.create(
                request.to_schedule(topic.uid),
                partial(check_schedule_change, principal),
                replacing=request.if_exists == "replace",
                dry_run=request.dry_run,
            )
            return ScheduleResponse.of(await self._schedules.shown(stored, _TIMES))

    async def get_schedule(
        self, principal: RequestPrincipal, schedule: ScheduleName
    ) -> ScheduleResponse:
        """Show a schedule. Its body is shown to its producer group and to administrators."""
        with self._parts.metrics.command("get_schedule", ""):
            shown = await visible_schedule(self._schedules, principal, schedule, _TIMES)
            return ScheduleResponse.of(shown)

    async def next_times(
        self,
        principal: RequestPrincipal,
        schedule: ScheduleName,
        count: Annotated[int, Query(ge=1, le=MOST_TIMES)] = 10,
    ) -> NextTimesResponse:
        """List the next times of a schedule."""
        with self._parts.metrics.command("get_schedule", ""):
            shown = await visible_schedule(self._schedules, principal, schedule, count)
            return NextTimesResponse(times=_occurrences(shown))

    @needs_one_of(RightKind.ADMINISTER, RightKind.PRODUCE)
    async def pause_schedule(
        self, principal: RequestPrincipal, schedule: ScheduleName
    ) -> ScheduleResponse:
        """Pause a schedule, and cancel the occurrences that were created ahead."""
        with self._parts.metrics.command("pause_schedule", ""):
            check = partial(check_schedule_change, principal)
            paused = await self._schedules.pause(schedule, check)
            return ScheduleResponse.of(await self._schedules.shown(paused, 0))

    @needs_one_of(RightKind.ADMINISTER, RightKind.PRODUCE)
    async def resume_schedule(
        self, principal: RequestPrincipal, schedule: ScheduleName
    ) -> ScheduleResponse:
        """Resume a schedule; the occurrences of the pause are left out."""
        with self._parts.metrics.command("resume_schedule", ""):
            check = partial(check_schedule_change, principal)
            resumed = await self._schedules.resume(schedule, check)
            return ScheduleResponse.of(await self._schedules.shown(resumed, 0))

    @needs_one_of(RightKind.ADMINISTER, RightKind.PRODUCE)
    async def delete_schedule(
        self, principal: RequestPrincipal, schedule: ScheduleName
    ) -> DeleteScheduleResponse:
        """Delete a schedule, and cancel the occurrences that were created ahead."""
        with self._parts.metrics.command("delete_schedule", ""):
            check = partial(check_schedule_change, principal)
            return DeleteScheduleResponse(deleted=await self._schedules.delete(schedule, check))
