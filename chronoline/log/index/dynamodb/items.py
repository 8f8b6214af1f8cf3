"""The items of the table: their keys, and how values are written.

| `pk` | `sk` | item |
| --- | --- | --- |
| `schema` | `version` | the version of this layout |
| `topics` | name | a topic |
| `uids` | uid | its partitions; so that a uid is taken once. With `deleted_topic` it takes no events |
| `deleted` | uid | a topic that was deleted and of which something is left |
| `heads#uid` | partition | the ends of a partition, and how far its events are announced |
| `chunks#uid#partition` | first sequence | a chunk |
| `object#name` | `object` | how many chunks lie in it, and what its commit was answered |
| `garbage` | uid, partition, object | names of objects that one change left without chunks |
| `cursors#uid` | group, partition | a group's progress, and who holds the partition |
| `members#uid#group` | member | a reader that is there |
| `groups#uid` | group | its uid, which tells it from a later group of its name |
| `gone` | name | an object that was swept or collected; so that those before a floor are found |
| `floor` | `floor` | names before it are refused unless they are known; `reached` by all heads |
| `sources#uid` | prefix | the same for the names of one source of keyed appends |

The first write makes a head, or a cursor: a topic of 4,096 partitions is two items. A head is
made with the floor of its topic, which is checked in the same transaction. From then on its own floor counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from chronoline.log.contract import Chunk, Hold, LogTopic, NewChunk

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import AttributeValueTypeDef

Key: TypeAlias = tuple[str, str]
Item: TypeAlias = dict[str, Any]
"""By attribute: a number, a text, a list of numbers, or a set of texts."""

SCHEMA_KEY = ("schema", "version")
TOPICS = "topics"
GARBAGE = "garbage"
GONE = "gone"
DELETED = "deleted"
FLOOR_KEY = ("floor", "floor")


def topic_key(name: str) -> Key:
    return TOPICS, name


def uid_key(topic_uid: int) -> Key:
    return "uids", str(topic_uid)


def deleted_key(topic_uid: int) -> Key:
    return DELETED, str(topic_uid)


def gone_key(name: str) -> Key:
    return GONE, name


def sources_of(topic_uid: int) -> str:
    return f"sources#{topic_uid}"


def groups_of(topic_uid: int) -> str:
    return f"groups#{topic_uid}"


def group_key(topic_uid: int, group: str) -> Key:
    return groups_of(topic_uid), group


def heads_of(topic_uid: int) -> str:
    return f"heads#{topic_uid}"


def head_key(topic_uid: int, partition: int) -> Key:
    return heads_of(topic_uid), f"{partition:04}"


def headless_key(topic_uid: int) -> Key:
    """An item among the heads of a topic, which marks the topic as deleted."""
    return heads_of(topic_uid), DELETED


def chunks_of(topic_uid: int, partition: int) -> str:
    return f"chunks#{topic_uid}#{partition}"


def sequence_key(sequence: int) -> str:
    """Texts in the order of their numbers."""
    return f"{sequence:019}"


def chunk_key(topic_uid: int, partition: int, first_sequence: int) -> Key:
    return chunks_of(topic_uid, partition), sequence_key(first_sequence)


def object_key(name: str) -> Key:
    return f"object#{name}", "object"


def garbage_key(topic_uid: int, chunk: Chunk) -> Key:
    """Used once: an object has one chunk in a partition, which is deleted once."""
    return GARBAGE, f"{topic_uid}#{chunk.partition}#{chunk.object_name}"


def cursors_of(topic_uid: int) -> str:
    return f"cursors#{topic_uid}"


def cursor_key(topic_uid: int, group: str, partition: int) -> Key:
    return cursors_of(topic_uid), f"{group}#{partition:04}"


def held_key(hold: Hold) -> Key:
    return cursor_key(hold.topic_uid, hold.group, hold.partition)


def members_of(topic_uid: int, group: str) -> str:
    return f"members#{topic_uid}#{group}"


# Items


def keyed(key: Key, **values: Any) -> Item:
    return {"pk": key[0], "sk": key[1], **values}


def key_of(item: Item) -> Key:
    return item["pk"], item["sk"]


def topic(item: Item) -> LogTopic:
    return LogTopic(uid=item["uid"], name=item["sk"], partitions=item["partitions"])


def chunk_item(new: NewChunk, object_name: str, *, first_sequence: int, appended_ms: int) -> Item:
    return keyed(
        chunk_key(new.topic_uid, new.partition, first_sequence),
        events=new.events,
        object_name=object_name,
        start=new.offset,
        size=new.length,
        appended_ms=appended_ms,
    )


def chunk(item: Item) -> Chunk:
    return Chunk(
        partition=int(item["pk"].rpartition("#")[2]),
        first_sequence=int(item["sk"]),
        events=item["events"],
        object_name=item["object_name"],
        offset=item["start"],
        length=item["size"],
        appended_ms=item["appended_ms"],
    )


# Values


def encode(values: Mapping[str, Any]) -> dict[str, AttributeValueTypeDef]:
    return {name: _encoded(value) for name, value in values.items()}


def decode(values: Mapping[str, Any]) -> Item:
    return {name: _decoded(value) for name, value in values.items()}


def encode_key(key: Key) -> dict[str, AttributeValueTypeDef]:
    return encode({"pk": key[0], "sk": key[1]})


def encode_keys(keys: Iterable[Key]) -> list[dict[str, AttributeValueTypeDef]]:
    return [encode_key(key) for key in keys]


def _encoded(value: int | str | list[int] | set[str]) -> AttributeValueTypeDef:
    match value:
        case int():
            return {"N": str(value)}
        case str():
            return {"S": value}
        case list():
            return {"L": [_encoded(each) for each in value]}
    return {"SS": sorted(value)}


def _decoded(value: Mapping[str, Any]) -> int | str | list[Any] | set[str]:
    ((kind, plain),) = value.items()
    match kind:
        case "N":
            return int(plain)
        case "L":
            return [_decoded(each) for each in plain]
        case "SS":
            return set(plain)
    return str(plain)
