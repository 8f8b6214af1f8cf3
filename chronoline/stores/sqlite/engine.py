"""The timeline's primitives in SQLite."""

from __future__ import annotations

import heapq
import json
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from typing import Any, NoReturn

from chronoline.core.change import LEASE_OPERATIONS
from chronoline.core.expiry import DeathReason
from chronoline.core.headers import pack_headers
from chronoline.core.limits import TURN_BOUND_MS
from chronoline.core.message import Message, NewMessage
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
from chronoline.stores.contract import (
    Capabilities,
    Counts,
    Notice,
    Reach,
    Recipient,
    Result,
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
    Span,
    Taken,
    request_of,
)
from chronoline.stores.guards import may_remove, passed_by_all, settled
from chronoline.stores.notices import LocalWatch, NoticeBoard
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

INLINE_BODY_BYTES = 2_048
"""Larger bodies lie apart; docs/design/stores.md has the measurement."""
LOOK_EVERY_S = 0.01
"""A sleeping watch looks this often for commits of other processes."""

_PACKAGE = "chronoline.stores.sqlite"
_QUERIES = load_queries(_PACKAGE)
_APART = 8
"""The place of `apart` among the values of the query `create`."""


class SqliteEngine(SqlEngine[sqlite3.Connection]):
    """One file, shared by the processes of one machine."""

    capabilities = Capabilities(durable=True, shared=True, concurrent_writers=False)

    def __init__(
        self,
        path: str,
        *,
        busy_ms: int = DEFAULT_BUSY_MS,
        on_failed_flush: Callable[[BaseException], NoReturn] = stop_process,
    ) -> None:
        prepare_folder(path)
        self.database = SqliteDatabase(
            path, package=_PACKAGE, busy_ms=busy_ms, on_failed_flush=on_failed_flush
        )
        self._board = NoticeBoard()
        # The notices of the thread that is inside `together`, until it commits.
        self._untold: list[Notice] = []

    # Transactions

    def transact(self, work: Callable[[sqlite3.Connection], Answer]) -> Answer:
        self.database.check_room()
        with self.database.writing(turn_ms=TURN_BOUND_MS) as connection:
            return work(connection)

    def together(self, works: Sequence[Callable[[], Result]]) -> list[Result | Exception]:
        untold: list[Notice] = []
        try:
            with self.database.joining() as connection:
                self._untold = untold
                return [_alone(connection, work) for work in works]
        finally:  # after a failure, too: nobody knows what was done
            for notice in untold:
                self._board.notify(notice)

    def _writing(
        self, connection: sqlite3.Connection | None, *, turn_ms: int | None = None
    ) -> AbstractContextManager[sqlite3.Connection]:
        """The connection that is given, or that of a transaction which ends with the block."""
        if connection is not None:
            return nullcontext(connection)
        return self.database.writing(turn_ms=turn_ms)

    def _reading(
        self, connection: sqlite3.Connection | None
    ) -> AbstractContextManager[sqlite3.Connection]:
        return self.database.reading() if connection is None else nullcontext(connection)

    # Topics

    def insert_topic(self, topic: Topic) -> bool:
        with self.database.writing() as connection:
            return connection.execute(_QUERIES["insert_topic"], topic_values(topic)).rowcount > 0

    def delete_topic(self, uid: int, now_ms: int) -> bool:
        with self.database.writing() as connection:
            values = {"uid": uid, "now": now_ms}
            return connection.execute(_QUERIES["drop_topic"], values).rowcount > 0

    # Changes

    def create(
        self,
        connection: sqlite3.Connection | None,
        topic: Topic,
        messages: NewRows,
        replace: bool,
        now_ms: int,
    ) -> dict[str, int]:
        rows = [_new_row(topic, bucket, new, now_ms) for bucket, new in messages]
        self.database.check_room()
        with self._writing(connection, turn_ms=TURN_BOUND_MS) as inside:
            found = inside.execute(_QUERIES["floor"], {"uid": topic.uid}).fetchone()
            if found is None:
                return {}
            version = max(now_ms, found[0] + 1)
            rows = [(*row, version) for row in rows]
            small = not any(row[_APART] for row in rows)
            if small and not replace and _at_once(inside, _QUERIES["create_new"], rows):
                return dict.fromkeys((new.id for _, new in messages), version)
            query = _QUERIES["replace" if replace else "create"]
            made: dict[str, int] = {}
            for row, (_, new) in zip(rows, messages, strict=True):
                answer = inside.execute(query, row).fetchone()
                if answer is None:
                    continue
                if row[_APART]:
                    inside.execute(_QUERIES["put_body"], {"no": answer[0], "body": new.body})
                made[new.id] = answer[1]
            return made

    def change(
        self,
        connection: sqlite3.Connection | None,
        topic: Topic,
        changes: ChangedRows,
        now_ms: int,
    ) -> dict[str, int]:
        operation = changes[0][1].operation
        common = change_values(topic, now_ms)
        removable = [each for each in changes if may_remove(topic, each[1], now_ms)]
        tried = {f"{operation.value}_remove": removable, operation.value: changes}
        made: dict[str, int] = {}
        with self._writing(connection) as inside:
            if not _is_live(inside, topic):
                return made
            for query, some in tried.items():
                rows = [
                    {
                        **common,
                        "bucket": bucket,
                        "id": change.id,
                        "name": change.name,
                        "version": change.version,
                        "to": change.to,
                        "expires": change.expires,
                        "reason": change.reason,
                    }
                    for bucket, change in some
                    if change.id not in made
                ]
                if rows:
                    made |= _make(inside, query, rows, operation in LEASE_OPERATIONS)
        return made

    def reject(
        self, connection: sqlite3.Connection | None, topic: Topic, keys: Sequence[Key], now_ms: int
    ) -> None:
        values = {"topic": topic.uid, "keys": json.dumps(keys), "now": now_ms}
        self._write("reject", values, connection)

    def restore(
        self,
        connection: sqlite3.Connection | None,
        topic: Topic,
        rows: Sequence[RestoredRow],
    ) -> None:
        values = [
            {"topic": topic.uid, "bucket": each.key[0], "id": each.key[1], **each._asdict()}
            for each in rows
        ]
        for each in values:
            del each["key"]
        with self._writing(connection) as inside:
            inside.executemany(_QUERIES["restore"], values)

    def keep_letters(
        self, connection: sqlite3.Connection | None, topic: Topic, letters: Sequence[KeptLetter]
    ) -> set[str]:
        done: set[str] = set()
        with self._writing(connection) as inside:
            for (bucket, message_id), (kept_bucket, kept_id), header in letters:
                values = {"topic": topic.uid, "bucket": bucket, "id": message_id}
                kept = {
                    "kept_bucket": kept_bucket,
                    "kept_stripe": stripe_of(kept_bucket, topic.settings.buckets),
                    "kept_id": kept_id,
                    "header": pack_headers((header,)),
                }
                row = inside.execute(_QUERIES["keep_letter"], values | kept).fetchone()
                if row is None:
                    continue
                no, apart = row
                if apart:
                    inside.execute(_QUERIES["keep_body"], values | {"no": no})
                done.add(message_id)
        return done

    def mark_early(
        self,
        connection: sqlite3.Connection | None,
        topic: Topic,
        cancels: Sequence[EarlyCancel],
        producer_group: str,
        now_ms: int,
    ) -> set[str]:
        done: set[str] = set()
        with self._writing(connection) as inside:
            found = inside.execute(_QUERIES["floor"], {"uid": topic.uid}).fetchone()
            if found is None:
                return done
            common = {
                "topic": topic.uid,
                "producer_group": producer_group,
                "version": max(now_ms, found[0] + 1),
                "now": now_ms,
            }
            for (bucket, message_id), partition, until_ms in cancels:
                values = {
                    **common,
                    "bucket": bucket,
                    "stripe": stripe_of(bucket, topic.settings.buckets),
                    "id": message_id,
                    "partition": partition,
                    "until": until_ms,
                }
                done.update(each for (each,) in inside.execute(_QUERIES["mark_early"], values))
        return done

    def free(
        self, connection: sqlite3.Connection | None, topic: Topic, keys: Sequence[Key], now_ms: int
    ) -> None:
        common = {"topic": topic.uid, "until": passed_by_all(now_ms)}
        rows = [{**common, "bucket": bucket, "id": message_id} for bucket, message_id in keys]
        with self._writing(connection) as inside:
            inside.executemany(_QUERIES["free"], rows)

    # Leases

    def reserve(
        self, topic: Topic, ranges: Sequence[BucketRange], limit: int, request: LeaseRequest
    ) -> Reserved:
        with self.database.writing() as connection:
            if not _is_served(connection, topic):
                return Reserved([], more=False)
            return _reserve(connection, topic, ranges, limit, request)

    def reserve_for(
        self, topic: Topic, recipients: Sequence[Recipient], request: LeaseRequest
    ) -> list[Reserved]:
        with self.database.writing() as connection:
            if not _is_served(connection, topic):
                return [Reserved([], more=False) for _ in recipients]
            return [
                _reserve(connection, topic, each.ranges, each.limit, request_of(each, request))
                for each in recipients
            ]

    def lease(self, topic: Topic, wanted: ChangedRows, request: LeaseRequest) -> list[Taken]:
        values = lease_values(topic, request)
        with self.database.writing() as connection:
            if not _is_served(connection, topic):
                return []
            found = [
                connection.execute(
                    _QUERIES["due_at_version"],
                    {**values, "bucket": bucket, "id": change.id, "version": change.version},
                ).fetchone()
                for bucket, change in wanted
            ]
            return _take(connection, dict(row for row in found if row is not None), values)

    def resume(self, topic: Topic, request: ResumeRequest) -> list[Taken]:
        values = resume_values(topic, request)
        taken = []
        with self.database.writing() as connection:
            if not _is_live(connection, topic):
                return []
            for no, before in connection.execute(_QUERIES["held_live"], values).fetchall():
                row = connection.execute(_QUERIES["resume"], values | {"no": no}).fetchone()
                body = _body(connection, row)
                taken.append(Taken(read_message(row), body, True, None, None, before))
            return taken

    # Reads

    def rows(
        self, connection: sqlite3.Connection | None, topic: Topic, keys: Sequence[Key]
    ) -> dict[str, StoredRow]:
        found = {}
        with self._reading(connection) as inside:
            for bucket, message_id in keys:
                values = {"topic": topic.uid, "bucket": bucket, "id": message_id}
                row = inside.execute(_QUERIES["row"], values).fetchone()
                if row is not None:
                    found[message_id] = StoredRow(Life(row[0]), *row[1:10])
        return found

    def lookup(self, topic: Topic, keys: Sequence[Key]) -> Iterable[Message]:
        with self.database.reading() as connection:
            found = [
                connection.execute(
                    _QUERIES["lookup"], {"topic": topic.uid, "bucket": bucket, "id": message_id}
                ).fetchone()
                for bucket, message_id in keys
            ]
        return [read_message(row) for row in found if row is not None]

    def bodies(
        self, topic: Topic, keys: Sequence[Key]
    ) -> dict[str, tuple[StoredRow, bytes | None]]:
        found = {}
        with self.database.reading() as connection:
            for bucket, message_id in keys:
                values = {"topic": topic.uid, "bucket": bucket, "id": message_id}
                row = connection.execute(_QUERIES["row"], values).fetchone()
                if row is not None:
                    stored = StoredRow(Life(row[0]), *row[1:10])
                    found[message_id] = (stored, _body(connection, row[-3:]))
        return found

    def select(
        self, topic: Topic, ranges: Sequence[BucketRange], limit: int, max_ts: int
    ) -> list[Message]:
        values = {"topic": topic.uid, "limit": limit, "max_ts": max_ts}
        with self.database.reading() as connection:
            heads = [
                connection.execute(_QUERIES["select"], values | cell._asdict())
                for cell in cells_of(ranges, topic.settings.buckets)
            ]
            return [read_message(row) for row in _oldest(heads, lambda row: row[1], limit)]

    def select_keys(
        self, topic: Topic, buckets: BucketRange, ids: Ids, limit: int
    ) -> list[Message]:
        values: dict[str, Any] = {"topic": topic.uid, **ids._asdict()}
        found: list[Message] = []
        with self.database.reading() as connection:
            for bucket in range(*buckets):
                values |= {"bucket": bucket, "limit": limit - len(found)}
                rows = connection.execute(_QUERIES["select_keys"], values)
                found += [read_message(row) for row in rows]
                if len(found) == limit:
                    break
                values["after"] = ""
        return found

    def next_times(self, topic: Topic, shares: Sequence[Sequence[BucketRange]]) -> list[int | None]:
        found: list[int | None] = []
        with self.database.reading() as connection:
            if not _is_served(connection, topic):
                return [None for _ in shares]
            for ranges in shares:
                rows = [
                    connection.execute(_QUERIES["next_ts"], {"topic": topic.uid, **cell._asdict()})
                    for cell in cells_of(ranges, topic.settings.buckets)
                ]
                found.append(min((ts for row in rows for (ts,) in row), default=None))
        return found

    def forecast(
        self,
        topic: Topic,
        ranges: Sequence[BucketRange],
        span: Span,
    ) -> dict[int, Counts]:
        values = span_values(topic, span)
        counted: dict[int, Counts] = {}
        with self.database.reading() as connection:
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

    def raise_floors(self, uids: Sequence[int], now_ms: int) -> None:
        with self.database.writing() as connection:
            _raise(connection, uids, now_ms)

    def purge(self, limit: int, now_ms: int) -> int:
        with self.database.writing() as connection:

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
                removed += len(run("forget_schedules", topic=topic).fetchall())
                run("forget_topic", topic=topic)
            return removed + run("forget_floors", before=now_ms - FLOOR_KEPT_MS).rowcount

    def watch(self) -> Watch:
        self.database.check_open()
        seen = self.database.foreign_changes()

        def look() -> bool:
            nonlocal seen
            before, seen = seen, self.database.foreign_changes()
            return seen != before

        check = self.database.check_process
        return self._board.add(LocalWatch(look, LOOK_EVERY_S, check=check))

    def probe(self, patience_s: float) -> Reach:
        self.identity()
        return Reach.CHANGES

    def clock_ms(self) -> int | None:
        return None

    def close(self) -> None:
        self.database.close()

    def announce(self, connection: sqlite3.Connection | None, notice: Notice) -> None:
        if self.database.is_joined:
            self._untold.append(notice)
        else:
            self._board.notify(notice)

    def _read(
        self, query: str, values: dict[str, Any], connection: sqlite3.Connection | None = None
    ) -> list[Any]:
        with self._reading(connection) as inside:
            return inside.execute(_QUERIES[query], values).fetchall()

    def _write(
        self, query: str, values: dict[str, Any], connection: sqlite3.Connection | None = None
    ) -> list[Any]:
        with self._writing(connection) as inside:
            return inside.execute(_QUERIES[query], values).fetchall()


