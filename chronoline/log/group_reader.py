"""The reader of a group: its share, its holds, its progress.

The caller's thread reads and processes. A background thread renews membership and holds every few seconds,
and notices when members come or go. The reader acts on that between two batches: it lets go of partitions
that belong to another now, and takes new ones that have no holder.

Progress: small batches are stored together, when they are many, when a moment has passed, and before the
reader waits or lets go. A reader of many partitions with few events each would otherwise write once for
each.

Trust: a hold is trusted from the start of the call that renewed it until `hold_ms` later, by our clock. An
event is handed out only while the hold lives, as far as we know, and the index refuses progress if the hold
was lost.

Deletion: a reader belongs to the group that it found when it began. If that group or the topic is deleted,
the next batch raises `GroupNotFound` or `TopicNotFound`, also when another group or topic has the name by
then.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from chronoline.core.errors import ChronolineError, StoreError, TopicNotFound
from chronoline.log.contract import GroupNotFound, Head, Hold, Index, LogTopic, Objects
from chronoline.log.events import Event
from chronoline.log.format import DamagedObject
from chronoline.log.groups import share_of
from chronoline.log.partition_reader import PartitionReader, Rest, UnreadableObject, heads_of
from chronoline.runtime.clock import Clock

logger = logging.getLogger(__name__)

_LONGEST_BEAT_MS = 3_000
_UID_BYTES = 7
_TAKE_AGAIN_MS = 100
"""How soon a partition with another holder is tried again."""
_NOTED_EVENTS = 500
_NOTED_AFTER_MS = 100
"""Progress is stored after this number of events, or this time."""


@dataclass(slots=True)
class _Held:
    hold: Hold
    reader: PartitionReader
    rest: Rest = field(default_factory=Rest)


class GroupReader:
    """One reader of a group. Use it from one thread; close it to give its partitions up.

    It is a member that shares the partitions with the others, or, with `only`, works on one partition
    regardless of the members.
    """

    def __init__(
        self,
        objects: Objects,
        index: Index,
        topic: LogTopic,
        *,
        group: str,
        member: str,
        hold_ms: int,
        clock: Clock,
        only: int | None = None,
    ) -> None:
        self._objects = objects
        self._index = index
        self._topic = topic
        self._group = group
        self._member = member
        self._hold_ms = hold_ms
        self._clock = clock
        self._only = only
        self._lock = threading.Lock()
        self._held: dict[int, _Held] = {}
        self._share = range(0)
        self._heads: dict[int, Head] = {}
        """The ends of the partitions at the last look."""
        self._balanced = False
        """Whether we hold our share, and nothing else."""
        self._noting = threading.Lock()
        self._unnoted: dict[int, tuple[Hold, int]] = {}
        """Progress that is not stored yet, by partition."""
        self._unnoted_events = 0
        self._unnoted_since_ms = 0
        self._at_hand: set[int] = set()
        """Partitions of which events may be unpacked already."""
        self._take_from_ms = 0
        self._turn = 0
        self._stopped = threading.Event()
        self._over: ChronolineError | None = None
        """The error of a deleted group or topic."""
        self._group_uid = index.open_group(group, topic.uid, uid=_uid_by(member))
        self.beat()
        self._thread = threading.Thread(
            target=self._keep_alive, name="chronoline-group-reader", daemon=True
        )
        self._thread.start()

    def next_batch(self, limit: int) -> tuple[Hold, list[Event]] | None:
        """The next events of one partition that we hold, each partition in turn; None if there are none.

        An object that cannot be read stops its partition alone: it is logged by name and tried again after
        a while. With `only` it is raised.
        """
        if self._over is not None:
            raise self._over
        self.rebalance()
        batch = self._next_behind(limit) or (self._next_behind(limit) if self._look() else None)
        if batch is None and self._unnoted:
            self._note()
            return self.next_batch(limit)  # lost partitions may be taken again
        return batch

    def _next_behind(self, limit: int) -> tuple[Hold, list[Event]] | None:
        for held in self._in_turn():
            now_ms = self._clock.now_ms()
            head = self._heads.get(held.hold.partition)
            if (
                head is None
                or held.rest.lasts(now_ms)
                or held.hold.until_ms <= now_ms
                or not held.reader.is_behind(head)
            ):
                continue
            if self._only is None:
                events = held.rest.read(held.reader, limit, now_ms)
            else:
                events = held.reader.read(limit)
            if held.reader.has_more_at_hand:
                self._at_hand.add(held.hold.partition)
            if events:
                return held.hold, events
        return None

    def _look(self) -> bool:
        """Reads the ends of all partitions at once; true if one of ours has moved."""
        before, heads = self._heads, heads_of(self._index, self._topic)
        self._heads = {head.partition: head for head in heads}
        return self._heads != before

    def sequence_of(self, partition: int) -> int | None:
        """The next event to read of a partition; None if we do not hold it."""
        with self._lock:
            held = self._held.get(partition)
            return None if held is None else held.reader.sequence

    def error(self) -> DamagedObject | UnreadableObject | None:
        """The error that keeps one of our partitions from being read, if any."""
        with self._lock:
            rests = [held.rest for held in self._held.values()]
        return next((rest.error for rest in rests if rest.error is not None), None)

    def still_holds(self, hold: Hold) -> bool:
        """Whether a hold lives, as far as we know. Called between events: no lock, no request."""
        held = self._held.get(hold.partition)
        return (
            held is not None
            and held.hold.fence == hold.fence
            and self._clock.now_ms() < held.hold.until_ms
        )

    def idle_s(self) -> float:
        """How long to wait for new events before other work is due."""
        now_ms = self._clock.now_ms()
        with self._lock:
            moments = [held.rest.until_ms for held in self._held.values()]
            if len(self._held) < len(self._share):
                moments.append(self._take_from_ms)
        waits = [each - now_ms for each in moments if each > now_ms]
        return min([*waits, _LONGEST_BEAT_MS]) / 1000

    def done(self, hold: Hold, sequence: int) -> bool:
        """Stores that everything before a sequence was processed; false if the partition was lost.

        Later events are handed out again. If the index does not answer, the partition is given up, and read
        again from the stored progress.
        """
        self._remember(hold, sequence)
        return hold.partition in self._note()

    def processed(self, hold: Hold, sequence: int) -> None:
        """Like `done`, but small batches are stored together, a moment later."""
        self._remember(hold, sequence)
        age_ms = self._clock.now_ms() - self._unnoted_since_ms
        if (
            self._unnoted_events >= _NOTED_EVENTS
            or not 0 <= age_ms < _NOTED_AFTER_MS
            or not self.still_holds(hold)
        ):
            self._note()

    def _remember(self, hold: Hold, sequence: int) -> None:
        with self._lock:
            if not self._unnoted:
                self._unnoted_events, self._unnoted_since_ms = 0, self._clock.now_ms()
            before = self._unnoted.get(hold.partition, (hold, hold.sequence))[1]
            self._unnoted[hold.partition] = (hold, sequence)
            self._unnoted_events += max(0, sequence - before)
            held = self._held.get(hold.partition)
            if held is not None and held.hold.fence == hold.fence:
                held.reader.sequence = sequence
                self._at_hand.add(hold.partition)

    def _note(self) -> set[int]:
        """Stores the progress; returns the partitions where that succeeded. The others are given up."""
        with self._noting:  # one at a time: progress is stored in its order
            with self._lock:
                notes, self._unnoted = list(self._unnoted.values()), {}
            if not notes:
                return set()
            answers: Sequence[Hold | None] = [None] * len(notes)
            try:
                answers = self._index.progress_all(notes, now_ms=self._clock.now_ms())
            except StoreError as error:
                partitions = ", ".join(str(hold.partition) for hold, _ in notes)
                logger.warning("progress on partition %s was not noted: %s", partitions, error)
                self._let_go([hold for hold, _ in notes])
            with self._lock:
                for (hold, sequence), noted in zip(notes, answers, strict=True):
                    held = self._held.get(hold.partition)
                    if held is None or held.hold.fence != hold.fence:
                        continue
                    if noted is None:
                        self._lose(hold.partition)
                    else:
                        held.hold = held.hold._replace(sequence=sequence)
            return {noted.partition for noted in answers if noted is not None}

    def _lose(self, partition: int) -> None:
        """Forgets a hold, under the lock. Taking it again shows whether the group was deleted."""
        self._held.pop(partition, None)
        self._balanced = False
        self._take_from_ms = 0

    def failed(self, hold: Hold, sequence: int, wait_ms: int) -> None:
        """Goes back to a sequence, and leaves the partition alone for a while."""
        with self._lock:
            held = self._held.get(hold.partition)
            if held is not None and held.hold.fence == hold.fence:
                held.reader.sequence = sequence
                self._at_hand.add(hold.partition)
                held.rest.begin(self._clock.now_ms(), wait_ms)

    def close(self) -> None:
        """Gives all partitions up, so that others need not wait for them. May be called twice."""
        if self._stopped.is_set():
            return
        self._stopped.set()
        self._thread.join()
        self._note()
        self._let_go([held.hold for held in self._held.values()])
        self._held = {}
        try:
            if self._only is None:
                self._index.leave(self._group, self._topic.uid, self._member)
        except ChronolineError as error:
            logger.warning("leaving group %r failed: %s", self._group, error)

    def _let_go(self, holds: list[Hold]) -> None:
        try:
            self._index.let_go(holds)
        except ChronolineError as error:
            logger.warning("letting go failed; the holds lapse: %s", error)

    def _in_turn(self) -> Iterator[_Held]:
        """Partitions with unpacked events first: the rest of a chunk is not kept for long."""
        self._turn += 1
        with self._lock:
            held = list(self._held.values())
            first = [self._held[each] for each in sorted(self._at_hand & self._held.keys())]
        first = [each for each in first if each.reader.has_more_at_hand]
        self._at_hand = {each.hold.partition for each in first}
        yield from first
        turn = self._turn % len(held) if held else 0
        yield from islice(held, turn, None)
        yield from islice(held, turn)

    def rebalance(self) -> None:
        with self._lock:
            if self._balanced:
                return
            share = set(self._share)
            foreign = [
                held.hold for held in self._held.values() if held.hold.partition not in share
            ]
            missing = sorted(share - self._held.keys())
            self._balanced = not foreign and not missing
        if foreign:
            self._note()
            self._let_go(foreign)
            with self._lock:
                for hold in foreign:
                    self._held.pop(hold.partition, None)
        now_ms = self._clock.now_ms()
        if missing and not now_ms < self._take_from_ms <= now_ms + _TAKE_AGAIN_MS:
            self._take_from_ms = now_ms + _TAKE_AGAIN_MS
            self._take(missing, now_ms)

    def _take(self, partitions: list[int], now_ms: int) -> None:
        try:
            holds = self._index.hold(
                self._group,
                self._topic.uid,
                partitions,
                self._member,
                until_ms=now_ms + self._hold_ms,
                now_ms=now_ms,
                group_uid=self._group_uid,
            )
        except GroupNotFound as error:
            raise self._deleted(error) from error
        with self._lock:
            for hold in holds:
                reader = PartitionReader(
                    self._objects, self._index, self._topic, hold.partition, hold.sequence
                )
                self._held[hold.partition] = _Held(hold, reader)

    def _keep_alive(self) -> None:
        while not self._stopped.wait(min(self._hold_ms / 3, _LONGEST_BEAT_MS) / 1000):
            try:
                self.beat()
            except GroupNotFound as error:
                self._over = self._deleted(error)
                return
            except Exception as error:  # after any error the next renewal may succeed
                logger.warning("keeping the holds of group %r failed: %s", self._group, error)

    def _deleted(self, error: GroupNotFound) -> ChronolineError:
        """The group goes with its topic."""
        try:
            heads_of(self._index, self._topic)
        except TopicNotFound as topic_error:
            return topic_error
        except StoreError:
            pass
        return error

    def beat(self) -> None:
        now_ms = self._clock.now_ms()
        until_ms = now_ms + self._hold_ms
        share = self._share_now(until_ms, now_ms)
        self._note()
        with self._lock:
            self._balanced = self._balanced and share == self._share
            self._share = share
            held = {partition: each.hold for partition, each in self._held.items()}
        if not held:
            return
        renewed = self._index.renew(list(held.values()), until_ms=until_ms, now_ms=now_ms)
        alive = {hold.partition: hold for hold in renewed}
        with self._lock:
            for partition, hold in held.items():
                now_held = self._held.get(partition)
                if now_held is None or now_held.hold.fence != hold.fence:
                    continue
                if partition in alive:
                    now_held.hold = now_held.hold._replace(until_ms=until_ms)
                else:
                    logger.warning(
                        "the hold on partition %d is over: a seek moved the group, another reader took it, "
                        "it lapsed, or the group was deleted",
                        partition,
                    )
                    self._lose(partition)

    def _share_now(self, until_ms: int, now_ms: int) -> range:
        if self._only is not None:
            return range(self._only, self._only + 1)
        members = self._index.join(
            self._group,
            self._topic.uid,
            self._member,
            until_ms=until_ms,
            now_ms=now_ms,
            group_uid=self._group_uid,
        )
        return share_of(self._member, members, self._topic.partitions)


def _uid_by(member: str) -> int:
    """The uid of a group that a reader makes: as random as its own id."""
    return int.from_bytes(hashlib.sha256(member.encode()).digest()[:_UID_BYTES])
