"""Shared steps of the index tests."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TypeVar

from chronoline.log.contract import Chunk, Hold, Index, LogTopic, NewChunk

NOW = 1_800_000_000_000
PATIENCE_S = 60
TOPIC = LogTopic(uid=7 << 40, name="t", partitions=4)
OTHER = LogTopic(uid=(7 << 40) + 1, name="other", partitions=2)

Item = TypeVar("Item")
Answer = TypeVar("Answer")


def new_chunks(events: Mapping[int, int], topic_uid: int = TOPIC.uid) -> list[NewChunk]:
    """Returns consecutive chunks with this number of events for each partition."""
    return [
        NewChunk(topic_uid, partition, count, 8 + 100 * place, 10 * count)
        for place, (partition, count) in enumerate(events.items())
    ]


def append(
    index: Index,
    name: str,
    events: Mapping[int, int],
    *,
    topic_uid: int = TOPIC.uid,
    now_ms: int = NOW,
) -> list[int]:
    """Commits an object with this number of events for each partition."""
    return index.commit(name, new_chunks(events, topic_uid), now_ms=now_ms)


def fill(index: Index, chunks: int, *, events: int = 1, partition: int = 0) -> list[Chunk]:
    """Appends objects o0, o1, … with one chunk each, a millisecond apart; returns the chunks."""
    for number in range(chunks):
        append(index, f"o{number}", {partition: events}, now_ms=NOW + number)
    return all_chunks(index, partition)


def all_chunks(index: Index, partition: int = 0, topic_uid: int = TOPIC.uid) -> list[Chunk]:
    return index.chunks(topic_uid, partition, from_sequence=0, limit=10_000)


def ends(index: Index, topic_uid: int = TOPIC.uid) -> list[tuple[int, int]]:
    """The first and the next sequence of each partition."""
    return [(head.first_sequence, head.next_sequence) for head in index.heads(topic_uid)]


def merge(index: Index, old: Sequence[Chunk], name: str) -> bool:
    """Replaces some chunks by one chunk of an object, as compaction does."""
    partition, events = old[0].partition, sum(chunk.events for chunk in old)
    new = NewChunk(TOPIC.uid, partition, events, 8, 10 * events)
    return index.replace(TOPIC.uid, partition, old, name, new)


def take(
    index: Index,
    holder: str,
    *,
    partition: int = 0,
    group: str = "g",
    until_ms: int = NOW + 100,
    now_ms: int = NOW,
) -> Hold | None:
    """Takes one partition, if it is free."""
    holds = index.hold(group, TOPIC.uid, [partition], holder, until_ms=until_ms, now_ms=now_ms)
    return holds[0] if holds else None


def held(hold: Hold | None) -> Hold:
    assert hold is not None, "another holds it"
    return hold


def at_once(action: Callable[[Item], Answer], items: Sequence[Item]) -> list[Answer]:
    """Runs an action for all items at once, each in a thread; returns the results in order."""
    start = Barrier(len(items))

    def run(item: Item) -> Answer:
        start.wait(PATIENCE_S)
        return action(item)

    with ThreadPoolExecutor(len(items)) as threads:
        return list(threads.map(run, items))
