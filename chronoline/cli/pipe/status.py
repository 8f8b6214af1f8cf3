"""`chronoline pipe status`."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from chronoline.cli.pipe.opening import open_known_store, timeline_of
from chronoline.cli.pipe.options import (
    Config,
    InputPlace,
    Name,
    OutputPlace,
    Setting,
    StoreUrl,
    load,
)
from chronoline.cli.pipe.showing import bound, heading
from chronoline.pipe.counters import Counters
from chronoline.pipe.status import MOST_DEAD_LETTERS, PipeStatus, read_status
from chronoline.runtime.clock import SystemClock

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

    It asks the store and the input, whether or not a process runs. For a
    pipe that has never run it says so, and ends with exit code 1.
    """
    settings = load(
        config,
        setting,
        optional=("output", "dead_letters"),
        name=name,
        store=store,
        input=input_place,
        output=output_place,
    )
    with open_known_store(settings) as opened:
        timeline_of(settings, opened)
        found = read_status(settings, opened, SystemClock().now_ms())
    if as_json:
        print(json.dumps(_as_json(found)))
        return
    console = Console()
    console.print(heading(settings), soft_wrap=True)
    console.print(_messages(found))
    console.print(_processes(found))
    if found.input_problem:
        words = Text(f"The lag is not known: {found.input_problem}", style="yellow")
        console.print(words, soft_wrap=True)  # with a command to copy, perhaps


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
        (
            "dead letters",
            f"{found.dead_letters:,}{more}",
            "kept in the store: see `chronoline pipe dead`",
        ),
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


def _processes(found: PipeStatus) -> Table | str:
    """In lines instead of many columns, which a narrow terminal would fold within words."""
    if not found.nodes:
        return "No process of it runs."
    table = Table(
        title="Processes, and what they counted since their start",
        title_justify="left",
        show_header=False,
        box=None,
    )
    for node in found.nodes:
        state = "stopping" if node.stopping else "alive" if node.alive else "dead"
        table.add_row(node.name[:_SHOWN], state, _counted(node.counters))
    return table


def _counted(counters: Counters) -> str:
    late = {
        name: bound(counters.lateness, part)
        for name, part in (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999))
    }
    return (
        f"fired {counters.fired:,}, redelivered {counters.redelivered:,}; "
        f"windows {counters.served:,}, skipped {counters.skipped:,}\n"
        f"late {', '.join(f'{name} {words}' for name, words in late.items())}"
    )
