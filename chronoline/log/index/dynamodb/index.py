"""Order and progress in DynamoDB."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from chronoline.core.errors import InvalidInput, TopicExists, TopicNotFound
from chronoline.log.contract import (
    Chunk,
    GroupState,
    Head,
    Hold,
    Index,
    LogTopic,
    NewChunk,
    Notice,
)
from chronoline.log.index.dynamodb import holds as cursors
from chronoline.log.index.dynamodb import items, objects
from chronoline.log.index.dynamodb.address import parse_address
from chronoline.log.index.dynamodb.items import (
    SCHEMA_KEY,
    TOPICS,
    Item,
    Key,
    chunk_item,
    chunk_key,
    chunks_of,
    head_key,
    heads_of,
    key_of,
    keyed,
    members_of,
    object_key,
    sequence_key,
    topic_key,
    uid_key,
)
from chronoline.log.index.dynamodb.schema import check_version
from chronoline.log.index.dynamodb.table import (
    NEW,
    Overtaken,
    Table,
    Write,
    again_if_overtaken,
    delete,
    put,
    update,
)

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_MOST_CHUNKS = 45
_FITTING = 100
_NOTHING = {
    "first_sequence": 0,
    "next_sequence": 0,
    "appended_ms": 0,
    "told": 0,
    "told_since_ms": 0,
}
_SAME_OBJECT = "object_name = :object"

Each = TypeVar("Each")


class DynamoDbIndex(Index):
    """An index in one DynamoDB table, for all machines that reach it.

    A transaction answers no values. So what a change depends on is read first, and written under the
    condition that it is still so. Whoever was overtaken begins again, and gives up after some seconds, with
    `StoreBusy`. A transaction takes 100 items: of a larger batch of holds, seeks or names each part that
    fits is done as a whole, by itself.

    Each item is read as it was committed last, but several are no snapshot: of a transaction under way one
    item may be seen and another not yet. So chunks are handed out only as far as they join.
    """

    max_chunks_per_commit = _MOST_CHUNKS  # each takes two items, and the whole a few

    def __init__(self, url: str, *, client: DynamoDBClient | None = None) -> None:
        address = parse_address(url)
        self._table = Table(address, client=client)
        self._partition_counts: dict[int, int] = {}
        try:
            check_version(self._table, address.table)
        except BaseException:
            self._table.close()
            raise

    # The log

    def log_id(self) -> str | None:
        item = self._table.get_one(SCHEMA_KEY)
        return None if item is None else item.get("log_id")

    def tie(self, log_id: str) -> str:
        _, item = self._table.update(
            SCHEMA_KEY,
            "SET log_id = :id",
            when="attribute_not_exists(log_id)",
            repeat=True,
            id=log_id,
        )
        return str(item["log_id"])

    # Topics

    @again_if_overtaken
    def create_topic(self, topic: LogTopic) -> None:
        keys = topic_key(topic.name), uid_key(topic.uid)
        if self._table.get(keys):
            raise TopicExists(f"a topic named {topic.name!r} exists already")
        named = keyed(keys[0], uid=topic.uid, partitions=topic.partitions)
        numbered = keyed(keys[1], partitions=topic.partitions)
        self._table.write([put(named, when=NEW), put(numbered, when=NEW)])

    def find_topic(self, name: str) -> LogTopic | None:
        item = self._table.get_one(topic_key(name))
        return None if item is None else items.topic(item)

    def list_topics(self) -> list[LogTopic]:
        return [items.topic(item) for item in self._table.query(TOPICS)]

    def _partitions(self, topic_uid: int) -> range:
        """Those of a topic; none if there is no such topic. They never change, so they are read once."""
        if topic_uid not in self._partition_counts:
            item = self._table.get_one(uid_key(topic_uid))
            if item is None:
                return range(0)
            self._partition_counts[topic_uid] = item["partitions"]
        return range(self._partition_counts[topic_uid])

    # Appending and reading

    @again_if_overtaken
    def commit(self, object_name: str, chunks: Sequence[NewChunk], *, now_ms: int) -> list[int]:
        self._check_count(chunks)
        keys = [head_key(chunk.topic_uid, chunk.partition) for chunk in chunks]
        found = self._table.get([object_key(object_name), *keys])
        if known := found.get(object_key(object_name)):
            return objects.settle(known)
        given: list[int] = []
        writes: list[Write] = []
        for key, chunk in zip(keys, chunks, strict=True):
            if chunk.partition not in self._partitions(chunk.topic_uid):
                raise TopicNotFound(f"topic {chunk.topic_uid} has no partition {chunk.partition}")
            head = found.get(key, _NOTHING)
            first, at_ms = head["next_sequence"], max(head["appended_ms"], now_ms)
            writes.append(_advance(key, found.get(key), first + chunk.events, at_ms))
            item = chunk_item(chunk, object_name, first_sequence=first, appended_ms=at_ms)
            writes.append(put(item, when=NEW))
            given.append(first)
        writes.append(objects.claim(object_name, refs=len(chunks), given=given))
        self._table.write(writes)
        return given

    def heads(self, topic_uid: int) -> list[Head]:
        partitions = self._partitions(topic_uid)
        found = {int(head["sk"]): head for head in self._heads(topic_uid)}
        heads = ((partition, found.get(partition, _NOTHING)) for partition in partitions)
        return [
            Head(partition, head["first_sequence"], head["next_sequence"])
            for partition, head in heads
        ]

    def _heads(self, topic_uid: int) -> list[Item]:
        return self._table.query(heads_of(topic_uid))

    @again_if_overtaken
    def chunks(
        self, topic_uid: int, partition: int, *, from_sequence: int, limit: int
    ) -> list[Chunk]:
        pk, sk = chunks_of(topic_uid, partition), sequence_key(from_sequence)
        found = self._table.query(pk, (">=", sk), limit=limit)
        if not found or found[0]["sk"] != sk:
            found = self._table.query(pk, ("<", sk), limit=1, backwards=True) + found
        chunks = _joined(map(items.chunk, found), from_sequence)
        if chunks and chunks[0].first_sequence > from_sequence:
            head = self._table.get_one(head_key(topic_uid, partition))
            if head is None or head["first_sequence"] < chunks[0].first_sequence:
                raise Overtaken  # what comes before is not trimmed: it is not seen yet
        return chunks[:limit]

    def sequence_at(self, topic_uid: int, partition: int, ts: int) -> int:
        """Times grow with the sequence, so it looks in the middle of what is left, again and again; first at
        the oldest chunk, with which retention most often ends.
        """
        head = self._table.get_one(head_key(topic_uid, partition)) or _NOTHING
        low = middle = head["first_sequence"]
        high = head["next_sequence"]
        while low < high:
            chunks = self.chunks(topic_uid, partition, from_sequence=middle, limit=1)
            if not chunks:
                high = middle  # it is trimmed, or not seen yet; who reads too much loses nothing
            elif chunks[0].appended_ms < ts:
                low = _end(chunks[0])
            elif chunks[0].first_sequence > middle:
                return chunks[0].first_sequence  # what comes before was trimmed meanwhile
            else:
                high = chunks[0].first_sequence
            middle = (low + high) // 2
        return int(high)

    # Groups

    @again_if_overtaken
    def join(
        self, group: str, topic_uid: int, member: str, *, until_ms: int, now_ms: int
    ) -> list[str]:
        pk = members_of(topic_uid, group)
        self._table.write([put(keyed((pk, member), until_ms=until_ms))])
        members = self._table.query(pk)
        gone = [key_of(each) for each in members if each["until_ms"] <= now_ms]
        with suppress(Overtaken):  # one came again, or another forgets them
            when = "until_ms <= :now"
            self._table.write([delete(key, when=when, now=now_ms) for key in gone[:_FITTING]])
        return [each["sk"] for each in members if each["until_ms"] > now_ms]

    def leave(self, group: str, topic_uid: int, member: str) -> None:
        self._leave((members_of(topic_uid, group), member))

    @again_if_overtaken
    def _leave(self, key: Key) -> None:
        self._table.write([delete(key)])

    def hold(
        self,
        group: str,
        topic_uid: int,
        partitions: Sequence[int],
        holder: str,
        *,
        until_ms: int,
        now_ms: int,
    ) -> list[Hold]:
        there = self._partitions(topic_uid)
        wanted = [
            Hold(group, topic_uid, partition, holder, 0, until_ms, 0)
            for partition in partitions
            if partition in there
        ]
        parts = (cursors.take(self._table, part, now_ms=now_ms) for part in _fitting(wanted))
        return [hold for part in parts for hold in part]

    def renew(self, holds: Sequence[Hold], *, until_ms: int, now_ms: int) -> list[Hold]:
        times = {"until_ms": until_ms, "now_ms": now_ms}
        parts = (cursors.renew(self._table, part, **times) for part in _fitting(holds))
        return [hold for part in parts for hold in part]

    def progress(self, hold: Hold, sequence: int, *, now_ms: int) -> Hold | None:
        return cursors.progress(self._table, hold, sequence, now_ms=now_ms)

    def let_go(self, holds: Sequence[Hold]) -> None:
        for part in _fitting(holds):
            cursors.let_go(self._table, part)

    def groups(self, topic_uid: int) -> list[GroupState]:
        return cursors.groups(self._table, topic_uid)

    def seek(self, group: str, topic_uid: int, sequences: Mapping[int, int]) -> None:
        for part in _fitting(list(sequences.items())):
            cursors.seek(self._table, group, topic_uid, dict(part))

    # Notices

    def begin_notice(
        self, topic_uid: int, partition: int, *, max_latency_ms: int, now_ms: int
    ) -> Notice | int | None:
        done, head = self._table.update(
            head_key(topic_uid, partition),
            "SET told_since_ms = :now",
            when="told < next_sequence AND (told_since_ms = :zero OR told_since_ms <= :over "
            "OR told_since_ms > :never)",
            repeat=False,  # we would take ourselves for another who waits
            now=now_ms,
            zero=0,
            over=now_ms - max_latency_ms,
            never=now_ms + max_latency_ms,
        )
        if done:
            return Notice(topic_uid, partition, head["next_sequence"], now_ms)
        if not head or head["told"] >= head["next_sequence"]:
            return None
        return int(head["told_since_ms"]) + max_latency_ms

    def end_notice(self, notice: Notice, *, now_ms: int) -> Notice | None:
        """A condition chooses one of two writes, and an append may come between: so both are tried."""
        key = head_key(notice.topic_uid, notice.partition)
        change = "SET told = :sequence, told_since_ms = :next"
        ours = {"sequence": notice.sequence, "since": notice.since_ms}
        done, head = self._table.update(
            key,
            change,
            when="told_since_ms = :since AND next_sequence <= :sequence",
            repeat=False,
            next=0,
            **ours,
        )
        if done or not head or head["told_since_ms"] != notice.since_ms:
            return None
        done, head = self._table.update(
            key,
            change,
            when="told_since_ms = :since AND next_sequence > :sequence",
            repeat=False,
            next=max(now_ms, notice.since_ms + 1),
            **ours,
        )
        if not done:
            return None
        return notice._replace(sequence=head["next_sequence"], since_ms=head["told_since_ms"])

    @again_if_overtaken
    def untell(self, topic_uid: int, partition: int, *, sequence: int) -> None:
        """As above: a condition chooses one of two writes, and the end of a notice may come between."""
        key = head_key(topic_uid, partition)
        values = {"sequence": sequence, "zero": 0}
        change = "SET told = :sequence, told_since_ms = :zero"
        done, head = self._table.update(key, change, when="told > :sequence", repeat=True, **values)
        if done or not head:
            return
        change = "SET told_since_ms = :zero"
        done, _ = self._table.update(key, change, when="told <= :sequence", repeat=True, **values)
        if not done:
            raise Overtaken

    def untold(self, topic_uid: int) -> list[int]:
        heads = self._heads(topic_uid)
        return [int(head["sk"]) for head in heads if head["told"] < head["next_sequence"]]

    # Upkeep

    def sweep(self, names: Sequence[str], *, now_ms: int) -> list[str]:
        parts = (objects.sweep(self._table, part, now_ms=now_ms) for part in _fitting(names))
        return [name for part in parts for name in part]

    @again_if_overtaken
    def trim(self, topic_uid: int, partition: int, *, before_sequence: int) -> int:
        key = head_key(topic_uid, partition)
        head = self._table.get_one(key) or _NOTHING
        first: int = head["first_sequence"]
        found = self._table.query(
            chunks_of(topic_uid, partition),
            (">=", sequence_key(first)),
            limit=self.max_chunks_per_commit,
        )
        chunks = _joined(map(items.chunk, found), first)
        doomed = [chunk for chunk in chunks if _end(chunk) <= before_sequence]
        if not doomed:
            return 0
        if doomed[0].first_sequence != first:
            raise Overtaken  # what comes before is not seen yet
        left = _end(doomed[-1])
        change = "SET first_sequence = :left"
        self._table.write(
            [
                update(key, change, when="first_sequence = :seen", left=left, seen=first),
                *(_drop(topic_uid, chunk) for chunk in doomed),
                *objects.unrefer(self._table, topic_uid, doomed),
            ]
        )
        return left - first

    @again_if_overtaken
    def replace(
        self,
        topic_uid: int,
        partition: int,
        old: Sequence[Chunk],
        object_name: str,
        new: NewChunk,
    ) -> bool:
        self._check_count(old)
        first, last = old[0], old[-1]
        keys = [chunk_key(topic_uid, partition, chunk.first_sequence) for chunk in old]
        found = self._table.get([object_key(object_name), *keys])
        present = [items.chunk(found[key]) for key in keys if key in found]
        if object_key(object_name) in found or _joined(present, first.first_sequence) != list(old):
            return False
        # It counts as appended when the last of its events was: who asks for a later moment misses none.
        item = chunk_item(
            new,
            object_name,
            first_sequence=first.first_sequence,
            appended_ms=last.appended_ms,
        )
        self._table.write(
            [
                objects.claim(object_name, refs=1, given=[first.first_sequence]),
                put(item, when=_SAME_OBJECT, object=first.object_name),
                *(_drop(topic_uid, chunk) for chunk in old[1:]),
                *objects.unrefer(self._table, topic_uid, old),
            ]
        )
        return True

    def unreferenced(self, limit: int) -> list[str]:
        return objects.unreferenced(self._table, limit)

    def forget(self, names: Sequence[str]) -> None:
        for part in _fitting(names, _FITTING // 2):  # each with the list on which it stands
            objects.forget(self._table, part)

    def close(self) -> None:
        self._table.close()

    def _check_count(self, chunks: Sequence[object]) -> None:
        if len(chunks) > _MOST_CHUNKS:
            raise InvalidInput(
                f"{len(chunks)} chunks are more than a transaction of DynamoDB takes; at most {_MOST_CHUNKS}"
            )


def _advance(key: Key, head: Item | None, next_sequence: int, appended_ms: int) -> Write:
    """Gives a partition's next sequences away; whoever comes first makes its head."""
    values = {"next_sequence": next_sequence, "appended_ms": appended_ms}
    if head is None:
        return put(keyed(key, **_NOTHING | values), when=NEW)
    return update(
        key,
        "SET next_sequence = :next_sequence, appended_ms = :appended_ms",
        when="next_sequence = :seen",
        seen=head["next_sequence"],
        **values,
    )


def _drop(topic_uid: int, chunk: Chunk) -> Write:
    key = chunk_key(topic_uid, chunk.partition, chunk.first_sequence)
    return delete(key, when=_SAME_OBJECT, object=chunk.object_name)


def _end(chunk: Chunk) -> int:
    return chunk.first_sequence + chunk.events


def _joined(chunks: Iterable[Chunk], from_sequence: int) -> list[Chunk]:
    """Those that end behind a sequence, without what a change under way hides or doubles."""
    joined: list[Chunk] = []
    for chunk in chunks:
        if joined and chunk.first_sequence > _end(joined[-1]):
            break  # one in between is not seen yet
        if _end(chunk) > (_end(joined[-1]) if joined else from_sequence):
            joined.append(chunk)
    return joined


def _fitting(batch: Sequence[Each], size: int = _FITTING) -> Iterator[Sequence[Each]]:
    for start in range(0, len(batch), size):
        yield batch[start : start + size]
