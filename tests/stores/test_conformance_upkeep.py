"""A purge removes only unneeded rows. A closed store refuses every call."""

import time
from collections.abc import Callable

import pytest

from chronoline.core.errors import InvalidInput, StoreClosed
from chronoline.core.limits import MAX_TIME_MS, SETTLED_AFTER_MS
from chronoline.core.permissions import System
from chronoline.stores.contract import Counts, Store
from chronoline.stores.memory import MemoryStore
from tests.stores.conftest import Engine
from tests.stores.line import NOW, OWNERS, Line, MakeLine, ids, leases_of, new, words
from tests.stores.test_conformance_deleted import CALLS, fill

DEDUPE = 2 * SETTLED_AFTER_MS
"""Long enough for every version to be settled when it is over."""


def test_a_purge_of_an_empty_store(store: Store) -> None:
    assert store.purge(now_ms=NOW) == 0


def test_marks_are_purged_when_their_dedupe_time_is_over(make_line: MakeLine) -> None:
    line = make_line(dedupe_ms=DEDUPE)
    line.put("acked", "cancelled")
    line.cancel("cancelled")
    line.ack(line.take())
    removed = []
    for line.now in (NOW, NOW + DEDUPE - 1, NOW + DEDUPE, NOW + DEDUPE + 1):
        removed.append(line.purge())
    assert removed == [0, 0, 2, 0]
    assert line.create(new("acked"), new("cancelled")) == ["done", "done"]


def test_only_young_messages_leave_marks_without_dedupe_time(make_line: MakeLine) -> None:
    line = make_line(dedupe_ms=0, max_attempts=1)
    old = [f"old {number}" for number in range(4)]
    line.put(*old, "first")
    line.cancel("first")  # from now on a purge raises the topic's floor
    line.now = NOW + 2 * SETTLED_AFTER_MS
    assert line.purge() == 1
    young = [f"young {number}" for number in range(4)]
    line.put(*young)
    held = {lease.id: lease for lease in leases_of(line.reserve())}
    for names in (old, young):
        line.retry(held.pop(names[0]), line.now + 100)
        line.unreserve(held.pop(names[1]))
    line.discard(old[0], young[0])
    line.cancel(old[1], young[1])
    line.ack(*held.values())
    assert line.purge() == 0
    line.now += 2 * SETTLED_AFTER_MS
    assert [line.purge(), line.purge()] == [len(young), 0]


@pytest.mark.parametrize("waited_ms", [0, 2 * SETTLED_AFTER_MS])
@pytest.mark.parametrize("behind_ms", [0, 70, SETTLED_AFTER_MS])
def test_deleted_message_is_invisible_without_dedupe_time(
    make_line: MakeLine, waited_ms: int, behind_ms: int
) -> None:
    line = make_line(dedupe_ms=0)
    line.put("acked", "cancelled")
    line.cancel("cancelled")
    line.now += waited_ms
    lease = line.take()
    line.ack(lease)
    line.now -= behind_ms
    store, uid, buckets = line.store, line.uid, line.topic.all_buckets
    names = ["acked", "cancelled"]
    assert store.lookup(uid, names) == {}
    assert store.select(uid, buckets, limit=10, max_ts=MAX_TIME_MS).messages == ()
    assert store.select_held(uid, "c", limit=10).messages == ()
    assert store.select_owned(uid, OWNERS, limit=10).messages == ()
    assert store.count(uid, buckets, start=0, end=MAX_TIME_MS, now_ms=line.now) == Counts()
    assert line.next_ts() is None
    assert line.dead() == []
    bodies = store.bodies(uid, names, actor=System(), now_ms=line.now)
    assert words(bodies.refused) == ["not_found", "not_found"]
    assert line.stale_answers(lease) == {"not_found"}
    assert line.cancel(*names) == line.discard(*names) == ["not_found", "not_found"]
    assert line.create(*(new(each, producer_group="others") for each in names)) == ["done", "done"]


def test_a_purge_within_the_dedupe_time_forgets_nothing(make_line: MakeLine) -> None:
    line = make_line(dedupe_ms=DEDUPE)
    line.put("acked")
    lease = line.take()
    line.ack(lease)
    line.now = NOW + DEDUPE - 1
    line.purge()
    assert line.create(new("acked")) == ["exists"]
    assert line.ack(lease) == ["done"]


def test_a_purge_keeps_to_its_limit(make_line: MakeLine) -> None:
    line = make_line(dedupe_ms=DEDUPE)
    line.put(*(f"m{number}" for number in range(25)))
    line.cancel(*(f"m{number}" for number in range(25)))
    line.now = NOW + DEDUPE
    assert [line.purge(limit=10) for _ in range(4)] == [10, 10, 5, 0]


def test_a_purge_leaves_live_messages_and_leases_alone(make_line: MakeLine) -> None:
    line = make_line(max_attempts=1)
    fill(line)
    line.put("old", due=0, expires=1)
    line.put("lapsed")
    line.lease(("lapsed", NOW), lease_ms=10)
    names = ["leased", "a", "old", "lapsed"]
    before = line.store.lookup(line.uid, names)
    assert len(before) == 4
    line.now = NOW + 10**9
    assert line.purge() == 0
    assert line.store.lookup(line.uid, names) == before
    assert ids(line.dead()) == ["dead"]


