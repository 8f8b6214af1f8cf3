"""The timeline's operations in PostgreSQL."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from chronoline.core.errors import OutcomeUnknown, StoreError, StoreUnavailable
from chronoline.core.expiry import DeathReason
from chronoline.core.headers import pack_headers
from chronoline.core.limits import TURN_BOUND_MS
from chronoline.core.message import Message, NewMessage
from chronoline.core.outcome import Outcome
from chronoline.core.permissions import Operation
from chronoline.core.ranges import BucketRange
from chronoline.core.status import Life
from chronoline.core.topic import Topic
from chronoline.databases.postgres import NO_LISTEN, Connection, PostgresDatabase, Row, fetch
from chronoline.databases.postgres_listener import PostgresListener
from chronoline.databases.queries import load_queries
from chronoline.stores.base import EngineStore
from chronoline.stores.changes import (
    Change,
    LeaseRequest,
    ResumeRequest,
    RowsHeld,
    Span,
    StoredRow,
    Taken,
    change_values,
    explain_create,
    lease_values,
    may_remove,
    resume_values,
    settled,
    span_values,
)
from chronoline.stores.contract import Capabilities, Counts, IfExists, Notice, Watch
from chronoline.stores.intake import Answer, TakesIn
from chronoline.stores.notices import LocalWatch, NoticeBoard
from chronoline.stores.postgres.listener import start_listening, write_notice
from chronoline.stores.postgres.locked_rows import PATIENT_MS, Item, LockedRows, Try
from chronoline.stores.primitives import Key
from chronoline.stores.rows import MESSAGE_WIDTH, read_message
from chronoline.stores.sql import SqlStore, topic_values
from chronoline.stores.stripes import cells_of, stripe_of

logger = logging.getLogger(__name__)
_PACKAGE = "chronoline.stores.postgres"
_QUERIES = load_queries(_PACKAGE)
_RESERVE_LOOKS = 4
_RESERVE_GROWTH = 4
LOOK_EVERY_S = 0.1
"""How often a sleeper is told to look where the server cannot tell what others have changed."""
_CREATE_MS = 900
"""With the wait for its turn before it, a create with all its statements stays within `WRITE_BOUND_MS`."""
_CHANGE_MS = 5_000
"""Rows of a change that other transactions hold after this time are set aside."""
_TRANSACTION_LOCK_MS = 900
_LATE_STATEMENT_MS = 3_600_000
"""No statement is still on its way to a dropped topic after this time."""
_TOPICS_AT_ONCE = 10_000
"""The most dropped topics that a purge empties, and the most that it forgets."""


class PostgresStore(SqlStore):
    """A store in a PostgreSQL database, shared by many processes and machines."""

    capabilities = Capabilities(
        durable=True, shared=True, concurrent_writers=True, caller_transactions=True
    )

    def __init__(
        self,
        url: str,
        *,
        notify: bool = True,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        super().__init__(random_bytes)
        self._notify = notify
        self._database = PostgresDatabase(
            url, package=_PACKAGE, schema="chronoline", lock_timeout_ms=PATIENT_MS
        )
        if notify and not self._database.keeps_sessions:
            self._database.close()
            raise StoreError(NO_LISTEN)
        self._locked_rows = LockedRows()
        self._board = NoticeBoard()
        self._listener: PostgresListener | None = None
        self._listener_lock = threading.Lock()

    def create_in(
        self,
        connection: Connection,
        topic_uid: int,
        messages: Sequence[NewMessage],
        *,
        if_exists: IfExists = "refuse",
        now_ms: int,
    ) -> list[Outcome]:
        """Like `create`, on a connection that the caller holds (psycopg 3).

        The messages exist exactly if the caller's transaction commits. Errors of the driver are passed
        on as they are, since the transaction is the caller's.
        """
        inside = _CallerTransaction(self, connection)
        return inside.create(topic_uid, messages, if_exists=if_exists, now_ms=now_ms)

    # Topics

    def _insert_topic(self, topic: Topic) -> bool:
        return bool(self._run("insert_topic", topic_values(topic)))

    def _drop_topic(self, uid: int, now_ms: int) -> bool:
        return bool(self._run("drop_topic", {"uid": uid, "now": now_ms}))

    # Changes

    def _create(
        self, topic: Topic, messages: Sequence[tuple[int, NewMessage]], replace: bool, now_ms: int
    ) -> dict[str, int]:
        buckets = topic.settings.buckets
        # In the order of the key, so that two batches cannot wait for each other.
        messages = sorted(messages, key=lambda each: (each[0], each[1].id))
        common = {"topic": topic.uid, "now": now_ms, "replace": replace}

        def create(part: Try[tuple[int, NewMessage]]) -> list[Row]:
            values = common | _new_columns(part.items, buckets)
            return self._run_part("create", values, part, turn_ms=TURN_BOUND_MS)

        within_ms = TURN_BOUND_MS + _CREATE_MS
        rows, held = self._apart(messages, _new_id, create, within_ms=within_ms)
        if held:
            raise RowsHeld(dict(rows), held)
        return dict(rows)

    def _change(
        self, operation: Operation, topic: Topic, changes: Sequence[Change], now_ms: int
    ) -> dict[str, int]:
        common = change_values(topic, now_ms)
        removable = [each for each in changes if may_remove(operation, topic, each, now_ms)]
        made: dict[str, int] = {}
        held: frozenset[str] = frozenset()
        for query, some in {
            f"{operation.value}_remove": removable,
            operation.value: changes,
        }.items():
            left = [each for each in some if each.id not in made and each.id not in held]

            def change(part: Try[Change], query: str = query) -> list[Row]:
                return self._run_part(query, common | _columns(topic, part.items), part)

            try:
                rows, more = self._apart(left, _change_id, change, within_ms=_CHANGE_MS)
            except StoreUnavailable as error:
                if not made:
                    raise
                raise OutcomeUnknown(f"a part of the batch is done: {error}") from error
            made.update(rows)
            held |= more
        if held:
            raise RowsHeld(made, held)
        return made

    def _reject(self, topic: Topic, keys: Sequence[Key], now_ms: int) -> None:
        self._run("reject", _key_columns(topic, keys) | {"now": now_ms})

    # Leases

    def _reserve(
        self, topic: Topic, ranges: Sequence[BucketRange], limit: int, request: LeaseRequest
    ) -> tuple[list[Taken], bool]:
        taken: list[Taken] = []
        reach = limit
        more = True
        # Where most candidates are another's at this moment, those behind them are looked at.
        for _ in range(_RESERVE_LOOKS):
            values = lease_values(topic, request) | _cells(topic, ranges, reach)
            try:
                rows = self._run("reserve", values | {"limit": limit - len(taken)})
            except StoreUnavailable:
                if not taken:
                    raise
                break
            taken += [_taken(row[1:]) for row in rows if row[1] is not None]
            more = rows[0][0] >= reach or len(taken) >= limit
            if not more or 2 * len(taken) >= limit:
                break
            reach *= _RESERVE_GROWTH
        return taken, more

    def _lease(self, topic: Topic, changes: Sequence[Change], request: LeaseRequest) -> list[Taken]:
        values = lease_values(topic, request) | _columns(topic, changes)
        return [_taken(row) for row in self._run("lease", values)]

    def _resume(self, topic: Topic, request: ResumeRequest) -> list[Taken]:
        rows = self._run("resume", resume_values(topic, request))
        return [
            Taken(read_message(row), row[MESSAGE_WIDTH], True, None, None, row[MESSAGE_WIDTH + 1])
            for row in rows
        ]

    # Looking

    def _rows(self, topic: Topic, keys: Sequence[Key]) -> dict[str, StoredRow]:
        rows = self._read("rows", _key_columns(topic, keys))
        return {row[0]: StoredRow(Life(row[1]), *row[2:8]) for row in rows}

    def _lookup(self, topic: Topic, keys: Sequence[Key]) -> Iterable[Message]:
        rows = self._read("lookup", _key_columns(topic, keys))
        return [read_message(row) for row in rows]

    def _bodies(
        self, topic: Topic, keys: Sequence[Key]
    ) -> dict[str, tuple[StoredRow, bytes | None]]:
        rows = self._read("bodies", _key_columns(topic, keys))
        return {row[0]: (StoredRow(Life(row[1]), *row[2:8]), row[8]) for row in rows}

    def _select(
        self, topic: Topic, ranges: Sequence[BucketRange], limit: int, max_ts: int
    ) -> list[Message]:
        values = {"topic": topic.uid, "max_ts": max_ts} | _cells(topic, ranges, limit)
        return [read_message(row) for row in self._read("select", values)]

    def _next_ts(self, topic: Topic, ranges: Sequence[BucketRange]) -> int | None:
        rows = self._read("next_ts", {"topic": topic.uid} | _cells(topic, ranges))
        return rows[0][0] if rows else None

    def _forecast(
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

    def _raise_floors(self, uids: Sequence[int], now_ms: int) -> None:
        self._run("raise_floors", {"topics": uids, "settled": settled(now_ms)})

    def _purge(self, limit: int, now_ms: int) -> int:
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
        return removed + self._purge_dropped(limit - removed, now_ms)

    def _purge_dropped(self, limit: int, now_ms: int) -> int:
        """An empty topic is left alone until no statement can be on its way to it, and then forgotten.

        A statement that was late may have left messages that nobody can see; they go with the topic.
        """
        times = {"now": now_ms, "before": max(0, now_ms - _LATE_STATEMENT_MS)}
        rows = self._read("dropped_topics", times | {"limit": _TOPICS_AT_ONCE})
        if not rows:
            return 0
        topics = {"topics": sorted(uid for uid, _ in rows)}
        removed = len(self._run("purge_dropped", topics | {"limit": limit}))
        if any(emptied_at is None for _, emptied_at in rows):
            self._run("free_names", topics | times)
        if any(emptied_at is not None for _, emptied_at in rows):
            self._run("forget_topics", topics | times)
        return removed

    def watch(self) -> Watch:
        check = self._database.check_process
        check()  # before the lock, which a fork may have inherited taken for ever
        with self._listener_lock:
            self._database.check_open()
            if not self._notify:
                return self._board.add(LocalWatch(lambda: True, LOOK_EVERY_S, check=check))
            watch = self._board.add(LocalWatch(check=check))
            if self._listener is None:
                self._listener = start_listening(self._database, self._board)
        return watch

    def clock_ms(self) -> int | None:
        return int(self._read("clock", {})[0][0])

    def close(self) -> None:
        if self._database.forked:
            return
        with self._listener_lock:
            listener, self._listener = self._listener, None
            self._database.close()
        if listener is not None:
            listener.close()

    def _announce(self, notice: Notice) -> None:
        if not self._notify:
            self._board.tell(notice)
            return
        try:
            self._run("notify", {"payload": write_notice(notice)}, turn_ms=TURN_BOUND_MS)
        except StoreError as error:  # the change itself is done; sleepers look again by themselves
            logger.warning("announcing a change failed: %s", error)

    def _apart(
        self,
        items: Sequence[Item],
        id_of: Callable[[Item], str],
        statement: Callable[[Try[Item]], list[Row]],
        *,
        within_ms: int,
    ) -> tuple[list[Row], frozenset[str]]:
        """The rows of a statement over the items that no other transaction holds, and the other ids."""
        return self._locked_rows.run(items, id_of, statement, within_ms=within_ms)

    def _run_part(
        self, query: str, values: dict[str, Any], part: Try[Any], *, turn_ms: int | None = None
    ) -> list[Row]:
        """Runs a statement for a part of a batch, within what is left of the batch's time."""
        if turn_ms is None:
            lock_ms = None if part.lock_ms == PATIENT_MS else part.lock_ms
            return self._database.run(_QUERIES[query], values, lock_ms=lock_ms)
        half_ms = part.left_ms // 2
        return self._database.run(
            _QUERIES[query],
            values,
            turn_ms=min(turn_ms, half_ms),
            lock_ms=min(part.lock_ms, half_ms),
            statement_ms=min(_CREATE_MS, half_ms),
        )

    def _run(self, query: str, values: dict[str, Any], *, turn_ms: int | None = None) -> list[Row]:
        return self._database.run(_QUERIES[query], values, turn_ms=turn_ms)

    def _read(self, query: str, values: dict[str, Any]) -> list[Row]:
        return self._database.read(_QUERIES[query], values)

    def _write(self, query: str, values: dict[str, Any]) -> list[Row]:
        return self._run(query, values)

    def _transact(self, work: Callable[[TakesIn], Answer]) -> Answer:
        notices: list[Notice] = []

        def run(connection: Connection) -> Answer:
            notices.clear()  # the server may have given up a try before
            return work(_OwnTransaction(self, connection, notices))

        try:
            answer = self._database.transact(
                run, turn_ms=TURN_BOUND_MS, lock_ms=_TRANSACTION_LOCK_MS
            )
        except OutcomeUnknown:
            self._announce(Notice())  # it may be done: whoever sleeps should look
            raise
        for notice in notices:
            self._announce(notice)
        return answer


