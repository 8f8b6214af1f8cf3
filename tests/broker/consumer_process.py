"""A consumer process that leases one message and acks it on request.

`python -m tests.broker.consumer_process ADDRESS CONSUMER LEASE_S` prints the id and the version
of its message, and after a line on stdin the outcome of its ack.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from chronoline.client.sync import Client
from chronoline.core.errors import ChronolineError, Refused

ROOT = Path(__file__).parents[2]


@dataclass(slots=True)
class ConsumerProcess:
    """A running consumer process."""

    process: subprocess.Popen[str]
    held: str = ""
    version: int = 0

    async def _line(self) -> str:
        assert self.process.stdout is not None
        return (await asyncio.to_thread(self.process.stdout.readline)).strip()

    async def took(self) -> None:
        """Wait until the consumer has a message."""
        self.held, version = (await self._line()).split()
        self.version = int(version)

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    async def ack(self) -> str:
        """Ack the message; returns `done`, the refusal, or the name of the error."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return await self._line()


@asynccontextmanager
async def consumer_process(
    address: str, consumer: str, lease_s: float
) -> AsyncIterator[ConsumerProcess]:
    command = [
        sys.executable,
        "-m",
        "tests.broker.consumer_process",
        address,
        consumer,
        str(lease_s),
    ]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            yield ConsumerProcess(process)
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
