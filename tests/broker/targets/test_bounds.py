"""The settings bound the calls under way, and a slow receiver delays no other."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from chronoline.broker.subscription import NO_BUCKETS
from chronoline.broker.targets.policy import TargetPolicy
from chronoline.broker.targets.target import Target
from chronoline.client import TopicSettings
from chronoline.client.messages import ToSend
from tests.broker.nodes import running
from tests.broker.targets.receivers import Hanging, calling, receiving
from tests.broker.targets.test_calls import called, is_done
from tests.deadline import run_scene, until
from tests.descriptors import no_descriptors

_MANY = 100


class _Hasty(TargetPolicy):
    """Gives up soon while it waits for a free call."""

    @property
    def turn_ms(self) -> int:
        return 50


class _Brief(TargetPolicy):
    """Leases are over before a call could be."""

    @property
    def lease_ms(self) -> int:
        return self.caller.limits.timeout_ms


def test_call_beyond_its_lease_is_not_begun(tmp_path: Path) -> None:
    """A node that stood still does not call, because its lease would end before the answer."""

    async def scene() -> None:
        async with (
            receiving() as receiver,
            calling(_Brief) as calls,
            running(tmp_path, calls=calls) as node,
            node.client() as client,
        ):
            await client.create_topic("t", TopicSettings(target=receiver.url(), max_attempts=1))
            await client.send("t")
            await until(lambda: called(node, "no_turn") > 0)
            assert receiver.calls == []
            assert await client.dead_letters("t") == []

    run_scene(scene)


class _Short(TargetPolicy):
    """Leases last for a little longer than a call."""

    @property
    def lease_ms(self) -> int:
        return self.caller.limits.timeout_ms + 100


def test_leases_outlast_the_settlements_of_a_slow_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the answer of a call comes too late, and load alone doubles the call."""
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def scene() -> None:
        hanging = Hanging("/in")
        hanging.let_go.set()
        async with (
            receiving(hanging) as receiver,
            calling(_Short, timeout_ms=500) as calls,
            running(tmp_path, calls=calls) as node,
            node.client() as client,
        ):
            await client.create_topic("t", TopicSettings(target=receiver.url("/in")))
            assert node.node.parts is not None
            carrier = node.node.parts.carrier
            change = carrier.change

            async def slowly(*given: Any, **named: Any) -> Any:
                asked.set()
                await go_on.wait()
                return await change(*given, **named)

            monkeypatch.setattr(carrier, "change", slowly)
            await client.send("t", id="first")
            await asked.wait()
            begun_s = time.monotonic()
            await until(lambda: time.monotonic() - begun_s > 0.4)
            go_on.set()
            await until(lambda: is_done(client, "t"))
            hanging.let_go.clear()
            await client.send("t", id="second")
            await until(lambda: receiver.under_way == 1)
            (subscription,) = node.subscriptions
            (lease,) = subscription.outstanding.values()
            due_ms = int(receiver.calls[-1].headers["Chronoline-Due-Ms"])
            assert lease.until - due_ms >= 6 * 400
            assert subscription.agenda.margin_ms >= 2 * 400
            hanging.let_go.set()
            await until(lambda: is_done(client, "t"))

    run_scene(scene)


def test_slow_receiver_delays_no_other_topic(tmp_path: Path) -> None:
    async def scene() -> None:
        hanging = Hanging()
        async with (
            receiving(hanging) as slow,
            receiving() as quick,
            calling(for_each_host=8) as calls,
            running(tmp_path, calls=calls) as node,
            node.client() as client,
        ):
            # After a window without credit the slow one has no share any more, and has to get it back.
            await client.create_topic("slow", TopicSettings(target=slow.url(), window=0.05))
            await client.create_topic("quick", TopicSettings(target=quick.url()))
            await client.send_many("slow", [ToSend() for _ in range(_MANY)])
            await until(lambda: slow.under_way == 4)
            await client.send_many("quick", [ToSend() for _ in range(_MANY)])
            await until(lambda: is_done(client, "quick"))
            assert len(set(quick.ids())) == _MANY
            assert (slow.under_way, len(slow.calls)) == (4, 4)
            (held,) = [each for each in node.subscriptions if each.topic.name == "slow"]
            await until(lambda: held.share == NO_BUCKETS)
            hanging.let_go.set()
            await until(lambda: is_done(client, "slow"))
            assert sorted(slow.ids()) == sorted(set(slow.ids()))
            assert slow.most_under_way == 4

    run_scene(scene)


