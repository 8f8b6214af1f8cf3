"""Routes of messages, with their requests.

Producers create, reschedule and cancel messages, and anybody can look at them.
"""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Annotated, Any, Self

from fastapi import APIRouter, Query, Response
from pydantic import ConfigDict, Field, SkipValidation, model_validator

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
    AsJson,
    Base64,
    ConsumerName,
    DueFields,
    Headers,
    Id,
    IfExists,
    MessageId,
    Milliseconds,
    MomentMs,
    ProducerGroup,
    RequestBody,
    RequestPrincipal,
    SenderContext,
    TopicName,
    at_most_one,
    checked,
    checked_ids,
    exactly_one,
    in_slices,
)
from chronoline.broker.http.responses import (
    CountsResponse,
    ForecastResponse,
    ForecastStepResponse,
    MessageResponse,
    OutcomeResponse,
    OutcomesResponse,
    moments,
    only_outcome,
    outcomes_response,
)
from chronoline.broker.limits import check_batch
from chronoline.broker.principals import check_actor, check_look, may_see
from chronoline.broker.topics import TopicsByName
from chronoline.core.change import Change
from chronoline.core.errors import InvalidInput, Refused
from chronoline.core.limits import MAX_TIME_MS
from chronoline.core.message import DEFAULT_PRODUCER_GROUP, NewMessage
from chronoline.core.outcome import Outcome, Refusal
from chronoline.core.permissions import Actor, Consumer, Operation, Producer
from chronoline.core.rights import RightKind
from chronoline.core.units import parse_duration_ms
from chronoline.runtime.message_ids import new_id
from chronoline.runtime.timestamps import parse_when_ms
from chronoline.runtime.traces import TraceContext, with_context

_MOST_STEPS = 10_000
_BODY_ANSWERS: dict[int | str, dict[str, Any]] = {
    HTTPStatus.OK: {
        "description": "The body, as it is.",
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    },
    HTTPStatus.NO_CONTENT: {"description": "The message has no body."},
}

When = Annotated[
    str,
    Query(
        description="now, how long ahead or ago (+1h, -10m), or RFC 3339 with its zone.",
        max_length=64,
        json_schema_extra={
            "pattern": r"^(now|[+-]?[0-9]{1,5}(ms|s|m|h)|[0-9]{4}-[0-9]{2}-[0-9T:.Z+-]+)$"
        },
    ),
]
Step = Annotated[
    str,
    Query(
        description="Such as 10s, 1m or 1h.",
        max_length=64,
        json_schema_extra={"pattern": r"^[1-9][0-9]{0,3}(s|m|h|d)$"},
    ),
]


# Requests


class MessageContent(DueFields):
    """A message to create: its due and its content."""

    body: str | None = Field(default=None, description="As text.")
    body_base64: Base64 | None = None
    json_: AsJson | None = Field(default=None, alias="json", description="Any JSON, as the body.")
    key: str | None = None
    key_base64: Base64 | None = None
    headers: Headers = ()
    expires: MomentMs | None = None
    expires_ms: Milliseconds | None = None

    @model_validator(mode="after")
    def _check_content(self) -> Self:
        self._check_at_most_one("body", "body_base64", "json")
        self._check_at_most_one("key", "key_base64")
        self._check_at_most_one("expires", "expires_ms")
        return self

    def to_message(
        self, message_id: str, producer_group: str, now_ms: int, sender: TraceContext
    ) -> NewMessage:
        at_ms = self.at_ms(now_ms)
        return NewMessage(
            id=message_id,
            due=now_ms if at_ms is None else at_ms,
            body=self._body(),
            key=self.key.encode() if self.key is not None else self.key_base64,
            headers=with_context(self.headers, sender),
            expires=self.expires if self.expires is not None else self.expires_ms,
            producer_group=producer_group,
        )

    def _body(self) -> bytes | None:
        """Empty without any of the fields. Null as `body` is no body, as `json` it is the JSON null."""
        if self.body is not None:
            return self.body.encode()
        if self.body_base64 is not None:
            return self.body_base64
        if self.json_ is not None:
            return self.json_
        if "body" in self.model_fields_set:
            return None
        return b"null" if "json_" in self.model_fields_set else b""


