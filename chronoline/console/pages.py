"""The common parts of all pages: templates, forms, the visitor and the answers to errors."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus
from importlib import resources
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote, unquote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from chronoline.broker.auth import Door
from chronoline.broker.context import BrokerContext
from chronoline.broker.http.auth import NOBODY, PRINCIPAL
from chronoline.broker.http.console_mount import CONSOLE, Edge
from chronoline.broker.http.problems import problem_of
from chronoline.broker.principals import Principal
from chronoline.console.sessions import BrowserSession, BrowserSessions
from chronoline.console.traffic import Traffic
from chronoline.core.errors import ChronolineError, OutcomeUnknown
from chronoline.core.lateness import show_bound, show_lateness
from chronoline.core.rights import RightKind
from chronoline.core.topic import Topic
from chronoline.runtime.timestamps import show_moment

if TYPE_CHECKING:
    from jinja2 import Environment

SESSION = "chronoline.session"
"""The key of the browser's session in the scope of a request."""
SECURITY_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cache-control": "no-store",
}
_SECRET_FIELD = "form_secret"
_OWN_SITES = ("same-origin", "none")
_MOST_FIELDS = 100
_MOST_FORM_BYTES = 1024 * 1024
_MOST_SIGN_IN_BYTES = 16 * 1024
"""The most bytes of a form of a browser that has not signed in."""
_QUICK_BYTES = 16 * 1024
"""Larger forms are read in a thread: each escaped character takes as long as a microsecond."""
_MOST_DIGITS = 18
_MOST_UNITS = 2
_SECOND_MS = 1_000
_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"), (1, "ms"))

Handler = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleContext:
    """The parts of the node that pages read and change."""

    parts: BrokerContext
    door: Door
    edge: Edge
    sessions: BrowserSessions
    traffic: Traffic


