"""What processes say to each other about their appends: "speaker:topic,topic"."""

from __future__ import annotations

from collections.abc import Callable

_SPEAKER_BYTES = 8
_LONGEST_WORD = 7_900
"""PostgreSQL refuses to say more than 8,000 bytes."""


class Voice:
    """How a process knows its own words among those that it hears."""

    def __init__(self, random_bytes: Callable[[int], bytes]) -> None:
        self._random_bytes = random_bytes
        self.change()

    def change(self) -> None:
        """From now on its former words are another's."""
        self._speaker = self._random_bytes(_SPEAKER_BYTES).hex()

    def word(self, topics: set[int]) -> str:
        """Says that these topics have new events; that any may have, if they are too many to name."""
        named = ",".join(map(str, sorted(topics)))
        return f"{self._speaker}:{named if len(named) < _LONGEST_WORD else ''}"

    def is_own(self, word: str) -> bool:
        return word.startswith(f"{self._speaker}:")


def parse_word(word: str) -> set[int] | None:
    """The topics that a word names; None if it may be any."""
    named = word.partition(":")[2].split(",")
    if len(word) <= _LONGEST_WORD * 2 and all(each.isdecimal() for each in named):
        return {int(each) for each in named}
    return None
