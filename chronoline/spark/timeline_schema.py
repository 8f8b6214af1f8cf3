"""The columns of the format `chronoline`: those of Kafka's format where they mean the same."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from chronoline.core.errors import InvalidInput

FORMAT = "chronoline"

# Made by hand: parsing them takes a session, and there is none where Spark makes sources.
_TEXT, _BYTES, _TIME = StringType(), BinaryType(), TimestampType()
_INT, _LONG = IntegerType(), LongType()
_HEADER = StructType([StructField("key", _TEXT), StructField("value", _BYTES)])
_MESSAGE: Mapping[str, DataType] = {
    "id": _TEXT,
    "due": _TIME,
    "key": _BYTES,
    "value": _BYTES,
    "headers": ArrayType(_HEADER),
    "ts": _TIME,
    "status": _TEXT,
    "bucket": _INT,
    "attempts": _INT,
    "producer_group": _TEXT,
    "lock_consumer": _TEXT,
    "version": _LONG,
}
VIEWS: Mapping[str, Mapping[str, DataType]] = {
    "messages": _MESSAGE,
    "forecast": {"start": _TIME, "available": _LONG, "processing": _LONG, "waiting": _LONG},
    "dead": {**_MESSAGE, "died": _TIME, "reason": _TEXT},
}
"""The columns of each view."""
WRITTEN: Mapping[str, tuple[DataType, ...]] = {
    "id": (_TEXT,),
    "due": (_TIME,),
    "key": (_BYTES, _TEXT),
    "value": (_BYTES, _TEXT),
    "headers": (ArrayType(_HEADER),),
    "expires": (_TIME,),
}
"""The columns that can be written, with their types; text is written as UTF-8."""


def schema_of(view: str, columns: Iterable[str]) -> StructType:
    """These columns of the view, in this order."""
    return StructType([StructField(name, VIEWS[view][name]) for name in columns])


def check_read(wanted: StructType, view: str) -> None:
    """Raises `InvalidInput` unless these are columns of the view."""
    known = VIEWS[view]
    for field in wanted.fields:
        if field.name not in known:
            raise InvalidInput(
                f"view {view!r} has no column {field.name!r}; it has: {', '.join(known)}"
            )
        if not _is_a(field.dataType, known[field.name]):
            raise InvalidInput(
                f"column {field.name!r} is {known[field.name].simpleString()},"
                f" not {field.dataType.simpleString()}"
            )


def check_written(given: StructType, *, needs_id: bool, needs_due: bool) -> None:
    """Raises `InvalidInput` unless messages can be made of these columns."""
    for field in given.fields:
        types = WRITTEN.get(field.name)
        if types is None:
            raise InvalidInput(
                f"column {field.name!r} cannot be written to a timeline:"
                f" select among {', '.join(WRITTEN)}"
            )
        if not any(_is_a(field.dataType, each) for each in types):
            zone = "; it must know its zone" if field.dataType == TimestampNTZType() else ""
            raise InvalidInput(
                f"column {field.name!r} must be {' or '.join(t.simpleString() for t in types)},"
                f" not {field.dataType.simpleString()}{zone}"
            )
    if needs_id and "id" not in given.fieldNames():
        raise InvalidInput(
            "there is no column 'id': give each message an id of its own, by which it is known again"
            " when a task is repeated, or say .option('ids', 'made')"
        )
    if needs_due and "due" not in given.fieldNames():
        raise InvalidInput("there is no column 'due', and no option 'delay' such as '15m'")


def _is_a(given: DataType, wanted: DataType) -> bool:
    """Whether the types are the same, apart from nullability."""
    return given.simpleString() == wanted.simpleString()
