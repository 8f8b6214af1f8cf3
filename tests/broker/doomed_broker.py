"""A broker process that kills itself at a chosen moment.

`python -m tests.broker.doomed_broker FOLDER WHERE` prints the port that it listens on.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NoReturn

from chronoline.broker.carrier import Carrier
from chronoline.broker.grpc.consumer_stream import ConsumerClientStream
from chronoline.client.aio import AsyncClient
from chronoline.core.change import Change
from chronoline.core.permissions import Operation
from chronoline.runtime.child_process import LineProcess
from tests.broker.nodes import running

ROOT = Path(__file__).parents[2]


def die(*_: object) -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("a process that was killed goes on")


def _around_create(*, after: bool) -> None:
    """Make a create kill the process, before or after it runs."""
    create: Callable[..., Awaitable[Any]] = Carrier.create

    async def doomed(carrier: Carrier, *given: Any, **named: Any) -> Any:
        if after:
            await create(carrier, *given, **named)
        die()

    setattr(Carrier, "create", doomed)  # noqa: B010 - mypy refuses the assignment to a method


def _around_change(operation: Operation, *, after: bool) -> None:
    """Make a change with this operation kill the process, before or after it runs."""
    change: Callable[..., Awaitable[Any]] = Carrier.change

    async def doomed(
        carrier: Carrier, topic_uid: int, changes: Sequence[Change], **named: Any
    ) -> Any:
        if changes[0].operation is not operation:
            return await change(carrier, topic_uid, changes, **named)
        if after:
            await change(carrier, topic_uid, changes, **named)
        die()

    setattr(Carrier, "change", doomed)  # noqa: B010 - mypy refuses the assignment to a method


WHERE: dict[str, Callable[[], None]] = {
    "push": lambda: setattr(ConsumerClientStream, "push", die),
    "create before": lambda: _around_create(after=False),
    "create after": lambda: _around_create(after=True),
    "ack before": lambda: _around_change(Operation.ACK, after=False),
    "ack after": lambda: _around_change(Operation.ACK, after=True),
    "extend before": lambda: _around_change(Operation.EXTEND, after=False),
    "extend after": lambda: _around_change(Operation.EXTEND, after=True),
    "retry after": lambda: _around_change(Operation.RETRY, after=True),
}


class DoomedBroker(LineProcess):
    """A running broker process that will kill itself."""

    port: int

    def client(self, **given: Any) -> AsyncClient:
        return AsyncClient(f"127.0.0.1:{self.port}", **given)

    async def died(self) -> None:
        """Wait until the process is killed."""
        assert await asyncio.to_thread(self.wait) == -signal.SIGKILL


@asynccontextmanager
async def doomed_broker(folder: Path, where: str) -> AsyncIterator[DoomedBroker]:
    """Start the process on the store of a folder; `running` can continue with the same store and port."""
    command = [sys.executable, "-m", "tests.broker.doomed_broker", str(folder), where]
    with DoomedBroker(command, cwd=ROOT) as broker:
        try:
            broker.port = int(await asyncio.to_thread(broker.read_line))
            yield broker
        finally:
            broker.kill()


async def _serve(folder: Path) -> None:
    async with running(folder) as broker:
        print(broker.address.rpartition(":")[2], flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    WHERE[sys.argv[2]]()
    asyncio.run(_serve(Path(sys.argv[1])))
