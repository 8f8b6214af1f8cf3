"""`chronoline timers list`, `show` and `nodes`."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from chronoline.cli.client.options import AsJson
from chronoline.cli.rendering import print_table, printable
from chronoline.cli.timers.asking import NodeAway, TimersNode, TimerUnknown, asks_a_node
from chronoline.core.errors import InvalidInput
from chronoline.timers.ids import no_timer, parse_name

Limit = Annotated[int, typer.Option(min=1, help="Show so many at most.")]


@asks_a_node
def list_timers(node: TimersNode, limit: Limit = 100, as_json: AsJson = False) -> None:
    """List the timers that wait on a node: those that it pops, and those that it stands in for.

    chronoline timers list
    chronoline timers list --limit 1000 --json

    The newest come first.
    """
    found: dict[str, dict[str, Any]] = {}
    cursor: int | None = 0
    while cursor is not None and len(found) < limit:
        page = node.ask(f"/v1/timers?cursor={cursor}")
        found |= {each["id"]: each for each in page["timers"]}
        cursor = page["cursor"]
    more = cursor is not None or len(found) > limit
    timers = list(found.values())[:limit]
    if as_json:
        print(json.dumps(timers, indent=2))
        return
    if not timers:
        print("No timer waits here.")
        return
    print_table(_timers(timers))
    if more:
        print(f"There are more than {limit}; --limit shows them.")


def _timers(timers: list[dict[str, Any]]) -> Table:
    table = Table(Column("timer", overflow="fold"), "level", "due in", "popped")
    table.add_column("calls", overflow="fold")
    for each in timers:
        table.add_row(
            each["id"],
            "first" if each["level"] == 0 else f"backup {each['level']}",
            f"{each['due_in_ms'] / 1000:.1f} s",
            f"{each['popped']} of {each['pops']}",
            Text(printable(each["uri"])),
        )
    return table


@asks_a_node
def show(
    node: TimersNode,
    timer: Annotated[str, typer.Argument(help="Its id, as Location had it.")],
) -> None:
    """Show what a node knows of a timer.

    chronoline timers show 00000000000004d2a0000000c0000001

    The nodes that keep it are asked one after the other, until one knows it.
    """
    name = timer.rpartition("/")[2]
    if parse_name(name) is None:
        raise InvalidInput(no_timer(name))
    print(json.dumps(_find(node, name), indent=2))


def _find(node: TimersNode, name: str) -> Any:
    addresses = [each["address"] for each in node.ask("/v1/nodes")["nodes"]]
    away: list[str] = []
    for address in dict.fromkeys([node.address, *addresses]):
        try:
            return node.at(address).ask(f"/v1/timers/{name}")
        except TimerUnknown:
            continue
        except NodeAway:
            away.append(address)
    unasked = f"; {', '.join(away)} cannot be reached" if away else ""
    raise TimerUnknown(f"no node knows the timer {name[:100]!r}{unasked}")


@asks_a_node
def nodes(node: TimersNode, as_json: AsJson = False) -> None:
    """Show the cluster as a node sees it: who stays, joins and leaves, and who is away.

    chronoline timers nodes
    """
    seen = node.ask("/v1/nodes")
    if as_json:
        print(json.dumps(seen, indent=2))
        return
    console = Console()
    console.print(f"{seen['timers']:,} timers wait here. The list of nodes is {seen['view']}.")
    for tag, each in sorted(seen["tag_statistics"].items()):
        console.print(Text(f"  {printable(tag)}: {_figures(each)}"))
    if unreadable := seen.get("unreadable_records"):
        console.print(f"{unreadable:,} records of the journal cannot be read; the log names them.")
    table = Table("node", "in the list", "state", Column("to be told", justify="right"))
    for each in seen["nodes"]:
        table.add_row(each["address"], each["membership"], _state(each), f"{each['behind']:,}")
    print_table(table)


def _figures(tagged: dict[str, Any]) -> str:
    return (
        f"{tagged['count']:,} (in five minutes {tagged['low']:,} to {tagged['high']:,}, average "
        f"{tagged['average']:,.1f}, variance {tagged['variance']:,.1f})"
    )


def _state(node: dict[str, Any]) -> str:
    if node["is_here"]:
        return "this one"
    if node["has_left"]:
        return "stopped"
    return "away" if node["is_away"] else "there"
