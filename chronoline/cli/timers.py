"""`chronoline timers`: inspects, grows and shrinks a cluster of timers, and receives its callbacks."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from chronoline.cli.options import AsJson
from chronoline.cli.output import print_table
from chronoline.cli.timers_client import asks_a_node
from chronoline.core.errors import ChronolineError, InvalidInput
from chronoline.runtime.terminal_text import printable
from chronoline.timers.callback_receiver import receiver
from chronoline.timers.http_client import NodeAway, TimersNode, TimerUnknown, unreachable
from chronoline.timers.ids import no_timer, parse_name

app = typer.Typer(
    name="timers",
    help="""Timers over HTTP: inspect a cluster, and change it.

    chronoline up --roles timers              a node
    chronoline up --roles timers --nodes 3    a cluster for experiments
    chronoline timers nodes
    """,
    no_args_is_help=True,
    rich_markup_mode="rich",
)

Limit = Annotated[int, typer.Option(min=1, help="The most to show.")]


@app.command("list")
@asks_a_node
def list_timers(node: TimersNode, limit: Limit = 100, as_json: AsJson = False) -> None:
    """List the waiting timers of a node: those that it pops first, and its copies.

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
            printable(each["id"]),
            "first" if each["level"] == 0 else f"backup {each['level']}",
            f"{each['due_in_ms'] / 1000:.1f} s",
            f"{each['popped']} of {each['pops']}",
            Text(printable(each["uri"])),
        )
    return table


@app.command()
@asks_a_node
def show(
    node: TimersNode,
    timer: Annotated[str, typer.Argument(help="Its id, as Location had it.")],
) -> None:
    """Show a timer.

    chronoline timers show 00000000000004d2a0000000c0000001

    The command queries the nodes that keep it, one after the other.
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


@app.command()
@asks_a_node
def nodes(node: TimersNode, as_json: AsJson = False) -> None:
    """Show the cluster as a node sees it: nodes that stay, join, leave or do not answer.

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
    table = Table("node", "in the list", "state", Column("to send", justify="right"))
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
    return "away" if node["is_away"] else "up"


# Changes of the cluster


class ResyncFailed(ChronolineError):
    """Not every node could be queried for its timers."""


@app.command()
@asks_a_node
def reload(node: TimersNode) -> None:
    """Make every node read the list of nodes again, as SIGHUP does.

    chronoline timers reload

    Change the file on every machine first. A node refuses a wrong list, keeps
    the old one and reports the reason.
    """
    for address, seen in node.ask_all("/v1/reload"):
        Console().print(f"{address} reads {len(seen['nodes'])} nodes, list {seen['view']}")


@app.command()
@asks_a_node
def resync(node: TimersNode) -> None:
    """Move timers to the nodes that are to keep them.

    chronoline timers resync

    Every node that stays or joins fetches the timers that it is to keep from
    the others, as one node does at SIGUSR1. Timers pop meanwhile.
    """
    _resync(node)


@app.command()
@asks_a_node
def scale_up(node: TimersNode) -> None:
    """Move timers to the nodes that join.

    chronoline timers scale-up

    This is the second of three steps. First list the new nodes as joining in
    the list of nodes, start them, and reload it. Finally list them as staying,
    and reload it.
    """
    _resync(node, wanted="joining")


@app.command()
@asks_a_node
def scale_down(node: TimersNode) -> None:
    """Move timers from the nodes that leave.

    chronoline timers scale-down

    This is the second of three steps. First list the nodes as leaving in the
    list of nodes, and reload it. Finally remove them from the list, reload
    it, and stop them.
    """
    _resync(node, wanted="leaving")


def _resync(node: TimersNode, wanted: str | None = None) -> None:
    seen = node.ask("/v1/nodes")
    members = {each["address"]: each["membership"] for each in seen["nodes"]}
    if wanted is not None and wanted not in members.values():
        raise ResyncFailed(
            f"no node is {wanted}: name it so in the list of nodes, and `chronoline timers reload`"
        )
    remaining = [address for address, state in members.items() if state != "leaving"]
    problems = [problem for address in remaining for problem in _resync_one(node.at(address))]
    if problems:
        raise ResyncFailed("; ".join(problems) + ". Try again: what is done stays done")


def _resync_one(node: TimersNode) -> list[str]:
    """The problems of the resync of one node."""
    try:
        progress = node.resync()
    except NodeAway:
        return [unreachable(node.address)]
    Console().print(
        f"{node.address} asked {progress['nodes_asked']} nodes and was offered {progress['timers']:,} timers"
    )
    return [f"{node.address} could not ask {each}" for each in progress["problems"]]


# A receiver of callbacks


@app.command()
def listen(
    port: Annotated[int, typer.Argument(min=1, max=65_535, help="On 127.0.0.1.")] = 9000,
) -> None:
    """Receive callbacks and print them, to see timers pop. Ctrl-C stops it.

    chronoline timers listen 9000
    """
    try:
        server = receiver(port, _show)
    except OSError as error:
        raise InvalidInput(
            f"127.0.0.1:{port} cannot be listened at: {error.strerror}; name another port"
        ) from None
    print(f"Waiting for callbacks at http://127.0.0.1:{port}/ (Ctrl-C stops it)", flush=True)
    with server:
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return


def _show(path: str, sequence: str, body: bytes) -> None:
    now = datetime.now().astimezone().strftime("%H:%M:%S.%f")[:-3]
    text = printable(body.decode("utf-8", "replace"))
    print(f"{now}  {printable(path)}  sequence {printable(sequence)}  {text}", flush=True)
