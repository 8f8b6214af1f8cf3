"""Broker processes that a test can kill, freeze and restart at their address."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from chronoline.client.aio import AsyncClient
from chronoline.runtime.child_process import LineProcess, free_ports

_PATIENCE_S = 60


class BrokerProcess:
    """`chronoline up` on a store, at a port that stays its own."""

    def __init__(
        self,
        folder: Path,
        store: str | None = None,
        settings: Sequence[str] = (),
        *,
        http: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`environment` is added to ours."""
        self._folder = folder
        self._environment = environment or {}
        self._settings = [part for each in settings for part in ("--set", each)]
        self._store = store
        self.port, http_port = free_ports(2)
        self.address = f"127.0.0.1:{self.port}"
        self.http_address = f"127.0.0.1:{http_port}" if http else ""
        self._process: LineProcess | None = None

    async def start(self) -> None:
        """Start the process and wait until it answers."""
        store = [] if self._store is None else ["--store", self._store]
        self._process = LineProcess(
            [
                *(sys.executable, "-m", "chronoline", "up", "--data", str(self._folder)),
                *("--grpc", self.address, "--http", self.http_address, *store, *self._settings),
            ],
            log_path=self._folder / "broker.log",
            environment={**os.environ, **self._environment},
            reads_output=False,
        )
        self._process.start()
        await answering(self.address)

    @property
    def process(self) -> LineProcess:
        assert self._process is not None
        return self._process

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    def kill(self) -> None:
        self.process.kill()

    def freeze(self) -> None:
        self.process.pause()

    def thaw(self) -> None:
        self.process.resume()

    async def stop(self) -> int:
        """Stop the process by SIGTERM; returns its exit code."""
        await asyncio.to_thread(self.process.stop, _PATIENCE_S)
        return self.process.wait()

    def log(self) -> str:
        return self.process.log


@asynccontextmanager
async def broker_process(
    folder: Path,
    store: str | None = None,
    settings: Sequence[str] = (),
    *,
    http: bool = False,
    environment: Mapping[str, str] | None = None,
) -> AsyncIterator[BrokerProcess]:
    broker = BrokerProcess(folder, store, settings, http=http, environment=environment)
    await broker.start()
    try:
        yield broker
    finally:
        broker.kill()


async def answering(address: str) -> None:
    """Wait until a broker answers at the address."""
    async with AsyncClient(address, timeout=1) as client, asyncio.timeout(_PATIENCE_S):
        while True:
            try:
                await client.topics()
            except Exception:
                await asyncio.sleep(0.05)  # the process gives no sign before it listens
            else:
                return
