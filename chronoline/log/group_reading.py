"""Reading as a member of a group: shares, holds that are kept alive, progress, waiting.

The caller's thread reads and processes. A thread beside it says every third of `hold_ms` that the reader
is still there, renews its holds, and notices when members come or go. What it finds is taken up between two
batches: partitions that are another's now are let go, and new ones are taken when nobody holds them.

Trust: a hold is trusted from the start of the call that renewed it until `hold_ms` later, by our clock. A
batch is handed out only while the hold lives, and its progress is refused by the index if the hold was lost.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass

from chronoline.clock import Clock
from chronoline.core.errors import ChronolineError
from chronoline.log.contract import Hold, Index, LogTopic, Objects
from chronoline.log.events import Event
from chronoline.log.format import DamagedObject
from chronoline.log.groups import share_of
from chronoline.log.reading import PartitionReader

logger = logging.getLogger(__name__)

DAMAGE_WAIT_MS = 5_000


@dataclass(slots=True)
class _Held:
    hold: Hold
    reader: PartitionReader
    resting_until_ms: int = 0


class GroupReader:
    """One member of a group. Use it from one thread; close it to give its partitions up."""

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
    ) -> None:
        self._objects = objects
        self._index = index
        self._topic = topic
        self._group = group
        self._member = member
        self._hold_ms = hold_ms
        self._clock = clock
        self._lock = threading.Lock()
        self._held: dict[int, _Held] = {}
        self._share = range(0)
        self._turn = 0
        self._stopped = threading.Event()
        self._beat()
        self._thread = threading.Thread(
            target=self._keep_alive, name="chronoline-group-reader", daemon=True
        )
        self._thread.start()

    def next_batch(self, limit: int) -> tuple[Hold, list[Event]] | None:
        """The next events of one partition that we hold, each partition in turn; None if there are none."""
        self._rebalance()
        for partition in self._in_turn():
            held = self._held.get(partition)
            now_ms = self._clock.now_ms()
            if held is None or held.resting_until_ms > now_ms or held.hold.until_ms <= now_ms:
                continue
            try:
                events = held.reader.read(limit)
            except DamagedObject as error:
                logger.error("%s; partition %d rests, the others go on", error, partition)
                held.resting_until_ms = now_ms + DAMAGE_WAIT_MS
                continue
            if events:
                return held.hold, events
        return None

    def done(self, hold: Hold, sequence: int) -> bool:
        """Notes that everything before a sequence was processed; false if the partition was lost."""
        noted = self._index.progress(hold, sequence, now_ms=self._clock.now_ms())
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
        held = self._held.get(hold.partition)
        if held is not None:
            held.reader.sequence = sequence
            held.resting_until_ms = self._clock.now_ms() + wait_ms

    def close(self) -> None:
        """Gives everything up, so that others need not wait for it to lapse. May be called twice."""
        if self._stopped.is_set():
            return
        self._stopped.set()
        self._thread.join()
        try:
            for held in self._held.values():
                self._index.let_go(held.hold)
            self._index.leave(self._group, self._topic.uid, self._member)
        except ChronolineError as error:
            logger.warning("leaving group %r failed; its holds lapse: %s", self._group, error)
        self._held = {}

    def _in_turn(self) -> list[int]:
        self._turn += 1
        partitions = sorted(self._held)
        first = self._turn % len(partitions) if partitions else 0
        return partitions[first:] + partitions[:first]

    def _rebalance(self) -> None:
        with self._lock:
            share, held = self._share, dict(self._held)
        for partition in held.keys() - set(share):
            self._index.let_go(held[partition].hold)
            with self._lock:
                self._held.pop(partition, None)
        for partition in set(share) - held.keys():
            self._take(partition)

    def _take(self, partition: int) -> None:
        now_ms = self._clock.now_ms()
        hold = self._index.hold(
            self._group,
            self._topic.uid,
            partition,
            self._member,
            until_ms=now_ms + self._hold_ms,
            now_ms=now_ms,
        )
        if hold is not None:
            reader = PartitionReader(
                self._objects, self._index, self._topic, partition, hold.sequence
            )
            with self._lock:
                self._held[partition] = _Held(hold, reader)

    def _keep_alive(self) -> None:
        while not self._stopped.wait(self._hold_ms / 3000):
            try:
                self._beat()
            except ChronolineError as error:
                logger.warning("keeping the holds of group %r failed: %s", self._group, error)

    def _beat(self) -> None:
        now_ms = self._clock.now_ms()
        until_ms = now_ms + self._hold_ms
        members = self._index.join(
            self._group, self._topic.uid, self._member, until_ms=until_ms, now_ms=now_ms
        )
        with self._lock:
            self._share = share_of(self._member, members, self._topic.partitions)
            held = list(self._held.values())
        for each in held:
            renewed = self._index.renew(each.hold, until_ms=until_ms, now_ms=now_ms)
            with self._lock:
                if renewed is not None:
                    each.hold = renewed
                elif self._held.get(each.hold.partition) is each:
                    logger.warning("partition %d was lost to another", each.hold.partition)
                    del self._held[each.hold.partition]
