"""The check of requests for timers."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus

from aiohttp import web

from chronoline.broker.auth import Door
from chronoline.core.addresses import is_loopback
from chronoline.core.errors import InvalidInput
from chronoline.timers.http.responses import HttpRefusal


def request_check(door: Door, host: str) -> Callable[[web.BaseRequest], None]:
    """A function that raises `HttpRefusal` for a request that a node at `host` must not accept."""
    on_loopback = is_loopback(host)

    def check(request: web.BaseRequest) -> None:
        try:
            asks, is_accepted = door.asks, door.accepts(request.headers.get("Authorization", ""))
        except InvalidInput as error:  # the tokens cannot be read
            raise HttpRefusal(HTTPStatus.SERVICE_UNAVAILABLE, str(error)) from None
        if not is_accepted:
            raise HttpRefusal(
                HTTPStatus.UNAUTHORIZED,
                "a token is needed: Authorization: Bearer …, as `chronoline token create` printed it",
                {"WWW-Authenticate": "Bearer"},
            )
        if on_loopback and not asks:
            _check_web_page(door, request)

    return check


def _check_web_page(door: Door, request: web.BaseRequest) -> None:
    """Without tokens, a web page in a browser of this machine must not reach the node."""
    if (problem := door.host_problem(request.headers.get("Host", ""))) is not None:
        raise HttpRefusal(HTTPStatus.MISDIRECTED_REQUEST, problem)
    if "Origin" in request.headers:
        raise HttpRefusal(
            HTTPStatus.FORBIDDEN,
            "requests of web pages are refused: without a token, send no Origin",
        )
