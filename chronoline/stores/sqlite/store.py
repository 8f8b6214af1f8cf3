"""The timeline's operations in SQLite."""

from __future__ import annotations

import heapq
import json
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, NoReturn

from chronoline.core.expiry import DeathReason
from chronoline.core.headers import pack_headers
from chronoline.core.limits import TURN_BOUND_MS
from chronoline.core.message import Message, NewMessage
from chronoline.core.permissions import Operation
from chronoline.core.ranges import BucketRange
from chronoline.core.status import Life
from chronoline.core.topic import Topic
from chronoline.databases.queries import load_queries
from chronoline.databases.sqlite import (
    DEFAULT_BUSY_MS,
    SqliteDatabase,
    prepare_folder,
    stop_process,
)
from chronoline.stores.changes import (
    LEASE_OPERATIONS,
    Change,
    LeaseRequest,
    ResumeRequest,
    Span,
    StoredRow,
    Taken,
    change_values,
    lease_values,
    may_remove,
    resume_values,
    settled,
    span_values,
)
from chronoline.stores.contract import Capabilities, Counts, Notice, Watch
from chronoline.stores.intake import Answer, TakesIn
from chronoline.stores.notices import LocalWatch, NoticeBoard
from chronoline.stores.primitives import Key
from chronoline.stores.rows import MESSAGE_WIDTH, read_message
from chronoline.stores.sql import SqlStore, topic_values
from chronoline.stores.stripes import cells_of, stripe_of

INLINE_BODY_BYTES = 2_048
"""Larger bodies lie apart; docs/design/stores.md has the measurement."""
LOOK_EVERY_S = 0.01
"""How often a sleeping watch looks whether another process has committed."""

_PACKAGE = "chronoline.stores.sqlite"
_QUERIES = load_queries(_PACKAGE)
_APART = 8
"""The place of `apart` among the values of the query `create`."""


