"""Unary requests: repeated while a known broker is away; an undecided change raises `OutcomeUnknown`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import grpc
import pytest
from grpc import aio

from chronoline.broker.auth import Door
from chronoline.broker.tokens import Tokens
from chronoline.client.aio import AsyncClient
from chronoline.client.connection import ClientAccess, Connection
from chronoline.client.sync import Client
from chronoline.core.errors import (
    BrokerUnavailable,
    CertificateExpired,
    ChronolineError,
    InvalidInput,
    OutcomeUnknown,
    StoreUnavailable,
    TooMuch,
    Unauthenticated,
)
from chronoline.stores.memory import MemoryStore
from chronoline.testing.broker import LocalBroker
from chronoline.wire.codes import FAILURE_KEY, STATUS, failure_of
from chronoline.wire.v1 import chronoline_pb2 as pb
from tests.broker.http.served import serving
from tests.broker.nodes import running

Answer = Callable[[str, Any], Awaitable[Any]]


def test_query_waits_for_a_restarting_broker(chronoline_store: MemoryStore) -> None:
    with LocalBroker(chronoline_store) as broker, Client(broker.address) as client:
        client.create_topic("t")
        broker.stop()
        with ThreadPoolExecutor(1) as threads:
            asking = threads.submit(client.topics)
            broker.start()
            assert [each.name for each in asking.result()] == ["t"]


def test_broker_never_reached_fails_at_once(chronoline_store: MemoryStore) -> None:
    with LocalBroker(chronoline_store) as broker:
        address = broker.address
    with Client(address) as client, pytest.raises(BrokerUnavailable, match="`chronoline up`"):
        client.topics()


def test_change_at_a_name_that_does_not_exist_is_not_done() -> None:
    with (
        Client("nobody.invalid:7400") as client,
        pytest.raises(BrokerUnavailable, match=r"no broker answers at nobody\.invalid") as caught,
    ):
        client.create_topic("t")
    assert "[field" not in str(caught.value)


def test_address_of_http_is_named_as_such(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path) as served, AsyncClient(urlsplit(served.url).netloc) as client:
            with pytest.raises(BrokerUnavailable, match=r"not that of HTTP$"):
                await client.create_topic("t")

    asyncio.run(play())


def test_recreated_topic_is_found_by_its_name(chronoline_broker: str) -> None:
    with Client(chronoline_broker) as one, Client(chronoline_broker) as other:
        one.create_topic("t")
        one.send("t", id="old", delay=60)
        other.delete_topic("t")
        while True:  # its name is taken until everything on it is gone
            try:
                other.create_topic("t", if_missing=False)
                break
            except ChronolineError:
                pass
        assert one.lookup("t", "old") is None
        assert one.send("t", id="new", delay=60) == "new"
        assert one.count("t").total == 1


class _Overseer:
    """A gRPC service that answers by a function of the test."""

    def __init__(self, answer: Answer, timeout_s: float = 5) -> None:
        self._answer = answer
        self._timeout_s = timeout_s
        self.asked: list[str] = []

    async def __aenter__(self) -> AsyncClient:
        self._server = aio.server()

        def handler(name: str, request: Any) -> grpc.RpcMethodHandler[Any, Any]:
            async def handle(asked: Any, context: Any) -> Any:
                self.asked.append(name)
                try:
                    return await self._answer(name, asked)
                except ChronolineError as error:
                    failure = failure_of(error)
                    trailing = ((FAILURE_KEY, failure.SerializeToString()),)
                    await context.abort(STATUS[failure.kind], str(error), trailing)
                except ConnectionError:
                    await context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")

            return grpc.unary_unary_rpc_method_handler(
                handle,
                request_deserializer=request.FromString,
                response_serializer=lambda each: each.SerializeToString(),
            )

        handlers = {
            "ListTopics": handler("ListTopics", pb.ListTopicsRequest),
            "GetTopic": handler("GetTopic", pb.GetTopicRequest),
            "DropTopic": handler("DropTopic", pb.TopicRef),
        }
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("chronoline.v1.Overseer", handlers),)
        )
        port = self._server.add_insecure_port("127.0.0.1:0")
        await self._server.start()
        self._client = AsyncClient(f"127.0.0.1:{port}", timeout=self._timeout_s)
        return self._client

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()
        await self._server.stop(None)


def _failing(times: int, error: Exception, answer: Any) -> Answer:
    left = times

    async def fail(name: str, _: Any) -> Any:
        nonlocal left
        if name == "GetTopic":
            return pb.Topic(uid=1, name="t")
        left -= 1
        if left >= 0:
            raise error
        return answer

    return fail


@pytest.mark.parametrize("error", [StoreUnavailable(), OutcomeUnknown()])
def test_unanswered_query_is_repeated(error: ChronolineError) -> None:
    async def play() -> None:
        overseer = _Overseer(_failing(3, error, pb.Topics()))
        async with overseer as client:
            assert await client.topics() == []
            assert overseer.asked == ["ListTopics"] * 4

    asyncio.run(play())


def test_last_answer_is_named_in_the_error() -> None:
    async def play() -> None:
        async def answer(*_: Any) -> Any:
            if len(overseer.asked) == 1:
                raise StoreUnavailable("the disk is gone")
            await asyncio.Event().wait()

        overseer = _Overseer(answer, timeout_s=2)
        async with overseer as client:
            with pytest.raises(BrokerUnavailable, match="last answered: the disk is gone"):
                await client.topics()
            assert overseer.asked == ["ListTopics"] * 2

    asyncio.run(play())


def test_too_large_query_is_not_repeated() -> None:
    async def play() -> None:
        overseer = _Overseer(_failing(1, TooMuch(), pb.Topics()))
        async with overseer as client:
            with pytest.raises(TooMuch):
                await client.topics()
            assert overseer.asked == ["ListTopics"]

    asyncio.run(play())


def test_change_on_a_broken_connection_is_unknown() -> None:
    async def play() -> None:
        overseer = _Overseer(_failing(1, ConnectionError(), pb.Dropped(dropped=True)))
        async with overseer as client:
            with pytest.raises(OutcomeUnknown, match="may have happened or not"):
                await client.delete_topic("t")
            assert overseer.asked == ["GetTopic", "DropTopic"]

    asyncio.run(play())


def test_change_unknown_to_the_broker_is_not_repeated() -> None:
    async def play() -> None:
        overseer = _Overseer(_failing(1, OutcomeUnknown(), pb.Dropped(dropped=True)))
        async with overseer as client:
            with pytest.raises(OutcomeUnknown):
                await client.delete_topic("t")
            assert overseer.asked == ["GetTopic", "DropTopic"]

    asyncio.run(play())


def test_channel_with_an_expired_certificate_is_left_also_while_it_is_used() -> None:
    async def play() -> None:
        connection = Connection("127.0.0.1:1", ClientAccess.given(None, False, insecure=False))
        connection.stream("Produce", pb.ProducerReply)
        failure = failure_of(CertificateExpired())
        told = aio.Metadata((FAILURE_KEY, failure.SerializeToString()))
        error = aio.AioRpcError(STATUS[failure.kind], aio.Metadata(), told)
        assert connection.is_used
        assert isinstance(connection.error_of(error), CertificateExpired)
        assert connection.generation == 1
        await connection.close()

    asyncio.run(play())


def test_change_that_did_not_happen_is_repeated() -> None:
    async def play() -> None:
        overseer = _Overseer(_failing(2, StoreUnavailable(), pb.Dropped(dropped=True)))
        async with overseer as client:
            assert await client.delete_topic("t")
            assert overseer.asked == ["GetTopic"] + ["DropTopic"] * 3

    asyncio.run(play())


@pytest.mark.parametrize("token", ["two words", "line\nline", "caf\u00e9", "\0"])
def test_malformed_token_is_refused_at_once(token: str) -> None:
    with pytest.raises(InvalidInput, match="token") as refused:
        AsyncClient("127.0.0.1:1", token=token)
    assert token not in str(refused.value)


def test_token_may_end_with_a_newline(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path / "tokens.json")
    token = tokens.create("mine")

    async def play() -> None:
        async with running(tmp_path, door=Door(tokens)) as broker:
            async with broker.client(token=f"{token}\n") as client:
                assert await client.topics() == []
            async with broker.client(token="another") as client:
                with pytest.raises(Unauthenticated, match="does not know this token"):
                    await client.topics()
            async with broker.client() as client:
                with pytest.raises(Unauthenticated, match="asks for a token"):
                    await client.topics()

    asyncio.run(play())


# Tokens without TLS


def test_token_without_tls_is_sent_only_to_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    far = "192.0.2.1:7400"
    with pytest.raises(InvalidInput, match="insecure=True"):
        AsyncClient(far, token="t")
    monkeypatch.setenv("CHRONOLINE_TOKEN", "t")
    with pytest.raises(InvalidInput, match="it was not sent"):
        AsyncClient(far)
    AsyncClient(far, tls=True)
    AsyncClient(far, insecure=True)
    AsyncClient("127.0.0.1:7400")
    monkeypatch.setenv("CHRONOLINE_INSECURE", "1")
    AsyncClient(far)
