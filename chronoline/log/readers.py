"""The readers of one process: alone, as a member of a group, or until a partition is up to date."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Generator

from chronoline.core.errors import StoreClosed, StoreError
from chronoline.log.arrivals import Arrivals
from chronoline.log.catch_up import CatchUp, CaughtUp
from chronoline.log.contract import Hold, Index, LogTopic, Objects
from chronoline.log.events import Event
from chronoline.log.follower import Follower
from chronoline.log.group_reader import GroupReader
from chronoline.log.partition_reader import LoneReader
from chronoline.log.processor import Again, Bury, Handler, Processor
from chronoline.runtime.clock import Clock
from chronoline.runtime.fork_guard import ForkGuard

_BATCH_EVENTS = 500
_STORE_WAIT_S = 1.0
"""How long a reader that follows leaves a failing store alone."""

_CLOSE_WAIT_S = 5.0
_NO_LIMIT = 1 << 62

logger = logging.getLogger(__name__)


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
        # A look takes a moment too, and must be over when the latency is.
        self._look_every_s = max_latency_ms * 0.8 / 1000
        self._clock = clock
        # A reader that follows waits for a store that fails; one from before a fork never comes back.
        self._fork_guard = ForkGuard("the log")
        self._listening = threading.Lock()  # taken once, by the first that waits
        self._changed = threading.Condition()
        self._waiting: set[GroupReader] = set()
        """Readers of other threads, which end once the log is closed."""

    def alone(
        self, topic: LogTopic, starts: dict[int, int], *, follow: bool, limit: int | None
    ) -> Generator[Event]:
        """Events from some sequences on; no progress is stored."""
        self._fork_guard.check()
        reader = LoneReader(self._objects, self._index, topic, starts, self._clock)
        left = _NO_LIMIT if limit is None else limit
        while left > 0 and not self._arrivals.closed:
            seen = self._arrivals.count(topic.uid)
            wait_s = self._look_every_s
            try:
                for event in reader.read_on(min(left, _BATCH_EVENTS)):
                    yield event
                    left -= 1
                    if not left or self._arrivals.closed:
                        return
            except StoreError as error:
                if not follow or isinstance(error, StoreClosed):
                    raise
                logger.warning("reading of %r waits for the store: %s", topic.name, error)
                wait_s = _STORE_WAIT_S
            if not follow:
                if unreadable := reader.error():
                    raise unreadable  # the others are read; this one cannot be
                return
            self._wait(topic, seen, wait_s, reader.idle_s())

    def follower(self, topic: LogTopic, starts: dict[int, int]) -> Follower:
        """A reader from some sequences on whose waits have an end; no progress is stored."""
        self._fork_guard.check()
        reader = LoneReader(self._objects, self._index, topic, starts, self._clock)
        return Follower(
            reader,
            lambda: self._arrivals.count(topic.uid),
            lambda seen, idle_s: self._wait(topic, seen, self._look_every_s, idle_s),
        )

    def member(
        self,
        topic: LogTopic,
        group: str,
        *,
        follow: bool,
        limit: int | None,
        only: int | None = None,
    ) -> Generator[Event]:
        """Events of the member's share, or of one partition.

        Progress is stored when the event after a batch is requested.
        """
        reader = self._joined(topic, group, follow, only)
        left = _NO_LIMIT if limit is None else limit
        try:
            while left > 0:
                batch = self._next_batch(
                    reader, topic, follow=lambda: follow, limit=min(left, _BATCH_EVENTS)
                )
                if batch is None:
                    return
                hold, events = batch
                done = events[0].sequence
                try:
                    for event in events:
                        if not reader.still_holds(hold):
                            break  # another reader may have it
                        yield event
                        done = event.sequence + 1
                        left -= 1
                        if self._arrivals.closed:
                            return
                finally:
                    reader.processed(hold, done)
        finally:
            self._end(reader)

    def process(
        self,
        topic: LogTopic,
        group: str,
        handler: Handler,
        *,
        only: int | None = None,
        follow: bool,
        limit: int | None,
        again: Again,
        bury: Bury | None,
    ) -> int:
        reader = self._joined(topic, group, follow, only)
        processor = Processor(reader, handler, again, bury, lambda: self._arrivals.closed)
        most = _NO_LIMIT if limit is None else limit
        try:
            while processor.passed < most:
                batch = self._next_batch(
                    reader,
                    topic,
                    follow=lambda: follow or processor.waiting(),
                    limit=min(most - processor.passed, _BATCH_EVENTS),
                )
                if batch is None:
                    break
                processor.work(*batch)
        finally:
            self._end(reader)
        return processor.handled

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

        def stopping() -> bool:
            time_is_up = ends_ms is not None and self._clock.now_ms() >= ends_ms
            return time_is_up or self._arrivals.closed

        return CatchUp(
            self._index,
            topic,
            group,
            partition,
            open_reader=lambda: self.group_reader(topic, group, only=partition),
            handler=handler,
            stopping=stopping,
        ).run()

    def close(self) -> None:
        """Waits a moment until waiting readers have given up their holds."""
        with self._changed:
            self._changed.wait_for(lambda: not self._waiting, _CLOSE_WAIT_S)

    def _end(self, reader: GroupReader) -> None:
        reader.close()
        with self._changed:
            self._waiting.discard(reader)
            self._changed.notify_all()

    def _next_batch(
        self, reader: GroupReader, topic: LogTopic, *, follow: Callable[[], bool], limit: int
    ) -> tuple[Hold, list[Event]] | None:
        """The next batch; waits for it, and for a failing store, while it follows."""
        with self._changed:
            self._waiting.add(reader)
        batch = self._await_batch(reader, topic, follow, limit)
        if batch is not None:
            with self._changed:
                self._waiting.discard(reader)
        return batch

    def _await_batch(
        self, reader: GroupReader, topic: LogTopic, follow: Callable[[], bool], limit: int
    ) -> tuple[Hold, list[Event]] | None:
        while not self._arrivals.closed:
            seen = self._arrivals.count(topic.uid)
            wait_s = self._look_every_s
            try:
                batch = reader.next_batch(limit)
                if batch is not None:
                    return batch
            except StoreClosed:
                return None
            except StoreError as error:
                if not follow():
                    raise
                logger.warning("reading of %r waits for the store: %s", topic.name, error)
                wait_s = _STORE_WAIT_S
            if not follow():
                if unreadable := reader.error():
                    raise unreadable  # the others are read; this one cannot be
                return None
            self._wait(topic, seen, wait_s, reader.idle_s())
        return None

    def _wait(self, topic: LogTopic, seen: int, look_s: float, idle_s: float) -> None:
        """Waits for an append. An index with notifications needs no polling.

        It listens from the first wait on, and reports then that something may have been missed.
        """
        self._fork_guard.check()
        if self._listening.acquire(blocking=False):
            self._index.listen(self._arrivals.notify)
        spared = self._index.hearing and look_s == self._look_every_s
        self._arrivals.wait(topic.uid, seen, idle_s if spared else min(look_s, idle_s))

    def _joined(self, topic: LogTopic, group: str, follow: bool, only: int | None) -> GroupReader:
        """A new member; waits for a failing store, if it follows."""
        self._fork_guard.check()
        while True:
            seen = self._arrivals.count(topic.uid)
            try:
                return self.group_reader(topic, group, only)
            except StoreError as error:
                if not follow or isinstance(error, StoreClosed) or self._arrivals.closed:
                    raise
                logger.warning("joining group %r waits for the store: %s", group, error)
            self._arrivals.wait(topic.uid, seen, _STORE_WAIT_S)

    def group_reader(self, topic: LogTopic, group: str, only: int | None = None) -> GroupReader:
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
