"""The common part of the scene's processes: their argument, their history, their end."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.torture.history import Recorder


@dataclass(frozen=True)
class Program:
    """A process of the scene."""

    recorder: Recorder
    given: dict[str, Any]

    @property
    def opened(self) -> bool:
        """Whether brokers and topics are ready."""
        return Path(self.given["opened"]).exists()

    @property
    def calm(self) -> bool:
        """Whether the faults are over: producers stop, and consumers ack everything."""
        return Path(self.given["calm"]).exists()


def play(main: Callable[[Program], Awaitable[None]]) -> None:
    """Runs a program with the JSON of its argument; it ends with its parent."""
    given = json.loads(sys.argv[1])
    threading.Thread(target=_end_with_parent, daemon=True).start()
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(message)s")
    program = Program(Recorder(Path(given["folder"]), given["process"]), given)

    async def run() -> None:
        await main(program)

    asyncio.run(run())


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(1)
