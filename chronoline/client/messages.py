"""The messages that users of the SDK send and read: with datetimes, validated here."""

from __future__ import annotations

import json as json_module
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self

from chronoline.client.producer_stream import OutgoingMessage
from chronoline.client.times import Delay, moment_ms, when
from chronoline.core.errors import InvalidInput
from chronoline.core.limits import MAX_BODY_BYTES, message_problem
from chronoline.core.message import After, Header, NewMessage
from chronoline.runtime.message_ids import new_id
from chronoline.runtime.timestamps import from_ms, show_moment
from chronoline.runtime.traces import fail, with_context
from chronoline.wire.codec import headers_from_wire
from chronoline.wire.v1 import chronoline_pb2 as pb

if TYPE_CHECKING:
    from opentelemetry.trace import Span
    from pydantic import BaseModel

    from chronoline.client.outcomes import Outcome

Headers = Mapping[str, str | bytes | None] | Sequence[tuple[str, str | bytes | None]]
"""A mapping, or pairs for repeated names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToSend:
    """One message of a batch: `id`, `due` or `delay`, and its content."""

    body: bytes | str | BaseModel | None = b""
    json: Any = None
    id: str | None = None
    due: datetime | None = None
    delay: Delay | None = None
    key: bytes | None = None
    headers: Headers = ()
    expires: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message on a timeline, without its body. Its moments are in UTC."""

    id: str
    due: datetime
    """When it is meant to fire; a lease does not move it."""
    ts: datetime
    """Its position on the timeline: the due time, or the end of its lease."""
    bucket: int
    producer_group: str
    lock_consumer: str | None
    """The consumer that holds the lease, or held it when it lapsed."""
    version: int
    """Grows with every change."""
    attempts: int
    """Leases that lapsed, or ended by `retry` or `bury`."""
    expires: datetime | None
    """From this moment on it goes to the dead letters instead of to a handler."""
    key: bytes | None
    headers: tuple[Header, ...]

    @classmethod
    def from_wire(cls, wire: pb.Message) -> Self:
        return cls(
            id=wire.id,
            due=from_ms(wire.due_ms),
            ts=from_ms(wire.ts_ms),
            bucket=wire.bucket,
            producer_group=wire.producer_group,
            lock_consumer=wire.lock_consumer if wire.HasField("lock_consumer") else None,
            version=wire.version,
            attempts=wire.attempts,
            expires=from_ms(wire.expires_ms) if wire.HasField("expires_ms") else None,
            key=wire.key if wire.HasField("key") else None,
            headers=headers_from_wire(wire.headers),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A message that could not be delivered, kept until it is put back or discarded."""

    message: Message
    reason: str
    """A `DeathReason`, or the reason that a consumer gave when it buried the message."""
    died: datetime

    @classmethod
    def from_wire(cls, wire: pb.DeadLetter) -> Self:
        return cls(
            message=Message.from_wire(wire.message), reason=wire.reason, died=from_ms(wire.died_ms)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The number of messages on the timeline from `start` until the next step, by status."""

    start: datetime
    available: int
    processing: int
    waiting: int

    @classmethod
    def from_wire(cls, start_ms: int, counts: pb.Counts) -> Self:
        return cls(
            start=from_ms(start_ms),
            available=counts.available,
            processing=counts.processing,
            waiting=counts.waiting,
        )

    @property
    def total(self) -> int:
        return self.available + self.processing + self.waiting


def outgoing_messages(messages: Iterable[ToSend]) -> list[OutgoingMessage]:
    """Messages ready to send, each with its id. Raises `InvalidInput` for the first invalid one."""
    if isinstance(messages, ToSend | str | bytes | Mapping) or not isinstance(messages, Iterable):
        raise InvalidInput(f"messages must be a list of ToSend, not {type(messages).__name__}")
    return [_outgoing_message(each) for each in messages]


def describe_send(
    span: Span, messages: Sequence[OutgoingMessage], outcomes: Sequence[Outcome]
) -> None:
    """The attributes of the span that sent messages, and its failure if any was not done."""
    if len(messages) == 1:
        (outgoing,) = messages
        span.set_attribute("messaging.message.id", outgoing.message.id)
        if outgoing.delay_ms is None:
            span.set_attribute("messaging.chronoline.due", show_moment(outgoing.message.due))
        else:
            span.set_attribute("messaging.chronoline.delay_ms", outgoing.delay_ms)
    else:
        span.set_attribute("messaging.batch.message_count", len(messages))
    not_done = [each for each in outcomes if not each.done]
    if not_done:
        words = f"{len(not_done)} of {len(messages)} messages: {not_done[0].reason}"
        fail(span, not_done[0].refusal or "unknown", words)


def _outgoing_message(message: ToSend) -> OutgoingMessage:
    if not isinstance(message, ToSend):
        raise InvalidInput(f"each message must be a ToSend, not {type(message).__name__}")
    at = when(message.due, message.delay)
    new = NewMessage(
        id=new_id() if message.id is None else message.id,
        due=0 if isinstance(at, After) else at,
        body=_body(message.body, message.json),
        key=message.key,
        headers=_headers(message.headers),
        expires=None if message.expires is None else moment_ms(message.expires, "expires"),
    )
    if problem := message_problem(new, MAX_BODY_BYTES):
        raise InvalidInput(problem if message.id is None else f"message {message.id!r}: {problem}")
    return OutgoingMessage(new, at.delay_ms if isinstance(at, After) else None, message.id is None)


def content_of(
    body: bytes | str | BaseModel | None, json: Any, headers: Headers
) -> tuple[bytes | None, tuple[Header, ...]]:
    """Body and headers of a message that is created again and again: it carries no trace of its own."""
    return _body(body, json), _pairs(headers)


def _body(body: bytes | str | BaseModel | None, json: Any) -> bytes | None:
    if json is not None:
        if body != b"":
            raise InvalidInput("give a body or json, not both")
        try:
            return json_module.dumps(json, separators=(",", ":"), allow_nan=False).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidInput(f"it cannot be written as JSON: {error}") from None
    if body is None or isinstance(body, bytes):
        return body
    if isinstance(body, str):
        return _encoded(body, "the body")
    if hasattr(body, "model_dump_json"):
        return body.model_dump_json().encode()
    raise InvalidInput(
        f"a body must be bytes, text or a pydantic model, not {type(body).__name__}; use json= for others"
    )


def _headers(headers: Headers) -> tuple[Header, ...]:
    return with_context(_pairs(headers))


def _pairs(headers: Headers) -> tuple[Header, ...]:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    try:
        return tuple(
            (name, _encoded(value, f"header {name!r}") if isinstance(value, str) else value)
            for name, value in pairs
        )
    except (TypeError, ValueError) as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput("headers must be a mapping, or (name, value) pairs") from None


def _encoded(text: str, what: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidInput(f"{what} is not valid UTF-8") from None
