"""Asks the store all the time whether it takes changes, so that an idle broker knows as soon as a busy one.

The question is a small change, as durable as any other, on connections that nothing else uses: neither a
purge nor a queue of clients delays it. A store that answers nothing within a second is silent; one that
answers reads alone takes no changes (`store_health`). Together with the interval, a cut is noticed within
1.5 s; the rest of the 4 s in which other brokers take over is theirs.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from chronoline.broker.store_access import StoreAccess

PROBE_EVERY_S = 0.5
"""The time between an answer and the next question."""
PROBE_PATIENCE_S = 1.0


class StoreProbe:
    """The probe of one broker. Owned by the event loop."""

    def __init__(self, access: StoreAccess, changed: Callable[[], None]) -> None:
        """`changed` is called when the store is reached again, or not any more."""
        self._access = access
        self._changed = changed
        self._asking: asyncio.Task[None] | None = None
        self._asked_s = -PROBE_EVERY_S
        self._known = self._seen

    @property
    def _seen(self) -> tuple[bool, bool]:
        return bool(self._access.problem), bool(self._access.refusal)

    async def ask(self) -> None:
        """Asks, unless the store was asked a moment ago; waits for a question that is under way."""
        is_due = time.monotonic() - self._asked_s >= PROBE_EVERY_S
        if self._asking is None and is_due:
            self._asking = asyncio.create_task(self._ask(), name="probing the store")
        if (asking := self._asking) is not None:
            await asyncio.wait([asking])
            if not asking.cancelled():
                asking.result()

    async def run(self) -> None:
        """Asks until it is cancelled."""
        while True:
            await self.ask()
            self._look()  # other calls may have told, too
            await asyncio.sleep(PROBE_EVERY_S)

    def stop(self) -> None:
        """Does not wait for an answer any more. May be called twice."""
        if self._asking is not None:
            self._asking.cancel()

    async def _ask(self) -> None:
        try:
            await self._access.probe(PROBE_PATIENCE_S)
        finally:
            self._asked_s = time.monotonic()
            self._asking = None
        self._look()

    def _look(self) -> None:
        before, self._known = self._known, self._seen
        if before != self._known:
            self._changed()
