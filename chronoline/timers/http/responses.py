"""Reading of requests and building of answers, for all handlers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from http import HTTPStatus
from typing import Any

from aiohttp import web

from chronoline.core.errors import ChronolineError, InvalidInput
from chronoline.runtime.admission import BodyRoom
from chronoline.runtime.json_bounds import check_json_bounds
from chronoline.runtime.terminal_text import printable
from chronoline.timers.ids import TimerName, no_timer, parse_name
from chronoline.timers.node import TimerNode

Handler = Callable[[web.BaseRequest], Awaitable[web.Response]]
Handlers = Mapping[str, Handler]
"""By method."""

TIMERS = "/timers"
ROOM: ContextVar[BodyRoom | None] = ContextVar("chronoline_timers_room", default=None)
"""The room for the body of the request that this task answers."""
_MOST_DIGITS = 12
_MOST_REASON = 500


class HttpRefusal(ChronolineError):
    """A request that is answered with an error."""

    def __init__(
        self, status: HTTPStatus, reason: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(reason)
        self.status = status
        self.headers = dict(headers or {})


def answer_json(
    value: Any, *, status: HTTPStatus = HTTPStatus.OK, headers: Mapping[str, str] | None = None
) -> web.Response:
    body = json.dumps(value, separators=(",", ":")).encode()
    return web.Response(body=body, status=status, headers=headers, content_type="application/json")


def refuse(
    status: HTTPStatus, reason: str, headers: Mapping[str, str] | None = None
) -> web.Response:
    """An error with its reason in the body and, as in Metaswitch Chronos, in the header `Reason`."""
    reason = printable(" ".join(reason.split()), instead="?")
    in_ascii = reason.replace("…", "...").encode("ascii", "replace").decode()[:_MOST_REASON]
    told = {"Reason": in_ascii, **(headers or {})}
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        told.setdefault("Retry-After", "1")
    return web.Response(text=reason + "\n", status=status, headers=told, content_type="text/plain")


async def read_body(
    request: web.BaseRequest, most_bytes: int, *, patience_s: float = 30.0
) -> bytes:
    """The body. Raises `HttpRefusal` for one that is too large, before it is in memory, or too slow, and
    `NodeBusy`.
    """
    too_large = HttpRefusal(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        f"the body is larger than {most_bytes} bytes",
        {"Connection": "close"},
    )
    room = ROOM.get()
    if (request.content_length or 0) > most_bytes:
        raise too_large
    if request.content_length is not None and request.content.is_eof():
        body = await request.content.read()  # it is complete, and as long as announced
        if room is not None:
            await room.grow(len(body), is_complete=True)
        return body
    parts = bytearray()
    try:
        async with asyncio.timeout(patience_s):
            async for chunk in request.content.iter_any():
                parts += chunk
                if len(parts) > most_bytes:
                    raise too_large
                if room is not None:
                    await room.grow(len(parts), is_complete=request.content.is_eof())
    except TimeoutError:
        raise HttpRefusal(
            HTTPStatus.REQUEST_TIMEOUT,
            f"the body did not come within {patience_s:g} s",
            {"Connection": "close"},
        ) from None
    except web.RequestPayloadError:
        raise InvalidInput("the body is not encoded as it says") from None
    return bytes(parts)


async def read_object(request: web.BaseRequest, most_bytes: int) -> dict[str, Any]:
    """The JSON object of a body."""
    body = await read_body(request, most_bytes)
    check_json_bounds(body)
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"the body is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise InvalidInput("the body must be an object")
    return value


def check_started(node: TimerNode) -> None:
    """Raises `HttpRefusal` until the node has read its journal."""
    if not node.is_loaded:
        raise HttpRefusal(HTTPStatus.SERVICE_UNAVAILABLE, "the node is starting; try again")


def name_in(request: web.BaseRequest, prefix: str = f"{TIMERS}/") -> TimerName:
    """The name of the timer in a path."""
    text = request.path.removeprefix(prefix)
    name = parse_name(text)
    if name is None:
        raise HttpRefusal(HTTPStatus.NOT_FOUND, no_timer(text))
    return name


def cursor_in(request: web.BaseRequest) -> int:
    """The cursor of the last page."""
    text = request.query.get("cursor", "0")
    if not (text.isascii() and text.isdecimal()) or len(text) > _MOST_DIGITS:
        raise InvalidInput("cursor must be a number")
    return int(text)
