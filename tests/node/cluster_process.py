"""A cluster that `chronoline up --roles timers --nodes 3` starts."""

from __future__ import annotations

import json
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chronoline.node.local_nodes import TimerNodes
from chronoline.runtime.child_process import free_addresses
from tests.node.processes import started

SIZE = 3


@dataclass(frozen=True)
class ClusterProcess:
    """The process of a local cluster, its banner, and its nodes."""

    process: subprocess.Popen[str]
    banner: str
    addresses: list[str]
    nodes: TimerNodes
    """Writes the list of nodes and starts more nodes."""

    def make(self, at: int = 0, interval_s: float = 3_600, uri: str = "http://127.0.0.1:9/") -> str:
        """Create a timer; returns its id."""
        return make(self.addresses[at], interval_s=interval_s, uri=uri)


def make(address: str, *, interval_s: float, uri: str, **headers: str) -> str:
    body: dict[str, Any] = {"timing": {"interval": interval_s}}
    body["callback"] = {"http": {"uri": uri, "opaque": "hello"}}
    data = json.dumps(body).encode()
    request = urllib.request.Request(f"http://{address}/timers", data, headers)
    with urllib.request.urlopen(request) as response:
        return str(response.headers["Location"]).removeprefix("/timers/")


@contextmanager
def cluster_process(folder: Path, *given: str) -> Iterator[ClusterProcess]:
    addresses = free_addresses(SIZE)
    options = ["--roles=timers", f"--nodes={SIZE}", f"--timers={addresses[0]}", "--data=here"]
    with started(folder, *options, *given) as process, TimerNodes(folder / "here") as nodes:
        assert process.stdout
        banner = ""
        while "timers nodes" not in banner:
            line = process.stdout.readline()
            assert line, banner
            banner += line
        nodes.await_ready(*addresses)
        yield ClusterProcess(process, banner, addresses, nodes)
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)
