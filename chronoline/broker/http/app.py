"""The HTTP application: its routers, its error handlers and its description, `/openapi.json`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from http import HTTPStatus
from typing import Any, TypeVar

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.exceptions import HTTPException, RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic_core import from_json
from starlette.exceptions import HTTPException as AnyHTTPException
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute, Match, Route

from chronoline.broker.http.auth import OPEN_PATHS
from chronoline.broker.http.problems import MEDIA_TYPE, Problem, problem_of
from chronoline.broker.http.requests import decoded_segment, principal_of
from chronoline.core.errors import ChronolineError, InvalidInput
from chronoline.core.rights import RightKind
from chronoline.runtime.json_bounds import check_json_bounds

_SUMMARY = "Put a message on a timeline, get it back at its millisecond."
_ABOUT = """Moments have a zone (RFC 3339) or are milliseconds since 1970, by the
broker's clock. Every error is a problem (RFC 9457) whose `kind` says what it means: `refused`, `try_again` or
`unknown`."""
_OF_PROGRAMS = "/v1/"
_PARTS_OF_A_TOPIC = 3
"""v1, topics, and a name; longer paths are about its messages."""
_OF_TOPICS = (["brokers"], ["pause"], ["resume"])
"""The longer paths that are about the topic itself."""
_MOST_PARAMETERS = 100
_FASTAPI_SCHEMAS = ("HTTPValidationError", "ValidationError")

# The problems that a route can answer, for its description.

_ALWAYS = (
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.UNAUTHORIZED,
    HTTPStatus.FORBIDDEN,
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
OF_ONE_MESSAGE = (HTTPStatus.CONFLICT, HTTPStatus.GONE)


def problems(*groups: Sequence[HTTPStatus]) -> dict[int | str, dict[str, Any]]:
    """The problems of a route, besides those that every route can answer, as FastAPI describes responses."""
    statuses = sorted({*_ALWAYS, *(status for group in groups for status in group)})
    schema = {"$ref": f"#/components/schemas/{Problem.__name__}"}
    return {
        int(status): {"description": status.phrase, "content": {MEDIA_TYPE: {"schema": schema}}}
        for status in statuses
    }


# Routers

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])


def needs_one_of(*kinds: RightKind) -> Callable[[Endpoint], Endpoint]:
    """The kinds of rights of which a client has one, or its request is refused before its body is read.

    They count for the topic in the path, if there is one. The endpoint checks the names in the request.
    """

    def mark(endpoint: Endpoint) -> Endpoint:
        endpoint.needed_rights = kinds  # type: ignore[attr-defined]  # a function takes any attribute
        return endpoint

    return mark


def new_router(tag: str, prefix: str = "/v1") -> APIRouter:
    """A router for one group of routes."""
    return APIRouter(prefix=prefix, tags=[tag], route_class=JsonRoute)


class JsonRoute(APIRoute):
    """A route that takes and answers JSON. Its answers leave out fields that are null.

    A body must have the JSON content type: a browser does not send such a body to another site without a
    preflight request. Unknown parameters of a query are refused: a mistyped filter would match everything.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, endpoint, **{**options, "response_model_exclude_none": True})

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        known = {each.alias for each in self.dependant.query_params}
        has_body = self.body_field is not None
        needed: tuple[RightKind, ...] = getattr(self.endpoint, "needed_rights", ())
        if has_body and not needed:
            raise TypeError(f"{self.name} reads a body: say who may send one, by needs_one_of")

        async def handle_json(request: Request) -> Response:
            if needed:
                principal_of(request).check_one_of(needed, _topic_in(request))
            if request.scope["query_string"].count(b"&") >= _MOST_PARAMETERS:
                raise InvalidInput(
                    f"a request has at most {_MOST_PARAMETERS} parameters in its query"
                )
            unknown = request.query_params.keys() - known
            if unknown and self.path.startswith(_OF_PROGRAMS):
                takes = ", ".join(sorted(known)) or "none"
                raise InvalidInput(
                    f"{min(unknown)!r:.100} is no parameter of this request; it takes: {takes}"
                )
            if has_body and not _says_json(request):
                raise HTTPException(
                    HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
                    "the body must be JSON, with Content-Type: application/json",
                )
            return await handle(_JsonRequest(request.scope, request.receive))

        return handle_json


