from __future__ import annotations

import pytest
from rich.console import Console

from chronoline.cli.cluster import served_table
from chronoline.client import Client
from chronoline.client.cluster import Cluster
from chronoline.core.ranges import BucketRange
from chronoline.wire.v1 import chronoline_pb2 as pb
from tests.cli.command import Command

_BROKERS = [
    pb.Broker(
        id="b1",
        version="1",
        roles=["overseer", "carrier"],
        address="a:7400",
        rack="r1",
        health="healthy",
        topics=2,
        consumers=9,
        messages_per_s=1_200,
        load_percent=40,
        clock_ahead_us=0,
    ),
    pb.Broker(id="b2", address="b:7400", health="degraded", problems=["clock\x1b", "storage"]),
    pb.Broker(
        id="b3",
        address="c:7400",
        health="inactive",
        clock_ahead_us=-2_500_000,
        notices=["b4\x1b left"],
    ),
]


def test_broker_that_is_alone_is_a_cluster(address: str, command: Command, client: Client) -> None:
    found = command.json("cluster", "--address", f"{address}, {address}")
    (broker,) = found["brokers"]
    assert (broker["address"], broker["health"], broker["problems"]) == (address, "healthy", [])
    assert found["answered_by"] == broker["name"]
    assert found["coordination_problem"] == ""
    assert broker["name"] in command("cluster")
    assert client.cluster().brokers[0].name == broker["name"]


def test_brokers_are_shown_with_health_load_and_clock(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire = pb.Cluster(brokers=_BROKERS, coordination_problem="it does not answer")
    monkeypatch.setattr(Client, "cluster", lambda _: Cluster.from_wire(wire))
    lines = command("cluster").splitlines()
    rows = [[cell.strip() for cell in line.strip("│").split("│")] for line in lines]
    assert ["b1", "healthy", "1", "overseer, carrier", "a:7400", "r1"] in rows
    assert ["b1", "2", "9", "1,200", "40 %", "+0 ms"] in rows
    assert ["b2", "degraded", "–", "", "b:7400", "–"] in rows
    assert ["b3", "inactive", "–", "", "c:7400", "–"] in rows
    assert ["b3", "0", "0", "0", "0 %", "-2,500 ms"] in rows
    assert lines[-3:] == [
        "b2 is degraded: clock�; storage",
        "b3 noticed: b4� left",
        "it does not answer",
    ]


def test_piped_output_has_a_hundred_columns_at_most(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = pb.Broker(
        id="broker-of-the-first-rack",
        version="10.20.30",
        roles=["overseer", "carrier"],
        address="broker-1.first-rack.example.com:7400",
        rack="first-rack",
        health="degraded",
        problems=["a reason of many words " * 10],
        notices=["a notice of many words " * 10],
        topics=100_000,
        consumers=100_000,
        messages_per_s=1_000_000,
        load_percent=100,
        clock_ahead_us=-2_500_000_000,
    )
    wire = pb.Cluster(brokers=[large], coordination_problem="it does not answer " * 10)
    monkeypatch.setattr(Client, "cluster", lambda _: Cluster.from_wire(wire))
    assert max(map(len, command("cluster").splitlines())) <= 100


def test_topic_shows_who_serves_its_buckets(command: Command, client: Client, topic: str) -> None:
    leases = client.consume(topic, consumer="me")
    client.send(topic)
    next(iter(leases)).ack()
    (served,) = command.json("topic", "show", topic)["subscribers"]
    assert (served["consumer"], served["own"]) == ("me", [[0, 64]])
    assert "0 to 63" in command("topic", "show", topic)


def test_backups_and_busy_consumers_are_shown() -> None:
    ranges = [pb.Buckets(start=0, stop=3), pb.Buckets(start=9, stop=10)]
    wire = pb.Cluster(
        subscribers=[
            pb.Subscriber(consumer="c", topic_uid=7, broker="b1", own=ranges[:1], backups=ranges),
            pb.Subscriber(consumer="d", topic_uid=7, broker="b2", busy=True),
            pb.Subscriber(consumer="e", topic_uid=8),
        ]
    )
    cluster = Cluster.from_wire(wire)
    assert cluster.subscribers[0].backups == (BucketRange(0, 3), BucketRange(9, 10))
    table = served_table(cluster, 7)
    assert table is not None
    console = Console(width=200)
    with console.capture() as capture:
        console.print(table)
    shown = capture.get()
    assert "0 to 2, 9 to 9" in shown
    assert "none: it is busy" in shown
    assert " e " not in shown
    assert served_table(cluster, 9) is None


def test_each_of_several_addresses_is_checked(command: Command) -> None:
    assert "'nowhere' is no address" in command.refusal("cluster", "--address", "a:1,nowhere")
