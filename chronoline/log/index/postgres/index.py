"""The index in PostgreSQL: order and progress."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from chronoline.core.errors import (
    OutcomeUnknown,
    StoreBusy,
    StoreError,
    StoreUnavailable,
    TopicExists,
    TopicNotFound,
)
from chronoline.databases.postgres import (
    CONNECT_TIMEOUT_S,
    NO_LISTEN,
    Connection,
    PostgresDatabase,
    Row,
    fetch,
    split_notify,
)
from chronoline.databases.postgres_listener import PostgresListener
from chronoline.databases.queries import load_queries
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
from chronoline.log.index.postgres.notifications import Voice, parse_word

import psycopg  # isort: skip - a missing driver is answered by chronoline.databases.postgres

_PACKAGE = "chronoline.log.index.postgres"
_SCHEMA = _CHANNEL = "chronoline_log"
_QUERIES = load_queries(_PACKAGE)
_OPEN_TRIES = 5


class PostgresIndex(Index):
    """An index in a PostgreSQL database, shared by many processes and machines."""

    max_chunks_per_commit = 2_000

    def __init__(self, url: str, *, random_bytes: Callable[[int], bytes] = os.urandom) -> None:
        url, notify = split_notify(url)
        self._database = PostgresDatabase(url, package=_PACKAGE, schema=_SCHEMA)
        if notify and not self._database.keeps_sessions:
            self._database.close()
            raise StoreError(NO_LISTEN)
        self._voice = Voice(random_bytes) if notify else None
        self._listener: PostgresListener | None = None
        self._heard: Callable[[set[int] | None], None] | None = None

    # The log

    def log_id(self) -> str | None:
        rows = self._read("log_id", {})
        return rows[0][0] if rows else None

    def tie(self, log_id: str) -> str:
        self._run("tie", {"id": log_id})
        tied = self.log_id() or log_id
        self._database.await_durable()
        return tied

    # Topics

    def create_topic(self, topic: LogTopic) -> None:
        values = {"uid": topic.uid, "name": topic.name, "partitions": topic.partitions}
        if not self._run("create_topic", values):
            self._database.await_durable()
            raise TopicExists(f"a topic named {topic.name!r} exists already")

    def find_topic(self, name: str) -> LogTopic | None:
        rows = self._read("topic", {"name": name})
        return _topic(rows[0]) if rows else None

    def list_topics(self) -> list[LogTopic]:
        return [_topic(row) for row in self._read("topics", {})]

    def delete_topic(self, topic_uid: int) -> bool:
        word = self._voice.word({topic_uid}) if self._voice else ""
        done = bool(self._run("delete_topic", {"uid": topic_uid, "word": word}))
        if not done:
            self._database.await_durable()
        return done

    def deleted_topics(self) -> list[int]:
        return [uid for (uid,) in self._read("deleted_topics", {})]

    def purge_topic(self, topic_uid: int) -> bool:
        values = {"uid": topic_uid, "limit": self.max_chunks_per_commit}
        for query in ("purge_chunks", "purge_cursors"):
            if self._run(query, values)[0][0]:
                return True
        self._run("purge_rest", values)
        self._run("forget_topic", values)
        return bool(self._read("is_deleted", values))

    # Appending and reading

    def commit(
        self,
        object_name: str,
        chunks: Sequence[NewChunk],
        *,
        now_ms: int,
        source: Source | None = None,
    ) -> list[int]:
        topics = {chunk.topic_uid for chunk in chunks}
        if source is not None:
            self._run("open_source", {"prefix": source.prefix, "topic": source.topic_uid})
        values = {
            "name": object_name,
            "prefix": source.prefix if source else "",
            "floor": source.floor if source else "",
            "now": now_ms,
            "chunks": len(chunks),
            "topic": [chunk.topic_uid for chunk in chunks],
            "partition": [chunk.partition for chunk in chunks],
            "count": [chunk.events for chunk in chunks],
            "start": [chunk.offset for chunk in chunks],
            "length": [chunk.length for chunk in chunks],
            "word": self._voice.word(topics) if self._voice else "",
        }
        try:
            rows = self._run("commit", values)
        except OutcomeUnknown:
            self._doubt(topics)
            raise
        return list(rows[0][0]) if rows else self._settle(values)

    def _settle(self, values: dict[str, Any]) -> list[int]:
        """The answer of an earlier commit."""
        rows = self._read("object", values)
        floors = [] if rows else self._read("floor_above", values)
        self._database.await_durable()
        if not rows:
            if floors:
                raise ObjectTooOld(floors[0][0])
            raise TopicNotFound(f"a topic or partition of object {values['name']!r} is not there")
        refs, given = rows[0]
        if refs == -1:
            raise ObjectSwept
        return list(given)

    def _doubt(self, topics: set[int]) -> None:
        """Wakes our own readers. The notification of our commit arrives like another's."""
        if self._voice is not None:
            self._voice.change()
        if self._heard is not None:
            self._heard(topics)

    def was_committed(self, object_name: str) -> bool | None:
        rows = self._read("object", {"name": object_name})
        self._database.await_durable()
        return bool(rows[0][0] != -1) if rows else None

    def heads(self, topic_uid: int) -> list[Head]:
        return [Head(*row) for row in self._read("heads", {"topic": topic_uid})]

    def chunks(
        self, topic_uid: int, partition: int, *, from_sequence: int, limit: int
    ) -> list[Chunk]:
        where = {"topic": topic_uid, "partition": partition}
        rows = self._read("chunks", where | {"from": from_sequence, "limit": limit})
        return [Chunk(*row) for row in rows]

    def sequence_at(self, topic_uid: int, partition: int, ts: int) -> int:
        where = {"topic": topic_uid, "partition": partition}
        rows = self._read("sequence_at", where | {"ts": ts})
        return int(rows[0][0]) if rows else 0

    @property
    def hearing(self) -> bool:
        return self._listener is not None and self._listener.connected

    def listen(self, heard: Callable[[set[int] | None], None]) -> None:
        voice = self._voice
        if voice is None:
            return

        def hear(word: str) -> None:
            if not voice.is_own(word):
                heard(parse_word(word))

        self._heard = heard
        self._listener = PostgresListener(
            self._database, _CHANNEL, heard=hear, missed=lambda: heard(None)
        )

    # Groups

    def open_group(self, group: str, topic_uid: int, *, uid: int) -> int:
        values = {"topic": topic_uid, "group": group, "uid": uid}
        for _ in range(_OPEN_TRIES):
            if rows := self._read("group_uid", values):
                return int(rows[0][0])
            if not self.heads(topic_uid):
                raise TopicNotFound(f"there is no topic {topic_uid}")
            self._run("open_group", values)
        raise StoreBusy(
            f"group {group!r} was deleted {_OPEN_TRIES} times while it was opened; nothing was changed. "
            "Stop the process that deletes it"
        )

    def delete_group(self, group: str, topic_uid: int) -> bool:
        values = {"topic": topic_uid, "group": group}

        def work(connection: Connection) -> bool:
            found = bool(fetch(connection, _QUERIES["delete_group"], values))
            # Another statement, which sees what others held while we waited for them.
            found = bool(fetch(connection, _QUERIES["delete_progress"], values)[0][0]) or found
            self._database.mark(connection)  # also if it was deleted before
            return found

        return self._database.transact(work)

    def _check_group(self, values: dict[str, Any]) -> None:
        """The error if topic or group are gone."""
        if values["group_uid"] is not None:
            rows = self._read("group_uid", values)
            if not rows or rows[0][0] != values["group_uid"]:
                raise GroupNotFound(f"group {values['group']!r} was deleted")

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
        values = {"topic": topic_uid, "group": group, "member": member, "group_uid": group_uid}
        rows = self._run("join", values | {"until": until_ms, "now": now_ms})
        members = sorted(name for (name,) in rows)
        if member not in members:
            self._check_group(values)
        return members

    def leave(self, group: str, topic_uid: int, member: str) -> None:
        self._run("leave", {"topic": topic_uid, "group": group, "member": member})

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
        if not partitions:
            return []
        values = {"topic": topic_uid, "group": group, "partitions": list(partitions)}
        values |= {"holder": holder, "until": until_ms, "now": now_ms, "group_uid": group_uid}
        taken = {row[0]: row[1:] for row in self._run("hold", values)}
        if not taken:
            self._check_group(values)
        return [
            Hold(
                group,
                topic_uid,
                partition,
                holder,
                taken[partition][0],
                until_ms,
                taken[partition][1],
            )
            for partition in partitions
            if partition in taken
        ]

    def renew(self, holds: Sequence[Hold], *, until_ms: int, now_ms: int) -> list[Hold]:
        if not holds:
            return []
        rows = self._run("renew", _columns(holds) | {"until": until_ms, "now": now_ms})
        renewed = {row[:3]: row[3] for row in rows}
        return [
            hold._replace(until_ms=until_ms, sequence=renewed[_key(hold)])
            for hold in holds
            if _key(hold) in renewed
        ]

    def progress(self, hold: Hold, sequence: int, *, now_ms: int) -> Hold | None:
        (noted,) = self.progress_all([(hold, sequence)], now_ms=now_ms)
        return noted

    def progress_all(self, notes: Sequence[tuple[Hold, int]], *, now_ms: int) -> list[Hold | None]:
        if not notes:
            return []
        ordered = sorted(notes, key=lambda note: _key(note[0]))
        values = _columns([hold for hold, _ in ordered])
        values |= {"sequence": [sequence for _, sequence in ordered], "now": now_ms}
        until_ms = {row[:3]: row[3] for row in self._run("progress", values)}
        return [
            hold._replace(until_ms=until_ms[_key(hold)], sequence=sequence)
            if _key(hold) in until_ms
            else None
            for hold, sequence in notes
        ]

    def let_go(self, holds: Sequence[Hold]) -> None:
        if holds:
            self._run("let_go", _columns(holds))

    def groups(self, topic_uid: int) -> list[GroupState]:
        return [GroupState(*row) for row in self._read("groups", {"topic": topic_uid})]

    def seek(self, group: str, topic_uid: int, sequences: Mapping[int, int]) -> None:
        if sequences:
            values = {"topic": topic_uid, "group": group, "partition": list(sequences)}
            self._run("seek", values | {"sequence": list(sequences.values())})

    # Notices

    def begin_notice(
        self, topic_uid: int, partition: int, *, max_latency_ms: int, now_ms: int
    ) -> AppendNotice | int | None:
        values = {"topic": topic_uid, "partition": partition}
        rows = self._run("begin_notice", values | {"now": now_ms, "latency": max_latency_ms})
        if not rows:
            return None
        sequence, since_ms, is_free = rows[0]
        if is_free:
            return AppendNotice(topic_uid, partition, sequence, now_ms)
        return int(since_ms) + max_latency_ms

    def end_notice(self, notice: AppendNotice, *, now_ms: int) -> AppendNotice | None:
        values = {"topic": notice.topic_uid, "partition": notice.partition, "now": now_ms}
        values |= {"sequence": notice.sequence, "since": notice.since_ms}
        rows = self._run("end_notice", values)
        if not rows or rows[0][0] <= notice.sequence:
            return None
        return notice._replace(sequence=rows[0][0], since_ms=rows[0][1])

    def untell(self, topic_uid: int, partition: int, *, sequence: int) -> None:
        self._run("untell", {"topic": topic_uid, "partition": partition, "sequence": sequence})

    def untold(self, topic_uid: int) -> list[int]:
        return [partition for (partition,) in self._read("untold", {"topic": topic_uid})]

    # Upkeep

    def sweep(self, names: Sequence[str], *, now_ms: int) -> list[str]:
        if not names:
            return []
        values = {"names": list(names), "now": now_ms}

        def work(connection: Connection) -> list[str]:
            fetch(connection, _QUERIES["sweep"], values)
            # Another statement, which sees those that others committed while we waited for them.
            found = [name for (name,) in fetch(connection, _QUERIES["swept"], values)]
            self._database.mark(connection)  # the objects are deleted because of this answer
            return found

        return self._database.transact(work)

    def trim(self, topic_uid: int, partition: int, *, before_sequence: int) -> int:
        values = {"topic": topic_uid, "partition": partition, "before": before_sequence}
        values |= {"limit": self.max_chunks_per_commit}

        def work(connection: Connection) -> int:
            if not fetch(connection, _QUERIES["lock_head"], values):
                return 0  # the topic is deleted, and its purge deletes them
            return int(fetch(connection, _QUERIES["trim"], values)[0][0])

        return self._database.transact(work)

    def replace(
        self,
        topic_uid: int,
        partition: int,
        old: Sequence[Chunk],
        object_name: str,
        new: NewChunk,
    ) -> bool:
        first, last = old[0], old[-1]
        values = {
            "topic": topic_uid,
            "partition": partition,
            "from": first.first_sequence,
            "limit": len(old),
            "first": first.first_sequence,
            "stop": last.first_sequence + last.events,
            "name": object_name,
            "count": new.events,
            "start": new.offset,
            "length": new.length,
            "appended": last.appended_ms,
        }

        def work(connection: Connection) -> bool:
            heads = fetch(connection, _QUERIES["lock_head"], values)
            if not heads or object_name < heads[0][0]:
                return False  # the topic is deleted, or the object was swept and is forgotten
            present = [Chunk(*row) for row in fetch(connection, _QUERIES["chunks"], values)]
            if present != list(old) or not fetch(connection, _QUERIES["claim_object"], values):
                return False
            fetch(connection, _QUERIES["replace"], values)
            return True

        return self._database.transact(work)

    def unreferenced(self, limit: int) -> list[str]:
        names = [name for (name,) in self._read("unreferenced", {"limit": limit})]
        if names:
            self._database.await_durable()  # the objects are deleted because of this answer
        return names

    def forget(self, names: Sequence[str]) -> None:
        if names:
            self._run("forget", {"names": sorted(names)})

    def raise_floor(self, floor: str) -> None:
        """Raises the floor of new topics first, then of each topic; only then names are forgotten."""
        values = {"floor": floor}
        if self._read("has_gone", values):
            self._run("raise_floor", values)
            for topic in self.list_topics():
                self._run("raise_heads", values | {"topic": topic.uid})
            self._run("reach_floor", values)

    def forget_names(self, limit: int) -> int:
        return int(self._run("forget_names", {"limit": limit})[0][0])

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
        self._database.close()

    def _run(self, query: str, values: dict[str, Any]) -> list[Row]:
        return self._database.run(_QUERIES[query], values)

    def _read(self, query: str, values: dict[str, Any]) -> list[Row]:
        return self._database.read(_QUERIES[query], values)


