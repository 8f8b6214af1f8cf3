"""Paused topics: consumers get nothing and hear why, producers go on, and held messages can be settled."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from chronoline.client import TopicSettings
from chronoline.client.aio import ToSend
from chronoline.core.errors import InvalidInput, TopicChanged
from tests.broker.gated_store import running_gated
from tests.broker.http.served import serving
from tests.broker.nodes import Running, running
from tests.broker.raw_streams import raw_consumer
from tests.broker.targets.receivers import calling, receiving
from tests.broker.targets.test_calls import is_done
from tests.deadline import run_scene, until


def paused_names(broker: Running) -> list[str]:
    """The topics that the metrics of a broker show as paused."""
    text = broker.node.metrics.snapshot().text().decode()
    lines = [line for line in text.splitlines() if line.startswith("topic_paused{")]
    return [line.split('topic="')[1].split('"')[0] for line in lines]


def test_paused_consumers_are_told_why_and_served_again(tmp_path: Path) -> None:
    async def scene() -> None:
        async with running(tmp_path) as broker, broker.client() as client:
            topic = await client.create_topic("jobs")
            async with raw_consumer(broker.address, "c", "1") as stream:
                await stream.subscribe(topic.uid, 10)
                assert (await stream.hears("share")).reason == ""
                paused = await client.pause_topic("jobs", reason="mails\nbounce\x1b[2J")
                assert paused.pause is not None
                assert paused.pause.reason == "mails\nbounce\x1b[2J"
                told = await stream.hears("share")
                assert (told.start_bucket, told.stop_bucket) == (0, 0)
                assert told.reason.startswith("topic 'jobs' is paused since 2")
                assert told.reason.endswith(": mails bounce [2J")  # for a terminal
                await client.send("jobs", b"x", id="m")
                resumed = await client.resume_topic("jobs")
                assert resumed.pause is None
                heard = [await stream.hear()]
                while heard[-1].WhichOneof("what") != "push":
                    heard.append(await stream.hear())
                (came,) = heard[-1].push.deliveries
                assert (came.id, came.redelivered) == ("m", False)

    run_scene(scene)


def test_consumer_that_comes_to_a_paused_topic_waits(tmp_path: Path) -> None:
    async def scene() -> None:
        async with running(tmp_path) as broker, broker.client() as client:
            topic = await client.create_topic("jobs")
            await client.send("jobs", b"x", id="m")
            await client.pause_topic("jobs")
            async with raw_consumer(broker.address, "c", "1") as stream:
                await stream.subscribe(topic.uid, 10)
                assert "is paused since" in (await stream.hears("share")).reason
                await client.resume_topic("jobs")
                assert (await stream.hears("push")).deliveries[0].id == "m"

    run_scene(scene)


def test_consumer_that_came_during_a_pause_is_served_after_it(tmp_path: Path) -> None:
    async def scene() -> None:
        async with (
            running_gated(tmp_path, "live_groups") as (broker, store),
            broker.client() as client,
        ):
            topic = await client.create_topic("jobs")
            await client.send("jobs", b"x", id="m")
            await client.pause_topic("jobs")
            store.gate.clear()
            async with raw_consumer(broker.address, "c", "1") as stream:
                await stream.subscribe(topic.uid, 10)
                await until(lambda: store.waiting > 0)  # it knows of the pause
                await client.resume_topic("jobs")
                store.gate.set()
                assert (await stream.hears("push")).deliveries[0].id == "m"

    run_scene(scene)


def test_unpushed_messages_go_back_and_held_ones_are_settled(tmp_path: Path) -> None:
    async def scene() -> None:
        async with running(tmp_path) as broker, broker.client() as client:
            await client.create_topic("jobs")
            await client.send_many("jobs", [ToSend(id="a"), ToSend(id="b")])
            leases = client.consume("jobs", prefetch=2)
            held = await anext(leases)
            (other,) = {"a", "b"} - {held.id}
            await client.pause_topic("jobs")

            async def is_free() -> bool:
                found = await client.lookup("jobs", other)
                return found is not None and found.lock_consumer is None

            await until(is_free)
            await held.extend(60)
            await held.ack()
            assert await client.lookup("jobs", held.id) is None
            waiting = asyncio.ensure_future(anext(leases))
            await client.resume_topic("jobs")
            lease = await waiting
            assert (lease.id, lease.attempts, lease.redelivered) == (other, 0, False)
            await lease.ack()
            await leases.aclose()

    run_scene(scene)


def test_pause_reaches_other_brokers_and_survives_restarts(tmp_path: Path) -> None:
    async def scene() -> None:
        async with running(tmp_path) as one, one.client() as client:
            topic = await client.create_topic("jobs")
            async with (
                running(tmp_path) as other,
                raw_consumer(other.address, "c", "1") as stream,
            ):
                await stream.subscribe(topic.uid, 10)
                assert (await stream.hears("share")).reason == ""
                await client.pause_topic("jobs", reason="x")
                assert (await stream.hears("share")).reason.endswith(": x")
                assert paused_names(one) == paused_names(other) == ["jobs"]
        async with running(tmp_path) as again, again.client() as client:
            found = await client.topic("jobs")
            assert found.pause is not None
            assert found.pause.reason == "x"
            await until(lambda: paused_names(again) == ["jobs"])
            await client.resume_topic("jobs")
            assert paused_names(again) == []

    run_scene(scene)


def test_target_of_a_paused_topic_is_not_called(tmp_path: Path) -> None:
    async def scene() -> None:
        async with (
            receiving() as receiver,
            calling() as calls,
            running(tmp_path, calls=calls) as node,
            node.client() as client,
        ):
            settings = TopicSettings(target=receiver.url())
            await client.create_topic("t", settings)
            await client.create_topic("other", settings)
            await until(lambda: len(node.subscriptions) == 2)
            await client.pause_topic("t")
            await client.send("t", b"x", id="m")
            await client.send("other", b"x", id="other")
            await until(lambda: is_done(client, "other"))
            await client.resume_topic("t")
            await until(lambda: is_done(client, "t"))
            assert receiver.ids() == ["other", "m"]

    run_scene(scene)


def test_changed_target_gets_the_next_messages(tmp_path: Path) -> None:
    async def scene() -> None:
        async with (
            receiving() as first,
            receiving() as second,
            calling() as calls,
            running(tmp_path, calls=calls) as node,
            node.client() as client,
        ):
            await client.create_topic("t", TopicSettings(target=first.url()))
            await client.send("t", b"x", id="a")
            await until(lambda: is_done(client, "t"))
            await client.change_topic("t", target=second.url())
            await client.send("t", b"x", id="b")
            await until(lambda: is_done(client, "t"))
            assert (first.ids(), second.ids()) == (["a"], ["b"])

    run_scene(scene)


def test_poll_of_a_paused_topic_waits_and_says_why(tmp_path: Path) -> None:
    async def scene() -> None:
        async with serving(tmp_path) as served:
            await served.create_topic()
            await served.put("m")
            paused = await served.http.post("/v1/topics/t/pause", json={"reason": "r"})
            assert paused.status_code == 200
            assert paused.json()["pause"]["reason"] == "r"
            received = await served.receive(consumer="c", wait="0s")
            assert received["messages"] == []
            assert received["paused"].endswith(": r")
            polling = asyncio.ensure_future(served.receive(consumer="c", wait="30s"))
            await until(lambda: 1 in [each.credit for each in served.subscriptions])
            resumed = await served.http.post("/v1/topics/t/resume")
            assert "pause" not in resumed.json()
            received = await polling
            assert [each["id"] for each in received["messages"]] == ["m"]
            assert "paused" not in received

    run_scene(scene)


def test_changed_settings_hold_at_every_broker(tmp_path: Path) -> None:
    async def scene() -> None:
        async with running(tmp_path) as one, one.client() as client:
            await client.create_topic("jobs")
            async with running(tmp_path) as other, other.client() as second:
                waiting = asyncio.ensure_future(anext(second.consume("jobs", consumer="c")))
                await until(lambda: len(other.subscriptions) == 1)
                changed = await client.change_topic("jobs", default_lease=5, max_lateness=60)
                assert (changed.revision, changed.settings.max_attempts) == (2, 20)
                await until(lambda: other.subscriptions[0].topic.settings.default_lease_ms == 5_000)
                again = await second.change_topic("jobs", revision=2, max_lateness=None)
                assert again.settings.max_lateness is None
                with pytest.raises(TopicChanged, match="has revision 3, not 2"):
                    await client.change_topic("jobs", revision=2, max_attempts=7)
                with pytest.raises(InvalidInput, match="buckets never changes"):
                    await client.change_topic("jobs", buckets=7)
                with pytest.raises(InvalidInput, match="there is no topic setting 'colour'"):
                    await client.change_topic("jobs", colour="red")
                waiting.cancel()

    run_scene(scene)


def test_http_changes_settings_and_removes_optional_ones(tmp_path: Path) -> None:
    async def scene() -> None:
        async with serving(tmp_path) as served:
            await served.create_topic(max_lateness_ms=5_000)
            url = "/v1/topics/t"
            changed = await served.http.patch(
                url, json={"settings": {"max_lateness_ms": None, "dedupe_ms": 7}, "revision": 1}
            )
            assert changed.status_code == 200, changed.text
            assert changed.json()["revision"] == 2
            assert changed.json()["settings"]["dedupe_ms"] == 7
            assert "max_lateness_ms" not in changed.json()["settings"]
            stale = await served.http.patch(url, json={"settings": {}, "revision": 1})
            assert (stale.status_code, stale.json()["code"]) == (409, "topic_changed")
            fixed = await served.http.patch(url, json={"settings": {"window_ms": 5}})
            assert fixed.status_code == 400
            assert "window_ms never changes" in fixed.json()["detail"]
            missing = await served.http.patch("/v1/topics/none", json={"settings": {}})
            assert missing.status_code == 404
            assert (await served.http.get(url)).json() == changed.json()

    run_scene(scene)
