"""A visitor of the console over HTTP, who follows forms as a browser does."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from chronoline.console.app import Console
from tests.broker.http.served import Served, serving

SECRET = re.compile(r'name="form_secret" value="([^"]+)"')


class Visitor:
    """One browser: it keeps its cookie, and repeats the secret of the last page."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self.http = http
        self.secret = ""

    @property
    def cookie(self) -> tuple[str, str]:
        """Name and value of the cookie of its session."""
        ((name, value),) = (each for each in self.http.cookies.items() if "session" in each[0])
        return name, value

    async def get(self, path: str, status: int = 200) -> str:
        page = await self.http.get(f"/console{path}")
        return self._read(page, status)

    async def submit(self, path: str, **fields: str) -> str:
        """Opens the page with the form, and sends it."""
        await self.get(path)
        return await self.post(path, 200, **fields)

    async def post(self, path: str, status: int = 200, **fields: str) -> str:
        form = {"form_secret": self.secret, **fields}
        page = await self.http.post(f"/console{path}", data=form)
        return self._read(page, status)

    def _read(self, page: httpx.Response, status: int) -> str:
        assert page.status_code == status, page.text
        found = SECRET.search(page.text)
        if found is not None:
            self.secret = found[1]
        return page.text


@asynccontextmanager
async def visiting(place: Path, **given: Any) -> AsyncIterator[tuple[Served, Visitor]]:
    """A node with a console, and a visitor of it."""
    options = given.pop("console", {})
    async with (
        serving(place, console=partial(Console, **options), **given) as served,
        httpx.AsyncClient(base_url=served.url, follow_redirects=True, timeout=60) as browser,
    ):
        yield served, Visitor(browser)
