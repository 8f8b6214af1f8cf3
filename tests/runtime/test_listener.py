"""A capped listener: idle connections are closed, busy ones stay, and the counts are exact."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
import subprocess
import sys
from asyncio import sslproto
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from chronoline.runtime import listener as listeners
from chronoline.runtime.listener import CappedListener, listen
from tests.certificates import make_certificate
from tests.deadline import run_scene, until


class _Echo(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


def _abort_nothing() -> None:
    pass


@asynccontextmanager
async def _serving(most: int, tls: ssl.SSLContext | None = None) -> AsyncIterator[CappedListener]:
    listener = listen("127.0.0.1", 0, most=most)
    server = await asyncio.get_running_loop().create_server(_Echo, sock=listener, ssl=tls)
    async with server:
        yield listener


async def _connect(listener: CappedListener) -> socket.socket:
    client = socket.socket()
    client.setblocking(False)
    await asyncio.get_running_loop().sock_connect(client, listener.getsockname())
    return client


def test_the_longest_idle_connection_gives_way() -> None:
    async def scene() -> None:
        loop = asyncio.get_running_loop()
        async with _serving(2) as listener:
            first, second = await _connect(listener), await _connect(listener)
            await until(lambda: listener.connections == 2)
            third = await _connect(listener)
            assert await loop.sock_recv(first, 1) == b""
            for each in (second, third):
                await loop.sock_sendall(each, b"x")
                assert await loop.sock_recv(each, 1) == b"x"
            for each in (first, second, third):
                each.close()
            await until(lambda: listener.connections == 0)

    run_scene(scene)


def test_strangers_give_way_before_an_idle_client() -> None:
    async def scene() -> None:
        loop = asyncio.get_running_loop()
        async with _serving(4) as listener:
            client = await _connect(listener)
            await until(lambda: listener.connections == 1)
            # The server above knows the descriptor of a connection.
            for descriptor in list(listener._strangers):
                listener.know(descriptor)
            strangers = [await _connect(listener) for _ in range(6)]
            for stranger in strangers[:3]:
                assert await loop.sock_recv(stranger, 1) == b""
            assert listener.strangers == 3
            await loop.sock_sendall(client, b"x")
            assert await loop.sock_recv(client, 1) == b"x"
            for connection in (client, *strangers):
                connection.close()
            await until(lambda: listener.connections == 0)

    run_scene(scene)


def test_strangers_leave_room_for_clients() -> None:
    async def scene() -> None:
        loop = asyncio.get_running_loop()
        async with _serving(4) as listener:
            strangers = [await _connect(listener) for _ in range(4)]
            assert await loop.sock_recv(strangers[0], 1) == b""
            assert listener.strangers == 3
            for stranger in strangers:
                stranger.close()

    run_scene(scene)


def test_silent_stranger_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    # No settings: the test does not wait for the usual times.
    monkeypatch.setattr(listeners, "SILENCE_S", 0.2)
    monkeypatch.setattr(listeners, "SWEEP_EVERY_S", 0.05)

    async def scene() -> None:
        loop = asyncio.get_running_loop()
        async with _serving(9) as listener:
            busy, known, silent = [await _connect(listener) for _ in range(3)]
            await until(lambda: listener.connections == 3)
            first, second, _ = listener._strangers
            listener.begin(first, _abort_nothing)
            listener.know(second)
            assert await loop.sock_recv(silent, 1) == b""
            await until(lambda: listener.connections == 2)
            for connection in (busy, known):
                await loop.sock_sendall(connection, b"x")
                assert await loop.sock_recv(connection, 1) == b"x"
            for connection in (busy, known, silent):
                connection.close()

    run_scene(scene)


def test_strangers_whose_bodies_wait_give_way(monkeypatch: pytest.MonkeyPatch) -> None:
    # No setting: one connection that stays is enough to see.
    monkeypatch.setattr(listeners, "_MARGIN", 1)

    class Waiting(asyncio.Protocol):
        """Reads no further, as a server does whose node has no room for a body."""

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.Transport)
            transport.pause_reading()
            listener.begin(transport.get_extra_info("socket").fileno(), transport.abort)
            made.append(transport)

    made: list[asyncio.Transport] = []
    listener = listen("127.0.0.1", 0, most=4)

    async def scene() -> None:
        async with await asyncio.get_running_loop().create_server(Waiting, sock=listener):
            strangers = [await _connect(listener) for _ in range(20)]
            await until(lambda: len(made) == len(strangers))
            assert listener.connections < listener.most
            for stranger in strangers:
                stranger.close()
            for transport in made:
                transport.abort()
            await until(lambda: listener.connections == 0)

    run_scene(scene)


@pytest.mark.parametrize("flood_asks", [True, False])
def test_flood_of_strangers_leaves_one_of_another_kind_its_time(flood_asks: bool) -> None:
    class Waiting(asyncio.Protocol):
        """Has a request under way from the first byte on."""

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.Transport)
            self._transport = transport
            made.append(transport)

        def data_received(self, data: bytes) -> None:
            descriptor = self._transport.get_extra_info("socket").fileno()
            listener.begin(descriptor, self._transport.abort)
            asked.append(data)

    made: list[asyncio.Transport] = []
    asked: list[bytes] = []
    listener = listen("127.0.0.1", 0, most=8)

    async def connect(*, asks: bool) -> socket.socket:
        before = len(made), len(asked)
        client = await _connect(listener)
        if asks:
            await asyncio.get_running_loop().sock_sendall(client, b"x")
        await until(lambda: (len(made), len(asked)) == (before[0] + 1, before[1] + asks))
        return client

    async def scene() -> None:
        async with await asyncio.get_running_loop().create_server(Waiting, sock=listener):
            clients = [await connect(asks=not flood_asks)]
            clients += [await connect(asks=flood_asks) for _ in range(20)]
            assert not made[0].is_closing()
            assert made[1].is_closing()
            for client in clients:
                client.close()
            for transport in made:
                transport.abort()
            await until(lambda: listener.connections == 0)

    run_scene(scene)


def test_connections_that_do_not_begin_with_tls_give_way(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    own = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    own.load_cert_chain(certificate, key)
    trusting = ssl.create_default_context(cafile=certificate)

    async def scene() -> None:
        async with _serving(2, own) as listener:
            idle = [await _connect(listener) for _ in range(5)]
            host, port = listener.getsockname()
            reader, writer = await asyncio.open_connection(
                host, port, ssl=trusting, server_hostname="127.0.0.1"
            )
            writer.write(b"x")
            assert await reader.readexactly(1) == b"x"
            writer.transport.abort()
            for each in idle:
                each.close()

    run_scene(scene)


def test_connections_beyond_the_margin_are_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # No setting: a small bound is reached soon.
    monkeypatch.setattr(listeners, "_MARGIN", 1)

    async def scene() -> None:
        loop = asyncio.get_running_loop()
        async with _serving(1) as listener:
            clients = []
            for number in range(1, 3):
                clients.append(await _connect(listener))
                await until(lambda number=number: listener.connections == number)
                for descriptor in list(listener._strangers):
                    listener.begin(descriptor, _abort_nothing)
                    listener.know(descriptor)
            assert listener.is_over
            beyond = await _connect(listener)
            with suppress(ConnectionResetError):  # which is an end too
                assert await loop.sock_recv(beyond, 1) == b""
            assert (listener.refused, listener.connections) == (1, 2)
            for each in (*clients, beyond):
                each.close()

    run_scene(scene)


def test_a_process_without_descriptors_drops_connections_and_goes_on() -> None:
    program = """
