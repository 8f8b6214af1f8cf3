"""The application and its description, `/openapi.json`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Match, Route

from chronoline.broker.http.auth import OPEN_PATHS
from chronoline.broker.http.problems import Problem, problem_of
from chronoline.core.errors import ChronolineError

_SUMMARY = "Put a message on a timeline, get it back at its millisecond."
_ABOUT = """Moments are given with their zone (RFC 3339) or in milliseconds since 1970, and are meant by the
broker's clock. Every error is a problem (RFC 9457) whose `kind` says what it means: `refused`, `try_again` or
`unknown`."""
_NOT_OURS = ("HTTPValidationError", "ValidationError")


def new_app(version: str, routers: Iterable[APIRouter]) -> FastAPI:
    """All routes. There is no page that would need something from elsewhere."""
    app = FastAPI(
        title="Chronoline",
        summary=_SUMMARY,
        description=_ABOUT,
        version=version,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        separate_input_output_schemas=False,
        generate_unique_id_function=lambda route: route.name,
    )
    routes: list[BaseRoute] = []
    for router in routers:
        app.include_router(router)
        routes += router.routes
    app.add_exception_handler(ChronolineError, _tell)
    app.add_exception_handler(RequestValidationError, _tell)
    app.add_exception_handler(HTTPException, partial(_tell_of_http, routes))
    app.add_exception_handler(Exception, _tell)
    described = _describe(app)  # now, since it takes its time
    app.openapi = lambda: described  # type: ignore[method-assign]  # as its guide has it
    return app


async def _tell(_: Request, error: Exception) -> Response:
    return problem_of(error)


async def _tell_of_http(
    routes: Sequence[BaseRoute], request: Request, error: Exception
) -> Response:
    assert isinstance(error, HTTPException)
    told = HTTPException(error.status_code, error.detail, dict(error.headers or {}))
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        methods = ", ".join(sorted(_methods(routes, request)))
        told.detail = f"{request.method} is not for this path; {methods} are"
        told.headers = {"allow": methods}
    elif error.status_code == HTTPStatus.NOT_FOUND:
        told.detail = "there is nothing at this path; /openapi.json names what there is"
    return problem_of(told)


def _methods(routes: Sequence[BaseRoute], request: Request) -> set[str]:
    """Of all routes with this path, not only of the first."""
    return {
        method
        for route in routes
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE
        for method in route.methods or ()
    }


def _describe(app: FastAPI) -> dict[str, Any]:
    described = get_openapi(
        title=app.title,
        summary=app.summary,
        description=app.description,
        version=app.version,
        routes=app.routes,
    )
    schemas = described["components"]["schemas"]
    for name in _NOT_OURS:
        schemas.pop(name, None)
    schemas[Problem.__name__] = Problem.model_json_schema()
    described["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    for path, operations in described["paths"].items():
        for operation in operations.values():
            operation["responses"].pop("422", None)
            if path not in OPEN_PATHS:
                operation["security"] = [{}, {"token": []}]
    return described