class SqliteStore(SqlStore):
    """A store in one file, shared by the processes of one machine."""

    capabilities = Capabilities(
        durable=True, shared=True, concurrent_writers=False, caller_transactions=False
    )

    def __init__(
        self,
        path: str,
        *,
        busy_ms: int = DEFAULT_BUSY_MS,
        random_bytes: Callable[[int], bytes] = os.urandom,
        on_failed_flush: Callable[[BaseException], NoReturn] = stop_process,
    ) -> None:
        super().__init__(random_bytes)
        prepare_folder(path)
        self._database = SqliteDatabase(
            path, package=_PACKAGE, busy_ms=busy_ms, on_failed_flush=on_failed_flush
        )
        self._board = NoticeBoard()
        # Of the transaction that is under way; its thread's own.
        self._untold: list[Notice] = []

    # Topics

    def _insert_topic(self, topic: Topic) -> bool:
        with self._database.writing() as connection:
            return connection.execute(_QUERIES["insert_topic"], topic_values(topic)).rowcount > 0

    def _drop_topic(self, uid: int, now_ms: int) -> bool:
        with self._database.writing() as connection:
            values = {"uid": uid, "now": now_ms}
            return connection.execute(_QUERIES["drop_topic"], values).rowcount > 0

    # Changes

    def _create(
        self, topic: Topic, messages: Sequence[tuple[int, NewMessage]], replace: bool, now_ms: int
    ) -> dict[str, int]:
        rows = [_new_row(topic, bucket, new, now_ms) for bucket, new in messages]
        self._database.check_room()
        with self._database.writing(turn_ms=TURN_BOUND_MS) as connection:
            found = connection.execute(_QUERIES["floor"], {"uid": topic.uid}).fetchone()
            if found is None:
                return {}
            version = max(now_ms, found[0] + 1)
            rows = [(*row, version) for row in rows]
            small = not any(row[_APART] for row in rows)
            if small and not replace and _at_once(connection, _QUERIES["create_new"], rows):
                return dict.fromkeys((new.id for _, new in messages), version)
            query = _QUERIES["replace" if replace else "create"]
            made: dict[str, int] = {}
            for row, (_, new) in zip(rows, messages, strict=True):
                answer = connection.execute(query, row).fetchone()
                if answer is None:
                    continue
                if row[_APART]:
                    connection.execute(_QUERIES["put_body"], {"no": answer[0], "body": new.body})
                made[new.id] = answer[1]
            return made

    def _change(
        self, operation: Operation, topic: Topic, changes: Sequence[Change], now_ms: int
    ) -> dict[str, int]:
        common = change_values(topic, now_ms)
        removable = [each for each in changes if may_remove(operation, topic, each, now_ms)]
        tried = {f"{operation.value}_remove": removable, operation.value: changes}
        made: dict[str, int] = {}
        with self._database.writing() as connection:
            if not _is_live(connection, topic):
                return made
            for query, some in tried.items():
                rows = [common | each._asdict() for each in some if each.id not in made]
                if rows:
                    made |= _make(connection, query, rows, operation in LEASE_OPERATIONS)
        return made

    def _reject(self, topic: Topic, keys: Sequence[Key], now_ms: int) -> None:
        self._write("reject", {"topic": topic.uid, "keys": json.dumps(keys), "now": now_ms})

    # Leases

    def _reserve(
        self, topic: Topic, ranges: Sequence[BucketRange], limit: int, request: LeaseRequest
    ) -> tuple[list[Taken], bool]:
        cells = cells_of(ranges, topic.settings.buckets)
        values = lease_values(topic, request) | {"limit": limit}
        with self._database.writing() as connection:
            if not _is_live(connection, topic):
                return [], False
            heads = [connection.execute(_QUERIES["due"], values | c._asdict()) for c in cells]
            chosen = _oldest(heads, lambda row: row[0], limit)
            taken = _take(connection, {no: holder for _, no, holder in chosen}, values)
            return taken, len(taken) >= limit

    def _lease(self, topic: Topic, changes: Sequence[Change], request: LeaseRequest) -> list[Taken]:
        values = lease_values(topic, request)
        with self._database.writing() as connection:
            if not _is_live(connection, topic):
                return []
            found = [
                connection.execute(_QUERIES["due_at_version"], values | change._asdict()).fetchone()
                for change in changes
            ]
            return _take(connection, dict(row for row in found if row is not None), values)

    def _resume(self, topic: Topic, request: ResumeRequest) -> list[Taken]:
        values = resume_values(topic, request)
        taken = []
        with self._database.writing() as connection:
            if not _is_live(connection, topic):
                return []
            for no, before in connection.execute(_QUERIES["held_live"], values).fetchall():
                row = connection.execute(_QUERIES["resume"], values | {"no": no}).fetchone()
                body = _body(connection, row)
                taken.append(Taken(read_message(row), body, True, None, None, before))
            return taken

    # Looking

    def _rows(self, topic: Topic, keys: Sequence[Key]) -> dict[str, StoredRow]:
        return {
            message_id: row
            for message_id, (row, _) in self._bodies(topic, keys, with_bodies=False).items()
        }

    def _lookup(self, topic: Topic, keys: Sequence[Key]) -> Iterable[Message]:
        with self._database.reading() as connection:
            found = [
                connection.execute(
                    _QUERIES["lookup"], {"topic": topic.uid, "bucket": bucket, "id": message_id}
                ).fetchone()
                for bucket, message_id in keys
            ]
        return [read_message(row) for row in found if row is not None]

    def _bodies(
        self, topic: Topic, keys: Sequence[Key], *, with_bodies: bool = True
    ) -> dict[str, tuple[StoredRow, bytes | None]]:
        found = {}
        with self._database.reading() as connection:
            for bucket, message_id in keys:
                values = {"topic": topic.uid, "bucket": bucket, "id": message_id}
                row = connection.execute(_QUERIES["row"], values).fetchone()
                if row is not None:
                    body = _body(connection, row[-3:]) if with_bodies else None
                    found[message_id] = (StoredRow(Life(row[0]), *row[1:7]), body)
        return found

    def _select(
        self, topic: Topic, ranges: Sequence[BucketRange], limit: int, max_ts: int
    ) -> list[Message]:
        values = {"topic": topic.uid, "limit": limit, "max_ts": max_ts}
        with self._database.reading() as connection:
            heads = [
                connection.execute(_QUERIES["select"], values | cell._asdict())
                for cell in cells_of(ranges, topic.settings.buckets)
            ]
            return [read_message(row) for row in _oldest(heads, lambda row: row[1], limit)]

    def _next_ts(self, topic: Topic, ranges: Sequence[BucketRange]) -> int | None:
        with self._database.reading() as connection:
            if not _is_live(connection, topic):
                return None
            rows = [
                connection.execute(_QUERIES["next_ts"], {"topic": topic.uid, **cell._asdict()})
                for cell in cells_of(ranges, topic.settings.buckets)
            ]
            return min((ts for row in rows for (ts,) in row), default=None)

    def _forecast(
        self,
        topic: Topic,
        ranges: Sequence[BucketRange],
        span: Span,
    ) -> dict[int, Counts]:
        values = span_values(topic, span)
        counted: dict[int, Counts] = {}
        with self._database.reading() as connection:
            for cell in cells_of(ranges, topic.settings.buckets):
                rows = connection.execute(_QUERIES["forecast"], values | cell._asdict())
                for step, available, processing, waiting in rows:
                    before = counted.get(step, Counts())
                    counted[step] = Counts(
                        available=before.available + available,
                        processing=before.processing + processing,
                        waiting=before.waiting + waiting,
                    )
        return counted

    # Upkeep

    def _raise_floors(self, uids: Sequence[int], now_ms: int) -> None:
        with self._database.writing() as connection:
            _raise(connection, uids, now_ms)

    def _purge(self, limit: int, now_ms: int) -> int:
        with self._database.writing() as connection:

            def run(query: str, **values: int) -> sqlite3.Cursor:
                return connection.execute(_QUERIES[query], values)

            unneeded = settled(now_ms)
            marks = run("purge_marks", now=now_ms, settled=unneeded, limit=limit).fetchall()
            _raise(connection, {topic for (topic,) in marks}, now_ms)
            removed = len(marks)
            for (topic,) in run("topics_without_dead_letters").fetchall():
                removed += run(
                    "purge_dead",
                    topic=topic,
                    settled=unneeded,
                    limit=limit - removed,
                ).rowcount
                _raise(connection, [topic], now_ms)
            for (topic,) in run("dropped_topics").fetchall():
                removed += run("purge_dropped", topic=topic, limit=limit - removed).rowcount
                run("forget_topic", topic=topic)
            return removed

    def watch(self) -> Watch:
        self._database.check_open()
        seen = self._database.foreign_changes()

        def look() -> bool:
            nonlocal seen
            before, seen = seen, self._database.foreign_changes()
            return seen != before

        check = self._database.check_process
        return self._board.add(LocalWatch(look, LOOK_EVERY_S, check=check))

    def clock_ms(self) -> int | None:
        return None

    def close(self) -> None:
        self._database.close()

    def _announce(self, notice: Notice) -> None:
        if self._database.is_joined:
            self._untold.append(notice)
        else:
            self._board.tell(notice)

    def _read(self, query: str, values: dict[str, Any]) -> list[Any]:
        with self._database.reading() as connection:
            return connection.execute(_QUERIES[query], values).fetchall()

    def _write(self, query: str, values: dict[str, Any]) -> list[Any]:
        with self._database.writing() as connection:
            return connection.execute(_QUERIES[query], values).fetchall()

    def _transact(self, work: Callable[[TakesIn], Answer]) -> Answer:
        self._database.check_room()
        with self._joining(turn_ms=TURN_BOUND_MS):
            return work(self)

    def together(self, works: Sequence[Callable[[], Answer]]) -> list[Answer | Exception]:
        with self._joining() as connection:
            return [_alone(connection, work) for work in works]

    @contextmanager
    def _joining(self, *, turn_ms: int | None = None) -> Iterator[sqlite3.Connection]:
        """One transaction for all; notices are told when it is committed, so that whoever hears one looks."""
        untold: list[Notice] = []
        try:
            with self._database.joining(turn_ms=turn_ms) as connection:
                self._untold = untold
                yield connection
        finally:  # also after a failure, of which nobody knows what was done
            for notice in untold:
                self._board.tell(notice)


