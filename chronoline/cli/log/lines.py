"""Events as lines of JSON, the same way out and in.

Bytes that are UTF-8 are text, and no bytes are null. Any other bytes are `{"base64": "…"}` in the place
of the text, so that what was read can be appended byte for byte.
"""

from __future__ import annotations

import binascii
import json
from base64 import b64decode
from typing import Any

from chronoline.cli.rendering import json_bytes
from chronoline.core.errors import InvalidInput
from chronoline.core.message import Header
from chronoline.log import Event, NewEvent
from chronoline.runtime.timestamps import parse_moment_ms, show_moment

_TAKEN = ("key", "value", "headers", "partition", "ts")
_PASSED_OVER = ("topic", "sequence")
"""What a line that was read says besides; where an event is appended it gets its own."""


def to_line(event: Event) -> bytes:
    """One event, with its line break."""
    fields = {
        "topic": event.topic,
        "partition": event.partition,
        "sequence": event.sequence,
        "ts": show_moment(event.ts),
        "key": json_bytes(event.key),
        "value": json_bytes(event.value),
        "headers": [[name, json_bytes(value)] for name, value in event.headers],
    }
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def from_line(line: bytes) -> NewEvent:
    """The event that a line describes. Raises `InvalidInput` with what is wrong."""
    fields = _fields(line)
    if "value" not in fields:
        raise InvalidInput("value is missing; it may be null")
    return NewEvent(
        value=_to_bytes("value", fields["value"]),
        key=_to_bytes("key", fields.get("key")),
        headers=_headers(fields.get("headers") or []),
        partition=fields.get("partition"),
        ts=_ts(fields.get("ts")),
    )


def _fields(line: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(line.decode())
    except json.JSONDecodeError as error:
        place = f"{error.msg[:1].lower()}{error.msg[1:]} at character {error.pos + 1}"
        raise InvalidInput(f"not JSON: {place}; --format lines takes plain values") from error
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"not JSON: {error}; --format lines takes plain values") from error
    if not isinstance(fields, dict):
        raise InvalidInput(
            'not a JSON object such as {"key": "k", "value": "v"}; --format lines takes plain values'
        )
    unknown = [name for name in fields if name not in _TAKEN + _PASSED_OVER]
    if unknown:
        raise InvalidInput(f"field {unknown[0]!r} is none of {', '.join(_TAKEN)}")
    return fields


def _to_bytes(what: str, found: object) -> bytes | None:
    match found:
        case None:
            return None
        case str():
            try:
                return found.encode()
            except UnicodeEncodeError as error:
                raise InvalidInput(f"{what} is not valid UTF-8") from error
        case {"base64": str(encoded), **rest} if not rest:
            try:
                return b64decode(encoded, validate=True)
            except (binascii.Error, ValueError) as error:
                raise InvalidInput(f"{what} is not base64: {error}") from error
    raise InvalidInput(f'{what} must be text, null, or {{"base64": "…"}} for other bytes')


def _headers(found: object) -> tuple[Header, ...]:
    if not isinstance(found, list):
        raise InvalidInput('headers must be pairs such as [["name", "value"]]')
    headers: list[Header] = []
    for pair in found:
        match pair:
            case [str(name), value]:
                headers.append((name, _to_bytes(f"header {name!r}", value)))
            case _:
                raise InvalidInput('headers must be pairs such as [["name", "value"]]')
    return tuple(headers)


def _ts(found: Any) -> Any:
    """A time as text is read; what else there is, is checked with the event."""
    return parse_moment_ms(found, "ts") if isinstance(found, str) else found
