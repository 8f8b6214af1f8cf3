"""Workers: call handlers of topics with their due messages, as many at a time as the concurrency.

When a handler returns, its message is acked. When it raises, the message is given back by `retry`, later each
time, unless the error is final: then it is buried as a dead letter. That holds for every exception:
`sys.exit()` or a `CancelledError` is a failure of that message alone.

While a handler runs its lease is renewed; if it is lost nevertheless, `lease.is_lost` is true, and later
changes of the message are refused. SIGTERM and SIGINT drain: no handler begins, running handlers finish, the
other messages are given back.

A topic that does not exist yet is waited for, and the others are served meanwhile. One that is deleted while
it is served ends the worker.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import current_thread, main_thread
from typing import Any, TypeVar

from chronoline.client.aio import AsyncClient
from chronoline.client.consumer_stream import ConsumerStream
from chronoline.client.event_loop import run_here
from chronoline.client.leases import AsyncLease, span_attributes
from chronoline.client.sync import Lease
from chronoline.client.times import Delay, check_count, duration_ms, lease_length_ms
from chronoline.client.tls import Tls
from chronoline.core.errors import (
    BrokerUnavailable,
    ChronolineError,
    InvalidInput,
    OutcomeUnknown,
    StoreUnavailable,
    TooMuch,
    TopicNotFound,
)
from chronoline.core.limits import MAX_REASON_CHARACTERS
from chronoline.runtime.backoff import Backoff, Waits
from chronoline.runtime.log_summary import LogSummary
from chronoline.runtime.signals import stop_on_signal
from chronoline.runtime.tasks import TaskSet, is_cancelled
from chronoline.runtime.traces import TraceStep, context_of, fail, span_of

logger = logging.getLogger(__name__)
_summary = LogSummary(logger)

_PATIENCE_S = 1.0
"""How long messages wait for a free handler before other workers get them."""
_BACKOFF = Backoff(0.5, 5.0)
"""The waits before repetitions, in seconds."""
_PASSING = (BrokerUnavailable, OutcomeUnknown, StoreUnavailable, TooMuch)
"""Errors after which a repetition may help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """When a failed message is tried again: after `base`, multiplied by `factor` each time, at most `cap`."""

    base: Delay = 1.0
    factor: float = 2.0
    jitter: float = 0.2
    """The part by which the time varies, so that messages that failed together do not come back together."""
    cap: Delay = 3_600.0
    final: Iterable[type[BaseException]] = ()
    """Errors that no retry can cure."""

    def __post_init__(self) -> None:
        given: Any = self.final  # any iterable
        final = tuple(given) if isinstance(given, Iterable) else (given,)
        if not all(isinstance(each, type) and issubclass(each, BaseException) for each in final):
            raise InvalidInput("final takes classes of errors, such as (ValueError, KeyError)")
        object.__setattr__(self, "final", final)  # a list is allowed, but isinstance needs a tuple
        base_ms, cap_ms = duration_ms(self.base, "base"), duration_ms(self.cap, "cap")
        if self.factor < 1 or cap_ms < base_ms or not 0 <= self.jitter <= 1:
            raise InvalidInput("a retry needs factor >= 1, cap >= base and jitter from 0 to 1")

    def delay_s(self, attempts: int, chance: float) -> float:
        """The seconds after this number of earlier attempts; `chance` is from 0 to 1."""
        base_s, cap_s = (duration_ms(each, "wait") / 1000 for each in (self.base, self.cap))
        grown = Backoff(base_s, cap_s, self.factor).wait(attempts + 1)
        return grown * (1 + self.jitter * (2 * chance - 1))


Handle = Callable[[Any], object]
AnyHandler = TypeVar("AnyHandler", bound=Handle)


@dataclass(frozen=True, slots=True)
class _Handler:
    handle: Handle
    retry: Retry


