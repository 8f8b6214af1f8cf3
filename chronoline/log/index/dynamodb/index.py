"""The index in DynamoDB: order and progress."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from chronoline.core.errors import (
    InvalidInput,
    OutcomeUnknown,
    StoreUnavailable,
    TopicExists,
    TopicNotFound,
)
from chronoline.log.contract import (
    AppendNotice,
    Chunk,
    GroupState,
    Head,
    Hold,
    Index,
    LogTopic,
    NewChunk,
    ObjectTooOld,
    Source,
)
from chronoline.log.index.dynamodb import holds as cursors
from chronoline.log.index.dynamodb import items, objects
from chronoline.log.index.dynamodb.address import parse_address
from chronoline.log.index.dynamodb.items import (
    DELETED,
    FLOOR_KEY,
    SCHEMA_KEY,
    TOPICS,
    Item,
    Key,
    chunk_item,
    chunk_key,
    chunks_of,
    cursors_of,
    deleted_key,
    group_key,
    groups_of,
    head_key,
    headless_key,
    heads_of,
    key_of,
    keyed,
    members_of,
    object_key,
    sequence_key,
    sources_of,
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
    check,
    delete,
    put,
    update,
)

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_MOST_CHUNKS = 45
_FITTING = 100
_MOST_TOPICS_MADE = 7
"""The most topics of which a commit can make heads beside everything else."""
_NOTHING: Item = {
    "first_sequence": 0,
    "next_sequence": 0,
    "appended_ms": 0,
    "told": 0,
    "told_since_ms": 0,
}
_SAME_OBJECT = "object_name = :object"
_NOT_BELOW_FLOOR = "(attribute_not_exists(lowest_name) OR lowest_name <= :name)"
_LOWER_FLOOR = "(attribute_not_exists(lowest_name) OR lowest_name < :floor)"
_THERE = "attribute_exists(pk) AND attribute_not_exists(deleted_topic)"

Each = TypeVar("Each")


class DynamoDbIndex(Index):
    """An index in one DynamoDB table, for all machines that reach it.

    A transaction returns no values. So a change reads its preconditions first, and writes under the condition
    that they still hold. If another process was faster, it begins again, and gives up after some seconds with
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
        found = self._table.get([FLOOR_KEY, *keys])
        floor = found.pop(FLOOR_KEY, None)
        if found:
            raise TopicExists(f"a topic named {topic.name!r} exists already")
        named = keyed(keys[0], uid=topic.uid, partitions=topic.partitions)
        numbered = keyed(keys[1], partitions=topic.partitions, **_floor_of(floor))
        writes = [put(named, when=NEW), put(numbered, when=NEW)]
        # A writer that raises the floor now does not see the topic yet.
        self._table.write([*writes, _check_floor(FLOOR_KEY, floor)])

    def find_topic(self, name: str) -> LogTopic | None:
        item = self._table.get_one(topic_key(name))
        return None if item is None else items.topic(item)

    def list_topics(self) -> list[LogTopic]:
        return [items.topic(item) for item in self._table.query(TOPICS)]

    def delete_topic(self, topic_uid: int) -> bool:
        """Commits read the topic's item: new ones are refused from now on. Commits that read it before are
        refused because the heads are gone, or are done before the topic is deleted.
        """
        deleted = self._mark_deleted(topic_uid)
        self._delete_heads(topic_uid)
        return deleted

    @again_if_overtaken
    def _mark_deleted(self, topic_uid: int) -> bool:
        names = [topic.name for topic in self.list_topics() if topic.uid == topic_uid]
        if not names:
            return False
        self._table.write(
            [
                delete(topic_key(names[0]), when="uid = :uid", uid=topic_uid),
                update(uid_key(topic_uid), "SET deleted_topic = :yes", when=_THERE, yes=1),
                put(keyed(headless_key(topic_uid))),
                put(keyed(deleted_key(topic_uid))),
            ]
        )
        return True

    def deleted_topics(self) -> list[int]:
        return [int(item["sk"]) for item in self._table.query(DELETED)]

    def purge_topic(self, topic_uid: int) -> bool:
        """Removes the remains of a deleted topic, partition by partition."""
        item = self._table.get_one(uid_key(topic_uid))
        if item is None or self._table.get_one(deleted_key(topic_uid)) is None:
            return False
        self._delete_heads(topic_uid)
        for partition in range(item["partitions"]):
            while self._purge_chunks(topic_uid, partition):
                pass
        names = {each["sk"] for each in self._table.query(groups_of(topic_uid))}
        names |= {state.group for state in self.groups(topic_uid)}
        for name in names:
            self._purge_group(name, topic_uid)
        self._delete_all(map(key_of, self._table.query(sources_of(topic_uid))))
        self._delete_all([uid_key(topic_uid), deleted_key(topic_uid), headless_key(topic_uid)])
        return False

    @again_if_overtaken
    def _purge_chunks(self, topic_uid: int, partition: int) -> bool:
        pk = chunks_of(topic_uid, partition)
        chunks = [*map(items.chunk, self._table.query(pk, limit=self.max_chunks_per_commit))]
        if chunks:
            deletes = [_delete_chunk(topic_uid, chunk) for chunk in chunks]
            self._table.write([*deletes, *objects.unrefer(self._table, topic_uid, chunks)])
        return bool(chunks)

    def _delete_heads(self, topic_uid: int) -> None:
        keys = map(key_of, self._table.query(heads_of(topic_uid)))
        self._delete_all([key for key in keys if key != headless_key(topic_uid)])

    def _delete_all(self, keys: Iterable[Key]) -> None:
        for part in _fitting(list(keys)):
            self._delete_some(part)

    @again_if_overtaken
    def _delete_some(self, keys: Sequence[Key]) -> None:
        self._table.write([delete(key) for key in keys])

    def _partitions(self, topic_uid: int) -> range:
        """The partitions of a topic, which never change; none if there is no such topic."""
        if topic_uid not in self._partition_counts:
            item = self._table.get_one(uid_key(topic_uid))
            if item is None:
                return range(0)
            self._partition_counts[topic_uid] = item["partitions"]
        return range(self._partition_counts[topic_uid])

    # Appending and reading

    @again_if_overtaken
    def commit(
        self,
        object_name: str,
        chunks: Sequence[NewChunk],
        *,
        now_ms: int,
        source: Source | None = None,
    ) -> list[int]:
        self._check_count(chunks)
        keys = [head_key(chunk.topic_uid, chunk.partition) for chunk in chunks]
        topics = [uid_key(chunk.topic_uid) for chunk in chunks]
        others = [(sources_of(source.topic_uid), source.prefix)] if source else []
        found = self._table.get([object_key(object_name), *keys, *topics, *others])
        if known := found.get(object_key(object_name)):
            return objects.settle(known)
        for chunk, topic in zip(chunks, topics, strict=True):
            _check_partition(chunk, found.get(topic))
        for key in [*keys, *topics, *others]:
            _check_name(object_name, found.get(key))
        absent = {
            key: found[topic] for key, topic in zip(keys, topics, strict=True) if key not in found
        }
        made = {key_of(topic): topic for topic in absent.values()}
        if len(made) > _MOST_TOPICS_MADE:
            self._make_heads(absent)
            raise Overtaken
        given: list[int] = []
        writes: list[Write] = []
        for key, chunk in zip(keys, chunks, strict=True):
            head = found.get(key, _NOTHING)
            first, at_ms = head["next_sequence"], max(head["appended_ms"], now_ms)
            ends = {"next_sequence": first + chunk.events, "appended_ms": at_ms}
            if key in absent:
                writes.append(_new_head(key, absent[key], **ends))
            else:
                writes.append(_advance(key, first, object_name, **ends))
            item = chunk_item(chunk, object_name, first_sequence=first, appended_ms=at_ms)
            writes.append(put(item, when=NEW))
            given.append(first)
        writes.append(objects.claim(object_name, refs=len(chunks), given=given))
        writes += [_check_floor(key, topic, _THERE) for key, topic in made.items()]
        if source is not None:
            writes.append(_settle_source(others[0], found.get(others[0]), source))
        self._table.write(writes)
        return given

    def _make_heads(self, absent: Mapping[Key, Item]) -> None:
        """Makes heads apart, where a transaction cannot check the topics of all of them."""
        for part in _fitting(list(absent.items()), _FITTING // 2):
            topics = {key_of(topic): topic for _, topic in part}
            checks = [_check_floor(key, topic, _THERE) for key, topic in topics.items()]
            try:
                self._table.write([*(_new_head(key, topic) for key, topic in part), *checks])
            except OutcomeUnknown as error:
                raise StoreUnavailable(f"{error}; nothing was appended") from error

    def was_committed(self, object_name: str) -> bool | None:
        item = self._table.get_one(object_key(object_name))
        return None if item is None else objects.was_committed(item)

    def heads(self, topic_uid: int) -> list[Head]:
        partitions = self._partitions(topic_uid)
        found = {int(head["sk"]): head for head in self._heads(topic_uid)}
        if not found and not self._is_there(topic_uid):
            return []
        heads = ((partition, found.get(partition, _NOTHING)) for partition in partitions)
        return [
            Head(partition, head["first_sequence"], head["next_sequence"])
            for partition, head in heads
        ]

    def _heads(self, topic_uid: int) -> list[Item]:
        """Returns the written ones; none if the topic is deleted."""
        found = self._table.query(heads_of(topic_uid))
        return [] if found and found[-1]["sk"] == DELETED else found

    def _is_there(self, topic_uid: int) -> bool:
        item = self._table.get_one(uid_key(topic_uid))
        return item is not None and "deleted_topic" not in item

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
            if head is None and not self._is_there(topic_uid):
                return []
            if head is None or head["first_sequence"] < chunks[0].first_sequence:
                raise Overtaken  # earlier chunks are not trimmed, but not visible yet
        return chunks[:limit]

    def sequence_at(self, topic_uid: int, partition: int, ts: int) -> int:
        """Binary search, since times grow with the sequence. It begins at the oldest chunk, where retention
        most often ends.
        """
        head = self._table.get_one(head_key(topic_uid, partition)) or _NOTHING
        low = middle = head["first_sequence"]
        high = head["next_sequence"]
        while low < high:
            chunks = self.chunks(topic_uid, partition, from_sequence=middle, limit=1)
            if not chunks:
                high = middle  # it is trimmed, or not visible yet; reading too much loses nothing
            elif chunks[0].appended_ms < ts:
                low = _end(chunks[0])
            elif chunks[0].first_sequence > middle:
                return chunks[0].first_sequence  # earlier chunks were trimmed meanwhile
            else:
                high = chunks[0].first_sequence
            middle = (low + high) // 2
        return int(high)

    # Groups

    @again_if_overtaken
    def open_group(self, group: str, topic_uid: int, *, uid: int) -> int:
        key = group_key(topic_uid, group)
        item = self._table.get_one(key)
        if item is not None and "deleted_group" not in item:
            return int(item["group_uid"])
        if item is not None:
            self._purge_group(group, topic_uid)
        if not self._is_there(topic_uid):
            raise TopicNotFound(f"there is no topic {topic_uid}")
        made = put(keyed(key, group_uid=uid), when=NEW)
        self._table.write([made, check(uid_key(topic_uid), when=_THERE)])
        return uid

    def delete_group(self, group: str, topic_uid: int) -> bool:
        """A group is deleted once its item says so. Its remains are removed before its name is used again."""
        item = self._table.get_one(group_key(topic_uid, group))
        progress = [state for state in self.groups(topic_uid) if state.group == group]
        if item is None and not progress:
            return False
        self._purge_group(group, topic_uid)
        return item is None or "deleted_group" not in item

    def _purge_group(self, group: str, topic_uid: int) -> None:
        key = group_key(topic_uid, group)
        self._mark_group_deleted(key)
        cursors_left = (
            key_of(each)
            for each in self._table.query(cursors_of(topic_uid))
            if each["sk"].rpartition("#")[0] == group
        )
        self._delete_all(cursors_left)
        self._delete_all(map(key_of, self._table.query(members_of(topic_uid, group))))
        with suppress(Overtaken):  # another process did the same, and a new group may exist
            self._table.write([delete(key, when="attribute_exists(deleted_group)")])

    @again_if_overtaken
    def _mark_group_deleted(self, key: Key) -> None:
        self._table.write([put(keyed(key, group_uid=0, deleted_group=1))])

    @again_if_overtaken
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
        if group_uid is not None:
            item = self._table.get_one(group_key(topic_uid, group))
            cursors.check_group(group, item, group_uid)
        pk = members_of(topic_uid, group)
        self._table.write([put(keyed((pk, member), until_ms=until_ms))])
        members = self._table.query(pk)
        gone = [key_of(each) for each in members if each["until_ms"] <= now_ms]
        with suppress(Overtaken):  # a reader returned, or another process forgets them
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
        group_uid: int | None = None,
    ) -> list[Hold]:
        there = self._partitions(topic_uid)
        wanted = [
            Hold(group, topic_uid, partition, holder, 0, until_ms, 0)
            for partition in partitions
            if partition in there
        ]
        parts = (
            cursors.take(self._table, part, now_ms=now_ms, group_uid=group_uid)
            for part in _fitting(wanted, _FITTING - 1)
        )
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
        item = self._table.get_one(group_key(topic_uid, group))
        if item is not None and "deleted_group" in item:
            self._purge_group(group, topic_uid)
        for part in _fitting(list(sequences.items())):
            cursors.seek(self._table, group, topic_uid, dict(part))

    # Notices

    def begin_notice(
        self, topic_uid: int, partition: int, *, max_latency_ms: int, now_ms: int
    ) -> AppendNotice | int | None:
        done, head = self._table.update(
            head_key(topic_uid, partition),
            "SET told_since_ms = :now",
            when="told < next_sequence AND (told_since_ms = :zero OR told_since_ms <= :over "
            "OR told_since_ms > :never)",
            repeat=False,  # it would look like another waiting process
            now=now_ms,
            zero=0,
            over=now_ms - max_latency_ms,
            never=now_ms + max_latency_ms,
        )
        if done:
            return AppendNotice(topic_uid, partition, head["next_sequence"], now_ms)
        if not head or head["told"] >= head["next_sequence"]:
            return None
        return int(head["told_since_ms"]) + max_latency_ms

    def end_notice(self, notice: AppendNotice, *, now_ms: int) -> AppendNotice | None:
        """Tries both writes, of which a condition selects one: an append may come in between."""
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
        """As above: a condition selects one of two writes, and the end of a notice may come in between."""
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
        fitting = _fitting(names, _FITTING // 2)  # each with its item under `gone`
        parts = (objects.sweep(self._table, part, now_ms=now_ms) for part in fitting)
        return [name for part in parts for name in part]

    @again_if_overtaken
    def trim(self, topic_uid: int, partition: int, *, before_sequence: int) -> int:
        key = head_key(topic_uid, partition)
        head = self._table.get_one(key)
        if head is None:
            return 0  # nothing was appended yet, or the topic is deleted
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
            raise Overtaken  # earlier chunks are not visible yet
        left = _end(doomed[-1])
        change = "SET first_sequence = :left"
        self._table.write(
            [
                update(key, change, when="first_sequence = :seen", left=left, seen=first),
                *(_delete_chunk(topic_uid, chunk) for chunk in doomed),
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
        head = head_key(topic_uid, partition)
        found = self._table.get([object_key(object_name), head, *keys])
        if head not in found or object_name < found[head].get("lowest_name", ""):
            return False  # the topic is deleted, or the object was swept and is forgotten
        present = [items.chunk(found[key]) for key in keys if key in found]
        if object_key(object_name) in found or _joined(present, first.first_sequence) != list(old):
            return False
        # It counts as appended when the last of its events was: a start at a later time misses none.
        item = chunk_item(
            new,
            object_name,
            first_sequence=first.first_sequence,
            appended_ms=last.appended_ms,
        )
        self._table.write(
            [
                objects.claim(object_name, refs=1, given=[first.first_sequence]),
                check(head, when=f"attribute_exists(pk) AND {_NOT_BELOW_FLOOR}", name=object_name),
                put(item, when=_SAME_OBJECT, object=first.object_name),
                *(_delete_chunk(topic_uid, chunk) for chunk in old[1:]),
                *objects.unrefer(self._table, topic_uid, old),
            ]
        )
        return True

    def unreferenced(self, limit: int) -> list[str]:
        return objects.unreferenced(self._table, limit)

    def forget(self, names: Sequence[str]) -> None:
        # Each with its list, and its item under `gone`.
        for part in _fitting(names, _FITTING // 3):
            objects.forget(self._table, part)

    def raise_floor(self, floor: str) -> None:
        """Raises the floor of new topics first, then of existing ones and their heads; only then names are
        forgotten.
        """
        if self._table.get_one(FLOOR_KEY) is None:
            objects.list_gone(self._table)
            self._raise(FLOOR_KEY, "", when=NEW)
        if not objects.gone_before(self._table, floor, 1):
            return
        self._raise(FLOOR_KEY, floor)
        for topic in self.list_topics():
            self._raise(uid_key(topic.uid), floor, when=_THERE)
            for head in self._heads(topic.uid):
                self._raise(key_of(head), floor)
        when = "attribute_not_exists(reached) OR reached < :floor"
        self._table.update(FLOOR_KEY, "SET reached = :floor", when=when, repeat=True, floor=floor)

    def _raise(self, key: Key, floor: str, *, when: str = "attribute_exists(pk)") -> None:
        when = f"{when} AND {_LOWER_FLOOR}"
        self._table.update(key, "SET lowest_name = :floor", when=when, repeat=True, floor=floor)

    def forget_names(self, limit: int) -> int:
        floor = (self._table.get_one(FLOOR_KEY) or {}).get("reached", "")
        names = objects.gone_before(self._table, floor, limit) if floor else []
        for topic in self.list_topics():
            for source in self._table.query(sources_of(topic.uid)):
                if len(names) < limit:
                    names += objects.gone_before(
                        self._table,
                        source["lowest_name"],
                        limit - len(names),
                        prefix=source["sk"],
                    )
        for part in _fitting(names, _FITTING // 2):
            objects.erase(self._table, part)
        return len(names)

    def close(self) -> None:
        self._table.close()

    def _check_count(self, chunks: Sequence[object]) -> None:
        if len(chunks) > _MOST_CHUNKS:
            raise InvalidInput(
                f"{len(chunks)} chunks are more than a transaction of DynamoDB takes; at most {_MOST_CHUNKS}"
            )


def _check_partition(chunk: NewChunk, topic: Item | None) -> None:
    if (
        topic is None
        or "deleted_topic" in topic
        or chunk.partition not in range(topic["partitions"])
    ):
        raise TopicNotFound(f"topic {chunk.topic_uid} has no partition {chunk.partition}")


def _check_name(object_name: str, item: Item | None) -> None:
    floor = (item or {}).get("lowest_name", "")
    if object_name < floor:
        raise ObjectTooOld(floor)


def _floor_of(item: Item | None) -> Item:
    """The floor that an item has, for another that takes it over."""
    return {"lowest_name": item["lowest_name"]} if item and "lowest_name" in item else {}


def _check_floor(key: Key, seen: Item | None, when: str = "") -> Write:
    """The condition that an item still has the floor that was read."""
    floor = _floor_of(seen)
    same = "lowest_name = :floor" if floor else "attribute_not_exists(lowest_name)"
    values = {"floor": floor["lowest_name"]} if floor else {}
    return check(key, when=f"{when} AND {same}" if when else same, **values)


def _settle_source(key: Key, seen: Item | None, source: Source) -> Write:
    """Raises the floor of a source, if it is as it was read."""
    before = (seen or {}).get("lowest_name", "")
    item = keyed(key, lowest_name=max(before, source.floor))
    if seen is None:
        return put(item, when=NEW)
    return put(item, when="lowest_name = :before", before=before)


def _new_head(key: Key, topic: Item, **ends: int) -> Write:
    """The first commit makes a head, with the floor of its topic, which has to be checked beside it."""
    return put(keyed(key, **_NOTHING | _floor_of(topic) | ends), when=NEW)


def _advance(key: Key, seen: int, name: str, *, next_sequence: int, appended_ms: int) -> Write:
    """Assigns the next sequences of a partition."""
    return update(
        key,
        "SET next_sequence = :next_sequence, appended_ms = :appended_ms",
        when=f"next_sequence = :seen AND {_NOT_BELOW_FLOOR}",
        seen=seen,
        name=name,
        next_sequence=next_sequence,
        appended_ms=appended_ms,
    )


def _delete_chunk(topic_uid: int, chunk: Chunk) -> Write:
    key = chunk_key(topic_uid, chunk.partition, chunk.first_sequence)
    return delete(key, when=_SAME_OBJECT, object=chunk.object_name)


def _end(chunk: Chunk) -> int:
    return chunk.first_sequence + chunk.events


def _joined(chunks: Iterable[Chunk], from_sequence: int) -> list[Chunk]:
    """The chunks that end after a sequence, without those that a concurrent change hides or doubles."""
    joined: list[Chunk] = []
    for chunk in chunks:
        if joined and chunk.first_sequence > _end(joined[-1]):
            break  # one in between is not visible yet
        if _end(chunk) > (_end(joined[-1]) if joined else from_sequence):
            joined.append(chunk)
    return joined


def _fitting(batch: Sequence[Each], size: int = _FITTING) -> Iterator[Sequence[Each]]:
    for start in range(0, len(batch), size):
        yield batch[start : start + size]
