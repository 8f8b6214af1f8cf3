"""Connections that prove nothing: many of them, on each listener, keep no client with a token out."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

import aiohttp
import pytest

from chronoline.broker.auth import Door, ServerTls
from chronoline.broker.grpc import connections as grpc_connections
from chronoline.broker.limits import Limits
from chronoline.broker.tokens import Tokens
from chronoline.client import Tls
from chronoline.client.aio import AsyncClient
from chronoline.console.app import Console
from chronoline.node.broker_service import BrokerService
from chronoline.node.timer_auth import request_check
from chronoline.node.timer_service import ServiceOptions, TimerService
from chronoline.runtime import listener as listeners
from chronoline.stores.factory import open_store
from chronoline.timers.http import server
from tests.certificates import make_certificate
from tests.deadline import run_scene, until

_BOUND = 40
_STRANGERS = 5 * _BOUND
_FORM = (
    b"POST /console/sign-in HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer %d\r\n"
    b"content-type: application/x-www-form-urlencoded\r\n"
)
_HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"
_HELLO = b"\x16\x03\x01\x02\x00\x01\x00"

KINDS = {
    "http: nothing": b"",
    "http: half a header": b"GET /livez HTTP/1.1\r\nhost: loc",
    "http: half a form": _FORM + b"content-length: 16000\r\n\r\na",
    "http: an announced body": _FORM + b"content-length: 16000000\r\n\r\n",
    "http: a body without a size": _FORM + b"transfer-encoding: chunked\r\n\r\n",
    "timers: nothing": b"",
    "timers: half a header": b"POST /timers HTTP/1.1\r\nhost: loc",
    "timers: half a body": b"POST /timers HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9000\r\n\r\n{",
    "grpc: nothing": b"",
    "grpc: no call": _HTTP2,
}


@dataclass(frozen=True, slots=True)
class _Node:
    ports: dict[str, int]
    token: str
    certificate: Path | None = None

    async def use(self) -> None:
        """Sends a request with a token to each listener."""
        scheme = "http" if self.certificate is None else "https"
        trusted = (
            True
            if self.certificate is None
            else ssl.create_default_context(cafile=self.certificate)
        )
        headers = {"Authorization": f"Bearer {self.token}"}
        timer = {
            "timing": {"interval": 3600},
            "callback": {"http": {"uri": "http://127.0.0.1:9/", "opaque": ""}},
        }
        async with aiohttp.ClientSession(headers=headers) as http:
            url = f"{scheme}://127.0.0.1:{self.ports['http']}/v1/topics/t/messages/m"
            async with http.put(url, json={"body": "x" * 100_000}, ssl=trusted) as answer:
                assert answer.status in (HTTPStatus.CREATED, HTTPStatus.CONFLICT)
            url = f"{scheme}://127.0.0.1:{self.ports['timers']}/timers"
            async with http.post(url, json=timer, ssl=trusted) as answer:
                assert answer.status == HTTPStatus.OK
        tls = False if self.certificate is None else Tls(ca=self.certificate)
        address = f"127.0.0.1:{self.ports['grpc']}"
        async with AsyncClient(address, token=self.token, tls=tls) as client:
            assert await client.topics()


@asynccontextmanager
async def _node(folder: Path, *, with_tls: bool = False) -> AsyncIterator[_Node]:
    tokens = Tokens(folder / "tokens.json")
    token = tokens.create("ops")
    tls, certificate = None, None
    if with_tls:
        certificate, key = make_certificate(folder)
        tls = ServerTls(certificate=certificate, key=key)
    door, at = Door(tokens, tls), ("127.0.0.1", 0)
    limits = Limits(connections=_BOUND)
    options = ServiceOptions(port=0, data=folder, connections=_BOUND, tls=door.ssl_context())
    with open_store("memory:") as store:
        async with (
            BrokerService(
                store, grpc_address=at, http_address=at, door=door, limits=limits, console=Console
            ) as broker,
            TimerService(options, admits=request_check(door)) as timers,
        ):
            assert broker.grpc is not None
            assert broker.http is not None
            ports = {"grpc": broker.grpc.port, "http": broker.http.port, "timers": timers.port}
            async with AsyncClient(
                f"127.0.0.1:{broker.grpc.port}",
                token=token,
                tls=False if certificate is None else Tls(ca=certificate),
            ) as client:
                await client.create_topic("t")
            yield _Node(ports, token, certificate)


@asynccontextmanager
async def _strangers(port: int, sent: bytes) -> AsyncIterator[None]:
    loop = asyncio.get_running_loop()
    with ExitStack() as exits:
        for number in range(_STRANGERS):
            stranger = exits.enter_context(socket.socket())
            stranger.setblocking(False)
            with suppress(ConnectionError):  # the node is full
                await loop.sock_connect(stranger, ("127.0.0.1", port))
                await loop.sock_sendall(stranger, sent % number if b"%d" in sent else sent)
        yield


def test_half_requests_keep_no_client_of_open_timers_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without tokens a complete request is the proof: the header alone is none."""
    made: list[listeners.CappedListener] = []

    def listen(host: str, port: int, *, most: int) -> listeners.CappedListener:
        made.append(listeners.listen(host, port, most=most))
        return made[-1]

    def all_ask() -> bool:
        return all(one.is_busy for listener in made for one in listener._strangers.values())

    monkeypatch.setattr(server, "listen", listen)

    async def scene() -> None:
        options = ServiceOptions(port=0, data=tmp_path, connections=_BOUND)
        timer = {
            "timing": {"interval": 3600},
            "callback": {"http": {"uri": "http://127.0.0.1:9/", "opaque": ""}},
        }
        async with TimerService(options) as timers, AsyncExitStack() as floods:
            url = f"http://127.0.0.1:{timers.port}/timers"
            for _ in range(3):
                flood = _strangers(timers.port, KINDS["timers: half a body"])
                await floods.enter_async_context(flood)
                await until(all_ask)
                async with aiohttp.ClientSession() as http, http.post(url, json=timer) as answer:
                    assert answer.status == HTTPStatus.OK

    run_scene(scene)


