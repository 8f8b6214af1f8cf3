"""Routes of operators: messages by filter, what became of one, and changes of all that match."""

from __future__ import annotations

from typing import Annotated, Literal, Self, get_args

from fastapi import APIRouter, Query
from pydantic import ConfigDict, Field, model_validator

from chronoline.broker.bulk_changes import BulkRequest, change_matching, check_bulk_change
from chronoline.broker.context import BrokerContext
from chronoline.broker.http.app import (
    OF_A_CHANGE,
    OF_A_TOPIC,
    OF_ONE_MESSAGE,
    WITH_A_BODY,
    needs_one_of,
    new_router,
    problems,
)
from chronoline.broker.http.requests import (
    DUE_NAMES,
    DueFields,
    MessageId,
    Milliseconds,
    MomentMs,
    RequestBody,
    RequestPrincipal,
    TopicName,
    at_most_one,
)
from chronoline.broker.http.responses import (
    ChangedBatchResponse,
    MessageResponse,
    MessagesResponse,
    MessageStateResponse,
    moments,
)
from chronoline.broker.message_states import known_states
from chronoline.broker.principals import check_browse, check_look, may_see_group
from chronoline.broker.topics import TopicsByName
from chronoline.core.errors import Refused
from chronoline.core.filters import ListPlace, MessageFilter, statuses_of
from chronoline.core.limits import MAX_ID_BYTES, MAX_NAME_BYTES
from chronoline.core.message import Message
from chronoline.core.outcome import Outcome, Refusal
from chronoline.core.permissions import Operation
from chronoline.core.rights import RightKind
from chronoline.core.topic import Topic
from chronoline.runtime.timestamps import parse_when_ms
from chronoline.stores.browse import Found, browse
from chronoline.stores.contract import Store

_PAGE = 100
_MOST = 1_000

Status = Literal["available", "processing", "waiting"]
Name = Annotated[str, Field(max_length=MAX_NAME_BYTES)]
Cursor = Annotated[str, Query(description="The `next` of the previous page.", max_length=2_000)]
Moment = Annotated[
    str | None,
    Query(
        description="now, how long ahead or ago (+1h, -10m), or RFC 3339 with its zone.",
        max_length=64,
        json_schema_extra={
            "pattern": r"^(now|[+-]?[0-9]{1,5}(ms|s|m|h)|[0-9]{4}-[0-9]{2}-[0-9T:.Z+-]+)$"
        },
    ),
]


class FilterFields(RequestBody):
    """The messages for which all given conditions hold; without one, all of them."""

    model_config = ConfigDict(
        json_schema_extra={
            "allOf": [at_most_one("start", "start_ms"), at_most_one("end", "end_ms")]
        }
    )

    producer_group: Name = ""
    consumer: Name = Field(default="", description="The holder, or the last one.")
    prefix: Annotated[str, Field(max_length=MAX_ID_BYTES)] = Field(
        default="", description="The beginning of the id."
    )
    start: MomentMs | None = Field(
        default=None, description="The earliest position; of dead letters, when they died."
    )
    start_ms: Milliseconds | None = None
    end: MomentMs | None = Field(default=None, description="The position before which they lie.")
    end_ms: Milliseconds | None = None
    statuses: Annotated[tuple[Status, ...], Field(max_length=len(get_args(Status)))] = ()
    reason: str = Field(default="", description="Why dead letters died.")

    @model_validator(mode="after")
    def _check_moments(self) -> Self:
        self._check_at_most_one("start", "start_ms")
        self._check_at_most_one("end", "end_ms")
        return self

    def to_filter(self) -> MessageFilter:
        start = self.start if self.start is not None else self.start_ms
        return MessageFilter(
            producer_group=self.producer_group,
            consumer=self.consumer,
            prefix=self.prefix,
            start=start or 0,
            end=self.end if self.end is not None else self.end_ms,
            statuses=statuses_of(list(self.statuses)),
            reason=self.reason,
        )


class ChangeMatchingRequest(DueFields):
    """One bounded batch of a change of all messages that match."""

    model_config = ConfigDict(
        json_schema_extra={
            **at_most_one(*DUE_NAMES),
            "examples": [{"operation": "cancel", "filter": {"prefix": "order-7"}, "dry_run": True}],
        }
    )

    operation: Literal["cancel", "reschedule", "redrive", "discard"] = Field(
        description="The last two change dead letters."
    )
    filter: FilterFields = Field(description="An empty one means all of the topic.")
    dry_run: bool = Field(default=False, description="Nothing is changed.")
    after: str = Field(default="", description="The `next` of the previous batch.")
    limit: int = Field(default=_MOST, ge=1, le=_MOST, description="The most messages to look at.")


