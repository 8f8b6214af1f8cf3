"""Topics with a pipe: a live pipe pauses the consumers, which are served again after its end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any

import httpx
import pytest

from chronoline.client import TopicSettings
from chronoline.client.aio import AsyncClient, ToSend
from chronoline.core.errors import TopicExists, TopicNotFound, TopicPiped
from chronoline.runtime.clock import SystemClock
from chronoline.stores.contract import Store
from chronoline.stores.factory import open_store
from chronoline.stores.members import lane_group, pipe_group
from tests.broker.http.served import serving
from tests.broker.nodes import running
from tests.broker.raw_streams import raw_consumer
from tests.broker.targets.receivers import calling, receiving
from tests.broker.targets.test_calls import is_done
from tests.deadline import run_scene, until

_QUICK = TopicSettings(window=0.2)
_HOUR_MS = 3_600_000
_NODE = "node"


def now_ms() -> int:
    return SystemClock().now_ms()


class Pipe:
    """The heartbeats of one, which is all that a broker sees of it. A topic is the SDK's or a node's."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def beat(
        self, topic: Any, life_ms: int = _HOUR_MS, *, group: Callable[[Any], str] = pipe_group
    ) -> None:
        self._store.beat(group(topic), _NODE, until_ms=now_ms() + life_ms, now_ms=now_ms())

    def leave(self, topic: Any) -> None:
        self._store.leave(pipe_group(topic), _NODE)

    def is_free(self, topic: Any, message_id: str) -> bool:
        message = self._store.lookup(topic.uid, [message_id])[message_id]
        return message.lock_consumer is None


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipe]:
    with open_store(f"sqlite:///{tmp_path / 'timeline.db'}") as store:
        yield Pipe(store)


