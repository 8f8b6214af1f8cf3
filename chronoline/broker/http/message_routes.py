"""Looking at messages and at the load ahead."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from chronoline.broker.context import Parts
from chronoline.broker.http.fields import ConsumerName, MessageId, ProducerGroup, TopicName
from chronoline.broker.http.responses import (
    CountsTold,
    ForecastTold,
    MessageTold,
    StepTold,
    moments,
)
from chronoline.broker.http.router import OF_A_TOPIC, OF_ONE_MESSAGE, new_router, problems
from chronoline.broker.http.topic_finder import Finder
from chronoline.core.errors import InvalidInput, Refused
from chronoline.core.limits import MAX_TIME_MS
from chronoline.core.message import DEFAULT_PRODUCER_GROUP
from chronoline.core.outcome import Outcome, Refusal
from chronoline.core.permissions import Actor, Consumer, Producer
from chronoline.core.quantities import parse_duration_ms
from chronoline.runtime.timestamps import parse_when_ms

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


class Looking:
    """One method for each route."""

    def __init__(self, parts: Parts, finder: Finder) -> None:
        self._parts = parts
        self._finder = finder

    def router(self) -> APIRouter:
        router = new_router("looking")
        of_topic = problems(OF_A_TOPIC)
        message = "/topics/{topic}/messages/{id}"
        router.get(message, responses=of_topic, response_model_exclude_none=True)(self.look_up)
        router.get(
            f"{message}/body",
            response_class=Response,
            responses={**problems(OF_A_TOPIC, OF_ONE_MESSAGE), **_BODY_ANSWERS},
        )(self.read_body)
        router.get("/topics/{topic}/counts", responses=of_topic)(self.count)
        router.get("/topics/{topic}/forecast", responses=of_topic)(self.forecast)
        return router

    async def look_up(self, topic: TopicName, id: MessageId) -> MessageTold:
        """Look a message up, without its body."""
        found = await self._finder.on(
            topic, lambda known: self._parts.carrier.lookup(known.uid, [id])
        )
        if id not in found:
            raise Refused([Outcome(id=id, refusal=Refusal.NOT_FOUND)])
        return MessageTold.of(found[id], self._parts.clock.now_ms())

    async def read_body(
        self,
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
        bodies = await self._finder.on(
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

    async def count(self, topic: TopicName) -> CountsTold:
        """Count the messages of a topic, by status."""
        counts = await self._finder.on(
            topic, lambda known: self._parts.carrier.count(known.uid, start=0, end=None)
        )
        return CountsTold.of(counts)

    async def forecast(
        self,
        topic: TopicName,
        start: Annotated[When, Query(alias="from")] = "now",
        end: Annotated[When, Query(alias="to")] = "+1h",
        step: Step = "1m",
    ) -> ForecastTold:
        """Count the messages ahead, by status and step."""
        now_ms = self._parts.clock.now_ms()
        start_ms = parse_when_ms(start, "from", now_ms)
        end_ms = parse_when_ms(end, "to", now_ms)
        step_ms = _step_ms(step, end_ms - start_ms)
        steps = await self._finder.on(
            topic,
            lambda known: self._parts.carrier.forecast(
                known.uid, start=start_ms, end=end_ms, step_ms=step_ms
            ),
        )
        told = [StepTold.of_step(each) for each in steps]
        return ForecastTold(step_ms=step_ms, steps=told, **moments(now=now_ms))


def _step_ms(text: str, span_ms: int) -> int:
    step_ms = parse_duration_ms(text, "step")
    if not 1 <= step_ms <= MAX_TIME_MS:
        raise InvalidInput(f"step {text!r:.60} is too short")
    if span_ms > step_ms * _MOST_STEPS:
        raise InvalidInput(
            f"that is more than {_MOST_STEPS} steps: look less far, or in longer steps"
        )
    return step_ms
