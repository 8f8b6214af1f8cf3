"""Where reading begins."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Literal

from chronoline.clock import to_ms
from chronoline.core.errors import InvalidInput
from chronoline.log.contract import Head, Index

Start = Literal["earliest", "latest"] | int | datetime
"""The first event, the next to come, a sequence, or the first that was committed at a moment or later."""


def sequences_at(
    index: Index, topic_uid: int, heads: Iterable[Head], start: Start
) -> dict[int, int]:
    """The sequence that a start stands for in each partition, within what there is."""
    return {head.partition: _sequence_at(index, topic_uid, head, start) for head in heads}


def _sequence_at(index: Index, topic_uid: int, head: Head, start: Start) -> int:
    if start == "earliest":
        return head.first_sequence
    if start == "latest":
        return head.next_sequence
    if isinstance(start, datetime):
        at = index.sequence_at(topic_uid, head.partition, to_ms(start, "the start"))
    elif type(start) is int and start >= 0:
        at = start
    else:
        raise InvalidInput(
            f"a start is 'earliest', 'latest', a sequence from 0 on, or a moment with its zone, not {start!r}"
        )
    return min(max(at, head.first_sequence), head.next_sequence)
