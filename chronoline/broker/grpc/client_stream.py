"""The base of the streams of producers and consumers: hello, pings, requests and answers, the end.

One task reads frames and one writes the replies in the outbox. Each request runs in a task of its own, so
answers can overtake each other. No frame is read while more than `in_flight_bytes` of requests, or too many,
are unanswered. A request counts until its answer is written: a client that does not read is not read from.
"""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Generic, TypeVar

from chronoline.broker.client_clocks import ClientClock
from chronoline.broker.context import BrokerContext
from chronoline.broker.limits import check_batch
from chronoline.broker.principals import ANYBODY, Principal, allowed_topic
from chronoline.core.errors import BrokerUnavailable, ChronolineError, InvalidInput, NodeBusy
from chronoline.core.limits import name_problem
from chronoline.core.rights import RightKind
from chronoline.runtime import audit
from chronoline.runtime.admission import Admitted, work_for
from chronoline.runtime.log_summary import LogSummary
from chronoline.runtime.message_ids import new_id
from chronoline.runtime.tasks import TaskSet
from chronoline.wire.codec import MESSAGE_FRAMES, read_changes, write_answer
from chronoline.wire.codes import failure_of
from chronoline.wire.message_bounds import parse_message
from chronoline.wire.v1 import chronoline_pb2 as pb

logger = logging.getLogger(__name__)
_summary = LogSummary(logger)

STOPPING = "stopping"
"""The code of the frame to all clients of a broker that stops."""
_LAST_ANSWERS_S = 2.0
"""The longest wait for answers that are under way when a stream has to end."""
_MOST_REQUESTS = 1_000
"""The most unanswered requests of a stream: each counts as this part of `in_flight_bytes` at least."""
_MOST_TOGETHER = 10_000
"""The most frames that a client may send in one."""
_CLOGGED_BYTES = 4 * 1024 * 1024
_TOGETHER = 64
_TOGETHER_BYTES = 64 * 1024
"""The most bytes in one frame: each frame costs a turn through gRPC, and each reply in one a copy."""

Frame = TypeVar("Frame", pb.ProducerFrame, pb.ConsumerFrame)
Reply = TypeVar("Reply", pb.ProducerReply, pb.ConsumerReply)
Item = TypeVar("Item")


