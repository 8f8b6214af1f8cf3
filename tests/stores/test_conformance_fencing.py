"""A stale holder is refused after any change of its message, id or topic."""

from itertools import product

import pytest

from chronoline.core.errors import TopicNotFound
from chronoline.core.limits import SETTLED_AFTER_MS
from chronoline.core.message import Lease
from chronoline.stores.contract import IfExists, Store
from tests.stores.line import LEASE_MS, NOW, Line, MakeLine, new


def run_ahead(line: Line, lease: Lease, times: int = 50, lease_ms: int = LEASE_MS) -> list[Lease]:
    """Extends a lease many times within one millisecond; its version outruns the clock."""
    leases = [lease]
    for number in range(times):
        (outcome,) = line.store.extend(
            line.uid, [(leases[-1], line.now + lease_ms + number)], now_ms=line.now
        )
        assert outcome.done
        leases.append(Lease(id=lease.id, consumer=lease.consumer, version=outcome.version, until=0))
    assert leases[-1].version > line.now
    return leases


def assert_fenced(line: Line, stale: list[Lease], live: Lease) -> None:
    """No old lease can do anything to the message, and the new one can."""
    before = line[live.id]
    for lease in stale:
        assert line.stale_answers(lease) <= {"stale", "not_holder"}
    assert line[live.id] == before
    assert line.ack(live) == ["done"]


def test_holder_is_fenced_after_another_took_over(line: Line) -> None:
    line.put("a")
    stale = line.take("c")
    line.now = stale.until
    assert_fenced(line, [stale], line.take("d"))


def test_holder_is_fenced_by_its_own_next_lease(line: Line) -> None:
    line.put("a")
    stale = line.take("c")
    line.now = stale.until
    assert_fenced(line, [stale], line.take("c"))


@pytest.mark.parametrize("purged", [False, True])
@pytest.mark.parametrize("dedupe_ms", [0, 2 * SETTLED_AFTER_MS])
@pytest.mark.parametrize("end", ["ack", "cancel", "discard"])
def test_holder_is_fenced_after_its_id_is_recreated(
    make_line: MakeLine, end: str, dedupe_ms: int, purged: bool
) -> None:
    line = make_line(dedupe_ms=dedupe_ms, max_attempts=2)
    line.put("a")
    stale = run_ahead(line, line.take("c"), times=10)
    delete(line, stale[-1], end)
    line.now += dedupe_ms
    if purged:
        line.purge()
    line.put("a", due=NOW)
    live = run_ahead(line, line.take("c"), times=10)
    assert {each.version for each in stale}.isdisjoint(each.version for each in live)
    assert_fenced(line, [*stale, *live[:-1]], live[-1])


@pytest.mark.parametrize("waited_ms", [0, 60, *(SETTLED_AFTER_MS + n for n in (51, 52, 53, 60))])
def test_holder_is_fenced_after_its_dead_letter_is_purged(
    make_line: MakeLine, waited_ms: int
) -> None:
    line = make_line(dedupe_ms=0, max_attempts=1, dead_letters=False)
    line.put("a")
    stale = run_ahead(line, line.take("c"))
    line.retry(stale[-1], line.now + 100)
    line.now += waited_ms
    line.purge()
    line.discard("a")  # where the dead letter had to stay, because its version is not settled
    line.put("a", due=NOW)
    live = run_ahead(line, line.take("c"))
    assert {each.version for each in stale}.isdisjoint(each.version for each in live)
    assert_fenced(line, [*stale, *live[:-1]], live[-1])


