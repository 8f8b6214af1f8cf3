"""A TCP proxy in front of a server, which a test can cut and heal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

_CHUNK_BYTES = 64 * 1024


class TcpProxy:
    """Forwards connections to a server.

    While it is cut, it rejects new connections. While it is silent, connections stay open and nothing passes,
    as on a network that loses all packets; afterwards it passes what was sent meanwhile.
    """

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._to = host, int(port)
        self._is_cut = False
        self._passes = asyncio.Event()
        self._passes.set()
        self._open: set[asyncio.StreamWriter] = set()
        self.address = ""
        """The address that clients connect to."""
        self.turned_away = 0
        self.accept_after_s = 0.0
        self.loses_requests = False
        """Data of clients does not arrive. Cut it afterwards: streams miss a part."""
        self.loses_answers = False
        """The same for data of the server."""

    def cut(self) -> None:
        """Abort all connections and reject new ones."""
        self._is_cut = True
        self._passes.set()
        for writer in self._open:
            writer.transport.abort()

    def silence(self) -> None:
        self._passes.clear()

    def heal(self) -> None:
        self._is_cut = False
        self._passes.set()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            self.turned_away += 1
            writer.transport.abort()
            return
        await self._passes.wait()
        await asyncio.sleep(self.accept_after_s)  # as a machine that has much else to do
        try:
            there, onward = await asyncio.open_connection(*self._to)
        except OSError:  # the server is down, as its clients shall see
            writer.transport.abort()
            return
        self._open |= {writer, onward}
        try:
            await asyncio.gather(
                self._carry(reader, onward, lambda: self.loses_requests),
                self._carry(there, writer, lambda: self.loses_answers),
            )
        finally:
            self._open -= {writer, onward}

    async def _carry(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        is_lost: Callable[[], bool],
    ) -> None:
        with suppress(ConnectionError):  # the proxy was cut, or one side closed
            while chunk := await reader.read(_CHUNK_BYTES):
                if is_lost():
                    continue
                await self._passes.wait()
                writer.write(chunk)
                await writer.drain()
        await self._passes.wait()
        writer.close()


@asynccontextmanager
async def tcp_proxy(address: str, host: str = "127.0.0.1") -> AsyncIterator[TcpProxy]:
    """`host` is the address of this machine on which the proxy listens."""
    way = TcpProxy(address)
    server = await asyncio.start_server(way.accept, host, 0)
    way.address = f"{host}:{server.sockets[0].getsockname()[1]}"
    try:
        yield way
    finally:
        way.cut()
        server.close()
        await server.wait_closed()