class ClientStream(ABC, Generic[Frame, Reply]):
    """One stream of one client."""

    partner: str
    """Its name in the metrics: producer or consumer."""
    right: RightKind
    """The right that its requests need, under its name."""
    prefix: str
    """The beginning of names that the broker makes."""
    frame_type: type[Frame]
    reply_type: type[Reply]

    def __init__(self, parts: BrokerContext, client: str = "") -> None:
        """`client` is the client whose share of the node its requests take."""
        self._parts = parts
        self._client = client
        self.count_streams: Callable[[], int] = lambda: 1
        """Counts the open streams of the broker."""
        self.principal: Principal = ANYBODY
        self.origin = ""
        self.name = ""
        self.rack = ""
        self.outbox: Outbox[Reply] = Outbox()
        self.measured = ClientClock(parts.limits.clock_bound_ms)
        self.heard_s = time.monotonic()
        self._budget = Budget(parts.limits.in_flight_bytes)
        self._least_bytes = parts.limits.in_flight_bytes // _MOST_REQUESTS
        self._admitted: set[Admitted] = set()
        self._running = TaskSet()
        self._writing: asyncio.Task[None] | None = None
        self._write_since_s: float | None = None
        self._ending: asyncio.Task[None] | None = None
        # False while too much is under way. The silence of the client is then ignored.
        self._listens = True

    # The interface for subclasses

    @abstractmethod
    async def _carry_out(self, frame: Frame) -> None:
        """Carries out a request, and answers it."""

    async def _change(self, frame: Frame, reply: Reply, session: str = "") -> None:
        """Makes the changes of a frame, and answers them by this reply."""
        batch = read_changes(frame)
        check_batch(len(batch.items), self._parts.limits)
        await self._check_right(batch.topic_uid)
        changes = batch.changes(self.name, session)
        outcomes = await self._parts.carrier.change(batch.topic_uid, changes, again=batch.again)
        write_answer(reply, batch.operation, outcomes)
        self.outbox.put(reply)

    async def _check_right(self, topic_uid: int) -> None:
        """Raises `Forbidden` unless the principal may use its name on this topic, and `TopicNotFound`."""

        def check(topic: str) -> None:
            self.principal.check(self.right, topic, self.name)

        await allowed_topic(self._parts.topics, self.principal, topic_uid, check)

    def _join(self, name: str, instance: str) -> None:
        """The client has sent its name."""
        self.name = name

    def leave(self) -> None:
        """Pushes nothing more to it."""

    def _left(self) -> None:
        """The stream has ended."""

    # The life of a stream

    async def serve(
        self, frames: AsyncIterator[bytes], write: Callable[[bytes], Awaitable[None]]
    ) -> None:
        """Serves the stream until the client ends it, or it has to end. Frames are bytes, as they travel.

        It returns, and does not raise, when the writing was cancelled: only then gRPC tells the client.
        """
        reading = asyncio.create_task(self._read(frames))
        self._writing = asyncio.create_task(self._write(write))
        try:
            await asyncio.wait([self._writing])
            if not self._writing.cancelled():
                self._writing.result()
        finally:
            tasks = [reading, self._writing, *self._running]
            tasks += [self._ending] if self._ending else []
            for task in tasks:
                task.cancel()
            self._left()  # before any await, which could be cancelled
            try:
                await asyncio.gather(*tasks, return_exceptions=True)
            finally:  # answers that were not written
                for admitted in self._admitted:
                    admitted.end()

    async def _write(self, write: Callable[[bytes], Awaitable[None]]) -> None:
        metrics = self._parts.metrics
        while replies := await self.outbox.take():
            reply, *more = replies
            if more:
                reply.more.extend(more)  # type: ignore[arg-type]  # both are of this kind
            now_us, epoch = self._parts.timekeeper.stamp()
            reply.stamp.now_us, reply.stamp.epoch = now_us, epoch
            leaving = reply.SerializeToString()
            self._write_since_s = time.monotonic()
            await write(leaving)
            self._write_since_s = None
            metrics.add("network_broker_bytes_total", ("out", self.partner, ""), len(leaving))
            self._wrote()

    def _wrote(self) -> None:
        """The outbox can have room again."""

    def go_away(self, code: str, message: str) -> None:
        """Tells the client to connect again. The stream ends when the requests under way are answered."""
        if self._ending is None:
            self.leave()
            others = self._parts.overseer.others if code == STOPPING else ()
            go_away = pb.GoAway(code=code, message=message, others=others)
            self.outbox.put(self.reply_type(go_away=go_away))
            self._ending = asyncio.create_task(self._end())

    def suggest_move(self, move: pb.MoveTo) -> None:
        """Suggests to move to another broker; the client may stay."""
        self.outbox.put(self.reply_type(move_to=move))

    def brokers_changed(self, others: Sequence[str]) -> None:
        """Tells a client that has been welcomed the addresses of the other brokers."""
        if self.name:
            self.outbox.put(self.reply_type(known_brokers=pb.KnownBrokers(others=others)))

    async def _end(self) -> None:
        if self._running:
            await asyncio.wait(self._running, timeout=_LAST_ANSWERS_S)
        self._close()

    def _close(self) -> None:
        """Closes the outbox, whose replies are still written. Nothing more is leased to the client."""
        self.leave()
        self.outbox.close()

    def check_alive(self, now_s: float) -> None:
        """Ends the stream if its client is silent, or does not read."""
        timeout_s = self._parts.limits.ping_timeout_ms / 1000
        if self._write_since_s is not None and now_s - self._write_since_s > timeout_s:
            _summary.warning(
                "stream_stuck", "%s %r does not read; its stream ends", self.partner, self.name
            )
            self._write_since_s = None  # it is ended once
            if self._writing is not None:
                self._writing.cancel()
        elif self._listens and now_s - self.heard_s > timeout_s:
            _summary.warning(
                "stream_silent", "%s %r is silent; its stream ends", self.partner, self.name
            )
            missed = (
                "nothing came from the client" if self.name else "no hello came from the client"
            )
            self.go_away("silent", f"{missed} for {timeout_s:g} s")

    # Reading

    async def _read(self, frames: AsyncIterator[bytes]) -> None:
        metrics = self._parts.metrics
        work_for(self._client)  # its requests run in tasks that this one starts
        try:
            async for received in frames:
                self._heard()
                metrics.add("network_broker_bytes_total", ("in", self.partner, ""), len(received))
                await self._take_in_all(received)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            metrics.add("networkbroker_active_channels_errors", (self.partner, ""))
            _summary.warning(
                "stream_ended", "the stream of %s %r ended: %s", self.partner, self.name, error
            )
        finally:
            if self._running:
                await asyncio.wait(self._running)  # every request is answered
            self._close()

    def _heard(self) -> None:
        """Notes a sign of life. Before its hello a client counts as silent, whatever it sends."""
        if self.name:
            self.heard_s = time.monotonic()

    async def _take_in_all(self, received: bytes) -> None:
        """Takes in the frames that travelled in one."""
        try:
            frame = parse_message(self.frame_type, received)
        except InvalidInput as error:
            not_one = _refuse(InvalidInput, f"not a frame: {error}")
            await self._take_in(self.frame_type(), not_one, 0)
            return
        count = 1 + len(frame.more)
        if count > _MOST_TOGETHER:
            too_many = _refuse(
                InvalidInput,
                f"{count} frames in one; at most {_MOST_TOGETHER} are allowed. Nothing was changed",
            )
            await self._take_in(frame, too_many, len(received))
            return
        size_bytes = len(received) // count
        await self._take_in(frame, self._work_of(frame), size_bytes)
        for each in frame.more:
            work = _refuse(InvalidInput, _NESTED) if each.more else self._work_of(each)
            await self._take_in(each, work, size_bytes)

    def _work_of(self, frame: Frame) -> Callable[[Frame], Awaitable[None]]:
        what = frame.WhichOneof("what")
        if what == "ping":
            return self._pinged
        if what == "hello" or not self.name:
            return self._hello
        return self._carry_out if self._ending is None else _refuse(BrokerUnavailable, _ENDING)

    async def _take_in(
        self, frame: Frame, work: Callable[[Frame], Awaitable[None]], size_bytes: int
    ) -> None:
        """Waits for room, then starts a request in a task. Pings and hellos are answered at once."""
        size_bytes = max(size_bytes, self._least_bytes)
        self._listens = False
        await self._budget.take(size_bytes)
        admitted: Admitted | None = None
        if work == self._carry_out:
            try:
                admitted = await self._parts.admission.admit(
                    self._client, size_bytes, read_bytes=size_bytes
                )
                self._admitted.add(admitted)
            except NodeBusy as error:
                self._parts.metrics.refused("grpc", "node_busy")
                work = _refuse(NodeBusy, str(error))
        self._listens = True
        self._heard()

        def end() -> None:
            self._budget.give(size_bytes)
            if admitted is not None:
                admitted.end()
                self._admitted.discard(admitted)

        answering = self._answer(frame, work, end)
        if work == self._carry_out:
            self._running.start(answering)
        else:
            await answering

    async def _answer(
        self, frame: Frame, work: Callable[[Frame], Awaitable[None]], end: Callable[[], None]
    ) -> None:
        what = frame.WhichOneof("what") or "nothing"
        metrics = self._parts.metrics
        is_counted = what in MESSAGE_FRAMES  # by the carrier, with its topic
        counting = nullcontext() if is_counted else metrics.command(what, "")
        try:
            with counting, self._audited(what):
                await work(frame)
        except ChronolineError as error:
            self.outbox.put(self.reply_type(seq=frame.seq, failure=failure_of(error)))
        except Exception as error:
            logger.exception("a request of %s %r failed", self.partner, self.name)
            self.outbox.put(self.reply_type(seq=frame.seq, failure=failure_of(error)))
        finally:
            self.outbox.when_taken(end)

    def _audited(self, what: str) -> AbstractContextManager[object]:
        if what in MESSAGE_FRAMES:  # they need rights to names, and are counted instead
            return nullcontext()
        request = audit.AuditedRequest(what, self.origin)
        request.who = self.principal.who
        return request

    async def _hello(self, frame: Frame) -> None:
        if frame.WhichOneof("what") != "hello":
            raise InvalidInput("the first frame of a stream must be a hello")
        if self.name:
            raise InvalidInput("the stream has sent its hello already")
        name = frame.hello.name or f"{self.prefix}{new_id()}"
        if problem := name_problem(self.partner, name):
            raise InvalidInput(problem)
        self.principal.check(self.right, name=name)
        self.rack = frame.hello.rack
        # A replaced instance is remembered, so it must be small too.
        for what, given in (("rack", self.rack), ("instance", frame.hello.instance)):
            if given and (problem := name_problem(what, given)):
                raise InvalidInput(problem)
        self._join(name, frame.hello.instance)
        self._heard()
        limits = self._parts.limits
        welcome = pb.Welcome(
            broker=self._parts.broker,
            version=self._parts.version,
            name=name,
            limits=pb.Limits(
                frame_bytes=limits.frame_bytes,
                batch=limits.batch,
                credit=limits.credit,
                ping_interval_ms=self._ping_interval_ms,
                ping_timeout_ms=limits.ping_timeout_ms,
            ),
            others=self._parts.overseer.others,
        )
        self.outbox.put(self.reply_type(seq=frame.seq, welcome=welcome))

    async def _pinged(self, frame: Frame) -> None:
        ping = frame.ping
        now_us, _ = self._parts.timekeeper.stamp()
        drift = self.measured.pinged(
            client_us=ping.client_us,
            now_us=now_us,
            sent_us=ping.sent_us,
            round_trip_us=ping.round_trip_us,
            measured_us=ping.measured_us,
        )
        self._busied(ping.busy)
        pong = pb.Pong(
            sent_us=ping.sent_us,
            drift_us=drift.drift_us,
            drifting=drift.drifting,
            interval_ms=self._ping_interval_ms,
        )
        self.outbox.put(self.reply_type(seq=frame.seq, pong=pong))

    @property
    def _ping_interval_ms(self) -> int:
        return self._parts.limits.ping_interval_of(self.count_streams())

    def _busied(self, busy: bool) -> None:
        """The client is busy, or not any more."""


