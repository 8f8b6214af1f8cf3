"""Ending what may hang on the store: beside the event loop, and for so long."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from contextlib import suppress

logger = logging.getLogger(__name__)


async def end(what: str, work: Callable[[], None], *, patience_s: float) -> None:
    """Does `work` in a thread of its own, and waits for that until the patience is over.

    Then it is left behind: it ends by itself, or with the process.
    """
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()

    def run() -> None:
        try:
            work()
        except Exception:
            logger.exception("ending %s failed", what)
        finally:
            with suppress(RuntimeError):  # the loop is closed, and nobody waits any more
                loop.call_soon_threadsafe(ended.set)

    threading.Thread(target=run, name="chronoline-end", daemon=True).start()
    try:
        async with asyncio.timeout(patience_s):
            await ended.wait()
    except TimeoutError:
        logger.warning(
            "%s did not end within %g s, and is left behind",
            what,
            patience_s,
            extra={"action": "left_behind"},
        )
