"""What stands in requests: each value is made into what the broker works with as it is read."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal
from urllib.parse import unquote

from fastapi import Path
from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

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
from chronoline.core.message import Header
from chronoline.core.quantities import parse_duration_ms
from chronoline.runtime.json_bytes import parse_json_bytes
from chronoline.runtime.timestamps import parse_moment_ms

_PAIR = 2

# Words in paths


def _decoded_segment(text: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise ValueError("what stands for it in the path is not UTF-8") from None


TopicName = Annotated[
    str,
    BeforeValidator(_decoded_segment),
    Path(alias="topic", description="The topic's name, percent-encoded.", examples=["reminders"]),
]
MessageId = Annotated[
    str,
    BeforeValidator(_decoded_segment),
    Path(alias="id", description="The message's id, percent-encoded.", examples=["u1"]),
]

# Words in bodies


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
        raise ValueError(f"has to be text, not {_json_kind(value)}")
    return value


def _json_kind(value: object) -> str:
    kinds = {dict: "an object", list: "a list", bool: "true or false", str: "text"}
    return "null" if value is None else kinds.get(type(value), "a number")


def _whole(value: object) -> object:
    """In JSON 5.0 is as whole as 5."""
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
        raise ValueError("has a number that JSON cannot say") from None


def _headers(value: object) -> tuple[Header, ...]:
    if isinstance(value, Mapping):
        pairs: Sequence[Any] = list(value.items())
    elif isinstance(value, list):
        pairs = value
    else:
        raise ValueError(f"have to be a list of pairs, or an object, not {_json_kind(value)}")
    return tuple(_header(each) for each in pairs)


def _header(pair: Any) -> Header:
    if not isinstance(pair, list | tuple) or len(pair) != _PAIR or not isinstance(pair[0], str):
        raise ValueError("a header has to be a pair of its name and its value")
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
    BeforeValidator(lambda value: parse_duration_ms(_text(value), "the duration")),
    WithJsonSchema(_DURATION_SCHEMA),
]
MomentMs = Annotated[
    int,
    BeforeValidator(lambda value: parse_moment_ms(_text(value), "the moment")),
    WithJsonSchema(_MOMENT_SCHEMA),
]
Whole = Annotated[int, BeforeValidator(_whole)]
Milliseconds = Annotated[int, Field(ge=0, le=MAX_TIME_MS), BeforeValidator(_whole)]
Count = Annotated[int, Field(ge=1, le=MAX_CREDIT), BeforeValidator(_whole)]
Version = Annotated[
    int,
    Field(ge=0, le=MAX_TIME_MS, description="As the lease has it."),
    BeforeValidator(_whole),
]
ProducerGroup = Annotated[
    str,
    Field(min_length=1, max_length=MAX_NAME_BYTES, description="Who owns the message."),
    _checked_name("producer_group"),
]
ConsumerName = Annotated[
    str,
    Field(min_length=1, max_length=MAX_NAME_BYTES, description="Who holds the leases."),
    _checked_name("consumer"),
]
Id = Annotated[str, Field(min_length=1, max_length=MAX_ID_BYTES), AfterValidator(_checked_id)]
Reason = Annotated[str, Field(max_length=MAX_REASON_CHARACTERS), AfterValidator(_checked_reason)]
IfExists = Annotated[
    Literal["refuse", "replace"],
    Field(
        description="Replace cancels what has the id, if it is the group's own, and creates anew."
    ),
]
