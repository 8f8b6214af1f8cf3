"""A stored row as the rules see it."""

from typing import NamedTuple

from chronoline.core.status import Life


class StoredRow(NamedTuple):
    life: Life
    ts: int
    producer_group: str
    lock_consumer: str | None
    version: int
