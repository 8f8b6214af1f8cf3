"""The metrics have their names and labels, and the tags of the settings."""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.samples import Sample

from chronoline.broker.metrics import BrokerMetrics
from chronoline.coordination.contract import Coordination
from chronoline.coordination.factory import open_coordination
from chronoline.node.settings import NodeSettings
from chronoline.stores.contract import Store
from chronoline.stores.factory import open_store
from chronoline.testing.etcd import EtcdServer
from chronoline.testing.postgres import PostgresServer
from tests.broker.http.served import Served, serving
from tests.broker.http.test_admin_routes import Away
from tests.broker.metric_samples import scrape
from tests.deadline import until

_TABLE = """
Topic_commands_count {op=create|delete topic=name cluster=name}
Topic_commands_errors {op=create|delete topic=name cluster=name}
topic_Messages_count {op=create|delete|released topic=name cluster=name}
topic_messages_errors {op=create|delete|released topic=name cluster=name}
topic_Available_messages_count {topic=name cluster=name} //for consumer auto scaling
topic_Waiting_messages_count_bucket TODO histogram for the next 2-4 TimeSlices/Shard
topic_Leases_count {op=create|extend topic=name cluster=name}
topic_Leases_errors  {op=create|extend topic=name cluster=name}
topic_Leases_body_total_bytes {topic=name cluster=name} //detect large messages
broker_commands_errors {command=ALL_commands_list  topic=name cluster=name}
broker_commands_count {command=ALL_commands_list  topic=name cluster=name}
broker_Active_timedrifts_count {target=storage|sync|broker|consumer|producer topic=name cluster=name}
broker_Active_timedrifts_seconds_avg  {target=storage|sync|broker|consumer|producer topic=name cluster=name}
broker_Degradation_state {type=TODO topic=name cluster=name} //gauge
storage_queries_count {op=create|update|delete type=range|lookup filter=all|available|waiting|processing topic=name cluster=name}
storage_queries_errors  {op=create|update|delete type=range|lookup filter=available|waiting|processing topic=name cluster=name}
storage_query_duration_ms {op=create|update|delete type=range|lookup filter=available|waiting|processing topic=name cluster=name}
Network_broker_bytes_total {direction=in|out partner=sync|storage|producer|consumer  topic=name cluster=name}
Network_broker_latency_ms  {partner=sync|storage|producer|consumer  topic=name cluster=name}
network_broker_tcp_connections_total
Networkbroker_active_channels_total {type=consumer|producer topic=name cluster=name} (gauge)
Networkbroker_active_channels_errors {type=consumer|producer topic=name cluster=name}
"""  # noqa: E501 - a table
_LINE = re.compile(r"^(\w+_\w+)(?:\s*\{([^}]*)\}|\s+TODO histogram.*|$)")
_OURS = {"topic_waiting_messages_count_bucket": {"topic", "le", "cluster"}}
"""Labels that the table leaves open."""
_EVERYWHERE = {"cluster": "eu-1", "stage": "test"}
_COUNTED = ("topic_commands_count", "topic_messages_count", "topic_leases_count")


@dataclass(frozen=True, slots=True)
class Named:
    """A metric of the table: by label, its values."""

    labels: dict[str, tuple[str, ...]]


def _parse(text: str) -> dict[str, Named]:
    found = {}
    for line in text.splitlines():
        if match := _LINE.match(line.strip()):
            name, labels = match.groups()
            pairs = (each.split("=") for each in (labels or "").split())
            found[name.lower()] = Named({label: tuple(of.split("|")) for label, of in pairs})
    return found


async def _do_everything(served: Served, away: Any) -> list[Sample]:
    """Use every metric once; returns the samples."""
    async with served.client() as client:
        leases = client.consume("seen")
        for topic in ("seen", "polled", "dropped"):
            await served.create_topic(topic)
        assert (await served.http.post("/v1/topics", json={"name": "seen"})).status_code == 409
        await served.http.delete("/v1/topics/dropped")
        for each in ("a", "b"):
            await served.put(each, "polled")
        await served.put("later", "polled", **{"in": "1h"})
        later = {"in": "2h"}
        moved = await served.http.post("/v1/topics/polled/messages/later/reschedule", json=later)
        assert moved.status_code == 200
        await served.http.put("/v1/topics/polled/messages/a", json={})  # it exists
        await _settle_all(served)
        await client.send("seen", b"x")
        await (await anext(leases)).ack()
        away.away = True
        await served.http.put("/v1/topics/polled/messages/c", json={})
        away.away = False
        await until(lambda: _is_measured(served))
        samples = await scrape(served.http)
        await leases.aclose()
    return samples


def _is_measured(served: Served) -> bool:
    """Some round trips are known."""
    assert served.node.grpc is not None
    return any(each.measured.latency_us for each in served.node.grpc.sessions)


