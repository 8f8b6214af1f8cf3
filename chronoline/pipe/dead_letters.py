"""The relay of dead letters: from the timeline's to a topic, if a pipe has one for them.

Malformed records and messages that could not be published are dead letters of the timeline first, which
loses none of them. The relay publishes each with its reason in a header and discards it after the
acknowledgement. So a letter is there at least once; twice if the relay dies in between.
"""

from __future__ import annotations

import logging
import queue
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from chronoline.core.errors import Unpublishable
from chronoline.core.expiry import DeathReason
from chronoline.core.message import DeadLetter, Header
from chronoline.core.permissions import System
from chronoline.core.topic import Topic
from chronoline.pipe.intake import REASON_HEADER
from chronoline.pipe.outputs.contract import Output, OutRecord
from chronoline.stores.contract import Store

logger = logging.getLogger(__name__)

_LETTERS_AT_ONCE = 50
"""A letter may have 64 MiB: a few at a time."""
_TIMEOUT_S = 10.0


class Relay:
    """Moves the dead letters of a timeline to a topic."""

    def __init__(
        self, store: Store, topic: Topic, output: Output, now_ms: Callable[[], int]
    ) -> None:
        self._store = store
        self._topic = topic
        self._output = output
        self._now_ms = now_ms
        self._away = False  # the topic did not take what it might take later
        self._unpublishable: set[str] = set()  # ids; they are left alone until the next start

    def run(self, stopping: Callable[[], bool]) -> int:
        """Moves what is there; says how many letters. One that cannot be published stays where it is."""
        moved = 0
        last: DeadLetter | None = None
        while not stopping():
            letters = self._store.dead_letters(self._topic.uid, after=last, limit=_LETTERS_AT_ONCE)
            if not letters:
                break
            moved += self._move(letters)
            if self._away:
                break  # the others wait, and so does the rest of the upkeep
            last = letters[-1]
        return moved

    def _move(self, letters: list[DeadLetter]) -> int:
        ids = [each.message.id for each in letters if each.message.id not in self._unpublishable]
        found = self._store.bodies(
            self._topic.uid, ids, actor=System(), now_ms=self._now_ms()
        ).found
        there = [letter for letter in letters if letter.message.id in found]
        told: queue.SimpleQueue[tuple[str, BaseException | None]] = queue.SimpleQueue()

        def tell(message_id: str, error: BaseException | None) -> None:
            told.put((message_id, error))

        for letter in there:
            record = OutRecord(letter.message.key, found[letter.message.id], _headers(letter))
            self._output.publish(record, partial(tell, letter.message.id))
        errors: dict[str, BaseException | None] = {}
        with suppress(queue.Empty):  # what is told later stays, and is published again
            while len(errors) < len(there):
                errors |= [told.get(timeout=_TIMEOUT_S)]
        self._away = len(errors) < len(there) or any(
            error and not isinstance(error, Unpublishable) for error in errors.values()
        )
        done = [message_id for message_id, error in errors.items() if error is None]
        self._store.discard(self._topic.uid, done, now_ms=self._now_ms())
        self._log({message_id: error for message_id, error in errors.items() if error})
        return len(done)

    def _log(self, errors: dict[str, BaseException]) -> None:
        """One line for an output that is away, and one for each letter that it will never take."""
        away = [error for error in errors.values() if not isinstance(error, Unpublishable)]
        if away:
            logger.warning("%d dead letters stay for now: %s", len(away), away[-1])
        for message_id, error in errors.items():
            if isinstance(error, Unpublishable):
                logger.warning("the dead letter %r stays: %s", message_id, error)
                self._unpublishable.add(message_id)


def _headers(letter: DeadLetter) -> tuple[Header, ...]:
    """Its own, with the reason; a rejected record has one already."""
    if letter.reason == DeathReason.REJECTED:
        return letter.message.headers
    return (*letter.message.headers, (REASON_HEADER, letter.reason.encode()))
