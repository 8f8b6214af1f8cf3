"""`chronoline status`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from chronoline.broker.degradation import NOTICES, OF_OTHERS
from chronoline.cli.broker import Broker, asks_a_broker
from chronoline.cli.options import AsJson
from chronoline.cli.output import print_table
from chronoline.cli.topic_changes import pause_json, paused_since
from chronoline.cli.topics import counts_json, topic_table
from chronoline.client.topics import Topic
from chronoline.runtime.terminal_text import printable

if TYPE_CHECKING:
    from chronoline.client.aio import Forecast
    from chronoline.wire.v1 import chronoline_pb2 as pb

Counted = list[tuple[Topic, "Forecast"]]


@asks_a_broker
def status(broker: Broker, as_json: AsJson = False) -> None:
    """Show the broker, its problems, its consumers, and the messages of each topic.

    chronoline status

    If the broker is not ready, it prints the reason, and the exit code is 1.
    """
    info = broker.info()
    topics: Counted = []
    if not info.store_problem:
        with broker.client() as client:
            topics = [(topic, client.count(topic.name)) for topic in client.topics()]
    if as_json:
        print(json.dumps(_as_json(info, topics), indent=2))
    else:
        _print(info, topics)
    if info.store_problem or any(each.type not in NOTICES for each in info.degradations):
        raise SystemExit(1)


def _as_json(info: pb.Cluster, topics: Counted) -> dict[str, Any]:
    return {
        "brokers": [
            {
                "id": each.id,
                "version": each.version,
                "roles": list(each.roles),
                "address": each.address,
            }
            for each in info.brokers
        ],
        "degradations": [{"type": each.type, "reason": each.reason} for each in info.degradations],
        "store_problem": info.store_problem or None,
        "subscribers": [
            {
                "consumer": each.consumer,
                "topic": each.topic,
                "start_bucket": each.start_bucket,
                "stop_bucket": each.stop_bucket,
                "busy": each.busy,
            }
            for each in info.subscribers
        ],
        "topics": [
            {"topic": topic.name, "paused": pause_json(topic.pause), **counts_json(count)}
            for topic, count in topics
        ],
    }


def _print(info: pb.Cluster, topics: Counted) -> None:
    console = Console()
    for each in info.brokers:
        version = f", version {each.version}" if each.version else ""
        line = f"broker {each.id}{version}, {', '.join(each.roles)}, at {each.address}"
        console.print(Text(printable(line)), soft_wrap=True)
    for reason in _reasons(info):
        console.print(Text(printable(reason), style="red"), soft_wrap=True)
    if info.store_problem:
        return
    console.print("The store answers.")
    if info.subscribers:
        print_table(_subscribers(info))
    else:
        console.print("Nobody consumes.")
    for topic, _ in topics:
        if topic.pause is not None:
            words = f"Topic {topic.name!r} {paused_since(topic.pause)}"
            console.print(Text(printable(words), style="yellow"), soft_wrap=True)
    if topics:
        print_table(topic_table(topics))
    else:
        console.print("There are no topics yet: `chronoline topic create NAME` makes one.")


def _reasons(info: pb.Cluster) -> list[str]:
    """Why the broker is not ready; a broker of an earlier version reports only its store."""
    away = [f"The store does not answer: {info.store_problem}"] if info.store_problem else []
    others = [each for each in info.degradations if not (away and each.type == "storage")]
    return away + [f"{_kind_of(other)} ({other.type}): {other.reason}" for other in others]


def _kind_of(degradation: pb.Degradation) -> str:
    if degradation.type in OF_OTHERS:
        return "Noticed"
    return "Degraded" if degradation.type in NOTICES else "Not ready"


def _subscribers(info: pb.Cluster) -> Table:
    table = Table(Column("consumer", overflow="fold"), Column("topic", overflow="fold"))
    table.add_column("buckets", overflow="fold")
    for each in sorted(info.subscribers, key=lambda one: (one.topic, one.start_bucket)):
        table.add_row(Text(printable(each.consumer)), Text(printable(each.topic)), _buckets(each))
    return table


def _buckets(subscriber: pb.Subscriber) -> str:
    if subscriber.busy:
        return "none: it is busy"
    if subscriber.start_bucket == subscriber.stop_bucket:
        return "none yet, or there are more consumers than buckets"
    return f"{subscriber.start_bucket} to {subscriber.stop_bucket - 1}"
