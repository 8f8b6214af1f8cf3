"""The relay of dead letters from the timeline to the pipe's dead-letter topic, if it has one.

Malformed records and messages that could not be published first become dead letters of the timeline, so that
none is lost. The relay publishes each with its reason in a header and discards it after the acknowledgement.
So a letter is published at least once; twice if the relay dies in between.
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
"""Small, because a letter may have 64 MiB."""
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
        self._away = False  # the topic is unreachable
        self._unpublishable: set[str] = set()  # ids; they are not tried again until the next start

    def run(self, stopping: Callable[[], bool]) -> int:
        """Moves the dead letters and returns their number. A letter that cannot be published stays."""
        moved = 0
        last: DeadLetter | None = None
        while not stopping():
            letters = self._store.dead_letters(self._topic.uid, after=last, limit=_LETTERS_AT_ONCE)
            if not letters:
                break
            moved += self._move(letters)
            if self._away:
                break  # more attempts would delay the rest of the upkeep
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
        with suppress(
            queue.Empty
        ):  # a letter that is confirmed later stays, and is published again
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
        """Logs one line for an unreachable output, and one for each letter that it refuses permanently."""
        away = [error for error in errors.values() if not isinstance(error, Unpublishable)]
        if away:
            logger.warning("%d dead letters stay for now: %s", len(away), away[-1])
        for message_id, error in errors.items():
            if isinstance(error, Unpublishable):
                logger.warning("the dead letter %r stays: %s", message_id, error)
                self._unpublishable.add(message_id)


def _headers(letter: DeadLetter) -> tuple[Header, ...]:
    """The letter's headers and the reason, which a rejected record already has."""
    if letter.reason == DeathReason.REJECTED:
        return letter.message.headers
    return (*letter.message.headers, (REASON_HEADER, letter.reason.encode()))
