"""Topics."""

from __future__ import annotations

from contextlib import AbstractContextManager
from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, Response

from chronoline.broker.context import Parts
from chronoline.broker.http.fields import TopicName
from chronoline.broker.http.requests import AskedTopic
from chronoline.broker.http.responses import DroppedTold, TopicsTold, TopicTold
from chronoline.broker.http.router import (
    OF_A_CHANGE,
    OF_A_TOPIC,
    WITH_A_BODY,
    new_router,
    problems,
)
from chronoline.broker.http.topic_finder import Finder
from chronoline.broker.topic_admin import create_topic, delete_topic


class TopicRoutes:
    """One method for each route."""

    def __init__(self, parts: Parts, finder: Finder) -> None:
        self._parts = parts
        self._finder = finder

    def router(self) -> APIRouter:
        router = new_router("topics")
        made: dict[int | str, dict[str, Any]] = {
            int(HTTPStatus.OK): {"model": TopicTold, "description": "It was there, or is now."}
        }
        router.get("/topics", responses=problems(), response_model_exclude_none=True)(
            self.list_topics
        )
        router.post(
            "/topics",
            status_code=HTTPStatus.CREATED,
            responses={**problems(WITH_A_BODY, OF_A_CHANGE, [HTTPStatus.CONFLICT]), **made},
            response_model_exclude_none=True,
        )(self.create_topic)
        router.get(
            "/topics/{topic}", responses=problems(OF_A_TOPIC), response_model_exclude_none=True
        )(self.get_topic)
        router.delete("/topics/{topic}", responses=problems(OF_A_TOPIC, OF_A_CHANGE))(
            self.drop_topic
        )
        return router

    async def create_topic(self, asked: AskedTopic, response: Response) -> TopicTold:
        """Make a topic. Its settings never change."""
        with self._command("create_topic"):
            settings = asked.settings.to_settings()
            topic = await create_topic(
                self._parts, asked.name, settings, if_missing=asked.if_missing
            )
        if asked.if_missing:
            response.status_code = HTTPStatus.OK
        return TopicTold.of(topic)

    async def get_topic(self, topic: TopicName) -> TopicTold:
        """Show a topic."""
        with self._command("get_topic"):
            return TopicTold.of(await self._finder.find(topic))

    async def drop_topic(self, topic: TopicName) -> DroppedTold:
        """Drop a topic, and everything on it."""
        with self._command("drop_topic"):
            found = await self._finder.find(topic)
            return DroppedTold(dropped=await delete_topic(self._parts, found.uid))

    async def list_topics(self) -> TopicsTold:
        """List all topics, by name."""
        with self._command("list_topics"):
            topics = await self._parts.topics.list()
        return TopicsTold(topics=[TopicTold.of(each) for each in topics])

    def _command(self, name: str) -> AbstractContextManager[None]:
        return self._parts.metrics.command(name, "")