class Pages:
    """Makes pages of templates, for one console."""

    def __init__(self, context: ConsoleContext) -> None:
        self.context = context

    @cached_property
    def _environment(self) -> Environment:
        """Made for the first page: a node that nobody looks at need not load the templates."""
        from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415

        environment = Environment(
            loader=PackageLoader("chronoline.console"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        environment.filters |= {
            "bound": show_bound,
            "lateness": show_lateness,
            "moment": show_moment,
            "time": show_time,
            "number": show_number,
            "duration": show_duration,
            "segment": segment,
        }
        environment.globals |= {"root": CONSOLE, "static": _static_url}
        return environment

    def page(
        self,
        request: Request,
        template: str,
        *,
        status: HTTPStatus = HTTPStatus.OK,
        **values: Any,
    ) -> Response:
        session = session_of(request)
        notes = list(session.notes)
        session.notes.clear()
        degradation = self.context.parts.degradation
        text = self._environment.get_template(template).render(
            **values,
            principal=principal_of(request),
            signed_in=bool(session.authorization),
            asks=self.context.door.asks,
            secret=session.form_secret,
            notes=notes,
            now_ms=self.context.parts.clock.now_ms(),
            broker=self.context.parts.broker,
            version=self.context.parts.version,
            degraded=degradation.current,
            # A stranger learns no more than by the route /readyz.
            noticed=() if is_stranger(request) else degradation.notices,
            is_stranger=is_stranger(request),
            path=request.url.path,
        )
        return HTMLResponse(text, status_code=status)

    def error(self, request: Request, error: Exception) -> Response:
        """A page with the status and the words that a program would get."""
        answer = problem_of(error)
        status = HTTPStatus(answer.status_code)
        words = error.detail if isinstance(error, HTTPException) else str(error)
        return self.page(request, "error.html", status=status, title=status.phrase, words=words)

    async def topic(self, request: Request) -> Topic:
        """The topic in the path. Raises `TopicNotFound`, and `Forbidden` without any right to it."""
        name = path_name(request, "topic")
        principal_of(request).check_touches(name)
        return await self.context.edge.topics.find(name)


# Requests


def principal_of(request: Request) -> Principal:
    principal: Principal = request.scope[PRINCIPAL]
    return principal


def allows(
    request: Request, kind: RightKind, topic: str | None = None, name: str | None = None
) -> bool:
    """Whether a page shows something. Unlike `Principal.may` it is no administrative act by itself."""
    return principal_of(request).rights.allows(kind, topic, name)


def session_of(request: Request) -> BrowserSession:
    session: BrowserSession = request.scope[SESSION]
    return session


def is_nobody(request: Request) -> bool:
    """Whether the browser has to sign in first."""
    return principal_of(request) is NOBODY


def is_stranger(request: Request) -> bool:
    """Whether the visitor has no right to any topic, signed in or not: the node shows nothing of itself."""
    return not principal_of(request).rights.touches()


def path_name(request: Request, name: str) -> str:
    """A name in the path, which is percent-encoded there."""
    try:
        return unquote(request.path_params[name], errors="strict")
    except UnicodeDecodeError:
        raise HTTPException(HTTPStatus.NOT_FOUND, "the path is not UTF-8") from None


async def form_of(
    request: Request, *needed: RightKind, topic: str | None = None
) -> Mapping[str, str]:
    """The fields of a form that this session was given. Empty ones are left out.

    Raises `Forbidden`, before it reads the form, without a right of one of the `needed` kinds to the topic.
    """
    if needed:
        principal_of(request).check_one_of(needed, topic)
    if request.headers.get("sec-fetch-site", "same-origin") not in _OWN_SITES:
        raise HTTPException(HTTPStatus.FORBIDDEN, "the form is from a page of another site")
    body = await _form_body(
        request, _MOST_SIGN_IN_BYTES if is_nobody(request) else _MOST_FORM_BYTES
    )
    try:
        if len(body) <= _QUICK_BYTES:
            fields = _parsed(body)
        else:
            fields = await asyncio.to_thread(_parsed, body)
    except ValueError:
        raise HTTPException(HTTPStatus.BAD_REQUEST, "the form cannot be read") from None
    form = {name: values[-1] for name, values in fields.items()}
    if not session_of(request).knows(form.pop(_SECRET_FIELD, "")):
        raise HTTPException(
            HTTPStatus.FORBIDDEN,
            "the form is from another session: go back, reload the page, and send it again",
        )
    return form


async def _form_body(request: Request, most_bytes: int) -> bytes:
    """The body of a form. A larger one is refused before the rest of it is read."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most_bytes:
            raise HTTPException(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"the form has more than {most_bytes} bytes: send larger messages by a program",
            )
    return bytes(body)


def _parsed(body: bytes) -> dict[str, list[str]]:
    """Raises `ValueError`."""
    return parse_qs(body.decode(), strict_parsing=False, max_num_fields=_MOST_FIELDS)


def whole_parameter(request: Request, name: str, default: int, *, least: int = 1) -> int:
    """A whole number in the query of the path."""
    text = request.query_params.get(name)
    if text is None:
        return default
    if not text.isdecimal() or len(text) > _MOST_DIGITS or int(text) < least:
        raise HTTPException(
            HTTPStatus.BAD_REQUEST, f"{name} must be a whole number from {least} on"
        )
    return int(text)


def redirect(path: str) -> Response:
    return RedirectResponse(path, status_code=HTTPStatus.SEE_OTHER)


async def act(
    request: Request,
    work: Callable[[], Awaitable[Any]],
    *,
    done: str,
    then: str,
    if_not: str = "",
) -> Response:
    """Does an action, and shows on the next page what became of it."""
    notes = session_of(request).notes
    try:
        await work()
    except OutcomeUnknown as error:
        problem_of(error)
        notes.append(("unknown", f"It is not known whether this was done: {error}"))
    except (ChronolineError, HTTPException, ValueError) as error:
        problem_of(error)  # the audit trail has its code
        words = error.detail if isinstance(error, HTTPException) else str(error)
        notes.append(("refused", f"Refused: {words.removeprefix('refused: ')}"))
    else:
        notes.append(("done", done))
        return redirect(then)
    return redirect(if_not or then)


def is_done(request: Request) -> bool:
    """Whether the last action of a request was neither refused nor of an unknown outcome."""
    return session_of(request).notes[-1][0] == "done"


# Words in templates


def segment(text: str) -> str:
    """A name as one segment of a path."""
    return quote(text, safe="")


def show_number(number: float) -> str:
    return f"{number:,.0f}" if number == int(number) else f"{number:,.1f}"


def show_time(moment_ms: int) -> str:
    """A moment as all pages and charts show it: 2026-01-31 12:00:00.000 UTC."""
    return show_moment(moment_ms).replace("T", " ").replace("Z", " UTC")


def time_given(text: str) -> str:
    """A moment that a visitor gives, also in the form in which it is shown."""
    return text.strip().replace(" UTC", "Z")


def show_duration(duration_ms: float) -> str:
    """In its largest unit, and the next one: 1 h 30 min."""
    left = abs(round(duration_ms))
    words: list[str] = []
    for size, unit in _UNITS:
        if left >= size and len(words) < _MOST_UNITS and not (unit == "ms" and words):
            words.append(f"{left // size} {unit}")
            left %= size
    return " ".join(words) or "0 s"


# Files


def _static_url(name: str) -> str:
    return f"{CONSOLE}/static/{STATIC_TAG}/{name}"


@dataclass(frozen=True, slots=True)
class StaticFile:
    content: bytes
    media_type: str


_MEDIA_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


def _read_static() -> dict[str, StaticFile]:
    folder = resources.files("chronoline.console").joinpath("static")
    return {
        each.name: StaticFile(each.read_bytes(), media_type)
        for each in sorted(folder.iterdir(), key=lambda each: each.name)
        if (media_type := _MEDIA_TYPES.get(each.name.rpartition(".")[2]))
    }


STATIC = _read_static()
STATIC_TAG = hashlib.sha256(b"".join(each.content for each in STATIC.values())).hexdigest()[:12]
"""A part of the path of each file. It changes with any of them, so browsers may keep a file."""
