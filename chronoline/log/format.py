"""The format of events in objects.

An object is a magic word and then chunks, one for each partition it has events of. A chunk is

    crc32 of what follows | number of events | events

and is read by itself, by the offset and length that the index knows. An event is

    ts | size of key | key | size of value | value | size of headers | headers

with big-endian numbers, and -1 as the size of a missing part.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

from chronoline.core.errors import ChronolineError
from chronoline.core.headers import pack_headers, unpack_headers
from chronoline.log.events import Event, NewEvent

MAGIC = b"CHL1"
_CRC = struct.Struct(">I")
_COUNT = struct.Struct(">I")
_TS = struct.Struct(">q")
_SIZE = struct.Struct(">i")
_NONE = _SIZE.pack(-1)


class DamagedObject(ChronolineError):
    """An object of the log is damaged."""


def pack_chunk(events: Sequence[NewEvent], now_ms: int) -> bytes:
    """A chunk of events; `now_ms` is the time of those that have none."""
    parts: list[bytes] = [_COUNT.pack(len(events))]
    for event in events:
        parts.append(_TS.pack(now_ms if event.ts is None else event.ts))
        for field in (event.key, event.value, pack_headers(event.headers)):
            if field is None:
                parts.append(_NONE)
            else:
                parts += (_SIZE.pack(len(field)), field)
    checked = b"".join(parts)
    return _CRC.pack(zlib.crc32(checked)) + checked


def join_chunks(chunks: Sequence[bytes]) -> bytes:
    """One chunk with the events of several, in their order. They were packed just now: nothing is checked."""
    if len(chunks) == 1:
        return chunks[0]
    count = sum(_COUNT.unpack_from(chunk, _CRC.size)[0] for chunk in chunks)
    events = (memoryview(chunk)[_CRC.size + _COUNT.size :] for chunk in chunks)
    checked = b"".join((_COUNT.pack(count), *events))
    return _CRC.pack(zlib.crc32(checked)) + checked


def unpack_chunk(
    data: bytes, *, topic: str, partition: int, first_sequence: int, name: str
) -> list[Event]:
    """The events of a chunk. Raises `DamagedObject`, with the object's name, if it is not whole."""
    try:
        (crc,) = _CRC.unpack_from(data)
        (count,) = _COUNT.unpack_from(data, _CRC.size)
        if zlib.crc32(memoryview(data)[_CRC.size :]) != crc:
            raise DamagedObject(
                f"object {name!r} is damaged: the checksum of its events of {topic!r}, partition "
                f"{partition}, from sequence {first_sequence}, is wrong"
            )
        events, place = [], _CRC.size + _COUNT.size
        for number in range(count):
            (ts,) = _TS.unpack_from(data, place)
            place += _TS.size
            fields: list[bytes | None] = []
            for _ in range(3):
                (size,) = _SIZE.unpack_from(data, place)
                place += _SIZE.size
                fields.append(None if size < 0 else data[place : place + size])
                place += max(0, size)
            key, value, headers = fields
            events.append(
                Event(
                    topic=topic,
                    partition=partition,
                    sequence=first_sequence + number,
                    ts=ts,
                    key=key,
                    value=value,
                    headers=unpack_headers(headers),
                )
            )
    except (struct.error, UnicodeDecodeError) as error:
        raise DamagedObject(
            f"object {name!r} is damaged: its {len(data)} bytes of events of {topic!r}, partition "
            f"{partition}, from sequence {first_sequence}, end too early or make no sense"
        ) from error
    return events
