"""`chronoline timers reload`, `resync`, `scale-up` and `scale-down`."""

from __future__ import annotations

import time
from typing import Any

from rich.console import Console

from chronoline.cli.timers.asking import NodeAway, NodeRefused, TimersNode, asks_a_node
from chronoline.core.errors import ChronolineError

_LOOK_EVERY_S = 0.1


class ResyncFailed(ChronolineError):
    """Not every node could be asked for its timers."""


@asks_a_node
def reload(node: TimersNode) -> None:
    """Have every node read the list of nodes again, as SIGHUP does.

    chronoline timers reload

    Change the file on every machine first. A node that finds it wrong keeps
    the old one and says why.
    """
    for address, seen in _every(node, "/v1/reload"):
        Console().print(f"{address} reads {len(seen['nodes'])} nodes, list {seen['view']}")


@asks_a_node
def resync(node: TimersNode) -> None:
    """Move timers to the nodes that are to keep them.

    chronoline timers resync

    Every node that stays or joins asks the others for what it is to keep, as
    SIGUSR1 has one node do. Timers pop meanwhile.
    """
    _resync(node)


@asks_a_node
def scale_up(node: TimersNode) -> None:
    """Give nodes that join the timers that they are to keep.

    chronoline timers scale-up

    It is the second of three steps. First name the new nodes as joining in the
    list of nodes, start them, and reload it. At last name them as staying, and
    reload it.
    """
    _resync(node, wanted="joining")


@asks_a_node
def scale_down(node: TimersNode) -> None:
    """Take the timers from nodes that leave.

    chronoline timers scale-down

    It is the second of three steps. First name the nodes as leaving in the
    list of nodes, and reload it. At last take them out of the list, reload
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
    """Starts it, and waits until it is done."""
    try:
        progress = node.ask("/v1/resync", "POST")
        while progress["running"]:
            time.sleep(_LOOK_EVERY_S)  # between looks at how far it is
            progress = node.ask("/v1/resync")
    except NodeAway:
        return [_unreachable(node.address)]
    Console().print(
        f"{node.address} asked {progress['nodes_asked']} nodes and was told of {progress['timers']:,} timers"
    )
    return [f"{node.address} could not ask {each}" for each in progress["problems"]]


def _unreachable(address: str) -> str:
    return f"{address} cannot be reached: start it, or take it out of the list of nodes"


def _every(node: TimersNode, path: str) -> list[tuple[str, Any]]:
    """Asks the node that was named, and every other that it then knows."""
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
