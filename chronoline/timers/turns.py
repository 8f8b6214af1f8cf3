"""Turns in doubt: a replica asks the nodes before it whether they have a call, before it makes the call.

A later replica waits its step for news of the earlier ones. Of a short interval the step is a few
milliseconds, and the news of a pop can take longer on its way, or the earlier node counts the interval from a
later start: then both would call. So the later one asks, and its delay grows by the time of the answer. A
node that cannot be reached, or does not answer in time, makes no call.

It decides only: `Replica` passes in the time, and `TurnAsker` sends the questions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from chronoline.timers.timer import Progress, Timer

SURE_STEP_MS = 500
"""A step that is longer than any message of a healthy cluster takes: nobody asks."""


class AskedTurn(NamedTuple):
    """The next call of a timer, as a node knows it."""

    timer_id: int
    progress: Progress


_OVERSLEPT_MS = 20
_READ_MS = 50
"""A node that wakes this much too late takes this time to read the answers that came meanwhile."""
_LEAST_PATIENCE_MS = 100


@dataclass(slots=True)
class _Doubt:
    progress: Progress
    # The nodes that have not answered.
    asked: set[str]
    until_ms: int
    was_extended: bool = False


class Doubts:
    """The turns for which one node waits for answers."""

    def __init__(self) -> None:
        self._open: dict[int, _Doubt] = {}
        self._questions: dict[str, list[AskedTurn]] = {}

    def open_until(
        self, timer: Timer, before: Iterable[str], *, limit_ms: int, now_ms: int
    ) -> int | None:
        """The moment until which a turn waits; at its first look the nodes before are asked.

        None if it waits no more.
        """
        doubt = self._open.get(timer.id)
        if doubt is None or doubt.progress != timer.progress:
            until_ms = max(limit_ms, now_ms + _LEAST_PATIENCE_MS)
            doubt = self._open[timer.id] = _Doubt(timer.progress, set(before), until_ms)
            for node in doubt.asked:
                self._questions.setdefault(node, []).append(AskedTurn(timer.id, timer.progress))
        if now_ms > doubt.until_ms + _OVERSLEPT_MS and not doubt.was_extended:
            doubt.until_ms, doubt.was_extended = now_ms + _READ_MS, True
        if doubt.asked and now_ms < doubt.until_ms:
            return doubt.until_ms
        del self._open[timer.id]
        return None

    def end(self, timer_id: int) -> None:
        """Forgets the answers: at its next turn the timer is asked for again."""
        self._open.pop(timer_id, None)

    def leaves_it(self, turn: AskedTurn, node: str) -> bool:
        """Notes that a node does not make the call; true if this was the last one that was asked."""
        doubt = self._open.get(turn.timer_id)
        if doubt is None or doubt.progress != turn.progress:
            return False
        doubt.asked.discard(node)
        return not doubt.asked

    def is_about(self, turn: AskedTurn) -> bool:
        """Whether a turn still waits for answers."""
        doubt = self._open.get(turn.timer_id)
        return doubt is not None and doubt.progress == turn.progress

    def take_questions(self) -> dict[str, list[AskedTurn]]:
        """The questions since the last call, by node."""
        questions, self._questions = self._questions, {}
        return questions
