"""Dead letters: what could not be delivered."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated

from fastapi import APIRouter, Query

from chronoline.broker.context import Parts
from chronoline.broker.http.fields import TopicName
from chronoline.broker.http.requests import AskedDiscard, AskedRedrive
from chronoline.broker.http.responses import LettersTold, LetterTold, OutcomesTold
from chronoline.broker.http.router import (
    OF_A_CHANGE,
    OF_A_TOPIC,
    WITH_A_BODY,
    new_router,
    problems,
    told,
)
from chronoline.broker.http.topic_finder import Finder
from chronoline.broker.letter_pages import letter_place
from chronoline.broker.limits import check_batch
from chronoline.core.errors import InvalidInput
from chronoline.core.limits import id_problem, time_problem
from chronoline.core.message import DeadLetter

_PAGE = 100
_MOST = 1_000
_NO_PLACE = "after is not what `next` said of a page"


class DeadLetters:
    """One method for each route."""

    def __init__(self, parts: Parts, finder: Finder) -> None:
        self._parts = parts
        self._finder = finder

    def router(self) -> APIRouter:
        router = new_router("dead letters")
        changing = problems(WITH_A_BODY, OF_A_TOPIC, OF_A_CHANGE)
        place = "/topics/{topic}/dead"
        router.get(place, responses=problems(OF_A_TOPIC), response_model_exclude_none=True)(
            self.list_dead_letters
        )
        for name in ("redrive", "discard"):
            router.post(f"{place}/{name}", responses=changing, response_model_exclude_none=True)(
                getattr(self, name)
            )
        return router

    async def redrive(self, topic: TopicName, asked: AskedRedrive) -> OutcomesTold:
        """Put dead letters back on the timeline, with no attempts counted."""
        check_batch(len(asked.ids), self._parts.limits)
        now_ms = self._parts.access.clock.now_ms()
        given_ms = asked.at_ms(now_ms)
        due_ms = now_ms if given_ms is None else given_ms
        outcomes = await self._finder.on(
            topic, lambda found: self._parts.carrier.redrive(found.uid, asked.ids, due_ms)
        )
        return await told(outcomes, "due")

    async def discard(self, topic: TopicName, asked: AskedDiscard) -> OutcomesTold:
        """Delete dead letters."""
        check_batch(len(asked.ids), self._parts.limits)
        outcomes = await self._finder.on(
            topic, lambda found: self._parts.carrier.discard(found.uid, asked.ids)
        )
        return await told(outcomes)

    async def list_dead_letters(
        self,
        topic: TopicName,
        limit: Annotated[int, Query(ge=1, le=_MOST)] = _PAGE,
        after: Annotated[
            str | None, Query(description="What `next` said of the page before.")
        ] = None,
    ) -> LettersTold:
        """List dead letters, oldest first."""
        place = None if after is None else _place(after)
        letters = await self._finder.on(
            topic,
            lambda found: self._parts.carrier.dead_letters(found.uid, after=place, limit=limit),
        )
        return LettersTold(
            letters=[LetterTold.of(each) for each in letters],
            next=_word(letters[-1]) if len(letters) == limit else None,
        )


def _word(letter: DeadLetter) -> str:
    """A place, as something that may stand in a query."""
    return base64.urlsafe_b64encode(f"{letter.died} {letter.message.id}".encode()).decode()


def _place(word: str) -> DeadLetter:
    try:
        died, _, message_id = base64.urlsafe_b64decode(word).decode().partition(" ")
        died_ms = int(died)
    except (binascii.Error, ValueError):
        raise InvalidInput(_NO_PLACE) from None
    if time_problem("died", died_ms) or id_problem(message_id):
        raise InvalidInput(_NO_PLACE)
    return letter_place(message_id, died_ms)
