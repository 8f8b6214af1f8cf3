"""The network between nodes: a proxy before each of them, which can be cut off from some and not from others.

Nodes know each other by the addresses of the proxies. The token of a connection names its node. A cut
link loses what is under way and answers nothing, as a network does that loses every packet.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Coroutine, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, Self

from chronoline.runtime.child_process import free_addresses

_CHUNK_BYTES = 65_536
_BEARER = b"Authorization: Bearer "

Pair = frozenset[str]


class Links:
    """The proxies, in a thread of their own; a client that shows no token always gets through."""

    def __init__(self, number: int) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._doors = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
        names = [f"127.0.0.1:{door.getsockname()[1]}" for door in self._doors]
        # Where the node of each name listens.
        self.at = dict(zip(names, free_addresses(number), strict=True))
        self._servers: list[asyncio.Server] = []
        self._cut: set[Pair] = set()
        self._open: dict[asyncio.Task[None], Pair] = {}

    @property
    def names(self) -> list[str]:
        return list(self.at)

    def token(self, name: str) -> str:
        """By which the proxies know a node."""
        return f"node-{name.rpartition(':')[2]}"

    def cut(self, some: Iterable[str], others: Iterable[str]) -> None:
        """Each of some from each of the others, in both directions."""
        pairs = {frozenset((one, other)) for one in some for other in others}
        self._do(self._set({*self._cut, *pairs}))

    def heal(self) -> None:
        self._do(self._set(set()))

    async def _set(self, cut: set[Pair]) -> None:
        """Connections over links that changed end: those that were cut, and those that hung."""
        changed, self._cut = cut ^ self._cut, cut
        for task, pair in list(self._open.items()):
            if pair in changed:
                task.cancel()

    async def _serve(self, to: str, reader: _Reader, writer: _Writer) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            caller = head.partition(_BEARER)[2].partition(b"\r\n")[0].decode()
            pair = frozenset((to, *(name for name in self.at if self.token(name) == caller)))
            self._open[task] = pair
            if pair in self._cut:
                await asyncio.Event().wait()
            await self._pass_on(self.at[to], head, reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # one of the two is gone, or the link is: both see the end of the connection
        finally:
            self._open.pop(task, None)
            writer.transport.abort()

    @staticmethod
    async def _pass_on(at: str, head: bytes, reader: _Reader, writer: _Writer) -> None:
        host, _, port = at.rpartition(":")
        from_node, to_node = await asyncio.open_connection(host, int(port))
        try:
            to_node.write(head)
            pumps = [asyncio.ensure_future(_pump(reader, to_node))]
            pumps.append(asyncio.ensure_future(_pump(from_node, writer)))
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)
        finally:
            to_node.transport.abort()

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def __enter__(self) -> Self:
        self._thread.start()
        self._do(self._start())
        return self

    async def _start(self) -> None:
        for name, door in zip(self.at, self._doors, strict=True):
            serve = partial(self._serve, name)
            self._servers.append(await asyncio.start_server(serve, sock=door))

    def __exit__(self, *_: object) -> None:
        self._do(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _stop(self) -> None:
        for server in self._servers:
            server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)


_Reader = asyncio.StreamReader
_Writer = asyncio.StreamWriter


async def _pump(reader: _Reader, writer: _Writer) -> None:
    with suppress(OSError):
        while chunk := await reader.read(_CHUNK_BYTES):
            writer.write(chunk)
            await writer.drain()
