"""Event loops for callers that have none: one in a background thread, for the whole process; one for workers.

gRPC wakes every event loop that it has used, and logs errors for closed ones. So these are never closed.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine
from concurrent.futures import Future
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

_ending: set[Future[None]] = set()
"""Cleanup that runs: an event loop alone would not keep it alive."""


def shared_loop() -> asyncio.AbstractEventLoop:
    """The loop of this process, started at its first use."""
    # Without the lock, which a thread may hold whose garbage collection ends a consumer and comes here.
    if (started := _loops.get(os.getpid())) is not None:
        return started
    with _lock:
        loop = _loops.get(os.getpid())
        if loop is None:
            loop = _loops[os.getpid()] = asyncio.new_event_loop()
            thread = threading.Thread(
                target=loop.run_forever, name="chronoline-client", daemon=True
            )
            thread.start()
        return loop


def run_in(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Result]) -> Result:
    """Awaits something in another thread's loop. An interrupt cancels it, and waits until it has ended.

    Raises `ChronolineError` in the thread of that loop, which would wait for itself.
    """
    if _is_running_here(loop):
        work.close()
        raise ChronolineError(
            "a blocking call in the client's own thread, such as in a `progress` callback, would never end"
        )
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


def _is_running_here(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


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
        """Registers a generator that `end` closes, at the latest when the interpreter ends."""
        _open[generator] = self
        return generator

    def end(self, generator: AsyncGenerator[Any, None]) -> None:
        """Closes a generator in the loop, and waits a few seconds for that; does nothing if the loop is gone.

        A garbage collection may call it in any thread: in that of the loop, which must not wait for itself,
        or in one with a lock that the loop wants, such as that of a log handler.
        """
        if _over.is_set() or self._process != os.getpid():
            return
        loop = shared_loop()
        future = asyncio.run_coroutine_threadsafe(_end(generator), loop)
        _ending.add(future)
        future.add_done_callback(_ending.discard)
        if not _is_running_here(loop):
            with suppress(TimeoutError):
                future.result(_ENDING_S)

    def leave(self) -> None:
        if self._process == os.getpid():
            with suppress(Exception):
                future = asyncio.run_coroutine_threadsafe(self._leave(), shared_loop())
                future.result(_ENDING_S)

    async def _leave(self) -> None:
        await self._close()
        for generator in [each for each, home in _open.items() if home is self]:
            with suppress(Exception):
                await _end(generator)


async def _end(generator: AsyncGenerator[Any, None]) -> None:
    try:
        await generator.aclose()
    finally:
        _open.pop(generator, None)


_open: dict[AsyncGenerator[Any, None], Home] = {}
"""Kept, since a garbage collection that finds one itself cannot run its cleanup, which awaits."""
_homes: weakref.WeakSet[Home] = weakref.WeakSet()
_over = threading.Event()
"""Set when the interpreter ends, and with it the thread of the loop: waiting for it would never end."""


@atexit.register
def _leave_all() -> None:
    for home in list(_homes):
        home.leave()
    _over.set()
