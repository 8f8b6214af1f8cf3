"""New message ids, which need a clock and randomness."""

from __future__ import annotations

import os

from chronoline.core.ids import ID_ENTROPY_BYTES, make_id
from chronoline.core.message import DEFAULT_PRODUCER_GROUP, Header, NewMessage
from chronoline.runtime.clock import Clock, SystemClock


def new_message(
    *,
    due: int,
    body: bytes | None = b"",
    id: str | None = None,  # the field's name
    key: bytes | None = None,
    headers: tuple[Header, ...] = (),
    expires: int | None = None,
    producer_group: str = DEFAULT_PRODUCER_GROUP,
) -> NewMessage:
    """A message to create, with a new id if none is given.

    The id exists before the first attempt, so that an attempt of unknown outcome can be repeated.
    """
    return NewMessage(
        id=new_id() if id is None else id,
        due=due,
        body=body,
        key=key,
        headers=headers,
        expires=expires,
        producer_group=producer_group,
    )


def new_id(clock: Clock | None = None) -> str:
    """A unique id of 26 characters, which sorts by its time of creation.

    Make it before the first attempt to send, so that an attempt of unknown outcome can be repeated.
    """
    return make_id((clock or SystemClock()).now_ms(), os.urandom(ID_ENTROPY_BYTES))
