"""The guard before the HTTP application: the form of a request, its token and its host name.

It is also the last place that catches an error: it counts and logs it, answers, and the node continues.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from http import HTTPStatus

from fastapi import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from chronoline.broker.auth import Door, Shown
from chronoline.broker.context import BrokerContext
from chronoline.broker.http.body_limit import BodyBounds, BoundedBody
from chronoline.broker.http.console_mount import ConsoleApp, is_of_console
from chronoline.broker.http.problems import problem_of
from chronoline.broker.http.producer_throttle import ProducerThrottle
from chronoline.broker.principals import ANYBODY, Principal
from chronoline.core.addresses import is_loopback
from chronoline.core.errors import (
    CertificateExpired,
    ChronolineError,
    InvalidInput,
    Unauthenticated,
)
from chronoline.core.rights import Rights
from chronoline.runtime import audit
from chronoline.runtime.admission import Admission, BodyClients, work_for
from chronoline.runtime.certificates import NO_CERTIFICATE
from chronoline.runtime.request_form import form_problem

logger = logging.getLogger(__name__)

OPEN_PATHS = frozenset({"/livez", "/readyz"})
"""Paths that need no token: probes have none."""
PRINCIPAL = "chronoline.principal"
"""The key of the principal in the scope of a request."""
ASK_AGAIN = "chronoline.ask_again"
"""The key of a function that returns the principal as it is now, or raises `Unauthenticated`."""
CERTIFICATE = "certificate"
"""The key of the connection's certificate, in the state of a request."""
KNOW = "know"
"""The key of a function, in the state of a request: it marks the connection as one of a known client."""
_STRANGER_BODY_BYTES = 32 * 1024
"""The largest body of a browser that has not signed in; the pages refuse smaller ones in their own words."""
_STRANGERS_BYTES = 16 * 1024 * 1024
"""The memory for the bodies of all of them."""
_STRANGER_PATIENCE_S = 5.0
_PLAIN = (b"", b"identity")
_ENCODED = "the body must be plain: send it without Content-Encoding"
_NO_TOKEN = (
    "this node asks for a token, in the header `Authorization: Bearer TOKEN`; "
    "`chronoline token create` makes one"
)
_UNKNOWN = (
    "the header Authorization has no token that this node knows: the form is `Bearer TOKEN`, and the "
    "token may have been revoked, have expired, or be another node's"
)
_READS = ("GET", "HEAD", "OPTIONS")
_FOREIGN = "requests of pages of other sites are refused: Origin must name the host of the request"
NOBODY = Principal(rights=Rights(()))
"""A probe, or a browser that has not signed in."""