class _CallerTransaction(PostgresStore):
    """The same operations on a connection, and in a transaction, that belong to the caller."""

    def __init__(self, store: PostgresStore, connection: Connection) -> None:
        EngineStore.__init__(self, store._random_bytes)
        self._known_topics = store._known_topics
        self._notify = store._notify
        self._connection = connection

    def _apart(
        self,
        items: Sequence[Item],
        id_of: Callable[[Item], str],
        statement: Callable[[Try[Item]], list[Row]],
        *,
        within_ms: int,
    ) -> tuple[list[Row], frozenset[str]]:
        return (statement(Try(items, within_ms, within_ms)) if items else []), frozenset()

    def _create(
        self, topic: Topic, messages: Sequence[tuple[int, NewMessage]], replace: bool, now_ms: int
    ) -> dict[str, int]:
        """Leaves ids alone that are taken: to conflict with a row locks it until the caller commits."""
        rows = self._rows(topic, [(bucket, new.id) for bucket, new in messages])
        free = [
            (bucket, new)
            for bucket, new in messages
            if not explain_create(
                rows.get(new.id), Change(bucket, new.id, new.producer_group), replace, now_ms
            )
        ]
        return super()._create(topic, free, replace, now_ms) if free else {}

    def _run_part(
        self, query: str, values: dict[str, Any], part: Try[Any], *, turn_ms: int | None = None
    ) -> list[Row]:
        return self._run(query, values)

    def _announce(self, notice: Notice) -> None:
        if self._notify:  # told when the caller commits; without it sleepers look by themselves
            super()._announce(notice)

    def _run(self, query: str, values: dict[str, Any], *, turn_ms: int | None = None) -> list[Row]:
        return fetch(self._connection, _QUERIES[query], values)

    def _read(self, query: str, values: dict[str, Any]) -> list[Row]:
        return fetch(self._connection, _QUERIES[query], values)