class _JsonRequest(Request):
    """A request with strict JSON: no NaN, bounded values, digits and nesting, valid Unicode."""

    _text = b""

    async def body(self) -> bytes:
        """The first byte, by which FastAPI knows that there is one. It would keep all until the answer."""
        self._text = b"".join([chunk async for chunk in self.stream()])
        return self._text[:1]

    async def json(self) -> Any:
        text, self._text = self._text, b""
        try:
            check_json_bounds(text)
            return from_json(text, allow_inf_nan=False)
        except InvalidInput as error:
            raise HTTPException(HTTPStatus.BAD_REQUEST, str(error)) from None
        except ValueError as error:
            raise HTTPException(
                HTTPStatus.BAD_REQUEST, f"the body is not valid JSON: {error}"
            ) from None


def _topic_in(request: Request) -> str | None:
    """The topic in the path. Raises `InvalidInput`."""
    text = request.path_params.get("topic")
    try:
        return None if text is None else decoded_segment(text)
    except ValueError as error:
        raise InvalidInput(f"topic: {error}") from None


def _says_json(request: Request) -> bool:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind == "application/json" or (
        kind.startswith("application/") and kind.endswith("+json")
    )


# The application


def new_app(
    version: str, routers: Iterable[APIRouter], check: Callable[[str], None] = lambda _: None
) -> FastAPI:
    """The application with these routers. It has no pages that load files from other sites.

    `check` raises if this broker does not have the role that a request needs.
    """

    async def check_role(request: Request) -> None:
        if role := _role_of(request):
            check(role)

    app = FastAPI(
        title="Chronoline",
        summary=_SUMMARY,
        description=_ABOUT,
        version=version,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        separate_input_output_schemas=False,
        generate_unique_id_function=lambda route: route.name,
    )
    routes: list[BaseRoute] = []
    for router in routers:
        app.include_router(router, dependencies=[Depends(check_role)])
        routes += router.routes
    app.add_exception_handler(ChronolineError, _answer_error)
    app.add_exception_handler(RequestValidationError, _answer_error)
    app.add_exception_handler(AnyHTTPException, partial(_answer_http_error, routes))
    app.add_exception_handler(Exception, _answer_error)
    app.add_route("/openapi.json", _Description(app).respond, include_in_schema=False)
    return app


def _role_of(request: Request) -> str:
    """The role of the broker that answers a request; empty if every broker does."""
    parts = request.url.path.strip("/").split("/")
    if parts[:2] == ["v1", "schedules"]:
        return "carrier"
    if parts[:2] != ["v1", "topics"]:
        return ""
    if len(parts) > _PARTS_OF_A_TOPIC and parts[_PARTS_OF_A_TOPIC:] not in _OF_TOPICS:
        return "carrier"
    return "" if request.method in ("GET", "HEAD") else "overseer"


async def _answer_error(_: Request, error: Exception) -> Response:
    return problem_of(error)


async def _answer_http_error(
    routes: Sequence[BaseRoute], request: Request, error: Exception
) -> Response:
    assert isinstance(error, AnyHTTPException)
    answer = HTTPException(error.status_code, error.detail, dict(error.headers or {}))
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        methods = ", ".join(sorted(_methods(routes, request)))
        answer.detail = f"{request.method} is not allowed for this path; allowed: {methods}"
        answer.headers = {"allow": methods}
    elif error.status_code == HTTPStatus.NOT_FOUND:
        answer.detail = "there is nothing at this path; /openapi.json lists all paths"
    return problem_of(answer)


def _methods(routes: Sequence[BaseRoute], request: Request) -> set[str]:
    """The methods of all routes with this path; Starlette names only those of the first."""
    return {
        method
        for route in routes
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE
        for method in route.methods or ()
    }


class _Description:
    """The description of the interface. It takes long, so that the first request makes it, in a thread."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app
        self._made: asyncio.Future[dict[str, Any]] | None = None

    async def respond(self, _: Request) -> Response:
        if self._made is None:
            self._made = asyncio.ensure_future(asyncio.to_thread(_describe, self._app))
        return JSONResponse(await asyncio.shield(self._made))


def _describe(app: FastAPI) -> dict[str, Any]:
    description = get_openapi(
        title=app.title,
        summary=app.summary,
        description=app.description,
        version=app.version,
        routes=app.routes,
    )
    schemas = description["components"]["schemas"]
    for name in _FASTAPI_SCHEMAS:
        schemas.pop(name, None)
    schemas[Problem.__name__] = Problem.model_json_schema()
    description["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    for path, operations in description["paths"].items():
        for operation in operations.values():
            operation["responses"].pop("422", None)
            if path not in OPEN_PATHS:
                operation["security"] = [{}, {"token": []}]
    return description
