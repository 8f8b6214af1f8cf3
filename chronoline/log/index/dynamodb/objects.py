"""Objects, with the number of their chunks.

An object's item stays until its name is below a floor: the name of a swept object stays refused, and the
item of a collected one still has the answer of its commit. A change that leaves objects without chunks
lists them in one item, by which they are found again; each removed object has an item under `gone`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from chronoline.log.contract import Chunk, ObjectSwept
from chronoline.log.index.dynamodb.items import (
    FLOOR_KEY,
    GARBAGE,
    GONE,
    Item,
    Key,
    garbage_key,
    gone_key,
    key_of,
    keyed,
    object_key,
)
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

_SWEPT = -1
_COLLECTED = -2


def claim(name: str, *, refs: int, given: list[int]) -> Write:
    """Notes that an object is committed; a name is committed once."""
    return put(keyed(object_key(name), refs=refs, given=given), when=NEW)


def settle(item: Item) -> list[int]:
    """The answer of an earlier commit."""
    if not was_committed(item):
        raise ObjectSwept
    return list(item["given"])


def was_committed(item: Item) -> bool:
    return bool(item["refs"] != _SWEPT)


@again_if_overtaken
def sweep(table: Table, names: Sequence[str], *, now_ms: int) -> list[str]:
    """Refuses the uncommitted names; returns the refused ones. Below the floor all are."""
    found = table.get([FLOOR_KEY, *map(object_key, names)])
    reached = found.pop(FLOOR_KEY, {}).get("reached", "")
    new = {name for name in names if object_key(name) not in found}
    swept = sorted(name for name in new if name >= reached)
    table.write(
        [
            *(
                put(keyed(object_key(name), refs=_SWEPT, swept_ms=now_ms), when=NEW)
                for name in swept
            ),
            *(put(keyed(gone_key(name))) for name in swept),
        ]
    )
    refused = {key for key, item in found.items() if item["refs"] < 0}
    return [name for name in names if name in new or object_key(name) in refused]


def unrefer(table: Table, topic_uid: int, deleted: Sequence[Chunk]) -> list[Write]:
    """Subtracts the chunks that these objects lose, and lists the objects without chunks."""
    counts = Counter(chunk.object_name for chunk in deleted)
    found = table.get(map(object_key, counts))
    if len(found) < len(counts):
        raise Overtaken  # a commit under way: its chunk is visible and its object not yet
    place = garbage_key(topic_uid, deleted[0])
    garbage = set()
    writes = []
    for name, count in counts.items():
        key = object_key(name)
        seen = found[key]["refs"]
        change = "SET refs = :left"
        values = {"left": seen - count, "seen": seen}
        if seen == count:
            garbage.add(name)
            change += ", listed = :listed"
            values["listed"] = place[1]
        writes.append(update(key, change, when="refs = :seen", **values))
    if garbage:
        writes.append(put(keyed(place, object_names=garbage), when=NEW))
    return writes


def unreferenced(table: Table, limit: int) -> list[str]:
    names = [name for item in table.query(GARBAGE, limit=limit) for name in item["object_names"]]
    return sorted(names)[:limit]


@again_if_overtaken
def forget(table: Table, names: Sequence[str]) -> None:
    """Marks objects without chunks as gone, and removes them from the lists."""
    found = table.get(map(object_key, names))
    gone: dict[Key, set[str]] = defaultdict(set)
    for name in names:
        item = found.get(object_key(name))
        if item is not None and item["refs"] == 0:
            gone[GARBAGE, item["listed"]].add(name)
    lists = table.get(gone)
    if len(lists) < len(gone):
        raise Overtaken  # another process forgets the same
    writes = [
        update(
            object_key(name),
            "SET refs = :collected REMOVE listed",
            when="refs = :zero",
            collected=_COLLECTED,
            zero=0,
        )
        for some in gone.values()
        for name in some
    ]
    writes += [put(keyed(gone_key(name))) for some in gone.values() for name in some]
    writes += [_shorten(item, gone[key_of(item)]) for item in lists.values()]
    table.write(writes)


def gone_before(table: Table, floor: str, limit: int, *, prefix: str = "") -> list[str]:
    """Objects that are gone, with names before a floor that begin with a prefix."""
    found = table.query(GONE, ("<", floor), limit=limit, backwards=True)
    return [item["sk"] for item in found if item["sk"] >= prefix]


@again_if_overtaken
def erase(table: Table, names: Sequence[str]) -> None:
    """Deletes all that is known of objects that are gone."""
    gone = "attribute_not_exists(pk) OR refs < :zero"
    table.write(
        [
            *(delete(object_key(name), when=gone, zero=0) for name in names),
            *(delete(gone_key(name)) for name in names),
        ]
    )


def list_gone(table: Table) -> None:
    """Lists objects that were gone before there was a list."""
    for item in table.scan("begins_with(pk, :object) AND refs < :zero", object="object#", zero=0):
        _list_one(table, item["pk"].partition("#")[2])


@again_if_overtaken
def _list_one(table: Table, name: str) -> None:
    table.write([put(keyed(gone_key(name)))])


def _shorten(item: Item, gone: set[str]) -> Write:
    left = item["object_names"] - gone
    if not left:
        return delete(key_of(item), when="object_names = :seen", seen=item["object_names"])
    return update(
        key_of(item),
        "SET object_names = :left",
        when="object_names = :seen",
        left=left,
        seen=item["object_names"],
    )
