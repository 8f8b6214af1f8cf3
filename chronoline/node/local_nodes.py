"""Nodes of the timer service as processes on this machine: for demonstrations, benchmarks and tests.

They are started by the command, as users do, each with a folder of its own and one list of nodes for all.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from chronoline.core.errors import ChronolineError

_PATIENCE_S = 60.0
_LOOK_EVERY_S = 0.05
_ASK_TIMEOUT_S = 10.0


class TimerNodes:
    """Processes, by their addresses."""

    def __init__(self, folder: Path, *, keeps_logs: bool = False) -> None:
        """Logs are kept beside the folders of the nodes; else only errors are told, on stderr."""
        self._folder = folder
        self._keeps_logs = keeps_logs
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.nodes_file = folder / "nodes.toml"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill(*self._processes)

    def write(self, staying: Iterable[str], **others: Iterable[str]) -> None:
        """The list of nodes: who stays, joins and leaves."""
        lists = {"staying": staying, **others}
        text = "\n".join(f"{name} = {json.dumps(list(nodes))}" for name, nodes in lists.items())
        new = self.nodes_file.with_suffix(".new")
        new.write_text(text, encoding="utf-8")
        new.rename(self.nodes_file)

    def start(self, *nodes: str, settings: Sequence[str] = ()) -> None:
        """Starts nodes of the list, and waits until they pop timers."""
        for node in nodes:
            self.launch(node, settings=settings)
        self.await_ready(*nodes)

    def launch(
        self,
        node: str,
        *,
        at: str | None = None,
        settings: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        descriptors: int | None = None,
    ) -> None:
        """Starts a process. The others know it as `node`; it listens there, or `at` another address.

        It may open as many files as this process, or `descriptors`.
        """
        level = "info" if self._keeps_logs else "error"
        given = [f"replication.nodes={self.nodes_file}", f"log_level={level}", *settings]
        if at is not None:
            given.append(f"replication.address={node}")
        command = [sys.executable, "-m", "chronoline", "up", "--quiet", "--roles", "timers"]
        command += ["--timers", at or node, "--data", str(self.data(node))]
        for each in given:
            command += ["--set", each]
        if descriptors is not None:
            command = ["sh", "-c", f'ulimit -n {descriptors}; exec "$@"', "sh", *command]
        own = {**os.environ, **environment} if environment else None
        with ExitStack() as exits:
            log = None
            if self._keeps_logs:
                log = exits.enter_context(self.data(node).with_suffix(".log").open("ab"))
            self._processes[node] = subprocess.Popen(command, env=own, stderr=log)

    def await_ready(self, *nodes: str) -> None:
        """Waits until they pop timers; somebody else may have started them."""
        for node in nodes:
            self._await(node)

    def _await(self, node: str) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline:
            try:
                if self.ask(node, "/v1/nodes")["ready"]:
                    return
            except (OSError, http.client.HTTPException):
                process = self._processes.get(node)
                if process is not None and process.poll() is not None:
                    break
            time.sleep(_LOOK_EVERY_S)  # it says nothing when it is ready
        raise ChronolineError(f"the node at {node} did not start")

    def is_running(self, node: str) -> bool:
        process = self._processes.get(node)
        return process is not None and process.poll() is None

    def data(self, node: str) -> Path:
        """The folder of a node."""
        return self._folder / node.rpartition(":")[2]

    def pid(self, node: str) -> int:
        return self._processes[node].pid

    def signal(self, number: int, node: str) -> None:
        self._processes[node].send_signal(number)

    def stop(self, node: str) -> int:
        """As an operator does; the exit code."""
        process = self._processes.pop(node)
        process.terminate()
        return process.wait(_PATIENCE_S)

    def kill(self, *nodes: str) -> None:
        """At once, without a word."""
        ended = [self._processes.pop(node) for node in nodes]
        for process in ended:
            process.kill()
        for process in ended:
            process.wait()

    def ask(self, node: str, path: str, method: str = "GET") -> Any:
        """The JSON of an answer."""
        request = urllib.request.Request(f"http://{node}{path}", method=method)
        with urllib.request.urlopen(request, timeout=_ASK_TIMEOUT_S) as response:
            return json.load(response)

    def reload(self, nodes: Sequence[str]) -> None:
        for node in nodes:
            self.ask(node, "/v1/reload", "POST")

    def resync(self, nodes: Sequence[str]) -> int:
        """Has each of them move timers to itself; how many they were told of."""
        moved = 0
        for node in nodes:
            progress = self.ask(node, "/v1/resync", "POST")
            while progress["running"]:
                time.sleep(_LOOK_EVERY_S)  # it says nothing when it is done
                progress = self.ask(node, "/v1/resync")
            if progress["problems"]:
                raise ChronolineError(f"the resync of {node} failed: {progress['problems'][0]}")
            moved += progress["timers"]
        return moved


def free_addresses(number: int) -> list[str]:
    """Addresses on loopback that nobody listens at."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]
    for each in sockets:
        each.close()
    return addresses
