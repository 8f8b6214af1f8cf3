"""Bytes in JSON: text where they are valid UTF-8, else base64; no bytes are null."""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from collections.abc import Iterable
from typing import Any

from chronoline.core.errors import InvalidInput
from chronoline.core.message import Header

JsonBytes = str | dict[str, str] | None


def json_bytes(data: bytes | None) -> JsonBytes:
    """Text, or `{"base64": "…"}` for bytes that are no text."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(data).decode()}


def json_headers(headers: Iterable[Header]) -> list[tuple[str, JsonBytes]]:
    """Headers in their order, each value as `json_bytes`."""
    return [(name, json_bytes(value)) for name, value in headers]


def json_fields(**named: bytes | None) -> dict[str, Any]:
    """The fields of an object: text by its name, base64 as `<name>_base64`; None has no field."""
    fields: dict[str, Any] = {}
    for name, data in named.items():
        match json_bytes(data):
            case str(text):
                fields[name] = text
            case {"base64": encoded}:
                fields[f"{name}_base64"] = encoded
    return fields


def parse_json_bytes(found: Any, what: str) -> bytes | None:
    """The bytes that `json_bytes` wrote. Raises `InvalidInput`, which names `what`."""
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
