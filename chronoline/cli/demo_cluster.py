"""`chronoline demo --cluster`: three brokers under load, one of them killed, and the fate of all messages."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from statistics import median

import typer
from rich.console import Console
from rich.table import Table

from chronoline.core.errors import ChronolineError
from chronoline.core.lateness import Lateness
from chronoline.testing.cluster import BrokerProcess, LocalCluster
from chronoline.testing.cluster_load import ClusterDelivery, ClusterLoad

_CONSUMERS = 12
"""Four for each broker: a broker is filled to four before the next one gets consumers of a topic."""
_PER_S = 100
_BEFORE_S = 4.0
_AFTER_S = 6.0
_PATIENCE_S = 60.0
"""The wait for consumers and for the last message."""


def show_cluster() -> None:
    """Three brokers, then two, while messages are sent and delivered all the time."""
    console = Console()
    with tempfile.TemporaryDirectory(prefix="chronoline-demo-") as folder:
        cluster = LocalCluster(Path(folder))
        console.print("Starting etcd, PostgreSQL and three brokers on this machine …")
        with cluster:
            asyncio.run(_play(console, cluster))


async def _play(console: Console, cluster: LocalCluster) -> None:
    names = [f"consumer-{number}" for number in range(1, _CONSUMERS + 1)]
    load = ClusterLoad(cluster.addresses, topic="demo", consumers=names, per_s=_PER_S)
    async with load:
        if not await load.until(lambda: load.served == set(names), _PATIENCE_S):
            raise ChronolineError(f"some consumers got no message within {_PATIENCE_S:g} s")
        began_s = time.monotonic()
        victim, orphans = await asyncio.to_thread(_most_used, cluster.brokers)
        console.print(
            f"{_PER_S} messages a second flow to {_CONSUMERS} consumers: "
            f"{await asyncio.to_thread(_shown, cluster.brokers)}."
        )
        await asyncio.sleep(_BEFORE_S)  # the time before, to compare with
        killed_s = time.monotonic()
        await asyncio.to_thread(victim.kill)
        console.print(
            f"Killed {victim.name} (kill -9), with {len(orphans)} consumers. They go to the others …"
        )
        await asyncio.sleep(_AFTER_S)  # the time after
        await load.until(lambda: load.were_served(orphans, killed_s), _PATIENCE_S)
        await load.end_sending()
        console.print(f"Sent {len(load.due_ms):,} messages; waiting for the last of them …")
        await load.until(lambda: load.is_complete, _PATIENCE_S)
    gaps_s = load.gaps_s(orphans, killed_s)
    _report(console, load, began_s=began_s, killed_s=killed_s, gaps_s=gaps_s)
    if len(gaps_s) < len(orphans):
        console.print(f"[bold red]{len(orphans) - len(gaps_s)} consumers got nothing more.[/]")
        raise typer.Exit(1)


def _most_used(brokers: Iterable[BrokerProcess]) -> tuple[BrokerProcess, set[str]]:
    """The broker with the most consumers, and these."""
    used = [(broker, set(broker.consumers())) for broker in brokers]
    return max(used, key=lambda each: len(each[1]))


def _shown(brokers: Iterable[BrokerProcess]) -> str:
    return ", ".join(f"{len(each.consumers())} at {each.name}" for each in brokers)


def _report(
    console: Console,
    load: ClusterLoad,
    *,
    began_s: float,
    killed_s: float,
    gaps_s: dict[str, float],
) -> None:
    tally = load.tally()
    before = [each for each in load.deliveries if began_s <= each.at_s < killed_s]
    after = [each for each in load.deliveries if each.at_s >= killed_s]
    table = Table("messages", "", title="3 brokers → 2, under load", show_header=False)
    table.add_row("sent", f"{tally.sent:,}")
    table.add_row("delivered", f"{tally.delivered:,}")
    table.add_row("lost", str(tally.lost))
    table.add_row("double: delivered after its ack", str(tally.double))
    table.add_row("again: the ack was lost with the broker", str(tally.again))
    table.add_row("early", str(tally.early))
    table.add_row("late, before the kill", _late(before))
    table.add_row("late, since the kill", _late(after))
    if gaps_s:
        table.add_row(
            "gap of the killed broker's consumers",
            f"p50 {median(gaps_s.values()):.1f} s, max {max(gaps_s.values()):.1f} s",
        )
    errors = ", ".join(f"{number} {name}" for name, number in load.troubles.items())
    table.add_row("errors that applications saw", errors or "0")
    console.print(table)
    if tally.lost or tally.early or tally.double:
        console.print("[bold red]Something is wrong: see the table.[/]")
        raise typer.Exit(1)


def _late(deliveries: list[ClusterDelivery]) -> str:
    if not deliveries:
        return "none came"
    late = Lateness.of([each.late_ms for each in deliveries])
    return f"p50 {late.p50_ms:,.0f} ms, p99 {late.p99_ms:,.0f} ms, max {late.max_ms:,.0f} ms"
