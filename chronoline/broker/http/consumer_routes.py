"""Routes of consumers, with their requests: receive messages, and settle their leases."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus
from typing import Any, Self

from fastapi import APIRouter, Response
from pydantic import ConfigDict, Field, SkipValidation, model_validator
from starlette.types import Receive, Scope, Send

from chronoline.broker.context import BrokerContext
from chronoline.broker.http.app import (
    OF_A_CHANGE,
    OF_A_TOPIC,
    WITH_A_BODY,
    needs_one_of,
    new_router,
    problems,
)
from chronoline.broker.http.auth import ASK_AGAIN
from chronoline.broker.http.poller import Poller, Pollers
from chronoline.broker.http.requests import (
    DUE_NAMES,
    ConsumerName,
    Count,
    DueFields,
    DurationMs,
    LeaseRef,
    Milliseconds,
    MomentMs,
    RackName,
    Reason,
    RequestBody,
    RequestPrincipal,
    Schema,
    SettleRequest,
    TopicName,
    at_most_one,
    checked,
    exactly_one,
    in_slices,
    time_of,
)
from chronoline.broker.http.responses import (
    DeliveryResponse,
    OutcomesResponse,
    ReceiveResponse,
    moments,
    outcomes_response,
)
from chronoline.broker.limits import check_batch
from chronoline.broker.principals import Principal
from chronoline.broker.topics import TopicsByName
from chronoline.core.change import Change
from chronoline.core.errors import InvalidInput
from chronoline.core.limits import MIN_LEASE_MS
from chronoline.core.message import After, LeasedMessage, LeaseTime
from chronoline.core.outcome import Outcome
from chronoline.core.permissions import Operation
from chronoline.core.rights import RightKind
from chronoline.core.topic import Topic

_DEFAULT_WAIT_MS = 20_000
_MOST_WAIT_MS = 60_000
_TURNS = 4
"""Turns of the event loop after which a client that has gone away is known to be gone."""
_SETTLEMENTS = ("ack", "extend", "release", "retry", "bury")
"""The methods that settle leases. Each is a path of its name."""
CONSUMER_PATHS = tuple(f"/{name}" for name in ("receive", *_SETTLEMENTS))
"""The ends of the paths of consumers."""
_LEASE: dict[str, Any] = {"id": "u1", "version": 1767225600000}

# Requests


class ReceiveRequest(RequestBody):
    """A poll for messages."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"consumer": "worker-1", "count": 10, "lease": "30s", "wait": "1s"}]
        }
    )

    consumer: ConsumerName | None = Field(
        default=None,
        description="A unique name; without it the broker makes one, and returns it.",
    )
    count: Count = Field(default=1, description="The most messages to get.")
    lease: DurationMs | None = Field(
        default=None, description="Without it, the topic's default lease."
    )
    wait: DurationMs | None = Field(
        default=None, description="The longest wait for the first message; 20s by default."
    )
    rack: RackName | None = Field(
        default=None,
        description=(
            "Where the consumer runs. Consumers of other racks serve its buckets if it is lost. "
            "It counts from the first poll on, until the broker has forgotten the consumer."
        ),
    )
    resume: bool = Field(
        default=False,
        description="The consumer was restarted: it gets its live leases first, under new versions.",
    )


class AckRequest(SettleRequest):
    """Leases whose messages are done."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"consumer": "worker-1", "leases": [_LEASE]}]}
    )

    leases: list[SkipValidation[LeaseRef]]


class LeaseExtension(LeaseRef):
    """A lease, and its new end; without one, the topic's own duration from now."""

    model_config = ConfigDict(json_schema_extra=at_most_one("until", "until_ms", "in", "delay_ms"))

    until: MomentMs | None = None
    until_ms: Milliseconds | None = None
    in_: DurationMs | None = Field(default=None, alias="in")
    delay_ms: Milliseconds | None = None

    @model_validator(mode="after")
    def _check_until(self) -> Self:
        self._check_at_most_one("until", "until_ms", "in", "delay_ms")
        return self

    @property
    def time(self) -> LeaseTime | None:
        """None if the request has no time."""
        return time_of(
            self.until if self.until is not None else self.until_ms,
            self.in_ if self.in_ is not None else self.delay_ms,
        )


