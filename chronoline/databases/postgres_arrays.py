"""Arrays of numbers, texts and bytes for PostgreSQL, packed a column at a time.

The driver inspects each element of a list several times, a third of the client's cost of a bulk statement.

Numbers always travel as `bigint[]`, and the statement casts them: so there is one prepared statement, not
one for each width. An array in which everything is null travels as `text[]`, which can be cast to any other.
"""

from __future__ import annotations

import struct
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any

from psycopg import DataError
from psycopg.abc import AdaptContext, DumperKey
from psycopg.adapt import Dumper, PyFormat
from psycopg.postgres import types
from psycopg.pq import Format

_HEAD = struct.Struct("!iiIii")
"""Dimensions, whether there are nulls, the type of the elements, their count, and the lower bound."""
_NUMBER = struct.Struct("!iq")
_NUMBER_BYTES = 8
_SIZE = struct.Struct("!i")
_NULL = _SIZE.pack(-1)


class _ArrayDumper(Dumper):
    """A list whose elements are of one type, or null."""

    format = Format.BINARY
    element = "text"

    def __init__(self, cls: type, context: AdaptContext | None = None) -> None:
        super().__init__(cls, context)
        self.oid = types[self.element].array_oid
        self._element_oid = types[self.element].oid

    def dump(self, obj: list[Any]) -> bytes:
        nulls = obj.count(None)
        head = _HEAD.pack(1, bool(nulls), self._element_oid, len(obj), 1)
        if nulls == len(obj):
            return head + nulls * _NULL
        return head + b"".join(self._elements(obj))

    @abstractmethod
    def _elements(self, values: Sequence[Any]) -> Iterable[bytes]:
        """Each element behind its size; some may be null."""


class _Numbers(_ArrayDumper):
    element = "int8"

    def _elements(self, values: Sequence[int | None]) -> Iterable[bytes]:
        if None not in values:
            return map(_NUMBER.pack, repeat(_NUMBER_BYTES), values)
        return (_NULL if each is None else _NUMBER.pack(_NUMBER_BYTES, each) for each in values)


class _Bytes(_ArrayDumper):
    element = "bytea"

    def _elements(self, values: Sequence[bytes | None]) -> Iterable[bytes]:
        return _with_sizes(values)


class _Texts(_ArrayDumper):
    """In UTF-8, the encoding of our connections."""

    element = "text"

    def _elements(self, values: Sequence[str | None]) -> Iterable[bytes]:
        return _with_sizes([None if each is None else each.encode() for each in values])


def _with_sizes(values: Sequence[bytes | None]) -> list[bytes]:
    pack = _SIZE.pack
    parts: list[bytes] = []
    for each in values:
        if each is None:
            parts.append(_NULL)
        else:
            parts += (pack(len(each)), each)
    return parts


_BY_TYPE: dict[type, type[_ArrayDumper]] = {int: _Numbers, str: _Texts, bytes: _Bytes}


class ListDumper(Dumper):
    """Any list: the elements determine its type."""

    format = Format.BINARY

    def get_key(self, obj: list[Any], format: PyFormat) -> DumperKey:
        return (list, _type_of(obj))

    def upgrade(self, obj: list[Any], format: PyFormat) -> _ArrayDumper:
        kind = _type_of(obj)
        if kind not in _BY_TYPE:
            raise DataError(f"arrays hold numbers, texts or bytes, not {kind.__name__}")
        return _BY_TYPE[kind](list)

    def dump(self, obj: list[Any]) -> bytes:
        return self.upgrade(obj, PyFormat.BINARY).dump(obj)


def _type_of(values: list[Any]) -> type:
    """The dumper of the first element's type or base type; of text, if there is none."""
    first = next((each for each in values if each is not None), "")
    if isinstance(first, bool):
        return bool
    return next((kind for kind in _BY_TYPE if isinstance(first, kind)), type(first))
