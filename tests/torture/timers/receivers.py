"""Receivers of callbacks: they record every call, and answer at once, slowly, the second time or never."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from functools import partial
from typing import Self

from aiohttp import web

from tests.torture.history import DELIVERY, Recorder
from tests.torture.timers.judge import QUICK

SLOW, FLAKY, DEAD = "slow", "flaky", "dead"
RECEIVERS = (QUICK, SLOW, FLAKY, DEAD)
_SLOW_S = 1.0
_ID_DIGITS = 16


class Receivers:
    """One server for each kind, so that nodes queue their calls separately."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._exits = AsyncExitStack()
        self._ports: dict[str, int] = {}
        self._deliveries = 0
        # The flaky receiver refused it once.
        self._refused: set[tuple[str, str]] = set()

    async def __aenter__(self) -> Self:
        for kind in RECEIVERS:
            server = web.Server(partial(self._take, kind), access_log=None)
            runner = web.ServerRunner(server, shutdown_timeout=0.1)
            await runner.setup()
            self._exits.push_async_callback(runner.cleanup)
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self._ports[kind] = runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._exits.aclose()

    def uri(self, kind: str) -> str:
        return f"http://127.0.0.1:{self._ports[kind]}/pop"

    async def _take(self, kind: str, request: web.BaseRequest) -> web.Response:
        label, number = await request.text(), request.headers.get("X-Sequence-Number", "")
        self._deliveries += 1
        delivery = self._deliveries
        self._recorder.record(
            DELIVERY,
            delivery=delivery,
            label=label,
            sequence=int(number) if number.isdecimal() else None,
            id=request.headers.get("X-Timer-Id", "")[:_ID_DIGITS],
            receiver=kind,
        )
        if kind == SLOW:
            await asyncio.sleep(_SLOW_S)
        status = 500 if self._is_refused(kind, label, number) else 200
        self._recorder.record("answered", delivery=delivery, status=status)
        return web.Response(status=status)

    def _is_refused(self, kind: str, label: str, number: str) -> bool:
        if kind == FLAKY and (label, number) not in self._refused:
            self._refused.add((label, number))
            return True
        return kind == DEAD