class ExtendRequest(SettleRequest):
    """Leases to extend."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"consumer": "worker-1", "leases": [{**_LEASE, "in": "1m"}]}]
        }
    )

    leases: list[SkipValidation[LeaseExtension]]


class LeaseReturn(DueFields, LeaseRef):
    """A lease, and when its message is due again."""

    model_config = ConfigDict(json_schema_extra=exactly_one(*DUE_NAMES))

    @model_validator(mode="after")
    def _check_given(self) -> Self:
        if self.at_ms(0) is None:
            raise ValueError(f"say when it is due again: {', '.join(DUE_NAMES)}")
        return self


class GiveBackRequest(SettleRequest):
    """Leases whose messages are given back into the future."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"consumer": "worker-1", "leases": [{**_LEASE, "in": "5m"}]}]
        }
    )

    leases: list[SkipValidation[LeaseReturn]]


class LeaseBurial(LeaseRef):
    """A lease, and the reason why its message is given up."""

    reason: Reason = ""


class BuryRequest(SettleRequest):
    """Leases whose messages are given up."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"consumer": "worker-1", "leases": [{**_LEASE, "reason": "no such user"}]}]
        }
    )

    leases: list[SkipValidation[LeaseBurial]]


# Routes


class ConsumerRoutes:
    """One method for each route."""

    def __init__(self, parts: BrokerContext, topics: TopicsByName, pollers: Pollers) -> None:
        self._parts = parts
        self._topics = topics
        self._pollers = pollers

    def router(self) -> APIRouter:
        router = new_router("consumers")
        settling = problems(WITH_A_BODY, OF_A_TOPIC, OF_A_CHANGE)
        router.post(
            "/topics/{topic}/receive",
            response_model=ReceiveResponse,
            responses={**settling, **problems([HTTPStatus.CONFLICT])},
        )(self.receive)
        for name in _SETTLEMENTS:
            router.post(f"/topics/{{topic}}/{name}", responses=settling)(getattr(self, name))
        return router

    @needs_one_of(RightKind.CONSUME)
    async def receive(
        self, principal: RequestPrincipal, topic: TopicName, request: ReceiveRequest
    ) -> Response:
        """Wait for messages that are due, and lease them.

        It is answered as soon as there is one, with what is due at that moment; with an empty list if nothing
        was until `wait` is over. Nothing is handed over before its due, by the broker's clock.
        """
        # The broker makes the name of a consumer without one: only a right to all names covers it.
        principal.check(RightKind.CONSUME, topic, request.consumer or "")
        most = self._parts.limits.credit
        if request.count > most:
            raise InvalidInput(
                f"a count of {request.count}; at most {most} are handed over at once"
            )
        wait_ms = _DEFAULT_WAIT_MS if request.wait is None else request.wait
        if wait_ms > _MOST_WAIT_MS:
            raise InvalidInput(f"a wait of {wait_ms} ms; at most {_MOST_WAIT_MS} ms: poll again")
        if request.lease is not None and request.lease < MIN_LEASE_MS:
            raise InvalidInput(f"a lease of {request.lease} ms; at least {MIN_LEASE_MS} are needed")
        return _LongPoll(
            self._parts,
            self._topics,
            self._pollers,
            topic=topic,
            request=request,
            wait_s=wait_ms / 1000,
        )

    @needs_one_of(RightKind.CONSUME)
    async def ack(
        self, principal: RequestPrincipal, topic: TopicName, request: AckRequest
    ) -> OutcomesResponse:
        """Delete messages that are done."""

        def change(item: LeaseRef, _: Topic) -> Change:
            return _change(Operation.ACK, request, item)

        return await self._settle(
            topic, request, LeaseRef, request.leases, change, principal=principal
        )

    @needs_one_of(RightKind.CONSUME)
    async def extend(
        self, principal: RequestPrincipal, topic: TopicName, request: ExtendRequest
    ) -> OutcomesResponse:
        """Move the ends of leases. From then on only the new versions count."""

        def change(item: LeaseExtension, found: Topic) -> Change:
            usual = After(found.settings.default_lease_ms)
            to = usual if item.time is None else item.time
            return _change(Operation.EXTEND, request, item, to=to)

        return await self._settle(
            topic,
            request,
            LeaseExtension,
            request.leases,
            change,
            principal=principal,
            moment="until",
        )

    @needs_one_of(RightKind.CONSUME)
    async def release(
        self, principal: RequestPrincipal, topic: TopicName, request: GiveBackRequest
    ) -> OutcomesResponse:
        """Give messages back, "not now"; it is no failed attempt."""
        return await self._give_back(principal, Operation.RELEASE, topic, request)

    @needs_one_of(RightKind.CONSUME)
    async def retry(
        self, principal: RequestPrincipal, topic: TopicName, request: GiveBackRequest
    ) -> OutcomesResponse:
        """Give messages back after a failed attempt."""
        return await self._give_back(principal, Operation.RETRY, topic, request)

    async def _give_back(
        self, principal: Principal, operation: Operation, topic: str, request: GiveBackRequest
    ) -> OutcomesResponse:
        def change(item: LeaseReturn, _: Topic) -> Change:
            return _change(operation, request, item, to=item.time or 0)

        return await self._settle(
            topic, request, LeaseReturn, request.leases, change, principal=principal, moment="due"
        )

    @needs_one_of(RightKind.CONSUME)
    async def bury(
        self, principal: RequestPrincipal, topic: TopicName, request: BuryRequest
    ) -> OutcomesResponse:
        """Give messages up: they become dead letters."""

        def change(item: LeaseBurial, _: Topic) -> Change:
            return _change(Operation.BURY, request, item, reason=item.reason)

        return await self._settle(
            topic, request, LeaseBurial, request.leases, change, principal=principal
        )

    async def _settle(
        self,
        topic: str,
        request: SettleRequest,
        schema: type[Schema],
        leases: Sequence[Any],
        change_of: Callable[[Schema, Topic], Change],
        *,
        principal: Principal,
        moment: str = "",
    ) -> OutcomesResponse:
        """Changes the leases of a request. `moment` names the time that each outcome has."""
        principal.check(RightKind.CONSUME, topic, request.consumer)
        check_batch(len(leases), self._parts.limits)
        items = await checked(schema, leases, "leases")

        def settle(found: Topic) -> Awaitable[list[Outcome]]:
            changes = [change_of(each, found) for each in items]
            return self._parts.carrier.change(found.uid, changes, again=request.again)

        return await outcomes_response(await self._topics.on(topic, settle), moment)


def _change(
    operation: Operation,
    request: SettleRequest,
    item: LeaseRef,
    to: LeaseTime = 0,
    reason: str = "",
) -> Change:
    return Change(operation, item.id, request.consumer, item.version, to, reason=reason)


class _LongPoll(Response):
    """A response that waits for messages, and knows whether it was sent."""

    def __init__(
        self,
        parts: BrokerContext,
        topics: TopicsByName,
        pollers: Pollers,
        *,
        topic: str,
        request: ReceiveRequest,
        wait_s: float,
    ) -> None:
        super().__init__(media_type="application/json")
        self._parts = parts
        self._topics = topics
        self._pollers = pollers
        self._topic = topic
        self._request = request
        self._wait_s = wait_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = self._request
        with self._parts.metrics.command("receive", ""):
            poll = await self._topics.on(
                self._topic,
                lambda found: self._pollers.begin(
                    found,
                    request.consumer,
                    count=request.count,
                    lease_ms=request.lease or found.settings.default_lease_ms,
                    rack=request.rack or "",
                    resume=request.resume,
                ),
            )
        gone = asyncio.ensure_future(_until_gone(receive))
        gone.add_done_callback(lambda _: poll.wake())
        handed = False
        try:
            came = await self._pollers.wait(poll, self._wait_s)
            # The token can have been revoked while the poll waited: what came is given back then.
            consumer = request.consumer or ""
            scope[ASK_AGAIN]().check(RightKind.CONSUME, poll.poller.topic.name, consumer)
            content = await self._content(poll.poller, came)
            for _ in range(_TURNS):
                await asyncio.sleep(0)  # a client that has left is noticed now, before the answer
            if not gone.done():
                await Response(content, media_type=self.media_type)(scope, receive, send)
                handed = True
        finally:
            gone.cancel()
            self._pollers.end(poll, handed=handed)

    async def _content(self, poller: Poller, came: Sequence[LeasedMessage]) -> str:
        now_ms = self._parts.clock.now_ms()
        received = ReceiveResponse(
            consumer=poller.name,
            paused=poller.subscription.paused or None,
            messages=await in_slices(came, lambda each: DeliveryResponse.of(each, now_ms)),
            **moments(now=now_ms),
        )
        return received.model_dump_json(exclude_none=True)


async def _until_gone(receive: Receive) -> None:
    """Returns when the client disconnects; whatever else it sends is ignored."""
    while (await receive())["type"] != "http.disconnect":
        pass