def _topic(row: Row) -> LogTopic:
    return LogTopic(uid=row[0], name=row[1], partitions=row[2])


def _key(hold: Hold) -> tuple[int, str, int]:
    return hold.topic_uid, hold.group, hold.partition


def _columns(holds: Sequence[Hold]) -> dict[str, Any]:
    """Holds as arrays, in the order of the key so that two batches cannot wait for each other."""
    holds = sorted(holds, key=_key)
    return {
        "topic": [hold.topic_uid for hold in holds],
        "group": [hold.group for hold in holds],
        "partition": [hold.partition for hold in holds],
        "holder": [hold.holder for hold in holds],
        "fence": [hold.fence for hold in holds],
    }


def exists(url: str) -> bool:
    """Whether a database has an index; makes none. True where the URL is unreadable, which opening says."""
    url, _ = split_notify(url)
    try:
        with psycopg.connect(url, connect_timeout=int(CONNECT_TIMEOUT_S)) as connection:
            row = connection.execute(
                "SELECT pg_catalog.to_regclass('chronoline_log.topics')"
            ).fetchone()
    except psycopg.ProgrammingError:
        return True
    except psycopg.OperationalError as error:
        raise StoreUnavailable(f"PostgreSQL cannot be reached: {error}") from error
    return row is not None and row[0] is not None