def _alone(connection: sqlite3.Connection, work: Callable[[], Answer]) -> Answer | Exception:
    """A part of a transaction, which is undone by itself if it raises."""
    connection.execute("SAVEPOINT alone")
    answer: Answer | Exception
    try:
        answer = work()
    except Exception as error:
        if not connection.in_transaction:  # the engine gave up all of it
            raise
        connection.execute("ROLLBACK TO alone")
        answer = error
    connection.execute("RELEASE alone")
    return answer


def _oldest(heads: Sequence[sqlite3.Cursor], ts_of: Callable[[Any], int], limit: int) -> list[Any]:
    """The first rows of some sorted results. What is not read is given up, and its snapshot with it."""
    try:
        return list(islice(heapq.merge(*heads, key=ts_of), limit))
    finally:
        for head in heads:
            head.close()


def _is_live(connection: sqlite3.Connection, topic: Topic) -> bool:
    return connection.execute(_QUERIES["topic"], {"uid": topic.uid}).fetchone() is not None


def _raise(connection: sqlite3.Connection, uids: Iterable[int], now_ms: int) -> None:
    rows = [{"topic": uid, "settled": settled(now_ms)} for uid in uids]
    connection.executemany(_QUERIES["raise_floor"], rows)


def _new_row(topic: Topic, bucket: int, new: NewMessage, now_ms: int) -> tuple[Any, ...]:
    """The values of the query `create`, but for the version."""
    apart = new.body is not None and len(new.body) > INLINE_BODY_BYTES
    return (
        topic.uid,
        bucket,
        stripe_of(bucket, topic.settings.buckets),
        new.id,
        new.due,
        now_ms,
        new.expires,
        new.producer_group,
        apart,
        new.key,
        pack_headers(new.headers),
        None if apart else new.body,
    )


