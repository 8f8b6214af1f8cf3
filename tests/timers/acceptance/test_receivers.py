"""Receivers that are slow, closed, broken, elsewhere or endless, called by real nodes."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from textwrap import dedent

import pytest
from aiohttp import web

from chronoline.callbacks.signature import Signer
from chronoline.node.local_nodes import TimerNodes
from chronoline.runtime.child_process import free_addresses
from tests.certificates import make_certificate
from tests.deadline import run_scene, until
from tests.timers.acceptance.processes import Clients, clients_of
from tests.timers.scene import Answering, Popped, receiving, timer

_ATTEMPTS = 4
_AT_ONCE = 4
_SECRET = f"whsec_{'A' * 32}"
_NAME_OF_TWO = "several.test"
_NAMES = f"""
    import socket

    look_up = socket.getaddrinfo

    def with_ours(host, port, *others, **more):
        host = host.decode() if isinstance(host, bytes) else host
        if host == "nobody.test":
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        ours = {{"{_NAME_OF_TWO}": ["127.0.0.1", "127.0.0.2"], "stranger.test": ["127.0.0.1"]}}
        return [found for each in ours.get(host, [host]) for found in look_up(each, port, *others, **more)]

    socket.getaddrinfo = with_ours
"""
"""Python runs it when a node starts: names with two addresses and with none, whatever the machine's say."""


@pytest.fixture(scope="module")
def letter_box() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as box:
        yield box


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_certificate(tmp_path_factory.mktemp("certificate"), _NAME_OF_TWO)


@pytest.fixture(scope="module")
def tls(certificate: tuple[Path, Path]) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*certificate)
    return context


