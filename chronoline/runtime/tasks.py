"""Tasks of the event loop: sets that keep them until they end, and supervised ones."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

logger = logging.getLogger(__name__)

_REST_S = 0.2
"""The wait before a restart, so that a task that always fails does not fill the log."""


class TaskSet(set[asyncio.Task[None]]):
    """Running tasks. The event loop has weak references alone, so a task must be kept until it ends."""

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Starts a task; it leaves the set when it ends."""
        task = asyncio.create_task(work)
        self.add(task)
        task.add_done_callback(self.discard)
        return task

    async def end(self, patience_s: float = 0) -> None:
        """Waits for the tasks, also for later ones; after this time it cancels the rest."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + patience_s
        while self and (left_s := deadline - loop.time()) > 0:
            await asyncio.wait(list(self), timeout=left_s)
        rest = list(self)
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)


def is_cancelled() -> bool:
    """Whether the current task is cancelled; if not, gRPC has cancelled a call by itself."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def supervise(
    what: str,
    work: Callable[[], Awaitable[None]],
    failed: Callable[[str, str], None],
    *,
    topic: str = "",
) -> asyncio.Task[None]:
    """Runs `work` until it returns or is cancelled; a failure is logged, counted, and it is started again.

    `failed` counts a failure: it is called with `what` and the topic.
    """
    name = f"{what} for topic {topic!r}" if topic else what

    async def run() -> None:
        while True:
            try:
                await work()
            except Exception:
                failed(what, topic)
                logger.exception("%s failed; restarting it", name)
                await asyncio.sleep(_REST_S)
            else:
                return

    return asyncio.create_task(run(), name=name)
