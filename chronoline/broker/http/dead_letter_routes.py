"""Routes of dead letters, with their requests."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import ConfigDict, Field, SkipValidation

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
    DUE_NAMES,
    DueFields,
    Id,
    ProducerGroup,
    RequestBody,
    RequestPrincipal,
    TopicName,
    at_most_one,
    checked_ids,
)
from chronoline.broker.http.responses import (
    DeadLetterResponse,
    DeadLettersResponse,
    OutcomesResponse,
    outcomes_response,
)
from chronoline.broker.limits import check_batch
from chronoline.broker.principals import check_look, letter_group, visible_letters
from chronoline.broker.topics import TopicsByName
from chronoline.core.change import letter_changes
from chronoline.core.errors import InvalidInput
from chronoline.core.limits import id_problem, time_problem
from chronoline.core.message import DEFAULT_PRODUCER_GROUP, After, DeadLetter
from chronoline.core.permissions import Operation
from chronoline.core.rights import RightKind
from chronoline.runtime import audit

_PAGE = 100
_MOST = 1_000
_NO_PLACE = "after is not the `next` of a page"


class RedriveRequest(DueFields):
    """Dead letters to put back; without a time, at once."""

    model_config = ConfigDict(
        json_schema_extra={**at_most_one(*DUE_NAMES), "examples": [{"ids": ["u1"], "in": "1m"}]}
    )

    ids: list[SkipValidation[Id]]
    producer_group: ProducerGroup = Field(
        default=DEFAULT_PRODUCER_GROUP,
        description="The owner of the letters; administrators change those of any group.",
    )


class DiscardRequest(RequestBody):
    """Dead letters to delete."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"ids": ["u1"]}]})

    ids: list[SkipValidation[Id]]
    producer_group: ProducerGroup = Field(
        default=DEFAULT_PRODUCER_GROUP,
        description="The owner of the letters; administrators change those of any group.",
    )


class DeadLetterRoutes:
    """One method for each route."""

    def __init__(self, parts: BrokerContext, topics: TopicsByName) -> None:
        self._parts = parts
        self._topics = topics

    def router(self) -> APIRouter:
        router = new_router("dead letters")
        changing = problems(WITH_A_BODY, OF_A_TOPIC, OF_A_CHANGE)
        place = "/topics/{topic}/dead"
        router.get(place, responses=problems(OF_A_TOPIC))(self.list_dead_letters)
        for name in ("redrive", "discard"):
            router.post(f"{place}/{name}", responses=changing)(getattr(self, name))
        return router

    @needs_one_of(RightKind.ADMINISTER, RightKind.PRODUCE)
    async def redrive(
        self, principal: RequestPrincipal, topic: TopicName, request: RedriveRequest
    ) -> OutcomesResponse:
        """Put dead letters back on the timeline, with no attempts counted."""
        group = letter_group(principal, topic, request.producer_group)
        check_batch(len(request.ids), self._parts.limits)
        due = After(0) if request.time is None else request.time
        ids = await checked_ids(request.ids)
        changes = letter_changes(Operation.REDRIVE, ids, due, producer_group=group)
        outcomes = await self._topics.on(
            topic, lambda found: self._parts.carrier.change(found.uid, changes)
        )
        audit.note_outcomes(outcomes)
        return await outcomes_response(outcomes, "due")

    @needs_one_of(RightKind.ADMINISTER, RightKind.PRODUCE)
    async def discard(
        self, principal: RequestPrincipal, topic: TopicName, request: DiscardRequest
    ) -> OutcomesResponse:
        """Delete dead letters."""
        group = letter_group(principal, topic, request.producer_group)
        check_batch(len(request.ids), self._parts.limits)
        ids = await checked_ids(request.ids)
        changes = letter_changes(Operation.DISCARD, ids, producer_group=group)
        outcomes = await self._topics.on(
            topic, lambda found: self._parts.carrier.change(found.uid, changes)
        )
        audit.note_outcomes(outcomes)
        return await outcomes_response(outcomes)

    async def list_dead_letters(
        self,
        principal: RequestPrincipal,
        topic: TopicName,
        limit: Annotated[int, Query(ge=1, le=_MOST)] = _PAGE,
        after: Annotated[str | None, Query(description="The `next` of the previous page.")] = None,
    ) -> DeadLettersResponse:
        """List dead letters, oldest first."""
        check_look(principal, topic)
        place = None if after is None else _place(after)
        letters = await self._topics.on(
            topic,
            lambda found: visible_letters(
                self._parts.carrier, principal, found, after=place, limit=limit
            ),
        )
        return DeadLettersResponse(
            letters=[DeadLetterResponse.of(each) for each in letters],
            next=_cursor(letters[-1]) if len(letters) == limit else None,
        )


def _cursor(letter: DeadLetter) -> str:
    """The place of a dead letter in the list, as a parameter of a query."""
    return base64.urlsafe_b64encode(f"{letter.died} {letter.message.id}".encode()).decode()


def _place(cursor: str) -> DeadLetter:
    try:
        died, _, message_id = base64.urlsafe_b64decode(cursor).decode().partition(" ")
        died_ms = int(died)
    except (binascii.Error, ValueError):
        raise InvalidInput(_NO_PLACE) from None
    if time_problem("died", died_ms) or id_problem(message_id):
        raise InvalidInput(_NO_PLACE)
    return DeadLetter.place(message_id, died_ms)
