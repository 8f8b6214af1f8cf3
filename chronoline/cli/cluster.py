"""`chronoline cluster`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from chronoline.cli.broker import Broker, asks_a_broker
from chronoline.cli.options import AsJson
from chronoline.cli.output import print_table
from chronoline.runtime.terminal_text import printable

if TYPE_CHECKING:
    from chronoline.client.cluster import Cluster, ClusterBroker, Subscriber
    from chronoline.core.ranges import BucketRange

_MOST_COLUMNS = 100
"""Of the output without a terminal, such as in a log or a mail."""
_STYLES = {"healthy": "green", "degraded": "red", "inactive": "dim"}


@asks_a_broker
def cluster(broker: Broker, as_json: AsJson = False) -> None:
    """Show the brokers of the cluster: health, versions, roles, load and clocks.

    chronoline cluster
    chronoline cluster --address a:7400,b:7400 --json
    """
    with broker.client() as client:
        found = client.cluster()
    if as_json:
        print(json.dumps(asdict(found), indent=2))
        return
    print_table(_brokers(found.brokers), most_columns=_MOST_COLUMNS)
    print_table(_loads(found.brokers), most_columns=_MOST_COLUMNS)
    console = Console(markup=False, emoji=False, highlight=False)
    if not console.is_terminal:
        console.width = _MOST_COLUMNS
    for each in found.brokers:
        if each.problems:
            words = f"{each.name} is {each.health}: {'; '.join(each.problems)}"
            console.print(Text(printable(words), style=_STYLES.get(each.health, "")))
        for notice in each.notices:
            console.print(Text(printable(f"{each.name} noticed: {notice}"), style="yellow"))
    if found.coordination_problem:
        console.print(Text(printable(found.coordination_problem), style="red"))


def _brokers(brokers: Iterable[ClusterBroker]) -> Table:
    table = _table("broker", "health", "version", "roles", "address", "rack")
    for each in brokers:
        roles = ", ".join(each.roles)
        texts = (each.version or "–", roles, each.address, each.rack or "–")
        table.add_row(
            Text(printable(each.name)),
            Text(printable(each.health), style=_STYLES.get(each.health, "")),
            *(Text(printable(text)) for text in texts),
        )
    return table


def _loads(brokers: Iterable[ClusterBroker]) -> Table:
    table = _table("broker")
    for name in ("topics", "consumers", "messages/s", "load", "clock"):
        table.add_column(name, justify="right", overflow="fold")
    for broker in brokers:
        clock = "–" if broker.clock_ahead_ms is None else f"{broker.clock_ahead_ms:+,.0f} ms"
        table.add_row(
            Text(printable(broker.name)),
            *(f"{figure:,}" for figure in (broker.topics, broker.consumers, broker.messages_per_s)),
            f"{broker.load_percent} %",
            clock,
        )
    return table


def _table(*names: str) -> Table:
    return Table(*(Column(name, overflow="fold") for name in names))


def served_table(found: Cluster, topic_uid: int) -> Table | None:
    """The consumers of a topic and their buckets; None if there are none."""
    subscribers = [each for each in found.subscribers if each.topic_uid == topic_uid]
    if not subscribers:
        return None
    table = Table(Column("consumer", overflow="fold"), Column("broker", overflow="fold"))
    for name in ("rack", "buckets", "backup of"):
        table.add_column(name, overflow="fold")
    for each in sorted(subscribers, key=lambda one: (one.own, one.consumer)):
        texts = (each.consumer, each.broker, each.rack or "–", _own(each), _shown(each.backups))
        table.add_row(*(Text(printable(text)) for text in texts))
    return table


def _own(subscriber: Subscriber) -> str:
    return "none: it is busy" if subscriber.busy else _shown(subscriber.own)


def _shown(ranges: Iterable[BucketRange]) -> str:
    return ", ".join(f"{each.start} to {each.stop - 1}" for each in ranges) or "–"
