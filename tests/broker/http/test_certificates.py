"""Certificates of clients over HTTP, for the broker and for timers."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from pathlib import Path

import aiohttp
import httpx
import pytest

from chronoline.broker.auth import Door, ServerTls
from chronoline.broker.tokens import Tokens
from chronoline.core.rights import Rights
from chronoline.node.timer_auth import request_check
from chronoline.node.timer_service import ServiceOptions, TimerService
from chronoline.runtime.tls import ClientCertificates, Identity, client_context
from tests.broker.http.served import serving
from tests.certificates import Authority

Get = Callable[[ssl.SSLContext], Awaitable[int]]
"""Asks for something that needs `observe`, and returns the status."""
_ENDED = timedelta(days=-1)


class Node:
    """A door with tokens, and contexts of clients."""

    def __init__(self, folder: Path, certificates: ClientCertificates = "required") -> None:
        self.folder = folder
        self.authority = Authority(folder)
        certificate, key = self.authority.issue("node")
        self.tls = ServerTls(
            certificate=certificate,
            key=key,
            client_ca=self.authority.file,
            client_certificates=certificates,
        )
        self.tokens = Tokens(folder / "tokens.json")
        self.tokens.create("ops")
        self.tokens.admit_certificate("grafana", "grafana.example", Rights.parse(["observe"]))
        self.ahead = timedelta()
        """The time of the door, after the real time."""
        self.door = Door(
            self.tokens, self.tls, now_s=lambda: time.time() + self.ahead.total_seconds()
        )

    def client(
        self, name: str | None = None, *, of: Authority | None = None, ends_in: timedelta = -_ENDED
    ) -> ssl.SSLContext:
        if name is None:
            return client_context(self.authority.file)
        certificate, key = (of or self.authority).issue(name, ends_in=ends_in)
        return client_context(self.authority.file, Identity(certificate=certificate, key=key))


async def _with_broker(node: Node, play: Callable[[Get], Awaitable[None]]) -> None:
    async with serving(node.folder, door=node.door) as served:

        async def get(context: ssl.SSLContext) -> int:
            async with httpx.AsyncClient(verify=context) as http:
                return (await http.get(f"https://127.0.0.1:{served.port}/metrics")).status_code

        await play(get)


async def _with_timers(node: Node, play: Callable[[Get], Awaitable[None]]) -> None:
    options = ServiceOptions(port=0, data=node.folder, tls=node.door.ssl_context())
    async with TimerService(options, admits=request_check(node.door)) as service:

        async def get(context: ssl.SSLContext) -> int:
            url = f"https://127.0.0.1:{service.port}/v1/timers"
            async with aiohttp.ClientSession() as session, session.get(url, ssl=context) as answer:
                return answer.status

        await play(get)


EDGES = pytest.mark.parametrize("serve", [_with_broker, _with_timers], ids=["broker", "timers"])
_REFUSED = (httpx.TransportError, aiohttp.ClientError, ssl.SSLError)
Serve = Callable[[Node, Callable[[Get], Awaitable[None]]], Coroutine[None, None, None]]


@EDGES
def test_certificate_of_the_authority_is_needed(tmp_path: Path, serve: Serve) -> None:
    node = Node(tmp_path)

    async def play(get: Get) -> None:
        assert await get(node.client("grafana.example")) == 200
        assert await get(node.client("another.example")) == 401
        stranger = Authority(tmp_path / "stranger", "stranger")
        for wrong in (
            node.client(),
            node.client("grafana.example", ends_in=_ENDED),
            node.client("grafana.example", of=stranger),
        ):
            with pytest.raises(_REFUSED):
                await get(wrong)
        node.tokens.revoke("grafana")
        assert await get(node.client("grafana.example")) == 401

    asyncio.run(serve(node, play))


@EDGES
def test_optional_certificate_can_be_missing_and_not_be_wrong(tmp_path: Path, serve: Serve) -> None:
    node = Node(tmp_path, "optional")

    async def play(get: Get) -> None:
        assert await get(node.client()) == 401
        assert await get(node.client("grafana.example")) == 200
        with pytest.raises(_REFUSED):
            await get(node.client("grafana.example", ends_in=_ENDED))

    asyncio.run(serve(node, play))


@pytest.mark.parametrize("edge", ["broker", "timers"])
def test_expired_certificate_ends_an_open_connection(tmp_path: Path, edge: str) -> None:
    node = Node(tmp_path)

    async def ask_twice(url: str) -> None:
        context, token = node.client("me"), node.tokens.create("watcher")
        known = {"Authorization": f"Bearer {token}"}  # it does not stand for the certificate
        trips: list[object] = []

        async def connects(*_: object) -> None:
            trips.append(None)

        trace = aiohttp.TraceConfig()
        trace.on_connection_create_end.append(connects)
        async with aiohttp.ClientSession(trace_configs=[trace], headers=known) as session:
            for ahead, status, connections in (
                (timedelta(), 200, 1),
                (timedelta(), 200, 1),
                (timedelta(days=2), 401, 1),
                (timedelta(), 200, 2),
            ):
                node.ahead = ahead
                async with session.get(url, ssl=context) as answer:
                    assert answer.status == status
                    assert ("expired" in await answer.text()) == (status == 401)
                assert len(trips) == connections

    async def play() -> None:
        if edge == "broker":
            async with serving(node.folder, door=node.door) as served:
                await ask_twice(f"https://127.0.0.1:{served.port}/metrics")
            return
        options = ServiceOptions(port=0, data=node.folder, tls=node.door.ssl_context())
        async with TimerService(options, admits=request_check(node.door)) as service:
            await ask_twice(f"https://127.0.0.1:{service.port}/v1/timers")

    asyncio.run(play())


def test_resumed_session_has_the_certificate_of_its_first_handshake(tmp_path: Path) -> None:
    node = Node(tmp_path)
    certificate, key = node.authority.issue("grafana.example")
    context = ssl.create_default_context(cafile=node.authority.file)
    context.load_cert_chain(certificate, key)
    context.maximum_version = ssl.TLSVersion.TLSv1_2  # which resumes by the id of a session

    def ask(port: int, session: ssl.SSLSession | None) -> tuple[bytes, ssl.SSLSession | None]:
        with (
            socket.create_connection(("127.0.0.1", port)) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1", session=session) as secured,
        ):
            assert secured.session_reused == (session is not None)
            secured.sendall(
                b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
            )
            return secured.recv(12), secured.session

    async def play() -> None:
        async with serving(node.folder, door=node.door) as served:
            status, session = await asyncio.to_thread(ask, served.port, None)
            assert status == b"HTTP/1.1 200"
            assert (await asyncio.to_thread(ask, served.port, session))[0] == b"HTTP/1.1 200"
            node.ahead = timedelta(days=2)
            assert (await asyncio.to_thread(ask, served.port, session))[0] == b"HTTP/1.1 401"

    asyncio.run(play())


@EDGES
def test_new_certificate_is_used_without_a_restart(tmp_path: Path, serve: Serve) -> None:
    node = Node(tmp_path)

    async def play(get: Get) -> None:
        known = node.client("grafana.example")
        assert await get(known) == 200
        node.authority.issue("node", ends_in=_ENDED)
        with pytest.raises(_REFUSED, match="expired"):
            await get(known)
        node.authority.issue("node")
        assert await get(known) == 200
        node.tls.key.write_text("half a key")
        assert await get(known) == 200

    asyncio.run(serve(node, play))