def _make(
    connection: sqlite3.Connection, name: str, rows: Sequence[dict[str, Any]], on_leases: bool
) -> dict[str, int]:
    """Makes the changes whose guards hold and answers their new versions.

    Those on leases may be made at once, since their versions are known beforehand.
    """
    query = _QUERIES[name]
    if on_leases and _at_once(connection, _silent(query), rows):
        return {row["id"]: row["version"] + 1 for row in rows}
    answers = {row["id"]: connection.execute(query, row).fetchone() for row in rows}
    return {each: answer[0] for each, answer in answers.items() if answer is not None}


def _at_once(connection: sqlite3.Connection, query: str, rows: Sequence[Any]) -> bool:
    """Changes all rows by one call of the driver, or none if one of them is refused.

    That is the usual case, and spares the look at each row's answer.
    """
    connection.execute("SAVEPOINT at_once")
    whole = connection.executemany(query, rows).rowcount == len(rows)
    if not whole:
        connection.execute("ROLLBACK TO at_once")
    connection.execute("RELEASE at_once")
    return whole


def _silent(query: str) -> str:
    """A change without its answer, as the driver wants it for many rows."""
    return query[: query.rindex("RETURNING")]


def _take(
    connection: sqlite3.Connection, holders: dict[int, str | None], values: dict[str, Any]
) -> list[Taken]:
    """Leases rows, by their number and last holder; what may not be leased goes to the dead letters."""
    values = values | {"nos": json.dumps(list(holders))}
    taken = []
    for row in connection.execute(_QUERIES["take"], values).fetchall():
        holder = holders.pop(row[-1])
        body = _body(connection, row)
        taken.append(Taken(read_message(row), body, holder is not None, None, holder))
    for no, holder in holders.items():
        row = connection.execute(_QUERIES["dead_letter"], values | {"no": no}).fetchone()
        death = DeathReason(row[MESSAGE_WIDTH])
        taken.append(Taken(read_message(row), None, holder is not None, death, holder))
    return taken


def _body(connection: sqlite3.Connection, row: Sequence[Any]) -> bytes | None:
    """The body of a row that ends with body, apart, no."""
    body, apart, no = row[-3:]
    if apart:
        body = connection.execute(_QUERIES["body"], {"no": no}).fetchone()[0]
    return body  # type: ignore[no-any-return]  # a column of the driver's
