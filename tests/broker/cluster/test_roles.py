"""Brokers with one role: an overseer serves no messages, a carrier administers no topics."""

from __future__ import annotations

import asyncio
import json
from http import HTTPStatus
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from grpc.aio import AioRpcError

from chronoline.client.connection import ClientAccess, Connection
from chronoline.core.errors import WrongBroker
from chronoline.wire.v1 import chronoline_pb2 as pb
from tests.broker.cluster.scene import IDS, cluster, receive, send_all
from tests.broker.nodes import Running
from tests.coordination.engines import EmbeddedEngine
from tests.deadline import run_scene, until

_HTTP = ("127.0.0.1", 0)


def status(method: str, url: str, body: object = None) -> tuple[int, str]:
    """The status of a request, and the code of its problem."""
    data = None if body is None else json.dumps(body).encode()
    request = Request(url, data, {"Content-Type": "application/json"}, method=method)
    try:
        with urlopen(request) as answer:
            return answer.status, ""
    except HTTPError as error:
        return error.code, json.load(error)["type"].rpartition(":")[2]


async def ask_one(broker: Running, method: str, asked: Any) -> None:
    """A call to this broker, and to no other."""
    connection = Connection(broker.address, ClientAccess.given(None, False, insecure=False))
    try:
        await connection.call(method, asked, lambda _: None, 30)
    except AioRpcError as error:
        raise connection.error_of(error) from None
    finally:
        await connection.close()


def test_each_role_names_the_broker_to_ask() -> None:
    async def scene() -> None:
        async with cluster(EmbeddedEngine()) as brokers:
            overseer = await brokers.add_broker("o", roles=("overseer",), http_address=_HTTP)
            carrier = await brokers.add_broker("c", roles=("carrier",), http_address=_HTTP)
            topic = await brokers.create_topic("o")
            at_carrier = await brokers.client("c")
            await until(lambda: brokers.sees("c", "o"))
            new = pb.CreateTopicRequest(name="other")
            with pytest.raises(WrongBroker, match=overseer.address) as refused:
                await ask_one(carrier, "Overseer/CreateTopic", new)
            assert refused.value.brokers == (overseer.address,)
            with pytest.raises(WrongBroker, match=carrier.address) as refused:
                await ask_one(overseer, "Carrier/Count", pb.CountRequest(topic_uid=topic.uid))
            assert refused.value.brokers == (carrier.address,)
            assert [each.uid for each in await at_carrier.topics()] == [topic.uid]
            stream = await brokers.join("c", topic, "a")
            await send_all(at_carrier, IDS)
            assert sorted(await receive(stream, 40)) == sorted(IDS)

    run_scene(scene)


def test_each_role_refuses_requests_of_the_other_over_http() -> None:
    async def scene() -> None:
        async with cluster(EmbeddedEngine()) as brokers:
            await brokers.add_broker("o", roles=("overseer",), http_address=_HTTP)
            await brokers.add_broker("c", roles=("carrier",), http_address=_HTTP)
            overseer, carrier = brokers.http("o"), brokers.http("c")
            wrong = (HTTPStatus.MISDIRECTED_REQUEST, "wrong_broker")
            new = {"name": "jobs"}
            assert await asyncio.to_thread(status, "POST", f"{carrier}/v1/topics", new) == wrong
            assert await asyncio.to_thread(status, "POST", f"{overseer}/v1/topics", new) != wrong
            counts = "v1/topics/jobs/messages/m"
            assert await asyncio.to_thread(status, "GET", f"{overseer}/{counts}") == wrong
            missing = await asyncio.to_thread(status, "GET", f"{carrier}/{counts}")
            assert missing[0] == HTTPStatus.NOT_FOUND
            assert await asyncio.to_thread(status, "GET", f"{carrier}/v1/topics/jobs") == (200, "")

    run_scene(scene)


def test_brokers_of_a_topic_are_listed_in_order() -> None:
    def listed(url: str) -> list[str]:
        with urlopen(url) as answer:
            return [each["id"] for each in json.load(answer)["brokers"]]

    async def scene() -> None:
        async with cluster(EmbeddedEngine()) as brokers:
            await brokers.add_broker("o", roles=("overseer",), http_address=_HTTP)
            for name in ("c1", "c2"):
                await brokers.add_broker(name, roles=("carrier",))
                await until(lambda: brokers.sees("o", name))  # noqa: B023 - awaited here
            topic = await brokers.create_topic("o")
            consumer = await brokers.join("c2", topic, "a")
            parts = brokers.brokers["o"].node.parts
            assert parts is not None
            await until(lambda: topic.uid in parts.overseer.consumers)
            of_topic = f"{brokers.http('o')}/v1/topics/jobs/brokers"
            assert await asyncio.to_thread(listed, of_topic) == ["c2", "c1"]
            assert await asyncio.to_thread(listed, f"{of_topic}?kind=producer&rack=r") == [
                "c2",
                "c1",
            ]
            client = await brokers.client("o")
            assert [each.name for each in await client.preferred_brokers("jobs")] == ["c2", "c1"]
            assert consumer is not None

    run_scene(scene)
