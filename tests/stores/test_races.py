"""Races: sixteen contenders for the same messages, on every engine, in threads and in processes."""

import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from chronoline.core.limits import SETTLED_AFTER_MS
from chronoline.core.permissions import Operation, System
from chronoline.stores.contract import Store
from tests.stores.brawlers import (
    AHEAD_MS,
    LEASE_MS,
    Brawl,
    CreateAll,
    Drain,
    LeaseAll,
    OwnOrConsume,
    Purge,
    PurgeOrReuse,
    ReserveAhead,
)
from tests.stores.conftest import Engine
from tests.stores.contenders import CONTENDERS, Contest, Result, Task, open_contest
from tests.stores.histories import Event, by_message, check
from tests.stores.line import NOW, Line, MakeLine, leases_of, new


@pytest.fixture(scope="module")
def contest() -> Iterator[Contest]:
    with open_contest() as contest:
        yield contest


class Race:
    """Runs a task by all contenders on the store of this test."""

    def __init__(self, contest: Contest, engine: Engine, store: Store) -> None:
        self._contest, self._engine, self._store = contest, engine, store

    def run(self, task: Task[Result]) -> list[Result]:
        answers = self._contest.run(self._store, self._engine.url, task)
        assert len(answers) == CONTENDERS
        return answers

    def events(self, task: Task[list[Event]]) -> list[Event]:
        return [event for events in self.run(task) for event in events]


@pytest.fixture
def race(contest: Contest, engine: Engine, store: Store) -> Race:
    return Race(contest, engine, store)


def put_many(line: Line, count: int, due: int = NOW) -> tuple[str, ...]:
    names = tuple(f"m{number:03}" for number in range(count))
    line.put(*names, due=due)
    return names


def created(names: tuple[str, ...]) -> list[Event]:
    """Returns the events of `put_many`, as the beginning of a history."""
    return [
        Event(id=each, version=NOW, did=Operation.CREATE, who="-", now=NOW, due=NOW, until=NOW)
        for each in names
    ]


def did(events: list[Event], operation: Operation) -> Counter[str]:
    """Returns the number of these operations on each message."""
    return Counter(event.id for event in events if event.did is operation)


# One winner


def test_each_message_is_reserved_by_one_contender(line: Line, race: Race) -> None:
    names = put_many(line, 400)
    events = race.events(Drain(line.topic, limit=7))
    assert did(events, Operation.LEASE) == dict.fromkeys(names, 1)
    holders = {event.id: event.who for event in events}
    found = line.store.lookup(line.uid, names)
    assert {each.id: each.lock_consumer for each in found.values()} == holders
    assert {each.version for each in found.values()} == {NOW + 1}


def test_one_contender_leases_each_version(line: Line, race: Race) -> None:
    names = put_many(line, 100)
    events = race.events(LeaseAll(line.topic, tuple((name, NOW) for name in names)))
    assert did(events, Operation.LEASE) == dict.fromkeys(names, 1)
    found = line.store.lookup(line.uid, names)
    assert {each.version for each in found.values()} == {NOW + 1}


def test_concurrent_creates_of_an_id_make_one_message(line: Line, race: Race) -> None:
    names = tuple(f"m{number}" for number in range(50))
    events = race.events(CreateAll(line.topic, names))
    assert did(events, Operation.CREATE) == dict.fromkeys(names, 1)
    winners = {event.id: event.who.encode() for event in events}
    bodies = line.store.bodies(line.uid, names, actor=System(), now_ms=NOW)
    assert bodies.found == winners


# The rules hold under concurrency


def test_concurrent_operations_follow_the_rules(make_line: MakeLine, race: Race) -> None:
    wanted = {Operation.LEASE, Operation.ACK, Operation.CANCEL, Operation.RESCHEDULE}
    done: set[Operation] = set()
    for _ in range(20):  # which operations win is up to the machine: until each has won once
        line = make_line(dedupe_ms=30, max_attempts=1_000_000)
        names = put_many(line, 6)
        events = created(names) + race.events(Brawl(line.topic, names, steps=60))
        check(events)
        found = line.store.lookup(line.uid, names)
        for message_id, history in by_message(events).items():
            if message_id in found:
                assert found[message_id].version == history[-1].version
            else:
                assert history[-1].did in (Operation.ACK, Operation.CANCEL)
        done |= {event.did for event in events}
        if done >= wanted:
            break
    assert done >= wanted


