"""The readers of one process: alone, as a member of a group, or until a partition is up to date."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass

from chronoline.clock import Clock
from chronoline.core.errors import StoreClosed, StoreError
from chronoline.log.contract import Hold, Index, LogTopic, Objects
from chronoline.log.events import Event
from chronoline.log.group_reading import GroupReader
from chronoline.log.processing import Again, Bury, Handler, Processing
from chronoline.log.reading import LoneReader
from chronoline.log.waking import Arrivals

_BATCH_EVENTS = 500
_STORE_WAIT_S = 1.0
"""How long a reader that follows leaves a failing store alone."""

_NO_LIMIT = 1 << 62

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CaughtUp:
    """What `read_until_current` did."""

    handled: int
    current: bool
    """Whether the partition was up to date at the end. If not, time was up, or another works on it."""
    sequence: int | None
    """The next event to read; None if another works on it."""


class Readers:
    """Makes readers, and lets them wait."""

    def __init__(
        self,
        objects: Objects,
        index: Index,
        arrivals: Arrivals,
        *,
        new_member: Callable[[], str],
        hold_ms: int,
        max_latency_ms: int,
        clock: Clock,
    ) -> None:
        self._objects = objects
        self._index = index
        self._arrivals = arrivals
        self._new_member = new_member
        self._hold_ms = hold_ms
        self._max_latency_s = max_latency_ms / 1000
        self._clock = clock
        self._listening = threading.Lock()  # taken once, by the first that waits

    def alone(
        self, topic: LogTopic, starts: dict[int, int], *, follow: bool, limit: int | None
    ) -> Generator[Event]:
        """Events from some sequences on; nothing is noted."""
        reader = LoneReader(self._objects, self._index, topic, starts)
        left = _NO_LIMIT if limit is None else limit
        while left > 0 and not self._arrivals.closed:
            seen = self._arrivals.count(topic.uid)
            for event in reader.read_on(min(left, _BATCH_EVENTS)):
                yield event
                left -= 1
                if not left:
                    return
            if not follow:
                return
            self._wait(topic, seen, self._max_latency_s)

    def member(
        self, topic: LogTopic, group: str, *, follow: bool, limit: int | None
    ) -> Generator[Event]:
        """Events of the member's share. Progress is noted when the event after a batch is asked for."""
        reader = self._group_reader(topic, group)
        left = _NO_LIMIT if limit is None else limit
        try:
            while left > 0:
                batch = self._next_batch(
                    reader, topic, follow=follow, limit=min(left, _BATCH_EVENTS)
                )
                if batch is None:
                    return
                hold, events = batch
                done = events[0].sequence
                try:
                    for event in events:
                        yield event
                        done = event.sequence + 1
                        left -= 1
                        if self._arrivals.closed:
                            return
                finally:
                    reader.done(hold, done)
        finally:
            reader.close()

    def process(
        self,
        topic: LogTopic,
        group: str,
        handler: Handler,
        *,
        follow: bool,
        limit: int | None,
        again: Again,
        bury: Bury | None,
    ) -> int:
        reader = self._group_reader(topic, group)
        processing = Processing(reader, handler, again, bury, lambda: self._arrivals.closed)
        most = _NO_LIMIT if limit is None else limit
        try:
            while processing.passed < most:
                batch = self._next_batch(
                    reader,
                    topic,
                    follow=follow or processing.waiting,
                    limit=min(most - processing.passed, _BATCH_EVENTS),
                )
                if batch is None:
                    break
                processing.work(*batch)
        finally:
            reader.close()
        return processing.handled

    def until_current(
        self,
        topic: LogTopic,
        group: str,
        partition: int,
        handler: Handler,
        time_limit_s: float | None,
    ) -> CaughtUp:
        now_ms = self._clock.now_ms()
        ends_ms = None if time_limit_s is None else now_ms + int(time_limit_s * 1000)
        handled = 0

        def in_time(event: Event) -> bool:
            nonlocal handled
            if ends_ms is not None and self._clock.now_ms() >= ends_ms:
                return False
            handler(event)
            handled += 1
            return True

        while True:
            sequence = self._catch_up(topic, group, partition, in_time)
            # Who was told while we held the partition has stopped: what came after our last look is ours.
            end = self._index.heads(topic.uid)[partition].next_sequence
            current = sequence is not None and sequence >= end
            time_is_up = ends_ms is not None and self._clock.now_ms() >= ends_ms
            if sequence is None or current or time_is_up:
                return CaughtUp(handled=handled, current=current, sequence=sequence)

    def _catch_up(
        self, topic: LogTopic, group: str, partition: int, handle: Callable[[Event], bool]
    ) -> int | None:
        """Where it stopped; None if another works on the partition."""
        reader = self._group_reader(topic, group, only=partition)
        try:
            while batch := reader.next_batch(_BATCH_EVENTS):
                hold, events = batch
                done = events[0].sequence
                try:
                    for event in events:
                        if not handle(event):
                            break
                        done = event.sequence + 1
                finally:
                    kept = reader.done(hold, done)
                if not kept:
                    return None
                if done <= events[-1].sequence:
                    return done
            return reader.sequence_of(partition)
        finally:
            reader.close()

    def _next_batch(
        self, reader: GroupReader, topic: LogTopic, *, follow: bool, limit: int
    ) -> tuple[Hold, list[Event]] | None:
        """The next batch, waiting for it while it follows; a store that fails is waited for too."""
        while not self._arrivals.closed:
            seen = self._arrivals.count(topic.uid)
            wait_s = self._max_latency_s
            try:
                batch = reader.next_batch(limit)
                if batch is not None:
                    return batch
            except StoreClosed:
                return None
            except StoreError as error:
                if not follow:
                    raise
                logger.warning("reading of %r waits for the store: %s", topic.name, error)
                wait_s = _STORE_WAIT_S
            if not follow:
                return None
            self._wait(topic, seen, wait_s, reader.idle_s())
        return None

    def _wait(self, topic: LogTopic, seen: int, look_s: float, idle_s: float = 60.0) -> None:
        """Until something is appended. An index that hears of other processes spares the looks.

        It listens from the first wait on, and says then that something may have been missed.
        """
        if self._listening.acquire(blocking=False):
            self._index.listen(self._arrivals.tell)
        self._arrivals.wait(topic.uid, seen, idle_s if self._index.hearing else min(look_s, idle_s))

    def _group_reader(self, topic: LogTopic, group: str, only: int | None = None) -> GroupReader:
        return GroupReader(
            self._objects,
            self._index,
            topic,
            group=group,
            member=self._new_member(),
            hold_ms=self._hold_ms,
            clock=self._clock,
            only=only,
        )
