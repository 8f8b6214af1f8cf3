"""The timeline's primitives in PostgreSQL."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from chronoline.core.change import Change
from chronoline.core.errors import OutcomeUnknown, StoreError, StoreUnavailable
from chronoline.core.expiry import DeathReason
from chronoline.core.headers import pack_headers
from chronoline.core.limits import TURN_BOUND_MS
from chronoline.core.message import Message, NewMessage
from chronoline.core.ranges import BucketRange
from chronoline.core.status import Life
from chronoline.core.topic import Topic
from chronoline.databases.postgres import (
    NO_LISTEN,
    Connection,
    PostgresDatabase,
    Row,
    fetch,
)
from chronoline.databases.postgres_listener import PostgresListener
from chronoline.databases.postgres_probe import PostgresProbe
from chronoline.databases.queries import load_queries
from chronoline.runtime.log_summary import LogSummary
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
    Ids,
    KeptLetter,
    Key,
    LeaseRequest,
    NewRows,
    Reserved,
    RestoredRow,
    ResumeRequest,
    RowsHeld,
    Span,
    Taken,
)
from chronoline.stores.guards import explain_create, may_remove, passed_by_all, settled
from chronoline.stores.notices import LocalWatch, NoticeBoard
from chronoline.stores.postgres.listener import start_listening, write_notice
from chronoline.stores.postgres.locked_rows import PATIENT_MS, LockedRows, Try
from chronoline.stores.sql import (
    MESSAGE_WIDTH,
    SqlEngine,
    change_values,
    lease_values,
    read_message,
    resume_values,
    span_values,
    topic_values,
)
from chronoline.stores.stripes import cells_of, stripe_of

logger = logging.getLogger(__name__)
_summary = LogSummary(logger)
_PACKAGE = "chronoline.stores.postgres"
_QUERIES = load_queries(_PACKAGE)
_RESERVE_LOOKS = 4
_RESERVE_GROWTH = 4
LOOK_EVERY_S = 0.1
"""A sleeper looks this often if the server sends no notices."""
_CREATE_MS = 900
"""The time of all statements of a create. With the wait for its turn it stays within `WRITE_BOUND_MS`."""
_CHANGE_MS = 5_000
"""The time of all statements of a change. Rows that others hold after it are set aside."""
_TRANSACTION_LOCK_MS = 900
_UNFINISHED_S = 2.0
"""A commit that takes longer, while reads are answered, counts as one that does not end."""
_LATE_STATEMENT_MS = 3_600_000
"""No statement is still on its way to a deleted topic after this time."""
_TOPICS_AT_ONCE = 10_000
"""The most deleted topics that a purge empties, and the most that it forgets."""


class PostgresEngine(SqlEngine[Connection]):
    """A PostgreSQL database, shared by many processes and machines.

    Without a connection each statement is a transaction of its own, and rows that other transactions hold are
    set aside.
    """

    capabilities = Capabilities(durable=True, shared=True, concurrent_writers=True)

    def __init__(self, url: str, *, notify: bool = True) -> None:
        self._notify = notify
        self.database = PostgresDatabase(
            url, package=_PACKAGE, schema="chronoline", lock_timeout_ms=PATIENT_MS
        )
        self.traffic = self.database.traffic
        if notify and not self.database.keeps_sessions:
            self.database.close()
            raise StoreError(NO_LISTEN)
        self._locked_rows = LockedRows()
        self._board = NoticeBoard()
        self._listener: PostgresListener | None = None
        self._probe = PostgresProbe(self.database)
        self._listener_lock = threading.Lock()

    def transact(self, work: Callable[[Connection], Answer]) -> Answer:
        return self.database.transact(work, turn_ms=TURN_BOUND_MS, lock_ms=_TRANSACTION_LOCK_MS)

    # Topics

    def insert_topic(self, topic: Topic) -> bool:
        return bool(self._run("insert_topic", topic_values(topic)))

    def delete_topic(self, uid: int, now_ms: int) -> bool:
        return bool(self._run("drop_topic", {"uid": uid, "now": now_ms}))

    # Changes

    def create(
        self,
        connection: Connection | None,
        topic: Topic,
        messages: NewRows,
        replace: bool,
        now_ms: int,
    ) -> dict[str, int]:
        buckets = topic.settings.buckets
        # In the order of the key, so that two batches cannot wait for each other.
        messages = sorted(messages, key=_key_of)
        common = {"topic": topic.uid, "now": now_ms, "replace": replace}
        if connection is not None:
            values = common | _new_columns(messages, buckets)
            return dict(self._write("create", values, connection))

        def create(part: Try[tuple[int, NewMessage]]) -> list[Row]:
            values = common | _new_columns(part.items, buckets)
            return self._run_part("create", values, part, turn_ms=TURN_BOUND_MS)

        within_ms = TURN_BOUND_MS + _CREATE_MS
        rows, held = self._locked_rows.run(messages, _id_of, create, within_ms=within_ms)
        if held:
            raise RowsHeld(dict(rows), held)
        return dict(rows)

    def create_free(
        self,
        connection: Connection,
        topic: Topic,
        messages: NewRows,
        replace: bool,
        now_ms: int,
    ) -> dict[str, int]:
        """Like `create`, without a statement on ids that are taken.

        A conflict with a row would lock it until the transaction ends.
        """
        rows = self.rows(connection, topic, [_key_of(each) for each in messages])
        free = [
            (bucket, new)
            for bucket, new in messages
            if not explain_create(rows.get(new.id), new, replace, now_ms)
        ]
        return self.create(connection, topic, free, replace, now_ms) if free else {}

    def change(
        self,
        connection: Connection | None,
        topic: Topic,
        changes: ChangedRows,
        now_ms: int,
    ) -> dict[str, int]:
        operation = changes[0][1].operation
        common = change_values(topic, now_ms)
        removable = [each for each in changes if may_remove(topic, each[1], now_ms)]
        made: dict[str, int] = {}
        held: frozenset[str] = frozenset()
        for query, some in {
            f"{operation.value}_remove": removable,
            operation.value: changes,
        }.items():
            left = [each for each in some if each[1].id not in made and each[1].id not in held]
            if not left:
                continue
            if connection is not None:
                made.update(self._write(query, common | _columns(topic, left), connection))
                continue

            def change(part: Try[tuple[int, Change]], query: str = query) -> list[Row]:
                return self._run_part(query, common | _columns(topic, part.items), part)

            try:
                rows, more = self._locked_rows.run(left, _id_of, change, within_ms=_CHANGE_MS)
            except StoreUnavailable as error:
                if not made:
                    raise
                raise OutcomeUnknown(f"a part of the batch is done: {error}") from error
            made.update(rows)
            held |= more
        if held:
            raise RowsHeld(made, held)
        return made

    def reject(
        self, connection: Connection | None, topic: Topic, keys: Sequence[Key], now_ms: int
    ) -> None:
        self._write("reject", _key_columns(topic, keys) | {"now": now_ms}, connection)

    def restore(
        self, connection: Connection | None, topic: Topic, rows: Sequence[RestoredRow]
    ) -> None:
        rows = sorted(rows)
        values = _key_columns(topic, [each.key for each in rows]) | {
            "due": [each.due for each in rows],
            "attempts": [each.attempts for each in rows],
            "death": [each.death for each in rows],
            "died": [each.died for each in rows],
        }
        self._write("restore", values, connection)

    def keep_letters(
        self, connection: Connection | None, topic: Topic, letters: Sequence[KeptLetter]
    ) -> set[str]:
        buckets = topic.settings.buckets
        old_ids = {letter.kept[1]: letter.key[1] for letter in letters}
        values = _key_columns(topic, [letter.key for letter in letters]) | {
            "kept_bucket": [letter.kept[0] for letter in letters],
            "kept_stripe": [stripe_of(letter.kept[0], buckets) for letter in letters],
            "kept_id": [letter.kept[1] for letter in letters],
            "header": [pack_headers((letter.header,)) for letter in letters],
        }
        return {old_ids[kept_id] for (kept_id,) in self._write("keep_letters", values, connection)}

    def mark_early(
        self,
        connection: Connection | None,
        topic: Topic,
        cancels: Sequence[EarlyCancel],
        producer_group: str,
        now_ms: int,
    ) -> set[str]:
        cancels = sorted(cancels)
        values = _key_columns(topic, [cancel.key for cancel in cancels]) | {
            "stripe": [stripe_of(cancel.key[0], topic.settings.buckets) for cancel in cancels],
            "until": [cancel.until_ms for cancel in cancels],
            "partition": [cancel.partition for cancel in cancels],
            "producer_group": producer_group,
            "now": now_ms,
        }
        return {each for (each,) in self._write("mark_early", values, connection)}

    def free(
        self, connection: Connection | None, topic: Topic, keys: Sequence[Key], now_ms: int
    ) -> None:
        values = _key_columns(topic, sorted(keys)) | {"until": passed_by_all(now_ms)}
        self._write("free", values, connection)

    # Leases

    def reserve(
        self, topic: Topic, ranges: Sequence[BucketRange], limit: int, request: LeaseRequest
    ) -> Reserved:
        taken: list[Taken] = []
        reach = limit
        more = True
        clear_ms = 0
        # If others hold most candidates, the next look reaches further.
        for _ in range(_RESERVE_LOOKS):
            values = lease_values(topic, request) | _cells(topic, ranges, reach)
            try:
                rows = self._run("reserve", values | {"limit": limit - len(taken)})
            except StoreUnavailable:
                if not taken:
                    raise
                break
            candidates = rows[0][0]
            found = [_taken(row[1:]) for row in rows if row[1] is not None]
            taken += found
            more = candidates >= reach or len(taken) >= limit
            if reach == limit and len(found) == candidates:  # else others hold some of them
                clear_ms = _clear_ms(found, more, request.now_ms)
            if not more or 2 * len(taken) >= limit:
                break
            reach *= _RESERVE_GROWTH
        return Reserved(taken, more, clear_ms)

    def reserve_for(
        self, topic: Topic, recipients: Sequence[Recipient], request: LeaseRequest
    ) -> list[Reserved]:
        values = lease_values(topic, request) | _shares(topic, [each.ranges for each in recipients])
        values |= {
            "most": [recipients[number - 1].limit for number in values["share"]],
            "consumers": [each.consumer for each in recipients],
            "sessions": [each.session or None for each in recipients],
        }
        found = [Reserved([], more=False) for _ in recipients]
        for number, candidates, *row in self._run("reserve_for", values):
            taken = found[number - 1].taken
            if row[0] is not None:
                taken.append(_taken(tuple(row)))
            found[number - 1] = Reserved(taken, candidates >= recipients[number - 1].limit)
        return found

    def lease(self, topic: Topic, wanted: ChangedRows, request: LeaseRequest) -> list[Taken]:
        values = lease_values(topic, request) | _columns(topic, wanted)
        return [_taken(row) for row in self._run("lease", values)]

    def resume(self, topic: Topic, request: ResumeRequest) -> list[Taken]:
        rows = self._run("resume", resume_values(topic, request))
        return [
            Taken(read_message(row), row[MESSAGE_WIDTH], True, None, None, row[MESSAGE_WIDTH + 1])
            for row in rows
        ]

    # Reads

    def rows(
        self, connection: Connection | None, topic: Topic, keys: Sequence[Key]
    ) -> dict[str, StoredRow]:
        rows = self._read("rows", _key_columns(topic, keys), connection)
        return {row[0]: StoredRow(Life(row[1]), *row[2:11]) for row in rows}

    def lookup(self, topic: Topic, keys: Sequence[Key]) -> Iterable[Message]:
        rows = self._read("lookup", _key_columns(topic, keys))
        return [read_message(row) for row in rows]

    def bodies(
        self, topic: Topic, keys: Sequence[Key]
    ) -> dict[str, tuple[StoredRow, bytes | None]]:
        rows = self._read("bodies", _key_columns(topic, keys))
        return {row[0]: (StoredRow(Life(row[1]), *row[2:11]), row[11]) for row in rows}

    def select(
        self, topic: Topic, ranges: Sequence[BucketRange], limit: int, max_ts: int
    ) -> list[Message]:
        values = {"topic": topic.uid, "max_ts": max_ts} | _cells(topic, ranges, limit)
        return [read_message(row) for row in self._read("select", values)]

    def select_keys(
        self, topic: Topic, buckets: BucketRange, ids: Ids, limit: int
    ) -> list[Message]:
        values = {"topic": topic.uid, **buckets._asdict(), **ids._asdict(), "limit": limit}
        return [read_message(row) for row in self._read("select_keys", values)]

    def next_times(self, topic: Topic, shares: Sequence[Sequence[BucketRange]]) -> list[int | None]:
        rows = self._read("next_times", {"topic": topic.uid} | _shares(topic, shares))
        times: dict[int, int] = dict(rows)
        return [times.get(number) for number in range(1, len(shares) + 1)]

    def forecast(
        self,
        topic: Topic,
        ranges: Sequence[BucketRange],
        span: Span,
    ) -> dict[int, Counts]:
        values = span_values(topic, span)
        rows = self._read("forecast", values | _cells(topic, ranges))
        return {
            step: Counts(available=available, processing=processing, waiting=waiting)
            for step, available, processing, waiting in rows
        }

    # Upkeep

    def raise_floors(self, uids: Sequence[int], now_ms: int) -> None:
        self._run("raise_floors", {"topics": uids, "settled": settled(now_ms)})

    def purge(self, limit: int, now_ms: int) -> int:
        values = {"now": now_ms, "settled": settled(now_ms), "limit": limit}
        removed = len(self._run("purge_marks", values))
        try:
            return removed + self._purge_topics(limit - removed, now_ms)
        except StoreUnavailable as error:
            if not removed:
                raise
            raise OutcomeUnknown(f"a part is purged: {error}") from error

    def _purge_topics(self, limit: int, now_ms: int) -> int:
        removed = 0
        for (topic,) in self._read("topics_without_dead_letters", {}):
            values = {
                "topic": topic,
                "settled": settled(now_ms),
                "limit": limit - removed,
            }
            removed += len(self._run("purge_dead", values))
        removed += len(self._run("forget_floors", {"before": now_ms - FLOOR_KEPT_MS}))
        return removed + self._purge_deleted(limit - removed, now_ms)

    def _purge_deleted(self, limit: int, now_ms: int) -> int:
        """Removes messages of deleted topics, and later the topics.

        An empty topic stays until no statement can be on its way to it. A late statement may have left
        messages that nobody can see; they are removed with the topic.
        """
        times = {"now": now_ms, "before": max(0, now_ms - _LATE_STATEMENT_MS)}
        rows = self._read("dropped_topics", times | {"limit": _TOPICS_AT_ONCE})
        if not rows:
            return 0
        topics = {"topics": sorted(uid for uid, _ in rows)}
        removed = len(self._run("purge_dropped", topics | {"limit": limit}))
        removed += len(self._run("forget_schedules", topics))
        if any(emptied_at is None for _, emptied_at in rows):
            self._run("free_names", topics | times)
        if any(emptied_at is not None for _, emptied_at in rows):
            self._run("forget_topics", topics | times)
        return removed

    # Notices

    def watch(self) -> Watch:
        check = self.database.check_process
        check()  # before the lock, which a fork may have inherited taken forever
        with self._listener_lock:
            self.database.check_open()
            if not self._notify:
                return self._board.add(LocalWatch(lambda: True, LOOK_EVERY_S, check=check))
            watch = self._board.add(LocalWatch(check=check))
            if self._listener is None:
                self._listener = start_listening(self.database, self._board)
        return watch

    def probe(self, patience_s: float) -> Reach:
        self.database.check_open()
        if not self._probe.ask(patience_s):
            return Reach.NOTHING
        return Reach.READS if self._probe.unfinished_s > _UNFINISHED_S else Reach.CHANGES

    def clock_ms(self) -> int | None:
        return int(self._read("clock", {})[0][0])

    def await_durable(self, connection: Connection | None) -> None:
        if connection is None:
            self.database.await_durable()
        else:
            self.database.mark(connection)

    def close(self) -> None:
        if self.database.forked:
            return
        with self._listener_lock:
            listener, self._listener = self._listener, None
            self.database.close()
        self._probe.close()
        if listener is not None:
            listener.close()

    def announce(self, connection: Connection | None, notice: Notice) -> None:
        if not self._notify:
            if connection is None:  # else there is nothing to see before its commit
                self._board.notify(notice)
            return
        payload = {"payload": write_notice(notice)}
        if connection is not None:
            self._write("notify", payload, connection)
            return
        try:
            self._run("notify", payload, turn_ms=TURN_BOUND_MS)
        except StoreError as error:  # the change itself is done; sleepers look again by themselves
            _summary.warning("not_announced", "announcing a change failed: %s", error)

    def _run_part(
        self, query: str, values: dict[str, Any], part: Try[Any], *, turn_ms: int | None = None
    ) -> list[Row]:
        """Runs a statement for a part of a batch, within the time that the batch has left."""
        if turn_ms is None:
            lock_ms = None if part.lock_ms == PATIENT_MS else part.lock_ms
            return self.database.run(_QUERIES[query], values, lock_ms=lock_ms)
        half_ms = part.left_ms // 2
        return self.database.run(
            _QUERIES[query],
            values,
            turn_ms=min(turn_ms, half_ms),
            lock_ms=min(part.lock_ms, half_ms),
            statement_ms=min(_CREATE_MS, half_ms),
        )

    def _run(self, query: str, values: dict[str, Any], *, turn_ms: int | None = None) -> list[Row]:
        return self.database.run(_QUERIES[query], values, turn_ms=turn_ms)

    def _read(
        self, query: str, values: dict[str, Any], connection: Connection | None = None
    ) -> list[Row]:
        if connection is not None:
            return fetch(connection, _QUERIES[query], values)
        return self.database.read(_QUERIES[query], values)

    def _write(
        self, query: str, values: dict[str, Any], connection: Connection | None = None
    ) -> list[Row]:
        if connection is not None:
            return fetch(connection, _QUERIES[query], values)
        return self._run(query, values)


def _key_of(item: tuple[int, NewMessage | Change]) -> Key:
    return item[0], item[1].id


def _id_of(item: tuple[int, NewMessage | Change]) -> str:
    return item[1].id


def _new_columns(messages: NewRows, buckets: int) -> dict[str, list[Any]]:
    """New messages as arrays."""
    return {
        "bucket": [bucket for bucket, _ in messages],
        "stripe": [stripe_of(bucket, buckets) for bucket, _ in messages],
        "id": [new.id for _, new in messages],
        "due": [new.due for _, new in messages],
        "expires": [new.expires for _, new in messages],
        "producer_group": [new.producer_group for _, new in messages],
        "key": [new.key for _, new in messages],
        "headers": [pack_headers(new.headers) for _, new in messages],
        "body": [new.body for _, new in messages],
        "digest": [new.digest for _, new in messages],
    }


def _columns(topic: Topic, changes: ChangedRows) -> dict[str, list[Any]]:
    """The changes as arrays, in the order of the key so that two batches cannot wait for each other."""
    placed = sorted(changes, key=_key_of)
    return {
        "topics": [topic.uid] * len(placed),
        "bucket": [bucket for bucket, _ in placed],
        "id": [change.id for _, change in placed],
        "name": [change.name for _, change in placed],
        "version": [change.version for _, change in placed],
        "to": [change.to for _, change in placed],
        "expires": [change.expires for _, change in placed],
        "reason": [change.reason for _, change in placed],
    }


def _key_columns(topic: Topic, keys: Sequence[Key]) -> dict[str, Any]:
    return {
        "topic": topic.uid,
        "topics": [topic.uid] * len(keys),
        "bucket": [bucket for bucket, _ in keys],
        "id": [each for _, each in keys],
    }


def _cells(topic: Topic, ranges: Sequence[BucketRange], limit: int = 1) -> dict[str, Any]:
    """The cells as arrays, and each one's share of the limit."""
    cells = cells_of(ranges, topic.settings.buckets)
    return {
        "stripe": [cell.stripe for cell in cells],
        "start": [cell.start for cell in cells],
        "stop": [cell.stop for cell in cells],
        "limit": limit,
        "reach": limit,
        "share": -(-limit // max(1, len(cells))),
    }


def _shares(topic: Topic, shares: Sequence[Sequence[BucketRange]]) -> dict[str, Any]:
    """The cells of several shares as arrays, each with the number of its share, from 1."""
    cells = [
        (*cell, number)
        for number, ranges in enumerate(shares, 1)
        for cell in cells_of(ranges, topic.settings.buckets)
    ]
    names = ("stripe", "start", "stop", "share")
    return {name: [cell[place] for cell in cells] for place, name in enumerate(names)}


def _clear_ms(taken: Iterable[Taken], more: bool, now_ms: int) -> int:
    """The moment before which a reservation that took all its candidates left nothing.

    A lease that ends later than now can lapse, so it is no later. If there may be more, all before the latest
    is taken: one without a lapsed lease was at its due time.
    """
    if not more:
        return now_ms
    return min(now_ms, max((each.message.due for each in taken if not each.redelivered), default=0))


def _taken(row: Row) -> Taken:
    body, holder, death = row[MESSAGE_WIDTH:]
    lapsed = holder is not None
    if death is not None:
        return Taken(read_message(row), None, lapsed, DeathReason(death), holder)
    return Taken(read_message(row), body, lapsed, None, holder)
