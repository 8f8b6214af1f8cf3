"""The timeline's primitives in memory."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from chronoline.core.errors import StoreClosed
from chronoline.core.expiry import DeathReason
from chronoline.core.limits import MAX_TIME_MS
from chronoline.core.message import DeadLetter, Message, NewMessage
from chronoline.core.ranges import BucketRange
from chronoline.core.schedule import NO_TOPIC, Schedule
from chronoline.core.status import Life, Status, status_of
from chronoline.core.topic import Topic
from chronoline.runtime.message_ids import new_id
from chronoline.stores.contract import (
    Capabilities,
    Counts,
    Notice,
    Reach,
    Recipient,
    StoredRow,
    Watch,
)
from chronoline.stores.engine import (
    FLOOR_KEPT_MS,
    Answer,
    ChangedRows,
    EarlyCancel,
    Engine,
    Ids,
    InputMove,
    KeptLetter,
    Key,
    LeaseRequest,
    NewRows,
    Partition,
    Reserved,
    RestoredRow,
    ResumeRequest,
    ScheduleMove,
    Span,
    Taken,
    request_of,
)
from chronoline.stores.guards import (
    explain,
    explain_create,
    explain_lease,
    may_remove,
    passed_by_all,
    settled,
)
from chronoline.stores.inputs import InputAccount, InputClaim, Tally
from chronoline.stores.members import Member
from chronoline.stores.memory.entries import Entry, apply, bury, is_waste, mark, new_message, take
from chronoline.stores.notices import LocalWatch, NoticeBoard
from chronoline.stores.schedules import SchedulePlace
from chronoline.stores.stripes import Cell


@dataclass(slots=True)
class _TopicEntries:
    """The entries of a topic, by id."""

    topic: Topic
    deleted: bool = False
    entries: dict[str, Entry] = field(default_factory=dict)
    floor: int = 0
    """New messages begin above it."""

    def raise_floor(self, now_ms: int) -> None:
        self.floor = max(self.floor, settled(now_ms) - 1)


@dataclass(slots=True)
class _Account:
    position: int
    holder: str | None = None
    until_ms: int = 0
    fence: int = 0
    tally: Tally = field(default_factory=Tally)

    def held_by(self, claim: InputClaim) -> bool:
        return (self.holder, self.fence) == (claim.holder, claim.fence)


class MemoryEngine(Engine[None]):
    """Dictionaries under one lock. A transaction holds the lock and needs no connection."""

    capabilities = Capabilities(durable=False, shared=False, concurrent_writers=False)

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._identity = new_id()
        self._topics: dict[int, _TopicEntries] = {}
        self._accounts: dict[Partition, _Account] = {}
        self._members: dict[tuple[str, str], Member] = {}
        self._schedules: dict[str, Schedule] = {}
        self._board = NoticeBoard()
        self._closed = False

    def _open(self) -> threading.RLock:
        if self._closed:
            raise StoreClosed
        return self._lock

    def transact(self, work: Callable[[None], Answer]) -> Answer:
        with self._open():
            before = copy.deepcopy((self._topics, self._accounts, self._schedules))
            try:
                return work(None)
            except BaseException:
                self._topics, self._accounts, self._schedules = before
                raise

    # Topics

    def insert_topic(self, topic: Topic) -> bool:
        with self._open():
            if topic.uid in self._topics or self.is_name_taken(topic.name):
                return False
            self._topics[topic.uid] = _TopicEntries(topic)
            return True

    def is_name_taken(self, name: str) -> bool:
        with self._open():
            return any(each.topic.name == name for each in self._topics.values())

    def fetch_topic(self, connection: None, uid: int) -> Topic | None:
        with self._open():
            timeline = self._topics.get(uid)
            return None if timeline is None or timeline.deleted else timeline.topic

    def find_topic(self, name: str) -> Topic | None:
        return next((topic for topic in self.list_topics() if topic.name == name), None)

    def list_topics(self) -> list[Topic]:
        return self._list_topics(deleted=False)

    def deleted_topics(self) -> list[Topic]:
        return self._list_topics(deleted=True)

    def _list_topics(self, *, deleted: bool) -> list[Topic]:
        with self._open():
            found = [each.topic for each in self._topics.values() if each.deleted is deleted]
        return sorted(found, key=lambda topic: topic.name)

    def changed_topics(self) -> list[Topic]:
        return [topic for topic in self.list_topics() if topic.revision > 1]

    def change_topic(self, topic: Topic) -> bool:
        with self._open():
            timeline = self._topics.get(topic.uid)
            if timeline is None or timeline.deleted or timeline.topic.revision != topic.revision:
                return False
            timeline.topic = replace(topic, revision=topic.revision + 1)
            return True

    def delete_topic(self, uid: int, now_ms: int) -> bool:
        with self._open():
            timeline = self._topics.get(uid)
            if timeline is None or timeline.deleted:
                return False
            timeline.deleted = True
            return True

    # Changes

    def create(
        self,
        connection: None,
        topic: Topic,
        messages: NewRows,
        replace: bool,
        now_ms: int,
    ) -> dict[str, int]:
        made: dict[str, int] = {}
        with self._open():
            entries = self._entries(topic)
            if entries is None:
                return made
            for bucket, new in messages:
                old = entries.get(new.id)
                row = old.row() if old else None
                if explain_create(row, new, replace, now_ms) is not None:
                    continue
                version = self._first_version(topic, row, now_ms)
                message = new_message(bucket, new, version)
                entries[new.id] = Entry(message, new.body, digest=new.digest)
                made[new.id] = version
        return made

    def change(
        self,
        connection: None,
        topic: Topic,
        changes: ChangedRows,
        now_ms: int,
    ) -> dict[str, int]:
        made: dict[str, int] = {}
        with self._open():
            entries = self._entries(topic)
            if entries is None:
                return made
            for _, change in changes:
                entry = entries.get(change.id)
                row = entry.row() if entry else None
                if entry is None or explain(row, change, now_ms) is not None:
                    continue
                made[change.id] = entry.message.version + 1
                removable = may_remove(topic, change, now_ms)
                floor = self._topics[topic.uid].floor
                if removable and entry.message.version <= floor:
                    del entries[change.id]
                else:
                    apply(entry, change, topic, now_ms)
        return made

    def reject(self, connection: None, topic: Topic, keys: Sequence[Key], now_ms: int) -> None:
        with self._open():
            entries = self._entries(topic) or {}
            for _, message_id in keys:
                bury(entries[message_id], 0, DeathReason.REJECTED, now_ms)

    def restore(self, connection: None, topic: Topic, rows: Sequence[RestoredRow]) -> None:
        with self._open():
            entries = self._entries(topic) or {}
            for (_, message_id), due, attempts, death, died in rows:
                entry = entries[message_id]
                ts = due if death is None else died
                entry.message = replace(entry.message, due=due, ts=ts, attempts=attempts)
                entry.life, entry.death = (Life.LIVE if death is None else Life.DEAD), death

    def keep_letters(
        self, connection: None, topic: Topic, letters: Sequence[KeptLetter]
    ) -> set[str]:
        done: set[str] = set()
        with self._open():
            entries = self._entries(topic) or {}
            for (_, message_id), (bucket, kept_id), header in letters:
                entry = entries.get(message_id)
                if entry is None or entry.life is not Life.DEAD or kept_id in entries:
                    continue
                headers = (*entry.message.headers, header)
                message = replace(entry.message, id=kept_id, bucket=bucket, headers=headers)
                entries[kept_id] = replace(entry, message=message)
                done.add(message_id)
        return done

    def mark_early(
        self,
        connection: None,
        topic: Topic,
        cancels: Sequence[EarlyCancel],
        producer_group: str,
        now_ms: int,
    ) -> set[str]:
        done: set[str] = set()
        with self._open():
            entries = self._entries(topic)
            if entries is None:
                return done
            for (bucket, message_id), partition, until_ms in cancels:
                old = entries.get(message_id)
                if old is not None and not _may_mark_early(old, now_ms):
                    continue
                version = self._first_version(topic, old.row() if old else None, now_ms)
                new = NewMessage(id=message_id, due=until_ms, producer_group=producer_group)
                message = new_message(bucket, new, version)
                entries[message_id] = Entry(message, None, Life.GONE, early_cancel=partition)
                done.add(message_id)
        return done

    def free(self, connection: None, topic: Topic, keys: Sequence[Key], now_ms: int) -> None:
        with self._open():
            entries = self._entries(topic) or {}
            for _, message_id in keys:
                entry = entries.get(message_id)
                if entry is not None and entry.life is not Life.LIVE:
                    mark(entry, None, passed_by_all(now_ms))
                    entry.session = entry.digest = entry.early_cancel = None

    # Leases

    def reserve(
        self, topic: Topic, ranges: Sequence[BucketRange], limit: int, request: LeaseRequest
    ) -> Reserved:
        horizon = request.now_ms + request.reserve_ahead_ms
        with self._open():
            if not self._is_served(topic):
                return Reserved([], more=False)
            ready = [
                entry
                for entry in self._live(topic, ranges)
                if entry.message.ts <= request.now_ms
                or (entry.message.lock_consumer is None and entry.message.ts <= horizon)
            ]
            ready.sort(key=lambda entry: entry.message.ts)
            taken = [take(entry, topic, request) for entry in ready[:limit]]
            return Reserved(taken, more=len(taken) >= limit)

    def reserve_for(
        self, topic: Topic, recipients: Sequence[Recipient], request: LeaseRequest
    ) -> list[Reserved]:
        with self._open():
            return [
                self.reserve(topic, each.ranges, each.limit, request_of(each, request))
                for each in recipients
            ]

    def lease(self, topic: Topic, wanted: ChangedRows, request: LeaseRequest) -> list[Taken]:
        taken: list[Taken] = []
        with self._open():
            if not self._is_served(topic):
                return taken
            entries = self._entries(topic) or {}
            for _, change in wanted:
                entry = entries.get(change.id)
                if entry and explain_lease(entry.row(), change.version, request) is None:
                    taken.append(take(entry, topic, request))
        return taken

    def resume(self, topic: Topic, request: ResumeRequest) -> list[Taken]:
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

    # Reads

    def rows(self, connection: None, topic: Topic, keys: Sequence[Key]) -> dict[str, StoredRow]:
        with self._open():
            entries = self._entries(topic) or {}
            return {key[1]: entries[key[1]].row() for key in keys if key[1] in entries}

    def lookup(self, topic: Topic, keys: Sequence[Key]) -> Iterable[Message]:
        with self._open():
            entries = self._entries(topic) or {}
            found = [entries[key[1]] for key in keys if key[1] in entries]
            return [entry.message for entry in found if entry.life is Life.LIVE]

    def bodies(
        self, topic: Topic, keys: Sequence[Key]
    ) -> dict[str, tuple[StoredRow, bytes | None]]:
        with self._open():
            entries = self._entries(topic) or {}
            found = {key[1]: entries[key[1]] for key in keys if key[1] in entries}
            return {each: (entry.row(), entry.body) for each, entry in found.items()}

    def select(
        self, topic: Topic, ranges: Sequence[BucketRange], limit: int, max_ts: int
    ) -> list[Message]:
        with self._open():
            found = [e.message for e in self._live(topic, ranges) if e.message.ts <= max_ts]
        return sorted(found, key=lambda message: message.ts)[:limit]

    def select_held(
        self, topic: Topic, consumer: str, session: str | None, ids: Ids, limit: int
    ) -> list[Message]:
        def is_held(entry: Entry) -> bool:
            named = session is None or entry.session == session
            return named and entry.message.lock_consumer == consumer

        return self._page(topic, is_held, ids, limit)

    def select_owned(
        self, topic: Topic, producer_group: str, ids: Ids, limit: int
    ) -> list[Message]:
        return self._page(
            topic, lambda each: each.message.producer_group == producer_group, ids, limit
        )

    def select_keys(
        self, topic: Topic, buckets: BucketRange, ids: Ids, limit: int
    ) -> list[Message]:
        with self._open():
            found = [entry.message for entry in self._live(topic, [buckets])]
        inside = [
            each
            for each in found
            if ids.first <= each.id < ids.end
            and (each.bucket != buckets.start or each.id > ids.after)
        ]
        return sorted(inside, key=lambda each: (each.bucket, each.id))[:limit]

    def next_group(self, topic: Topic, after: str) -> str | None:
        with self._open():
            groups = {e.message.producer_group for e in self._live(topic, topic.all_buckets)}
            return min((each for each in groups if each > after), default=None)

    def count_owned(self, topic: Topic, producer_group: str, most: int) -> int:
        with self._open():
            live = self._live(topic, topic.all_buckets)
            return min(most, sum(e.message.producer_group == producer_group for e in live))

    def _page(
        self, topic: Topic, wanted: Callable[[Entry], bool], ids: Ids, limit: int
    ) -> list[Message]:
        """The first messages behind an id, in the order of ids."""
        with self._open():
            found = [e.message for e in self._live(topic, topic.all_buckets) if wanted(e)]
        behind = [each for each in found if each.id > ids.after and each.id >= ids.first]
        return sorted(behind, key=lambda message: message.id)[:limit]

    def next_times(self, topic: Topic, shares: Sequence[Sequence[BucketRange]]) -> list[int | None]:
        with self._open():
            if not self._is_served(topic):
                return [None for _ in shares]
            return [
                min((entry.message.ts for entry in self._live(topic, ranges)), default=None)
                for ranges in shares
            ]

    def forecast(
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

    def scan(
        self, topic: Topic, cell: Cell, after: tuple[int, str], end: int, limit: int
    ) -> list[Message]:
        ranges = [BucketRange(cell.start, cell.stop)]
        with self._open():
            found = [e.message for e in self._live(topic, ranges) if e.message.ts < end]
        behind = [message for message in found if (message.ts, message.id) > after]
        return sorted(behind, key=lambda message: (message.ts, message.id))[:limit]

    def scan_held(self, topic: Topic, after: tuple[str, str], limit: int) -> list[Message]:
        def place(message: Message) -> tuple[str, str]:
            return message.lock_consumer or "", message.id

        with self._open():
            live = [entry.message for entry in self._live(topic, topic.all_buckets)]
        held = [each for each in live if each.lock_consumer is not None and place(each) > after]
        return sorted(held, key=place)[:limit]

    # Dead letters and upkeep

    def dead_letters(self, topic: Topic, after: tuple[int, str], limit: int) -> list[DeadLetter]:
        def place(letter: DeadLetter) -> tuple[int, str]:
            return letter.died, letter.message.id

        with self._open():
            dead = [
                DeadLetter(message=entry.message, reason=str(entry.death), died=entry.message.ts)
                for entry in (self._entries(topic) or {}).values()
                if entry.death is not None
            ]
        return sorted((each for each in dead if place(each) > after), key=place)[:limit]

    def raise_floors(self, uids: Sequence[int], now_ms: int) -> None:
        with self._open():
            for uid in uids:
                if uid in self._topics:
                    self._topics[uid].raise_floor(now_ms)

    def purge(self, limit: int, now_ms: int) -> int:
        removed = 0
        with self._open():
            for uid, timeline in list(self._topics.items()):
                for message_id, entry in list(timeline.entries.items()):
                    if removed == limit:
                        return removed
                    if timeline.deleted or is_waste(entry, timeline.topic, now_ms):
                        del timeline.entries[message_id]
                        timeline.raise_floor(now_ms)
                        removed += 1
                if timeline.deleted and not timeline.entries:
                    del self._topics[uid]
                    removed += self._forget_schedules(uid)
            return removed + self._forget_schedules(NO_TOPIC, now_ms - FLOOR_KEPT_MS)

    def watch(self) -> Watch:
        with self._open():
            return self._board.add(LocalWatch())

    def probe(self, patience_s: float) -> Reach:
        with self._open():
            return Reach.CHANGES

    def clock_ms(self) -> int | None:
        return None

    def identity(self) -> str:
        with self._open():
            return self._identity

    def close(self) -> None:
        self._closed = True

    def announce(self, connection: None, notice: Notice) -> None:
        self._board.notify(notice)

    # Inputs

    def claim_inputs(
        self, source: str, starts: Mapping[int, int], holder: str, until_ms: int, now_ms: int
    ) -> list[InputClaim]:
        claims = []
        with self._open():
            for partition, start in sorted(starts.items()):
                account = self._accounts.setdefault((source, partition), _Account(start))
                if account.holder in (None, holder) or account.until_ms <= now_ms:
                    account.holder, account.until_ms = holder, until_ms
                    account.fence += 1
                    place = (source, partition, holder, account.fence, until_ms, account.position)
                    claims.append(InputClaim(*place))
        return claims

    def renew_claims(
        self, claims: Sequence[InputClaim], until_ms: int, now_ms: int
    ) -> list[InputClaim]:
        with self._open():
            positions = self.positions(None, claims, now_ms)
            for partition in positions:
                self._accounts[partition].until_ms = until_ms
            return [
                claim._replace(until_ms=until_ms, position=positions[claim[:2]])
                for claim in claims
                if claim[:2] in positions
            ]

    def release_claims(self, claims: Sequence[InputClaim]) -> None:
        with self._open():
            for claim in claims:
                account = self._accounts.get(claim[:2])
                if account is not None and account.held_by(claim):
                    account.holder, account.until_ms = None, 0

    def positions(
        self, connection: None, claims: Sequence[InputClaim], now_ms: int
    ) -> dict[Partition, int]:
        with self._open():
            found = {claim: self._accounts.get(claim[:2]) for claim in claims}
            return {
                claim[:2]: account.position
                for claim, account in found.items()
                if account is not None and account.held_by(claim) and account.until_ms > now_ms
            }

    def move_inputs(self, connection: None, moves: Sequence[InputMove]) -> None:
        with self._open():
            for partition, upto, tally in moves:
                account = self._accounts[partition]
                account.position = max(account.position, upto)
                account.tally = account.tally + tally

    def input_accounts(self, source: str) -> list[InputAccount]:
        with self._open():
            return [
                InputAccount(
                    partition=partition,
                    position=account.position,
                    tally=account.tally,
                    holder=account.holder,
                    until_ms=None if account.holder is None else account.until_ms,
                    fence=account.fence,
                )
                for (name, partition), account in sorted(self._accounts.items())
                if name == source
            ]

    def forget_inputs(self, source: str, now_ms: int) -> int:
        with self._open():
            free = [
                place
                for place, account in self._accounts.items()
                if place[0] == source and (account.holder is None or account.until_ms <= now_ms)
            ]
            for place in free:
                del self._accounts[place]
            return len(free)

    # Members

    def beat(self, group: str, name: str, until_ms: int, details: str, forgotten_ms: int) -> None:
        with self._open():
            before = self._members.get((group, name))
            stopping = before is not None and before.stopping
            self._members[group, name] = Member(
                name=name, until_ms=until_ms, stopping=stopping, details=details
            )
            for place, each in list(self._members.items()):
                if each.until_ms <= forgotten_ms:
                    del self._members[place]

    def members(self, group: str) -> list[Member]:
        with self._open():
            return [member for (of, _), member in sorted(self._members.items()) if of == group]

    def live_groups(self, now_ms: int) -> frozenset[str]:
        with self._open():
            return frozenset(
                group for (group, _), member in self._members.items() if member.alive(now_ms)
            )

    def ask_to_stop(self, group: str, name: str | None) -> int:
        with self._open():
            asked = [each for each in self.members(group) if name in (None, each.name)]
            for member in asked:
                self._members[group, member.name] = replace(member, stopping=True)
            return len(asked)

    def leave(self, group: str, name: str) -> None:
        with self._open():
            self._members.pop((group, name), None)

    # Schedules

    def insert_schedule(self, connection: None, schedule: Schedule) -> bool:
        with self._open():
            before = self._schedules.get(schedule.name)
            taken = before is not None and self._lives(before)
            if taken or not self._lives(schedule) or not self._is_above_floor(schedule):
                return False
            self._schedules[schedule.name] = schedule
            return True

    def replace_schedule(self, connection: None, schedule: Schedule, instead_of: Schedule) -> bool:
        with self._open():
            if not self._has_state(instead_of) or not self._lives(schedule):
                return False
            self._schedules[schedule.name] = schedule
            return True

    def remove_schedule(self, connection: None, schedule: Schedule, floor_ms: int) -> bool:
        with self._open():
            found = self._has_state(schedule)
            if found:
                self._schedules[schedule.name] = replace(
                    schedule,
                    topic_uid=NO_TOPIC,
                    version=schedule.version + 1,
                    next_ms=floor_ms,
                    paused=True,
                    key=None,
                    headers=(),
                    body=None,
                )
            return found

    def schedule_floor_ms(self, name: str) -> int:
        with self._open():
            left = self._schedules.get(name)
            return (left.next_ms or 0) if left is not None and left.topic_uid == NO_TOPIC else 0

    def move_schedules(self, connection: None, moves: Sequence[ScheduleMove]) -> set[str]:
        moved: set[str] = set()
        with self._open():
            for name, uid, version, next_ms in moves:
                found = self._schedules.get(name)
                if found is None or (found.uid, found.version) != (uid, version):
                    continue
                if not found.paused and self._lives(found):
                    self._schedules[name] = replace(found, next_ms=next_ms, version=version + 1)
                    moved.add(name)
        return moved

    def find_schedule(self, name: str) -> Schedule | None:
        with self._open():
            found = self._schedules.get(name)
            return found if found is not None and self._lives(found) else None

    def list_schedules(self, topic_uid: int | None, after: str, limit: int) -> list[Schedule]:
        with self._open():
            found = [
                replace(each, body=None)
                for name, each in sorted(self._schedules.items())
                if name > after and topic_uid in (None, each.topic_uid) and self._lives(each)
            ]
        return found[:limit]

    def count_schedules(self, topic_uid: int, most: int) -> int:
        with self._open():
            found = sum(each.topic_uid == topic_uid for each in self._schedules.values())
            return min(found, most)

    def due_schedules(self, before_ms: int, after: SchedulePlace, limit: int) -> list[Schedule]:
        with self._open():
            places = sorted(
                SchedulePlace(each.next_ms, each.name)
                for each in self._schedules.values()
                if not each.paused and each.next_ms is not None and each.next_ms <= before_ms
            )
            return [self._schedules[each.name] for each in places if each > after][:limit]

    def next_schedule_ms(self, after_ms: int) -> int | None:
        with self._open():
            times = (each.next_ms for each in self._schedules.values() if not each.paused)
            return min(
                (each for each in times if each is not None and each > after_ms), default=None
            )

    def _has_state(self, schedule: Schedule) -> bool:
        found = self._schedules.get(schedule.name)
        state = (schedule.uid, schedule.version)
        return found is not None and (found.uid, found.version) == state

    def _lives(self, schedule: Schedule) -> bool:
        timeline = self._topics.get(schedule.topic_uid)
        return timeline is not None and not timeline.deleted

    def _is_above_floor(self, schedule: Schedule) -> bool:
        return schedule.next_ms is None or schedule.next_ms > self.schedule_floor_ms(schedule.name)

    def _forget_schedules(self, uid: int, before_ms: int = MAX_TIME_MS) -> int:
        dead = [
            name
            for name, each in self._schedules.items()
            if each.topic_uid == uid and (each.next_ms or 0) <= before_ms
        ]
        for name in dead:
            del self._schedules[name]
        return len(dead)

    def _first_version(self, topic: Topic, row: StoredRow | None, now_ms: int) -> int:
        floor = self._topics[topic.uid].floor
        return max(now_ms, floor + 1, row.version + 1 if row else 0)

    def _is_served(self, topic: Topic) -> bool:
        """Whether a topic is live and not paused."""
        timeline = self._topics.get(topic.uid)
        return timeline is not None and not timeline.deleted and timeline.topic.pause is None

    def _entries(self, topic: Topic) -> dict[str, Entry] | None:
        timeline = self._topics.get(topic.uid)
        return None if timeline is None or timeline.deleted else timeline.entries

    def _live(self, topic: Topic, ranges: Sequence[BucketRange]) -> Iterator[Entry]:
        for entry in (self._entries(topic) or {}).values():
            bucket = entry.message.bucket
            if entry.life is Life.LIVE and any(start <= bucket < stop for start, stop in ranges):
                yield entry


def _may_mark_early(entry: Entry, now_ms: int) -> bool:
    """Whether an early cancel may take the id: it is free, or another early cancel has it."""
    free = entry.message.ts <= now_ms or entry.early_cancel is not None
    return entry.life is Life.GONE and free
