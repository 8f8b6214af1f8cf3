"""Routes of topics, with their requests."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import ConfigDict, Field

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
    RackName,
    Reason,
    RequestBody,
    RequestPrincipal,
    TopicName,
    Whole,
)
from chronoline.broker.http.responses import (
    DropTopicResponse,
    PreferredBrokerResponse,
    PreferredBrokersResponse,
    TopicResponse,
    TopicsResponse,
)
from chronoline.broker.principals import visible_topic
from chronoline.broker.topics import TopicsByName
from chronoline.core.callback_url import MAX_URL_CHARACTERS
from chronoline.core.limits import MAX_NAME_BYTES
from chronoline.core.rights import RightKind
from chronoline.core.selector import ClientKind
from chronoline.core.topic import TopicSettings

_FOUND: dict[int | str, dict[str, Any]] = {
    int(HTTPStatus.OK): {"model": TopicResponse, "description": "The topic exists, or was created."}
}


class TopicSettingsRequest(RequestBody):
    """The settings of a topic; a missing one has its default, or stays as it is."""

    buckets: Whole | None = Field(default=None, description="The number of its buckets.")
    window_ms: Whole | None = None
    default_lease_ms: Whole | None = None
    max_attempts: Whole | None = None
    max_lateness_ms: Whole | None = None
    dedupe_ms: Whole | None = None
    dead_letters: bool | None = None
    largest_body_bytes: Whole | None = None
    target: Annotated[str, Field(max_length=MAX_URL_CHARACTERS)] | None = Field(
        default=None,
        description="A URL that is called with each message at its due, instead of consumers.",
        examples=["https://example.com/remind"],
    )
    most_per_s: Whole | None = Field(default=None, description="The most deliveries a second.")
    most_in_flight: Whole | None = Field(
        default=None, description="The most messages under a live lease at a time."
    )
    spread_ms: Whole | None = Field(
        default=None,
        description="A message falls due up to this much later than asked, by the hash of its id.",
    )
    group_waiting: Whole | None = Field(
        default=None, description="The most messages of one producer group on the timeline."
    )
    group_creates_per_s: Whole | None = Field(
        default=None, description="The most creates of one producer group a second."
    )

    def to_settings(self) -> TopicSettings:
        return TopicSettings(**self.model_dump(exclude_none=True))


class CreateTopicRequest(RequestBody):
    """A topic to create."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"name": "reminders", "settings": {"default_lease_ms": 60000}}]
        }
    )

    name: Annotated[str, Field(min_length=1, max_length=MAX_NAME_BYTES)]
    settings: TopicSettingsRequest = TopicSettingsRequest()
    if_missing: bool = Field(default=False, description="Returns an existing topic unchanged.")


class ChangeTopicRequest(RequestBody):
    """New settings of a topic."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"settings": {"dedupe_ms": 3600000, "max_lateness_ms": None}}]
        }
    )

    settings: TopicSettingsRequest = Field(
        description="Missing ones stay as they are; null removes an optional one."
    )
    revision: Whole | None = Field(
        default=None, description="The revision that the topic must have: else it is refused."
    )


class PauseRequest(RequestBody):
    """Why a topic is paused."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"reason": "the mail server is down"}]}
    )

    reason: Reason = ""


