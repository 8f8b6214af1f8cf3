"""Pages of the messages that a filter means, each by the index that fits the filter best.

| the filter names | index | order |
| --- | --- | --- |
| a holder | `messages_held` | id; for people position, id |
| a producer group | `messages_owned` | id; for people position, id |
| the beginning of the id | the key; for changes `messages_owned` | bucket, id; for changes group, id |
| times, or nothing | `messages_due`; nothing, for changes, `messages_owned` | position, id; group, id |

For people at most `_MOST_LOOKED` messages of a holder or a group are read and sorted; of more the whole
topic is read by position.

A page looks at a bounded number of messages, whatever the filter leaves of them, so that no call lasts long.
It may hold fewer messages than it could, or none, although there are more: `next` says so.

`sweep` is for changes of all messages of a filter. Where it can, it reads in the order of ids, which no
change of a message moves, so that a message that is rescheduled is not met again. It goes from group to
group: ids that follow each other were often created together, and lie together on the disk. By bucket the
messages of a batch lie on as many pages, and each page is written many times.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from chronoline.core.filters import ListPlace, MessageFilter
from chronoline.core.message import DeadLetter, Message
from chronoline.core.ranges import BucketRange
from chronoline.stores.contract import MAX_BATCH, Page, Store

_MOST_LOOKED = 10_000
_LEAST_CHUNK = 200
_MOST_GROUPS = 100
"""The most producer groups that a page looks through."""

Item = TypeVar("Item", Message, DeadLetter)
Read = Callable[[ListPlace | None, int], Page]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found(Generic[Item]):
    """The items of a page."""

    items: tuple[Item, ...]
    looked: int
    """The number of messages or letters that were compared with the filter."""
    next: ListPlace | None
    """Where the next page begins; None at the end."""


def browse(
    store: Store,
    topic_uid: int,
    wanted: MessageFilter,
    *,
    after: ListPlace | None = None,
    limit: int,
    now_ms: int,
) -> Found[Message]:
    """A page for people: by position, or by key if the filter names the beginning of the id alone."""
    by_name = _by_name(store, topic_uid, wanted)
    if by_name is not None:
        read = _sorted(store, topic_uid, wanted, by_name) or _by_position(store, topic_uid, wanted)
    elif wanted.prefix:
        read = _by_key(store, topic_uid, wanted)
    else:
        read = _by_position(store, topic_uid, wanted)
    return _page(read, wanted, after, limit, now_ms)


def sweep(
    store: Store,
    topic_uid: int,
    wanted: MessageFilter,
    *,
    after: ListPlace | None = None,
    limit: int,
    now_ms: int,
) -> Found[Message]:
    """A page for changes: at most `limit` messages are looked at, all in one read."""
    read = _by_name(store, topic_uid, wanted)
    if read is None and wanted.has_times and not wanted.prefix:
        read = _by_cell(store, topic_uid, wanted)
    if read is None and (after is None or after.group):
        seen, next_place = _sweep_groups(store, topic_uid, wanted, after, limit)
    else:
        page = (read or _by_key(store, topic_uid, wanted))(after, limit)  # of an older broker
        seen = list(page.messages)
        next_place = ListPlace.of(seen[-1]) if page.more else None
    return Found(
        items=tuple(each for each in seen if wanted.matches(each, now_ms)),
        looked=len(seen),
        next=next_place,
    )


def _sweep_groups(
    store: Store, uid: int, wanted: MessageFilter, after: ListPlace | None, limit: int
) -> tuple[list[Message], ListPlace | None]:
    """A page by producer group and id, and the place of the next."""
    group = store.next_group(uid) if after is None else after.group
    seen: list[Message] = []
    for _ in range(_MOST_GROUPS):
        if not group or len(seen) == limit:
            break
        page = _owned(store, uid, replace(wanted, producer_group=group))(after, limit - len(seen))
        seen += page.messages
        if page.more:
            return seen, ListPlace.of(page.messages[-1])._replace(group=group)
        after, group = None, store.next_group(uid, after=group)
    return seen, ListPlace(0, 0, "", group) if group else None


def sweep_letters(
    store: Store,
    topic_uid: int,
    wanted: MessageFilter,
    *,
    after: ListPlace | None = None,
    limit: int,
) -> Found[DeadLetter]:
    """A page of dead letters, oldest first."""
    place = None if after is None else DeadLetter.place(after.id, after.ts)
    if place is None and wanted.start:
        place = DeadLetter.place("\x01", max(0, wanted.start - 1))
    letters = store.dead_letters(topic_uid, after=place, limit=limit)
    ended = wanted.end is not None and bool(letters) and letters[-1].died >= wanted.end
    return Found(
        items=tuple(each for each in letters if wanted.matches_letter(each)),
        looked=len(letters),
        next=ListPlace.of_letter(letters[-1]) if len(letters) == limit and not ended else None,
    )


def _page(
    read: Read, wanted: MessageFilter, after: ListPlace | None, limit: int, now_ms: int
) -> Found[Message]:
    found: list[Message] = []
    looked = 0
    while True:
        chunk = min(MAX_BATCH, max(_LEAST_CHUNK, limit - len(found)))
        page = read(after, chunk)
        looked += len(page.messages)
        for message in page.messages:
            after = ListPlace.of(message)
            if wanted.matches(message, now_ms):
                found.append(message)
                if len(found) == limit:
                    is_last = message is page.messages[-1] and not page.more
                    next_place = None if is_last else after
                    return Found(items=tuple(found), looked=looked, next=next_place)
        if not page.more or looked >= _MOST_LOOKED:
            next_place = after if page.more else None
            return Found(items=tuple(found), looked=looked, next=next_place)


def _by_name(store: Store, uid: int, wanted: MessageFilter) -> Read | None:
    """By holder or group; None if the filter names neither."""

    def held(after: ListPlace | None, limit: int) -> Page:
        behind = "" if after is None else after.id
        page = store.select_held(
            uid, wanted.consumer, after=behind, first=wanted.prefix, limit=limit
        )
        return _within(page, wanted.prefix)

    if wanted.consumer:
        return held
    return _owned(store, uid, wanted) if wanted.producer_group else None


def _owned(store: Store, uid: int, wanted: MessageFilter) -> Read:
    def read(after: ListPlace | None, limit: int) -> Page:
        behind = "" if after is None else after.id
        page = store.select_owned(
            uid, wanted.producer_group, after=behind, first=wanted.prefix, limit=limit
        )
        return _within(page, wanted.prefix)

    return read


def _sorted(store: Store, uid: int, wanted: MessageFilter, by_name: Read) -> Read | None:
    """The messages of a holder or a group by position; None if they are too many to be sorted."""
    most = _MOST_LOOKED
    is_whole_group = not wanted.consumer and not wanted.prefix
    if is_whole_group and store.count_owned(uid, wanted.producer_group, most=most + 1) > most:
        return None
    messages: list[Message] = []
    page = by_name(None, min(MAX_BATCH, most))
    messages += page.messages
    while page.more:
        if len(messages) >= most:
            return None
        page = by_name(ListPlace.of(messages[-1]), min(MAX_BATCH, most))
        messages += page.messages
    messages.sort(key=_position)

    def read(after: ListPlace | None, limit: int) -> Page:
        begin = 0 if after is None else bisect_right(messages, (after.ts, after.id), key=_position)
        return Page(
            messages=tuple(messages[begin : begin + limit]), more=begin + limit < len(messages)
        )

    return read


def _position(message: Message) -> tuple[int, str]:
    return message.ts, message.id


def _within(page: Page, prefix: str) -> Page:
    """The part of a page in the order of ids that has the prefix."""
    inside = tuple(each for each in page.messages if each.id.startswith(prefix))
    return Page(messages=inside, more=page.more and len(inside) == len(page.messages))


def _by_key(store: Store, uid: int, wanted: MessageFilter) -> Read:
    def read(after: ListPlace | None, limit: int) -> Page:
        key = None if after is None else (after.bucket, after.id)
        return store.select_prefix(uid, wanted.prefix, after=key, limit=limit)

    return read


def _by_position(store: Store, uid: int, wanted: MessageFilter) -> Read:
    def read(after: ListPlace | None, limit: int) -> Page:
        place = None if after is None else (after.ts, after.id)
        return store.select_between(
            uid, start=wanted.start, end=wanted.end, after=place, limit=limit
        )

    return read


def _by_cell(store: Store, uid: int, wanted: MessageFilter) -> Read:
    ranges = [BucketRange(0, store.get_topic(uid).settings.buckets)]

    def read(after: ListPlace | None, limit: int) -> Page:
        place = None if after is None else Message.place(after.id, after.ts, after.bucket)
        return store.scan(uid, ranges, start=wanted.start, end=wanted.end, after=place, limit=limit)

    return read
