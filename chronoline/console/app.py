"""The console of a node: its routes, and its life with the HTTP listener."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.datastructures import URL, Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from chronoline.broker.auth import Shown
from chronoline.broker.http.console_mount import CONSOLE, Edge, is_of_console
from chronoline.console.dead_letters import DeadLetterPages
from chronoline.console.logs import LogPages
from chronoline.console.messages import MessagePages
from chronoline.console.overview import OverviewPages
from chronoline.console.pages import (
    SECURITY_HEADERS,
    SESSION,
    STATIC,
    ConsoleContext,
    Pages,
    form_of,
    is_nobody,
    redirect,
    segment,
    session_of,
)
from chronoline.console.pipes import PipePages
from chronoline.console.schedules import SchedulePages
from chronoline.console.sessions import BrowserSession, BrowserSessions, cookie_in, cookie_name
from chronoline.console.timers import TimerPages
from chronoline.console.topics import TopicPages
from chronoline.console.traffic import Traffic
from chronoline.core.errors import ChronolineError

if TYPE_CHECKING:
    from chronoline.timers.node import TimerNode
    from chronoline.timers.resync import Resync

_OPEN = (f"{CONSOLE}/sign-in", f"{CONSOLE}/static/")
"""The paths for which nobody has to sign in."""
_FOR_EVER = "public, max-age=31536000, immutable"


class Console:
    """The pages of one node. Owned by the event loop."""

    def __init__(
        self,
        edge: Edge,
        *,
        logs: Sequence[str] = (),
        timers: TimerNode | None = None,
        resync: Resync | None = None,
    ) -> None:
        """`logs` are folders or URLs. A node with timers gives its own."""
        self._traffic = Traffic(edge.parts)
        self._context = ConsoleContext(
            parts=edge.parts,
            door=edge.door,
            edge=edge,
            sessions=BrowserSessions(time.time, edge.door.token_hash),
            traffic=self._traffic,
        )
        self._pages = Pages(self._context)
        self._overview = OverviewPages(self._pages)
        self._topics = TopicPages(self._pages)
        self._pipes = PipePages(self._pages)
        self._logs = LogPages(self._pages, logs)
        self.app: ASGIApp = Starlette(
            routes=[
                Route("/static/{tag}/{name}", _static),
                Route("/sign-in", self._sign_in_page),
                Route("/sign-in", self._sign_in, methods=["POST"]),
                Route("/sign-out", self._sign_out, methods=["POST"]),
                *self._overview.routes(),
                *self._topics.routes(),
                *MessagePages(self._pages).routes(),
                *DeadLetterPages(self._pages).routes(),
                *self._pipes.routes(),
                *SchedulePages(self._pages).routes(),
                *self._logs.routes(),
                *TimerPages(self._pages, timers, resync).routes(),
            ],
            middleware=[Middleware(_Frame, context=self._context)],
            exception_handlers={
                ChronolineError: self._answer_error,
                HTTPException: self._answer_error,
            },
        )

    def authorization(self, headers: Mapping[bytes, bytes]) -> bytes:
        name = cookie_name("session", headers.get(b"host", b""))
        session = self._context.sessions.find(cookie_in(headers.get(b"cookie", b""), name))
        return b"" if session is None else session.authorization

    async def start(self) -> None:
        await self._traffic.start()

    def end_streams(self) -> None:
        self._traffic.end()

    async def stop(self) -> None:
        self._overview.stop()
        self._topics.stop()
        self._pipes.stop()
        await self._logs.stop()
        await self._traffic.stop()

    async def _answer_error(self, request: Request, error: Exception) -> Response:
        return self._pages.error(request, error)

    # Signing in

    async def _sign_in_page(self, request: Request) -> Response:
        return self._pages.page(request, "sign_in.html", problem="", then=_then(request))

    async def _sign_in(self, request: Request) -> Response:
        form = await form_of(request)
        authorization = b"Bearer " + form.get("token", "").strip().encode("latin-1", "replace")
        principal = self._context.door.principal(Shown(authorization))
        if principal is None:
            self._context.parts.metrics.refused("http", "unauthenticated")
            return self._pages.page(
                request,
                "sign_in.html",
                status=HTTPStatus.UNAUTHORIZED,
                problem="This token is not known here, or has expired.",
                then=_then(request),
            )
        # A JWT is not among the tokens.
        name = principal.name if principal.kind == "token" else ""
        session = self._context.sessions.open(authorization, name)
        if session is None:
            raise HTTPException(HTTPStatus.BAD_REQUEST, "this token is too large for a cookie")
        request.scope[SESSION] = session
        return redirect(_then(request))

    async def _sign_out(self, request: Request) -> Response:
        await form_of(request)
        sessions = self._context.sessions
        sessions.end(session_of(request))
        request.scope[SESSION] = sessions.stranger(is_let_in=False)
        return redirect(f"{CONSOLE}/")


def _then(request: Request) -> str:
    """The page to go to after signing in. Only one of the console: no other site sends people on by it."""
    wanted = request.query_params.get("then", "")
    return wanted if is_of_console(wanted) and "\\" not in wanted else f"{CONSOLE}/"


def _page_of(request: Request) -> str:
    """The page that a visitor is at: a form was sent from another address than its own."""
    url = URL(request.headers.get("referer", "")) if request.method == "POST" else request.url
    try:
        return f"{url.path}?{url.query}" if url.query else url.path
    except ValueError:  # a header that is no address
        return ""


async def _static(request: Request) -> Response:
    file = STATIC.get(request.path_params["name"])
    if file is None:
        raise HTTPException(HTTPStatus.NOT_FOUND, "there is no such file")
    return Response(file.content, media_type=file.media_type, headers={"cache-control": _FOR_EVER})


class _Frame:
    """The middleware of every request: its session, the check for a token, and safe headers."""

    def __init__(self, app: ASGIApp, context: ConsoleContext) -> None:
        self._app = app
        self._context = context

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        cookies = _Cookies(request.headers, secure=self._context.door.tls is not None)
        scope[SESSION] = self._session(request, cookies)

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = dict(message["headers"])
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name.encode(), value.encode())
                message["headers"] = [*headers.items(), *cookies.changes(scope[SESSION])]
            await send(message)

        if is_nobody(request) and not request.url.path.startswith(_OPEN):
            answer = redirect(f"{CONSOLE}/sign-in?then={segment(_page_of(request))}")
            await answer(scope, receive, send_safely)
            return
        await self._app(scope, receive, send_safely)

    def _session(self, request: Request, cookies: _Cookies) -> BrowserSession:
        sessions = self._context.sessions
        session = sessions.find(cookies.session) if self._context.door.asks else None
        if session is None:
            session = sessions.stranger(cookies.session, is_let_in=not is_nobody(request))
        if not is_nobody(request):
            session.read_notes(cookies.notes)
        return session


class _Cookies:
    """The cookies of one request, and what the answer changes in them."""

    def __init__(self, headers: Headers, *, secure: bool) -> None:
        self._secure = secure
        host, cookies = (headers.get(each, "").encode("latin-1") for each in ("host", "cookie"))
        self._names = [cookie_name(kind, host) for kind in ("session", "notes")]
        self.session, self.notes = (cookie_in(cookies, name) for name in self._names)

    def changes(self, session: BrowserSession) -> list[tuple[bytes, bytes]]:
        carrier = Response()
        now = (session.cookie, session.notes_cookie())
        for name, before, value in zip(self._names, (self.session, self.notes), now, strict=True):
            if value != before:
                carrier.set_cookie(
                    name,
                    value,
                    max_age=None if value else 0,
                    path=CONSOLE,
                    httponly=True,
                    samesite="strict",
                    secure=self._secure,
                )
        return [each for each in carrier.raw_headers if each[0] == b"set-cookie"]
