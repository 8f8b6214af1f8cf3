"""What producers ask for."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Query

from chronoline.broker.context import Parts
from chronoline.broker.http.fields import MessageId, ProducerGroup, TopicName
from chronoline.broker.http.requests import (
    AskedBatch,
    AskedCancel,
    AskedCreate,
    AskedNew,
    AskedReschedule,
)
from chronoline.broker.http.responses import OutcomesTold, OutcomeTold
from chronoline.broker.http.router import (
    OF_A_CHANGE,
    OF_A_TOPIC,
    OF_ONE_MESSAGE,
    WITH_A_BODY,
    new_router,
    only,
    problems,
    told,
)
from chronoline.broker.http.slices import checked, in_slices
from chronoline.broker.http.topic_finder import Finder
from chronoline.broker.limits import check_batch
from chronoline.core.change import Change
from chronoline.core.errors import InvalidInput
from chronoline.core.message import DEFAULT_PRODUCER_GROUP, NewMessage
from chronoline.core.outcome import Outcome
from chronoline.core.permissions import Operation


class Producing:
    """One method for each route."""

    def __init__(self, parts: Parts, finder: Finder) -> None:
        self._parts = parts
        self._finder = finder

    def router(self) -> APIRouter:
        router = new_router("producing")
        message = "/topics/{topic}/messages/{id}"
        of_one = problems(WITH_A_BODY, OF_A_TOPIC, OF_A_CHANGE, OF_ONE_MESSAGE)
        router.put(
            message,
            status_code=HTTPStatus.CREATED,
            responses=of_one,
            response_model_exclude_none=True,
        )(self.create_message)
        router.post(
            "/topics/{topic}/messages",
            responses=problems(WITH_A_BODY, OF_A_TOPIC, OF_A_CHANGE),
            response_model_exclude_none=True,
        )(self.create_messages)
        router.post(f"{message}/reschedule", responses=of_one, response_model_exclude_none=True)(
            self.reschedule_message
        )
        router.delete(
            message,
            responses=problems(OF_A_TOPIC, OF_A_CHANGE, OF_ONE_MESSAGE),
            response_model_exclude_none=True,
        )(self.cancel_message)
        router.post(
            "/topics/{topic}/cancel",
            responses=problems(WITH_A_BODY, OF_A_TOPIC, OF_A_CHANGE),
            response_model_exclude_none=True,
        )(self.cancel_messages)
        return router

    async def create_message(
        self, topic: TopicName, id: MessageId, asked: AskedCreate
    ) -> OutcomeTold:
        """Put a message on a topic's timeline.

        Ask again with the same id when the outcome is unknown: 409 `exists` then says that it had succeeded.
        """
        now_ms = self._parts.access.clock.now_ms()
        message = asked.to_message(id, asked.producer_group, now_ms)
        outcome = only(await self._create(topic, [message], replace=asked.if_exists == "replace"))
        return OutcomeTold.of(outcome, due=message.due)

    async def create_messages(self, topic: TopicName, asked: AskedBatch) -> OutcomesTold:
        """Put messages on a topic's timeline, each with an outcome of its own."""
        check_batch(len(asked.messages), self._parts.limits)
        now_ms = self._parts.access.clock.now_ms()
        shaped = await checked(AskedNew, asked.messages, "messages")
        messages = await in_slices(shaped, lambda each: each.to_new(asked.producer_group, now_ms))
        outcomes = await self._create(topic, messages, replace=asked.if_exists == "replace")
        return await told(outcomes, "due", [each.due for each in messages])

    async def _create(
        self, topic: str, messages: Sequence[NewMessage], *, replace: bool
    ) -> list[Outcome]:
        return await self._finder.on(
            topic,
            lambda found: self._parts.carrier.create(found.uid, messages, replace=replace),
        )

    async def reschedule_message(
        self, topic: TopicName, id: MessageId, asked: AskedReschedule
    ) -> OutcomeTold:
        """Move a message of the own producer group to another due."""
        due_ms = asked.at_ms(self._parts.access.clock.now_ms())
        if due_ms is None:
            raise InvalidInput("say when: due, due_ms, in or delay_ms")
        outcomes = await self._finder.on(
            topic,
            lambda found: self._parts.carrier.reschedule(
                found.uid, [(id, due_ms)], producer_group=asked.producer_group
            ),
        )
        return OutcomeTold.of(only(outcomes), due=due_ms)

    async def cancel_message(
        self,
        topic: TopicName,
        id: MessageId,
        producer_group: Annotated[ProducerGroup, Query()] = DEFAULT_PRODUCER_GROUP,
    ) -> OutcomeTold:
        """Cancel a message of the own producer group."""
        outcomes = await self._finder.on(
            topic,
            lambda found: self._parts.carrier.cancel(
                found.uid, [id], producer_group=producer_group
            ),
        )
        return OutcomeTold.of(only(outcomes))

    async def cancel_messages(self, topic: TopicName, asked: AskedCancel) -> OutcomesTold:
        """Cancel messages of the own producer group, each with an outcome of its own."""
        check_batch(len(asked.ids), self._parts.limits)
        changes = [Change(Operation.CANCEL, each, asked.producer_group) for each in asked.ids]
        outcomes = await self._finder.on(
            topic,
            lambda found: self._parts.carrier.change(found.uid, changes, again=asked.again),
        )
        return await told(outcomes)
