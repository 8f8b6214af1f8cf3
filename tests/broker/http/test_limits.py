"""Limits: a client that sends too much, too slowly or malformed bytes affects only itself."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx

from chronoline.broker.auth import Door
from chronoline.broker.limits import Limits
from chronoline.broker.tokens import Tokens
from tests.broker.http.served import Served, serving
from tests.broker.http.test_problems import check
from tests.deadline import until

KIB = 1024
JSON = {"content-type": "application/json"}


async def talk(served: Served, sent: bytes) -> tuple[bytes, dict[str, Any]]:
    """Send bytes until the broker closes the connection; returns the response head and the problem."""
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(sent)
    answer = await asyncio.wait_for(reader.read(), 60)
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return head, dict(json.loads(body))


def test_too_large_content_length_is_refused(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path, limits=Limits(frame_bytes=64 * KIB)) as served:
            await served.create_topic(largest_body_bytes=32 * KIB)
            reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
            writer.write(
                b"PUT /v1/topics/t/messages/m HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\n"
                b"content-type: application/json\r\ncontent-length: 99999999\r\n\r\n"
            )
            head = await reader.readuntil(b"\r\n\r\n")  # nothing of the body was sent
            assert head.startswith(b"HTTP/1.1 413 ")
            writer.close()
            large = {"body": "x" * 70_000}
            answer = await served.http.put("/v1/topics/t/messages/m", json=large)
            assert "raise frame_bytes" in check(answer, 413, "too_large")["detail"]

    asyncio.run(play())


def test_chunked_body_is_read_only_to_the_limit(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path, limits=Limits(frame_bytes=64 * KIB)) as served:
            await served.create_topic(largest_body_bytes=32 * KIB)

            async def parts() -> AsyncIterator[bytes]:
                yield b'{"body": "'
                for _ in range(100):
                    yield b"x" * KIB

            answer = await served.http.put("/v1/topics/t/messages/m", content=parts(), headers=JSON)
            check(answer, 413, "too_large")
            await served.put("m")

    asyncio.run(play())


def test_missing_body_times_out(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path, limits=Limits(ping_timeout_ms=200)) as served:
            await served.create_topic()
            head, problem = await talk(
                served,
                b"PUT /v1/topics/t/messages/m HTTP/1.1\r\nhost: localhost\r\n"
                b'content-type: application/json\r\ncontent-length: 100\r\n\r\n{"body": ',
            )
            assert head.startswith(b"HTTP/1.1 408 ")
            assert problem["code"] == "too_slow"

    asyncio.run(play())


def test_malformed_http_is_answered_with_a_problem(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path) as served:
            for nonsense in (
                b"hello\r\n\r\n",
                b"GET / HTTP/1.1\r\nnonsense\r\n\r\n",
                b"\x16\x03\x01\r\n",
            ):
                head, problem = await talk(served, nonsense)
                assert head.startswith(b"HTTP/1.1 400 ")
                assert b"content-type: application/problem+json" in head
                assert problem["code"] == "invalid_input"

    asyncio.run(play())


_POLL = (
    b"POST /v1/topics/t/receive HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    b'content-length: 14\r\n\r\n{"wait":"60s"}'
)


def test_idle_connections_make_room_for_new_ones(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path, limits=Limits(connections=3)) as served:
            await served.create_topic()
            idle = [await asyncio.open_connection("127.0.0.1", served.port) for _ in range(10)]
            async with httpx.AsyncClient(base_url=served.url) as another:
                assert (await another.get("/livez")).status_code == 200
            for reader, _ in idle[:7]:
                assert await asyncio.wait_for(reader.read(), 60) == b""  # closed without a word
            for _, writer in idle:
                writer.close()

    asyncio.run(play())


def _polls(served: Served) -> int:
    return sum(each.credit for each in served.subscriptions)


def test_busy_connections_are_limited(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path, limits=Limits(connections=2)) as served:
            await served.create_topic()
            await served.http.aclose()
            polls = [await asyncio.open_connection("127.0.0.1", served.port) for _ in range(2)]
            for _, writer in polls:
                writer.write(_POLL)
            await until(lambda: _polls(served) == 2)
            head, problem = await talk(served, b"")
            assert head.startswith(b"HTTP/1.1 429 ")
            assert b"retry-after: 1" in head
            assert problem["code"] == "too_much"
            polls[0][1].close()
            await until(lambda: _polls(served) == 1)
            async with httpx.AsyncClient(base_url=served.url) as another:
                assert (await another.get("/livez")).status_code == 200
            polls[1][1].close()

    asyncio.run(play())


def test_batch_size_is_limited(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path, limits=Limits(batch=3)) as served:
            await served.create_topic()
            messages: list[dict[str, Any]] = [{} for _ in range(4)]
            leases = [{"id": "m", "version": 1} for _ in range(4)]
            for path, asked in (
                ("messages", {"messages": messages}),
                ("ack", {"consumer": "c", "leases": leases}),
                ("dead/discard", {"ids": ["m"] * 4}),
            ):
                answer = await served.http.post(f"/v1/topics/t/{path}", json=asked)
                assert check(answer, 400, "invalid_input")["kind"] == "refused"

    asyncio.run(play())


_ANNOUNCED = (
    b"PUT /v1/topics/t/messages/m HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer %s\r\n"
    b"content-type: application/json\r\ncontent-length: %d\r\n\r\n"
)


def test_bodies_wait_for_room_in_memory(tmp_path: Path) -> None:
    async def play() -> None:
        limits = Limits(frame_bytes=64 * KIB, node_bytes=128 * KIB, node_requests=1_000)
        hasty = limits.admission(patience_s=0.05)
        async with serving(tmp_path, limits=limits, admission=hasty) as served:
            await served.create_topic(largest_body_bytes=KIB)
            assert served.node.parts is not None
            node = served.node.parts.admission
            silent = [await asyncio.open_connection("127.0.0.1", served.port) for _ in range(2)]
            for _, writer in silent:
                writer.write(_ANNOUNCED % (b"", 64 * KIB))
            await until(lambda: node.under_way_bytes == 2 * node.least_bytes)
            await served.put("small")  # a body that is only announced has little room
            for _, writer in silent:
                writer.write(bytes(node.least_bytes + 1))
            await until(lambda: node.under_way_bytes == 128 * KIB)
            check(await served.http.put("/v1/topics/t/messages/m", json={}), 429, "node_busy")
            assert (await served.http.get("/v1/topics")).status_code == 200  # it has no body
            for _, writer in silent:
                writer.close()
            await until(lambda: node.under_way_bytes == 0)
            await served.put("m")
            assert node.under_way_bytes == 0

    asyncio.run(play())


def test_missing_token_is_refused_before_the_body(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path / "tokens.json")
    tokens.create("somebody")

    async def play() -> None:
        async with serving(tmp_path, door=Door(tokens)) as served:
            reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
            writer.write(_ANNOUNCED % (b"wrong", 8_000_000))
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)
            assert head.startswith(b"HTTP/1.1 401 ")
            writer.close()

    asyncio.run(play())


def test_encoded_body_is_refused_before_it_is_read(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path) as served:
            await served.create_topic()
            bomb = gzip.compress(bytes(50_000_000))
            for encoding in ("gzip", "deflate", "br, gzip"):
                encoded = {"content-encoding": encoding, "content-type": "application/json"}
                answer = await served.http.put(
                    "/v1/topics/t/messages/a", content=bomb, headers=encoded
                )
                check(answer, 415, "not_json")
                assert "without Content-Encoding" in answer.json()["detail"]
            headers = {"content-encoding": "identity", "content-type": "application/json"}
            answer = await served.http.put(
                "/v1/topics/t/messages/a", content=b"{}", headers=headers
            )
            assert answer.status_code == 201

    asyncio.run(play())