class TopicRoutes:
    """One method for each route."""

    def __init__(self, parts: BrokerContext, topics: TopicsByName) -> None:
        self._parts = parts
        self._topics = topics

    def router(self) -> APIRouter:
        router = new_router("topics")
        router.get("/topics", responses=problems())(self.list_topics)
        router.post(
            "/topics",
            status_code=HTTPStatus.CREATED,
            responses={**problems(WITH_A_BODY, OF_A_CHANGE, [HTTPStatus.CONFLICT]), **_FOUND},
        )(self.create_topic)
        one = "/topics/{topic}"
        router.get(one, responses=problems(OF_A_TOPIC))(self.get_topic)
        router.get(f"{one}/brokers", responses=problems(OF_A_TOPIC))(self.preferred_brokers)
        changing = {**problems(WITH_A_BODY, OF_A_TOPIC, OF_A_CHANGE, [HTTPStatus.CONFLICT])}
        router.patch(one, responses=changing)(self.change_topic)
        router.post(f"{one}/pause", responses=changing)(self.pause_topic)
        router.post(f"{one}/resume", responses=problems(OF_A_TOPIC, OF_A_CHANGE))(self.resume_topic)
        router.delete(one, responses=problems(OF_A_TOPIC, OF_A_CHANGE))(self.drop_topic)
        return router

    @needs_one_of(RightKind.ADMINISTER)
    async def create_topic(
        self, principal: RequestPrincipal, request: CreateTopicRequest, response: Response
    ) -> TopicResponse:
        """Create a topic."""
        principal.check(RightKind.ADMINISTER, request.name)
        with self._command("create_topic"):
            topic = await self._parts.topics.create(
                request.name, request.settings.to_settings(), if_missing=request.if_missing
            )
        if request.if_missing:
            response.status_code = HTTPStatus.OK
        return TopicResponse.of(topic)

    async def get_topic(self, principal: RequestPrincipal, topic: TopicName) -> TopicResponse:
        """Show a topic."""
        principal.check_touches(topic)
        with self._command("get_topic"):
            found = await self._topics.find(topic)
        return TopicResponse.of(visible_topic(principal, found))

    async def preferred_brokers(
        self,
        principal: RequestPrincipal,
        topic: TopicName,
        kind: Annotated[
            ClientKind, Query(description="Of the client, whose own number counts.")
        ] = ClientKind.CONSUMER,
        rack: Annotated[
            RackName, Query(description="Of the client; brokers of this rack come first.")
        ] = "",
    ) -> PreferredBrokersResponse:
        """List the brokers in the order in which clients of a topic should try them."""
        principal.check_touches(topic)
        with self._command("prefer"):
            found = visible_topic(principal, await self._topics.find(topic))
            order = self._parts.overseer.prefer(found.uid, kind, rack, only_look=True)
        return PreferredBrokersResponse(
            brokers=[
                PreferredBrokerResponse(
                    id=each.record.name,
                    address=each.record.address,
                    rack=each.record.rack,
                    health=each.health.value,
                )
                for each in order
            ]
        )

    @needs_one_of(RightKind.ADMINISTER)
    async def change_topic(
        self, principal: RequestPrincipal, topic: TopicName, request: ChangeTopicRequest
    ) -> TopicResponse:
        """Change settings of a topic. One that cannot change is refused with the reason."""
        principal.check(RightKind.ADMINISTER, topic)
        given = request.settings.model_dump(exclude_unset=True)
        with self._command("change_topic"):
            changed = await self._topics.on(
                topic,
                lambda found: self._parts.topics.change(
                    found.uid, lambda before: replace(before, **given), revision=request.revision
                ),
            )
        return TopicResponse.of(changed)

    @needs_one_of(RightKind.ADMINISTER)
    async def pause_topic(
        self, principal: RequestPrincipal, topic: TopicName, request: PauseRequest
    ) -> TopicResponse:
        """Pause a topic: its consumers get nothing until it is resumed, and producers may send."""
        principal.check(RightKind.ADMINISTER, topic)
        with self._command("pause_topic"):
            paused = await self._topics.on(
                topic,
                lambda found: self._parts.topics.pause(
                    found.uid, by=principal.name, reason=request.reason
                ),
            )
        return TopicResponse.of(paused)

    async def resume_topic(self, principal: RequestPrincipal, topic: TopicName) -> TopicResponse:
        """End the pause of a topic."""
        principal.check(RightKind.ADMINISTER, topic)
        with self._command("resume_topic"):
            resumed = await self._topics.on(
                topic, lambda found: self._parts.topics.resume(found.uid)
            )
        return TopicResponse.of(resumed)

    async def drop_topic(self, principal: RequestPrincipal, topic: TopicName) -> DropTopicResponse:
        """Delete a topic, and everything on it."""
        principal.check(RightKind.ADMINISTER, topic)
        with self._command("drop_topic"):
            found = await self._topics.find(topic)
            return DropTopicResponse(dropped=await self._parts.topics.delete(found.uid))

    async def list_topics(self, principal: RequestPrincipal) -> TopicsResponse:
        """List the topics to which the token has any right, by name."""
        with self._command("list_topics"):
            topics = await self._parts.topics.list()
        return TopicsResponse(
            topics=[
                TopicResponse.of(visible_topic(principal, found))
                for found in topics
                if principal.rights.touches(found.name)
            ]
        )

    def _command(self, name: str) -> AbstractContextManager[None]:
        return self._parts.metrics.command(name, "")