def test_repeated_request_changes_nothing_more(make_line: MakeLine, race: Race) -> None:
    line = make_line(max_attempts=1_000_000)
    names = put_many(line, 6)
    check(created(names) + race.events(Brawl(line.topic, names, steps=40, twice=True)))


def test_owner_and_consumer_do_not_both_delete_a_message(line: Line, race: Race) -> None:
    names = put_many(line, 60)
    events = created(names) + race.events(OwnOrConsume(line.topic, names))
    check(events)
    deletions = [
        event.id
        for history in by_message(events).values()
        for event in history
        if event.did in (Operation.ACK, Operation.CANCEL)
    ]
    assert sorted(deletions) == sorted(names)
    assert line.store.lookup(line.uid, names) == {}


def test_reservation_ahead_waits_for_lease_end(line: Line, race: Race) -> None:
    names = put_many(line, 60)
    for place in range(0, 60, 3):
        line.reserve("before", limit=3, lease_ms=10 + place)
    held = {each.id: each for each in line.store.lookup(line.uid, names).values()}
    assert {each.ts for each in held.values()} == {NOW + 10 + place for place in range(0, 60, 3)}
    events = race.events(ReserveAhead(line.topic, last=NOW + AHEAD_MS))
    assert did(events, Operation.LEASE) == dict.fromkeys(names, 1)
    assert [event for event in events if event.now < held[event.id].ts] == []


# Purging


def test_purge_leaves_concurrent_creates_and_leases_alone(make_line: MakeLine, race: Race) -> None:
    line = make_line(dedupe_ms=10)
    names = put_many(line, 200)
    line.cancel(*names)
    later = NOW + 2 * SETTLED_AFTER_MS
    events = race.events(PurgeOrReuse(line.topic, names, now=later))
    check(events)
    assert did(events, Operation.CREATE) == dict.fromkeys(names, 1)
    assert did(events, Operation.LEASE).keys() <= set(names)
    found = line.store.lookup(line.uid, names)
    assert found.keys() == set(names)
    leased = {event.id: event.until for event in events if event.did is Operation.LEASE}
    assert set(leased.values()) == {later + LEASE_MS}
    assert {each.id: each.ts for each in found.values() if each.lock_consumer} == leased


def test_concurrent_purges_remove_each_row_once(make_line: MakeLine, race: Race) -> None:
    marks, dead, dropped = (
        make_line(dedupe_ms=10),
        make_line(dead_letters=False, max_attempts=1),
        make_line(),
    )
    marks.cancel(*put_many(marks, 400))
    put_many(dead, 200)
    grant = dead.reserve(limit=200)
    dead.store.retry(dead.uid, [(lease, NOW + 100) for lease in leases_of(grant)], now_ms=NOW)
    put_many(dropped, 300)
    dropped.drop()
    later = NOW + 2 * SETTLED_AFTER_MS
    removed = race.run(Purge(now=later, limit=25))
    assert sum(removed) == 400 + 200 + 300
    assert marks.store.purge(now_ms=later) == 0
    marks.store.create_topic(dropped.topic.name, now_ms=NOW)  # its name is free again
    put_many(marks, 400)  # and so are the ids


def test_stale_lease_does_not_fit_a_recreated_message(
    make_line: MakeLine,
) -> None:
    line = make_line(dead_letters=False, max_attempts=1, dedupe_ms=0)
    line.put("a")
    stale = line.take("c")
    line.unreserve(stale)
    line.retry(line.take("c"), NOW + 100)  # dead, with a version ahead of the clock
    line.purge()
    assert line.create(new("a")) == ["exists"]
    line.now += SETTLED_AFTER_MS
    while line.create(new("a")) != ["done"]:
        line.now += 1
        line.purge()
    held = line.take("c")
    assert held.version > stale.version
    assert line.stale_answers(stale) == {"stale"}


def test_reads_see_every_answered_change(line: Line) -> None:
    put_many(line, 300)
    done = threading.Event()

    def select() -> None:
        while not done.is_set():
            line.store.select(line.uid, line.topic.all_buckets, limit=3, max_ts=NOW)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    with ThreadPoolExecutor(4) as threads:
        looking = [threads.submit(select) for _ in range(4)]
        unseen = []
        for number in range(200):
            assert line.create(new(f"new{number}")) == ["done"]
            if f"new{number}" not in line:
                unseen.append(number)
        done.set()
    sys.setswitchinterval(before)
    assert [each.exception() for each in looking] == [None] * 4
    assert unseen == []
