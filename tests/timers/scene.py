"""Nodes of the timer service in this process, and a receiver of callbacks."""

from __future__ import annotations

import asyncio
import io
import json
import socket
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from chronoline.callbacks.caller import CallLimits
from chronoline.core.errors import StoreBusy
from chronoline.node.timer_service import ServiceOptions, TimerService
from chronoline.runtime.child_process import free_addresses
from chronoline.timers.journal import Journal
from chronoline.timers.membership import replicas_of
from chronoline.timers.node import TimerNode
from chronoline.timers.peer_records import PeerRecords
from tests.deadline import until

HOUR_MS = 3_600_000
NOWHERE = "http://127.0.0.1:9/"
INTAKE = PeerRecords(
    problem=lambda _, __: None, now_ms=lambda: 0, wall_ms=lambda: 0, refused=lambda _: None
)
"""Takes what it can read."""


@dataclass(frozen=True)
class Popped:
    """A callback that came."""

    at_s: float
    path: str
    sequence: int
    body: str
    headers: dict[str, str]


Answering = Callable[[Popped], Awaitable[int | web.Response]]
"""A status, or more than that."""


@dataclass
class Receiver:
    """Receives callbacks, and answers by `answer`."""

    port: int = 0
    popped: list[Popped] = field(default_factory=list)
    answer: Answering | None = None
    _more: asyncio.Condition = field(default_factory=asyncio.Condition)

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}/pop"

    async def handle(self, request: web.BaseRequest) -> web.Response:
        pop = Popped(
            time.monotonic(),
            request.path,
            int(request.headers.get("X-Sequence-Number", "0")),
            await request.text(),
            dict(request.headers),
        )
        async with self._more:
            self.popped.append(pop)
            self._more.notify_all()
        answer = 200 if self.answer is None else await self.answer(pop)
        return web.Response(status=answer) if isinstance(answer, int) else answer

    async def until(self, enough: Callable[[list[Popped]], bool]) -> list[Popped]:
        """Waits for this number of callbacks."""
        async with self._more:
            await self._more.wait_for(lambda: enough(self.popped))
        return self.popped

    async def count(self, number: int) -> list[Popped]:
        return await self.until(lambda popped: len(popped) >= number)


@asynccontextmanager
async def receiving(
    host: str = "127.0.0.1",
    *,
    door: socket.socket | None = None,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[Receiver]:
    """On a port that was free, or at a socket that listens already."""
    receiver = Receiver()
    runner = web.ServerRunner(web.Server(receiver.handle, access_log=None), shutdown_timeout=0.1)
    await runner.setup()
    if door is None:
        await web.TCPSite(runner, host, 0, ssl_context=tls).start()
    else:
        await web.SockSite(runner, door.dup(), ssl_context=tls).start()
    receiver.port = runner.addresses[0][1]
    try:
        yield receiver
    finally:
        assert runner.server is not None
        for connection in runner.server.connections if tls else ():
            if connection.transport is not None:
                connection.transport.abort()  # closing takes two with TLS, and the loop ends before
        await runner.cleanup()


@dataclass
class Answered:
    """An answer of a node."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def location(self) -> str:
        return self.headers["Location"]

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Cluster:
    """Some nodes on loopback; each can be stopped and started."""

    def __init__(self, folder: Path, names: Sequence[str], **options: Any) -> None:
        self._folder = folder
        self._options = options
        self._exits = AsyncExitStack()
        self.names = list(names)
        self.services: dict[str, TimerService] = {}
        self.nodes_file = folder / "nodes.toml"

    def write(self, **lists: Sequence[str]) -> None:
        """The list of nodes, which they read when they start, or when asked."""
        text = "\n".join(f"{name} = {json.dumps(list(nodes))}" for name, nodes in lists.items())
        self.nodes_file.write_text(text)

    async def start(self, name: str) -> TimerService:
        host, _, port = name.rpartition(":")
        options = ServiceOptions(
            host=host,
            port=int(port),
            data=self._folder / port,
            nodes_file=self.nodes_file,
            **self._options,
        )
        service = self.services[name] = TimerService(options)
        await service.start()
        return service

    def node(self, at: int) -> TimerNode:
        node = self.services[self.names[at]].node
        assert node is not None
        return node

    def kept_by(self, *numbers: int) -> int:
        """A timer that these nodes keep, the first of them first."""
        wanted = tuple(self.names[number] for number in numbers)
        names = sorted(self.names)
        return next(each for each in count(1) if replicas_of(each, len(wanted), names) == wanted)

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        at: int = 0,
        headers: dict[str, str] | None = None,
    ) -> Answered:
        """A request to one of the nodes."""
        raw = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        data = None if raw is None else io.BytesIO(raw)
        async with (
            aiohttp.ClientSession() as session,
            session.request(
                method, f"http://{self.names[at]}{path}", data=data, headers=headers
            ) as response,
        ):
            return Answered(response.status, dict(response.headers), await response.read())

    async def stop(self) -> None:
        for service in self.services.values():
            await service.stop()


@asynccontextmanager
async def cluster(folder: Path, size: int = 1, **options: Any) -> AsyncIterator[Cluster]:
    """`size` nodes that know each other."""
    names = free_addresses(size)
    found = Cluster(folder, names, **options)
    found.write(staying=names)
    try:
        await asyncio.gather(*map(found.start, names))
        yield found
    finally:
        await found.stop()


def timer(
    uri: str,
    *,
    interval_ms: int = 20,
    repeat_for_ms: int | None = None,
    opaque: str = "hello",
    **others: Any,
) -> dict[str, Any]:
    """The body of a request."""
    timing = {"interval-ms": interval_ms}
    if repeat_for_ms is not None:
        timing["repeat-for-ms"] = repeat_for_ms
    return {"timing": timing, "callback": {"http": {"uri": uri, "opaque": opaque}}, **others}


@asynccontextmanager
async def all_calling(
    folder: Path, timers: int
) -> AsyncIterator[tuple[Receiver, Cluster, asyncio.Event]]:
    """A node that calls back for several timers, one at a time; the receiver answers after the event."""
    answers = asyncio.Event()

    async def wait(_: Popped) -> int:
        await answers.wait()
        return 200

    limits = CallLimits(for_each_host=1, timeout_ms=60_000)
    async with receiving() as receiver, cluster(folder, calls=limits) as nodes:
        receiver.answer = wait
        for _ in range(timers):
            await nodes.ask("POST", "/timers", timer(receiver.uri, interval_ms=1))
        await receiver.count(1)
        await until(lambda: nodes.node(0).replica.wake_at() is None)  # all of them are being called
        yield receiver, nodes, answers


def refuse_once(journal: Journal, patch: pytest.MonkeyPatch) -> None:
    """The next save is refused."""
    save = journal.save
    refused: list[Any] = []

    def busy(*arguments: Any, **options: Any) -> Any:
        if not refused:
            refused.append(arguments)
            raise StoreBusy("somebody else writes")
        return save(*arguments, **options)

    patch.setattr(journal, "save", busy)
