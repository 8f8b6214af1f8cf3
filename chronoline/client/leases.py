"""A message in the hands of a consumer."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

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
from chronoline.core.outcome import LEASE_IS_OVER, Outcome, Refusal
from chronoline.core.permissions import Operation
from chronoline.runtime.timestamps import from_ms
from chronoline.wire.codec import headers_from_wire
from chronoline.wire.v1 import chronoline_pb2 as pb

if TYPE_CHECKING:
    from pydantic import BaseModel

    from chronoline.client.consumer_stream import ConsumerStream

    Model = TypeVar("Model", bound=BaseModel)


class AsyncLease:
    """One message, and the right to it until its lease is over.

    Settle it with one of `ack`, `retry`, `release`, `bury`. Until then `extend` keeps it; when the lease is
    over, or was lost, `is_lost` is true and the message is served again, perhaps to another.

    To say the same again is done, and changes nothing; to say something else after it raises
    `ChronolineError`. A lease that was over when it was settled is refused with the same reason ever after.
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
        """Set when it is known that the message is not ours any more."""
        # The change that settles it: asked for, or done.
        self._said: Change | None = None
        # The answer to it, unless that leaves the lease as it was.
        self._outcome: Outcome | None = None
        # An extension gives the lease another version: what is said of it next has to wait for the answer.
        self._turn = asyncio.Lock()
        self._extending = False
        # An extension was not answered: it is settled before anything else is said, which needs the version.
        self._extension_unknown = False
        # Something else was not answered: what is said next may have been done already.
        self._settling_unknown = False
        self.handed_over_us: int | None = None
        self.in_hand = False
        """Somebody has it, and settles it."""

    def __repr__(self) -> str:
        return f"<lease of {self.id!r} on {self.topic!r}, version {self.version}>"

    @property
    def id(self) -> str:
        return self._delivery.id

    @property
    def body(self) -> bytes:
        """Empty if there is none."""
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
        """When the message is meant to fire, in UTC."""
        return from_ms(self._delivery.due_ms)

    @property
    def until(self) -> datetime:
        """When the lease is over, by the broker's clock, in UTC."""
        return from_ms(self._until_ms)

    @property
    def attempts(self) -> int:
        """How often it was tried before, and failed."""
        return self._delivery.attempts

    @property
    def redelivered(self) -> bool:
        """An earlier lease on it lapsed: someone may have worked on it."""
        return self._delivery.redelivered

    @property
    def producer_group(self) -> str:
        return self._delivery.producer_group

    @property
    def consumer(self) -> str:
        return self._stream.name

    @property
    def traceparent(self) -> str | None:
        """The trace in which it was sent, as W3C writes it."""
        value = self.header("traceparent")
        return None if value is None else value.decode("ascii", "replace")

    @property
    def tracestate(self) -> str | None:
        """What systems on its way added to the trace, as W3C writes it."""
        value = self.header("tracestate")
        return None if value is None else value.decode("ascii", "replace")

    @property
    def late_ms(self) -> float:
        """How late it was handed over, by the broker's clock as far as it is known here."""
        if self.handed_over_us is None:
            return 0.0
        return self.handed_over_us / 1000 - self._delivery.due_ms

    def json(self) -> Any:
        """The body as JSON. Raises `InvalidInput` if it is none."""
        try:
            return json.loads(self.body)
        except ValueError as error:
            raise InvalidInput(f"the body of message {self.id!r} is no JSON: {error}") from None

    def model(self, kind: type[Model]) -> Model:
        """The body as a pydantic model. Raises pydantic's `ValidationError` if it does not fit."""
        return kind.model_validate_json(self.body)

    # The lease

    @property
    def seconds_left(self) -> float:
        """Until the lease is over, by the broker's clock; 0 if it is."""
        if self.lost.is_set():
            return 0.0
        return self._stream.time.seconds_until(self._until_ms)

    @property
    def is_lost(self) -> bool:
        """The message is not ours any more: what is done for it now, another may do too."""
        return self.lost.is_set() or (not self.is_settled and self.seconds_left == 0)

    @property
    def is_live(self) -> bool:
        return self.seconds_left > 0 and not self.is_settled

    async def ack(self) -> None:
        """Done: the message is deleted. Raises `Refused` if the lease was over."""
        await self._settle(self._change(Operation.ACK))

    async def retry(self, *, delay: Delay | None = None, due: datetime | None = None) -> None:
        """Failed: to be tried again, at once if nothing is said, and counted as an attempt."""
        await self._settle(self._change(Operation.RETRY, when(due, delay)))

    async def release(self, *, delay: Delay | None = None, due: datetime | None = None) -> None:
        """Not now: to be served again, at once if nothing is said, and not counted."""
        await self._settle(self._change(Operation.RELEASE, when(due, delay)))

    async def bury(self, reason: str) -> None:
        """Given up: the message goes to the dead letters, and is not tried again."""
        if problem := reason_problem(reason):
            raise InvalidInput(problem)
        await self._settle(self._change(Operation.BURY, reason=reason))

    async def extend(self, lease: Delay | None = None) -> None:
        """More time: the lease ends so much after now; as long as at first if nothing is said."""
        lease_ms = (
            self._stream.lease_ms(self.topic_uid) if lease is None else lease_length_ms(lease)
        )
        async with self._turn:
            self._check_not_settled_but()
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
        self.renewed(outcome.version, outcome.at)

    @property
    def held(self) -> pb.HeldLease:
        """The stream's: how a broker is told of it when the stream was opened anew."""
        extending = self._extending or self._extension_unknown
        return pb.HeldLease(id=self.id, version=self.version, extending=extending)

    def renewed(self, version: int, until_ms: int) -> None:
        """The stream's: the lease has a new version and a new end."""
        self.version, self._until_ms = version, until_ms
        self._extension_unknown = False

    async def give_back(self) -> None:
        """It was not worked on, and is served again as if it had never been taken, with its due.

        The stream gives back what was not handed over; `chronoline receive` what it only showed.
        """
        await self._settle(self._change(Operation.UNRESERVE))

    def _change(self, operation: Operation, to: LeaseTime = 0, reason: str = "") -> Change:
        """The stream writes the version when the change leaves: an extension may have made another."""
        return Change(operation, self.id, self.consumer, to=to, reason=reason)

    async def _settle(self, said: Change) -> None:
        """Settles the lease by a change. The same change twice is done once."""
        self._check_not_settled_but(said)
        self._said = said  # at once: from now on it is not renewed
        async with self._turn:
            self._check_not_settled_but(said)
            if self._outcome is None:
                self._said = said
                await self._ask(said)

    async def _ask(self, said: Change) -> None:
        try:
            if self._extension_unknown:  # it is settled first, since it says which version is ours
                await self._extend(self._stream.lease_ms(self.topic_uid))
            outcome = await self._stream.settle(self, said, again=self._settling_unknown)
        except BaseException as error:
            self._said = None
            self._settling_unknown |= isinstance(error, OutcomeUnknown | asyncio.CancelledError)
            if isinstance(error, ClientClosed) and self.lost.is_set():
                raise Refused([Outcome(id=self.id, refusal=Refusal.LAPSED)]) from None
            raise
        if not outcome.done and outcome.refusal not in LEASE_IS_OVER:
            self._said = None
            raise Refused([outcome])
        self._outcome = outcome
        self._stream.done_with(self)
        if not outcome.done:
            self.lost.set()
            raise Refused([outcome])

    def _check_not_settled_but(self, said: Change | None = None) -> None:
        """It may be settled by what is said again."""
        if self._outcome is not None and not self._outcome.done:
            raise Refused([self._outcome])
        if self._said is not None and self._said != said:
            raise ChronolineError(
                f"message {self.id!r} was settled already, by {self._said.operation}"
            )

    @property
    def is_settled(self) -> bool:
        return self._said is not None
