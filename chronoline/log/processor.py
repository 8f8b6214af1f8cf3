"""The processor calls a handler for a group's events, with retries and dead letters."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from chronoline.core.errors import InvalidInput
from chronoline.core.message import Header
from chronoline.log.contract import Hold
from chronoline.log.events import Event
from chronoline.log.group_reader import GroupReader
from chronoline.runtime.backoff import Backoff

logger = logging.getLogger(__name__)

Handler = Callable[[Event], None]
Bury = Callable[[Event, tuple[Header, ...]], None]
"""Puts an event into the dead letters, with headers that say why."""

_ERROR_BYTES = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """When an event is delivered again, and how often before it becomes a dead letter."""

    retry_ms: int = 1_000
    longest_retry_ms: int = 60_000
    max_attempts: int = 10

    def __post_init__(self) -> None:
        if not all(type(each) is int for each in (self.retry_ms, self.longest_retry_ms)):
            raise InvalidInput("retry_ms and longest_retry_ms are whole milliseconds")
        if self.retry_ms < 0 or self.longest_retry_ms < self.retry_ms or self.max_attempts < 1:
            raise InvalidInput(
                "retry_ms must be from 0 to longest_retry_ms, and max_attempts at least 1"
            )

    def wait_ms(self, attempts: int) -> int:
        """Twice as long after each attempt."""
        return int(Backoff(self.retry_ms, self.longest_retry_ms).wait(attempts))


class Processor:
    """Passes the batches of one reader to a handler. Attempts are counted here, so a restart begins anew."""

    def __init__(
        self,
        reader: GroupReader,
        handler: Handler,
        again: Again,
        bury: Bury | None,
        stopping: Callable[[], bool],
    ) -> None:
        self._reader = reader
        self._handler = handler
        self._again = again
        self._bury = bury
        self._stopping = stopping
        self._attempts: dict[tuple[int, int], int] = {}
        self.handled = 0
        self.passed = 0
        """The number of events that were handled or became dead letters."""

    def waiting(self) -> bool:
        """Whether an event that failed waits to be delivered again by us."""
        self._forget_lost_attempts()
        return bool(self._attempts)

    def _forget_lost_attempts(self) -> None:
        """Forgets the attempts of earlier events: there is at most one count for each partition."""
        self._attempts = {
            place: count for place, count in self._attempts.items() if self._is_next(*place)
        }

    def _is_next(self, partition: int, sequence: int) -> bool:
        """Whether the event is still ours: another reader, a seek or retention may have taken it."""
        return self._reader.sequence_of(partition) == sequence

    def work(self, hold: Hold, events: list[Event]) -> None:
        """Delivers events until one fails, the hold is lost, or it must stop; that one is the next."""
        done = events[0].sequence
        try:
            for event in events:
                if not self._reader.still_holds(hold):
                    break  # another reader may have it
                if not self._deliver(event):
                    attempts = self._attempts[event.partition, event.sequence]
                    self._reader.failed(hold, event.sequence, self._again.wait_ms(attempts))
                    self._forget_lost_attempts()
                    break
                done = event.sequence + 1
                self.passed += 1
                if self._stopping():
                    break
        finally:
            self._reader.processed(hold, done)

    def _deliver(self, event: Event) -> bool:
        place = (event.partition, event.sequence)
        try:
            self._handler(event)
        except Exception as error:
            attempts = self._attempts[place] = self._attempts.get(place, 0) + 1
            logger.warning(
                "event %d of partition %d of %r failed, attempt %d: %s",
                event.sequence,
                event.partition,
                event.topic,
                attempts,
                error,
            )
            if self._bury is None or attempts < self._again.max_attempts:
                return False
            if not self._buried(event, error):
                return False
        else:
            self.handled += 1
        self._attempts.pop(place, None)
        return True

    def _buried(self, event: Event, error: Exception) -> bool:
        """False if the dead letter could not be written now: then it is retried like a failed attempt."""
        assert self._bury is not None
        try:
            self._bury(event, _reason(event, error))
        except Exception as failure:  # also an error that cannot be put into words
            logger.warning(
                "event %d of partition %d of %r could not be put away: %s",
                event.sequence,
                event.partition,
                event.topic,
                failure,
            )
            return False
        return True


def _reason(event: Event, error: Exception) -> tuple[Header, ...]:
    return (
        ("chronolineTopic", event.topic.encode()),
        ("chronolinePartition", str(event.partition).encode()),
        ("chronolineSequence", str(event.sequence).encode()),
        (
            "chronolineError",
            f"{type(error).__name__}: {error}".encode(errors="replace")[:_ERROR_BYTES],
        ),
    )
