"""Answers of done are on the synchronous standby, also those that a look at the store gives."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from chronoline.core.errors import OutcomeUnknown, TopicExists
from chronoline.core.message import Lease
from chronoline.core.topic import Topic
from chronoline.stores.contract import Store
from chronoline.stores.postgres import PostgresStore
from chronoline.testing.postgres import PostgresServer
from tests.failover import PATIENCE_S, Pair, Repeated, check_answers_hold, running_pair
from tests.stores.line import LEASE_MS, NOW, OWNERS, Line, new, words

Case = Repeated[Store]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with running_pair(tmp_path) as pair:
        yield pair


def cases_of(store: Store) -> dict[str, Case]:
    """Each kind of a change that is recognized when it is repeated, on rows of its own."""
    line = Line(store, store.create_topic("t", now_ms=NOW))
    line.put("cancelled", due=NOW + LEASE_MS)
    line.put("extended", "acked", "retried", "released", "buried", "unreserved")
    taken = store.reserve(
        line.uid,
        line.topic.all_buckets,
        consumer="c",
        limit=100,
        lease_ms=LEASE_MS,
        session="i/p.1",
        now_ms=NOW,
    )
    leases = {each.lease.id: each.lease for each in taken.leased}
    paused, dropped = (store.create_topic(each, now_ms=NOW) for each in ("paused", "dropped"))
    return {
        "create": Case(
            lambda store, again: words(store.create(line.uid, [new("created")], now_ms=NOW)),
            ["exists"],
        ),
        "cancel": Case(
            lambda store, again: words(
                store.cancel(
                    line.uid, ["cancelled"], producer_group=OWNERS, again=again, now_ms=NOW
                )
            ),
            ["done"],
        ),
        "send": Case(lambda store, again: _send(store), None),
        **_of_leases(line.uid, leases),
        "create topic": Case(lambda store, again: _create_topic(store), "exists"),
        "ensure topic": Case(
            lambda store, again: store.ensure_topic("ensured", now_ms=NOW).name, "ensured"
        ),
        "pause": Case(lambda store, again: _pause(store, paused), True),
        "delete topic": Case(
            lambda store, again: store.delete_topic(dropped.uid, now_ms=NOW), False
        ),
    }


def _of_leases(uid: int, leases: dict[str, Lease]) -> dict[str, Case]:
    later = NOW + 2 * LEASE_MS
    done = ["done"]
    return {
        "ack": Case(
            lambda store, again: words(store.ack(uid, [leases["acked"]], again=again, now_ms=NOW)),
            done,
        ),
        "extend": Case(
            lambda store, again: words(
                store.extend(uid, [(leases["extended"], later)], again=again, now_ms=NOW)
            ),
            done,
        ),
        "retry": Case(
            lambda store, again: words(
                store.retry(uid, [(leases["retried"], later)], again=again, now_ms=NOW)
            ),
            done,
        ),
        "release": Case(
            lambda store, again: words(
                store.release(uid, [(leases["released"], later)], again=again, now_ms=NOW)
            ),
            done,
        ),
        "bury": Case(
            lambda store, again: words(
                store.bury(uid, [(leases["buried"], "no use")], again=again, now_ms=NOW)
            ),
            done,
        ),
        "unreserve": Case(
            lambda store, again: words(
                store.unreserve(uid, [leases["unreserved"]], again=again, now_ms=NOW)
            ),
            done,
        ),
    }


def _send(store: Store) -> object:
    """Calls the SQL function; answers the version, or None if the id is taken."""
    assert isinstance(store, PostgresStore)
    send = f"SELECT chronoline.send('t', 'sent', {NOW}, NULL, {NOW})"
    return store.engine.database.run(send, {})[0][0]


def _create_topic(store: Store) -> str:
    try:
        store.create_topic("created", now_ms=NOW)
    except TopicExists:
        return "exists"
    return "done"


def _pause(store: Store, topic: Topic) -> bool:
    return store.pause_topic(topic.uid, by="b", now_ms=NOW).pause is not None


def test_no_repeated_change_is_answered_as_done_before_the_standby_has_it(pair: Pair) -> None:
    with PostgresStore(pair.primary.url()) as store:
        cases = cases_of(store)
    check_answers_hold(pair, PostgresServer.url, PostgresStore, cases)


def test_answer_of_a_read_is_lost_with_the_primary_unless_it_is_awaited(
    pair: Pair,
) -> None:
    primary, standby = pair
    with PostgresStore(primary.url()) as store:
        line = Line(store, store.create_topic("t", now_ms=NOW))
    standby.kill()
    with ThreadPoolExecutor(1) as threads, PostgresStore(primary.url()) as store:
        created = threads.submit(store.create, line.uid, [new("a")], now_ms=NOW)
        pair.wait_until_waiting(lambda: 1)
        primary.kill()
        assert isinstance(created.exception(PATIENCE_S), OutcomeUnknown)
    primary.start()
    with ThreadPoolExecutor(1) as threads, PostgresStore(primary.url()) as store:
        assert list(store.lookup(line.uid, ["a"])) == ["a"]
        awaited = threads.submit(store.await_durable)
        pair.wait_until_waiting(lambda: not awaited.done())
        assert not awaited.done()
        primary.kill()
    standby.start()
    standby.promote()
    with PostgresStore(standby.url()) as store:
        assert list(store.lookup(line.uid, ["a"])) == []


def test_change_whose_wait_for_the_standby_is_cancelled_is_not_answered_as_done(
    pair: Pair,
) -> None:
    primary, standby = pair
    with ThreadPoolExecutor(1) as threads, PostgresStore(primary.url()) as store:
        line = Line(store, store.create_topic("t", now_ms=NOW))
        standby.kill()
        created = threads.submit(store.create, line.uid, [new("a")], now_ms=NOW)
        pair.wait_until_waiting(lambda: 1)
        with psycopg.connect(primary.url(), autocommit=True) as connection:
            connection.execute(
                "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
            )
        standby.start()  # the notice of the create may wait for it, too
        error = created.exception(PATIENCE_S)
        assert isinstance(error, OutcomeUnknown)
        assert "was cancelled" in str(error)
        assert line.create(new("a")) == ["exists"]
        assert line.create(new("b")) == ["done"]  # the connection is as before
