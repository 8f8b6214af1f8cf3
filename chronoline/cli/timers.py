"""`chronoline timers`: inspects, grows and shrinks a cluster of timers, and receives its callbacks."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from chronoline.cli.options import AsJson
from chronoline.cli.output import print_table, printable
from chronoline.cli.timers_client import asks_a_node
from chronoline.core.errors import ChronolineError, InvalidInput
from chronoline.timers.http_client import NodeAway, NodeRefused, TimersNode, TimerUnknown
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

_MOST_BYTES = 1024 * 1024

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
            each["id"],
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
    for address, seen in _every(node, "/v1/reload"):
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
        return [_unreachable(node.address)]
    Console().print(
        f"{node.address} asked {progress['nodes_asked']} nodes and was offered {progress['timers']:,} timers"
    )
    return [f"{node.address} could not ask {each}" for each in progress["problems"]]


def _unreachable(address: str) -> str:
    return f"{address} cannot be reached: start it, or take it out of the list of nodes"


def _every(node: TimersNode, path: str) -> list[tuple[str, Any]]:
    """Query the named node, and every other that it knows."""
    first = node.ask(path, "POST")
    answers = [(node.address, first)]
    problems = []
    for each in first["nodes"]:
        if each["is_here"]:
            continue
        try:
            answers.append((each["address"], node.at(each["address"]).ask(path, "POST")))
        except NodeAway:
            problems.append(_unreachable(each["address"]))
        except NodeRefused as error:
            problems.append(str(error))
    if problems:
        done = ", ".join(address for address, _ in answers)
        raise NodeAway(f"{'; '.join(problems)}. The others have done it: {done}")
    return answers


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


def receiver(port: int, came: Callable[[str, str, bytes], None]) -> ThreadingHTTPServer:
    """A server on loopback that answers 200 and passes on path, sequence and body of each callback."""

    class _CallbackHandler(BaseHTTPRequestHandler):
        """One callback."""

        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            length = self.headers.get("Content-Length", "0")
            body = self.rfile.read(min(int(length), _MOST_BYTES) if length.isdecimal() else 0)
            came(self.path, self.headers.get("X-Sequence-Number", "-"), body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    return _CallbackServer(("127.0.0.1", port), _CallbackHandler)


class _CallbackServer(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore callers that have disconnected."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)