class OperatorRoutes:
    """One method for each route."""

    def __init__(self, parts: BrokerContext, topics: TopicsByName) -> None:
        self._parts = parts
        self._topics = topics

    def router(self) -> APIRouter:
        router = new_router("operators")
        topic = "/topics/{topic}"
        router.get(f"{topic}/messages", responses=problems(OF_A_TOPIC))(self.list_messages)
        router.get(
            f"{topic}/messages/{{id}}/state", responses=problems(OF_A_TOPIC, OF_ONE_MESSAGE)
        )(self.state)
        router.post(
            f"{topic}/change-matching", responses=problems(WITH_A_BODY, OF_A_TOPIC, OF_A_CHANGE)
        )(self.change_matching)
        return router

    async def list_messages(  # noqa: PLR0917 - the parameters of a query
        self,
        principal: RequestPrincipal,
        topic: TopicName,
        producer_group: Annotated[str, Query(max_length=MAX_NAME_BYTES)] = "",
        consumer: Annotated[str, Query(max_length=MAX_NAME_BYTES)] = "",
        prefix: Annotated[str, Query(max_length=MAX_ID_BYTES)] = "",
        start: Annotated[Moment, Query(alias="from")] = None,
        end: Annotated[Moment, Query(alias="to")] = None,
        status: Annotated[list[Status] | None, Query()] = None,
        limit: Annotated[int, Query(ge=1, le=_MOST)] = _PAGE,
        after: Cursor = "",
    ) -> MessagesResponse:
        """List messages without their bodies: by position, or with a prefix alone by key."""
        check_browse(principal, topic, producer_group)
        now_ms = self._parts.clock.now_ms()
        wanted = MessageFilter(
            producer_group=producer_group,
            consumer=consumer,
            prefix=prefix,
            start=0 if start is None else parse_when_ms(start, "from", now_ms),
            end=None if end is None else parse_when_ms(end, "to", now_ms),
            statuses=statuses_of(list(status or [])),
        )
        place = ListPlace.from_text(after)

        async def read(known: Topic) -> Found[Message]:
            def work(store: Store) -> Found[Message]:
                return browse(store, known.uid, wanted, after=place, limit=limit, now_ms=now_ms)

            return await self._parts.carrier.read("list", known.uid, work)

        found = await self._topics.on(topic, read)
        return MessagesResponse(
            messages=[MessageResponse.of(each, now_ms) for each in found.items],
            next=None if found.next is None else found.next.to_text(),
            **moments(now=now_ms),
        )

    async def state(
        self, principal: RequestPrincipal, topic: TopicName, id: MessageId
    ) -> MessageStateResponse:
        """Say what became of a message; 404 if nothing is known of it, or not any more."""
        check_look(principal, topic)
        now_ms = self._parts.clock.now_ms()
        found = await self._topics.on(
            topic,
            lambda known: self._parts.carrier.read(
                "states",
                known.uid,
                lambda store: known_states(store, known.uid, [id], now_ms=now_ms),
            ),
        )
        if not found or not may_see_group(principal, topic, found[0].producer_group):
            raise Refused([Outcome(id=id, refusal=Refusal.NOT_FOUND)])
        return MessageStateResponse.of(found[0], now_ms)

    @needs_one_of(RightKind.ADMINISTER, RightKind.PRODUCE)
    async def change_matching(
        self, principal: RequestPrincipal, topic: TopicName, request: ChangeMatchingRequest
    ) -> ChangedBatchResponse:
        """Cancel, reschedule, put back or discard what matches: one batch. Repeat it with `next`.

        Messages under a live lease are left alone. Without a producer group it takes the right to administer.
        For further batches of a relative time give the `due_ms` of the first answer.
        """
        wanted = request.filter.to_filter()
        check_bulk_change(principal, topic, wanted)  # before the topic is looked up
        asked = BulkRequest(
            operation=Operation(request.operation),
            wanted=wanted,
            to=request.time,
            dry_run=request.dry_run,
            after=ListPlace.from_text(request.after),
            limit=request.limit,
        )
        answer = await self._topics.on(
            topic, lambda known: change_matching(self._parts, principal, known, asked)
        )
        return ChangedBatchResponse.of(answer)
