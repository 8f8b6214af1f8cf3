"""A broker process that kills itself at a chosen moment.

`python -m tests.broker.doomed_broker PLACE WHERE` prints the port that it listens on. The place is a folder,
or the URL of a store.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any, NoReturn

from chronoline.broker.carrier import Carrier
from chronoline.broker.grpc.consumer_stream import ConsumerClientStream
from chronoline.client.aio import AsyncClient
from chronoline.core.change import Change
from chronoline.core.permissions import Operation
from chronoline.runtime.child_process import LineProcess
from chronoline.stores.schedule_table import ScheduleTable
from chronoline.stores.timeline import Timeline
from tests.broker.nodes import running

ROOT = Path(__file__).parents[2]
_DOOMED_STEP = 2


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


def _around_step(*, committed: bool) -> None:
    """Make the second step of schedules kill the process, before or after its transaction is committed."""
    step = Timeline.step_schedules
    create = ScheduleTable._create  # no public call lies between the creates and the commit
    steps = count(1)

    def doomed_create(table: ScheduleTable, *given: Any) -> Any:
        create(table, *given)
        die()

    def doomed(store: Timeline, *given: Any, **named: Any) -> Any:
        if next(steps) < _DOOMED_STEP:
            return step(store, *given, **named)
        if not committed:
            setattr(ScheduleTable, "_create", doomed_create)  # noqa: B010 - as below
        done = step(store, *given, **named)
        return die() if committed else done

    setattr(Timeline, "step_schedules", doomed)  # noqa: B010 - mypy refuses the assignment to a method


WHERE: dict[str, Callable[[], None]] = {
    "push": lambda: setattr(ConsumerClientStream, "push", die),
    "create before": lambda: _around_create(after=False),
    "create after": lambda: _around_create(after=True),
    "ack before": lambda: _around_change(Operation.ACK, after=False),
    "ack after": lambda: _around_change(Operation.ACK, after=True),
    "extend before": lambda: _around_change(Operation.EXTEND, after=False),
    "extend after": lambda: _around_change(Operation.EXTEND, after=True),
    "step before": lambda: _around_step(committed=False),
    "step after": lambda: _around_step(committed=True),
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
async def doomed_broker(place: Path | str, where: str) -> AsyncIterator[DoomedBroker]:
    """Start the process on a store; `running` can continue with the same store and port."""
    command = [sys.executable, "-m", "tests.broker.doomed_broker", str(place), where]
    with DoomedBroker(command, cwd=ROOT) as broker:
        try:
            broker.port = int(await asyncio.to_thread(broker.read_line))
            yield broker
        finally:
            broker.kill()


async def _serve(place: Path | str) -> None:
    async with running(place) as broker:
        print(broker.address.rpartition(":")[2], flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    WHERE[sys.argv[2]]()
    asyncio.run(_serve(sys.argv[1] if "://" in sys.argv[1] else Path(sys.argv[1])))