_ENDING = "the stream is ending; nothing was changed. Reconnect"
_NESTED = "a frame inside another one must not contain further ones; nothing was changed"


def _refuse(kind: type[ChronolineError], why: str) -> Callable[[object], Awaitable[None]]:
    async def refuse(_: object) -> None:
        raise kind(why)

    return refuse


class Outbox(Generic[Item]):
    """A queue without waiting: loaders push nothing while it is clogged, and requests bound the answers."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Item, int]] = deque()
        self._taken = 0
        # Callbacks, each with the number of replies after which it is called.
        self._callbacks: deque[tuple[int, Callable[[], None]]] = deque()
        self._bytes = 0
        self._news = asyncio.Event()
        self._closed = False

    @property
    def clogged(self) -> bool:
        return self._bytes > _CLOGGED_BYTES

    def put(self, reply: Item, size_bytes: int = 0) -> None:
        if not self._closed:
            self._waiting.append((reply, size_bytes))
            self._bytes += size_bytes
            self._news.set()

    def when_taken(self, tell: Callable[[], None]) -> None:
        """Calls back when every reply that waits now is taken."""
        self._callbacks.append((self._taken + len(self._waiting), tell))
        self._call_back()

    def _call_back(self) -> None:
        while self._callbacks and self._callbacks[0][0] <= self._taken:
            self._callbacks.popleft()[1]()

    def close(self) -> None:
        """Takes no more replies. The waiting ones are still written."""
        self._closed = True
        self._news.set()

    async def take(self) -> list[Item]:
        """The next replies that travel together; empty at the end."""
        while not self._waiting and not self._closed:
            self._news.clear()
            await self._news.wait()
        taken: list[Item] = []
        room_bytes = _TOGETHER_BYTES
        while self._waiting and len(taken) < _TOGETHER:
            reply, size_bytes = self._waiting[0]
            if taken and size_bytes > room_bytes:
                break
            self._waiting.popleft()
            self._bytes -= size_bytes
            room_bytes -= size_bytes
            taken.append(reply)
        self._taken += len(taken)
        self._call_back()
        return taken


class Budget:
    """A budget of bytes. A request waits until it fits; an empty budget takes one of any size."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._used_bytes = 0
        self._freed = asyncio.Event()

    async def take(self, size_bytes: int) -> None:
        while self._used_bytes and self._used_bytes + size_bytes > self._most_bytes:
            self._freed.clear()
            await self._freed.wait()
        self._used_bytes += size_bytes

    def give(self, size_bytes: int) -> None:
        self._used_bytes -= size_bytes
        self._freed.set()
