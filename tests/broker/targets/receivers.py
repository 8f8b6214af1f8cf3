"""Receivers for tests: HTTP servers on loopback that note each call, and what nodes call them with."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from chronoline.broker.targets.policy import TargetPolicy
from chronoline.callbacks.address_guard import LOOPBACK, AddressGuard
from chronoline.callbacks.caller import Caller, CallLimits, Lookup
from chronoline.callbacks.signature import Signer
from tests.callbacks.test_caller import serving

Answering = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Called:
    """A call that came."""

    at_ms: int
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["Chronoline-Id"]

    @property
    def attempts(self) -> int:
        return int(self.headers["Chronoline-Attempts"])


@dataclass(slots=True)
class Receiver:
    """The calls that a receiver got, and the largest number at one time."""

    port: int = 0
    calls: list[Called] = field(default_factory=list)
    under_way: int = 0
    most_under_way: int = 0

    def url(self, path: str = "/") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def ids(self, path: str | None = None) -> list[str]:
        return [each.id for each in self.calls if path in (None, each.path)]


async def fine(_: web.BaseRequest) -> web.StreamResponse:
    return web.Response()


def answers(*statuses: int) -> Answering:
    """Each in its turn, and the last one from then on."""
    left = list(statuses)

    async def answer(_: web.BaseRequest) -> web.StreamResponse:
        status = left.pop(0) if len(left) > 1 else left[0]
        return web.Response(status=status, headers={"Location": "/elsewhere"})

    return answer


class Hanging:
    """Answers nothing at some paths until it is let go."""

    def __init__(self, *paths: str) -> None:
        self._paths = paths
        self.let_go = asyncio.Event()

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        if not self._paths or request.path in self._paths:
            await self.let_go.wait()
        return web.Response()


@asynccontextmanager
async def receiving(answer: Answering = fine, port: int = 0) -> AsyncIterator[Receiver]:
    receiver = Receiver()

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        receiver.under_way += 1
        receiver.most_under_way = max(receiver.most_under_way, receiver.under_way)
        at_ms = time.time_ns() // 1_000_000
        headers = dict(request.headers)
        body = b"".join([chunk async for chunk in request.content.iter_any()])
        receiver.calls.append(Called(at_ms, request.path, headers, body))
        try:
            return await answer(request)
        finally:
            receiver.under_way -= 1

    async with serving(handle, port=port) as receiver.port:
        yield receiver


@asynccontextmanager
async def calling(
    kind: type[TargetPolicy] = TargetPolicy,
    *,
    allow: Sequence[str] = LOOPBACK,
    secret: str | None = None,
    lookup: Lookup | None = None,
    **limits: Any,
) -> AsyncIterator[TargetPolicy]:
    """Callbacks for a node, with quick retries and a long time-out."""
    given = {"timeout_ms": 30_000, **limits}
    async with Caller(AddressGuard(allow), limits=CallLimits(**given), lookup=lookup) as caller:
        yield kind(
            caller=caller,
            signer=None if secret is None else Signer(secret),
            first_wait_ms=1,
            longest_wait_ms=1,
        )
