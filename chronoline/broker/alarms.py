"""Sleeping in the event loop: until a moment, or until something rings."""

from __future__ import annotations

import asyncio


class Alarm:
    """One sleeper; ringing while it is awake ends its next sleep at once."""

    def __init__(self) -> None:
        self._rung = asyncio.Event()

    def ring(self) -> None:
        self._rung.set()

    async def sleep(self, seconds: float | None) -> None:
        """None is until it rings."""
        if seconds is not None and seconds <= 0:
            await asyncio.sleep(0)  # others have their turn
            self._rung.clear()
            return
        timer = None
        if seconds is not None:
            timer = asyncio.get_running_loop().call_later(seconds, self._rung.set)
        try:
            await self._rung.wait()
        finally:
            if timer is not None:
                timer.cancel()
            self._rung.clear()