import asyncio, resource, socket
from chronoline.runtime.listener import listen

async def main():
    listener = listen("127.0.0.1", 0, most=1000)
    server = await asyncio.get_running_loop().create_server(asyncio.Protocol, sock=listener)
    print(listener.getsockname()[1], flush=True)
    while not listener.refused:
        await asyncio.sleep(0.01)
    print("refused", flush=True)
    while listener.connections:
        await asyncio.sleep(0.01)
    server.close()

asyncio.run(main())
"""
    with subprocess.Popen(
        ["sh", "-c", 'ulimit -n 40; exec "$0" -c "$1"', sys.executable, program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(60)]
        assert process.stdout.readline() == "refused\n"
        for each in clients:
            each.close()
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "Traceback" not in errors
    assert errors.count("short of descriptors") == 1


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01\x02\x00\x01\x00", b"GET / HTTP/1.1\r\n\r\n"])
def test_failed_handshakes_leave_no_rings_behind(tmp_path: Path, sent: bytes) -> None:
    """The collector, which looks for rings, runs seldom: each would keep the state of TLS meanwhile."""

    def kept() -> int:
        return sum(isinstance(one, sslproto.SSLProtocol) for one in gc.get_objects())

    async def scene() -> None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*make_certificate(tmp_path))
        async with _serving(5, context) as listener:
            for _ in range(10):
                with await _connect(listener) as client:
                    await asyncio.get_running_loop().sock_sendall(client, sent)
                await until(lambda: listener.connections == 0)
            await until(lambda: kept() == before)

    gc.collect()
    before = kept()
    gc.disable()
    try:
        run_scene(scene)
    finally:
        gc.enable()
