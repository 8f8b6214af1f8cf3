"""Reading for a group: shares, holds that are kept alive, progress.

The caller's thread reads and processes. A thread beside it says every few seconds that the reader is
still there, renews its holds, and notices when members come or go. What it finds is taken up between two
batches: partitions that are another's now are let go, and new ones are taken when nobody holds them.

Trust: a hold is trusted from the start of the call that renewed it until `hold_ms` later, by our clock. A
batch is handed out only while the hold lives, and its progress is refused by the index if the hold was lost.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass

from chronoline.clock import Clock
from chronoline.core.errors import ChronolineError, StoreError
from chronoline.log.contract import Head, Hold, Index, LogTopic, Objects
from chronoline.log.events import Event
from chronoline.log.format import DamagedObject
from chronoline.log.groups import share_of
from chronoline.log.reading import PartitionReader

logger = logging.getLogger(__name__)

DAMAGE_WAIT_MS = 5_000
_LONGEST_BEAT_MS = 3_000
_TAKE_AGAIN_MS = 100
"""How soon a partition that another still holds is tried again."""


@dataclass(slots=True)
class _Held:
    hold: Hold
    reader: PartitionReader
    resting_from_ms: int = 0
    resting_until_ms: int = 0
    damage: DamagedObject | None = None

    def rest(self, now_ms: int, wait_ms: int) -> None:
        self.resting_from_ms, self.resting_until_ms = now_ms, now_ms + wait_ms

    def rests(self, now_ms: int) -> bool:
        """A clock that is put back before the rest began ends it."""
        return self.resting_from_ms <= now_ms < self.resting_until_ms


class GroupReader:
    """One reader of a group. Use it from one thread; close it to give its partitions up.

    It is a member that shares the partitions with the others, or, with `only`, works on one partition
    whoever the members are.
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
        """Where partitions began and ended when we looked last."""
        self._take_from_ms = 0
        self._turn = 0
        self._stopped = threading.Event()
        self._beat()
        self._thread = threading.Thread(
            target=self._keep_alive, name="chronoline-group-reader", daemon=True
        )
        self._thread.start()

    def next_batch(self, limit: int) -> tuple[Hold, list[Event]] | None:
        """The next events of one partition that we hold, each partition in turn; None if there are none.

        A damaged object stops its partition alone: it is logged by name and tried again after a while.
        With `only` it is raised.
        """
        self._rebalance()
        return self._next_behind(limit) or (self._next_behind(limit) if self._look() else None)

    def _next_behind(self, limit: int) -> tuple[Hold, list[Event]] | None:
        for held in self._in_turn():
            now_ms = self._clock.now_ms()
            head = self._heads.get(held.hold.partition)
            if (
                head is None
                or held.rests(now_ms)
                or held.hold.until_ms <= now_ms
                or not held.reader.is_behind(head)
            ):
                continue
            try:
                events = held.reader.read(limit)
            except DamagedObject as error:
                if self._only is not None:
                    raise
                logger.error("%s; its partition rests, the others go on", error)
                held.damage = error
                held.rest(now_ms, DAMAGE_WAIT_MS)
                continue
            held.damage = None
            if events:
                return held.hold, events
        return None

    def _look(self) -> bool:
        """One look at the ends of all partitions, however many we hold; true if one of ours has moved."""
        before, heads = self._heads, self._index.heads(self._topic.uid)
        self._heads = {head.partition: head for head in heads}
        return self._heads != before

    def sequence_of(self, partition: int) -> int | None:
        """The next event to read of a partition; None if we do not hold it."""
        with self._lock:
            held = self._held.get(partition)
            return None if held is None else held.reader.sequence

    def damage(self) -> DamagedObject | None:
        """What keeps one of our partitions from being read, if something does."""
        with self._lock:
            return next((held.damage for held in self._held.values() if held.damage), None)

    def idle_s(self) -> float:
        """How long one may wait for new events before there is something else to look at."""
        now_ms = self._clock.now_ms()
        with self._lock:
            moments = [held.resting_until_ms for held in self._held.values()]
            if len(self._held) < len(self._share):
                moments.append(self._take_from_ms)
        waits = [each - now_ms for each in moments if each > now_ms]
        return min([*waits, _LONGEST_BEAT_MS]) / 1000

    def done(self, hold: Hold, sequence: int) -> bool:
        """Notes that everything before a sequence was processed; false if the partition was lost.

        Where the index does not answer, the partition is given up: it is read again from what was noted.
        """
        try:
            noted = self._index.progress(hold, sequence, now_ms=self._clock.now_ms())
        except StoreError as error:
            logger.warning("progress on partition %d was not noted: %s", hold.partition, error)
            self._let_go([hold])
            noted = None
        with self._lock:
            held = self._held.get(hold.partition)
            if held is not None and held.hold.fence == hold.fence:
                if noted is None:
                    del self._held[hold.partition]
                else:
                    held.hold = held.hold._replace(sequence=sequence)
        return noted is not None

    def failed(self, hold: Hold, sequence: int, wait_ms: int) -> None:
        """Goes back to a sequence, and leaves the partition alone for a while."""
        with self._lock:
            held = self._held.get(hold.partition)
            if held is not None and held.hold.fence == hold.fence:
                held.reader.sequence = sequence
                held.rest(self._clock.now_ms(), wait_ms)

    def close(self) -> None:
        """Gives everything up, so that others need not wait for it to lapse. May be called twice."""
        if self._stopped.is_set():
            return
        self._stopped.set()
        self._thread.join()
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

    def _in_turn(self) -> list[_Held]:
        """Those with events at hand first: what is left of a chunk is not kept for long."""
        self._turn += 1
        with self._lock:
            ordered = [self._held[partition] for partition in sorted(self._held)]
        first = self._turn % len(ordered) if ordered else 0
        turned = ordered[first:] + ordered[:first]
        return sorted(turned, key=lambda held: not held.reader.has_more_at_hand)

    def _rebalance(self) -> None:
        with self._lock:
            share = set(self._share)
            foreign = [
                held.hold for held in self._held.values() if held.hold.partition not in share
            ]
            missing = sorted(share - self._held.keys())
        if foreign:
            self._let_go(foreign)
            with self._lock:
                for hold in foreign:
                    self._held.pop(hold.partition, None)
        now_ms = self._clock.now_ms()
        if missing and not now_ms < self._take_from_ms <= now_ms + _TAKE_AGAIN_MS:
            self._take_from_ms = now_ms + _TAKE_AGAIN_MS
            self._take(missing, now_ms)

    def _take(self, partitions: list[int], now_ms: int) -> None:
        holds = self._index.hold(
            self._group,
            self._topic.uid,
            partitions,
            self._member,
            until_ms=now_ms + self._hold_ms,
            now_ms=now_ms,
        )
        with self._lock:
            for hold in holds:
                reader = PartitionReader(
                    self._objects, self._index, self._topic, hold.partition, hold.sequence
                )
                self._held[hold.partition] = _Held(hold, reader)

    def _keep_alive(self) -> None:
        while not self._stopped.wait(min(self._hold_ms / 3, _LONGEST_BEAT_MS) / 1000):
            try:
                self._beat()
            except Exception as error:  # whatever it is, the next may keep them
                logger.warning("keeping the holds of group %r failed: %s", self._group, error)

    def _beat(self) -> None:
        now_ms = self._clock.now_ms()
        until_ms = now_ms + self._hold_ms
        share = self._share_now(until_ms, now_ms)
        with self._lock:
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
                    logger.warning("partition %d was lost to another", partition)
                    del self._held[partition]

    def _share_now(self, until_ms: int, now_ms: int) -> range:
        if self._only is not None:
            return range(self._only, self._only + 1)
        members = self._index.join(
            self._group, self._topic.uid, self._member, until_ms=until_ms, now_ms=now_ms
        )
        return share_of(self._member, members, self._topic.partitions)
