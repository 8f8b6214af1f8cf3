"""Start positions: where reading begins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Literal

from chronoline.core.errors import InvalidInput
from chronoline.log.contract import Head, Index
from chronoline.runtime.timestamps import to_ms

Start = Literal["earliest", "latest"] | int | datetime
"""The first event, the next to come, a sequence, or the first that was committed at a moment or later."""

_LIKE_MS = 10**12
"""As milliseconds since 1970 a moment of 2001; as a sequence more than any partition has."""


def sequences_at(
    index: Index, topic_uid: int, heads: Iterable[Head], start: Start
) -> dict[int, int]:
    """The sequence that a start stands for in each partition, from the first that there is on."""
    heads = list(heads)
    if (
        type(start) is int
        and start >= _LIKE_MS
        and all(head.next_sequence < start for head in heads)
    ):
        raise InvalidInput(
            f"{start} is taken for a sequence, and looks like a time in milliseconds: write such a one as a "
            f"moment with its zone, on the command line as 2026-01-31T12:00:00Z. {_ends(heads)}"
        )
    return {head.partition: _sequence_at(index, topic_uid, head, start) for head in heads}


def within(heads: Sequence[Head], sequences: Mapping[int, int]) -> dict[int, int]:
    """Sequences that are not beyond the ends. Raises `InvalidInput` where all of them are."""
    if heads and all(sequences[head.partition] > head.next_sequence for head in heads):
        raise InvalidInput(
            f"sequence {max(sequences.values())} is beyond the end. {_ends(heads)}; 'latest' goes there"
        )
    return {head.partition: min(sequences[head.partition], head.next_sequence) for head in heads}


def _ends(heads: Sequence[Head]) -> str:
    """Where partitions end."""
    longest = max(heads, key=lambda head: head.next_sequence)
    of_several = "" if len(heads) == 1 else ", the longest,"
    return (
        f"The next event of partition {longest.partition}{of_several} gets sequence "
        f"{longest.next_sequence}"
    )


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
    return max(at, head.first_sequence)
