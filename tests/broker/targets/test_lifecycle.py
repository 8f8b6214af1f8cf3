"""Topics, nodes and stores come and go: no message is lost or called twice."""

from __future__ import annotations

import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from chronoline.broker.metrics import BrokerMetrics
from chronoline.broker.targets.policy import TargetPolicy
from chronoline.broker.targets.target import Target
from chronoline.client import TopicSettings
from chronoline.client.aio import AsyncClient
from chronoline.client.messages import ToSend
from chronoline.core.errors import StoreUnavailable, TopicExists
from chronoline.core.message import NewMessage
from chronoline.stores.factory import open_store
from chronoline.testing.postgres import PostgresServer
from tests.broker.http.served import serving
from tests.broker.http.test_admin_routes import Away
from tests.broker.nodes import running
from tests.broker.targets.receivers import Hanging, calling, receiving
from tests.broker.targets.test_calls import is_done
from tests.deadline import run_scene, until


class _Hurried(TargetPolicy):
    """A stop that does not wait for calls."""

    @property
    def stop_ms(self) -> int:
        return 10


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def test_overdue_messages_are_called_at_start(tmp_path: Path) -> None:
    async def scene() -> None:
        async with receiving() as receiver:
            with open_store(f"sqlite:///{tmp_path / 'timeline.db'}") as store:
                settings = TopicSettings(target=receiver.url())
                topic = store.create_topic("t", settings.in_ms(), now_ms=_now_ms())
                late = [NewMessage(id=f"m{n}", due=_now_ms() - 60_000) for n in range(50)]
                assert all(each.done for each in store.create(topic.uid, late, now_ms=_now_ms()))
            async with (
                calling() as calls,
                running(tmp_path, calls=calls) as node,
                node.client() as client,
            ):
                await until(lambda: is_done(client, "t"))
            assert sorted(receiver.ids()) == sorted(each.id for each in late)

    run_scene(scene)


def test_created_topics_are_called_and_deleted_ones_not(
    tmp_path: Path,
) -> None:
    async def scene() -> None:
        async with (
            receiving() as receiver,
            calling() as calls,
            running(tmp_path, calls=calls) as node,
            node.client() as client,
        ):
            await client.create_topic("plain")
            await client.create_topic("t", TopicSettings(target=receiver.url("/first")))
            await until(lambda: len(node.subscriptions) == 1)
            await client.delete_topic("t")
            await until(lambda: not node.subscriptions)
            settings = TopicSettings(target=receiver.url("/second"))
            await until(lambda: _is_made_anew(client, settings))
            await client.send("t", b"x")
            await until(lambda: is_done(client, "t"))
            assert [each.path for each in receiver.calls] == ["/second"]

    run_scene(scene)


async def _is_made_anew(client: AsyncClient, settings: TopicSettings) -> bool:
    """The name is taken until everything on the old one is purged."""
    try:
        await client.create_topic("t", settings)
    except TopicExists:
        return False
    return True


def test_topics_of_another_node_are_noticed(tmp_path: Path) -> None:
    async def scene() -> None:
        async with (
            receiving() as receiver,
            calling() as calls,
            running(tmp_path, calls=calls) as node,
            node.client() as client,
        ):
            with open_store(f"sqlite:///{tmp_path / 'timeline.db'}") as store:
                settings = TopicSettings(target=receiver.url())
                topic = store.create_topic("t", settings.in_ms(), now_ms=_now_ms())
                store.create(topic.uid, [NewMessage(id="a", due=_now_ms())], now_ms=_now_ms())
                await until(lambda: receiver.ids() == ["a"])
                await until(lambda: is_done(client, "t"))
                store.delete_topic(topic.uid, now_ms=_now_ms())
            await until(lambda: not node.subscriptions)
            assert await client.topics() == []

    run_scene(scene)


def test_target_that_cannot_begin_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    join = Target.join

    async def fails(target: Target) -> None:
        if target.topic.name == "a":
            raise LookupError("of one target")
        await join(target)

    monkeypatch.setattr(Target, "join", fails)

    async def scene() -> None:
        async with (
            receiving() as receiver,
            calling() as calls,
            running(tmp_path, calls=calls) as node,
            node.client() as client,
        ):
            for name in ("a", "t"):
                await client.create_topic(name, TopicSettings(target=receiver.url(f"/{name}")))
                await client.send(name, b"x")
            await until(lambda: is_done(client, "t"))
            assert [call.path for call in receiver.calls] == ["/t"]
            assert "the target of topic 'a' failed: LookupError('of one target')" in caplog.text

    run_scene(scene)


