"""The index in SQLite: order and progress."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from chronoline.core.errors import TopicExists, TopicNotFound
from chronoline.databases.queries import load_queries
from chronoline.databases.sqlite import LOG_FILE, SqliteDatabase
from chronoline.log.contract import (
    AppendNotice,
    Chunk,
    GroupNotFound,
    GroupState,
    Head,
    Hold,
    Index,
    LogTopic,
    NewChunk,
    ObjectSwept,
    ObjectTooOld,
    Source,
)

_PACKAGE = "chronoline.log.index.sqlite"
_QUERIES = load_queries(_PACKAGE)


class SqliteIndex(Index):
    """An index in one file, shared by the processes of one machine."""

    max_chunks_per_commit = 2_000

    def __init__(self, path: str) -> None:
        self._database = SqliteDatabase(path, package=_PACKAGE, application_id=LOG_FILE)

    # The log

    def log_id(self) -> str | None:
        rows = self._read("log_id")
        return rows[0][0] if rows else None

    def tie(self, log_id: str) -> str:
        with self._database.writing() as connection:
            _run(connection, "tie", id=log_id)
            (known,) = _run(connection, "log_id").fetchone()
        return str(known)

    # Topics

    def create_topic(self, topic: LogTopic) -> None:
        with self._database.writing() as connection:
            if not _run(connection, "insert_topic", **_topic_values(topic)).rowcount:
                raise TopicExists(f"a topic named {topic.name!r} exists already")
            for partition in range(topic.partitions):
                _run(connection, "insert_head", topic=topic.uid, partition=partition)

    def find_topic(self, name: str) -> LogTopic | None:
        rows = self._read("topic", name=name)
        return _topic(rows[0]) if rows else None

    def list_topics(self) -> list[LogTopic]:
        return [_topic(row) for row in self._read("topics")]

    def delete_topic(self, topic_uid: int) -> bool:
        with self._database.writing() as connection:
            if not _run(connection, "delete_topic", uid=topic_uid).rowcount:
                return False
            _run(connection, "delete_heads", uid=topic_uid)
            _run(connection, "note_deleted", uid=topic_uid)
            return True

    def deleted_topics(self) -> list[int]:
        return [uid for (uid,) in self._read("deleted_topics")]

    def purge_topic(self, topic_uid: int) -> bool:
        values = {"uid": topic_uid, "limit": self.max_chunks_per_commit}
        with self._database.writing() as connection:
            chunks = _run(connection, "chunks_of_topic", **values).fetchall()
            for partition, first, name in chunks:
                where = {"topic": topic_uid, "partition": partition}
                _delete_chunk(connection, where, first, name)
            if chunks or _run(connection, "purge_cursors", **values).rowcount:
                return True
            for query in ("purge_members", "purge_groups", "purge_floors", "forget_topic"):
                _run(connection, query, uid=topic_uid)
        return False

    # Appending and reading

    def commit(
        self,
        object_name: str,
        chunks: Sequence[NewChunk],
        *,
        now_ms: int,
        source: Source | None = None,
    ) -> list[int]:
        named = {"name": object_name, "prefix": source.prefix if source else ""}
        with self._database.writing() as connection:
            if not _run(connection, "claim_object", refs=len(chunks), **named).rowcount:
                return _settle(connection, named)
            given = [_commit_chunk(connection, object_name, chunk, now_ms) for chunk in chunks]
            _run(connection, "note_given", name=object_name, given=json.dumps(given))
            if source is not None:
                values = {"prefix": source.prefix, "topic": source.topic_uid, "floor": source.floor}
                _run(connection, "settle_source", **values)
            return given

    def was_committed(self, object_name: str) -> bool | None:
        rows = self._read("object", name=object_name)
        return bool(rows[0][0] != -1) if rows else None

    def heads(self, topic_uid: int) -> list[Head]:
        return [Head(*row) for row in self._read("heads", topic=topic_uid)]

    def chunks(
        self, topic_uid: int, partition: int, *, from_sequence: int, limit: int
    ) -> list[Chunk]:
        where = {"topic": topic_uid, "partition": partition, "from": from_sequence}
        return [Chunk(*row) for row in self._read("chunks", limit=limit, **where)]

    def sequence_at(self, topic_uid: int, partition: int, ts: int) -> int:
        rows = self._read("sequence_at", topic=topic_uid, partition=partition, ts=ts)
        return int(rows[0][0]) if rows else 0

    # Groups

    def open_group(self, group: str, topic_uid: int, *, uid: int) -> int:
        where = {"topic": topic_uid, "group": group}
        if rows := self._read("group_uid", **where):
            return int(rows[0][0])
        with self._database.writing() as connection:
            _run(connection, "open_group", uid=uid, **where)
            row = _run(connection, "group_uid", **where).fetchone()
        if row is None:
            raise TopicNotFound(f"there is no topic {topic_uid}")
        return int(row[0])

    def delete_group(self, group: str, topic_uid: int) -> bool:
        queries = "delete_group", "delete_cursors", "delete_members"
        with self._database.writing() as connection:
            rows = [
                _run(connection, query, topic=topic_uid, group=group).rowcount for query in queries
            ]
        return any(rows)

    def join(
        self,
        group: str,
        topic_uid: int,
        member: str,
        *,
        until_ms: int,
        now_ms: int,
        group_uid: int | None = None,
    ) -> list[str]:
        where = {"topic": topic_uid, "group": group}
        with self._database.writing() as connection:
            _check_group(connection, where, group_uid)
            _run(connection, "join", member=member, until=until_ms, **where)
            _run(connection, "forget_members", now=now_ms, **where)
            return [name for (name,) in _run(connection, "members", **where).fetchall()]

    def leave(self, group: str, topic_uid: int, member: str) -> None:
        with self._database.writing() as connection:
            _run(connection, "leave", topic=topic_uid, group=group, member=member)

    def hold(
        self,
        group: str,
        topic_uid: int,
        partitions: Sequence[int],
        holder: str,
        *,
        until_ms: int,
        now_ms: int,
        group_uid: int | None = None,
    ) -> list[Hold]:
        where = {"topic": topic_uid, "group": group}
        values = where | {"holder": holder, "until": until_ms, "now": now_ms}
        holds = []
        with self._database.writing() as connection:
            _check_group(connection, where, group_uid)
            for partition in partitions:
                row = _run(connection, "hold", partition=partition, **values).fetchone()
                if row is not None:
                    fence, at = row
                    holds.append(Hold(group, topic_uid, partition, holder, fence, until_ms, at))
        return holds

    def renew(self, holds: Sequence[Hold], *, until_ms: int, now_ms: int) -> list[Hold]:
        renewed = []
        with self._database.writing() as connection:
            for hold in holds:
                values = _held(hold) | {"until": until_ms, "now": now_ms}
                row = _run(connection, "renew", **values).fetchone()
                if row is not None:
                    renewed.append(hold._replace(until_ms=until_ms, sequence=row[0]))
        return renewed

    def progress(self, hold: Hold, sequence: int, *, now_ms: int) -> Hold | None:
        (noted,) = self.progress_all([(hold, sequence)], now_ms=now_ms)
        return noted

    def progress_all(self, notes: Sequence[tuple[Hold, int]], *, now_ms: int) -> list[Hold | None]:
        noted: list[Hold | None] = []
        with self._database.writing() as connection:
            for hold, sequence in notes:
                values = _held(hold) | {"sequence": sequence, "now": now_ms}
                row = _run(connection, "progress", **values).fetchone()
                noted.append(row and hold._replace(until_ms=row[0], sequence=sequence))
        return noted

    def let_go(self, holds: Sequence[Hold]) -> None:
        with self._database.writing() as connection:
            for hold in holds:
                _run(connection, "let_go", **_held(hold))

    def groups(self, topic_uid: int) -> list[GroupState]:
        return [GroupState(*row) for row in self._read("groups", topic=topic_uid)]

    def seek(self, group: str, topic_uid: int, sequences: Mapping[int, int]) -> None:
        values = {"topic": topic_uid, "group": group}
        with self._database.writing() as connection:
            for partition, sequence in sequences.items():
                _run(connection, "seek", partition=partition, sequence=sequence, **values)

    # Notices

    def begin_notice(
        self, topic_uid: int, partition: int, *, max_latency_ms: int, now_ms: int
    ) -> AppendNotice | int | None:
        where = {"topic": topic_uid, "partition": partition}
        with self._database.writing() as connection:
            values = where | {"now": now_ms, "latency": max_latency_ms}
            row = _run(connection, "begin_notice", **values).fetchone()
            if row is not None:
                return AppendNotice(topic_uid, partition, row[0], now_ms)
            row = _run(connection, "notice_wait", **where).fetchone()
        return None if row is None else int(row[0]) + max_latency_ms

    def end_notice(self, notice: AppendNotice, *, now_ms: int) -> AppendNotice | None:
        values = {"topic": notice.topic_uid, "partition": notice.partition, "now": now_ms}
        values |= {"sequence": notice.sequence, "since": notice.since_ms}
        with self._database.writing() as connection:
            row = _run(connection, "end_notice", **values).fetchone()
        if row is None or row[0] <= notice.sequence:
            return None
        return notice._replace(sequence=row[0], since_ms=row[1])

    def untell(self, topic_uid: int, partition: int, *, sequence: int) -> None:
        values = {"topic": topic_uid, "partition": partition, "sequence": sequence}
        with self._database.writing() as connection:
            _run(connection, "untell", **values)

    def untold(self, topic_uid: int) -> list[int]:
        return [partition for (partition,) in self._read("untold", topic=topic_uid)]

    # Upkeep

    def sweep(self, names: Sequence[str], *, now_ms: int) -> list[str]:
        with self._database.writing() as connection:
            for name in names:
                _run(connection, "sweep", name=name, now=now_ms)
            rows = [(name, _run(connection, "object", name=name).fetchone()) for name in names]
        return [name for name, row in rows if row is None or row[0] < 0]

    def trim(self, topic_uid: int, partition: int, *, before_sequence: int) -> int:
        where = {"topic": topic_uid, "partition": partition}
        with self._database.writing() as connection:
            doomed = _run(
                connection,
                "doomed",
                before=before_sequence,
                limit=self.max_chunks_per_commit,
                **where,
            ).fetchall()
            for first, _, name in doomed:
                _delete_chunk(connection, where, first, name)
            if doomed:
                first, count, _ = doomed[-1]
                _run(connection, "move_first", first=first + count, **where)
        return sum(count for _, count, _ in doomed)

    def replace(
        self,
        topic_uid: int,
        partition: int,
        old: Sequence[Chunk],
        object_name: str,
        new: NewChunk,
    ) -> bool:
        where = {"topic": topic_uid, "partition": partition}
        with self._database.writing() as connection:
            present = _run(
                connection,
                "chunks",
                limit=len(old),
                **where,
                **{"from": old[0].first_sequence},
            ).fetchall()
            if [Chunk(*row) for row in present] != list(old):
                return False
            if not _run(connection, "claim_object", name=object_name, refs=1, prefix="").rowcount:
                return False
            for chunk in old:
                _delete_chunk(connection, where, chunk.first_sequence, chunk.object_name)
            _insert_chunk(connection, object_name, new, old[0].first_sequence, old[-1].appended_ms)
            return True

    def unreferenced(self, limit: int) -> list[str]:
        return [name for (name,) in self._read("unreferenced", limit=limit)]

    def forget(self, names: Sequence[str]) -> None:
        with self._database.writing() as connection:
            for name in names:
                _run(connection, "forget", name=name)

    def raise_floor(self, floor: str) -> None:
        if self._read("has_gone", floor=floor):
            with self._database.writing() as connection:
                _run(connection, "raise_floor", floor=floor)

    def forget_names(self, limit: int) -> int:
        names = [name for (name,) in self._read("gone_names", limit=limit)]
        if not names:
            return 0
        with self._database.writing() as connection:
            return sum(_run(connection, "forget_name", name=name).rowcount for name in names)

    def close(self) -> None:
        self._database.close()

    def _read(self, query: str, **values: Any) -> list[Any]:
        with self._database.reading() as connection:
            return connection.execute(_QUERIES[query], values).fetchall()


def _run(connection: sqlite3.Connection, query: str, **values: Any) -> sqlite3.Cursor:
    return connection.execute(_QUERIES[query], values)


def _topic_values(topic: LogTopic) -> dict[str, Any]:
    return {"uid": topic.uid, "name": topic.name, "partitions": topic.partitions}


def _topic(row: tuple[Any, ...]) -> LogTopic:
    return LogTopic(uid=row[0], name=row[1], partitions=row[2])


def _held(hold: Hold) -> dict[str, Any]:
    return {
        "topic": hold.topic_uid,
        "group": hold.group,
        "partition": hold.partition,
        "holder": hold.holder,
        "fence": hold.fence,
    }


def _check_group(
    connection: sqlite3.Connection, where: dict[str, Any], group_uid: int | None
) -> None:
    if group_uid is not None:
        row = _run(connection, "group_uid", **where).fetchone()
        if row is None or row[0] != group_uid:
            raise GroupNotFound(f"group {where['group']!r} was deleted")


def _settle(connection: sqlite3.Connection, named: dict[str, Any]) -> list[int]:
    """The answer of an earlier commit."""
    row = _run(connection, "object", name=named["name"]).fetchone()
    if row is None:
        raise ObjectTooOld(*_run(connection, "floor_above", **named).fetchone())
    refs, given = row
    if refs == -1:
        raise ObjectSwept
    return list(json.loads(given))


def _commit_chunk(
    connection: sqlite3.Connection, object_name: str, chunk: NewChunk, now_ms: int
) -> int:
    values = {"topic": chunk.topic_uid, "partition": chunk.partition, "count": chunk.events}
    row = _run(connection, "advance", now=now_ms, **values).fetchone()
    if row is None:
        raise TopicNotFound(f"topic {chunk.topic_uid} has no partition {chunk.partition}")
    first: int = row[0]
    _insert_chunk(connection, object_name, chunk, first, row[1])
    return first


def _insert_chunk(
    connection: sqlite3.Connection, object_name: str, chunk: NewChunk, first: int, appended: int
) -> None:
    _run(
        connection,
        "insert_chunk",
        topic=chunk.topic_uid,
        partition=chunk.partition,
        first=first,
        count=chunk.events,
        object=object_name,
        start=chunk.offset,
        length=chunk.length,
        appended=appended,
    )


def _delete_chunk(
    connection: sqlite3.Connection, where: dict[str, int], first: int, name: str
) -> None:
    _run(connection, "delete_chunk", first=first, object=name, **where)
    _run(connection, "unrefer", object=name)
