"""`Log`: topics, appending, reading, groups and upkeep."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future

from chronoline.core.errors import InvalidInput, StoreClosed, TopicNotFound
from chronoline.core.ids import ID_ENTROPY_BYTES, UID_ENTROPY_BYTES, make_id, make_topic_uid
from chronoline.core.limits import headers_problem, name_problem
from chronoline.core.message import Header
from chronoline.core.topic import check_topic_name
from chronoline.log.appender import (
    Appender,
    Placed,
    Placement,
    place_of,
    placed_bytes,
    put_together,
)
from chronoline.log.arrivals import Arrivals
from chronoline.log.catch_up import CaughtUp
from chronoline.log.checks import (
    check_group,
    check_handler,
    check_limit,
    check_numbered,
    check_partition,
    check_settings,
)
from chronoline.log.contract import MAX_PARTITIONS, GroupNotFound, Head, LogTopic
from chronoline.log.events import Event, NewEvent, Position, check_event
from chronoline.log.factory import open_parts, url_of
from chronoline.log.follower import Follower
from chronoline.log.groups import GroupProgress, progress_of
from chronoline.log.notifier import Notifier, Tell, post_to
from chronoline.log.once_writer import Numbered, OnceWriter, PackedChunk, pack
from chronoline.log.partition_reader import PartitionReader, heads_of
from chronoline.log.processor import Again, Bury, Handler
from chronoline.log.readers import Readers
from chronoline.log.start_positions import Start, sequences_at, within
from chronoline.log.upkeep import Compacted, Progress, Upkeep, unwatched
from chronoline.runtime.bounded_cache import BoundedCache
from chronoline.runtime.clock import Clock, SystemClock
from chronoline.runtime.group_commit import Committer
from chronoline.runtime.service import Closable

DEFAULT_PARTITIONS = 8
_MOST_KNOWN_TOPICS = 10_000


class Log(Closable):
    """Partitioned, append-only topics. Thread-safe; open one for each process.

    `url` names objects and index, see `docs/log.md`, or is the path of a folder; `index` names the index
    apart. `linger_ms` waits for more appends before each commit; at 0, appends that come while one is under
    way share the next. `max_latency_ms` bounds how late a waiting reader learns of the appends of another
    process, and how often the `notifier` is called for a partition.
    """

    def __init__(
        self,
        url: str | os.PathLike[str],
        *,
        index: str | None = None,
        linger_ms: float = 0,
        object_bytes: int = 8 * 1024 * 1024,
        max_latency_ms: int = 100,
        hold_ms: int = 30_000,
        notifier: Tell | str | None = None,
        clock: Clock | None = None,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        check_settings(linger_ms, object_bytes, max_latency_ms, hold_ms)
        tell = post_to(notifier) if isinstance(notifier, str) else notifier
        if tell is not None and not callable(tell):
            raise InvalidInput(f"a notifier is a callable or an http(s) URL, not {notifier!r}")
        self._objects, self._index = open_parts(url_of(url), index)
        self._clock = clock or SystemClock()
        self._random_bytes = random_bytes
        self._topics = BoundedCache[str, LogTopic](_MOST_KNOWN_TOPICS)
        # Not from 0: processes that append one event each would all choose the same partition.
        self._placement = Placement(int.from_bytes(random_bytes(4)))
        self._arrivals = Arrivals()
        self._readers = Readers(
            self._objects,
            self._index,
            self._arrivals,
            new_member=self._new_id,
            hold_ms=hold_ms,
            max_latency_ms=max_latency_ms,
            clock=self._clock,
        )
        self._writer = Appender(
            self._objects,
            self._index,
            clock=self._clock,
            random_bytes=random_bytes,
        )
        self._once = OnceWriter(
            self._objects, self._index, self._writer, clock=self._clock, random_bytes=random_bytes
        )
        self._upkeep = Upkeep(self._objects, self._index, random_bytes)
        self._committer = Committer(
            "chronoline-appends",
            self._clock,
            commit_ms=1_000,
            most_items=200_000,
            linger_ms=linger_ms,
            commit_bytes=object_bytes,
            most_places=self._index.max_chunks_per_commit,
        )
        self._queue = self._committer.open_queue()
        self._closed = False
        self._notifier: Notifier | None = None
        if tell is not None:
            self._notifier = Notifier(
                self._index, tell, max_latency_ms=max_latency_ms, clock=self._clock
            )
            try:
                self._notify_missed_appends(self._notifier)
            except BaseException:
                self.close()
                raise

    def _new_id(self) -> str:
        return make_id(self._clock.now_ms(), self._random_bytes(ID_ENTROPY_BYTES))

    def _notify_missed_appends(self, notifier: Notifier) -> None:
        for topic in self._index.list_topics():
            notifier.appended((topic, each) for each in self._index.untold(topic.uid))

    # Topics

    def create_topic(self, name: str, *, partitions: int = DEFAULT_PARTITIONS) -> LogTopic:
        """Makes a topic. Raises `TopicExists`."""
        check_topic_name(name)
        if type(partitions) is not int or not 1 <= partitions <= MAX_PARTITIONS:
            raise InvalidInput(
                f"partitions must be a whole number from 1 to {MAX_PARTITIONS}, not {partitions!r}"
            )
        uid = make_topic_uid(self._clock.now_ms(), self._random_bytes(UID_ENTROPY_BYTES))
        topic = LogTopic(uid=uid, name=name, partitions=partitions)
        self._index.create_topic(topic)
        return topic

    def topic(self, name: str) -> LogTopic:
        """A topic by its name. Raises `TopicNotFound`."""
        topic = self._index.find_topic(name) if name_problem("", name) is None else None
        if topic is None:
            self._topics.pop(name)
            raise TopicNotFound(f"there is no topic named {name!r}; create it first")
        self._topics.put(name, topic)
        return topic

    def _topic_to_append(self, name: str) -> LogTopic:
        """The topic, looked up once: the index refuses events of a topic that was deleted since."""
        return self._topics.get(name) or self.topic(name)

    def delete_topic(self, name: str) -> None:
        """Deletes a topic with its events, groups and progress, for good. Raises `TopicNotFound`.

        Its readers and writers get `TopicNotFound`. The name can be used again for a new, empty topic. If
        this is interrupted, `sweep` removes the rest.
        """
        topic = self.topic(name)
        deleted = self._index.delete_topic(topic.uid)
        self._topics.pop(name)
        self._arrivals.notify({topic.uid})
        if not deleted:
            raise TopicNotFound(f"there is no topic named {name!r}")
        self._upkeep.purge(topic.uid)

    def topics(self) -> list[LogTopic]:
        return self._index.list_topics()

    def heads(self, topic: str) -> list[Head]:
        """The first and the next sequence of each partition."""
        return heads_of(self._index, self.topic(topic))

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
        """Appends one event; returns its position when it is durable."""
        event = NewEvent(value=value, key=key, headers=tuple(headers), partition=partition, ts=ts)
        return self.append_many(topic, [event])[0]

    def append_many(self, topic: str, events: Iterable[NewEvent]) -> list[Position]:
        """Appends events in their order; returns when all are durable.

        Up to `object_bytes`, 5,000 events and as many partitions as the index takes in one commit (45 on
        DynamoDB, 2,000 else) all of them are appended, or none. More is appended in parts: then an error
        that comes after a part is `OutcomeUnknown`.
        """
        return self.append_later(topic, events).result()

    def append_later(self, topic: str, events: Iterable[NewEvent]) -> Future[list[Position]]:
        """Like `append_many`, without waiting: a writer can have many under way."""
        self._check_open()
        where = self._topic_to_append(topic)
        events = list(events)
        for event in events:
            check_event(event, where.partitions)
        placed = [self._placement.place(where, event) for event in events]
        if not placed:
            nothing: Future[list[Position]] = Future()
            nothing.set_result([])
            return nothing
        return self._committer.submit(
            self._queue,
            "append",
            self._write,
            put_together(placed),
            item_bytes=placed_bytes,
            item_place=place_of,
        )

    def _write(self, placed: Sequence[Placed], now_ms: int) -> list[Position]:
        try:
            return self._writer.write(placed)
        except TopicNotFound:
            for each in placed:
                self._topics.pop(each.topic.name)  # another topic may have its name now
            raise
        finally:
            self._tell({(each.topic, each.partition) for each in placed})

    def _tell(self, places: set[tuple[LogTopic, int]]) -> None:
        """Wakes readers, also after an error: a part may be committed, and a look costs little."""
        self._arrivals.notify({topic.uid for topic, _ in places})
        if self._notifier is not None:
            self._notifier.appended(places)

    def pack(
        self, topic: str, events: Iterable[NewEvent], *, spread_from: int = 0
    ) -> list[PackedChunk]:
        """Events for `append_once`, checked, by partition.

        Events without a key are spread in turn from a partition on: the same events give the same places.
        """
        where = self._topic_to_append(topic)
        events = list(events)
        for event in events:
            check_event(event, where.partitions)
        return pack(where, events, spread_from=spread_from, now_ms=self._clock.now_ms())

    def append_once(
        self,
        topic: str,
        packed: Iterable[PackedChunk],
        *,
        key: str,
        numbered: Numbered | None = None,
    ) -> None:
        """Appends what `pack` packed, once for each key of a topic: a repeated call adds nothing.

        All of it is one commit, up to as many partitions as the index takes (45 on DynamoDB, 2,000 else).
        After any error, `OutcomeUnknown` too, call it again with the same key. A key that was used for
        another number of events raises `KeyReused`.

        A key is remembered as long as its topic, unless it is `numbered`: then that of the source's last
        1,000 numbers are, and those of earlier numbers count as appended.
        """
        where = self._topic_to_append(topic)
        packed = list(packed)
        if numbered is not None:
            check_numbered(numbered)
        try:
            self._once.write(where, key, packed, numbered)
        except TopicNotFound:
            self._topics.pop(topic)
            raise
        finally:
            self._tell({(where, chunk.partition) for chunk in packed})

    # Reading

    def read(
        self,
        topic: str,
        *,
        group: str | None = None,
        partition: int | None = None,
        start: Start | None = None,
        follow: bool = True,
        limit: int | None = None,
    ) -> Generator[Event]:
        """Events of a topic, one after the other.

        With a `group` it takes its share of the partitions, keeps its holds alive, and stores its progress
        after each batch, that is when the event after it is requested, or the iterator is closed. With a
        `partition` it takes that one alone, when no other reader of the group holds it. Without a group it
        reads all partitions, or one of them, from a `start` on, `"earliest"` if not given, and stores
        nothing. It waits for a sequence that is yet to come.

        It waits for more while `follow` is true, and ends after `limit` events.
        """
        self._check_reading()
        where = self.topic(topic)
        check_limit(limit)
        if partition is not None:
            check_partition(partition, where)
        if group is None:
            starts = self._starts(where, partition, "earliest" if start is None else start)
            return self._readers.alone(where, starts, follow=follow, limit=limit)
        check_group(group)
        if start is not None:
            raise InvalidInput("a group reads from where it is; use seek to set where it goes on")
        return self._readers.member(where, group, follow=follow, limit=limit, only=partition)

    def follow(self, topic: str, starts: Mapping[int, int]) -> Follower:
        """A reader of these partitions, from a sequence of each on, whose waits have an end.

        It stores nothing. Events that retention deletes before they are read are missing: the sequences show
        it.
        """
        self._check_reading()
        where = self.topic(topic)
        for partition in starts:
            check_partition(partition, where)
        return self._readers.follower(where, dict(starts))

    def read_range(
        self, topic: str, partition: int, start: int, end: int, *, batch: int = 10_000
    ) -> Iterator[list[Event]]:
        """The events of one partition from a sequence up to, not including, another, in batches.

        It stores nothing and does not wait. Events that retention deleted, also meanwhile, are missing: the
        sequences show it.
        """
        where = self.topic(topic)
        check_partition(partition, where)
        reader = PartitionReader(self._objects, self._index, where, partition, start)
        while reader.sequence < end and (events := reader.read(min(batch, end - reader.sequence))):
            yield [event for event in events if event.sequence < end]

    def process(
        self,
        topic: str,
        group: str,
        handler: Handler,
        *,
        partition: int | None = None,
        follow: bool = True,
        limit: int | None = None,
        again: Again | None = None,
        dead_letter_topic: str | None = None,
    ) -> int:
        """Calls a handler for each event of its share, or of one partition; returns the number of events.

        An event whose handler raises is delivered again after a while, before anything behind it in
        its partition: `again` says when. With a `dead_letter_topic` it goes there after the last attempt, and
        the partition goes on. Without `follow` it ends when everything is processed; with a `limit`, after
        that number of events; and after `stop`, with the current event.
        """
        self._check_reading()
        where = self.topic(topic)
        check_group(group)
        check_limit(limit)
        check_handler(handler)
        if partition is not None:
            check_partition(partition, where)
        return self._readers.process(
            where,
            group,
            handler,
            only=partition,
            follow=follow,
            limit=limit,
            again=again or Again(),
            bury=None if dead_letter_topic is None else self._burial(dead_letter_topic, where),
        )

    def read_until_current(
        self,
        topic: str,
        group: str,
        partition: int,
        handler: Handler,
        *,
        time_limit_s: float | None = None,
    ) -> CaughtUp:
        """Processes one partition for a group until it is up to date: the work of a notified function.

        If another reader has it, it stops at once, and returns the end of that hold: if that reader has
        died, no other can go on before. If its time is up too early, or its progress cannot be stored, the
        notifier is called again. If the handler raises, the progress before is stored, and the error goes to
        the caller.
        """
        self._check_reading()
        where = self.topic(topic)
        check_group(group)
        check_partition(partition, where)
        check_handler(handler)
        if time_limit_s is not None and not time_limit_s >= 0:
            raise InvalidInput(f"time_limit_s must be 0 or more, not {time_limit_s!r}")
        done = self._readers.until_current(where, group, partition, handler, time_limit_s)
        if self._notifier is not None and done.sequence is not None and not done.current:
            self._notifier.again(where, partition, done.sequence)
        return done

    def _burial(self, topic: str, source: LogTopic) -> Bury:
        if self.topic(topic).uid == source.uid:
            raise InvalidInput(
                "a topic cannot be its own dead_letter_topic: its dead letters would be delivered again"
            )

        def bury(event: Event, reason: tuple[Header, ...]) -> None:
            headers = event.headers + reason
            if headers_problem(headers):
                headers = reason  # no room for both
            self.append(topic, value=event.value, key=event.key, headers=headers, ts=event.ts)

        return bury

    # Groups

    def groups(self, topic: str) -> list[GroupProgress]:
        """The progress of each group on each partition, with its holder and the end of the hold."""
        where = self.topic(topic)
        states = self._index.groups(where.uid)
        heads = {head.partition: head for head in heads_of(self._index, where)}
        return [progress_of(state, heads[state.partition]) for state in states]

    def seek(self, topic: str, group: str, start: Start, *, partition: int | None = None) -> None:
        """Sets where a group goes on, in all partitions or in one; its readers lose their holds on them.

        Partitions that end before a sequence go on at their end; if all of them do, it is refused.
        """
        where = self.topic(topic)
        check_group(group)
        heads = self._heads(where, partition)
        sequences = sequences_at(self._index, where.uid, heads, start)
        self._index.seek(group, where.uid, within(heads, sequences))

    def delete_group(self, topic: str, group: str) -> None:
        """Deletes a group and its progress on a topic. Raises `GroupNotFound` if there is none.

        Its readers get `GroupNotFound`, and can store no more progress. A group of that name that
        reads from then on is a new one.
        """
        where = self.topic(topic)
        check_group(group)
        if not self._index.delete_group(group, where.uid):
            raise GroupNotFound(f"no group named {group!r} reads {topic!r}")
        self._arrivals.notify({where.uid})

    def skip_to_end(self, topic: str, group: str) -> None:
        """Sets a group's progress to the present end of all partitions."""
        self.seek(topic, group, "latest")

    def _starts(self, topic: LogTopic, partition: int | None, start: Start) -> dict[int, int]:
        return sequences_at(self._index, topic.uid, self._heads(topic, partition), start)

    def _heads(self, topic: LogTopic, partition: int | None) -> list[Head]:
        if partition is not None:
            check_partition(partition, topic)
        heads = heads_of(self._index, topic)
        return heads if partition is None else [heads[partition]]

    # Upkeep

    def sweep(self, *, grace_ms: int = 3_600_000, progress: Progress = unwatched) -> int:
        """Deletes objects that failed appends left behind, and those without events.

        It also removes the remains of deleted topics, and the entries in the index of objects that are gone
        and older than `grace_ms`. A commit of unknown outcome is settled within that time; later it
        stays unknown.

        Returns the number of deleted objects. `progress` is called with the number of further objects that
        were examined, and then of empty ones that were deleted.
        """
        if grace_ms < 0:
            raise InvalidInput(f"grace_ms must be 0 or more, not {grace_ms}")
        now_ms = self._clock.now_ms()
        self._upkeep.finish_deletions()
        swept = self._upkeep.sweep(grace_ms=grace_ms, now_ms=now_ms, progress=progress)
        swept += self._upkeep.collect(progress=progress)
        self._upkeep.forget(before_ms=now_ms - grace_ms)
        return swept

    def retain(
        self,
        topic: str,
        *,
        max_age_ms: int | None = None,
        max_bytes: int | None = None,
        progress: Progress = unwatched,
    ) -> int:
        """Deletes the oldest events beyond an age, or a size of each partition; returns their number.

        `progress` is called with the number of further partitions that are done.
        """
        if max_age_ms is None and max_bytes is None:
            raise InvalidInput("say what is kept: max_age_ms, max_bytes, or both")
        if min(max_age_ms or 0, max_bytes or 0) < 0:
            raise InvalidInput("max_age_ms and max_bytes must be 0 or more")
        deleted = self._upkeep.retain(
            self.topic(topic),
            max_age_ms=max_age_ms,
            max_bytes=max_bytes,
            now_ms=self._clock.now_ms(),
            progress=progress,
        )
        self._upkeep.collect()
        return deleted

    def compact(
        self,
        topic: str,
        *,
        target_bytes: int = 8 * 1024 * 1024,
        progress: Progress = unwatched,
    ) -> Compacted:
        """Puts small chunks together into large ones, while readers read.

        `progress` is called with the number of further chunks that were examined: in total, `chunks_before`.
        """
        where = self.topic(topic)
        if target_bytes < 1:
            raise InvalidInput(f"target_bytes must be 1 or more, not {target_bytes}")
        total = self._upkeep.compact(
            where, target_bytes=target_bytes, now_ms=self._clock.now_ms, progress=progress
        )
        self._upkeep.collect()
        return total

    def stop(self) -> None:
        """Ends reading and processing after the current event, with its progress stored.

        May be called from another thread, or from a signal handler. It is final: reading again raises
        `StoreClosed`, so that a stopped log is not taken for an empty one. Appends go on.
        """
        self._arrivals.close()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed("the log is closed; open it again")

    def _check_reading(self) -> None:
        self._check_open()
        if self._arrivals.closed:
            raise StoreClosed("the log was stopped, and reads no more; open it again to read")

    def close(self) -> None:
        """Finishes pending appends, and ends readers. May be called twice."""
        if not self._closed:
            self._closed = True
            self._arrivals.close()
            self._readers.close()
            self._committer.close()
            if self._notifier is not None:
                self._notifier.close()
            self._objects.close()
            self._index.close()