def test_drop_during_a_call_is_harmless(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        hanging = Hanging("/hangs")
        async with (
            receiving(hanging) as receiver,
            calling() as calls,
            running(tmp_path, calls=calls) as node,
            node.client() as client,
        ):
            for name in ("hangs", "t"):
                await client.create_topic(name, TopicSettings(target=receiver.url(f"/{name}")))
            await client.send("hangs")
            await until(lambda: receiver.under_way == 1)
            await client.delete_topic("hangs")
            await until(lambda: len(node.subscriptions) == 1)
            hanging.let_go.set()
            await until(lambda: receiver.under_way == 0)
            await client.send("t")
            await until(lambda: is_done(client, "t"))
            assert [each.path for each in receiver.calls] == ["/hangs", "/t"]

    run_scene(scene)
    assert "could not be served" not in caplog.text


def test_stop_returns_unanswered_messages(tmp_path: Path) -> None:
    """At once, and as it was: the next node need not wait until leases are over."""

    async def scene() -> None:
        hanging = Hanging()
        async with receiving(hanging) as receiver:
            async with (
                calling(_Hurried) as calls,
                running(tmp_path, calls=calls) as node,
                node.client() as client,
            ):
                await client.create_topic("t", TopicSettings(target=receiver.url()))
                await client.send_many("t", [ToSend(id=f"m{n}") for n in range(40)])
                await until(lambda: receiver.under_way == 32)
            with open_store(f"sqlite:///{tmp_path / 'timeline.db'}") as store:
                topic = store.find_topic("t")
                assert topic is not None
                found = store.lookup(topic.uid, [f"m{n}" for n in range(40)])
                assert len(found) == 40
                assert all(each.attempts == 0 and each.ts <= _now_ms() for each in found.values())
            hanging.let_go.set()
            async with (
                calling() as calls,
                running(tmp_path, calls=calls) as node,
                node.client() as client,
            ):
                await until(lambda: is_done(client, "t"))
            assert set(receiver.ids()) == {f"m{n}" for n in range(40)}

    run_scene(scene)


def test_call_answered_without_the_store_is_acked_later(
    tmp_path: Path,
) -> None:
    async def scene() -> None:
        hanging = Hanging()
        with open_store(f"sqlite:///{tmp_path / 'timeline.db'}") as store:
            away: Any = Away(store)
            async with (
                receiving(hanging) as receiver,
                calling() as calls,
                serving(away, calls=calls) as served,
                served.client() as client,
            ):
                await client.create_topic("t", TopicSettings(target=receiver.url()))
                await client.send_many("t", [ToSend() for _ in range(10)])
                await until(lambda: receiver.under_way == 10)
                away.away = True
                hanging.let_go.set()
                await until(lambda: receiver.under_way == 0)
                failing = "storage_queries_errors"
                await until(lambda: _counted(served.node.metrics, failing, "t") > 0)
                away.away = False
                await until(lambda: is_done(client, "t"))
                await client.send("t", id="after")
                await until(lambda: is_done(client, "t"))
                assert receiver.ids()[10:] == ["after"]
                assert len(set(receiver.ids())) == 11

    run_scene(scene)


class _Failing:
    """A store that does not answer some queries."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.failing = ""
        self.failed: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name == self.failing:
            self.failed.append(name)
            raise StoreUnavailable("the server is gone")
        return getattr(self._store, name)


def test_store_away_at_start_is_asked_again(tmp_path: Path) -> None:
    async def scene() -> None:
        with open_store(f"sqlite:///{tmp_path / 'timeline.db'}") as store:
            failing: Any = _Failing(store)
            async with receiving() as receiver, calling() as calls:
                settings = TopicSettings(target=receiver.url())
                topic = store.create_topic("t", settings.in_ms(), now_ms=_now_ms())
                store.create(topic.uid, [NewMessage(id="a", due=_now_ms())], now_ms=_now_ms())
                failing.failing = "list_topics"
                async with serving(failing, calls=calls) as served, served.client() as client:
                    await until(lambda: "list_topics" in failing.failed)
                    failing.failing = "live_groups"  # the query of a subscribe
                    await until(lambda: "live_groups" in failing.failed)
                    failing.failing = ""
                    await until(lambda: is_done(client, "t"))
                assert receiver.ids() == ["a"]

    run_scene(scene)


def _counted(metrics: BrokerMetrics, name: str, topic: str) -> float:
    families = {family.name: family for family in metrics.collect()}
    return sum(each.value for each in families[name].samples if each.labels["topic"] == topic)


def test_several_nodes_call_once_for_each_message(
    postgres_server: PostgresServer,
) -> None:
    url = postgres_server.create_database("targets")

    async def scene() -> None:
        async with AsyncExitStack() as exits:
            receiver = await exits.enter_async_context(receiving())
            with open_store(url) as store:
                settings = TopicSettings(target=receiver.url())
                store.create_topic("t", settings.in_ms(), now_ms=_now_ms())
            calls = await exits.enter_async_context(calling())
            one = await exits.enter_async_context(running(url, calls=calls))
            other = await exits.enter_async_context(running(url, calls=calls))
            client = await exits.enter_async_context(one.client())
            await until(lambda: bool(one.subscriptions and other.subscriptions))
            names = {each.name for each in (*one.subscriptions, *other.subscriptions)}
            assert len(names) == 2
            sending = [ToSend(id=f"m{n}", delay=n % 10 / 10) for n in range(300)]
            (await client.send_many("t", sending)).raise_for_refused()
            await until(lambda: is_done(client, "t"))
            assert sorted(receiver.ids()) == sorted(each.id for each in sending if each.id)

    run_scene(scene)
