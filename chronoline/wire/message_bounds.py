"""Bounds on protobuf messages of others: two bytes of a repeated field become a hundred in memory.

The fields of a message are counted in its bytes before protobuf parses it. A small message is not counted.
"""

from __future__ import annotations

from functools import cache
from typing import TypeVar, cast

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message

from chronoline.core.errors import InvalidInput

MOST_FIELDS = 320_000
"""The most fields of a message with all that it contains: a batch of 10,000 has room for 32 of each item."""
_SMALL_BYTES = 128 * 1024
_MOST_DEPTH = 100
"""Protobuf refuses deeper messages."""
_MOST_NUMBER_BYTES = 10
_MORE = 0x80
_BITS = 0x7F
_VARINT, _FIXED_64, _LENGTH, _FIXED_32 = 0, 1, 2, 5
_TEXT_TYPES = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)

Parsed = TypeVar("Parsed", bound=Message)


def parse_message(kind: type[Parsed], data: bytes) -> Parsed:
    """Raises `InvalidInput` for a message that cannot be read, or has too many fields."""
    if len(data) > _SMALL_BYTES and _has_too_many_fields(data, cast(Descriptor, kind.DESCRIPTOR)):
        raise InvalidInput(f"the message has more than {MOST_FIELDS:,} fields: send it in parts")
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise InvalidInput(f"the message cannot be read: {error}") from None


class _Fields:
    """The fields of a message that contain others, by their keys in the bytes: number and wire type."""

    def __init__(self) -> None:
        self.messages: dict[int, _Fields] = {}
        self.packed: set[int] = set()
        """Fields with many numbers in one, each of a byte or more."""


@cache
def _fields_of(descriptor: Descriptor) -> _Fields:
    return _read_fields(descriptor, {})


def _read_fields(descriptor: Descriptor, known: dict[str, _Fields]) -> _Fields:
    if descriptor.full_name in known:  # a message can contain messages of its own kind
        return known[descriptor.full_name]
    fields = known[descriptor.full_name] = _Fields()
    for field in descriptor.fields:
        key = field.number << 3 | _LENGTH
        if field.message_type is not None:
            fields.messages[key] = _read_fields(field.message_type, known)
        elif field.is_repeated and field.type not in _TEXT_TYPES:
            fields.packed.add(key)
    return fields


def _has_too_many_fields(  # noqa: PLR0912 - one loop: a call for each field would take twice as long
    data: bytes, descriptor: Descriptor
) -> bool:
    """False also for bytes that are no message: protobuf reads no further, and says what is wrong."""
    fields, place, end = _fields_of(descriptor), 0, len(data)
    left = MOST_FIELDS
    outer: list[tuple[_Fields, int]] = []
    try:
        while True:
            while place >= end:
                if not outer:
                    return False
                fields, end = outer.pop()
            left -= 1
            if left < 0:
                return True
            key = data[place]
            place += 1
            if key >= _MORE:
                key, place = _rest_of_number(data, place, key)
            wire_type = key & 7
            if wire_type == _LENGTH:
                size = data[place]
                place += 1
                if size >= _MORE:
                    size, place = _rest_of_number(data, place, size)
                inner = fields.messages.get(key)
                if inner is None:
                    if key in fields.packed:
                        left -= size
                        if left < 0:
                            return True
                    place += size
                elif len(outer) == _MOST_DEPTH:
                    return False
                else:
                    outer.append((fields, end))
                    fields, end = inner, place + size
            elif wire_type == _VARINT:
                if data[place] >= _MORE:
                    _, place = _rest_of_number(data, place, 0)
                else:
                    place += 1
            elif wire_type == _FIXED_64:
                place += 8
            elif wire_type == _FIXED_32:
                place += 4
    except IndexError:
        return False


def _rest_of_number(data: bytes, place: int, first: int) -> tuple[int, int]:
    """A number of several bytes, and the place behind it. Raises `IndexError` where none ends."""
    number, shift = first & _BITS, 7
    for behind in range(place + 1, place + 1 + _MOST_NUMBER_BYTES):
        byte = data[behind - 1]
        number |= (byte & _BITS) << shift
        if byte < _MORE:
            return number, behind
        shift += 7
    raise IndexError
