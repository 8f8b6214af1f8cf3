"""Targets that cannot be are refused at every door, and so are consumers of a topic that has one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from grpc import aio

from chronoline.client import TopicSettings
from chronoline.core.errors import InvalidInput
from chronoline.wire.v1 import chronoline_pb2 as pb
from tests.broker.http.served import serving
from tests.broker.raw_streams import raw_consumer
from tests.deadline import run_scene

_TARGET = "https://example.com/remind?to=%C3%BC"
_BAD = {
    "": "must be http://host",
    "example.com": "must be http://host",
    "ftp://example.com/": "must be http://host",
    "http:///x": "must be http://host",
    "http://example.com:0/": "must be http://host",
    "http://example.com:99999/": "must be http://host",
    "http://[fe80::1%25eth0]/": "must be http://host",
    "http://user:secret@example.com/": "must hold no user",
    "http://example.com/#part": "must have no fragment",
    "http://example.com/a b": "must be of printable ASCII",
    "http://example.com/\r\nX: y": "must be of printable ASCII",
    "http://ü.example/": "must be of printable ASCII",
    "http://example.com/" + "x" * 4_096: "4096 characters",
}


@pytest.mark.parametrize(("url", "words"), _BAD.items())
def test_sdk_refuses_an_invalid_target(url: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=words) as refused:
        TopicSettings(target=url)
    assert "secret" not in str(refused.value)


def test_http_and_grpc_refuse_an_invalid_target(tmp_path: Path) -> None:
    async def scene() -> None:
        async with serving(tmp_path) as served, aio.insecure_channel(served.address) as channel:
            make: Any = channel.unary_unary(
                "/chronoline.v1.Overseer/CreateTopic",
                request_serializer=pb.CreateTopicRequest.SerializeToString,
                response_deserializer=pb.Topic.FromString,
            )
            for url, words in _BAD.items():
                asked = {"name": "t", "settings": {"target": url}}
                told = await served.http.post("/v1/topics", json=asked)
                assert (told.status_code, told.json()["code"]) == (400, "invalid_input")
                assert words.split()[0] in told.json()["detail"]
                settings = pb.TopicSettings(target=url)
                with pytest.raises(aio.AioRpcError, match=words):
                    await make(pb.CreateTopicRequest(name="t", settings=settings))
            assert (await served.http.get("/v1/topics")).json() == {"topics": []}

    run_scene(scene)


def test_target_at_a_forbidden_address_is_refused(tmp_path: Path) -> None:
    """A name may mean another address at its call, so it is accepted; so are other changes of the topic."""

    async def scene() -> None:
        async with serving(tmp_path) as served, served.client() as client:
            for url in ("http://10.0.0.7/remind", "http://[fd00::1]:8080/", "http://169.254.0.1/"):
                with pytest.raises(InvalidInput, match=r"may not be called.*callbacks\.allow"):
                    await client.create_topic("t", TopicSettings(target=url))
            assert await client.topics() == []
            named = TopicSettings(target="http://internal.example/")
            assert (await client.create_topic("t", named)).settings == named
            with pytest.raises(InvalidInput, match="may not be called"):
                await client.change_topic("t", target="http://10.0.0.7/remind")
            changed = await client.change_topic("t", target="http://127.0.0.1:9/")
            assert changed.settings.target == "http://127.0.0.1:9/"

    run_scene(scene)


def test_target_is_stored_and_shown(tmp_path: Path) -> None:
    async def scene() -> None:
        async with serving(tmp_path) as served, served.client() as client:
            made = await client.create_topic("t", TopicSettings(target=_TARGET))
            assert made.settings.target == _TARGET
            await served.create_topic("other", target=_TARGET)
            await served.create_topic("plain")
        async with serving(tmp_path) as served, served.client() as client:  # another life
            assert (await client.topic("t")).settings.target == _TARGET
            listed = (await served.http.get("/v1/topics")).json()["topics"]
            shown = {each["name"]: each["settings"].get("target") for each in listed}
            assert shown == {"t": _TARGET, "other": _TARGET, "plain": None}

    run_scene(scene)


def test_topic_with_a_target_refuses_consumers(tmp_path: Path) -> None:
    words = "topic 't' has a target, which gets its messages instead of consumers"

    async def scene() -> None:
        async with serving(tmp_path) as served, served.client() as client:
            topic = await client.create_topic("t", TopicSettings(target=_TARGET))
            with pytest.raises(InvalidInput, match=words):
                await anext(client.consume("t"))
            polled = await served.http.post("/v1/topics/t/receive", json={"wait": "1ms"})
            assert (polled.status_code, polled.json()["code"]) == (400, "invalid_input")
            assert words in polled.json()["detail"]
            async with raw_consumer(served.address, "c", "i") as consumer:
                await consumer.subscribe(topic.uid, 1)
                failure = await consumer.hears("failure")
                assert (failure.code, failure.kind) == ("invalid_input", "refused")

    run_scene(scene)