@pytest.mark.parametrize("by", ["retry", "bury"])
def test_dead_letters_of_topics_that_keep_none_are_purged(make_line: MakeLine, by: str) -> None:
    keeping, other = make_line(max_attempts=1), make_line(max_attempts=1, dead_letters=False)
    for line in (keeping, other):
        line.put("dead")
        lease = line.take()
        assert (line.bury(lease) if by == "bury" else line.retry(lease, NOW + 100)) == "done"
        line.put("alive")
    other.now = NOW + 2 + SETTLED_AFTER_MS
    assert other.purge() == 0  # its version might be given out again by a clock that is behind
    other.now += 1
    assert other.purge() == 1
    assert ids(keeping.dead()) == ["dead"]
    assert other.dead() == []
    assert "alive" in other
    assert other.create(new("dead")) == ["done"]


def test_deleted_topic_is_purged_in_steps(make_line: MakeLine) -> None:
    line, other = make_line(max_attempts=1), make_line()
    fill(line)
    line.put(*(f"m{number}" for number in range(20)), body=b"x" * 5_000)
    kept = other.put("kept")
    line.drop()
    removed: list[int] = []
    while not removed or removed[-1]:
        removed.append(line.purge(limit=7))
    assert max(removed) == 7
    assert sum(removed) >= 23
    assert other["kept"] == kept
    assert line.store.create_topic(line.topic.name, now_ms=NOW).name == line.topic.name


def test_a_live_lease_does_not_keep_a_deleted_topic(make_line: MakeLine) -> None:
    line = make_line()
    line.put("a")
    line.take()
    line.drop()
    assert line.purge() >= 1
    assert line.store.create_topic(line.topic.name, now_ms=NOW).uid != line.uid


def test_two_stores_purge_at_once(make_line: MakeLine, other_store: Store) -> None:
    line = make_line(dedupe_ms=DEDUPE)
    names = [f"m{number}" for number in range(10)]
    line.put(*names)
    line.cancel(*names)
    removed = [
        each.purge(limit=4, now_ms=NOW + DEDUPE)
        for each in (line.store, other_store, line.store, other_store)
    ]
    assert removed == [4, 4, 2, 0]


@pytest.mark.parametrize("limit", [0, -1, 10_001, 1.5, None])
def test_purge_with_an_invalid_limit_is_refused(make_line: MakeLine, limit: int) -> None:
    line = make_line(dedupe_ms=DEDUPE)
    line.put("a")
    line.cancel("a")
    line.now = NOW + DEDUPE
    with pytest.raises(InvalidInput, match="limit"):
        line.purge(limit)
    assert line.purge() == 1


# Closing


def closed_line(engine: Engine) -> Line:
    store = engine.open()
    topic = store.create_topic("closing", now_ms=NOW)
    line = Line(store, topic)
    line.put("a")
    store.delete_topic(topic.uid, now_ms=NOW)
    while store.purge(now_ms=NOW):
        pass
    store.close()
    return line


WITHOUT_TOPIC: dict[str, Callable[[Store], object]] = {
    "create_topic": lambda store: store.create_topic("t", now_ms=NOW),
    "find_topic": lambda store: store.find_topic("t"),
    "list_topics": lambda store: store.list_topics(),
    "delete_topic": lambda store: store.delete_topic(7, now_ms=NOW),
    "purge": lambda store: store.purge(now_ms=NOW),
    "watch": lambda store: store.watch(),
}


@pytest.mark.usefixtures("store")
def test_closing_twice_is_fine(engine: Engine) -> None:
    store = engine.open()
    store.close()
    store.close()
    with pytest.raises(StoreClosed):
        store.list_topics()


@pytest.mark.usefixtures("store")
def test_every_other_call_on_a_closed_store_is_refused(engine: Engine) -> None:
    line = closed_line(engine)
    for call in CALLS.values():
        with pytest.raises(StoreClosed):
            call(line)
    for ask in WITHOUT_TOPIC.values():
        with pytest.raises(StoreClosed):
            ask(line.store)


def test_block_closes_its_store(engine: Engine, store: Store) -> None:
    with engine.open() as inner:
        assert isinstance(inner.list_topics(), list)
    with pytest.raises(StoreClosed):
        inner.list_topics()
    assert store.list_topics() == []


def test_answered_change_survives_a_reopening(engine: Engine, store: Store) -> None:
    with engine.open() as first:
        line = Line(first, first.create_topic("durable", now_ms=NOW))
        before = line.put("a", body=b"x" * 5_000)
    with engine.open() as second:
        if not store.capabilities.durable:
            assert second.list_topics() == []
            return
        line = Line(second, second.get_topic(line.uid))
        assert line["a"] == before
        assert [each.body for each in line.reserve().leased] == [b"x" * 5_000]


def test_store_has_an_identity_of_its_own(engine: Engine, store: Store) -> None:
    chosen = store.identity()
    assert chosen
    store.create_topic("t", now_ms=1)
    assert store.identity() == chosen
    with engine.open() as second:
        assert (second.identity() == chosen) is store.capabilities.shared
    with MemoryStore() as another:
        assert another.identity() != chosen


def test_only_a_server_has_a_clock(store: Store) -> None:
    before = time.time_ns() // 1_000_000
    found = store.clock_ms()
    if store.capabilities.concurrent_writers:  # a server, on this machine
        assert found is not None
        assert before <= found <= time.time_ns() // 1_000_000
    else:
        assert found is None
