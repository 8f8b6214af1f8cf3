"""A cluster of brokers on this machine, with its etcd and its PostgreSQL, for tests, demos and benchmarks.

Each broker is a process of the command that users run: it can be killed, paused and started again.
"""

from __future__ import annotations

import http.client
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chronoline.core.errors import ChronolineError
from chronoline.runtime.child_process import PATIENCE_S, LineProcess, free_ports
from chronoline.runtime.service import Service
from chronoline.testing.etcd import EtcdServer, find_program
from chronoline.testing.postgres import PostgresServer

_OK = 200
_ANSWER_S = 5.0
_LOOK_EVERY_S = 0.05
_SETTINGS = "CHRONOLINE_NODE_"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerPlan:
    """How a broker of a cluster is started."""

    name: str
    """Its name in the cluster, the same after a restart."""
    grpc: str
    http: str
    data: Path
    store: str
    coordination: str
    settings: Sequence[str] = ()
    """Further settings, each as NAME=VALUE."""
    program: Sequence[str] = (sys.executable, "-m", "chronoline")

    @property
    def command(self) -> list[str]:
        """The command that starts it; it ends with its input."""
        settings = [f"name={self.name}", *self.settings]
        return [
            *(*self.program, "up", "--quiet", "--until-eof", "--data", str(self.data)),
            *("--store", self.store, "--coordination", self.coordination),
            *("--grpc", self.grpc, "--http", self.http),
            *(part for each in settings for part in ("--set", each)),
        ]


class BrokerProcess(LineProcess):
    """A broker, from its start on ready to serve. It can be killed, paused and started again."""

    is_guarded = False

    def __init__(
        self,
        plan: BrokerPlan,
        *,
        log_path: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`environment` is added to ours, which is read without settings of nodes."""
        ours = {key: value for key, value in os.environ.items() if not key.startswith(_SETTINGS)}
        super().__init__(
            plan.command,
            log_path=log_path,
            environment={**ours, **(environment or {})},
            reads_output=False,
        )
        self.plan = plan
        self.name = plan.name

    @property
    def address(self) -> str:
        """host:port of its gRPC."""
        return self.plan.grpc

    def consumers(self) -> list[str]:
        """The names of the consumers that are connected to it; none if it does not answer."""
        found = self._info().get("subscribers", [])
        return [str(each["consumer"]) for each in found if each["broker"] == self.name]

    def metrics(self) -> str:
        """Its metrics, as Prometheus reads them; empty if it does not answer."""
        return self._ask("/metrics")[1].decode()

    def healthy(self) -> set[str]:
        """The names of the brokers that are healthy, as this one sees it."""
        found = self._info().get("brokers", [])
        return {str(each["id"]) for each in found if each["health"] == "healthy"}

    def _info(self) -> dict[str, Any]:
        status, body = self._ask("/v1/info")
        return dict(json.loads(body)) if status == _OK else {}

    def _is_ready(self) -> bool:
        return self._ask("/readyz")[0] == _OK

    def _ask(self, path: str) -> tuple[int, bytes]:
        """The status and the text of its answer over HTTP; 0 if there is none."""
        connection = http.client.HTTPConnection(self.plan.http, timeout=_ANSWER_S)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read()
        except (OSError, http.client.HTTPException):
            return 0, b""
        finally:
            connection.close()


@dataclass
class LocalCluster(Service):
    """Brokers, their etcd and their PostgreSQL, from `start` to `stop`."""

    folder: Path
    brokers_wanted: int = 3
    settings: Sequence[str] = ()
    """Further settings of all brokers, each as NAME=VALUE."""
    brokers: list[BrokerProcess] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Raises `MissingExtra` if a server's programs are not installed."""
        find_program()
        self.etcd = EtcdServer(self.folder / "etcd")
        self.postgres = PostgresServer(self.folder / "postgres")
        self.store = ""

    @property
    def addresses(self) -> list[str]:
        """host:port of each broker's gRPC."""
        return [broker.address for broker in self.brokers]

    def start(self) -> None:
        """Starts all parts, and waits until every broker is ready."""
        if not self.store:
            in_parallel([self.etcd, self.postgres])
            self.store = self.postgres.create_database("cluster")
            ports = iter(free_ports(2 * self.brokers_wanted))
            for number in range(1, self.brokers_wanted + 1):
                self.brokers.append(self._broker(number, grpc=next(ports), http_port=next(ports)))
        in_parallel([self.etcd, self.postgres])
        in_parallel(self.brokers)
        self._await_health()

    def stop(self) -> None:
        """Kills the brokers and stops the servers."""
        for broker in self.brokers:
            broker.kill()
        self.etcd.stop()
        self.postgres.stop()

    def _await_health(self) -> None:
        """Waits until each broker sees that all are healthy: clients are sent to healthy ones."""
        names = {broker.name for broker in self.brokers}
        give_up_s = time.monotonic() + PATIENCE_S
        while not all(names <= broker.healthy() for broker in self.brokers):
            if time.monotonic() > give_up_s:
                raise ChronolineError(f"not all brokers were healthy within {PATIENCE_S:g} s")
            time.sleep(_LOOK_EVERY_S)  # another process sends no signal

    def _broker(self, number: int, *, grpc: int, http_port: int) -> BrokerProcess:
        plan = BrokerPlan(
            name=f"broker-{number}",
            grpc=f"127.0.0.1:{grpc}",
            http=f"127.0.0.1:{http_port}",
            data=self.folder / f"broker-{number}",
            store=self.store,
            coordination=self.etcd.url(),
            settings=self.settings,
        )
        return BrokerProcess(plan, log_path=self.folder / f"{plan.name}.log")


def in_parallel(services: Sequence[Service]) -> None:
    """Starts services at the same time; raises the first error."""
    with ThreadPoolExecutor(max(1, len(services))) as threads:
        list(threads.map(lambda each: each.start(), services))
