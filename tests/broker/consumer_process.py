"""A consumer process that leases one message and acks it on request.

`python -m tests.broker.consumer_process ADDRESS CONSUMER LEASE_S` prints the id and the version
of its message, and after a line on stdin the outcome of its ack.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from chronoline.client.sync import Client
from chronoline.core.errors import ChronolineError, Refused
from chronoline.runtime.child_process import LineProcess

ROOT = Path(__file__).parents[2]


class ConsumerProcess(LineProcess):
    """A running consumer process."""

    held: str = ""
    version: int = 0

    async def took(self) -> None:
        """Wait until the consumer has a message."""
        self.held, version = (await asyncio.to_thread(self.read_line)).split()
        self.version = int(version)

    async def ack(self) -> str:
        """Ack the message; returns `done`, the refusal, or the name of the error."""
        self.write_line("")
        return await asyncio.to_thread(self.read_line)


@asynccontextmanager
async def consumer_process(
    address: str, consumer: str, lease_s: float
) -> AsyncIterator[ConsumerProcess]:
    module = "tests.broker.consumer_process"
    command = [sys.executable, "-m", module, address, consumer, str(lease_s)]
    with ConsumerProcess(command, cwd=ROOT) as process:
        try:
            yield process
        finally:
            process.kill()


def _hold(address: str, consumer: str, lease_s: float) -> None:
    with Client(address) as client:
        leases = client.consume("jobs", consumer=consumer, lease=lease_s, prefetch=1)
        lease = next(iter(leases))
        print(lease.id, lease.version, flush=True)
        sys.stdin.readline()
        try:
            lease.ack()
        except Refused as refused:
            print(refused.outcomes[0].refusal, flush=True)
        except ChronolineError as error:
            print(type(error).__name__, flush=True)
        else:
            print("done", flush=True)


if __name__ == "__main__":
    _hold(sys.argv[1], sys.argv[2], float(sys.argv[3]))
