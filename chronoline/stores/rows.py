"""How messages, headers and settings are kept in the rows of a database."""

from __future__ import annotations

import dataclasses
import json
import struct
from collections.abc import Sequence
from typing import Any

from chronoline.core.errors import StoreError
from chronoline.core.message import Header, Message
from chronoline.core.topic import TopicSettings

MESSAGE_COLUMNS = (
    "id, ts, due, bucket, producer_group, lock_consumer, version, attempts, expires, key, headers"
)
"""What `read_message` expects, in this order."""
MESSAGE_WIDTH = 11

_NAME_SIZE = struct.Struct(">H")
_VALUE_SIZE = struct.Struct(">i")
_NO_VALUE = -1


def read_message(row: Sequence[Any]) -> Message:
    """A message from the values of `MESSAGE_COLUMNS`; what follows them in the row is ignored."""
    return Message(
        id=row[0],
        ts=row[1],
        due=row[2],
        bucket=row[3],
        producer_group=row[4],
        lock_consumer=row[5],
        version=row[6],
        attempts=row[7],
        expires=row[8],
        key=row[9],
        headers=unpack_headers(row[10]),
    )


def pack_headers(headers: Sequence[Header]) -> bytes | None:
    """Name and value after each other, each behind its size; a value of size -1 is None."""
    if not headers:
        return None
    parts = []
    for name, value in headers:
        name_bytes = name.encode()
        parts += [_NAME_SIZE.pack(len(name_bytes)), name_bytes]
        parts.append(_VALUE_SIZE.pack(_NO_VALUE if value is None else len(value)))
        parts.append(value or b"")
    return b"".join(parts)


def unpack_headers(packed: bytes | None) -> tuple[Header, ...]:
    """The headers that `pack_headers` packed."""
    if not packed:
        return ()
    headers: list[Header] = []
    place = 0
    while place < len(packed):
        (name_size,) = _NAME_SIZE.unpack_from(packed, place)
        place += _NAME_SIZE.size
        name = packed[place : place + name_size].decode()
        place += name_size
        (value_size,) = _VALUE_SIZE.unpack_from(packed, place)
        place += _VALUE_SIZE.size
        if value_size == _NO_VALUE:
            headers.append((name, None))
        else:
            headers.append((name, packed[place : place + value_size]))
            place += value_size
    return tuple(headers)


def pack_settings(settings: TopicSettings) -> str:
    return json.dumps(dataclasses.asdict(settings), sort_keys=True)


def unpack_settings(packed: str) -> TopicSettings:
    """Settings that a later version added are refused: they might matter."""
    try:
        return TopicSettings(**json.loads(packed))
    except (TypeError, ValueError) as error:
        raise StoreError(f"the stored settings of a topic cannot be read: {error}") from error
