"""The worst messages that a client can send over gRPC: rights come first, then bounds, at every call."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.descriptor import FieldDescriptor

from chronoline.broker.auth import Door
from chronoline.broker.grpc import server
from chronoline.broker.tokens import Tokens
from chronoline.client.aio import ToSend
from chronoline.core.limits import MAX_HEADERS
from chronoline.core.rights import Rights
from chronoline.wire.codes import FAILURE_KEY
from chronoline.wire.message_bounds import MOST_FIELDS
from chronoline.wire.v1 import chronoline_pb2 as pb
from tests.broker.http.served import Served, serving

_STREAMS = {"Produce": pb.ProducerFrame, "Consume": pb.ConsumerFrame}
_CALLS = [
    *(
        (service, name, kind)
        for service, each in server.UNARY.items()
        for name, kind in each.items()
    ),
    *(("chronoline.v1.Carrier", name, kind) for name, kind in _STREAMS.items()),
]


async def _refusal(served: Served, path: str, token: str, sent: bytes | None) -> pb.Failure:
    """The failure of a call that sends a message of these bytes, or none and waits."""
    async with grpc.aio.insecure_channel(served.address) as channel:
        call: Any = channel.stream_stream(path)(metadata=[("authorization", f"Bearer {token}")])
        try:
            if sent is not None:
                await call.write(sent)
            answer = await call.read()
        except grpc.aio.AioRpcError as error:
            metadata = dict(error.trailing_metadata() or ())
            return pb.Failure.FromString(metadata[FAILURE_KEY])
        finally:
            call.cancel()
        return pb.ProducerReply.FromString(answer).failure


def test_request_is_not_read_before_rights(tmp_path: Path) -> None:
    """Nothing is sent: a server that waits for a request gives up after ten seconds."""

    async def play() -> None:
        tokens = Tokens(tmp_path / "tokens.json")
        weak = tokens.create("weak", Rights.parse(["timers", "node"]))
        async with serving(tmp_path, door=Door(tokens)) as served:
            assert set(server.NEEDED_RIGHTS) == {name for _, name, _ in _CALLS} - set(_STREAMS)
            for service, name, _ in _CALLS:
                if server.NEEDED_RIGHTS.get(name, True):
                    failure = await _refusal(served, f"/{service}/{name}", weak, None)
                    assert failure.code == "forbidden", name

    asyncio.run(play())


def _worst(kind: Any) -> Iterator[bytes]:
    """Messages with too many entries: of every field that has many, and of an unknown one."""
    entries = [b"\xf8\x7f\x00"]
    for field in kind.DESCRIPTOR.fields:
        if field.is_repeated or field.type == FieldDescriptor.TYPE_MESSAGE:
            entries.append(bytes((field.number << 3 | 2, 0)))
    for entry in entries:
        yield entry * (MOST_FIELDS + 1)


def test_worst_message_is_refused_by_its_fields(tmp_path: Path) -> None:
    async def play() -> None:
        tokens = Tokens(tmp_path / "tokens.json")
        admin = tokens.create("admin")
        async with serving(tmp_path, door=Door(tokens)) as served:
            for service, name, kind in _CALLS:
                for data in _worst(kind):
                    failure = await _refusal(served, f"/{service}/{name}", admin, data)
                    assert failure.code == "invalid_input", name
                    assert f"more than {MOST_FIELDS:,} fields" in failure.message

    asyncio.run(play())


def test_frames_of_the_sdk_are_within_the_bound(tmp_path: Path) -> None:
    headers = {f"{number:x}": b"" for number in range(MAX_HEADERS)}
    messages = [ToSend(id=f"m{number}", delay=3_600, headers=headers) for number in range(500)]

    async def play() -> None:
        async with serving(tmp_path) as served, served.client() as client:
            await client.create_topic("t")
            outcomes = await client.send_many("t", messages)
            assert all(outcome.done for outcome in outcomes)

    asyncio.run(play())
