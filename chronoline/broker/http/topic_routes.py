"""Routes of topics."""

from __future__ import annotations

from contextlib import AbstractContextManager
from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, Response

from chronoline.broker.context import BrokerContext
from chronoline.broker.http.app import (
    OF_A_CHANGE,
    OF_A_TOPIC,
    WITH_A_BODY,
    new_router,
    problems,
)
from chronoline.broker.http.requests import CreateTopicRequest, TopicName
from chronoline.broker.http.responses import DropTopicResponse, TopicResponse, TopicsResponse
from chronoline.broker.topics import TopicsByName

_FOUND: dict[int | str, dict[str, Any]] = {
    int(HTTPStatus.OK): {"model": TopicResponse, "description": "The topic exists, or was created."}
}


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
        router.delete(one, responses=problems(OF_A_TOPIC, OF_A_CHANGE))(self.drop_topic)
        return router

    async def create_topic(self, request: CreateTopicRequest, response: Response) -> TopicResponse:
        """Create a topic. Its settings never change."""
        with self._command("create_topic"):
            topic = await self._parts.topics.create(
                request.name, request.settings.to_settings(), if_missing=request.if_missing
            )
        if request.if_missing:
            response.status_code = HTTPStatus.OK
        return TopicResponse.of(topic)

    async def get_topic(self, topic: TopicName) -> TopicResponse:
        """Show a topic."""
        with self._command("get_topic"):
            return TopicResponse.of(await self._topics.find(topic))

    async def drop_topic(self, topic: TopicName) -> DropTopicResponse:
        """Delete a topic, and everything on it."""
        with self._command("drop_topic"):
            found = await self._topics.find(topic)
            return DropTopicResponse(dropped=await self._parts.topics.delete(found.uid))

    async def list_topics(self) -> TopicsResponse:
        """List all topics, by name."""
        with self._command("list_topics"):
            topics = await self._parts.topics.list()
        return TopicsResponse(topics=[TopicResponse.of(each) for each in topics])

    def _command(self, name: str) -> AbstractContextManager[None]:
        return self._parts.metrics.command(name, "")
