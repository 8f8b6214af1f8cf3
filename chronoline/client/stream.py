"""A stream to the broker that reopens by itself, and requests that are repeated until they are answered.

Requests of the same kind that are made in one turn of the event loop travel in one frame, and a request that
is too large for one in several. Requests that were unanswered when the stream broke are repeated on the next
one: ids are made before the first attempt, and the store does nothing twice. A failure of the kind *try
again* or *unknown* is repeated too, until the time-out of the request. Then it is *unknown* if any part of it
left, else the broker is *unavailable*. A request that is refused as a whole is *unknown* too if another part
of it, or an earlier attempt, may have been done.

A stream that breaks opens again at another broker, if there is one (`brokers`), and so does one whose broker
suggests to move: it lets requests under way be answered, and takes the held leases along.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any, ClassVar

from grpc import aio

from chronoline.client.broker_time import BrokerTime, monotonic_us
from chronoline.client.brokers import BACKOFF, Brokers
from chronoline.client.connection import Connection
from chronoline.client.outcomes import Outcome, read_answer
from chronoline.client.requests import FrameLimits, Part, Request, RequestQueue
from chronoline.core.errors import (
    BrokerUnavailable,
    ChronolineError,
    ClientClosed,
    ConsumerReplaced,
    Forbidden,
    InvalidInput,
    OutcomeUnknown,
    StoreBusy,
    Unauthenticated,
    WrongBroker,
)
from chronoline.core.outcome import REASONS, Refusal
from chronoline.core.version import VERSION
from chronoline.runtime.backoff import Waits
from chronoline.runtime.message_ids import new_id
from chronoline.runtime.tasks import is_cancelled
from chronoline.wire.codes import FailureKind, error_of
from chronoline.wire.v1 import chronoline_pb2 as pb

logger = logging.getLogger(__name__)

_FRAME_ITEMS = 5_000
_FRAME_BYTES = 2 * 1024 * 1024
_TOGETHER = 1_000
"""The most frames that travel in one, besides a request."""
_SHORTEST_PING_S = 0.05
_EARLIEST_PING = 0.8
"""Pings are sent after this part of their interval at least: those of streams that opened together spread."""
_LAST_ANSWERS_S = 2.0
_LAST_ANSWERS_OF_DEGRADED_S = 0.5
"""How long a move waits for the answers of a broker: one without its store has none to give."""
_LAST_WORDS_S = 1.0
_WELCOME_S = 10.0
_WELCOME_IN_CLUSTER_S = 2.0
"""The first wait for a welcome while there is another broker to go to; it doubles with each failure."""
_SILENCE_IN_CLUSTER_S = 3.0
"""A broker that sends nothing for this time, and for three pings, is left while there is another one."""
_GOODBYE_S = 1.0
_BUSY_REST_S = 0.2
_DEGRADED = "degraded"
_FINAL = (Unauthenticated, Forbidden, ConsumerReplaced, ClientClosed)
"""An error after which reopening the stream would not help."""


class Stream(ABC):
    """One stream, from its first use until `close`."""

    method: ClassVar[str]
    frame_type: ClassVar[Any]
    reply_type: ClassVar[Any]
    kind: ClassVar[pb.PreferRequest.Kind]

    def __init__(self, brokers: Brokers, name: str, *, timeout_s: float) -> None:
        self._brokers = brokers
        self._connection: Connection = brokers.at(brokers.book.known[0])
        """To the broker of the stream; before that, to the one that is tried first."""
        self._topic_uid = 0
        """The topic by which a broker is preferred: the first one."""
        self._suggestion = pb.MoveTo()
        self._suggested_news = asyncio.Event()
        self._move_to = ""
        """The broker of the next stream; empty if the preferred one is asked for."""
        self._failures = 0
        self._was_open = False
        self._is_cut_off = False
        """The stream was open once, and since then no broker answers; the log has it."""
        self.name = name
        """The requested name; after the welcome, the name from the broker."""
        self._instance = new_id()
        self._timeout_s = timeout_s
        self.time = BrokerTime()
        self.limits = pb.Limits(frame_bytes=16 * 1024 * 1024, batch=10_000, ping_interval_ms=1_000)
        self.busy = False
        """Sent with each ping."""
        self._drifting = False
        self._queue = RequestQueue()
        self._sent: dict[int, list[Part]] = {}
        self._resting: dict[Part, asyncio.TimerHandle] = {}  # until they are repeated
        self._seq = 0
        self._frames: list[Any] = []  # written before requests, in this order
        self._news = asyncio.Event()
        self._ready = False
        self._leaving: ChronolineError = BrokerUnavailable("the broker ended the stream")
        """The reason why the open stream ends."""
        self._round_trip_us = 0
        """Of the last ping that was answered, which was sent at `_measured_us`."""
        self._measured_us = 0
        self._ping_interval_ms = self.limits.ping_interval_ms
        self._unheard = 0
        """Pings since the last frame of the broker."""
        self._running: asyncio.Task[None] | None = None
        self._closed = False
        self.failure: ChronolineError | None = None
        """Why it will never open."""

    # The interface for callers

    async def request(self, kind: Any, items: Sequence[Any], *, again: bool = False) -> list[Any]:
        """Returns an answer for each item. Raises the broker's error for all of them.

        `again` says that an earlier request for the same was not answered.
        """
        if self._closed:
            raise ClientClosed
        if self.failure is not None:
            raise self.failure
        if not items:
            return []
        self._topic_uid = self._topic_uid or kind.topic_uid
        loop = asyncio.get_running_loop()
        sizes_bytes = [self._size_bytes(kind, item) for item in items]
        request = Request(kind, items, sizes_bytes, loop.create_future(), again=again)
        self._enqueue(Part(request, 0, len(items)))
        self.open()
        timer = loop.call_later(self._timeout_s, self._give_up, request)
        try:
            return await request.future
        finally:
            timer.cancel()
            self._queue.drop(request)

    @property
    def address(self) -> str:
        """The broker that it uses, or tries."""
        return self._connection.address

    def open(self) -> None:
        if self._running is None:
            self._running = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Waits a moment for requests under way, then closes. May be called twice."""
        under_way = {each.request.future for each in self._unanswered() if not each.request.done}
        if under_way and self._ready:
            await asyncio.wait(under_way, timeout=_LAST_ANSWERS_S)
        self._closed = True
        self._news.set()
        if self._running is not None:
            if (
                self._ready
            ):  # ends the call, so that gRPC logs nothing when the event loop is closed
                await asyncio.wait([self._running], timeout=_GOODBYE_S)
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
        for part in self._unanswered():
            self._give_up(part.request, "the client was closed before the broker answered")
        self._rest_no_more()

    def _unanswered(self) -> list[Part]:
        sent = (each for parts in self._sent.values() for each in parts)
        return [*self._queue.parts, *sent, *self._resting]

    def _rest_no_more(self) -> None:
        for timer in self._resting.values():
            timer.cancel()
        self._resting.clear()

    def _enqueue(self, part: Part) -> None:
        self._queue.add(part)
        self._news.set()

    def _give_up(self, request: Request, why: str | None = None) -> None:
        if request.done:
            return
        if why is None:
            why = self._why_late(request)
        elif request.last is not None:
            why = f"{why}: {request.last}"
        error: ChronolineError
        if request.sent:
            error = OutcomeUnknown(
                f"it may have happened or not; ask again with the same ids: {why}"
            )
        else:
            error = BrokerUnavailable(f"nothing was changed: {why}")
        error.retry_after_ms = None if request.last is None else request.last.retry_after_ms
        request.fail(error)

    def _why_late(self, request: Request) -> str:
        address, last = self._connection.address, request.last
        if last is not None and request.is_answer:
            return f"it was not done within {self._timeout_s:g} s; {address} last answered: {last}"
        because = "" if last is None else f": {last}"
        return f"no answer came from {address} within {self._timeout_s:g} s{because}"

    @property
    def _hello(self) -> pb.Hello:
        return pb.Hello(
            name=self.name, version=VERSION, instance=self._instance, rack=self._brokers.rack
        )

    # The interface for subclasses

    @abstractmethod
    def _request_frame(self, kind: Any, items: Sequence[Any], seq: int, *, again: bool) -> Any:
        """The frame with these items. `again` says that an earlier attempt was not answered."""

    @abstractmethod
    def _size_bytes(self, kind: Any, item: Any) -> int:
        """The approximate size of an item in a frame."""

    def _answers(self, reply: Any, parts: Sequence[Part]) -> list[Outcome]:
        """The answers of a reply for each item of these parts."""
        return read_answer(reply)

    def _can_repeat(self, part: Part) -> bool:
        """Whether a part that left and was not answered may be repeated: the store does nothing twice."""
        return True

    @abstractmethod
    async def _welcomed(self) -> None:
        """The stream is open; earlier requests are repeated after this."""

    @abstractmethod
    def _received(self, reply: Any) -> None:
        """Processes a reply without a request."""

    # The life of the stream

    async def _run(self) -> None:
        waits = Waits(BACKOFF)
        while not self._closed:
            generation = -1  # of no channel
            try:
                self._connection = await self._choose()
                generation = self._connection.generation
                await self._live(waits)
            except _Moved as error:
                self._interrupted(error)
                continue
            except (Exception, asyncio.CancelledError) as error:
                if isinstance(error, asyncio.CancelledError) and is_cancelled():
                    raise
                if isinstance(error, TimeoutError):
                    await self._connection.give_up(generation)
                known = self._known(error)
                self._log("stream_broken", "broke: %s", known)
                # The broker would refuse every further hello too.
                if isinstance(known, _FINAL) or isinstance(error, InvalidInput):
                    self._fail(known)
                    return
                if isinstance(known, WrongBroker):
                    self._brokers.sent_on(self._connection.address, known)
                self._failures += 1
                self._brokers.failed(self._connection.address)
                self._interrupted(known)
                self._warn_of_outage(known)
            if self._brokers.all_failed:
                await asyncio.sleep(waits.next())  # before it reopens

    def _log(self, action: str, words: str, *values: object) -> None:
        """Logs a step of a fail-over, with its action and the name of the client."""
        logger.debug(
            f"the stream of %r to %s {words}",
            self.name,
            self._connection.address,
            *values,
            extra={"action": action, "client": self.name},
        )

    def _warn_of_outage(self, error: ChronolineError) -> None:
        """Logs once that no broker is left. A stream that opens again at once was not cut off."""
        is_out = self._failures > 1 and self._brokers.all_failed
        if self._was_open and is_out and not self._is_cut_off:
            self._is_cut_off = True
            logger.warning(
                "the connection is lost, and is tried again until a broker answers: %s", error
            )

    async def _choose(self) -> Connection:
        """The connection for the next stream: where the broker suggested to move, or the preferred one."""
        suggested, self._move_to = self._move_to, ""
        self._suggested_news.clear()
        if suggested:
            return self._brokers.at(suggested)
        return await self._brokers.choose(self.kind, self._topic_uid)

    def _known(self, error: BaseException) -> ChronolineError:
        """The error for waiting requests."""
        if isinstance(error, aio.AioRpcError):
            return self._connection.error_of(error)
        if isinstance(error, ChronolineError):
            return error
        if isinstance(error, TimeoutError):
            return BrokerUnavailable(f"nothing comes from the broker at {self._connection.address}")
        if not isinstance(error, OSError | asyncio.InvalidStateError | asyncio.CancelledError):
            logger.error("the stream to the broker failed; it reopens", exc_info=error)
        return BrokerUnavailable(f"the stream to {self._connection.address} broke: {error}")

    async def _live(self, waits: Waits) -> None:
        call = self._connection.stream(self.method, self.reply_type)
        tasks: list[asyncio.Task[None]] = []
        try:
            replies = call.__aiter__()
            async with asyncio.timeout(self._welcome_s):
                await call.write(self.frame_type(hello=self._hello))
                behind_welcome = await self._take_welcome(replies)
            self._brokers.answered(self._connection.address)
            self._log("stream_open", "is open")
            self._was_open = True
            if self._is_cut_off:
                self._is_cut_off = False
                logger.warning("connected again, to the broker at %s", self._connection.address)
            self._failures = 0
            waits.reset()
            tasks += map(
                asyncio.create_task,
                (
                    self._read(behind_welcome, replies),
                    self._write(call),
                    self._ping(),
                    self._open_up(),
                    self._move(),
                ),
            )
            running: set[asyncio.Task[None]] = set(tasks)
            while running:
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                errors = filter(None, (task.exception() for task in done))
                if any(not isinstance(error, _Moved) for error in errors):
                    # Writing fails before the broker's last frame is read, which has the reason.
                    await asyncio.wait(tasks[:1], timeout=_LAST_WORDS_S)
                    done |= {each for each in tasks[:1] if each.done()}
                for task in sorted(done, key=tasks.index):
                    task.result()
        finally:
            self._ready = False
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            call.cancel()

    @property
    def _welcome_s(self) -> float:
        """How long to wait for a welcome. Under load all brokers may be slow, so it grows."""
        if not self._brokers.has_others:
            return _WELCOME_S
        return min(_WELCOME_S, _WELCOME_IN_CLUSTER_S * 2.0 ** min(self._failures, 3))

    async def _move(self) -> None:
        """Leaves for the suggested broker, when the requests under way are answered."""
        move_to = ""
        while not move_to:
            await self._suggested_news.wait()
            self._suggested_news.clear()
            move_to = await self._destination(self._suggestion)
        logger.info("moving to the broker at %s: %s", move_to, self._suggestion.message)
        self._move_to, self._ready = move_to, False
        under_way = {part.request.future for parts in self._sent.values() for part in parts}
        if under_way:
            is_degraded = self._suggestion.reason == _DEGRADED
            wait_s = _LAST_ANSWERS_OF_DEGRADED_S if is_degraded else _LAST_ANSWERS_S
            await asyncio.wait(under_way, timeout=wait_s)
        raise _Moved(f"the stream moves to {self._move_to}")

    async def _destination(self, move: pb.MoveTo) -> str:
        """The broker to move to; empty if this one is as good as any."""
        if move.reason != _DEGRADED:
            return move.address
        return await self._brokers.healthy_one(
            move.address, self._connection.address, self.kind, self._topic_uid
        )

    def _suggested(self, move: pb.MoveTo) -> None:
        if move.address != self._connection.address and self._brokers.accepts(move.address):
            self._suggestion = move
            self._suggested_news.set()

    async def _open_up(self) -> None:
        await self._welcomed()
        self._ready = True
        self._news.set()

    async def _take_welcome(self, replies: AsyncIterator[Any]) -> Sequence[Any]:
        """Processes the welcome, and returns the replies that came with it."""
        self.time.forget()  # it may be another broker, with another clock
        async for reply in replies:
            self._heard(reply)
            if reply.WhichOneof("what") == "failure":
                raise error_of(reply.failure)
            if reply.WhichOneof("what") == "welcome":
                self.name = reply.welcome.name
                self.limits = reply.welcome.limits
                self._brokers.learn(self._connection.address, reply.welcome.others)
                return reply.more  # type: ignore[no-any-return]  # of either kind
        raise BrokerUnavailable("the broker ended the stream before it said welcome")

    def _heard(self, reply: Any) -> None:
        self._unheard = 0
        self.time.heard(reply.stamp.now_us, reply.stamp.epoch)

    def _fail(self, error: ChronolineError) -> None:
        self.failure = error
        for part in self._unanswered():
            part.request.refuse(error)
        self._queue.clear()
        self._sent.clear()
        self._rest_no_more()

    def _interrupted(self, error: ChronolineError) -> None:
        """Repeats requests without an answer, if that does nothing twice."""
        sent = [each for parts in self._sent.values() for each in parts]
        for part in sent:
            if not self._can_repeat(part):
                self._leave_unknown(part, error)
        self._queue.add_first(each for each in sent if not each.request.done)
        self._sent.clear()
        self._frames.clear()
        for part in self._queue.parts:
            part.request.last, part.request.is_answer = error, False

    # Writing

    async def _write(self, call: aio.StreamStreamCall[Any, Any]) -> None:
        with suppress(aio.AioRpcError, asyncio.InvalidStateError):  # the reader gets the reason
            while True:
                askable = self._ready and not self._closed and self._queue
                frames = self._next_frames() if askable else []
                frames += self._frames[:_TOGETHER]
                self._frames = self._frames[_TOGETHER:]
                if frames:
                    frame, *more = (*frames, *self._riders())
                    if more:
                        frame.more.extend(more)
                    await call.write(frame)
                elif self._closed:
                    await call.done_writing()  # the broker ends the stream, and with it the reader
                    return
                elif not askable:
                    self._news.clear()
                    await self._news.wait()

    def _riders(self) -> list[Any]:
        """Frames that are in no hurry, and travel with others."""
        return []

    def _send_frame(self, frame: Any) -> None:
        """Writes a frame that needs no answer."""
        self._frames.append(frame)
        self._news.set()

    def _next_frames(self) -> list[Any]:
        """The waiting requests that fit into one frame; none if they could not be encoded."""
        most_bytes = self.limits.frame_bytes
        parts = self._queue.take(
            FrameLimits(
                min(_FRAME_ITEMS, self.limits.batch), min(_FRAME_BYTES, most_bytes), most_bytes
            )
        )
        if not parts:
            return []
        items = [item for part in parts for item in part.items]
        try:
            kind, again = parts[0].key
            frame = self._request_frame(kind, items, self._seq + 1, again=again)
        except Exception as error:  # one request must not end the stream
            for part in parts:
                part.stay(InvalidInput(f"it cannot be sent: {error}"))
            return []
        self._seq += 1
        self._sent[self._seq] = parts
        for part in parts:
            part.left()
        return [frame]

    async def _ping(self) -> None:
        self._ping_interval_ms = self.limits.ping_interval_ms
        while True:
            self.ping()
            interval_s = max(self._ping_interval_ms / 1000, _SHORTEST_PING_S)
            await asyncio.sleep(random.uniform(_EARLIEST_PING, 1) * interval_s)
            # Counted, not measured: while our own loop is busy, no frame can arrive either.
            self._unheard += 1
            timeout_s = self.limits.ping_timeout_ms / 1000
            if self._brokers.has_others:
                timeout_s = min(timeout_s, max(_SILENCE_IN_CLUSTER_S, 3 * interval_s))
            if timeout_s and self._unheard * interval_s > timeout_s:
                raise TimeoutError

    def ping(self) -> None:
        ping = pb.Ping(
            client_us=time.time_ns() // 1000,
            sent_us=monotonic_us(),
            round_trip_us=self._round_trip_us,
            measured_us=self._measured_us,
            busy=self.busy,
        )
        self._send_frame(self.frame_type(ping=ping))

    # Reading

    async def _read(self, first: Sequence[Any], replies: AsyncIterator[Any]) -> None:
        self._leaving = BrokerUnavailable("the broker ended the stream")
        for reply in first:
            self._take_in(reply)
        async for frame in replies:
            self._heard(frame)
            for reply in (frame, *frame.more):
                self._take_in(reply)
        raise self._leaving

    def _take_in(self, reply: Any) -> None:
        what = reply.WhichOneof("what")
        if what == "pong":
            self._measured_us = reply.pong.sent_us
            self._round_trip_us = max(1, monotonic_us() - self._measured_us)
            self._ping_interval_ms = reply.pong.interval_ms or self._ping_interval_ms
            self._drifted(reply.pong)
        elif what == "go_away":
            self._leaving = _leaving(reply.go_away)  # requests under way are still answered
            self._ready = False
            if reply.go_away.others:
                self._brokers.learn(self._connection.address, reply.go_away.others)
        elif what == "move_to":
            self._suggested(reply.move_to)
        elif what == "known_brokers":
            self._brokers.learn(self._connection.address, reply.known_brokers.others)
        elif reply.seq in self._sent:
            self._answered(reply, self._sent.pop(reply.seq))
        else:
            self._received(reply)

    def _drifted(self, pong: pb.Pong) -> None:
        began, self._drifting = pong.drifting and not self._drifting, pong.drifting
        if began:
            logger.warning(
                "this machine's clock is %.3f s %s the broker's",
                abs(pong.drift_us) / 1_000_000,
                "ahead of" if pong.drift_us > 0 else "behind",
            )

    def _answered(self, reply: Any, parts: list[Part]) -> None:
        if reply.WhichOneof("what") == "failure":
            self._refused(reply.failure, parts)
            return
        answers = self._answers(reply, parts)
        begin = 0
        for part in parts:
            count = part.end - part.begin
            self._settle_part(part, answers[begin : begin + count])
            begin += count

    def _settle_part(self, part: Part, answers: Sequence[Outcome]) -> None:
        """Repeats, one by one, the messages that other transactions hold; answers the others."""
        if not any(answer.refusal is Refusal.BUSY for answer in answers):
            part.answered(answers)
            return
        loop = asyncio.get_running_loop()
        for answer in answers:
            alone = part.cut(1)
            if answer.refusal is not Refusal.BUSY:
                alone.answered([answer])
                continue
            alone.turned_back()
            alone.request.last = StoreBusy(REASONS[Refusal.BUSY])
            alone.request.is_answer = True
            self._resting[alone] = loop.call_later(_BUSY_REST_S, self._again, alone)

    def _refused(self, failure: pb.Failure, parts: list[Part]) -> None:
        loop = asyncio.get_running_loop()
        for part in parts:
            error = error_of(failure)
            if failure.kind == FailureKind.REFUSED.value:
                part.refused(error)
                continue
            part.request.last, part.request.is_answer = error, True
            if failure.kind == FailureKind.TRY_AGAIN.value:
                part.turned_back()
            elif not self._can_repeat(part):
                self._leave_unknown(part, error)
                continue
            rest_s = (failure.retry_after_ms or 100) / 1000
            self._resting[part] = loop.call_later(rest_s, self._again, part)

    @staticmethod
    def _leave_unknown(part: Part, error: ChronolineError) -> None:
        part.request.fail(
            OutcomeUnknown(f"it may have happened or not, and is not repeated: {error}")
        )

    def _again(self, part: Part) -> None:
        del self._resting[part]
        if not part.request.done and not self._closed:
            self._enqueue(part)


class _Moved(BrokerUnavailable):
    """The stream ends because it opens again at the broker that was suggested."""


def _leaving(go_away: pb.GoAway) -> ChronolineError:
    if go_away.code == "replaced":
        return ConsumerReplaced(go_away.message)
    return BrokerUnavailable(go_away.message)
