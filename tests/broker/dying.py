"""A broker in a process of its own that kills itself at a moment that is named.

`python -m tests.broker.dying FOLDER WHERE`; it prints the port at which it listens.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from chronoline.broker.carrier import Carrier
from chronoline.broker.grpc.consumer_stream import ConsumerSession
from chronoline.client.aio import AsyncClient
from tests.broker.nodes import running

ROOT = Path(__file__).parents[2]


def die(*_: object) -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("a process that was killed goes on")


def _around(method: str, *, after: bool, of: str | None = None) -> None:
    """Dies when the carrier is called, with changes `of` an operation: before it makes them, or after."""
    carry_out: Callable[..., Awaitable[Any]] = getattr(Carrier, method)

    async def doomed(carrier: Carrier, *given: Any, **named: Any) -> Any:
        if of is not None and given[1][0].operation != of:
            return await carry_out(carrier, *given, **named)
        if after:
            await carry_out(carrier, *given, **named)
        die()

    setattr(Carrier, method, doomed)


WHERE: dict[str, Callable[[], None]] = {
    "push": lambda: setattr(ConsumerSession, "push", die),
    "create before": lambda: _around("create", after=False),
    "create after": lambda: _around("create", after=True),
    "ack before": lambda: _around("change", after=False, of="ack"),
    "ack after": lambda: _around("change", after=True, of="ack"),
    "extend before": lambda: _around("change", after=False, of="extend"),
    "extend after": lambda: _around("change", after=True, of="extend"),
    "retry after": lambda: _around("change", after=True, of="retry"),
}


@dataclass(frozen=True, slots=True)
class Doomed:
    """A broker that will die."""

    process: subprocess.Popen[str]
    port: int

    def client(self, **given: Any) -> AsyncClient:
        return AsyncClient(f"127.0.0.1:{self.port}", **given)

    async def died(self) -> None:
        """Waits until it has."""
        assert await asyncio.to_thread(self.process.wait, 60) == -signal.SIGKILL


@asynccontextmanager
async def doomed(folder: Path, where: str) -> AsyncIterator[Doomed]:
    """On the store of a folder, as `running` is: another can go on with it, at the same port."""
    command = [sys.executable, "-m", "tests.broker.dying", str(folder), where]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield Doomed(process, int(await asyncio.to_thread(process.stdout.readline)))
        finally:
            process.kill()


async def _serve(folder: Path) -> None:
    async with running(folder) as broker:
        print(broker.address.rpartition(":")[2], flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    WHERE[sys.argv[2]]()
    asyncio.run(_serve(Path(sys.argv[1])))
