"""What users say of a message that is to be sent, checked where they say it."""

from __future__ import annotations

import json as json_module
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from chronoline.client.producer_stream import Sending
from chronoline.client.times import Delay, When, when
from chronoline.client.trace_context import traced
from chronoline.core.errors import InvalidInput
from chronoline.core.limits import MAX_BODY_BYTES, message_problem
from chronoline.core.message import Header, NewMessage
from chronoline.runtime.clock import to_ms
from chronoline.runtime.message_ids import new_id

if TYPE_CHECKING:
    from pydantic import BaseModel

Headers = Mapping[str, str | bytes | None] | Sequence[tuple[str, str | bytes | None]]
"""A mapping, or pairs where names repeat."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToSend:
    """One message of a batch: `id`, `due` or `delay`, and what is in it."""

    body: bytes | str | BaseModel | None = b""
    json: Any = None
    id: str | None = None
    due: datetime | None = None
    delay: Delay | None = None
    key: bytes | None = None
    headers: Headers = ()
    expires: datetime | None = None


def sendings(messages: Iterable[ToSend]) -> list[Sending]:
    """Ready to leave, each with its id. Raises `InvalidInput` for the first that makes no sense."""
    if isinstance(messages, ToSend | str | bytes | Mapping) or not isinstance(messages, Iterable):
        raise InvalidInput(f"messages must be a list of ToSend, not {type(messages).__name__}")
    return [_sending(each) for each in messages]


def _sending(message: ToSend) -> Sending:
    if not isinstance(message, ToSend):
        raise InvalidInput(f"each message must be a ToSend, not {type(message).__name__}")
    at: When = when(message.due, message.delay)
    new = NewMessage(
        id=new_id() if message.id is None else message.id,
        due=at.at_ms or 0,
        body=_body(message.body, message.json),
        key=message.key,
        headers=_headers(message.headers),
        expires=None if message.expires is None else to_ms(message.expires, "expires"),
    )
    if problem := message_problem(new, MAX_BODY_BYTES):
        raise InvalidInput(problem if message.id is None else f"message {message.id!r}: {problem}")
    return Sending(new, at.delay_ms, message.id is None)


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
        f"a body must be bytes, text or a pydantic model, not {type(body).__name__}; for others say json="
    )


def _headers(headers: Headers) -> tuple[Header, ...]:
    if headers == ():
        return traced(())
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    try:
        given = tuple(
            (name, _encoded(value, f"header {name!r}") if isinstance(value, str) else value)
            for name, value in pairs
        )
    except (TypeError, ValueError) as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput("headers must be a mapping, or (name, value) pairs") from None
    return traced(given)


def _encoded(text: str, what: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidInput(f"{what} is not valid UTF-8") from None
