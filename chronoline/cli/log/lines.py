"""Events as lines of JSON, the same way out and in.

Bytes that are UTF-8 are text, and no bytes are null. Any other bytes are `{"base64": "…"}` in the place
of the text, so that what was read can be appended byte for byte.
"""

from __future__ import annotations

import json
from typing import Any

from chronoline.core.errors import InvalidInput
from chronoline.core.message import Header
from chronoline.log import Event, NewEvent
from chronoline.runtime.json_bytes import json_bytes, json_headers, parse_json_bytes
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
        "headers": json_headers(event.headers),
    }
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def from_line(line: bytes) -> NewEvent:
    """The event that a line describes. Raises `InvalidInput` with what is wrong."""
    fields = _fields(line)
    if "value" not in fields:
        raise InvalidInput("value is missing; it may be null")
    return NewEvent(
        value=parse_json_bytes(fields["value"], "value"),
        key=parse_json_bytes(fields.get("key"), "key"),
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


def _headers(found: object) -> tuple[Header, ...]:
    if not isinstance(found, list):
        raise InvalidInput('headers must be pairs such as [["name", "value"]]')
    headers: list[Header] = []
    for pair in found:
        match pair:
            case [str(name), value]:
                headers.append((name, parse_json_bytes(value, f"header {name!r}")))
            case _:
                raise InvalidInput('headers must be pairs such as [["name", "value"]]')
    return tuple(headers)


def _ts(found: Any) -> Any:
    """A time as text is read; what else there is, is checked with the event."""
    return parse_moment_ms(found, "ts") if isinstance(found, str) else found
