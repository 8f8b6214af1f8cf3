"""`chronoline up --nodes`: several nodes for timers on this machine, for experiments."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from chronoline.broker.auth import Door
from chronoline.core.errors import InvalidInput
from chronoline.node.auth import open_door
from chronoline.node.banner import callable_line
from chronoline.node.local_nodes import TimerNodes
from chronoline.node.process import check_free
from chronoline.node.settings import Listener, NodeSettings
from chronoline.runtime.private_files import make_private_folder
from chronoline.timers.journal import claim, has_waiting

_MOST = 16
_JOURNAL = "timers.db"
_LAST_PORT = 65_535
_LOOK_EVERY_S = 0.02
_COMMENT = "# `chronoline up --nodes` writes this file anew each time it starts.\n"


def run_cluster(settings: NodeSettings, number: int) -> None:
    """Runs nodes until SIGTERM or SIGINT, or until all of them have ended."""
    listeners = _listeners(settings, number)
    door = _open_door(settings)
    make_private_folder(settings.data)
    cluster = _Cluster(settings, listeners)
    with claim(cluster.nodes.nodes_file):
        _check_folder(settings.data, number)
        cluster.start()
        if not cluster.is_stopping and cluster.nodes.running:
            print("\n".join(_banner(settings, cluster.nodes, door)), flush=True)
        raise SystemExit(cluster.wait())


def _listeners(settings: NodeSettings, number: int) -> list[Listener]:
    """Raises `InvalidInput` for nodes that cannot be started."""
    if settings.roles != ("timers",):
        raise InvalidInput("--nodes starts nodes for timers: add --roles timers")
    if not 1 <= number <= _MOST:
        raise InvalidInput(f"--nodes takes 1 to {_MOST}, not {number}")
    if settings.replication.nodes is not None:
        raise InvalidInput("--nodes writes a list of nodes of its own; leave replication.nodes out")
    first = settings.timers_listener
    if first.port == 0:
        raise InvalidInput("--nodes needs a port to count from; --timers names it")
    if first.port + number - 1 > _LAST_PORT:
        raise InvalidInput(f"there are not {number} ports from {first.port} on; name a lower one")
    listeners = [Listener(first.host, first.port + index) for index in range(number)]
    for listener in listeners:
        check_free(listener, "--timers")
    return listeners


def _check_folder(data: Path, number: int) -> None:
    """Raises `InvalidInput` if the folder has timers that none of the nodes would pop."""
    if has_waiting(data / _JOURNAL):
        raise InvalidInput(
            f"{data} has timers of a node that was started without --nodes, and they would not pop. Name "
            "another folder by --data, or leave --nodes out"
        )
    for index in range(_MOST, number, -1):
        if has_waiting(data / f"node-{index}" / _JOURNAL):
            raise InvalidInput(
                f"{data} has timers of {index} nodes, and some of them would not pop. Start as many, or name "
                "another folder by --data"
            )


def _open_door(settings: NodeSettings) -> Door:
    door = open_door(settings)
    if door.asks:
        raise InvalidInput(
            f"{settings.tokens_file} has tokens, and each node of --nodes has a folder of its own, without "
            "them. Name another folder by --data, or start the nodes one by one"
        )
    return door


def _banner(settings: NodeSettings, nodes: TimerNodes, door: Door) -> Iterator[str]:
    running = nodes.running
    yield (
        "1 node for timers. Ctrl-C stops it."
        if len(running) == 1
        else f"{len(running)} nodes for timers. Ctrl-C stops them all."
    )
    yield ""
    for node in running:
        yield f"  timers  {door.scheme}://{node}   process {nodes.pid(node)}"
    yield f"  list    {nodes.nodes_file}"
    yield callable_line(settings, door)
    yield ""
    yield f"chronoline timers nodes --address {running[0]}"


class _Cluster:
    """All nodes. A signal is passed on to each; when one ends by itself, the others continue."""

    def __init__(self, settings: NodeSettings, listeners: list[Listener]) -> None:
        prefix = settings.sources.prefix
        others = {name: value for name, value in os.environ.items() if not name.startswith(prefix)}
        environment = {**others, **settings.variables()}
        self.nodes = TimerNodes(settings.data, watcher=self, environment=environment)
        self.is_stopping = False
        self._data = settings.data
        self._as_json = settings.log_format == "json"
        self._listeners = {each.at(each.port): each for each in listeners}
        self._is_listening = False

    def start(self) -> None:
        """Starts the nodes, and waits until they listen."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
            signal.signal(number, self._pass_on)
        self.nodes.write(self._listeners, comment=_COMMENT)
        for index, node in enumerate(self._listeners, 1):
            if self.is_stopping:
                break
            self.nodes.launch(node, data=self._data / f"node-{index}")
            if self.is_stopping:  # the signal came before there was a process to pass it on to
                self.nodes.signal(signal.SIGTERM, node)
        for node, listener in self._listeners.items():
            self._await_listening(node, listener)
        self._is_listening = True

    def _await_listening(self, node: str, listener: Listener) -> None:
        while self.nodes.is_running(node):
            try:
                socket.create_connection((listener.host, listener.port)).close()
            except OSError:
                time.sleep(_LOOK_EVERY_S)  # a process has no event for listening
            else:
                return

    def wait(self) -> int:
        """The exit code for this process: that of a node that failed by itself, else 0."""
        codes = self.nodes.wait()
        return 0 if self.is_stopping else next((code for code in codes if code), 0)

    def wrote(self, node: str, line: str) -> None:
        sys.stderr.write(self._shown(node, line) + "\n")

    def ended(self, node: str, code: int) -> None:
        if not self.is_stopping:
            rest = "; the others continue" if self.nodes.running else ""
            sys.stderr.write(f"node {node} ended with {code}{rest}\n")

    def _shown(self, node: str, line: str) -> str:
        """A line of a log, with its node."""
        if not self._as_json:
            return f"[{self._listeners[node].port}] {line}"
        try:
            return json.dumps({**json.loads(line), "node": node})
        except (TypeError, ValueError):
            return line

    def _pass_on(self, number: int, _: object) -> None:
        if number in (signal.SIGTERM, signal.SIGINT):
            self.is_stopping = True
        elif not self._is_listening:  # it would end them; and they are about to read the list
            return
        for node in self.nodes.running:
            self.nodes.signal(signal.SIGTERM if number == signal.SIGINT else number, node)