def test_slow_topic_leaves_calls_to_others_of_its_host(tmp_path: Path) -> None:
    async def scene() -> None:
        hanging = Hanging("/slow")
        async with (
            receiving(hanging) as receiver,
            calling(for_each_host=4) as calls,
            running(tmp_path, calls=calls) as node,
            node.client() as client,
        ):
            for name in ("slow", "quick"):
                settings = TopicSettings(target=receiver.url(f"/{name}"))
                await client.create_topic(name, settings)
            await client.send_many("slow", [ToSend() for _ in range(_MANY)])
            await until(lambda: receiver.under_way == 2)
            await client.send_many("quick", [ToSend() for _ in range(_MANY)])
            await until(lambda: is_done(client, "quick"))
            assert len(receiver.ids("/slow")) == 2
            assert len(set(receiver.ids("/quick"))) == _MANY
            hanging.let_go.set()
            await until(lambda: is_done(client, "slow"))
            assert receiver.most_under_way <= 4

    run_scene(scene)


def test_waiting_for_a_call_costs_no_attempt(
    tmp_path: Path,
) -> None:
    """A wait for a free call is no attempt: with `max_attempts` 1 it would be a dead letter."""

    async def scene() -> None:
        hanging = Hanging("/a", "/b")
        async with (
            receiving(hanging) as receiver,
            calling(_Hasty, for_each_host=4) as calls,
            running(tmp_path, calls=calls) as node,
            node.client() as client,
        ):
            for name in ("a", "b", "t"):
                settings = TopicSettings(target=receiver.url(f"/{name}"), max_attempts=1)
                await client.create_topic(name, settings)
            for name in ("a", "b"):
                await client.send_many(name, [ToSend() for _ in range(3)])
            await until(lambda: receiver.under_way == 4)
            await client.send("t", id="waits")
            await until(lambda: called(node, "no_turn") > 0)
            hanging.let_go.set()
            for name in ("a", "b", "t"):
                await until(partial(is_done, client, name))
                assert await client.dead_letters(name) == []
            assert receiver.ids("/t") == ["waits"]
            assert receiver.most_under_way == 4

    run_scene(scene)


def test_waiting_call_of_a_deleted_topic_is_not_begun(tmp_path: Path) -> None:
    async def scene() -> None:
        hanging = Hanging("/a", "/b")
        async with (
            receiving(hanging) as receiver,
            calling(for_each_host=4, timeout_ms=60_000) as calls,
            running(tmp_path, calls=calls) as node,
            node.client() as client,
        ):
            for name in ("a", "b", "t"):
                await client.create_topic(name, TopicSettings(target=receiver.url(f"/{name}")))
            for name in ("a", "b"):
                await client.send_many(name, [ToSend() for _ in range(2)])
            await until(lambda: receiver.under_way == 4)
            (held,) = [each for each in node.subscriptions if each.topic.name == "t"]
            target = held.receiver
            assert isinstance(target, Target)
            await client.send("t")
            await until(lambda: not target.is_idle)  # its call waits for a turn
            await client.delete_topic("t")
            await until(lambda: all(each.topic.name != "t" for each in node.subscriptions))
            hanging.let_go.set()
            await until(lambda: target.is_idle)
            assert receiver.ids("/t") == []

    run_scene(scene)


def test_memory_of_large_bodies_is_bounded(tmp_path: Path) -> None:
    """As many are taken as fit into 16 MiB, and the rest when there is room."""

    async def scene() -> None:
        hanging = Hanging()
        async with (
            receiving(hanging) as receiver,
            calling() as calls,
            running(tmp_path, calls=calls) as node,
            node.client() as client,
        ):
            settings = TopicSettings(target=receiver.url(), largest_body_bytes=8 * 1024 * 1024)
            await client.create_topic("t", settings)
            await until(lambda: len(node.subscriptions) == 1)
            (subscription,) = node.subscriptions
            for _ in range(4):
                await client.send("t", bytes(7 * 1024 * 1024))
            await until(lambda: subscription.receiver.clogged)
            assert len(subscription.outstanding) == 3
            hanging.let_go.set()
            await until(lambda: is_done(client, "t"))
            assert [len(each.body) for each in receiver.calls] == [7 * 1024 * 1024] * 4

    run_scene(scene)


def test_lack_of_descriptors_costs_no_attempt(tmp_path: Path) -> None:
    async def scene() -> None:
        async with (
            receiving() as receiver,
            calling(_Hasty) as calls,
            running(tmp_path, calls=calls) as node,
            node.client() as client,
        ):
            await client.create_topic("t", TopicSettings(target=receiver.url(), max_attempts=1))
            with no_descriptors():
                sent = await client.send("t")
                await until(lambda: called(node, "no_turn") > 0)
            await until(lambda: receiver.ids() == [sent])
            assert receiver.calls[0].attempts == 0
            assert await client.dead_letters("t") == []

    run_scene(scene)
