"""The parts of request schemas: the types of fields, and the bases that several schemas share.

The schema of a route stands beside the route. Schemas are strict: an unknown field, a number as text or text
as a number is refused, so that a typing error shows. Each field is converted to the broker's own value as it
is read. The items of long lists are checked later, in slices.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Annotated, Any, Literal, Self, TypeVar
from urllib.parse import unquote

from fastapi import Depends, Path, Request
from fastapi.exceptions import RequestValidationError
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
    model_validator,
)

from chronoline.broker.http.auth import PRINCIPAL
from chronoline.broker.principals import Principal
from chronoline.broker.subscription import MAX_CREDIT
from chronoline.core.errors import InvalidInput
from chronoline.core.limits import (
    MAX_HEADERS,
    MAX_ID_BYTES,
    MAX_NAME_BYTES,
    MAX_REASON_CHARACTERS,
    MAX_TIME_MS,
    id_problem,
    name_problem,
    reason_problem,
)
from chronoline.core.message import After, Header, LeaseTime
from chronoline.core.units import parse_duration_ms
from chronoline.runtime.json_bytes import parse_json_bytes
from chronoline.runtime.timestamps import parse_moment_ms
from chronoline.runtime.traces import TRACEPARENT, TRACESTATE, TraceContext, checked_context

_PAIR = 2
_SLICE = 100
"""Items between two turns of the event loop: a millisecond or two."""
_MOST_TIME_CHARACTERS = 100
_SHOWN_FIELDS = 5
_SHOWN_CHARACTERS = 100

Item = TypeVar("Item")
Result = TypeVar("Result")
Schema = TypeVar("Schema", bound=BaseModel)

# Fields in paths


def decoded_segment(text: str) -> str:
    """A part of the path. Raises `ValueError`."""
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise ValueError("its percent-encoded bytes in the path are not UTF-8") from None


def principal_of(request: Request) -> Principal:
    """The principal that the guard let in."""
    principal: Principal = request.scope[PRINCIPAL]
    return principal


def sender_context(request: Request) -> TraceContext:
    """The trace of the client, from its headers `traceparent` and `tracestate`."""
    headers = request.headers
    return checked_context(headers.get(TRACEPARENT), headers.get(TRACESTATE))


SenderContext = Annotated[TraceContext, Depends(sender_context)]
RequestPrincipal = Annotated[Principal, Depends(principal_of)]
TopicName = Annotated[
    str,
    BeforeValidator(decoded_segment),
    Path(alias="topic", description="The topic's name, percent-encoded.", examples=["reminders"]),
]
MessageId = Annotated[
    str,
    BeforeValidator(decoded_segment),
    Path(alias="id", description="The message's id, percent-encoded.", examples=["u1"]),
]

# Fields in bodies


def _checked_name(what: str) -> AfterValidator:
    def check(name: str) -> str:
        if problem := name_problem(what, name):
            raise InvalidInput(problem)
        return name

    return AfterValidator(check)


def _checked_id(message_id: str) -> str:
    if problem := id_problem(message_id):
        raise InvalidInput(problem)
    return message_id


def _checked_reason(reason: str) -> str:
    if problem := reason_problem(reason):
        raise InvalidInput(problem)
    return reason


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"must be text, not {_json_kind(value)}")
    return value


def _time_text(value: object) -> str:
    text = _text(value)
    if len(text) > _MOST_TIME_CHARACTERS:
        raise ValueError(f"has {len(text)} characters, which is no time")
    return text


def _json_kind(value: object) -> str:
    kinds = {dict: "an object", list: "a list", bool: "true or false", str: "text"}
    return "null" if value is None else kinds.get(type(value), "a number")


def _whole(value: object) -> object:
    """JSON has one type of number: 5.0 is a whole one."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _from_base64(value: object) -> bytes:
    try:
        return base64.b64decode(_text(value), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("is not base64") from None


def _as_json(value: object) -> bytes:
    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
    except ValueError:
        raise ValueError("has a number that JSON cannot hold") from None


def _headers(value: object) -> tuple[Header, ...]:
    if isinstance(value, Mapping):
        pairs: Sequence[Any] = list(value.items())
    elif isinstance(value, list):
        pairs = value
    else:
        raise ValueError(f"must be a list of pairs, or an object, not {_json_kind(value)}")
    if len(pairs) > MAX_HEADERS:
        raise ValueError(f"{len(pairs)} headers; at most {MAX_HEADERS} are allowed")
    return tuple(_header(each) for each in pairs)


def _header(pair: Any) -> Header:
    if not isinstance(pair, list | tuple) or len(pair) != _PAIR or not isinstance(pair[0], str):
        raise ValueError("a header must be a pair of its name and its value")
    return pair[0], parse_json_bytes(pair[1], "the value of a header")


_BASE64_SCHEMA = {
    "type": "string",
    "contentEncoding": "base64",
    "pattern": "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$",
}
HEADER_VALUE_SCHEMA: dict[str, Any] = {
    "anyOf": [
        {"type": "string"},
        {"type": "null"},
        {
            "type": "object",
            "properties": {"base64": _BASE64_SCHEMA},
            "required": ["base64"],
            "additionalProperties": False,
        },
    ]
}
HEADERS_SCHEMA: dict[str, Any] = {
    "type": "array",
    "description": "Pairs of a name and a value, in order; names may repeat.",
    "maxItems": MAX_HEADERS,
    "items": {
        "type": "array",
        "items": HEADER_VALUE_SCHEMA,
        "minItems": _PAIR,
        "maxItems": _PAIR,
    },
    "examples": [[["content-type", "text/plain"], ["signature", {"base64": "3q2+7w=="}]]],
}
_HEADERS_GIVEN_SCHEMA = {
    "description": "Pairs in order, or an object.",
    "anyOf": [HEADERS_SCHEMA, {"type": "object", "additionalProperties": HEADER_VALUE_SCHEMA}],
}
_DURATION_SCHEMA = {
    "type": "string",
    "pattern": r"^[0-9]{1,9}(\.[0-9]{1,3})? ?(ms|s|m)$|^[0-9]{1,5}(\.[0-9]{1,3})? ?(h|d|w)$",
    "examples": ["30s"],
    "description": "Such as 250ms, 90s, 15m, 1.5h, 7d or 2w.",
}
_MOMENT_SCHEMA = {
    "type": "string",
    "format": "date-time",
    "examples": ["2026-01-31T12:00:00Z"],
    "description": "RFC 3339 with its zone.",
}

Base64 = Annotated[bytes, BeforeValidator(_from_base64), WithJsonSchema(_BASE64_SCHEMA)]
AsJson = Annotated[bytes, BeforeValidator(_as_json), WithJsonSchema({})]
Headers = Annotated[
    tuple[Header, ...], BeforeValidator(_headers), WithJsonSchema(_HEADERS_GIVEN_SCHEMA)
]
DurationMs = Annotated[
    int,
    BeforeValidator(lambda value: parse_duration_ms(_time_text(value), "the duration")),
    WithJsonSchema(_DURATION_SCHEMA),
]
MomentMs = Annotated[
    int,
    BeforeValidator(lambda value: parse_moment_ms(_time_text(value), "the moment")),
    WithJsonSchema(_MOMENT_SCHEMA),
]
Whole = Annotated[int, BeforeValidator(_whole)]
Milliseconds = Annotated[int, Field(ge=0, le=MAX_TIME_MS), BeforeValidator(_whole)]
Count = Annotated[int, Field(ge=1, le=MAX_CREDIT), BeforeValidator(_whole)]
Version = Annotated[
    int,
    Field(ge=0, le=MAX_TIME_MS, description="The version of the lease."),
    BeforeValidator(_whole),
]
ProducerGroup = Annotated[
    str,
    Field(min_length=1, max_length=MAX_NAME_BYTES, description="The owner of the message."),
    _checked_name("producer_group"),
]
ConsumerName = Annotated[
    str,
    Field(
        min_length=1, max_length=MAX_NAME_BYTES, description="The consumer that holds the leases."
    ),
    _checked_name("consumer"),
]
RackName = Annotated[str, Field(min_length=1, max_length=MAX_NAME_BYTES), _checked_name("rack")]
Id = Annotated[str, Field(min_length=1, max_length=MAX_ID_BYTES), AfterValidator(_checked_id)]
_ID = TypeAdapter(Id, config=ConfigDict(strict=True))
Reason = Annotated[str, Field(max_length=MAX_REASON_CHARACTERS), AfterValidator(_checked_reason)]
IfExists = Annotated[
    Literal["refuse", "replace"],
    Field(
        description="Replace cancels the message with this id, if the group owns it, and creates a new one."
    ),
]


def _given(*names: str) -> dict[str, Any]:
    """A JSON schema: all of these fields are given, and not null."""
    something = {"not": {"type": "null"}}
    return {"required": list(names), "properties": dict.fromkeys(names, something)}


def at_most_one(*names: str) -> dict[str, Any]:
    """A JSON schema: no two of these fields are given."""
    pairs = [_given(one, other) for place, one in enumerate(names) for other in names[place + 1 :]]
    return {"not": {"anyOf": pairs}}


def exactly_one(*names: str) -> dict[str, Any]:
    """A JSON schema: one of these fields is given."""
    return {"allOf": [at_most_one(*names), {"anyOf": [_given(name) for name in names]}]}


class RequestBody(BaseModel):
    """The base of all request schemas. A fault of each field is reported, and unknown fields in one."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _check_number(cls, given: object) -> object:
        """An object of many fields has one fault, and not one for each of them."""
        if isinstance(given, dict) and len(given) > len(cls.model_fields):
            known = {field.alias or name for name, field in cls.model_fields.items()}
            unknown = islice((name for name in given if name not in known), _SHOWN_FIELDS)
            words = ", ".join(repr(name[:_SHOWN_CHARACTERS]) for name in unknown)
            more = len(given) - sum(name in given for name in known) - _SHOWN_FIELDS
            raise ValueError(f"unknown fields: {words}" + (f" and {more} more" if more > 0 else ""))
        return given

    def _check_at_most_one(self, *names: str) -> None:
        given = {
            name.rstrip("_") for name in self.model_fields_set if getattr(self, name) is not None
        }
        both = [name for name in names if name in given]
        if len(both) > 1:
            raise ValueError(f"give {' or '.join(both)}, not both")


# Due

DUE_NAMES = ("due", "due_ms", "in", "delay_ms")
"""The fields of `DueFields`, as requests name them."""


class DueFields(RequestBody):
    """A moment, or how long from now; relative times are made absolute by the broker's clock."""

    model_config = ConfigDict(json_schema_extra=at_most_one(*DUE_NAMES))

    due: MomentMs | None = None
    due_ms: Milliseconds | None = None
    in_: DurationMs | None = Field(default=None, alias="in")
    delay_ms: Milliseconds | None = None

    @model_validator(mode="after")
    def _check_when(self) -> Self:
        self._check_at_most_one(*DUE_NAMES)
        return self

    def at_ms(self, now_ms: int) -> int | None:
        """None if the request has no time."""
        return _at_ms(
            self.due if self.due is not None else self.due_ms,
            self.in_ if self.in_ is not None else self.delay_ms,
            now_ms,
        )

    @property
    def time(self) -> LeaseTime | None:
        """None if the request has no time. The store adds a relative time to its own when it writes."""
        return time_of(
            self.due if self.due is not None else self.due_ms,
            self.in_ if self.in_ is not None else self.delay_ms,
        )


def time_of(moment_ms: int | None, delay_ms: int | None) -> LeaseTime | None:
    """The time that a request gives as a moment or as a delay, if it has one."""
    if moment_ms is not None:
        return moment_ms
    return None if delay_ms is None else After(delay_ms)


def _at_ms(moment_ms: int | None, delay_ms: int | None, now_ms: int) -> int | None:
    if moment_ms is not None:
        return moment_ms
    return None if delay_ms is None else now_ms + delay_ms


# Leases


class LeaseRef(RequestBody):
    """A lease, by id and version."""

    id: Id
    version: Version


class SettleRequest(RequestBody):
    """Leases to settle, and the consumer that holds them."""

    consumer: ConsumerName
    again: bool = Field(
        default=False,
        description="This repeats a request that was not answered, or whose outcome was unknown.",
    )


# Slices


async def in_slices(items: Iterable[Item], work: Callable[[Item], Result]) -> list[Result]:
    """Calls `work` for each item, with turns of the event loop in between.

    Pushes must not wait until thousands of messages are read or written.
    """
    results: list[Result] = []
    for number, item in enumerate(items, 1):
        results.append(work(item))
        if number % _SLICE == 0:
            await asyncio.sleep(0)  # others have their turn
    return results


async def checked(schema: type[Schema], items: Sequence[Any], name: str) -> list[Schema]:
    """Validates the items of a list in a request, in slices. Raises `RequestValidationError` for the first
    one with faults."""
    return await _checked(schema.model_validate, items, name)


async def checked_ids(items: Sequence[Any]) -> list[str]:
    """Validates the ids of a request, as `checked`."""
    return await _checked(_ID.validate_python, items, "ids")


async def _checked(
    validate: Callable[[Any], Result], items: Sequence[Any], name: str
) -> list[Result]:
    def check(place: int) -> Result:
        try:
            return validate(items[place])
        except ValidationError as error:
            faults = error.errors(include_url=False, include_input=False)
            for fault in faults:
                fault["loc"] = ("body", name, place, *fault["loc"])
            raise RequestValidationError(faults) from None

    return await in_slices(range(len(items)), check)
