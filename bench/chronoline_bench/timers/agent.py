"""The agent of the bench `timers`: a sender, a receiver, or a reference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from chronoline_bench.harness.agent import Figures, freeze_heap
from chronoline_bench.harness.passage import write_pairs
from chronoline_bench.timers import references
from chronoline_bench.timers.requests import Load, LoadSender, Receiver, When


class Agent:
    """The agent's commands."""

    def __init__(self) -> None:
        self._receiver = Receiver()
        self._uri = ""
        self._sender: LoadSender | None = None

    # A receiver

    async def receive(self) -> Figures:
        """Starts to receive callbacks; returns their URI."""
        if not self._uri:
            self._uri = f"http://127.0.0.1:{await self._receiver.open()}/pop"
            freeze_heap()
        return {"uri": self._uri}

    async def count(self) -> Figures:
        return {"came": self._receiver.notes.untaken}

    async def take(self, path: str) -> Figures:
        """Writes the arrival times since the last call to a file."""
        write_pairs(Path(path), self._receiver.notes.take())
        return {}

    # A sender

    async def send(self, load: dict[str, Any], path: str | None = None) -> Figures:
        wanted = Load(**{**load, "when": When(**load["when"])})
        self._sender = LoadSender(wanted, None if path is None else Path(path))
        return await self._sender.run()

    async def enough(self) -> Figures:
        """Ends a load before it is complete."""
        if self._sender is not None:
            self._sender.is_enough = True
        return {}

    # References

    async def call(self, **load: Any) -> Figures:
        return await references.call(**load)

    async def serve_nothing(self) -> Figures:
        runner = await references.serve_nothing()
        host, port = runner.addresses[0]
        freeze_heap()
        return {"address": f"{host}:{port}"}

    async def hold(self, timers: int, uri: str) -> Figures:
        return {"bytes": references.hold(timers, uri)}

    async def insert(self, journal: str, scratch: str, rows: int, batch: int) -> Figures:
        return {"rate": references.insert(Path(journal), Path(scratch), rows, batch)}

    async def read_all(self, journal: str) -> Figures:
        return {"seconds": references.read_all(Path(journal))}
