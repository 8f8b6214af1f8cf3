"""The log, as its users see it."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Self

from chronoline.clock import Clock, SystemClock
from chronoline.core.errors import InvalidInput, TopicNotFound
from chronoline.core.ids import ID_ENTROPY_BYTES, UID_ENTROPY_BYTES, make_id, make_topic_uid
from chronoline.core.limits import name_problem
from chronoline.core.message import Header
from chronoline.core.topic import check_topic_name
from chronoline.grouping import Lane
from chronoline.log.appending import Placed, Placement, Writer
from chronoline.log.contract import MAX_PARTITIONS, GroupState, Head, LogTopic
from chronoline.log.events import Event, NewEvent, Position, check_event, partition_problem
from chronoline.log.group_reading import GroupReader
from chronoline.log.opening import open_parts
from chronoline.log.reading import PartitionReader
from chronoline.log.upkeep import Compacted, Upkeep
from chronoline.log.waking import Arrivals

DEFAULT_PARTITIONS = 8
_BATCH_EVENTS = 500

logger = logging.getLogger(__name__)


class Log:
    """Partitioned, append-only topics. Thread-safe; open one for each process.

    `linger_ms` waits for company before each commit; at 0, appends that come while one is under way share
    the next. `max_latency_ms` is how late a waiting reader may hear of what another process appended.
    """

    def __init__(
        self,
        url: str,
        *,
        linger_ms: float = 0,
        object_bytes: int = 8 * 1024 * 1024,
        max_latency_ms: int = 100,
        hold_ms: int = 30_000,
        clock: Clock | None = None,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self._objects, self._index = open_parts(url)
        self._clock = clock or SystemClock()
        self._random_bytes = random_bytes
        self._max_latency_s = max_latency_ms / 1000
        self._hold_ms = hold_ms
        self._topics: dict[str, LogTopic] = {}
        self._placement = Placement()
        self._arrivals = Arrivals()
        self._writer = Writer(
            self._objects, self._index, random_bytes=random_bytes, object_bytes=object_bytes
        )
        self._upkeep = Upkeep(self._objects, self._index, random_bytes)
        self._lane = Lane(
            "chronoline-appends",
            self._clock,
            commit_ms=1_000,
            most_items=200_000,
            linger_ms=linger_ms,
        )
        self._queue = self._lane.open_queue()
        self._closed = False

    # Topics

    def create_topic(self, name: str, *, partitions: int = DEFAULT_PARTITIONS) -> LogTopic:
        """Makes a topic. Raises `TopicExists`."""
        check_topic_name(name)
        if not 1 <= partitions <= MAX_PARTITIONS:
            raise InvalidInput(f"partitions must be from 1 to {MAX_PARTITIONS}, not {partitions}")
        uid = make_topic_uid(self._clock.now_ms(), self._random_bytes(UID_ENTROPY_BYTES))
        topic = LogTopic(uid=uid, name=name, partitions=partitions)
        self._index.create_topic(topic)
        return topic

    def topic(self, name: str) -> LogTopic:
        """A topic by its name. Raises `TopicNotFound`."""
        topic = self._topics.get(name)
        if topic is None:
            topic = self._index.find_topic(name) if name_problem("", name) is None else None
            if topic is None:
                raise TopicNotFound(f"there is no topic named {name!r}; create it first")
            self._topics[name] = topic
        return topic

    def topics(self) -> list[LogTopic]:
        return self._index.list_topics()

    def heads(self, topic: str) -> list[Head]:
        """The first and the next sequence of each partition."""
        return self._index.heads(self.topic(topic).uid)

    # Appending

    def append(
        self,
        topic: str,
        *,
        value: bytes | None,
        key: bytes | None = None,
        headers: Sequence[Header] = (),
        partition: int | None = None,
        ts: int | None = None,
    ) -> Position:
        """Appends one event; answers where it lies when it is durable."""
        event = NewEvent(value=value, key=key, headers=tuple(headers), partition=partition, ts=ts)
        return self.append_many(topic, [event])[0]

    def append_many(self, topic: str, events: Sequence[NewEvent]) -> list[Position]:
        """Appends events in their order; answers when all are durable."""
        return self.append_later(topic, events).result()

    def append_later(self, topic: str, events: Sequence[NewEvent]) -> Future[list[Position]]:
        """Like `append_many`, without waiting: a writer can have many on their way."""
        where = self.topic(topic)
        for event in events:
            check_event(event, where.partitions)
        placed = [self._placement.place(where, event) for event in events]
        if not placed:
            nothing: Future[list[Position]] = Future()
            nothing.set_result([])
            return nothing
        return self._lane.submit(self._queue, "append", self._write, placed)

    def _write(self, placed: Sequence[Placed], now_ms: int) -> list[Position]:
        positions = self._writer.write(placed, now_ms)
        self._arrivals.tell({each.topic.uid for each in placed})
        return positions

    # Reading

    def read(
        self,
        topic: str,
        *,
        group: str | None = None,
        partition: int | None = None,
        sequence: int | None = None,
        follow: bool = True,
        limit: int | None = None,
    ) -> Iterator[Event]:
        """Events of a topic, one after the other.

        With a `group` it takes its share of the partitions, keeps its holds alive, and notes its progress
        each time a batch was processed, that is when the event after it is asked for, or the iterator
        is closed. Without one it reads all partitions, or one of them, from the beginning or from a
        `sequence`, and notes nothing.

        It waits for more while `follow` is true, and ends after `limit` events.
        """
        where = self.topic(topic)
        if partition is not None and (problem := partition_problem(partition, where.partitions)):
            raise InvalidInput(problem)
        if group is None:
            return self._read_alone(where, partition, sequence, follow, limit)
        problem = name_problem("group", group)
        if problem or partition is not None or sequence is not None:
            raise InvalidInput(
                problem or "a group reads its share; use seek to set where it begins"
            )
        return self._read_as_member(where, group, follow, limit)

    def _read_alone(
        self,
        topic: LogTopic,
        partition: int | None,
        sequence: int | None,
        follow: bool,
        limit: int | None,
    ) -> Iterator[Event]:
        chosen = range(topic.partitions) if partition is None else (partition,)
        readers = [
            PartitionReader(self._objects, self._index, topic, each, sequence or 0)
            for each in chosen
        ]
        left = limit
        while left is None or left > 0:
            seen = self._arrivals.count(topic.uid)
            found = False
            for reader in readers:
                for event in reader.read(
                    _BATCH_EVENTS if left is None else min(left, _BATCH_EVENTS)
                ):
                    found = True
                    left = None if left is None else left - 1
                    yield event
            if found:
                continue
            if not follow or self._closed:
                return
            self._arrivals.wait(topic.uid, seen, self._max_latency_s)

    def _read_as_member(
        self, topic: LogTopic, group: str, follow: bool, limit: int | None
    ) -> Iterator[Event]:
        reader = self._member(topic, group)
        left = limit
        try:
            while (left is None or left > 0) and not self._closed:
                seen = self._arrivals.count(topic.uid)
                batch = reader.next_batch(
                    _BATCH_EVENTS if left is None else min(left, _BATCH_EVENTS)
                )
                if batch is None:
                    if not follow:
                        return
                    self._arrivals.wait(topic.uid, seen, self._max_latency_s)
                    continue
                hold, events = batch
                done = events[0].sequence
                try:
                    for event in events:
                        yield event
                        done = event.sequence + 1
                        left = None if left is None else left - 1
                finally:
                    reader.done(hold, done)
        finally:
            reader.close()

    def process(
        self,
        topic: str,
        group: str,
        handler: Callable[[Event], None],
        *,
        follow: bool = True,
        retry_ms: int = 1_000,
        max_attempts: int = 10,
        dead_letter_topic: str | None = None,
    ) -> int:
        """Calls a handler for each event; answers how many it has done.

        An event whose handler raises is delivered again after `retry_ms`, before anything behind it in its
        partition. With a `dead_letter_topic` it is put there after `max_attempts`, and the partition goes on.
        """
        where = self.topic(topic)
        if dead_letter_topic is not None:
            self.topic(dead_letter_topic)
        reader = self._member(where, group)
        attempts: dict[tuple[int, int], int] = {}
        handled = 0
        try:
            while not self._closed:
                seen = self._arrivals.count(where.uid)
                batch = reader.next_batch(_BATCH_EVENTS)
                if batch is None:
                    if not follow and not attempts:
                        break
                    self._arrivals.wait(where.uid, seen, self._max_latency_s)
                    continue
                hold, events = batch
                done = events[0].sequence
                for event in events:
                    place = (event.partition, event.sequence)
                    try:
                        handler(event)
                    except Exception as error:
                        attempts[place] = attempts.get(place, 0) + 1
                        logger.warning(
                            "event %d of partition %d of %r failed, attempt %d: %s",
                            event.sequence,
                            event.partition,
                            topic,
                            attempts[place],
                            error,
                        )
                        if dead_letter_topic is None or attempts[place] < max_attempts:
                            reader.failed(hold, event.sequence, retry_ms)
                            break
                        self._bury(event, dead_letter_topic, error)
                    attempts.pop(place, None)
                    done = event.sequence + 1
                    handled += 1
                reader.done(hold, done)
        finally:
            reader.close()
        return handled

    def _bury(self, event: Event, dead_letter_topic: str, error: Exception) -> None:
        reason: tuple[Header, ...] = (
            ("chronolineTopic", event.topic.encode()),
            ("chronolinePartition", str(event.partition).encode()),
            ("chronolineSequence", str(event.sequence).encode()),
            ("chronolineError", f"{type(error).__name__}: {error}".encode()[:1_000]),
        )
        self.append(
            dead_letter_topic, value=event.value, key=event.key, headers=event.headers + reason
        )

    def _member(self, topic: LogTopic, group: str) -> GroupReader:
        member = make_id(self._clock.now_ms(), self._random_bytes(ID_ENTROPY_BYTES))
        return GroupReader(
            self._objects,
            self._index,
            topic,
            group=group,
            member=member,
            hold_ms=self._hold_ms,
            clock=self._clock,
        )

    # Groups

    def groups(self, topic: str) -> list[GroupState]:
        """The progress of each group on each partition, with its holder and when its hold ends."""
        return self._index.groups(self.topic(topic).uid)

    def seek(
        self, topic: str, group: str, *, sequence: int | None = None, ts: int | None = None
    ) -> None:
        """Sets where a group goes on, in all partitions; whoever reads loses its holds.

        By sequence, or by time: at the first events that were committed at `ts` or later.
        """
        where = self.topic(topic)
        if (sequence is None) == (ts is None):
            raise InvalidInput("seek takes either a sequence or a ts")
        for head in self._index.heads(where.uid):
            at = (
                self._index.sequence_at(where.uid, head.partition, ts)
                if ts is not None
                else sequence
            )
            bounded = min(max(at or 0, head.first_sequence), head.next_sequence)
            self._index.seek(group, where.uid, head.partition, bounded)

    def skip_to_end(self, topic: str, group: str) -> None:
        """Passes over everything that is there now."""
        for head in self.heads(topic):
            self._index.seek(group, self.topic(topic).uid, head.partition, head.next_sequence)

    # Upkeep

    def sweep(self, *, grace_ms: int = 3_600_000) -> int:
        """Deletes objects that failed appends left behind, and those that nothing lies in any more."""
        return self._upkeep.sweep(grace_ms=grace_ms, now_ms=self._clock.now_ms()) + (
            self._upkeep.collect()
        )

    def retain(
        self, topic: str, *, max_age_ms: int | None = None, max_bytes: int | None = None
    ) -> int:
        """Drops the oldest events beyond an age, or a size of each partition; says how many."""
        dropped = self._upkeep.retain(
            self.topic(topic),
            max_age_ms=max_age_ms,
            max_bytes=max_bytes,
            now_ms=self._clock.now_ms(),
        )
        self._upkeep.collect()
        return dropped

    def compact(self, topic: str, *, target_bytes: int = 8 * 1024 * 1024) -> Compacted:
        """Puts small chunks together into large ones, while readers read."""
        where = self.topic(topic)
        totals = [
            self._upkeep.compact(
                where, partition, target_bytes=target_bytes, now_ms=self._clock.now_ms()
            )
            for partition in range(where.partitions)
        ]
        return Compacted(sum(t.chunks_before for t in totals), sum(t.chunks_after for t in totals))

    def close(self) -> None:
        """Finishes the appends that wait, and ends readers. May be called twice."""
        if not self._closed:
            self._closed = True
            self._arrivals.close()
            self._lane.close()
            self._objects.close()
            self._index.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
