"""The broker's metrics: the text that Prometheus reads, and what goes when a topic is deleted."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from chronoline.broker.metrics import FAMILIES, BrokerMetrics
from chronoline.core.errors import InvalidInput
from chronoline.runtime import audit
from chronoline.runtime.clock import SystemClock
from chronoline.stores.contract import Store
from chronoline.stores.factory import open_store
from tests.broker.http.served import Served, serving
from tests.broker.metric_samples import samples_of, scrape
from tests.deadline import until


def busy() -> BrokerMetrics:
    """Metrics with counts of two topics."""
    metrics = BrokerMetrics("c", {"stage": "test"})
    for topic in ("a", 'odd \\ "name"\n'):
        with metrics.command("create", topic, family="topic_commands"):
            pass
        metrics.queried("create", topic, took_s=0.5)
        metrics._lateness[topic].observe(2_500)  # `pushed` takes whole messages
        metrics.called(topic, "succeeded")
    return metrics


def shown(metrics: BrokerMetrics) -> dict[tuple[str, str], float]:
    text = metrics.snapshot().text().decode()
    return {(each.name, each.labels.get("topic", "")): each.value for each in samples_of(text)}


def test_every_family_has_its_type() -> None:
    text = busy().snapshot().text().decode()
    types = {each.name: each.type for each in text_string_to_metric_families(text)}
    for name, family in FAMILIES.items():
        kind = "gauge" if family.gauge else "counter"
        assert f"# TYPE {name} {kind}\n" in text
        assert types.get(name, types.get(name.removesuffix("_total"))) == kind
    assert types["chronoline_lateness_seconds"] == "histogram"
    assert "unknown" not in types.values()


def test_histogram_has_its_sum_and_count() -> None:
    found = shown(busy())
    assert found["chronoline_lateness_seconds_count", "a"] == 1
    assert found["chronoline_lateness_seconds_sum", "a"] == 2.5


def test_label_values_are_escaped() -> None:
    assert shown(busy())["topic_target_calls_count", 'odd \\ "name"\n'] == 1


def test_forgotten_topic_has_no_metrics() -> None:
    metrics = busy()
    metrics.show_backlog({"a": [("topic_available_messages_count", ("a",), 3)]})
    assert metrics.topics == {"a", 'odd \\ "name"\n'}
    metrics.forget_topic("a")
    found = shown(metrics)
    assert not any(topic == "a" for _, topic in found)
    assert found["topic_commands_count", ""] == 1  # that there was one is not forgotten
    assert metrics.topics == {'odd \\ "name"\n'}


def test_command_is_counted_when_it_ends() -> None:
    metrics = BrokerMetrics()
    under_way = metrics.command("create", "a", family="topic_commands")
    under_way.__enter__()
    assert metrics.topics == set()
    error = InvalidInput()
    assert not under_way.__exit__(type(error), error, None)
    assert shown(metrics)["topic_commands_errors", "a"] == 1
    assert shown(metrics)["topic_commands_count", "a"] == 1


async def topics_shown(served: Served) -> set[str]:
    return {each.labels.get("topic", "") for each in await scrape(served.http)} - {""}


async def used(served: Served, name: str) -> None:
    """A topic of which every kind of metric is shown."""
    await served.create_topic(name)
    await served.put("m", name)
    await served.receive(name)
    assert name in await topics_shown(served)


def test_deleted_topic_has_no_metrics(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path) as served:
            await used(served, "kept")
            await used(served, "dropped")
            assert (await served.http.delete("/v1/topics/dropped")).status_code == 200
            await until(lambda: is_gone(served, "dropped"))
            assert await topics_shown(served) == {"kept"}

    asyncio.run(play())


def test_topic_dropped_by_another_node_has_no_metrics(tmp_path: Path) -> None:
    async def play(store: Store) -> None:
        async with serving(store) as served:
            await used(served, "kept")
            await used(served, "dropped")
            topic = store.find_topic("dropped")
            assert topic is not None
            store.delete_topic(topic.uid, now_ms=SystemClock().now_ms())
            await served.http.get("/v1/topics")  # looked at now, and every few seconds anyway
            await until(lambda: is_gone(served, "dropped"))
            assert await topics_shown(served) == {"kept"}

    with open_store(f"sqlite:///{tmp_path / 'timeline.db'}") as store:
        asyncio.run(play(store))


async def is_gone(served: Served, topic: str) -> bool:
    """Commands under way at the delete may be counted after it, until the topics are listed again."""
    await served.http.get("/v1/topics")
    return topic not in await topics_shown(served)


def test_topic_dropped_during_a_count_hides_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class DroppingStore:
        """The first topic is gone when it is counted."""

        def __init__(self, store: Any) -> None:
            self._store = store

        def __getattr__(self, name: str) -> Any:
            return getattr(self._store, name)

        def count(self, uid: int, *args: Any, **named: Any) -> Any:
            if self._store.get_topic(uid).name == "first":
                self._store.delete_topic(uid, now_ms=named["now_ms"])
            return self._store.count(uid, *args, **named)

    async def play(store: Any) -> None:
        async with serving(store) as served:
            for name in ("first", "second"):
                await served.create_topic(name)
            found = await scrape(served.http)
            assert [
                each.labels["topic"]
                for each in found
                if each.name == "topic_available_messages_count"
            ] == ["second"]

    with open_store(f"sqlite:///{tmp_path / 'timeline.db'}") as store:
        asyncio.run(play(DroppingStore(store)))
    assert [each for each in caplog.records if each.name != audit.logger.name] == []


def test_refusal_counts_survive_a_drop_of_their_name() -> None:
    metrics = BrokerMetrics()
    metrics.add("broker_refused_count", ("grpc", "busy"))
    assert metrics.topics == set()
    metrics.forget_topic("busy")
    assert ("broker_refused_count", ("grpc", "busy"), 1) in metrics.snapshot().samples