def _alone(connection: sqlite3.Connection, work: Callable[[], Result]) -> Result | Exception:
    """Runs a part of a transaction, which is rolled back by itself if it raises."""
    connection.execute("SAVEPOINT alone")
    answer: Result | Exception
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
    """The first rows of several sorted results. Closes them, and with them their snapshots."""
    try:
        return list(islice(heapq.merge(*heads, key=ts_of), limit))
    finally:
        for head in heads:
            head.close()


def _is_live(connection: sqlite3.Connection, topic: Topic) -> bool:
    return connection.execute(_QUERIES["topic"], {"uid": topic.uid}).fetchone() is not None


def _is_served(connection: sqlite3.Connection, topic: Topic) -> bool:
    """Whether a topic is live and not paused."""
    return connection.execute(_QUERIES["served_topic"], {"uid": topic.uid}).fetchone() is not None


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
        new.digest,
    )


def _make(
    connection: sqlite3.Connection, name: str, rows: Sequence[dict[str, Any]], on_leases: bool
) -> dict[str, int]:
    """Makes the changes whose guards hold and answers their new versions.

    Changes on leases may be made at once, since their versions are known beforehand.
    """
    query = _QUERIES[name]
    if on_leases and _at_once(connection, _silent(query), rows):
        return {row["id"]: row["version"] + 1 for row in rows}
    answers = {row["id"]: connection.execute(query, row).fetchone() for row in rows}
    return {each: answer[0] for each, answer in answers.items() if answer is not None}


