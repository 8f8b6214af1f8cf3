"""Headers as bytes: order, repeated names, empty names and missing values survive."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from chronoline.core.message import Header

_NAME_SIZE = struct.Struct(">H")
_VALUE_SIZE = struct.Struct(">i")
_NO_VALUE = -1
_MOST_NAME_BYTES = 65_535


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


def packing_problem(headers: Sequence[Header], most_bytes: int) -> str | None:
    """Why headers cannot be packed, or need more than `most_bytes`; None if they can."""
    total_bytes = 0
    for name, value in headers:
        try:
            name_bytes = len(name.encode())
        except UnicodeEncodeError:
            return "a header name is not valid UTF-8"
        if name_bytes > _MOST_NAME_BYTES:
            return f"a header name has {name_bytes} bytes; at most {_MOST_NAME_BYTES} are kept"
        total_bytes += _NAME_SIZE.size + name_bytes + _VALUE_SIZE.size + len(value or b"")
    if total_bytes > most_bytes:
        return f"the headers have {total_bytes} bytes; at most {most_bytes} are kept"
    return None


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