@pytest.fixture(scope="module")
def hasty(
    tmp_path_factory: pytest.TempPathFactory,
    letter_box: socket.socket,
    certificate: tuple[Path, Path],
) -> Iterator[list[str]]:
    """Two nodes that do not wait long, nor try often."""
    folder = tmp_path_factory.mktemp("hasty")
    environment = {
        "PYTHONPATH": str(folder),
        "SSL_CERT_FILE": str(certificate[0]),
        "CHRONOLINE_NODE_CALLBACKS__SECRET": _SECRET,
    }
    (folder / "sitecustomize.py").write_text(dedent(_NAMES))
    settings = [
        f"callbacks.attempts={_ATTEMPTS}",
        "callbacks.timeout_ms=700ms",
        "callbacks.first_wait_ms=50ms",
        f"callbacks.dead_letters=http://127.0.0.1:{letter_box.getsockname()[1]}/dead",
    ]
    names = free_addresses(2)
    with TimerNodes(folder) as nodes:
        nodes.write(names)
        for name in names:
            nodes.launch(name, settings=settings, environment=environment)
        nodes.await_ready(*names)
        yield names


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A node alone that waits for long, with few calls to one host at a time."""
    (name,) = free_addresses(1)
    with TimerNodes(tmp_path_factory.mktemp("patient")) as nodes:
        nodes.write([name])
        settings = ["callbacks.timeout_ms=60s", f"callbacks.for_each_host={_AT_ONCE}"]
        nodes.start(name, settings=settings)
        yield name


def test_failing_callback_is_retried_and_given_up(
    hasty: list[str], letter_box: socket.socket, tls: ssl.SSLContext
) -> None:
    async def scene() -> None:
        async with AsyncExitStack() as exits:
            start = exits.enter_async_context
            dead_letters = await start(receiving(door=letter_box))
            broken, moved, elsewhere = [await start(receiving()) for _ in range(3)]
            guarded = await start(receiving(tls=tls))
            clients = await start(clients_of(dead_letters))
            silent = await start(_raw_server(b""))
            endless = await start(_raw_server(b"HTTP/1.1 500 No\r\nContent-Length: 9\r\n\r\nx"))
            broken.answer = _always(500)
            moved.answer = _always(307, Location=elsewhere.uri)
            (closed,) = free_addresses(1)
            uris = {
                "broken": (broken.uri, "answered 500"),
                "moved": (moved.uri, "redirects are not followed"),
                "closed": (f"http://{closed}/", closed.partition(":")[0]),
                "silent": (f"http://{silent}/", "no answer within"),
                "endless": (f"http://{endless}/", "answered 500"),
                "stranger": (f"https://stranger.test:{guarded.port}/", "ertificate"),
                "nobody": ("http://nobody.test/", "no address"),
            }
            for opaque, (uri, _) in uris.items():
                await _make(clients, hasty, uri, opaque)
            await dead_letters.until(lambda popped: _opaques(popped) == set(uris))
            for letter in (json.loads(pop.body) for pop in dead_letters.popped):
                assert letter["sequence"] == 1
                assert letter["uri"] == uris[letter["opaque"]][0]
                assert uris[letter["opaque"]][1] in letter["reason"]
            for receiver in (broken, moved):
                assert len(receiver.popped) >= _ATTEMPTS
                assert {pop.sequence for pop in receiver.popped} == {1}
            assert elsewhere.popped == guarded.popped == []
            outcomes = (
                await clients.ask(hasty[0], "GET", "/metrics"),
                await clients.ask(hasty[1], "GET", "/metrics"),
            )
            text = b"".join(each.body for each in outcomes).decode()
            for outcome in ("answered_badly", "redirected", "timed_out", "unreachable"):
                assert (
                    f'chronoline_timers_callbacks_total{{cluster="default",outcome="{outcome}"}}'
                    in text
                )

    run_scene(scene)


def test_pop_succeeds_at_a_later_attempt(hasty: list[str], letter_box: socket.socket) -> None:
    async def scene() -> None:
        async with (
            receiving(door=letter_box) as dead_letters,
            receiving() as receiver,
            clients_of(receiver) as clients,
            _raw_server(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx") as endless,
        ):
            receiver.answer = _first_time(500)
            await _make(clients, hasty, receiver.uri, "at last", pops=2)
            path = await _make(clients, hasty, f"http://{endless}/", "without end")
            await receiver.until(lambda popped: any(pop.sequence == 2 for pop in popped))
            first, again = receiver.popped[:2]
            assert first.sequence == again.sequence == 1
            for pop in (first, again):
                call_id, at_s = first.headers["webhook-id"], int(pop.headers["webhook-timestamp"])
                assert Signer(_SECRET).headers(call_id, b"at last", wall_s=at_s).items() <= (
                    pop.headers.items()
                )
            await until(lambda: _is_over(clients, hasty, path))
            assert _opaques(dead_letters.popped).isdisjoint({"at last", "without end"})

    run_scene(scene)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_another_instance_of_the_clients_cluster_takes_the_pop(
    hasty: list[str], tls: ssl.SSLContext, scheme: str
) -> None:
    async def scene() -> None:
        async with (
            receiving("127.0.0.2", tls=tls if scheme == "https" else None) as healthy,
            clients_of(healthy) as clients,
        ):
            # No server listens on that port of the first address of the name.
            uri = f"{scheme}://{_NAME_OF_TWO}:{healthy.port}/pop"
            await _make(clients, hasty, uri, "hello")
            await healthy.count(1)
            assert {(pop.body, pop.sequence) for pop in healthy.popped} == {("hello", 1)}

    run_scene(scene)


def test_a_slow_receiver_delays_no_other(patient: str) -> None:
    async def scene() -> None:
        done = asyncio.Event()

        async def hold(_: Popped) -> int:
            await done.wait()
            return 200

        async with (
            receiving() as slow,
            receiving() as quick,
            clients_of(slow) as clients,
        ):
            slow.answer = hold
            for number in range(3 * _AT_ONCE):
                await _make(clients, [patient], slow.uri, f"slow {number}", interval_ms=1)
            await slow.count(_AT_ONCE)
            await _make(clients, [patient], quick.uri, "quick", interval_ms=1)
            await quick.count(1)
            assert len(slow.popped) == _AT_ONCE
            done.set()
            await slow.count(3 * _AT_ONCE)

    run_scene(scene)


async def _make(
    clients: Clients,
    nodes: list[str],
    uri: str,
    opaque: str,
    *,
    interval_ms: int = 400,
    pops: int = 1,
) -> str:
    """Where the timer is."""
    body = timer(uri, interval_ms=interval_ms, repeat_for_ms=interval_ms * pops, opaque=opaque)
    answer = await clients.ask(nodes[0], "POST", "/timers", body)
    assert answer.status == 200
    return answer.location


def _opaques(letters: list[Popped]) -> set[str]:
    return {json.loads(letter.body)["opaque"] for letter in letters}


async def _is_over(clients: Clients, nodes: list[str], location: str) -> bool:
    shown = [await clients.ask(node, "GET", f"/v1{location}") for node in nodes]
    return all(each.json["state"] == "over" for each in shown)


def _always(status: int, **headers: str) -> Answering:
    async def answer(_: Popped) -> web.Response:
        return web.Response(status=status, headers=headers)

    return answer


def _first_time(status: int) -> Answering:
    answers = iter([status])

    async def answer(_: Popped) -> int:
        return next(answers, 200)

    return answer


@asynccontextmanager
async def _raw_server(answer: bytes) -> AsyncIterator[str]:
    """Sends these bytes to every request, and then nothing more."""

    connections: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            await reader.read()  # until the caller goes
        except (OSError, asyncio.IncompleteReadError):
            pass  # it went in the middle
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        for connection in connections:
            connection.transport.abort()