def _at_once(connection: sqlite3.Connection, query: str, rows: Sequence[Any]) -> bool:
    """Changes all rows by one call of the driver, or none if one of them is refused.

    That is the usual case, and saves reading each row's answer.
    """
    connection.execute("SAVEPOINT at_once")
    whole = connection.executemany(query, rows).rowcount == len(rows)
    if not whole:
        connection.execute("ROLLBACK TO at_once")
    connection.execute("RELEASE at_once")
    return whole


def _silent(query: str) -> str:
    """A change without its RETURNING clause, which the driver refuses for many rows."""
    return query[: query.rindex("RETURNING")]


def _reserve(
    connection: sqlite3.Connection,
    topic: Topic,
    ranges: Sequence[BucketRange],
    limit: int,
    request: LeaseRequest,
) -> Reserved:
    """Leases the oldest messages of a live topic."""
    cells = cells_of(ranges, topic.settings.buckets)
    values = lease_values(topic, request) | {"limit": limit}
    heads = [connection.execute(_QUERIES["due"], values | cell._asdict()) for cell in cells]
    chosen = _oldest(heads, lambda row: row[0], limit)
    taken = _take(connection, {no: holder for _, no, holder in chosen}, values)
    return Reserved(taken, more=len(taken) >= limit)


def _take(
    connection: sqlite3.Connection, holders: dict[int, str | None], values: dict[str, Any]
) -> list[Taken]:
    """Leases rows, by their number and last holder, or sends them to the dead letters."""
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
