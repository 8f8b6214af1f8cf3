"""What the routes have in common: how they are described, and how outcomes are told."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from fastapi import APIRouter

from chronoline.broker.http.json_requests import JsonRoute
from chronoline.broker.http.problems import MEDIA_TYPE, Problem
from chronoline.broker.http.responses import OutcomesTold, OutcomeTold
from chronoline.broker.http.slices import in_slices
from chronoline.core.errors import Refused, StoreBusy
from chronoline.core.outcome import Outcome, Refusal

_ALWAYS = (
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.UNAUTHORIZED,
    HTTPStatus.MISDIRECTED_REQUEST,
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.INTERNAL_SERVER_ERROR,
    HTTPStatus.SERVICE_UNAVAILABLE,
)
WITH_A_BODY = (
    HTTPStatus.REQUEST_TIMEOUT,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
)
OF_A_TOPIC = (HTTPStatus.NOT_FOUND,)
OF_A_CHANGE = (HTTPStatus.GATEWAY_TIMEOUT,)
OF_ONE_MESSAGE = (HTTPStatus.FORBIDDEN, HTTPStatus.CONFLICT, HTTPStatus.GONE)


def new_router(tag: str) -> APIRouter:
    """Routes of one kind. What is not there is left out of their answers."""
    return APIRouter(prefix="/v1", tags=[tag], route_class=JsonRoute)


def problems(*groups: Sequence[HTTPStatus]) -> dict[int | str, dict[str, Any]]:
    """How a description says which problems a route may answer, besides those of all routes."""
    statuses = sorted({*_ALWAYS, *(status for group in groups for status in group)})
    schema = {"$ref": f"#/components/schemas/{Problem.__name__}"}
    return {
        int(status): {"description": status.phrase, "content": {MEDIA_TYPE: {"schema": schema}}}
        for status in statuses
    }


def only(outcomes: Sequence[Outcome]) -> Outcome:
    """The outcome of a request for one message. Raises `Refused`."""
    (outcome,) = outcomes
    if outcome.refusal is Refusal.BUSY:
        raise StoreBusy(outcome.reason)
    if not outcome.done:
        raise Refused([outcome])
    return outcome


async def told(
    outcomes: Sequence[Outcome], name: str = "", moments_ms: Sequence[int] = ()
) -> OutcomesTold:
    """With a moment of each, if that has a name: those given, or else the ones that the store set."""

    def tell(place: int) -> OutcomeTold:
        outcome = outcomes[place]
        moment_ms = moments_ms[place] if moments_ms else outcome.at or None
        return OutcomeTold.of(outcome, **({name: moment_ms} if name else {}))

    return OutcomesTold(outcomes=await in_slices(range(len(outcomes)), tell))
