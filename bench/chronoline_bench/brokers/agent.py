"""A producer or a consumer of the bench, as a process that does what it is told.

`python -m chronoline_bench.brokers.agent`, with commands on its input (`bench.obeying`). Whoever produces is
told to do what `producing` has, and answers when it is done. A consumer is told to `consume`, and answers
when it is ready; `count` asks how far it is, and `stop` ends it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from chronoline_bench.brokers import producing
from chronoline_bench.brokers.beanstalk import BeanstalkLine
from chronoline_bench.brokers.lines import Line, Notes
from chronoline_bench.brokers.sdk import SdkLine
from chronoline_bench.brokers.skip_locked import SkipLockedLine
from chronoline_bench.obeying import serve
from chronoline_bench.pacing import forget_the_past
from chronoline_bench.pipes.records import write_pairs

LINES: dict[str, Callable[..., Line]] = {
    "sdk": SdkLine,
    "beanstalk": BeanstalkLine,
    "skip_locked": SkipLockedLine,
}
PRODUCING: dict[str, Callable[..., Awaitable[producing.Figures]]] = {
    "produce": producing.produce,
    "batches": producing.batches,
    "singles": producing.singles,
}


class Agent:
    """What the process knows between two commands."""

    def __init__(self) -> None:
        self._notes = Notes()
        self._line: Line | None = None
        self._consuming: asyncio.Task[None] | None = None

    async def obey(self, do: str, **asked: Any) -> dict[str, Any]:
        if do in PRODUCING:
            return await self._produce(do, **asked)
        commands: dict[str, Callable[..., Awaitable[dict[str, Any]]]] = {
            "consume": self._consume,
            "count": self._count,
            "stop": self._stop,
        }
        return await commands[do](**asked)

    async def _produce(self, do: str, line: dict[str, Any], **asked: Any) -> dict[str, Any]:
        opened = _line(**line)
        try:
            await opened.open()
            return await PRODUCING[do](opened, **asked)
        finally:
            await opened.close()

    async def _consume(self, line: dict[str, Any]) -> dict[str, Any]:
        self._notes = Notes()
        self._line = _line(**line)
        await self._line.open()
        forget_the_past()
        ready = asyncio.Event()
        self._consuming = asyncio.create_task(self._line.consume(self._notes, ready.set))
        waiting = asyncio.create_task(ready.wait())
        await asyncio.wait((waiting, self._consuming), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        return await self._count()

    async def _count(self) -> dict[str, Any]:
        """How many it has settled."""
        if self._consuming is not None and self._consuming.done():
            self._consuming.result()  # it failed
        return {"settled": self._notes.acked + self._notes.refused}

    async def _stop(self, path: str) -> dict[str, Any]:
        """Leaves a file that says what came when."""
        if self._consuming is not None:
            self._consuming.cancel()
            await asyncio.wait([self._consuming])
        if self._line is not None:
            await self._line.close()
        self._consuming = self._line = None
        notes = self._notes
        write_pairs(Path(path), notes.pairs())
        return {"refused": notes.refused, "last_ack_us": notes.last_ack_us}


def _line(kind: str, **arguments: Any) -> Line:
    return LINES[kind](**arguments)


if __name__ == "__main__":
    asyncio.run(serve(Agent().obey))
