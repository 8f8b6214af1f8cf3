"""Nodes of the timer service as processes on this machine: for demos, benchmarks, tests and `up --nodes`.

The command starts them, as users do, each with a folder of its own and one list of nodes for all.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol, Self

from chronoline.core.errors import ChronolineError

_PATIENCE_S = 60.0
_LOOK_EVERY_S = 0.05
_ASK_TIMEOUT_S = 10.0


class Watcher(Protocol):
    """Observes nodes, each in a thread of its own."""

    def wrote(self, node: str, line: str) -> None:
        """A line that the node wrote to stdout or stderr."""

    def ended(self, node: str, code: int) -> None:
        """The node's process has ended."""


class TimerNodes:
    """Processes, by their addresses."""

    def __init__(
        self,
        folder: Path,
        *,
        keeps_logs: bool = False,
        watcher: Watcher | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Without a watcher only errors are logged, to stderr; with `keeps_logs` everything, beside the
        folders.

        A watcher gets all output, and the nodes end with this process, however that ends. `environment`
        replaces that of this process.
        """
        self._folder = folder
        self._keeps_logs = keeps_logs
        self._watcher = watcher
        self._environment = os.environ if environment is None else environment
        self._processes: dict[str, subprocess.Popen[Any]] = {}
        self._threads: dict[str, threading.Thread] = {}
        self.nodes_file = folder / "nodes.toml"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill(*self._processes)

    def write(
        self,
        staying: Iterable[str],
        *,
        joining: Iterable[str] = (),
        leaving: Iterable[str] = (),
        comment: str = "",
    ) -> None:
        """Write the list of nodes."""
        lists = {"staying": staying, "joining": joining, "leaving": leaving}
        text = "".join(f"{name} = {json.dumps(list(nodes))}\n" for name, nodes in lists.items())
        new = self.nodes_file.with_suffix(".new")
        new.write_text(comment + text, encoding="utf-8")
        new.rename(self.nodes_file)

    def start(self, *nodes: str, settings: Sequence[str] = ()) -> None:
        """Start nodes of the list, and wait until they pop timers."""
        for node in nodes:
            self.launch(node, settings=settings)
        self.await_ready(*nodes)

    def launch(
        self,
        node: str,
        *,
        at: str | None = None,
        data: Path | None = None,
        settings: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        descriptors: int | None = None,
    ) -> None:
        """Start a process. The others know it as `node`; it listens there, or `at` another address.

        `environment` is added to that of all nodes. The process may open as many files as this one, or
        `descriptors`.
        """
        command = [sys.executable, "-m", "chronoline", "up", "--quiet", "--roles", "timers"]
        command += ["--timers", at or node, "--data", str(data or self.data(node))]
        given = [f"replication.nodes={self.nodes_file}"]
        if self._watcher is not None:
            command.append("--until-eof")
        else:
            given.append(f"log_level={'info' if self._keeps_logs else 'error'}")
        if at is not None:
            given.append(f"replication.address={node}")
        for each in (*given, *settings):
            command += ["--set", each]
        if descriptors is not None:
            command = ["sh", "-c", f'ulimit -n {descriptors}; exec "$@"', "sh", *command]
        self._popen(node, command, {**self._environment, **(environment or {})})

    def _popen(self, node: str, command: list[str], environment: dict[str, str]) -> None:
        if self._watcher is not None:
            process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.PIPE,  # its end stops the node
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                # A terminal sends Ctrl-C to its whole session; the nodes get it once, from this process.
                start_new_session=True,
            )
            self._processes[node] = process
            watch = threading.Thread(
                target=_watch, args=(self._watcher, node, process), daemon=True
            )
            self._threads[node] = watch
            watch.start()
            return
        with ExitStack() as exits:
            log = None
            if self._keeps_logs:
                log = exits.enter_context(self.data(node).with_suffix(".log").open("ab"))
            self._processes[node] = subprocess.Popen(command, env=environment, stderr=log)

    def await_ready(self, *nodes: str) -> None:
        """Wait until they pop timers; another process may have started them."""
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
            time.sleep(_LOOK_EVERY_S)  # it has no event for being ready
        raise ChronolineError(f"the node at {node} did not start")

    def is_running(self, node: str) -> bool:
        process = self._processes.get(node)
        return process is not None and process.poll() is None

    @property
    def running(self) -> list[str]:
        return [node for node in list(self._processes) if self.is_running(node)]

    def data(self, node: str) -> Path:
        """The folder of a node, by default."""
        return self._folder / node.rpartition(":")[2]

    def pid(self, node: str) -> int:
        return self._processes[node].pid

    def signal(self, number: int, node: str) -> None:
        self._processes[node].send_signal(number)

    def stop(self, node: str) -> int:
        """Stop a node as an operator does, and return its exit code."""
        process = self._processes.pop(node)
        process.terminate()
        return process.wait(_PATIENCE_S)

    def wait(self) -> list[int]:
        """Wait until all have ended, and return their exit codes."""
        for thread in self._threads.values():
            thread.join()
        return [process.wait() for process in self._processes.values()]

    def kill(self, *nodes: str) -> None:
        """Kill nodes at once."""
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
        """Make each of them move timers to itself; returns the number of timers that they were offered."""
        moved = 0
        for node in nodes:
            progress = self.ask(node, "/v1/resync", "POST")
            while progress["running"]:
                time.sleep(_LOOK_EVERY_S)  # it has no event for being done
                progress = self.ask(node, "/v1/resync")
            if progress["problems"]:
                raise ChronolineError(f"the resync of {node} failed: {progress['problems'][0]}")
            moved += progress["timers"]
        return moved


def _watch(watcher: Watcher, node: str, process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdout as lines:
        for line in lines:
            watcher.wrote(node, line)
    code = process.wait()
    process.stdin.close()
    watcher.ended(node, code)


def free_addresses(number: int) -> list[str]:
    """Free addresses on loopback."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]
    for each in sockets:
        each.close()
    return addresses