async def _settle_all(served: Served) -> None:
    came = await served.receive("polled", consumer="c", count=2)
    first, *_ = came["messages"]
    lease = {"id": first["id"], "version": first["version"]}
    await served.settle("extend", "polled", consumer="c", leases=[{**lease, "version": 1}])
    (done,) = await served.settle("extend", "polled", consumer="c", leases=[lease])
    lease["version"] = done["version"]
    back = {**lease, "in": "1m"}
    await served.settle("release", "polled", consumer="c", leases=[back])
    await served.settle("release", "polled", consumer="c", leases=[back])  # not ours any more


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> list[Sample]:
    """The metrics of a node after one operation of each kind."""

    async def play() -> list[Sample]:
        folder = tmp_path_factory.mktemp("node")
        flags = {"cluster": "eu-1", "tags.stage": "test", "data": str(folder)}
        settings = NodeSettings.load(environ={}, flags=flags)
        with open_store(settings.store) as store:
            away: Any = Away(store)
            metrics = BrokerMetrics(settings.cluster, settings.tags)
            async with serving(away, metrics=metrics) as served:
                return await _do_everything(served, away)

    return asyncio.run(play())


def test_every_metric_is_shown_with_its_labels(shown: list[Sample]) -> None:
    labels: defaultdict[str, set[frozenset[str]]] = defaultdict(set)
    for each in shown:
        labels[each.name].add(frozenset(each.labels))
    for name, named in _parse(_TABLE).items():
        wanted = _OURS.get(name, set(named.labels)) | set(_EVERYWHERE)
        assert labels[name] == {frozenset(wanted)}, name


def test_labels_have_all_values_of_the_table(shown: list[Sample]) -> None:
    table = _parse(_TABLE)
    for name, label in (
        *((each, "op") for each in _COUNTED),
        *(("storage_queries_count", each) for each in ("op", "type", "filter")),
        ("network_broker_bytes_total", "direction"),
        ("networkbroker_active_channels_total", "type"),
    ):
        values = {each.labels[label] for each in shown if each.name == name}
        assert values >= set(table[name].labels[label]), (name, label)


def test_etcd_and_the_server_of_the_store_are_partners(
    etcd_server: EtcdServer, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    body = bytes(200_000)

    async def play() -> tuple[list[Sample], list[Sample]]:
        url = postgres_server.create_database("partners")
        coordination = open_coordination(etcd_server.url("partners"))
        with open_store(url) as store:
            async with serving(store, coordination=coordination) as served:
                await served.create_topic("t")
                await until(lambda: _latency_known(coordination, store))
                before = await scrape(served.http)
                async with served.client() as client:
                    await client.send("t", body)
                return before, await scrape(served.http)

    before, after = (
        {
            (sample.name, sample.labels["partner"], sample.labels.get("direction")): sample.value
            for sample in samples
            if sample.name.startswith("network_broker_") and "partner" in sample.labels
        }
        for samples in asyncio.run(play())
    )
    for partner in ("sync", "storage"):
        assert after["network_broker_latency_ms", partner, None] > 0
        for direction in ("in", "out"):
            assert before["network_broker_bytes_total", partner, direction] > 0
    written = ("network_broker_bytes_total", "storage", "out")
    assert after[written] - before[written] >= len(body)


def _latency_known(coordination: Coordination, store: Store) -> bool:
    """Whether the ways to etcd and to the store's server were measured."""
    partners = (coordination.traffic, store.traffic)
    return all(partner is not None and partner.latency_ms is not None for partner in partners)


def test_node_without_partners_shows_none(shown: list[Sample]) -> None:
    partners = {each.labels["partner"] for each in shown if "partner" in each.labels}
    assert partners == {"producer", "consumer"}


def test_queries_and_messages_are_counted_by_topic(shown: list[Sample]) -> None:
    for name in ("storage_queries_count", "storage_queries_errors", *_COUNTED):
        topics = {each.labels["topic"] for each in shown if each.name == name}
        assert "polled" in topics, name


def test_every_command_is_counted(shown: list[Sample]) -> None:
    commands = {each.labels["command"] for each in shown if each.name == "broker_commands_count"}
    assert commands >= {"hello", "ping", "subscribe", "get_topic", "create_topic", "drop_topic"}
    assert commands >= {"create", "reschedule", "release", "extend", "ack", "receive"}


def test_each_topic_has_a_lateness_histogram(shown: list[Sample]) -> None:
    buckets = [each for each in shown if each.name == "chronoline_lateness_seconds_bucket"]
    for topic, deliveries in (("seen", 1), ("polled", 2)):
        of_topic = [each for each in buckets if each.labels["topic"] == topic]
        counts = [each.value for each in of_topic]
        assert counts == sorted(counts)
        assert (of_topic[-1].labels["le"], counts[-1]) == ("+Inf", deliveries)
        (count,) = _of(shown, "chronoline_lateness_seconds_count", topic)
        (sum_s,) = _of(shown, "chronoline_lateness_seconds_sum", topic)
        assert count == deliveries
        assert sum_s >= 0


def _of(shown: list[Sample], name: str, topic: str) -> list[float]:
    return [each.value for each in shown if (each.name, each.labels.get("topic")) == (name, topic)]


def test_every_metric_has_cluster_and_tags(shown: list[Sample]) -> None:
    assert shown
    for each in shown:
        assert {name: each.labels.get(name) for name in _EVERYWHERE} == _EVERYWHERE, each.name
