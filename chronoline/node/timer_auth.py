"""The check of requests for timers."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus

from aiohttp import web

from chronoline.broker.auth import Door, Shown
from chronoline.core.errors import BrokerUnavailable, CertificateExpired, InvalidInput
from chronoline.core.rights import EVERY_TOPIC, RightKind
from chronoline.runtime import audit
from chronoline.runtime.certificates import PeerCertificate
from chronoline.timers.http.responses import HttpRefusal
from chronoline.timers.http.server import RequestArea, authorization_of

_RIGHTS = {
    RequestArea.TIMERS: RightKind.TIMERS,
    RequestArea.NODES: RightKind.NODE,
    RequestArea.VIEWS: RightKind.OBSERVE,
    RequestArea.ADMIN: RightKind.ADMINISTER,
}


def request_check(door: Door) -> Callable[[web.BaseRequest, RequestArea], str]:
    """A function that returns the client of a request, empty on a node that asks for no token.

    It raises `HttpRefusal` for a request that the node must not accept.
    """

    def check(request: web.BaseRequest, area: RequestArea) -> str:
        try:
            asks, principal = door.asks, door.principal(_shown(request))
        except CertificateExpired as error:
            raise HttpRefusal(
                HTTPStatus.UNAUTHORIZED,
                str(error),
                {"WWW-Authenticate": "Bearer", "Connection": "close"},
            ) from None
        except InvalidInput as error:  # the file of tokens cannot be read
            unreadable = door.unreadable(error)
            raise HttpRefusal(HTTPStatus.SERVICE_UNAVAILABLE, str(unreadable)) from None
        except BrokerUnavailable as error:  # the keys of JWTs are not there
            raise HttpRefusal(HTTPStatus.SERVICE_UNAVAILABLE, str(error)) from None
        if principal is None:
            raise HttpRefusal(
                HTTPStatus.UNAUTHORIZED,
                "a token is needed: Authorization: Bearer …, as `chronoline token create` printed it",
                {"WWW-Authenticate": "Bearer"},
            )
        audit.by(principal.who)
        kind = _RIGHTS[area]
        # A node's timers belong to no topic, so a right to some topics is none to them.
        if not principal.may(kind, EVERY_TOPIC):
            raise HttpRefusal(
                HTTPStatus.FORBIDDEN,
                f"the {principal.kind} {principal.name!r} does not have the right {kind}: "
                f"`chronoline token create NAME --right {kind}` makes one that has",
            )
        _check_host(door, request)
        if not asks or "Authorization" not in request.headers:
            _check_web_page(request)
        return principal.who if asks else ""

    return check


def _shown(request: web.BaseRequest) -> Shown:
    certificate = (
        None if request.transport is None else request.transport.get_extra_info("peercert")
    )
    return Shown(authorization_of(request), PeerCertificate.of_tls(certificate))


def _check_web_page(request: web.BaseRequest) -> None:
    """Without a token the address of this machine lets a request in, or a certificate that browsers add."""
    if "Origin" in request.headers:
        raise HttpRefusal(
            HTTPStatus.FORBIDDEN,
            "requests of web pages are refused: without a token, send no Origin",
        )


def _check_host(door: Door, request: web.BaseRequest) -> None:
    """Without tokens, a name that resolves to this node must not be enough to reach it."""
    here = request.transport and request.transport.get_extra_info("sockname")
    problem = door.host_problem(request.headers.get("Host", ""), here[0] if here else "")
    if problem is not None:
        raise HttpRefusal(HTTPStatus.MISDIRECTED_REQUEST, problem)
