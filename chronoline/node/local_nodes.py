"""Nodes of the timer service as processes on this machine: for demos, benchmarks, tests and `up --nodes`.

The command starts them, as users do, each with a folder of its own and one list of nodes for all.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from chronoline.core.errors import ChronolineError
from chronoline.runtime.child_process import PATIENCE_S, LineProcess
from chronoline.runtime.service import Closable
from chronoline.timers.http_client import TimersNode

_LOOK_EVERY_S = 0.05


class Watcher(Protocol):
    """Observes nodes, each in a thread of its own."""

    def wrote(self, node: str, line: str) -> None:
        """A line that the node wrote to stdout or stderr, without its end."""

    def ended(self, node: str, code: int) -> None:
        """The node's process has ended."""


class _NodeProcess(LineProcess):
    """The process of one node, which ends with its input."""

    is_guarded = False

    def __init__(self, node: str, watcher: Watcher | None, **given: Any) -> None:
        is_watched = watcher is not None
        super().__init__(**given, reads_output=is_watched, reads_errors=is_watched)
        self._node = node
        self._watcher = watcher

    def _take_line(self, line: str) -> None:
        assert self._watcher is not None
        self._watcher.wrote(self._node, line)

    def _take_end(self, code: int) -> None:
        assert self._watcher is not None
        self._watcher.ended(self._node, code)


class TimerNodes(Closable):
    """Processes, by their addresses. They end with this process, however that ends."""

    def __init__(
        self,
        folder: Path,
        *,
        keeps_logs: bool = False,
        watcher: Watcher | None = None,
        environment: Mapping[str, str] | None = None,
        client: TimersNode | None = None,
    ) -> None:
        """Without a watcher only errors are logged, to stderr; with `keeps_logs` everything, beside the
        folders. A watcher gets all output.

        `environment` replaces that of this process. `client` shows the nodes its token, and trusts them.
        """
        self._folder = folder
        self._keeps_logs = keeps_logs
        self._watcher = watcher
        self._environment = os.environ if environment is None else environment
        self._client = client or TimersNode("")
        self._processes: dict[str, _NodeProcess] = {}
        self.nodes_file = folder / "nodes.toml"

    def close(self) -> None:
        self.kill(*self._processes)

    def write(
        self,
        staying: Iterable[str],
        *,
        joining: Iterable[str] = (),
        leaving: Iterable[str] = (),
        comment: str = "",
    ) -> None:
        """Writes the list of nodes."""
        lists = {"staying": staying, "joining": joining, "leaving": leaving}
        text = "".join(f"{name} = {json.dumps(list(nodes))}\n" for name, nodes in lists.items())
        new = self.nodes_file.with_suffix(".new")
        new.write_text(comment + text, encoding="utf-8")
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
        data: Path | None = None,
        settings: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        descriptors: int | None = None,
    ) -> None:
        """Starts a process. The others know it as `node`; it listens there, or `at` another address.

        `environment` is added to that of all nodes. The process may open as many files as this one, or
        `descriptors`.
        """
        command = [sys.executable, "-m", "chronoline", "up", "--quiet", "--until-eof"]
        command += [
            "--roles",
            "timers",
            "--timers",
            at or node,
            "--data",
            str(data or self.data(node)),
        ]
        given = [f"replication.nodes={self.nodes_file}"]
        if self._watcher is None:
            given.append(f"log_level={'info' if self._keeps_logs else 'error'}")
        if at is not None:
            given.append(f"replication.address={node}")
        for each in (*given, *settings):
            command += ["--set", each]
        if descriptors is not None:
            command = ["sh", "-c", f'ulimit -n {descriptors}; exec "$@"', "sh", *command]
        if node in self._processes:  # it has ended by itself
            self.kill(node)
        process = self._processes[node] = _NodeProcess(
            node,
            self._watcher,
            command=command,
            environment={**self._environment, **(environment or {})},
            log_path=self.data(node).with_suffix(".log") if self._keeps_logs else None,
        )
        process.start()

    def await_ready(self, *nodes: str) -> None:
        """Waits until they pop timers; another process may have started them."""
        for node in nodes:
            self._await(node)

    def _await(self, node: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            try:
                if self.ask(node, "/v1/nodes")["ready"]:
                    return
            except ChronolineError:
                if node in self._processes and not self.is_running(node):
                    break
            time.sleep(_LOOK_EVERY_S)  # it has no event for being ready
        raise ChronolineError(f"the node at {node} did not start")

    def is_running(self, node: str) -> bool:
        return node in self._processes and self._processes[node].is_running

    @property
    def running(self) -> list[str]:
        return [node for node in list(self._processes) if self.is_running(node)]

    def data(self, node: str) -> Path:
        """The folder of a node, by default."""
        return self._folder / node.rpartition(":")[2]

    def pid(self, node: str) -> int | None:
        return self._processes[node].pid

    def signal(self, number: int, node: str) -> None:
        self._processes[node].send_signal(number)

    def stop(self, node: str) -> int:
        """Stops a node as an operator does, and returns its exit code."""
        process = self._processes.pop(node)
        process.stop()
        return process.wait()

    def wait(self) -> list[int]:
        """Waits until all have ended, and returns their exit codes."""
        return [process.wait(None) for process in self._processes.values()]

    def kill(self, *nodes: str) -> None:
        """Kills nodes at once."""
        ended = [self._processes.pop(node) for node in nodes]
        for process in ended:
            process.send_signal(signal.SIGKILL)
        for process in ended:
            process.kill()

    def ask(self, node: str, path: str, method: str = "GET") -> Any:
        """The JSON of an answer."""
        return self._client.at(node).ask(path, method)

    def reload(self, nodes: Sequence[str]) -> None:
        for node in nodes:
            self.ask(node, "/v1/reload", "POST")

    def resync(self, nodes: Sequence[str]) -> int:
        """Makes each of them move timers to itself; returns the number of timers that they were offered."""
        moved = 0
        for node in nodes:
            progress = self._client.at(node).resync()
            if progress["problems"]:
                raise ChronolineError(f"the resync of {node} failed: {progress['problems'][0]}")
            moved += progress["timers"]
        return moved