@pytest.mark.parametrize(
    "group",
    [pipe_group, lane_group, attrgetter("name")],
    ids=["this version", "its tasks", "an older version"],
)
def test_only_a_live_pipe_keeps_consumers_away(
    tmp_path: Path, pipe: Pipe, group: Callable[[Any], str]
) -> None:
    async def scene() -> None:
        async with running(tmp_path) as broker, broker.client() as client:
            topic = await client.create_topic("jobs", _QUICK)
            await client.send("jobs", b"x", id="m")
            pipe.beat(topic, group=group)
            with pytest.raises(TopicPiped, match="a pipe fires topic"):
                await anext(client.consume("jobs"))
            pipe.beat(topic, -_HOUR_MS // 2, group=group)
            leases = client.consume("jobs")
            lease = await anext(leases)
            await lease.ack()
            await leases.aclose()

    run_scene(scene)


def test_pipe_of_a_deleted_topic_spares_its_successor(tmp_path: Path, pipe: Pipe) -> None:
    async def scene() -> None:
        async with running(tmp_path) as broker, broker.client() as client:
            pipe.beat(await client.create_topic("jobs", _QUICK))
            await client.delete_topic("jobs")
            await until(lambda: _is_made_anew(client))
            await client.send("jobs", b"x", id="m")
            leases = client.consume("jobs")
            await (await anext(leases)).ack()
            await leases.aclose()

    run_scene(scene)


async def _is_made_anew(client: AsyncClient) -> bool:
    try:
        await client.create_topic("jobs", _QUICK)
    except TopicExists:
        return False
    return True


def test_starting_pipe_pauses_consumers_with_a_reason(tmp_path: Path, pipe: Pipe) -> None:
    async def scene() -> None:
        async with running(tmp_path) as broker, broker.client() as client:
            topic = await client.create_topic("jobs", _QUICK)
            async with raw_consumer(broker.address, "c", "1") as stream:
                await stream.subscribe(topic.uid, 10)
                assert (await stream.hears("share")).reason == ""
                pipe.beat(topic)
                told = await stream.hears("share")
                assert (told.start_bucket, told.stop_bucket) == (0, 0)
                assert "a pipe fires topic" in told.reason
                await client.send("jobs", b"x", id="m")
                pipe.leave(topic)
                heard = [await stream.hear()]
                while heard[-1].WhichOneof("what") != "push":
                    heard.append(await stream.hear())
                assert "share" in [each.WhichOneof("what") for each in heard]  # not before it
                (came,) = heard[-1].push.deliveries
                assert (came.id, came.redelivered) == ("m", False)

    run_scene(scene)


def test_reserved_messages_are_returned_to_a_pipe(tmp_path: Path, pipe: Pipe) -> None:
    async def scene() -> None:
        async with running(tmp_path) as broker, broker.client() as client:
            topic = await client.create_topic("jobs", _QUICK)
            await client.send_many("jobs", [ToSend(id="a"), ToSend(id="b")])
            leases = client.consume("jobs", prefetch=2)
            held = await anext(leases)
            (other,) = {"a", "b"} - {held.id}
            await until(lambda: not pipe.is_free(topic, other))
            pipe.beat(topic)
            await until(lambda: pipe.is_free(topic, other))
            assert not pipe.is_free(topic, held.id)
            await held.extend(60)
            await held.ack()
            waiting = asyncio.ensure_future(anext(leases))
            pipe.leave(topic)
            lease = await waiting
            assert (lease.id, lease.attempts, lease.redelivered) == (other, 0, False)
            await lease.ack()
            await leases.aclose()

    run_scene(scene)


def test_consumer_is_served_again_after_a_pipe(
    tmp_path: Path, pipe: Pipe, caplog: pytest.LogCaptureFixture
) -> None:
    """The consumer need not subscribe again, although its broker restarted."""

    async def scene() -> None:
        async with running(tmp_path) as broker:
            port = int(broker.address.rpartition(":")[2])
            client = broker.client()
            topic = await client.create_topic("jobs", _QUICK)
            await client.create_topic("others", _QUICK)
            stream = await client.subscribe(["jobs", "others"], consumer="c", prefetch=2)
            waiting = asyncio.ensure_future(stream.next())
            await until(lambda: len(broker.subscriptions) == 2)
            pipe.beat(topic)
            await until(lambda: "no messages are pushed until this ends" in caplog.text)
        async with running(tmp_path, port) as broker:
            await client.send("jobs", b"x", id="m")
            await client.send("others", b"x", id="other")
            other = await waiting
            assert other.id == "other"
            await other.ack()
            assert pipe.is_free(topic, "m")
            waiting = asyncio.ensure_future(stream.next())
            pipe.beat(topic, 300)  # its last beat: it dies
            lease = await waiting
            assert lease.id == "m"
            await lease.ack()
            assert "'jobs' is served again" in caplog.text
            await client.close()

    with caplog.at_level(logging.WARNING, logger="chronoline.client"):
        run_scene(scene)


def test_drop_under_a_pipe_ends_the_consumers(
    tmp_path: Path, pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No setting: the test does not wait for the usual time.
    monkeypatch.setattr("chronoline.broker.loader._LOOK_WHEN_PAUSED_MS", 50)

    async def scene() -> None:
        async with running(tmp_path) as broker, broker.client() as client:
            topic = await client.create_topic("jobs", _QUICK)
            waiting = asyncio.ensure_future(anext(client.consume("jobs")))
            await until(lambda: len(broker.subscriptions) == 1)
            pipe.beat(topic)
            await until(lambda: bool(broker.subscriptions[0].paused))
            await client.delete_topic("jobs")
            with pytest.raises(TopicNotFound):
                await waiting

    run_scene(scene)


def test_poll_is_refused_while_a_pipe_lives(tmp_path: Path, pipe: Pipe) -> None:
    async def scene() -> None:
        async with serving(tmp_path) as served:
            await served.create_topic(window_ms=200)
            assert served.node.parts is not None
            topic = await served.node.parts.topics.find("t")
            polling = asyncio.ensure_future(
                served.http.post("/v1/topics/t/receive", json={"consumer": "c", "wait": "30s"})
            )
            await until(lambda: 1 in [each.credit for each in served.subscriptions])
            pipe.beat(topic)
            _assert_refused(await polling)
            again = {"consumer": "c", "wait": "30s"}
            _assert_refused(await served.http.post("/v1/topics/t/receive", json=again))
            _assert_refused(await served.http.post("/v1/topics/t/receive", json={"consumer": "d"}))
            await served.put("m")
            pipe.leave(topic)
            await until(lambda: not any(each.paused for each in served.subscriptions))
            received = await served.receive(consumer="c", wait="10s")
            assert [each["id"] for each in received["messages"]] == ["m"]

    run_scene(scene)


def _assert_refused(answer: httpx.Response) -> None:
    assert answer.status_code == 409
    assert answer.json()["code"] == "topic_piped"
    assert "a pipe fires topic" in answer.json()["detail"]


def test_target_is_not_called_while_a_pipe_lives(tmp_path: Path, pipe: Pipe) -> None:
    async def scene() -> None:
        async with (
            receiving() as receiver,
            calling() as calls,
            running(tmp_path, calls=calls) as node,
            node.client() as client,
        ):
            settings = TopicSettings(target=receiver.url(), window=_QUICK.window)
            topic = await client.create_topic("t", settings)
            await client.create_topic("other", settings)
            await until(lambda: len(node.subscriptions) == 2)
            pipe.beat(topic)
            await until(lambda: any(each.paused for each in node.subscriptions))
            await client.send("t", b"x", id="m")
            await client.send("other", b"x", id="other")
            await until(lambda: is_done(client, "other"))
            pipe.leave(topic)
            await until(lambda: is_done(client, "t"))
            assert receiver.ids() == ["other", "m"]

    run_scene(scene)
