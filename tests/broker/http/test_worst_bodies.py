"""The worst bodies that a client can send: rights come first, then bounds, on every route."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import ValidationError
from starlette.types import ASGIApp, Message

from chronoline.broker.auth import Door
from chronoline.broker.http import server
from chronoline.broker.http.requests import RequestBody
from chronoline.broker.limits import Limits
from chronoline.broker.tokens import Tokens
from chronoline.core.rights import Rights
from chronoline.runtime.json_bounds import MOST_VALUES
from tests.broker.http.served import Served, serving
from tests.broker.http.test_problems import check
from tests.unsent_bodies import ask_without_body

_MOST_FAULTS = 20
_SIZE_BYTES = Limits().frame_bytes
_PARTS = 10
"""A request costs less memory than this number of times its size."""
_WIDE = "😀".encode()
"""With it each character of a text takes four bytes."""


_FIELDS = b",".join(b'"%06d":1' % number for number in range(MOST_VALUES - 100))
_UNKNOWN = (b"{" + _FIELDS + b"}").ljust(_SIZE_BYTES)


def _filled(begin: bytes, item: bytes, end: bytes) -> bytes:
    """A body with as many items as the parser takes between two texts, as large as is allowed."""
    return (begin + b",".join([item] * (MOST_VALUES // 2 - 100)) + end).ljust(_SIZE_BYTES)


def _worst_bodies(items: str, text: str) -> dict[str, bytes]:
    """By name, bodies that the parser takes, for a route with a list and a text of these names."""
    many = _filled(b'{"%s":[' % items.encode(), b"{}", b"]}")
    return {
        **({"empty objects": many} if items else {"unknown fields": _UNKNOWN}),
        "wide text": b'{"%s":"' % text.encode() + _WIDE + b"x" * (_SIZE_BYTES - 40) + b'"}',
    }


def _field(operation: dict[str, Any], schemas: dict[str, Any], kind: str) -> str:
    """The name of a field of this kind in the body of a route; empty if there is none."""
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    properties = schemas[schema["$ref"].rpartition("/")[2]]["properties"]
    names = [name for name, each in properties.items() if f"'type': '{kind}'" in str(each)]
    return "body" if "body" in names else next(iter(names), "")


async def _described(served: Served, headers: dict[str, str]) -> dict[str, Any]:
    return dict((await served.http.get("/openapi.json", headers=headers)).json())


def _with_body(described: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Method, URL and description of each route that takes a body."""
    for path, operations in described["paths"].items():
        for method, operation in operations.items():
            if "requestBody" in operation:
                yield method.upper(), path.format(topic="orders", id="a", schedule="s"), operation


def test_body_is_not_read_before_rights(tmp_path: Path) -> None:
    async def play() -> None:
        tokens = Tokens(tmp_path / "tokens.json")
        admin = {"authorization": f"Bearer {tokens.create('admin')}"}
        weak = tokens.create("weak", Rights.parse(["timers", "observe", "administer:mails"]))
        elsewhere = tokens.create("elsewhere", Rights.parse(["produce:mails", "consume:mails"]))
        async with serving(tmp_path, door=Door(tokens)) as served:
            await served.http.post("/v1/topics", json={"name": "orders"}, headers=admin)
            routes = list(_with_body(await _described(served, admin)))
            assert len(routes) > 15
            for method, path, _ in routes:
                # Their topic is in the body.
                token = elsewhere if path == "/v1/topics" else weak
                if path == "/v1/schedules":
                    token = tokens.create("o", Rights.parse(["observe"]))
                status = await ask_without_body(
                    served.port,
                    method,
                    path,
                    authorization=f"Bearer {token}",
                    content_type="application/json",
                )
                assert status == httpx.codes.FORBIDDEN, (method, path)

    asyncio.run(play())


async def _ask(guard: ASGIApp, method: str, path: str, body: bytes) -> dict[str, Any]:
    """The answer to a request whose body is in memory already: connections have buffers of their own."""
    sent: list[Message] = []
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": [
            (b"host", b"localhost"),
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
        ],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }

    async def receive() -> Message:
        return {"type": "http.request", "body": body}

    async def send(message: Message) -> None:
        sent.append(message)

    await guard(scope, receive, send)
    return dict(json.loads(sent[1]["body"]))


def test_worst_body_costs_a_bounded_part(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path) as served:
            assert served.node.http is not None
            guard = served.node.http._guard  # the application without its connections
            assert guard is not None
            await served.create_topic("orders")
            described = await _described(served, {})
            schemas = described["components"]["schemas"]
            for method, path, operation in _with_body(described):
                fields = (_field(operation, schemas, kind) for kind in ("array", "string"))
                for name, body in _worst_bodies(*fields).items():
                    tracemalloc.start()
                    answer = await _ask(guard, method, path, body)
                    _, peak_bytes = tracemalloc.get_traced_memory()
                    tracemalloc.stop()
                    assert answer["status"] == httpx.codes.BAD_REQUEST, (path, name, answer)
                    assert len(answer["detail"]) < 1_000, (path, name)
                    assert peak_bytes < _PARTS * len(body), (path, name)

    asyncio.run(play())


def _schemas(base: type[RequestBody] = RequestBody) -> Iterator[type[RequestBody]]:
    assert server.__name__  # it loads all routes, with their schemas
    for each in base.__subclasses__():
        yield each
        yield from _schemas(each)


@pytest.mark.parametrize("schema", sorted(set(_schemas()), key=str), ids=lambda each: each.__name__)
def test_faults_of_a_body_are_bounded(schema: type[RequestBody]) -> None:
    unknown = {f"f{number}": 1 for number in range(1_000)}
    names = [each.alias or name for name, each in schema.model_fields.items()]
    faults = [
        *_faults(schema, unknown),
        *_faults(schema, dict.fromkeys(names, [{}] * 1_000)),
        *_faults(schema, dict.fromkeys(names, [1] * 1_000)),
        *_faults(schema, dict.fromkeys(names, unknown)),
    ]
    assert 0 < len(faults) <= 4 * _MOST_FAULTS
    assert all(len(fault["msg"]) < 1_000 for fault in faults)


def _faults(schema: type[RequestBody], given: dict[str, Any]) -> Sequence[Any]:
    try:
        schema.model_validate(given)
    except ValidationError as error:
        return error.errors()
    return ()


def test_unknown_fields_are_named(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path) as served:
            await served.create_topic("t")
            asked = {f"field{number}" * 30: 1 for number in range(50)}
            refused = await served.http.post("/v1/topics/t/pause", json=asked)
            check(refused, 400, "invalid_input")
            assert "unknown fields: 'field0field0" in refused.json()["detail"]
            assert "and 45 more" in refused.json()["detail"]

    asyncio.run(play())


def test_many_parameters_are_refused(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path) as served:
            await served.create_topic("t")
            query = "&".join(["status=none"] * 1_000)
            refused = await served.http.get(f"/v1/topics/t/messages?{query}")
            check(refused, 400, "invalid_input")
            assert "at most 100 parameters" in refused.json()["detail"]

    asyncio.run(play())


def test_large_batch_of_messages_is_taken(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path) as served:
            await served.create_topic("t")
            messages = [
                {"id": f"m{n}", "in": "1h", "body": "a,[{:\"\\'" * 20, "headers": {"a": "b"}}
                for n in range(10_000)
            ]
            answer = await served.http.post("/v1/topics/t/messages", json={"messages": messages})
            assert answer.status_code == httpx.codes.OK, answer.text[:200]
            assert {each["done"] for each in answer.json()["outcomes"]} == {True}

    asyncio.run(play())