_CONTENT_RULES: dict[str, Any] = {
    "allOf": [
        at_most_one(*DUE_NAMES),
        at_most_one("body", "body_base64", "json"),
        at_most_one("key", "key_base64"),
        at_most_one("expires", "expires_ms"),
    ]
}


class SendRequest(MessageContent):
    """One message, whose id is in the path."""

    model_config = ConfigDict(
        json_schema_extra={
            **_CONTENT_RULES,
            "examples": [
                {"in": "5s", "body": "hello"},
                {"due": "2030-01-31T12:00:00Z", "json": {"user": 7}, "headers": {"kind": "mail"}},
            ],
        }
    )

    if_exists: IfExists = "refuse"
    producer_group: ProducerGroup = DEFAULT_PRODUCER_GROUP


class BatchMessage(MessageContent):
    """One message of a batch."""

    model_config = ConfigDict(json_schema_extra=_CONTENT_RULES)

    id: Id | None = Field(
        default=None,
        description="Without it the broker makes one: then a repeated request creates the message again.",
    )

    def to_new(self, producer_group: str, now_ms: int, sender: TraceContext) -> NewMessage:
        return self.to_message(self.id or new_id(), producer_group, now_ms, sender)


class SendBatchRequest(RequestBody):
    """Messages to create."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"messages": [{"id": "a", "in": "1m", "body": "one"}, {"id": "b", "in": "2m"}]}
            ]
        }
    )

    messages: list[SkipValidation[BatchMessage]]
    if_exists: IfExists = "refuse"
    producer_group: ProducerGroup = DEFAULT_PRODUCER_GROUP


_RESCHEDULE_RULES: dict[str, Any] = {
    "allOf": [exactly_one(*DUE_NAMES), at_most_one("expires", "expires_ms")]
}


class RescheduleRequest(DueFields):
    """A new due for a message."""

    model_config = ConfigDict(
        json_schema_extra={
            **_RESCHEDULE_RULES,
            "examples": [{"in": "10m"}, {"in": "1h", "expires": "2030-01-31T12:00:00Z"}],
        }
    )

    expires: MomentMs | None = None
    expires_ms: Milliseconds | None = None
    producer_group: ProducerGroup = DEFAULT_PRODUCER_GROUP

    @model_validator(mode="after")
    def _check_expires(self) -> Self:
        self._check_at_most_one("expires", "expires_ms")
        return self

    def to_changes(self, ids: Sequence[str]) -> list[Change]:
        if self.time is None:
            raise InvalidInput("say when: due, due_ms, in or delay_ms")
        expires = self.expires if self.expires is not None else self.expires_ms
        return [
            Change(Operation.RESCHEDULE, each, self.producer_group, to=self.time, expires=expires)
            for each in ids
        ]


class RescheduleBatchRequest(RescheduleRequest):
    """A new due for messages."""

    model_config = ConfigDict(
        json_schema_extra={**_RESCHEDULE_RULES, "examples": [{"ids": ["u1", "u2"], "in": "10m"}]}
    )

    ids: list[SkipValidation[Id]]


class CancelBatchRequest(RequestBody):
    """Messages to cancel."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"ids": ["u1", "u2"]}]})

    ids: list[SkipValidation[Id]]
    producer_group: ProducerGroup = DEFAULT_PRODUCER_GROUP
    again: bool = Field(
        default=False,
        description="This repeats a request that was not answered, or whose outcome was unknown.",
    )


# Routes


