"""Leases: the messages that a consumer gets, and the calls that settle them."""

from __future__ import annotations

import asyncio
import json
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from chronoline.client.outcomes import Outcome
from chronoline.client.times import Delay, lease_length_ms, when
from chronoline.core.change import Change
from chronoline.core.errors import (
    ChronolineError,
    ClientClosed,
    InvalidInput,
    OutcomeUnknown,
    Refused,
)
from chronoline.core.limits import reason_problem
from chronoline.core.message import After, Header, LeaseTime
from chronoline.core.outcome import LEASE_IS_OVER, Refusal
from chronoline.core.permissions import Operation
from chronoline.runtime.timestamps import from_ms, show_moment, to_ms
from chronoline.runtime.traces import (
    NO_TRACE,
    SETTLEMENTS,
    Attributes,
    TraceStep,
    context_of,
    fail,
    span_of,
    tracer,
)
from chronoline.wire.codec import headers_from_wire
from chronoline.wire.v1 import chronoline_pb2 as pb

if TYPE_CHECKING:
    from opentelemetry.trace import Span
    from pydantic import BaseModel

    from chronoline.client.consumer_stream import ConsumerStream

    Model = TypeVar("Model", bound=BaseModel)


class AsyncLease:
    """One message, and the right to it until its lease is over.

    Settle it with one of `ack`, `retry`, `release`, `bury`. Until then `extend` keeps it; when the lease is
    over, or was lost, `is_lost` is true and the message is served again, perhaps to another consumer.

    Repeating the same call is done, and changes nothing; another call after it raises `ChronolineError`. A
    lease that was over when it was settled is refused with the same reason ever after.
    """

    def __init__(
        self, stream: ConsumerStream, topic: str, topic_uid: int, delivery: pb.Delivery
    ) -> None:
        self._stream = stream
        self._delivery = delivery
        self.topic = topic
        self.topic_uid = topic_uid
        self.version = delivery.version
        """The fencing token: it grows with every change, so a later holder always has a greater one."""
        self._until_ms = delivery.until_ms
        self.lost = asyncio.Event()
        """Set when it is known that another consumer may have the message."""
        # The change that settles it: sent, or done.
        self._settlement: Change | None = None
        # Its outcome, unless that leaves the lease unchanged.
        self._outcome: Outcome | None = None
        # An extension gives the lease another version: the next change has to wait for its answer.
        self._turn = asyncio.Lock()
        self._extending = False
        # An extension was not answered: it is settled before the next change, which needs the version.
        self._extension_unknown = False
        # A settlement was not answered: it may have been done already when the next call comes.
        self._settling_unknown = False
        self.handed_over_us: int | None = None
        self.in_hand = False
        """Whether it was handed over to the caller, which settles it."""

    def __repr__(self) -> str:
        return f"<lease of {self.id!r} on {self.topic!r}, version {self.version}>"

    @property
    def id(self) -> str:
        return self._delivery.id

    @property
    def body(self) -> bytes:
        """The body as bytes; empty if there is none."""
        return self._delivery.body

    @property
    def key(self) -> bytes | None:
        return self._delivery.key if self._delivery.HasField("key") else None

    @property
    def headers(self) -> tuple[Header, ...]:
        return headers_from_wire(self._delivery.headers)

    def header(self, name: str) -> bytes | None:
        """The last header of this name."""
        return next((value for each, value in reversed(self.headers) if each == name), None)

    @property
    def due(self) -> datetime:
        """The time at which the message is meant to fire, in UTC."""
        return from_ms(self._delivery.due_ms)

    @property
    def until(self) -> datetime:
        """The end of the lease, by the broker's clock, in UTC."""
        return from_ms(self._until_ms)

    @property
    def attempts(self) -> int:
        """The number of failed attempts before this one."""
        return self._delivery.attempts

    @property
    def redelivered(self) -> bool:
        """Whether an earlier lease on it lapsed: another consumer may have worked on it."""
        return self._delivery.redelivered

    @property
    def producer_group(self) -> str:
        return self._delivery.producer_group

    @property
    def consumer(self) -> str:
        return self._stream.name

    @property
    def traceparent(self) -> str | None:
        """The `traceparent` of its sender, as in W3C Trace Context."""
        value = self.header("traceparent")
        return None if value is None else value.decode("ascii", "replace")

    @property
    def tracestate(self) -> str | None:
        """The `tracestate` of its sender, as in W3C Trace Context."""
        value = self.header("tracestate")
        return None if value is None else value.decode("ascii", "replace")

    @property
    def late_ms(self) -> float:
        """How late it was handed over, by the broker's clock as far as it is known here."""
        if self.handed_over_us is None:
            return 0.0
        return self.handed_over_us / 1000 - self._delivery.due_ms

    def json(self) -> Any:
        """The body as JSON. Raises `InvalidInput` if it is not JSON."""
        try:
            return json.loads(self.body)
        except ValueError as error:
            raise InvalidInput(f"the body of message {self.id!r} is not JSON: {error}") from None

    def model(self, kind: type[Model]) -> Model:
        """The body as a pydantic model. Raises pydantic's `ValidationError` if it does not fit."""
        return kind.model_validate_json(self.body)

    # The lease

    @property
    def seconds_left(self) -> float:
        """The seconds until the lease is over, by the broker's clock; 0 if it is over."""
        if self.lost.is_set():
            return 0.0
        return self._stream.time.seconds_until(self._until_ms)

    @property
    def is_lost(self) -> bool:
        """Whether the lease is over or lost: from now on another consumer may work on the message."""
        return self.lost.is_set() or (not self.is_settled and self.seconds_left == 0)

    @property
    def is_live(self) -> bool:
        return self.seconds_left > 0 and not self.is_settled

    async def ack(self) -> None:
        """Done: deletes the message. Raises `Refused` if the lease was over."""
        await self._settle(self._change(Operation.ACK))

    async def retry(self, *, delay: Delay | None = None, due: datetime | None = None) -> None:
        """Failed: the message is served again, at once without a time, and an attempt is counted."""
        await self._settle(self._change(Operation.RETRY, when(due, delay)))

    async def release(self, *, delay: Delay | None = None, due: datetime | None = None) -> None:
        """Not now: the message is served again, at once without a time; no attempt is counted."""
        await self._settle(self._change(Operation.RELEASE, when(due, delay)))

    async def bury(self, reason: str) -> None:
        """Given up: the message becomes a dead letter, and is not served again."""
        if problem := reason_problem(reason):
            raise InvalidInput(problem)
        await self._settle(self._change(Operation.BURY, reason=reason))

    async def extend(self, lease: Delay | None = None) -> None:
        """More time: the lease ends this long after now; without a duration, as long as the first lease."""
        lease_ms = (
            self._stream.lease_ms(self.topic_uid) if lease is None else lease_length_ms(lease)
        )
        async with self._turn:
            self._check_unsettled()
            await self._extend(lease_ms)

    async def _extend(self, lease_ms: int) -> None:
        self._extending = True
        try:
            outcome = await self._stream.settle(
                self,
                self._change(Operation.EXTEND, After(lease_ms)),
                again=self._extension_unknown,
            )
        except (OutcomeUnknown, asyncio.CancelledError):
            self._extension_unknown = True
            raise
        finally:
            self._extending = False
        if not outcome.done:
            if outcome.refusal in LEASE_IS_OVER:
                self._stream.lose(self)
            raise Refused([outcome])
        self.renewed(outcome.version, to_ms(outcome.at) if outcome.at else 0)

    @property
    def held(self) -> pb.HeldLease:
        """For the stream: names the lease to a broker after a reconnect."""
        extending = self._extending or self._extension_unknown
        return pb.HeldLease(id=self.id, version=self.version, extending=extending)

    def renewed(self, version: int, until_ms: int) -> None:
        """For the stream: sets the new version and the new end of the lease."""
        self.version, self._until_ms = version, until_ms
        self._extension_unknown = False

    async def give_back(self) -> None:
        """Gives the message back unchanged, with its due: it is served again as if it had never been leased.

        The stream calls it for messages that were not handed over; `chronoline receive` for those that it
        only showed.
        """
        await self._settle(self._change(Operation.UNRESERVE))

    def _change(self, operation: Operation, to: LeaseTime = 0, reason: str = "") -> Change:
        """A change of this lease. The stream adds the version when it sends it: extensions change it."""
        return Change(operation, self.id, self.consumer, to=to, reason=reason)

    async def _settle(self, settlement: Change) -> None:
        """Settles the lease by a change. The same change twice is done once."""
        self._check_unsettled(settlement)
        self._settlement = settlement  # at once: from now on it is not renewed
        async with self._turn:
            self._check_unsettled(settlement)
            if self._outcome is None:
                self._settlement = settlement
                await self._ask(settlement)

    async def _ask(self, settlement: Change) -> None:
        try:
            if self._extension_unknown:  # settled first, for its version
                await self._extend(self._stream.lease_ms(self.topic_uid))
            with self._span(settlement.operation) as span:
                outcome = await self._stream.settle(self, settlement, again=self._settling_unknown)
                if span is not None and not outcome.done:
                    fail(span, str(outcome.refusal or "unknown"), outcome.reason)
        except BaseException as error:
            self._settlement = None
            self._settling_unknown |= isinstance(error, OutcomeUnknown | asyncio.CancelledError)
            if isinstance(error, ClientClosed) and self.lost.is_set():
                raise Refused([Outcome(id=self.id, refusal=Refusal.LAPSED)]) from None
            raise
        if not outcome.done and outcome.refusal not in LEASE_IS_OVER:
            self._settlement = None
            raise Refused([outcome])
        self._outcome = outcome
        self._stream.done_with(self)
        if not outcome.done:
            self.lost.set()
            raise Refused([outcome])

    def _span(self, operation: Operation) -> AbstractContextManager[Span | None]:
        """A span of the sender's trace, for a message that has one."""
        sender = context_of(self.headers) if tracer() is not None else NO_TRACE
        if not sender or operation.value not in SETTLEMENTS:
            return nullcontext()
        about = partial(span_attributes, self)
        return span_of(TraceStep(operation), self.topic, about, parent=sender)

    def _check_unsettled(self, settlement: Change | None = None) -> None:
        """Raises if the lease is settled by another change than `settlement`, which may be repeated."""
        if self._outcome is not None and not self._outcome.done:
            raise Refused([self._outcome])
        if self._settlement is not None and self._settlement != settlement:
            raise ChronolineError(
                f"message {self.id!r} was settled already, by {self._settlement.operation}"
            )

    @property
    def is_settled(self) -> bool:
        return self._settlement is not None


def span_attributes(lease: AsyncLease) -> Attributes:
    """The attributes of the spans of a consumer that works on a message, or settles it."""
    return {
        "messaging.message.id": lease.id,
        "messaging.client.id": lease.consumer,
        "messaging.chronoline.due": show_moment(lease.due),
        "messaging.chronoline.late_ms": lease.late_ms,
        "messaging.chronoline.attempts": lease.attempts,
        "messaging.chronoline.redelivered": lease.redelivered,
        "messaging.chronoline.version": lease.version,
    }