def test_half_body_of_a_client_that_left_is_freed_at_once(tmp_path: Path) -> None:
    """The garbage collector, which frees rings, runs seldom."""

    def bodies() -> int:
        return sum(isinstance(one, aiohttp.StreamReader) for one in gc.get_objects())

    async def scene() -> None:
        options = ServiceOptions(port=0, data=tmp_path)
        async with TimerService(options) as timers:
            before = bodies()
            _, writer = await asyncio.open_connection("127.0.0.1", timers.port)
            writer.write(KINDS["timers: half a body"])
            await until(lambda: bodies() == before + 1)
            writer.transport.abort()
            await until(lambda: bodies() == before)

    gc.collect()
    gc.disable()
    try:
        run_scene(scene)
    finally:
        gc.enable()


@pytest.mark.parametrize("kind", KINDS)
def test_strangers_keep_no_client_out(tmp_path: Path, kind: str) -> None:
    async def scene() -> None:
        async with (
            _node(tmp_path) as node,
            _strangers(node.ports[kind.partition(":")[0]], KINDS[kind]),
        ):
            await node.use()

    run_scene(scene)


@pytest.mark.parametrize("listener", ["http", "timers", "grpc"])
def test_unfinished_handshakes_keep_no_client_out(tmp_path: Path, listener: str) -> None:
    async def scene() -> None:
        async with _node(tmp_path, with_tls=True) as node, _strangers(node.ports[listener], _HELLO):
            await node.use()

    run_scene(scene)


def test_strangers_close_no_connection_of_a_client(tmp_path: Path) -> None:
    async def scene() -> None:
        async with _node(tmp_path) as node:
            for listener, path in (("http", "/v1/topics"), ("timers", "/timers/")):
                reader, writer = await asyncio.open_connection("127.0.0.1", node.ports[listener])
                asked = (
                    f"OPTIONS {path} HTTP/1.1\r\nhost: localhost\r\n"
                    f"authorization: Bearer {node.token}\r\n\r\n"
                )
                for _ in range(2):
                    writer.write(asked.encode())
                    assert (await reader.readline()).split()[1] == b"405"
                    head = await reader.readuntil(b"\r\n\r\n")
                    sizes = [
                        line for line in head.lower().split(b"\r\n") if b"content-length" in line
                    ]
                    await reader.readexactly(int(sizes[0].partition(b":")[2]))
                    async with _strangers(node.ports[listener], b""):
                        pass
                writer.close()

    run_scene(scene)


@pytest.mark.parametrize(
    "kind",
    ["timers: nothing", "timers: half a header", "grpc: no call", "hello: http", "hello: timers"],
)
def test_silent_stranger_is_disconnected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    # No settings: the test does not wait for the usual times.
    monkeypatch.setattr(listeners, "SILENCE_S", 0.2)
    monkeypatch.setattr(listeners, "SWEEP_EVERY_S", 0.1)
    monkeypatch.setattr(grpc_connections, "SILENCE_S", 0.2)

    async def scene() -> None:
        first, _, second = kind.partition(": ")
        async with _node(tmp_path, with_tls=first == "hello") as node:
            port = node.ports[second if first == "hello" else first]
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(KINDS.get(kind, _HELLO))
            await reader.read()  # to the end
            writer.close()

    run_scene(scene)
