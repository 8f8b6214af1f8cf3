"""Event loops for callers that have none: one in a background thread, for the whole process; one for workers.

gRPC wakes every event loop that it has used, and logs errors for closed ones. So these are never closed.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator
from contextlib import suppress
from typing import Any, TypeVar

from chronoline.core.errors import ChronolineError, InvalidInput
from chronoline.runtime.tasks import TaskSet

_ENDING_S = 5.0

Result = TypeVar("Result")
Generator = TypeVar("Generator", bound=AsyncGenerator[Any, None])

_lock = threading.Lock()
_loops: dict[int, asyncio.AbstractEventLoop] = {}
"""By process: a fork has none of the threads."""
_idle: dict[int, list[asyncio.AbstractEventLoop]] = {}
"""By process too."""

_ending = TaskSet()
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


def run_in(
    loop: asyncio.AbstractEventLoop,
    work: Coroutine[Any, Any, Result],
    before: Callable[[], Awaitable[None]] | None = None,
) -> Result:
    """Awaits something in another thread's loop. An interrupt cancels it, and waits until it has ended.

    `before` is awaited there first. Raises `ChronolineError` in the thread of that loop, which would wait for
    itself.
    """
    if _is_running_here(loop):
        work.close()
        raise ChronolineError(
            "a blocking call in the client's own thread, such as in a `progress` callback, would never end"
        )
    ended = threading.Event()

    async def wait() -> Result:
        try:
            if before is not None:
                await before()
            return await work
        finally:
            work.close()
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
        self._endings = TaskSet()
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
        return run_in(loop, work, self._settle)

    async def _settle(self) -> None:
        """Waits for the end of generators, so that a call finds given back what the caller has left."""
        if self._endings:
            await asyncio.wait(list(self._endings))

    def keep(self, generator: Generator) -> Generator:
        """Registers a generator that `end` closes, at the latest when the interpreter ends."""
        _open[generator] = self
        return generator

    def end(self, generator: AsyncGenerator[Any, None]) -> None:
        """Closes a generator in the loop, without waiting for it; does nothing if the loop is gone.

        A garbage collection may call it in any thread: in that of the loop, in one with a lock that the loop
        wants, such as that of a log handler, or in that of a broker, which has to answer first.
        """
        if not _over.is_set() and self._process == os.getpid():
            shared_loop().call_soon_threadsafe(self._begin_end, generator)

    def _begin_end(self, generator: AsyncGenerator[Any, None]) -> None:
        self._endings.start(_end_in_time(generator))

    def wait_ended(self) -> None:
        """Waits a few seconds for the generators that were ended."""
        loop = shared_loop()
        if not _over.is_set() and self._process == os.getpid() and not _is_running_here(loop):
            run_in(loop, self._settle())

    def leave(self) -> None:
        if self._process == os.getpid():
            with suppress(Exception):
                future = asyncio.run_coroutine_threadsafe(self._leave(), shared_loop())
                future.result(_ENDING_S)

    async def _leave(self) -> None:
        await self._close()
        for generator in [each for each, home in _open.items() if home is self]:
            await _end(generator)


class BlockingIterator(Iterator[Result]):
    """Blocks for each item of an asynchronous generator, whose cleanup runs in the thread of its loop.

    One that is forgotten, or left by `break`, waits for nothing; the next call of the client does.
    """

    def __init__(
        self, home: Home, generator: AsyncGenerator[Any, None], convert: Callable[[Any], Result]
    ) -> None:
        self._home = home
        self._generator = generator
        self._convert = convert
        self._is_open = True
        self._taking = threading.Lock()

    def __next__(self) -> Result:
        if not self._is_open:
            raise StopIteration
        if not self._taking.acquire(blocking=False):
            raise InvalidInput(
                "another thread is taking an item: give each thread an iterator, or a lock"
            )
        try:
            self._home.keep(self._generator)
            return self._convert(self._home.run(self._generator.asend(None)))
        except BaseException:
            self.close()
            raise
        finally:
            self._taking.release()
            if not self._is_open:  # closed by another thread meanwhile
                self._home.end(self._generator)

    def close(self) -> None:
        """Ends it, and waits a few seconds for that. May be called twice."""
        self._end()
        self._home.wait_ended()

    def _end(self) -> None:
        if self._is_open:
            self._is_open = False
            self._home.end(self._generator)

    __del__ = _end


async def _end_in_time(generator: AsyncGenerator[Any, None]) -> None:
    """Returns when it has ended, or after a few seconds: then it goes on by itself."""
    ending = _ending.start(_end(generator))
    await asyncio.wait([ending], timeout=_ENDING_S)


async def _end(generator: AsyncGenerator[Any, None]) -> None:
    try:
        with suppress(Exception):  # the caller has left
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
