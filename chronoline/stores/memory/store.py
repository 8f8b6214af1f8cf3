"""The timeline's operations in memory."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from chronoline.core.expiry import DeathReason
from chronoline.core.message import DeadLetter, Message, NewMessage
from chronoline.core.permissions import Operation
from chronoline.core.ranges import BucketRange
from chronoline.core.status import Life, Status, status_of
from chronoline.core.topic import Topic
from chronoline.stores.changes import (
    Change,
    LeaseRequest,
    ResumeRequest,
    Span,
    StoredRow,
    Taken,
    explain,
    explain_create,
    explain_lease,
    may_remove,
    settled,
)
from chronoline.stores.contract import Capabilities, Counts, Notice, Watch
from chronoline.stores.intake import Answer, TakesIn
from chronoline.stores.memory.entries import Entry, apply, bury, is_waste, new_message, take
from chronoline.stores.memory.inputs import MemoryInputs
from chronoline.stores.notices import LocalWatch, NoticeBoard
from chronoline.stores.primitives import Key
from chronoline.stores.stripes import Cell


@dataclass(slots=True)
class _Timeline:
    topic: Topic
    dropped: bool = False
    entries: dict[str, Entry] = field(default_factory=dict)
    floor: int = 0
    """New messages begin above it."""

    def raise_floor(self, now_ms: int) -> None:
        self.floor = max(self.floor, settled(now_ms) - 1)


class MemoryStore(MemoryInputs):
    """A store that lives in this process."""

    capabilities = Capabilities(
        durable=False, shared=False, concurrent_writers=False, caller_transactions=False
    )

    def __init__(self, random_bytes: Callable[[int], bytes] = os.urandom) -> None:
        super().__init__(random_bytes)
        self._timelines: dict[int, _Timeline] = {}
        self._told: list[Notice] | None = None  # inside a transaction: told when it is over
        self._board = NoticeBoard()

    # Topics

    def _insert_topic(self, topic: Topic) -> bool:
        with self._open():
            if topic.uid in self._timelines or self._is_name_taken(topic.name):
                return False
            self._timelines[topic.uid] = _Timeline(topic)
            return True

    def _is_name_taken(self, name: str) -> bool:
        with self._open():
            return any(each.topic.name == name for each in self._timelines.values())

    def _fetch_topic(self, uid: int) -> Topic | None:
        with self._open():
            timeline = self._timelines.get(uid)
            return None if timeline is None or timeline.dropped else timeline.topic

    def _find_topic(self, name: str) -> Topic | None:
        return next((topic for topic in self.list_topics() if topic.name == name), None)

    def list_topics(self) -> list[Topic]:
        with self._open():
            live = [t.topic for t in self._timelines.values() if not t.dropped]
        return sorted(live, key=lambda topic: topic.name)

    def _drop_topic(self, uid: int, now_ms: int) -> bool:
        with self._open():
            timeline = self._timelines.get(uid)
            if timeline is None or timeline.dropped:
                return False
            timeline.dropped = True
            return True

    # Changes

    def _create(
        self, topic: Topic, messages: Sequence[tuple[int, NewMessage]], replace: bool, now_ms: int
    ) -> dict[str, int]:
        made: dict[str, int] = {}
        with self._open():
            entries = self._entries(topic)
            if entries is None:
                return made
            for bucket, new in messages:
                old = entries.get(new.id)
                row = old.row() if old else None
                change = Change(bucket, new.id, new.producer_group)
                if explain_create(row, change, replace, now_ms) is not None:
                    continue
                floor = self._timelines[topic.uid].floor
                version = max(now_ms, floor + 1, row.version + 1 if row else 0)
                entries[new.id] = Entry(new_message(bucket, new, version), new.body)
                made[new.id] = version
        return made

    def _change(
        self, operation: Operation, topic: Topic, changes: Sequence[Change], now_ms: int
    ) -> dict[str, int]:
        made: dict[str, int] = {}
        with self._open():
            entries = self._entries(topic)
            if entries is None:
                return made
            for change in changes:
                entry = entries.get(change.id)
                row = entry.row() if entry else None
                if entry is None or explain(operation, row, change, now_ms) is not None:
                    continue
                made[change.id] = entry.message.version + 1
                removable = may_remove(operation, topic, change, now_ms)
                floor = self._timelines[topic.uid].floor
                if removable and entry.message.version <= floor:
                    del entries[change.id]
                else:
                    apply(operation, entry, change, topic, now_ms)
        return made

    def _reject(self, topic: Topic, keys: Sequence[Key], now_ms: int) -> None:
        with self._open():
            entries = self._entries(topic) or {}
            for _, message_id in keys:
                bury(entries[message_id], 0, DeathReason.REJECTED, now_ms)

    # Leases

    def _reserve(
        self, topic: Topic, ranges: Sequence[BucketRange], limit: int, request: LeaseRequest
    ) -> tuple[list[Taken], bool]:
        horizon = request.now_ms + request.reserve_ahead_ms
        with self._open():
            ready = [
                entry
                for entry in self._live(topic, ranges)
                if entry.message.ts <= request.now_ms
                or (entry.message.lock_consumer is None and entry.message.ts <= horizon)
            ]
            ready.sort(key=lambda entry: entry.message.ts)
            taken = [take(entry, topic, request) for entry in ready[:limit]]
            return taken, len(taken) >= limit

    def _lease(self, topic: Topic, changes: Sequence[Change], request: LeaseRequest) -> list[Taken]:
        taken = []
        with self._open():
            entries = self._entries(topic) or {}
            for change in changes:
                entry = entries.get(change.id)
                if entry and explain_lease(entry.row(), change, request) is None:
                    taken.append(take(entry, topic, request))
        return taken

    def _resume(self, topic: Topic, request: ResumeRequest) -> list[Taken]:
        taken: list[Taken] = []
        with self._open():
            found = sorted(self._live(topic, topic.all_buckets), key=lambda each: each.message.id)
            for entry in found:
                old = entry.message
                live = old.lock_consumer == request.consumer and old.ts > request.now_ms
                if live and old.id > request.after and len(taken) < request.limit:
                    entry.message = replace(old, version=old.version + 1)
                    before, entry.session = entry.session, request.session
                    taken.append(Taken(entry.message, entry.body, True, None, None, before))
        return taken

    # Looking

    def _rows(self, topic: Topic, keys: Sequence[Key]) -> dict[str, StoredRow]:
        with self._open():
            entries = self._entries(topic) or {}
            return {key[1]: entries[key[1]].row() for key in keys if key[1] in entries}

    def _lookup(self, topic: Topic, keys: Sequence[Key]) -> Iterable[Message]:
        with self._open():
            entries = self._entries(topic) or {}
            found = [entries[key[1]] for key in keys if key[1] in entries]
            return [entry.message for entry in found if entry.life is Life.LIVE]

    def _bodies(
        self, topic: Topic, keys: Sequence[Key]
    ) -> dict[str, tuple[StoredRow, bytes | None]]:
        with self._open():
            entries = self._entries(topic) or {}
            found = {key[1]: entries[key[1]] for key in keys if key[1] in entries}
            return {each: (entry.row(), entry.body) for each, entry in found.items()}

    def _select(
        self, topic: Topic, ranges: Sequence[BucketRange], limit: int, max_ts: int
    ) -> list[Message]:
        with self._open():
            found = [e.message for e in self._live(topic, ranges) if e.message.ts <= max_ts]
        return sorted(found, key=lambda message: message.ts)[:limit]

    def _select_held(
        self, topic: Topic, consumer: str, session: str | None, after: str, limit: int
    ) -> list[Message]:
        def is_held(entry: Entry) -> bool:
            named = session is None or entry.session == session
            return named and entry.message.lock_consumer == consumer

        return self._page(topic, is_held, after, limit)

    def _select_owned(
        self, topic: Topic, producer_group: str, after: str, limit: int
    ) -> list[Message]:
        return self._page(
            topic, lambda each: each.message.producer_group == producer_group, after, limit
        )

    def _page(
        self, topic: Topic, wanted: Callable[[Entry], bool], after: str, limit: int
    ) -> list[Message]:
        """The first messages behind an id, in the order of ids."""
        with self._open():
            found = [e.message for e in self._live(topic, topic.all_buckets) if wanted(e)]
        behind = [each for each in found if each.id > after]
        return sorted(behind, key=lambda message: message.id)[:limit]

    def _next_ts(self, topic: Topic, ranges: Sequence[BucketRange]) -> int | None:
        with self._open():
            return min((entry.message.ts for entry in self._live(topic, ranges)), default=None)

    def _forecast(
        self,
        topic: Topic,
        ranges: Sequence[BucketRange],
        span: Span,
    ) -> dict[int, Counts]:
        counted: dict[int, dict[str, int]] = {}
        with self._open():
            for entry in self._live(topic, ranges):
                message = entry.message
                if span.start <= message.ts < span.end:
                    locked = message.lock_consumer is not None
                    status = status_of(message.ts, locked, span.now_ms)
                    step = counted.setdefault(
                        (message.ts - span.start) // span.step_ms,
                        {each.value: 0 for each in Status},
                    )
                    step[status.value] += 1
        return {step: Counts(**numbers) for step, numbers in counted.items()}

    def _scan(
        self, topic: Topic, cell: Cell, after: tuple[int, str], end: int, limit: int
    ) -> list[Message]:
        ranges = [BucketRange(cell.start, cell.stop)]
        with self._open():
            found = [e.message for e in self._live(topic, ranges) if e.message.ts < end]
        behind = [message for message in found if (message.ts, message.id) > after]
        return sorted(behind, key=lambda message: (message.ts, message.id))[:limit]

    # Dead letters and upkeep

    def _dead_letters(self, topic: Topic, after: tuple[int, str], limit: int) -> list[DeadLetter]:
        def place(letter: DeadLetter) -> tuple[int, str]:
            return letter.died, letter.message.id

        with self._open():
            dead = [
                DeadLetter(message=entry.message, reason=str(entry.death), died=entry.message.ts)
                for entry in (self._entries(topic) or {}).values()
                if entry.death is not None
            ]
        return sorted((each for each in dead if place(each) > after), key=place)[:limit]

    def _raise_floors(self, uids: Sequence[int], now_ms: int) -> None:
        with self._open():
            for uid in uids:
                if uid in self._timelines:
                    self._timelines[uid].raise_floor(now_ms)

    def _purge(self, limit: int, now_ms: int) -> int:
        removed = 0
        with self._open():
            for uid, timeline in list(self._timelines.items()):
                for message_id, entry in list(timeline.entries.items()):
                    if removed == limit:
                        return removed
                    if timeline.dropped or is_waste(entry, timeline.topic, now_ms):
                        del timeline.entries[message_id]
                        timeline.raise_floor(now_ms)
                        removed += 1
                if timeline.dropped and not timeline.entries:
                    del self._timelines[uid]
        return removed

    def watch(self) -> Watch:
        with self._open():
            return self._board.add(LocalWatch())

    def clock_ms(self) -> int | None:
        return None

    def close(self) -> None:
        self._closed = True

    def _announce(self, notice: Notice) -> None:
        with self._lock:
            if self._told is not None:
                self._told.append(notice)
                return
        self._board.tell(notice)

    def _transact(self, work: Callable[[TakesIn], Answer]) -> Answer:
        with self._open():
            before = copy.deepcopy((self._timelines, self._accounts))
            self._told = []
            try:
                answer = work(self)
            except BaseException:
                self._timelines, self._accounts = before
                self._told = None
                raise
            told, self._told = self._told, None
        for notice in told:
            self._announce(notice)
        return answer

    def _entries(self, topic: Topic) -> dict[str, Entry] | None:
        timeline = self._timelines.get(topic.uid)
        return None if timeline is None or timeline.dropped else timeline.entries

    def _live(self, topic: Topic, ranges: Sequence[BucketRange]) -> Iterator[Entry]:
        for entry in (self._entries(topic) or {}).values():
            bucket = entry.message.bucket
            if entry.life is Life.LIVE and any(start <= bucket < stop for start, stop in ranges):
                yield entry
