"""`chronoline pipe status`."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from chronoline.cli.pipe.options import (
    Config,
    InputPlace,
    Name,
    OutputPlace,
    Setting,
    StoreUrl,
    load,
)
from chronoline.cli.pipe.showing import bound, place_line
from chronoline.clock import SystemClock
from chronoline.pipe.status import MOST_DEAD_LETTERS, PipeStatus, read_status
from chronoline.stores.opening import open_store

_SHOWN = 8
"""So much of a node's id tells it from the others; --json has all of it."""


def status(
    config: Config = None,
    *,
    name: Name = None,
    store: StoreUrl = None,
    input_place: InputPlace = None,
    output_place: OutputPlace = None,
    setting: Setting = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Show what waits, what was fired, how late, and who works on it.

    chronoline pipe status --config pipe.toml
    """
    settings = load(
        config,
        setting,
        ("output",),
        name=name,
        store=store,
        input=input_place,
        output=output_place,
    )
    with open_store(settings.store) as opened:
        found = read_status(settings, opened, SystemClock().now_ms())
    if as_json:
        print(json.dumps(_as_json(found)))
        return
    console = Console()
    console.print(f"[bold]{settings.name}[/]: {place_line(settings)}", highlight=False)
    console.print(_messages(found))
    console.print(_nodes(found))
    if found.input_problem:
        console.print(f"[yellow]The lag is not known: {found.input_problem}[/]")


def _as_json(found: PipeStatus) -> dict[str, Any]:
    total = found.total
    return {
        "pipe": found.name,
        "waiting": found.on_timeline.waiting,
        "ready": found.on_timeline.processing,
        "overdue": found.on_timeline.available,
        "dead_letters": found.dead_letters,
        "records": asdict(found.tally),
        "lag": found.lag,
        "fired": total.fired,
        "redelivered": total.redelivered,
        "windows": {"served": total.served, "skipped": total.skipped},
        "lateness_ms": {
            name: total.lateness.percentile_ms(part)
            for name, part in (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999))
        },
        "partitions": [
            {
                "partition": each.account.partition,
                "position": each.account.position,
                "holder": each.account.holder,
                "lag": each.lag,
            }
            for each in found.partitions
        ],
        "nodes": [
            {
                "node": node.name,
                "alive": node.alive,
                "stopping": node.stopping,
                **asdict(node.counters),
            }
            for node in found.nodes
        ],
    }


def _messages(found: PipeStatus) -> Table:
    tally, lag = found.tally, found.lag
    more = "+" if found.dead_letters == MOST_DEAD_LETTERS else ""
    table = Table(show_header=False, box=None)
    rows = [
        ("waiting", f"{found.on_timeline.waiting:,}"),
        ("ready", f"{found.on_timeline.processing:,}", "reserved by a lane"),
        ("overdue", f"{found.on_timeline.available:,}", "due, and nobody has them"),
        ("dead letters", f"{found.dead_letters:,}{more}", "kept in the store"),
        ("taken in", f"{tally.accepted:,}", "records that became messages"),
        ("ignored", f"{tally.ignored:,}", "their ids were waiting already"),
        ("rejected", f"{tally.rejected:,}", "malformed: they went to the dead letters"),
        ("cancelled", f"{tally.cancelled:,}"),
        ("rescheduled", f"{tally.rescheduled:,}"),
        ("missed", f"{tally.missed:,}", "asked for a message that was not there"),
        ("input lag", "?" if lag is None else f"{lag:,}", "records that wait to be taken in"),
    ]
    for row in rows:
        table.add_row(*row)
    return table


def _nodes(found: PipeStatus) -> Table:
    table = Table(title="Processes, since their start")
    for name in (
        "node",
        "state",
        "fired",
        "redelivered",
        "late p50",
        "p99",
        "p99.9",
        "windows",
        "skipped",
    ):
        table.add_column(name, overflow="fold")
    for node in found.nodes:
        counted = node.counters
        state = "stopping" if node.stopping else "alive" if node.alive else "dead"
        late = (bound(counted.lateness, part) for part in (0.5, 0.99, 0.999))
        table.add_row(
            node.name[:_SHOWN],
            state,
            f"{counted.fired:,}",
            f"{counted.redelivered:,}",
            *late,
            f"{counted.served:,}",
            f"{counted.skipped:,}",
        )
    return table
