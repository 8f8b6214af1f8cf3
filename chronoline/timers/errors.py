"""Results of a client's change."""

from __future__ import annotations

from dataclasses import dataclass

from chronoline.core.errors import StoreError
from chronoline.timers.ids import TimerName


class Unstored(StoreError):
    """None of the nodes that are to keep the timer can be reached; nothing was changed. Try again."""


class Contended(StoreError):
    """Others change the timer at the same moment, so the last change is unknown. Try again."""


@dataclass(frozen=True, slots=True)
class Changed:
    """The result of a client's change."""

    name: TimerName
    copies: int
    wanted: int
