"""Progress of groups, and the holds under which it is written: a cursor for each partition of a group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from chronoline.log.contract import GroupNotFound, GroupState, Hold
from chronoline.log.index.dynamodb.items import (
    Item,
    Key,
    cursor_key,
    cursors_of,
    group_key,
    groups_of,
    head_key,
    held_key,
    keyed,
)
from chronoline.log.index.dynamodb.table import (
    NEW,
    Table,
    Write,
    again_if_overtaken,
    check,
    put,
    update,
)

_OURS = "fence = :fence AND holder = :holder"
_LIVE = f"{_OURS} AND until_ms > :now"
_SAME_GROUP = "group_uid = :uid AND attribute_not_exists(deleted_group)"


@again_if_overtaken
def take(table: Table, wanted: Sequence[Hold], *, now_ms: int, group_uid: int | None) -> list[Hold]:
    """Takes the partitions without a holder, each under the next fence and with its stored progress.

    A deleted group takes its cursors with it, so the group is checked where a cursor is made.
    """
    group = group_key(wanted[0].topic_uid, wanted[0].group)
    cursors = table.get([group, *map(held_key, wanted)])
    check_group(wanted[0].group, cursors.pop(group, None), group_uid)
    new = [hold for hold in wanted if held_key(hold) not in cursors]
    heads = table.get(head_key(hold.topic_uid, hold.partition) for hold in new)
    taken, writes = [], []
    for hold in wanted:
        key = held_key(hold)
        cursor = cursors.get(key)
        if cursor is None:
            head = heads.get(head_key(hold.topic_uid, hold.partition))
            mine = hold._replace(fence=1, sequence=head["first_sequence"] if head else 0)
            writes.append(_taken(key, mine, None))
        elif cursor.get("holder") in (None, hold.holder) or cursor["until_ms"] <= now_ms:
            mine = hold._replace(fence=cursor["fence"] + 1, sequence=cursor["next_sequence"])
            writes.append(_taken(key, mine, cursor))
        else:
            continue
        taken.append(mine)
    if new and group_uid is not None:
        writes.append(check(group, when=_SAME_GROUP, uid=group_uid))
    table.write(writes)
    return taken


def check_group(group: str, item: Item | None, group_uid: int | None) -> None:
    """Raises `GroupNotFound` if the group was deleted."""
    if group_uid is not None and not is_group(item, group_uid):
        raise GroupNotFound(f"group {group!r} was deleted")


def is_group(item: Item | None, group_uid: int) -> bool:
    return item is not None and item["group_uid"] == group_uid and "deleted_group" not in item


def _taken(key: Key, hold: Hold, seen: Item | None) -> Write:
    item = keyed(
        key,
        holder=hold.holder,
        fence=hold.fence,
        until_ms=hold.until_ms,
        next_sequence=hold.sequence,
    )
    if seen is None:
        return put(item, when=NEW)
    return put(
        item,
        when="fence = :fence AND until_ms = :until AND next_sequence = :next",
        fence=seen["fence"],
        until=seen["until_ms"],
        next=seen["next_sequence"],
    )


@again_if_overtaken
def renew(table: Table, holds: Sequence[Hold], *, until_ms: int, now_ms: int) -> list[Hold]:
    cursors = table.get(map(held_key, holds))
    live = [
        hold
        for hold in holds
        if _is_ours(hold, cursors) and cursors[held_key(hold)]["until_ms"] > now_ms
    ]
    table.write(
        [
            update(
                held_key(hold),
                "SET until_ms = :until",
                when=_LIVE,
                until=until_ms,
                now=now_ms,
                **_named(hold),
            )
            for hold in live
        ]
    )
    return [
        hold._replace(until_ms=until_ms, sequence=cursors[held_key(hold)]["next_sequence"])
        for hold in live
    ]


def progress(table: Table, hold: Hold, sequence: int, *, now_ms: int) -> Hold | None:
    done, cursor = table.update(
        held_key(hold),
        "SET next_sequence = :next",
        when=f"{_LIVE} AND next_sequence <= :next",
        repeat=True,
        next=sequence,
        now=now_ms,
        **_named(hold),
    )
    return hold._replace(until_ms=cursor["until_ms"], sequence=sequence) if done else None


@again_if_overtaken
def let_go(table: Table, holds: Sequence[Hold]) -> None:
    cursors = table.get(map(held_key, holds))
    change = "SET until_ms = :zero REMOVE holder"
    table.write(
        [
            update(held_key(hold), change, when=_OURS, zero=0, **_named(hold))
            for hold in holds
            if _is_ours(hold, cursors)
        ]
    )


@again_if_overtaken
def seek(table: Table, group: str, topic_uid: int, sequences: Mapping[int, int]) -> None:
    change = (
        "SET next_sequence = :next, until_ms = :zero, fence = if_not_exists(fence, :zero) + :one "
        "REMOVE holder"
    )
    table.write(
        [
            update(cursor_key(topic_uid, group, partition), change, next=sequence, zero=0, one=1)
            for partition, sequence in sequences.items()
        ]
    )


def groups(table: Table, topic_uid: int) -> list[GroupState]:
    deleted = {item["sk"] for item in table.query(groups_of(topic_uid)) if "deleted_group" in item}
    states = map(_state, table.query(cursors_of(topic_uid)))
    return sorted((each for each in states if each.group not in deleted), key=lambda each: each[:2])


def _state(cursor: Item) -> GroupState:
    group, _, partition = cursor["sk"].rpartition("#")
    return GroupState(
        group,
        int(partition),
        cursor["next_sequence"],
        cursor.get("holder"),
        cursor["until_ms"],
    )


def _is_ours(hold: Hold, cursors: Mapping[Key, Item]) -> bool:
    cursor = cursors.get(held_key(hold), {})
    return (cursor.get("fence"), cursor.get("holder")) == (hold.fence, hold.holder)


def _named(hold: Hold) -> dict[str, int | str]:
    return {"fence": hold.fence, "holder": hold.holder}
