"""A receiver, an asker or a reference of the bench, as a process that does what it is told.

`python -m chronoline_bench.pops.agent`, with commands on its input (`bench.obeying`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from chronoline_bench.obeying import serve
from chronoline_bench.pacing import forget_the_past
from chronoline_bench.pipes.records import write_pairs
from chronoline_bench.pops import references
from chronoline_bench.pops.asking import Asking, Load, When
from chronoline_bench.pops.receiving import Receiver


class Agent:
    """What the process knows between two commands."""

    def __init__(self) -> None:
        self._receiver = Receiver()
        self._asking: Asking | None = None

    async def obey(self, do: str, **asked: Any) -> dict[str, Any]:
        commands: dict[str, Callable[..., Awaitable[dict[str, Any]]]] = {
            "receive": self._receive,
            "count": self._count,
            "take": self._take,
            "ask": self._ask,
            "enough": self._enough,
            "call": references.call,
            "serve_nothing": self._serve_nothing,
            "hold": self._hold,
            "insert": self._insert,
            "read_all": self._read_all,
        }
        return await commands[do](**asked)

    # Callbacks

    async def _receive(self) -> dict[str, Any]:
        port = await self._receiver.open()
        forget_the_past()
        return {"uri": f"http://127.0.0.1:{port}/pop"}

    async def _count(self) -> dict[str, Any]:
        return {"came": len(self._receiver)}

    async def _take(self, path: str) -> dict[str, Any]:
        """Leaves a file that says what came when."""
        write_pairs(Path(path), self._receiver.take())
        return {}

    # Timers

    async def _ask(self, load: dict[str, Any], path: str | None = None) -> dict[str, Any]:
        wanted = Load(**{**load, "when": When(**load["when"])})
        self._asking = Asking(wanted, None if path is None else Path(path))
        return await self._asking.run()

    async def _enough(self) -> dict[str, Any]:
        """What is being asked for ends sooner."""
        if self._asking is not None:
            self._asking.is_enough = True
        return {}

    # References

    async def _serve_nothing(self) -> dict[str, Any]:
        runner = await references.serve_nothing()
        host, port = runner.addresses[0]
        forget_the_past()
        return {"address": f"{host}:{port}"}

    async def _hold(self, timers: int, uri: str) -> dict[str, Any]:
        return {"bytes": references.hold(timers, uri)}

    async def _insert(self, journal: str, scratch: str, rows: int, batch: int) -> dict[str, Any]:
        return {"rate": references.insert(Path(journal), Path(scratch), rows, batch)}

    async def _read_all(self, journal: str) -> dict[str, Any]:
        return {"seconds": references.read_all(Path(journal))}


if __name__ == "__main__":
    asyncio.run(serve(Agent().obey))
