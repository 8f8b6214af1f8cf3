"""Event loops for callers that have none: one in a background thread, for the whole process; one for workers.

gRPC wakes every event loop that it has used, and logs errors for closed ones. So these are never closed.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from chronoline.core.errors import ChronolineError

_ENDING_S = 5.0

Result = TypeVar("Result")
Generator = TypeVar("Generator", bound=AsyncGenerator[Any, None])

_lock = threading.Lock()
_loops: dict[int, asyncio.AbstractEventLoop] = {}
"""By process: a fork has none of the threads."""
_idle: dict[int, list[asyncio.AbstractEventLoop]] = {}
"""By process too."""


def shared_loop() -> asyncio.AbstractEventLoop:
    """The loop of this process, started at its first use."""
    with _lock:
        loop = _loops.get(os.getpid())
        if loop is None:
            loop = _loops[os.getpid()] = asyncio.new_event_loop()
            thread = threading.Thread(
                target=loop.run_forever, name="chronoline-client", daemon=True
            )
            thread.start()
        return loop


def run_in(loop: asyncio.AbstractEventLoop, work: Awaitable[Result]) -> Result:
    """Awaits something in another thread's loop. An interrupt cancels it, and waits until it has ended."""
    ended = threading.Event()

    async def wait() -> Result:
        try:
            return await work
        finally:
            ended.set()

    future = asyncio.run_coroutine_threadsafe(wait(), loop)
    try:
        return future.result()
    except BaseException:
        if not future.done():
            future.cancel()
            ended.wait(_ENDING_S)
        raise


def run_here(work: Coroutine[Any, Any, None]) -> None:
    """Like `asyncio.run`, on a loop that is kept for the next time."""
    idle = _idle.setdefault(os.getpid(), [])
    loop = idle.pop() if idle else asyncio.new_event_loop()
    try:
        loop.run_until_complete(work)
    finally:
        loop.run_until_complete(_tidy(loop))
        idle.append(loop)


async def _tidy(loop: asyncio.AbstractEventLoop) -> None:
    left = asyncio.all_tasks(loop) - {asyncio.current_task(loop)}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


class Home:
    """The loop of a blocking client: that of the process that used it first. It cannot be used in a fork."""

    def __init__(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """`close` runs when the interpreter ends, unless the client was closed before."""
        self._close = close
        self._generators: weakref.WeakSet[AsyncGenerator[Any, None]] = weakref.WeakSet()
        self._process: int | None = None
        _homes.add(self)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        process = os.getpid()
        if self._process not in (None, process):
            raise ChronolineError(
                "this process was forked from one that used the client; make a new one in each process"
            )
        self._process = process
        return shared_loop()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        try:
            loop = self.loop
        except ChronolineError:
            work.close()
            raise
        return run_in(loop, work)

    def keep(self, generator: Generator) -> Generator:
        """Registers a generator that must be closed in the loop, at the latest when the interpreter ends."""
        self._generators.add(generator)
        return generator

    def end(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs cleanup; does nothing if the loop is gone."""
        if _over.is_set() or self._process != os.getpid():
            work.close()
        else:
            self.run(work)

    def leave(self) -> None:
        if self._process == os.getpid():
            with suppress(Exception):
                future = asyncio.run_coroutine_threadsafe(self._leave(), shared_loop())
                future.result(_ENDING_S)

    async def _leave(self) -> None:
        await self._close()
        for generator in list(self._generators):
            with suppress(Exception):
                await generator.aclose()


_homes: weakref.WeakSet[Home] = weakref.WeakSet()
_over = threading.Event()
"""Set when the interpreter ends, and with it the thread of the loop: waiting for it would never end."""


@atexit.register
def _leave_all() -> None:
    for home in list(_homes):
        home.leave()
    _over.set()