class RequestGuard:
    """The ASGI application that every request passes on its way to the inner one."""

    def __init__(
        self,
        app: ASGIApp,
        parts: BrokerContext,
        door: Door,
        *,
        consumer_paths: tuple[str, ...],
        console: ConsoleApp | None = None,
    ) -> None:
        """Requests whose path ends in one of `consumer_paths` are counted as those of consumers."""
        self._console = console
        self._app = app
        self._parts = parts
        self._door = door
        self._consumer_paths = consumer_paths
        self.throttle = ProducerThrottle(parts.metrics, most=parts.limits.connections)
        self._strangers = Admission(
            most_bytes=_STRANGERS_BYTES,
            largest_bytes=_STRANGER_BODY_BYTES,
            patience_s=_STRANGER_PATIENCE_S,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Ids and topics may have any character: the path is split before its segments are decoded.
        scope["path"] = scope["raw_path"].decode("ascii")
        with audit.AuditedRequest(scope["path"], _address_of(scope)) as audited:
            await self._answer(scope, receive, send)
            # A page that asks for a token is answered before it has an endpoint of its own.
            audited.act = getattr(scope.get("route"), "name", audited.act)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        partner = "consumer" if scope["path"].endswith(self._consumer_paths) else "producer"
        throttles = partner == "producer" and not is_of_console(scope["path"])
        count = partial(self._count, partner)
        started = False

        async def counted_send(message: Message) -> None:
            nonlocal started
            if not started and message["type"] == "http.response.start" and throttles:
                self.throttle.answered(scope, message["status"])
            started = True
            count("out", message)
            await send(message)

        try:
            _check_form(scope)
            ask = scope[ASK_AGAIN] = partial(self._principal, scope, headers)
            principal = scope[PRINCIPAL] = ask()
            if principal is not NOBODY:
                scope.get("state", {}).get(KNOW, _nothing)()
            audit.by(principal.who)
            _check_origin(scope, headers)
            if headers.get(b"content-encoding", b"").lower() not in _PLAIN:
                raise HTTPException(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, _ENCODED)
            if throttles:
                self.throttle.admit(scope)
            bounds = self._bounds(scope, principal)
            work_for(bounds.clients.small)
            with BoundedBody(receive, headers, bounds, self._parts.metrics, count) as body:
                await body.admit()
                await self._app(scope, body, counted_send)
        except ClientDisconnect:
            pass  # nobody waits for the answer
        except (ChronolineError, HTTPException) as error:
            await problem_of(error)(scope, receive, counted_send)
        except Exception as error:
            self._parts.metrics.failed("http")
            logger.exception("%s %s failed", scope["method"], scope["path"])
            if not started:
                await problem_of(error)(scope, receive, counted_send)

    def _bounds(self, scope: Scope, principal: Principal) -> BodyBounds:
        """The memory and the time for the body of a client. Strangers share a small part of their own."""
        host, _ = scope["client"] or ("", 0)
        clients = BodyClients.of(
            principal.who,
            _address_of(scope),
            is_local=is_loopback(host),
            is_proven=principal is not ANYBODY,
        )
        if principal is NOBODY:
            return BodyBounds(self._strangers, clients, _STRANGER_BODY_BYTES, _STRANGER_PATIENCE_S)
        limits = self._parts.limits
        patience_s = limits.ping_timeout_ms / 1000
        return BodyBounds(self._parts.admission, clients, limits.frame_bytes, patience_s)

    def _principal(self, scope: Scope, headers: Mapping[bytes, bytes]) -> Principal:
        """Raises `Unauthenticated` without a token, `CertificateExpired`, and for a refused host name."""
        if scope["path"] in OPEN_PATHS:
            return NOBODY
        in_console = self._console is not None and is_of_console(scope["path"])
        authorization = headers.get(b"authorization", b"")
        certificate = scope.get("state", {}).get(CERTIFICATE, NO_CERTIFICATE)
        try:
            asks = self._door.asks
            if in_console and asks:
                assert self._console is not None
                authorization = self._console.authorization(headers)
            principal = self._door.principal(Shown(authorization, certificate))
        except CertificateExpired:
            self._parts.metrics.refused("http", "unauthenticated")
            raise
        except InvalidInput as error:  # the file of tokens cannot be read
            raise self._door.unreadable(error) from None
        if principal is None and in_console:
            return NOBODY  # its pages ask for a token
        if principal is None:
            self._parts.metrics.refused("http", "unauthenticated")
            raise Unauthenticated(_UNKNOWN if b"authorization" in headers else _NO_TOKEN)
        here, _ = scope["server"] or ("", 0)
        problem = self._door.host_problem(headers.get(b"host", b"").decode("latin-1"), here)
        if problem is not None:
            raise HTTPException(HTTPStatus.MISDIRECTED_REQUEST, problem)
        return principal

    def _count(self, partner: str, direction: str, message: Message) -> None:
        if size_bytes := len(message.get("body", b"")):
            labels = (direction, partner, "")
            self._parts.metrics.add("network_broker_bytes_total", labels, size_bytes)


def _check_form(scope: Scope) -> None:
    problem = form_problem(scope["headers"])
    if problem is not None:
        raise HTTPException(HTTPStatus.BAD_REQUEST, problem, {"connection": "close"})


def _nothing() -> None:
    """For a server that does not tell strangers apart."""


def _check_origin(scope: Scope, headers: Mapping[bytes, bytes]) -> None:
    """Raises for a change that a page of another site asks for.

    A browser sends it without a question if it has no body, with what lets the user in: the address of this
    machine, or a certificate. The forms of the console have a secret instead.
    """
    origin = headers.get(b"origin")
    if origin is None or b"authorization" in headers:  # which no page sends without a question
        return
    if scope["method"] in _READS or is_of_console(scope["path"]):
        return
    if origin.partition(b"://")[2].lower() != headers.get(b"host", b"").lower():
        raise HTTPException(HTTPStatus.MISDIRECTED_REQUEST, _FOREIGN)


def _address_of(scope: Scope) -> str:
    host, port = scope["client"] or ("", 0)
    return f"{host}:{port}"
