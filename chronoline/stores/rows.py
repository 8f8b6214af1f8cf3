"""How messages, headers and settings are kept in the rows of a database."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from chronoline.core.errors import StoreError
from chronoline.core.headers import unpack_headers
from chronoline.core.message import Message
from chronoline.core.topic import TopicSettings

MESSAGE_WIDTH = 11
"""How many columns of a row are the message's."""


def read_message(row: Sequence[Any]) -> Message:
    """A message from its columns, in this order; what follows them in the row is ignored."""
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


def pack_settings(settings: TopicSettings) -> str:
    """Without what is None, which is the default: an older version need not know of it."""
    given = {
        name: value for name, value in dataclasses.asdict(settings).items() if value is not None
    }
    return json.dumps(given, sort_keys=True)


@lru_cache(maxsize=1_000)
def unpack_settings(packed: str) -> TopicSettings:
    """Settings that a later version added are refused: they might matter. Most topics have the same."""
    try:
        return TopicSettings(**json.loads(packed))
    except (TypeError, ValueError) as error:
        raise StoreError(f"the stored settings of a topic cannot be read: {error}") from error
