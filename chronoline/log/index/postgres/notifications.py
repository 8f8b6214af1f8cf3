"""Notifications between processes about appends, in the form "speaker:topic,topic"."""

from __future__ import annotations

from collections.abc import Callable

_SPEAKER_BYTES = 8
_LONGEST_WORD = 7_900
"""PostgreSQL refuses payloads over 8,000 bytes."""


class Voice:
    """The name of a process in its notifications, by which it ignores its own."""

    def __init__(self, random_bytes: Callable[[int], bytes]) -> None:
        self._random_bytes = random_bytes
        self.change()

    def change(self) -> None:
        """Takes a new name: its former notifications count as another's."""
        self._speaker = self._random_bytes(_SPEAKER_BYTES).hex()

    def word(self, topics: set[int]) -> str:
        """A payload that names topics with new events, or all topics if there are too many."""
        named = ",".join(map(str, sorted(topics)))
        return f"{self._speaker}:{named if len(named) < _LONGEST_WORD else ''}"

    def is_own(self, word: str) -> bool:
        return word.startswith(f"{self._speaker}:")


def parse_word(word: str) -> set[int] | None:
    """The topics of a payload; None if it may be any."""
    named = word.partition(":")[2].split(",")
    if len(word) <= _LONGEST_WORD * 2 and all(each.isdecimal() for each in named):
        return {int(each) for each in named}
    return None
