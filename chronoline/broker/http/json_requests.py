"""Requests with a body: JSON, and strictly so."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from http import HTTPStatus
from typing import Any

from fastapi import HTTPException, Request, Response
from fastapi.routing import APIRoute
from pydantic_core import from_json


class JsonRequest(Request):
    """Neither NaN, nor numbers of thousands of digits, nor nesting without end; text is valid Unicode."""

    async def json(self) -> Any:
        try:
            return from_json(await self.body(), allow_inf_nan=False)
        except ValueError as error:
            raise HTTPException(
                HTTPStatus.BAD_REQUEST, f"the body is not the JSON that is taken here: {error}"
            ) from None


class JsonRoute(APIRoute):
    """A body must say that it is JSON: then no web page can send it from a browser without being asked."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_json(request: Request) -> Response:
            if self.body_field is not None and not _says_json(request):
                raise HTTPException(
                    HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
                    "the body has to be JSON, and to say so: Content-Type: application/json",
                )
            return await handle(JsonRequest(request.scope, request.receive))

        return handle_json


def _says_json(request: Request) -> bool:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind == "application/json" or (
        kind.startswith("application/") and kind.endswith("+json")
    )
