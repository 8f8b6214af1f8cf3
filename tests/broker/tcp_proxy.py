"""A TCP proxy in front of a broker, which a test can cut and heal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

_CHUNK_BYTES = 64 * 1024


class TcpProxy:
    """Forwards connections to a broker. While it is cut, it rejects new connections."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._to = host, int(port)
        self._is_cut = False
        self._open: set[asyncio.StreamWriter] = set()
        self.address = ""
        """The address that clients connect to."""
        self.turned_away = 0
        self.accept_after_s = 0.0

    def cut(self) -> None:
        """Abort all connections and reject new ones."""
        self._is_cut = True
        for writer in self._open:
            writer.transport.abort()

    def heal(self) -> None:
        self._is_cut = False

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            self.turned_away += 1
            writer.transport.abort()
            return
        await asyncio.sleep(self.accept_after_s)  # as a machine that has much else to do
        there, onward = await asyncio.open_connection(*self._to)
        self._open |= {writer, onward}
        try:
            await asyncio.gather(_carry(reader, onward), _carry(there, writer))
        finally:
            self._open -= {writer, onward}


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):  # the proxy was cut, or one side closed
        while chunk := await reader.read(_CHUNK_BYTES):
            writer.write(chunk)
            await writer.drain()
    writer.close()


@asynccontextmanager
async def tcp_proxy(address: str) -> AsyncIterator[TcpProxy]:
    way = TcpProxy(address)
    server = await asyncio.start_server(way.accept, "127.0.0.1", 0)
    way.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield way
    finally:
        way.cut()
        server.close()
        await server.wait_closed()
