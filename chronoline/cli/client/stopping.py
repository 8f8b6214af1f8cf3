"""Ending what waits for messages, and well: what it holds is given back first."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import Any

import typer


def run_until_told(work: Callable[[asyncio.Event], Coroutine[Any, Any, None]]) -> None:
    """Runs it in the client's event loop. SIGTERM and SIGINT set its event; the exit code then says which.

    A second signal ends the process as usual.
    """
    from chronoline.client.event_loop import shared_loop  # noqa: PLC0415 - gRPC is slow to import

    loop = shared_loop()
    stop = asyncio.Event()
    told: list[int] = []
    before: dict[int, Any] = {}

    def end(number: int, _: object) -> None:
        told.append(number)
        loop.call_soon_threadsafe(stop.set)
        put_back()

    def put_back() -> None:
        for each, handler in before.items():
            signal.signal(each, handler)

    for number in (signal.SIGTERM, signal.SIGINT):
        before[number] = signal.signal(number, end)
    try:
        asyncio.run_coroutine_threadsafe(work(stop), loop).result()
    finally:
        put_back()
    if told:
        raise typer.Exit(128 + told[0])