class Worker:
    """Serves handlers from `run` (or `serve`) until `stop`.

        worker = Worker()

        @worker.handler("reminders")
        def remind(lease): ...

        worker.run()

    A plain function runs in a thread, with a `Lease`; an `async` one in the event loop, with an `AsyncLease`.
    """

    def __init__(
        self,
        address: str | Iterable[str] | None = None,
        *,
        token: str | None = None,
        tls: bool | str | Path | Tls = False,
        insecure: bool = False,
        consumer: str | None = None,
        concurrency: int = 16,
        lease: Delay = 30.0,
        retry: Retry | None = None,
        rack: str = "",
    ) -> None:
        """`concurrency` is the number of handlers that run at a time, for all topics together.

        `lease` is the duration of a lease, which is renewed while its handler runs. `consumer` is a name that
        a restarted worker uses again, to continue with its live leases. `address` can name several brokers,
        and `rack` says where the worker runs, as in `Client`.
        """
        check_count("concurrency", concurrency)
        self._address, self._token, self._tls = address, token, tls
        self._insecure = insecure
        self._rack = rack
        self._consumer = consumer
        self._concurrency = concurrency
        self._lease_s = lease_length_ms(lease) / 1000
        self._retry = retry or Retry()
        self._handlers: dict[str, _Handler] = {}
        self._stopping: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks = TaskSet()
        self._slots = asyncio.Semaphore(concurrency)

    def handler(
        self, topic: str, *, retry: Retry | None = None
    ) -> Callable[[AnyHandler], AnyHandler]:
        """Calls the function for each message of the topic."""

        def register(handle: AnyHandler) -> AnyHandler:
            if topic in self._handlers:
                raise InvalidInput(f"topic {topic!r} has a handler already")
            self._handlers[topic] = _Handler(handle, retry or self._retry)
            return handle

        return register

    def run(self) -> None:
        """Serves until SIGTERM or SIGINT."""
        run_here(self._run())

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        with stop_on_signal(lambda: loop.call_soon_threadsafe(self.stop), second_ends=False):
            await self.serve()

    def stop(self) -> None:
        """Drains; from any thread. `run` and `serve` return when that is done."""
        if self._loop is not None and self._stopping is not None:
            self._loop.call_soon_threadsafe(self._stopping.set)

    async def serve(self) -> None:
        """Serves inside an event loop, until `stop`."""
        if not self._handlers:
            raise InvalidInput("the worker has no handlers; add one with @worker.handler(TOPIC)")
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self._slots = asyncio.Semaphore(self._concurrency)
        stopping = asyncio.create_task(self._stopping.wait())
        threads = ThreadPoolExecutor(self._concurrency, "chronoline-handler")
        try:
            async with AsyncClient(
                self._address,
                token=self._token,
                tls=self._tls,
                insecure=self._insecure,
                rack=self._rack,
            ) as client:
                stream = await self._stream(client)
                missing: list[str] = []
                subscribing = asyncio.create_task(self._subscribe(client, stream, missing))
                if await _first(subscribing, stopping):
                    subscribing.result()
                    joining = self._join(client, stream, missing)
                    await self._serve(stream, joining, threads, stopping)
        finally:
            stopping.cancel()
            threads.shutdown(wait=False, cancel_futures=True)

    async def _stream(self, client: AsyncClient) -> ConsumerStream:
        """The stream of all topics, which has none yet."""
        return await client.subscribe((), consumer=self._consumer, renew_in_hand=True)

    async def _subscribe(
        self, client: AsyncClient, stream: ConsumerStream, missing: list[str]
    ) -> None:
        """Subscribes to the topics that exist. The others are added to `missing`."""
        for name in self._handlers:
            if not await self._exists(client, stream, name):
                missing.append(name)
                logger.warning(
                    "topic %r does not exist, or this token may not use it: the worker waits for it",
                    name,
                    extra={"action": "topic_awaited", "topic": name},
                )

    async def _exists(self, client: AsyncClient, stream: ConsumerStream, name: str) -> bool:
        """Subscribes to a topic; false if it does not exist."""
        try:
            topic = await client.topic(name)
            await stream.subscribe(
                topic, lease_ms=round(self._lease_s * 1000), prefetch=self._concurrency
            )
        except TopicNotFound:
            return False
        return True

    async def _join(
        self, client: AsyncClient, stream: ConsumerStream, missing: Iterable[str]
    ) -> None:
        """Subscribes to topics when they are created."""
        waits, left = Waits(_BACKOFF), list(missing)
        while left:
            await asyncio.sleep(waits.next())  # nothing tells of a new topic
            for name in list(left):
                with suppress(*_PASSING):
                    if await self._exists(client, stream, name):
                        left.remove(name)
                        logger.warning(
                            "topic %r exists now: its messages are handled",
                            name,
                            extra={"action": "topic_found", "topic": name},
                        )

    async def _serve(
        self,
        stream: ConsumerStream,
        joining: Coroutine[Any, Any, None],
        threads: ThreadPoolExecutor,
        stopping: asyncio.Task[bool],
    ) -> None:
        taking = asyncio.create_task(_both(self._take(stream, threads), joining))
        try:
            ended = await _first(taking, stopping)
            stream.busy = True
            await stream.unsubscribe_all()
            if self._tasks:
                await asyncio.wait(self._tasks)
        except asyncio.CancelledError:
            for task in (taking, *self._tasks):
                task.cancel()
            raise
        if ended:
            taking.result()

    async def _take(self, stream: ConsumerStream, threads: ThreadPoolExecutor) -> None:
        while True:
            await self._acquire_slot(stream)
            try:
                lease = await stream.next()
            except BaseException:
                self._slots.release()
                raise
            task = self._tasks.start(self._work(stream, lease, threads))
            task.add_done_callback(lambda _: self._slots.release())

    async def _acquire_slot(self, stream: ConsumerStream) -> None:
        """Waits for a free handler. If that takes long, other workers get the messages that wait here."""
        while self._slots.locked():
            try:
                async with asyncio.timeout(_PATIENCE_S):
                    await self._slots.acquire()
            except TimeoutError:
                await stream.rest()
            else:
                stream.go_on()
                return
        await self._slots.acquire()
        stream.go_on()

    async def _work(
        self, stream: ConsumerStream, lease: AsyncLease, threads: ThreadPoolExecutor
    ) -> None:
        handler = self._handlers[lease.topic]
        try:
            sender = context_of(lease.headers)
            about = partial(span_attributes, lease)
            with span_of(TraceStep.PROCESS, lease.topic, about, parent=sender) as span:
                error = await self._call(handler.handle, lease, threads)
                if span is not None and error is not None:
                    fail(span, type(error).__name__, str(error))
            if error is not None:
                await self._failed(handler, lease, error)
            elif not lease.is_settled:
                await _settle_lease(lease, "ack", lease.ack)
        finally:
            if not lease.is_settled:  # without a handler it must not be renewed forever
                stream.lose(lease)

    async def _call(
        self, handle: Handle, lease: AsyncLease, threads: ThreadPoolExecutor
    ) -> BaseException | None:
        """Returns the handler's error, or None. Raises `CancelledError` if the worker ends."""
        if inspect.iscoroutinefunction(handle):
            return await _await(lambda: handle(lease))
        loop = asyncio.get_running_loop()
        context = contextvars.copy_context()
        try:
            answer, error = await loop.run_in_executor(
                threads, context.run, _run, handle, Lease(lease, loop)
            )
        except Exception as no_thread:
            return no_thread
        return await _await(lambda: answer) if isinstance(answer, Awaitable) else error

    async def _failed(self, handler: _Handler, lease: AsyncLease, error: BaseException) -> None:
        if lease.is_settled:
            logger.error(
                "the handler of message %r failed after it had settled it", lease.id, exc_info=error
            )
            return
        if isinstance(error, tuple(handler.retry.final)):
            logger.error("message %r is buried: %r", lease.id, error, exc_info=error)
            await _settle_lease(lease, "bury", partial(lease.bury, _reason(error)))
            return
        delay_s = handler.retry.delay_s(lease.attempts, random.random())
        logger.warning(
            "message %r failed, it is tried again in %.1f s: %r",
            lease.id,
            delay_s,
            error,
            exc_info=error,
        )
        await _settle_lease(lease, "retry", partial(lease.retry, delay=delay_s))