class MessageRoutes:
    """One method for each route."""

    def __init__(self, parts: BrokerContext, topics: TopicsByName) -> None:
        self._parts = parts
        self._topics = topics

    def router(self) -> APIRouter:
        router = new_router("messages")
        topic, message = "/topics/{topic}", "/topics/{topic}/messages/{id}"
        of_topic = problems(OF_A_TOPIC)
        of_one = problems(WITH_A_BODY, OF_A_TOPIC, OF_A_CHANGE, OF_ONE_MESSAGE)
        router.put(message, status_code=HTTPStatus.CREATED, responses=of_one)(self.create_message)
        router.post(f"{topic}/messages", responses=problems(WITH_A_BODY, OF_A_TOPIC, OF_A_CHANGE))(
            self.create_messages
        )
        router.post(f"{message}/reschedule", responses=of_one)(self.reschedule_message)
        router.delete(message, responses=problems(OF_A_TOPIC, OF_A_CHANGE, OF_ONE_MESSAGE))(
            self.cancel_message
        )
        of_many = problems(WITH_A_BODY, OF_A_TOPIC, OF_A_CHANGE)
        router.post(f"{topic}/reschedule", responses=of_many)(self.reschedule_messages)
        router.post(f"{topic}/cancel", responses=of_many)(self.cancel_messages)
        router.get(message, responses=of_topic)(self.look_up)
        router.get(
            f"{message}/body",
            response_class=Response,
            responses={**problems(OF_A_TOPIC, OF_ONE_MESSAGE), **_BODY_ANSWERS},
        )(self.read_body)
        router.get(f"{topic}/counts", responses=of_topic)(self.count)
        router.get(f"{topic}/forecast", responses=of_topic)(self.forecast)
        return router

    @needs_one_of(RightKind.PRODUCE)
    async def create_message(
        self,
        principal: RequestPrincipal,
        sender: SenderContext,
        topic: TopicName,
        id: MessageId,
        request: SendRequest,
    ) -> OutcomeResponse:
        """Put a message on a topic's timeline.

        Ask again with the same id when the outcome is unknown: 409 `exists` then says that it had succeeded.
        """
        principal.check(RightKind.PRODUCE, topic, request.producer_group)
        now_ms = self._parts.access.clock.now_ms()
        message = request.to_message(id, request.producer_group, now_ms, sender)
        outcome = only_outcome(
            await self._create(topic, [message], replace=request.if_exists == "replace")
        )
        return OutcomeResponse.of(outcome, due=outcome.at or message.due)

    @needs_one_of(RightKind.PRODUCE)
    async def create_messages(
        self,
        principal: RequestPrincipal,
        sender: SenderContext,
        topic: TopicName,
        request: SendBatchRequest,
    ) -> OutcomesResponse:
        """Put messages on a topic's timeline, each with an outcome of its own."""
        principal.check(RightKind.PRODUCE, topic, request.producer_group)
        check_batch(len(request.messages), self._parts.limits)
        now_ms = self._parts.access.clock.now_ms()
        items = await checked(BatchMessage, request.messages, "messages")
        group = request.producer_group
        messages = await in_slices(items, lambda each: each.to_new(group, now_ms, sender))
        outcomes = await self._create(topic, messages, replace=request.if_exists == "replace")
        return await outcomes_response(outcomes, "due", [each.due for each in messages])

    async def _create(
        self, topic: str, messages: Sequence[NewMessage], *, replace: bool
    ) -> list[Outcome]:
        return await self._topics.on(
            topic,
            lambda found: self._parts.carrier.create(found.uid, messages, replace=replace),
        )

    @needs_one_of(RightKind.PRODUCE)
    async def reschedule_message(
        self,
        principal: RequestPrincipal,
        topic: TopicName,
        id: MessageId,
        request: RescheduleRequest,
    ) -> OutcomeResponse:
        """Move a message of the own producer group to another due, which must be before its `expires`."""
        principal.check(RightKind.PRODUCE, topic, request.producer_group)
        outcome = only_outcome(await self._change(topic, request.to_changes([id])))
        return OutcomeResponse.of(outcome, due=outcome.at)

    @needs_one_of(RightKind.PRODUCE)
    async def reschedule_messages(
        self, principal: RequestPrincipal, topic: TopicName, request: RescheduleBatchRequest
    ) -> OutcomesResponse:
        """Move messages of the own producer group to one due, each with an outcome of its own."""
        principal.check(RightKind.PRODUCE, topic, request.producer_group)
        check_batch(len(request.ids), self._parts.limits)
        changes = request.to_changes(await checked_ids(request.ids))
        return await outcomes_response(await self._change(topic, changes), "due")

    async def cancel_message(
        self,
        principal: RequestPrincipal,
        topic: TopicName,
        id: MessageId,
        producer_group: Annotated[ProducerGroup, Query()] = DEFAULT_PRODUCER_GROUP,
    ) -> OutcomeResponse:
        """Cancel a message of the own producer group."""
        principal.check(RightKind.PRODUCE, topic, producer_group)
        change = Change(Operation.CANCEL, id, producer_group)
        return OutcomeResponse.of(only_outcome(await self._change(topic, [change])))

    @needs_one_of(RightKind.PRODUCE)
    async def cancel_messages(
        self, principal: RequestPrincipal, topic: TopicName, request: CancelBatchRequest
    ) -> OutcomesResponse:
        """Cancel messages of the own producer group, each with an outcome of its own."""
        group = request.producer_group
        principal.check(RightKind.PRODUCE, topic, group)
        check_batch(len(request.ids), self._parts.limits)
        ids = await checked_ids(request.ids)
        changes = [Change(Operation.CANCEL, message_id, group) for message_id in ids]
        return await outcomes_response(await self._change(topic, changes, again=request.again))

    async def _change(
        self, topic: str, changes: Sequence[Change], *, again: bool = False
    ) -> list[Outcome]:
        return await self._topics.on(
            topic, lambda found: self._parts.carrier.change(found.uid, changes, again=again)
        )

    async def look_up(
        self, principal: RequestPrincipal, topic: TopicName, id: MessageId
    ) -> MessageResponse:
        """Look a message up, without its body."""
        check_look(principal, topic)
        found = await self._topics.on(
            topic, lambda known: self._parts.carrier.lookup(known.uid, [id])
        )
        if id not in found or not may_see(principal, topic, found[id]):
            raise Refused([Outcome(id=id, refusal=Refusal.NOT_FOUND)])
        return MessageResponse.of(found[id], self._parts.clock.now_ms())

    async def read_body(
        self,
        principal: RequestPrincipal,
        topic: TopicName,
        id: MessageId,
        producer_group: Annotated[ProducerGroup | None, Query()] = None,
        consumer: Annotated[ConsumerName | None, Query()] = None,
    ) -> Response:
        """Read a message's body: its owner may, and who has it under lease."""
        if producer_group is not None and consumer is not None:
            raise InvalidInput("give producer_group or consumer, not both")
        actor: Actor = Producer(producer_group or DEFAULT_PRODUCER_GROUP)
        if consumer is not None:
            actor = Consumer(consumer)
        check_actor(principal, topic, actor)
        bodies = await self._topics.on(
            topic, lambda known: self._parts.carrier.bodies(known.uid, [id], actor)
        )
        if bodies.refused:
            raise Refused(bodies.refused)
        body = bodies.found[id]
        if body is None:
            return Response(status_code=HTTPStatus.NO_CONTENT)
        return Response(
            body,
            media_type="application/octet-stream",
            headers={"x-content-type-options": "nosniff"},
        )

    async def count(self, principal: RequestPrincipal, topic: TopicName) -> CountsResponse:
        """Count the messages of a topic, by status."""
        principal.check(RightKind.OBSERVE, topic)
        counts = await self._topics.on(
            topic, lambda known: self._parts.carrier.count(known.uid, start=0, end=None)
        )
        return CountsResponse.of(counts)

    async def forecast(
        self,
        principal: RequestPrincipal,
        topic: TopicName,
        start: Annotated[When, Query(alias="from")] = "now",
        end: Annotated[When, Query(alias="to")] = "+1h",
        step: Step = "1m",
    ) -> ForecastResponse:
        """Count the messages ahead, by status and step."""
        principal.check(RightKind.OBSERVE, topic)
        now_ms = self._parts.clock.now_ms()
        start_ms = parse_when_ms(start, "from", now_ms)
        end_ms = parse_when_ms(end, "to", now_ms)
        step_ms = _step_ms(step, end_ms - start_ms)
        steps = await self._topics.on(
            topic,
            lambda known: self._parts.carrier.forecast(
                known.uid, start=start_ms, end=end_ms, step_ms=step_ms
            ),
        )
        responses = [ForecastStepResponse.of_step(each) for each in steps]
        return ForecastResponse(step_ms=step_ms, steps=responses, **moments(now=now_ms))


def _step_ms(text: str, span_ms: int) -> int:
    step_ms = parse_duration_ms(text, "step")
    if not 1 <= step_ms <= MAX_TIME_MS:
        raise InvalidInput(f"step {text!r:.60} is too short")
    if span_ms > step_ms * _MOST_STEPS:
        raise InvalidInput(
            f"that is more than {_MOST_STEPS} steps: look less far, or in longer steps"
        )
    return step_ms
