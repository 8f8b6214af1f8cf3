"""Connections with an unfinished request or an unread answer are closed after a time-out."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path

import httpx
import pytest

from chronoline.broker.http import server
from chronoline.broker.limits import Limits
from tests.broker.http.served import Served, serving
from tests.deadline import until

MIB = 1024 * 1024
_HALF = b"GET /livez HTTP/1.1\r\nhost: loc"


def _open(served: Served) -> int:
    assert served.node.http is not None
    return served.node.http.connections


@pytest.mark.parametrize("sent", [b"", _HALF], ids=["nothing", "half a header"])
def test_incomplete_request_times_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    # No setting: the test does not wait for the usual time.
    monkeypatch.setattr(server, "_PATIENCE_S", 0.2)

    async def play() -> None:
        async with serving(tmp_path, limits=Limits(connections=3)) as served:
            slow = [await asyncio.open_connection("127.0.0.1", served.port) for _ in range(3)]
            for _, writer in slow:
                writer.write(sent)
            for reader, writer in slow:
                async with asyncio.timeout(60):
                    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 408 ")
                assert json.loads(body)["code"] == "too_slow"
                writer.close()
            assert (await served.http.get("/livez")).status_code == 200

    asyncio.run(play())


def test_slow_header_gets_no_extra_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_PATIENCE_S", 0.5)

    async def play() -> None:
        async with serving(tmp_path) as served:
            reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
            # The rest may be lost: the server has closed, and bytes still come.
            answering = asyncio.ensure_future(reader.readexactly(12))
            writer.write(b"GET / HTTP/1.1\r\nx: ")
            while not answering.done():
                writer.write(b"x")
                await asyncio.sleep(0.05)  # far within the time that it has
            assert await answering == b"HTTP/1.1 408"
            writer.close()

    asyncio.run(play())


def test_client_that_asks_in_time_keeps_its_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_PATIENCE_S", 0.2)

    async def play() -> None:
        async with serving(tmp_path) as served:
            await served.create_topic()
            # Longer than a header may take, and so is the pause after it.
            assert (await served.receive(wait="500ms"))["messages"] == []
            await asyncio.sleep(0.5)  # nothing tells that nothing happens
            assert _open(served) == 1
            assert (await served.http.get("/livez")).status_code == 200

    asyncio.run(play())


def test_client_that_never_reads_is_disconnected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_PATIENCE_S", 0.2)

    async def play() -> None:
        async with serving(tmp_path) as served:
            await _put_large(served)
            deaf = _ask_for_large(served)
            await until(lambda: _open(served) == 2)
            await until(lambda: _open(served) == 1)
            deaf.close()

    asyncio.run(play())


def test_slow_reader_gets_its_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_PATIENCE_S", 1.0)

    async def play() -> None:
        async with serving(tmp_path) as served:
            await _put_large(served)
            slow = _ask_for_large(served)
            slow.setblocking(False)
            came, loop = 0, asyncio.get_running_loop()
            while part := await loop.sock_recv(slow, 256 * 1024):
                came += len(part)
                await asyncio.sleep(
                    0.02
                )  # in total longer than the time-out of a client that does not read
            slow.close()
            assert came > 3 * MIB

    asyncio.run(play())


async def _put_large(served: Served) -> None:
    await served.create_topic(largest_body_bytes=8 * MIB)
    async with httpx.AsyncClient(base_url=served.url, timeout=20) as http:
        put = await http.put("/v1/topics/t/messages/m", json={"body": "x" * 3 * MIB})
        assert put.status_code == 201


def _ask_for_large(served: Served) -> socket.socket:
    """Ask for a large answer with small buffers, so that unread bytes wait at the broker."""
    client = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32 * 1024)
    client.connect(("127.0.0.1", served.port))
    client.sendall(
        b"GET /v1/topics/t/messages/m/body HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    )
    return client
