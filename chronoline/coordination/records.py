"""Records: typed values of entries, as JSON.

A record is a frozen dataclass. Its JSON object has the fields, and `v`, the version of the format. Brokers of
different releases meet in one cluster, so a reader ignores fields that it does not know and takes the default
for those that are missing. Only a change that older readers would misunderstand gives a class a higher
`FORMAT`; they skip its records. A malformed value is skipped and logged, once by each watch
that shows it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from enum import StrEnum
from functools import cache
from types import UnionType
from typing import Any, ClassVar, TypeVar, cast, get_args, get_origin, get_type_hints

from chronoline.coordination.contract import KeyValue, View

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Record:
    """The base of records."""

    FORMAT: ClassVar[int] = 1

    def encode(self) -> bytes:
        """The value of the entry; equal records have equal values."""
        return json.dumps(
            {"v": self.FORMAT, **asdict(self)}, sort_keys=True, separators=(",", ":")
        ).encode()


AnyRecord = TypeVar("AnyRecord", bound=Record)


def record_of(kind: type[AnyRecord], entry: KeyValue) -> AnyRecord | None:
    """The record of an entry; None if it is malformed.

    An entry is decoded once: a watch shows all entries again at each change. The record ends with the entry.
    """
    if kind not in entry.decoded:
        entry.decoded[kind] = _read(kind, entry.value)
    found = entry.decoded[kind]
    assert found is None or isinstance(found, kind)
    return found


def is_newer(kind: type[Record], entry: KeyValue) -> bool:
    """Whether a broker of a newer release wrote an entry, in a format that is not known here."""
    try:
        found = json.loads(entry.value)
    except (ValueError, RecursionError):
        return False
    version = found.get("v") if isinstance(found, dict) else None
    return type(version) is int and version > kind.FORMAT


def records_of(kind: type[AnyRecord], view: View) -> Iterator[tuple[KeyValue, AnyRecord]]:
    """The well-formed records of a view, each with its entry."""
    for entry in view.entries.values():
        record = record_of(kind, entry)
        if record is not None:
            yield entry, record


def _read(kind: type[Record], value: bytes) -> Record | None:
    try:
        return _decode(kind, json.loads(value))
    except (ValueError, RecursionError) as error:
        logger.warning("a %s in the coordination service is skipped: %s", kind.__name__, error)
        return None


def _decode(kind: type[Record], found: object) -> Record:
    if not isinstance(found, dict):
        raise _Unfit("it is no object")
    version = found.get("v")
    if type(version) is not int or version > kind.FORMAT:
        raise _Unfit(f"its format is {version!r}, and {kind.FORMAT} is known")
    return _build(kind, found)


class _Unfit(ValueError):
    """A value does not fit its field."""


def _build(kind: type[Record], found: Mapping[str, Any]) -> Record:
    types = _types_of(cast(Hashable, kind))
    values = {}
    for field in fields(kind):
        if field.name in found:
            values[field.name] = _fit(field.name, types[field.name], found[field.name])
        elif field.default is MISSING and field.default_factory is MISSING:
            raise _Unfit(f"it has no {field.name}")
    return kind(**values)


@cache
def _types_of(kind: Any) -> Mapping[str, Any]:
    return get_type_hints(kind)


def _fit(name: str, kind: Any, value: Any) -> Any:
    """A value of JSON as the type of its field. Raises `_Unfit`."""
    arguments = get_args(kind)
    if isinstance(kind, UnionType):
        (inner,) = (each for each in arguments if each is not type(None))
        return None if value is None else _fit(name, inner, value)
    if get_origin(kind) is tuple and isinstance(value, list):
        return tuple(_fit(name, arguments[0], each) for each in value)
    if get_origin(kind) is dict and isinstance(value, dict):
        return value
    if isinstance(kind, type) and issubclass(kind, Record) and isinstance(value, dict):
        return _build(kind, value)
    if isinstance(kind, type) and issubclass(kind, StrEnum) and value in list(kind):
        return kind(value)
    if kind is type(value) and kind in (bool, int, str):
        return value
    raise _Unfit(f"its {name} is {value!r}")