def _run(handle: Handle, lease: Lease) -> tuple[object, BaseException | None]:
    """Returns the result and the error of a plain handler.

    It raises nothing: some errors would end the event loop, and `StopIteration` never arrives there.
    """
    try:
        return handle(lease), None
    except BaseException as error:
        return None, error


async def _await(begin: Callable[[], Any]) -> BaseException | None:
    """Returns the error of an async handler, None if it has none.

    The handler has a task of its own, which tells its own cancellation from that of the worker.
    """
    task = asyncio.ensure_future(_finish(begin))
    try:
        return await task
    except asyncio.CancelledError as error:
        if is_cancelled():
            raise
        return error


async def _finish(begin: Callable[[], Any]) -> BaseException | None:
    try:
        await begin()
    except asyncio.CancelledError:
        raise
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) and current_thread() is main_thread():
            raise  # for the program that runs the worker
        return error
    return None


async def _both(work: Coroutine[Any, Any, None], other: Coroutine[Any, Any, None]) -> None:
    """Returns when both have ended. The first error ends the other one."""
    tasks = [asyncio.create_task(work), asyncio.create_task(other)]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _first(work: asyncio.Task[Any], stopping: asyncio.Task[bool]) -> bool:
    """Whether the work ended by itself; if `stop` came first, the work is cancelled."""
    try:
        await asyncio.wait([work, stopping], return_when=asyncio.FIRST_COMPLETED)
        return work.done() and not stopping.done()
    finally:
        if not work.done():
            work.cancel()
        await asyncio.gather(work, return_exceptions=True)


async def _settle_lease(lease: AsyncLease, what: str, ask: Callable[[], Awaitable[None]]) -> None:
    """Settles until it is done or refused, or the lease is over, which is renewed meanwhile."""
    waits = Waits(_BACKOFF)
    while True:
        try:
            await ask()
            return
        except _PASSING as error:
            problem, rest_s = error, waits.after(error)
        except ChronolineError as error:
            _summary.warning(
                f"{what}_refused", "the %s of message %r was refused: %s", what, lease.id, error
            )
            return
        going_on = lease.is_live
        _summary.warning(
            f"{what}_unanswered" if going_on else f"{what}_lost",
            "the %s of message %r was not answered, %s: %s",
            what,
            lease.id,
            "it is repeated" if going_on else "and its lease is over",
            problem,
        )
        if not going_on:
            return
        await asyncio.sleep(rest_s)  # the store gives no time to try again


def _reason(error: BaseException) -> str:
    """The error as text that every store can keep."""
    text = f"{type(error).__name__}: {error}".encode("utf-8", "replace").decode()
    return text.replace("\0", "")[:MAX_REASON_CHARACTERS]