class _OwnTransaction(_CallerTransaction):
    """The same operations in a transaction of the store's, which tells of them when it is committed."""

    def __init__(self, store: PostgresStore, connection: Connection, notices: list[Notice]) -> None:
        super().__init__(store, connection)
        self._notices = notices

    def _create(
        self, topic: Topic, messages: Sequence[tuple[int, NewMessage]], replace: bool, now_ms: int
    ) -> dict[str, int]:
        return PostgresStore._create(self, topic, messages, replace, now_ms)  # it ends soon

    def _announce(self, notice: Notice) -> None:
        self._notices.append(notice)


def _new_id(item: tuple[int, NewMessage]) -> str:
    return item[1].id


def _change_id(change: Change) -> str:
    return change.id


def _new_columns(messages: Sequence[tuple[int, NewMessage]], buckets: int) -> dict[str, list[Any]]:
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
    }


def _columns(topic: Topic, changes: Sequence[Change]) -> dict[str, list[Any]]:
    """The changes as arrays, in the order of the key so that two batches cannot wait for each other."""
    columns = zip(*sorted(changes), strict=True)
    named = {name: list(column) for name, column in zip(Change._fields, columns, strict=True)}
    return {"topics": [topic.uid] * len(changes)} | named


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


def _taken(row: Row) -> Taken:
    body, holder, death = row[MESSAGE_WIDTH:]
    lapsed = holder is not None
    if death is not None:
        return Taken(read_message(row), None, lapsed, DeathReason(death), holder)
    return Taken(read_message(row), body, lapsed, None, holder)