@pytest.mark.parametrize("dedupe_ms", [0, 30])
@pytest.mark.parametrize("end", ["ack", "cancel", "discard", "purge"])
def test_holder_is_fenced_after_recreation_by_a_slow_clock(
    make_line: MakeLine, other_store: Store, end: str, dedupe_ms: int
) -> None:
    for waited_ms, behind_ms in product(
        (0, 60, SETTLED_AFTER_MS + 3, SETTLED_AFTER_MS + 4), (70, 900, SETTLED_AFTER_MS)
    ):
        line = make_line(dedupe_ms=dedupe_ms, max_attempts=1, dead_letters=end != "purge")
        line.put("a")
        stale = run_ahead(line, line.take("c"), times=2, lease_ms=60_000)
        line.now += waited_ms
        if end in ("ack", "cancel"):
            delete(line, stale[-1], end)
        else:
            assert line.retry(stale[-1], line.now + 10) == "done"
        if end == "discard":
            assert line.discard("a") == ["done"]
        line.now += dedupe_ms
        line.purge()
        slow = Line(other_store, line.topic, line.now - behind_ms)
        slow.discard("a")  # where the dead letter had to stay, because its version is not settled
        while slow.create(new("a", due=0)) == ["exists"]:
            assert dedupe_ms
            slow.now += max(10, (line.now - slow.now) // 4)  # the id is free at about `line.now`
        live = slow.take("c")
        assert live.version > stale[-1].version, (waited_ms, behind_ms)
        assert_fenced(slow, stale, live)


@pytest.mark.parametrize("how", ["remove", "purge"])
@pytest.mark.parametrize("end", ["ack", "cancel", "discard", "dead"])
def test_holder_is_fenced_after_clock_rollback(
    make_line: MakeLine, other_store: Store, end: str, how: str
) -> None:
    for dedupe_ms, back_ms in product((0, 30), (10_000, 3_600_000)):
        line = make_line(dedupe_ms=dedupe_ms, max_attempts=1, dead_letters=end != "dead")
        line.put("a", "b")
        line.cancel("b")
        line.now += 60_000
        stale = line.take("c", lease_ms=60_000)
        if how == "remove":
            line.purge()  # raises the floor, so that what follows may need no mark
        if end in ("ack", "cancel"):
            delete(line, stale, end)
        else:
            assert line.retry(stale, line.now + 10) == "done"
        if end == "discard":
            assert line.discard("a") == ["done"]
        if how == "purge":
            line.now += 60_000
            line.purge()
        slow = Line(other_store, line.topic, line.now - back_ms)
        slow.discard("a")  # where the dead letter had to stay
        if_exists: IfExists = "replace" if how == "remove" else "refuse"  # a mark may keep the id
        assert slow.create(new("a", due=0), if_exists=if_exists) == ["done"]
        live = slow.take("c")
        assert live.version > stale.version, (dedupe_ms, back_ms)
        assert_fenced(slow, [stale], live)


def test_floor_does_not_fall_with_the_clock(make_line: MakeLine) -> None:
    line = make_line(dedupe_ms=0)
    line.put("a")
    stale = line.take("c")
    line.ack(stale)
    line.now += 60_000
    assert line.purge() == 1
    line.now -= 3_600_000
    line.put("b", due=0)
    line.cancel("b")
    line.purge()
    (outcome,) = line.store.create(line.uid, [new("a", due=0)], now_ms=line.now)
    assert outcome.version > stale.version


def test_holder_is_fenced_after_its_topic_is_recreated(make_line: MakeLine) -> None:
    line = make_line()
    line.put("a")
    stale = line.take("c")
    old_uid = line.uid
    line.drop()
    while line.purge():
        pass
    line.topic = line.store.create_topic(line.topic.name, now_ms=NOW)
    line.put("a")
    live = line.take("c")
    assert live == stale
    for call in (line.store.ack, line.store.unreserve):
        with pytest.raises(TopicNotFound):
            call(old_uid, [stale], now_ms=NOW)
    assert line.ack(live) == ["done"]


def test_versions_grow_with_every_change(make_line: MakeLine) -> None:
    line = make_line(dedupe_ms=0)
    versions = [line.put("a").version]

    def note() -> None:
        versions.append(line["a"].version)

    line.reschedule(("a", NOW))
    note()
    line.unreserve(line.take())
    note()
    line.release(line.take(), NOW + 10)
    note()
    line.now = NOW + 10
    lease = line.take()
    note()
    line.extend(lease, NOW + 50)
    note()
    line.resume()
    note()
    line.now = NOW + 50
    line.reschedule(("a", NOW))
    note()
    assert versions == [NOW, NOW + 1, NOW + 3, NOW + 5, NOW + 6, NOW + 7, NOW + 8, NOW + 9]


def delete(line: Line, lease: Lease, end: str) -> None:
    match end:
        case "ack":
            assert line.ack(lease) == ["done"]
        case "cancel":
            assert line.unreserve(lease) == ["done"]
            assert line.cancel("a") == ["done"]
        case "discard":
            assert line.retry(lease, line.now + 10) == "done"
            line.now += 10
            assert line.retry(line.take("c"), line.now + 10) == "done"
            assert line.discard("a") == ["done"]
