"""The guard before the HTTP application: token, host name, and bounds on the bytes of a request.

It is also the last place that catches an error: it counts and logs it, answers, and the node continues.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from http import HTTPStatus
from typing import Self

from fastapi import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from chronoline.broker.auth import Door, hash_of_shown
from chronoline.broker.context import Parts
from chronoline.broker.http.problems import problem_of
from chronoline.core.addresses import is_loopback
from chronoline.core.errors import (
    BrokerUnavailable,
    ChronolineError,
    InvalidInput,
    NodeBusy,
    Unauthenticated,
)
from chronoline.runtime.admission import Admitted, client_key

logger = logging.getLogger(__name__)

OPEN_PATHS = frozenset({"/livez", "/readyz"})
"""Paths that need no token: probes have none."""
_CONSUMER_PATHS = ("/receive", "/ack", "/extend", "/release", "/retry", "/bury")


class RequestGuard:
    """The ASGI application that every request passes on its way to the inner one."""

    def __init__(self, app: ASGIApp, parts: Parts, door: Door, *, host: str) -> None:
        self._app = app
        self._parts = parts
        self._door = door
        self._on_loopback = is_loopback(host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Ids and topics may have any character: the path is split before its segments are decoded.
        scope["path"] = scope["raw_path"].decode("ascii")
        headers = dict(scope["headers"])
        partner = "consumer" if scope["path"].endswith(_CONSUMER_PATHS) else "producer"
        count = partial(self._count, partner)
        started = False

        async def counted_send(message: Message) -> None:
            nonlocal started
            started = True
            count("out", message)
            await send(message)

        try:
            self._check_token(scope["path"], headers)
            client = _client_of(scope, headers)
            with _BoundedBody(receive, headers, self._parts, client, count) as body:
                await body.admit()
                await self._app(scope, body, counted_send)
        except (ChronolineError, HTTPException) as error:
            await problem_of(error)(scope, receive, counted_send)
        except Exception as error:
            self._parts.metrics.failed("http")
            logger.exception("%s %s failed", scope["method"], scope["path"])
            if not started:
                await problem_of(error)(scope, receive, counted_send)

    def _check_token(self, path: str, headers: Mapping[bytes, bytes]) -> None:
        if path in OPEN_PATHS:
            return
        try:
            asks = self._door.asks
            let_in = self._door.lets_in(headers.get(b"authorization", b""))
        except InvalidInput as error:  # the file of tokens cannot be read
            raise BrokerUnavailable(str(error)) from None
        if not let_in:
            self._parts.metrics.refused("http", "unauthenticated")
            raise Unauthenticated
        if self._on_loopback and not asks:
            problem = self._door.host_problem(headers.get(b"host", b"").decode("latin-1"))
            if problem is not None:
                raise HTTPException(HTTPStatus.MISDIRECTED_REQUEST, problem)

    def _count(self, partner: str, direction: str, message: Message) -> None:
        if size_bytes := len(message.get("body", b"")):
            labels = (direction, partner, "")
            self._parts.metrics.add("network_broker_bytes_total", labels, size_bytes)


def _client_of(scope: Scope, headers: Mapping[bytes, bytes]) -> str:
    """The client whose share of the node a request takes."""
    host, port = scope["client"] or ("", 0)
    shown = hash_of_shown(headers.get(b"authorization", b""))
    return client_key(shown, f"{host}:{port}", is_local=is_loopback(host))


class _BoundedBody:
    """The `receive` of a request: at most a frame, read when the node has room, with a time-out."""

    def __init__(
        self,
        receive: Receive,
        headers: Mapping[bytes, bytes],
        parts: Parts,
        client: str,
        count: Callable[[str, Message], None],
    ) -> None:
        self._receive = receive
        self._announced_bytes = int(headers.get(b"content-length", b"0"))
        self._is_announced = b"transfer-encoding" not in headers
        self._parts = parts
        self._client = client
        self._most_bytes = parts.limits.frame_bytes
        self._patience_s = parts.limits.ping_timeout_ms / 1000
        self._count = count
        self._read_bytes = 0
        self._complete = False
        self._admitted: Admitted | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._admitted is not None:
            self._admitted.end()

    async def admit(self) -> None:
        """Wait for room, before the first byte is read. A body of unknown size can be as large as a frame.

        Raises the refusal here, since FastAPI would answer it as a fault of the body.
        """
        self._check(self._announced_bytes)
        size_bytes = self._announced_bytes if self._is_announced else self._most_bytes
        if size_bytes:
            try:
                self._admitted = await self._parts.admission.admit(self._client, size_bytes)
            except NodeBusy:
                self._parts.metrics.refused("http", "node_busy")
                raise

    async def __call__(self) -> Message:
        if self._complete:
            return await self._receive()  # returns when the client disconnects
        message = await self._next()
        self._count("in", message)
        self._read_bytes += len(message.get("body", b""))
        self._check(self._read_bytes)
        self._complete = not message.get("more_body", False)
        if self._complete and self._admitted is not None:
            self._admitted.shrink(self._read_bytes)
        return message

    async def _next(self) -> Message:
        try:
            async with asyncio.timeout(self._patience_s):
                return await self._receive()
        except TimeoutError:
            raise HTTPException(
                HTTPStatus.REQUEST_TIMEOUT,
                f"the rest of the body did not arrive within {self._patience_s:g} s",
                headers={"connection": "close"},
            ) from None

    def _check(self, size_bytes: int) -> None:
        if size_bytes > self._most_bytes:
            raise HTTPException(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"the body is larger than {self._most_bytes} bytes, the limit of this broker: send it in "
                "parts, or raise frame_bytes in its settings",
            )
