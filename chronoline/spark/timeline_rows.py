"""Messages from rows in Arrow. This is the hot path of a bulk write: columns at a time, no row objects."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from chronoline.core.message import Header, NewMessage

_DIGEST_BYTES = 16
_ID_CHARACTERS = 26
_US_IN_MS = 1_000
_NAMELESS: Any = (None, None)
"""A null header becomes this, which the store refuses with a reason."""


class MadeIds:
    """Ids made from the place and the content of rows.

    A repeated task makes the same ones, in whatever order its rows come: equal rows are distinguished by
    counting them. It remembers about 100 bytes a row until its partition is through.
    """

    def __init__(self, place: str) -> None:
        self._place = place.encode()
        self._seen: dict[bytes, int] = {}

    def make(
        self, due: int | None, key: bytes | None, body: bytes | None, headers: tuple[Header, ...]
    ) -> str:
        digest = _digest(self._place, str(due).encode(), key, body, repr(headers).encode())
        content = digest.digest()
        count = self._seen.get(content, 0)
        self._seen[content] = count + 1
        digest.update(b"/%d" % count)
        return digest.hexdigest()[:_ID_CHARACTERS]


def _digest(place: bytes, *parts: bytes | None) -> hashlib.blake2b:
    """A digest of the parts, in which their borders count."""
    digest = hashlib.blake2b(place, digest_size=_DIGEST_BYTES)
    for part in parts:
        digest.update(b"-" if part is None else b"%d:" % len(part))
        digest.update(part or b"")
    return digest


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """How messages are made from rows."""

    producer_group: str
    made: MadeIds | None = None
    """Makes ids for rows without one; None leaves it to the store to refuse them."""


def read_rows(rows: Rows, batch: pa.RecordBatch, default_due: int | None) -> list[NewMessage]:
    """A message for each row, in order; the store validates them.

    Its digest covers the row's own columns, but not a due time that is counted from the write.
    """
    size = batch.num_rows
    columns = {name: batch.column(name) for name in batch.schema.names}
    given_dues = _times(columns.get("due"), size)
    dues = given_dues
    if default_due is not None:
        dues = [default_due if due is None else due for due in given_dues]
    keys = _bytes(columns.get("key"), size)
    bodies = _bytes(columns.get("value"), size)
    headers = _headers(columns.get("headers"), size)
    expiries = _times(columns.get("expires"), size)
    ids: Sequence[Any] = columns["id"].to_pylist() if "id" in columns else [None] * size
    if rows.made is not None:
        ids = [
            rows.made.make(due, key, body, some) if each is None else each
            for each, due, key, body, some in zip(
                ids, given_dues, keys, bodies, headers, strict=True
            )
        ]
    group = rows.producer_group
    return [
        NewMessage(
            id=message_id,
            due=due,
            body=body,
            key=key,
            headers=some,
            expires=expires,
            producer_group=group,
            digest=_digest(
                b"%a/%a/" % (given, expires), group.encode(), key, body, repr(some).encode()
            ).digest(),
        )
        for message_id, due, given, body, key, some, expires in zip(
            ids, dues, given_dues, bodies, keys, headers, expiries, strict=True
        )
    ]


def _times(column: pa.Array | None, size: int) -> list[int | None]:
    """In milliseconds, fractions rounded up."""
    if column is None:
        return [None] * size
    micros = column.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    # Rounded towards zero it may be a millisecond short, after 1970; before, the store refuses it.
    down = pc.divide(micros, _US_IN_MS)
    short = pc.greater(micros, pc.multiply(down, _US_IN_MS))
    found: list[int | None] = pc.add(down, short.cast(pa.int64())).to_pylist()
    return found


def _bytes(column: pa.Array | None, size: int) -> list[bytes | None]:
    if column is None:
        return [None] * size
    found: list[bytes | None] = column.cast(pa.binary()).to_pylist()
    return found


def _headers(column: pa.Array | None, size: int) -> list[tuple[Header, ...]]:
    if column is None or column.null_count == size:
        return [()] * size
    return [
        tuple((each["key"], each["value"]) if each else _NAMELESS for each in some or ())
        for some in column.to_pylist()
    ]
