"""Routes of exports and imports: whole messages and dead letters, page by page, as in exported files."""

from __future__ import annotations

from typing import Annotated, Self

from fastapi import APIRouter, Query
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SkipValidation, WithJsonSchema

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
    HEADER_VALUE_SCHEMA,
    Headers,
    Id,
    Milliseconds,
    ProducerGroup,
    Reason,
    RequestBody,
    RequestPrincipal,
    TopicName,
    Whole,
    checked,
    in_slices,
)
from chronoline.broker.http.responses import OutcomesResponse, ShownHeaders, outcomes_response
from chronoline.broker.limits import check_batch
from chronoline.broker.topics import TopicsByName
from chronoline.core.filters import ListPlace
from chronoline.core.message import SavedMessage
from chronoline.core.outcome import Outcome
from chronoline.core.rights import RightKind
from chronoline.core.topic import Topic
from chronoline.runtime import audit
from chronoline.runtime.json_bytes import JsonBytes, json_bytes, json_headers, parse_json_bytes
from chronoline.stores.transfer import export_page

_PAGE = 100
_MOST = 1_000
_PAGE_BYTES = 1024 * 1024
"""The contents of a page: it is made in one turn of the event loop."""

_Shown = Annotated[JsonBytes, WithJsonSchema(HEADER_VALUE_SCHEMA)]
_Bytes = Annotated[
    bytes | None,
    BeforeValidator(lambda value: parse_json_bytes(value, "the value")),
    WithJsonSchema(HEADER_VALUE_SCHEMA),
]


class SavedMessageResponse(BaseModel):
    """A message or a dead letter with everything but its lease."""

    id: str
    due_ms: int
    expires_ms: int | None = None
    attempts: int
    producer_group: str
    key: _Shown = None
    headers: ShownHeaders
    body: _Shown = None
    reason: str | None = Field(default=None, description="Why a dead letter died.")
    died_ms: int | None = None

    @classmethod
    def of(cls, saved: SavedMessage) -> Self:
        return cls(
            id=saved.id,
            due_ms=saved.due,
            expires_ms=saved.expires,
            attempts=saved.attempts,
            producer_group=saved.producer_group,
            key=json_bytes(saved.key),
            headers=json_headers(saved.headers),
            body=json_bytes(saved.body),
            reason=saved.reason if saved.is_dead else None,
            died_ms=saved.died if saved.is_dead else None,
        )


class ExportResponse(BaseModel):
    """A page of an export."""

    messages: list[SavedMessageResponse]
    next: str | None = Field(default=None, description="Where the next page begins.")


class SavedMessageFields(RequestBody):
    """A message or a dead letter, as an export has it."""

    id: Id
    due_ms: Milliseconds
    expires_ms: Milliseconds | None = None
    attempts: Annotated[Whole, Field(ge=0)] = 0
    producer_group: ProducerGroup
    key: _Bytes = None
    headers: Headers = ()
    body: _Bytes = None
    reason: Reason | None = Field(default=None, description="Why a dead letter died.")
    died_ms: Milliseconds | None = None

    def to_saved(self) -> SavedMessage:
        return SavedMessage(
            id=self.id,
            due=self.due_ms,
            expires=self.expires_ms,
            attempts=self.attempts,
            producer_group=self.producer_group,
            key=self.key,
            headers=self.headers,
            body=self.body,
            reason=self.reason or "",
            died=self.died_ms or 0,
        )


class ImportRequest(RequestBody):
    """A batch of an import."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "messages": [
                        {
                            "id": "u1",
                            "due_ms": 1_900_000_000_000,
                            "producer_group": "g",
                            "body": "x",
                        }
                    ]
                }
            ]
        }
    )

    messages: list[SkipValidation[SavedMessageFields]]


class TransferRoutes:
    """One method for each route."""

    def __init__(self, parts: BrokerContext, topics: TopicsByName) -> None:
        self._parts = parts
        self._topics = topics

    def router(self) -> APIRouter:
        router = new_router("operators")
        topic = "/topics/{topic}"
        router.get(f"{topic}/export", responses=problems(OF_A_TOPIC))(self.export)
        changing = problems(WITH_A_BODY, OF_A_TOPIC, OF_A_CHANGE)
        router.post(f"{topic}/import", responses=changing, name="import")(self.import_)
        return router

    async def export(
        self,
        principal: RequestPrincipal,
        topic: TopicName,
        dead_letters: Annotated[
            bool, Query(description="The dead letters instead of the messages.")
        ] = False,
        limit: Annotated[int, Query(ge=1, le=_MOST)] = _PAGE,
        after: Annotated[
            str, Query(description="The `next` of the previous page.", max_length=2_000)
        ] = "",
    ) -> ExportResponse:
        """Read a page of whole messages or dead letters, with their bodies."""
        principal.check(RightKind.ADMINISTER, topic)
        place, now_ms = ListPlace.from_text(after), self._parts.clock.now_ms()

        async def read(known: Topic) -> tuple[list[SavedMessage], ListPlace | None]:
            return await self._parts.carrier.read(
                "export",
                known.uid,
                lambda store: export_page(
                    store,
                    known.uid,
                    dead_letters=dead_letters,
                    after=place,
                    limit=limit,
                    most_bytes=_PAGE_BYTES,
                    now_ms=now_ms,
                ),
            )

        saved, more = await self._topics.on(topic, read)
        return ExportResponse(
            messages=await in_slices(saved, SavedMessageResponse.of),
            next=None if more is None else more.to_text(),
        )

    @needs_one_of(RightKind.ADMINISTER)
    async def import_(
        self, principal: RequestPrincipal, topic: TopicName, request: ImportRequest
    ) -> OutcomesResponse:
        """Create messages and dead letters as an export has them. Existing ids are kept as they are."""
        principal.check(RightKind.ADMINISTER, topic)
        check_batch(len(request.messages), self._parts.limits)
        items = await checked(SavedMessageFields, request.messages, "messages")
        saved = await in_slices(items, SavedMessageFields.to_saved)

        async def restore(known: Topic) -> list[Outcome]:
            return await self._parts.carrier.restore(known.uid, saved)

        outcomes = await self._topics.on(topic, restore)
        audit.note_outcomes(outcomes)
        return await outcomes_response(outcomes)
