"""Where the next page of dead letters begins."""

from __future__ import annotations

from chronoline.core.message import DeadLetter, Message


def letter_place(message_id: str, died_ms: int) -> DeadLetter:
    """A letter by what the store asks of it: the last one of the page before."""
    message = Message(
        id=message_id,
        ts=0,
        due=0,
        bucket=0,
        producer_group="",
        lock_consumer=None,
        version=0,
        attempts=0,
        expires=None,
        key=None,
        headers=(),
    )
    return DeadLetter(message=message, reason="", died=died_ms)
