"""Every call on a deleted topic raises `TopicNotFound`, also in a store that knew the topic."""

from collections.abc import Callable
from inspect import signature

import pytest

from chronoline.core.change import lease_change
from chronoline.core.errors import TopicNotFound
from chronoline.core.message import Lease, SavedMessage
from chronoline.core.permissions import Operation, System
from chronoline.stores.contract import Recipient, Store
from tests.stores.line import LEASE_MS, NOW, OWNERS, Line, MakeLine, new

LEASE = Lease(id="leased", consumer="c", version=NOW + 1, until=NOW + 1_000)
LATER = NOW + 500

SAVED = SavedMessage(
    id="x",
    due=NOW,
    expires=None,
    attempts=0,
    producer_group=OWNERS,
    key=None,
    headers=(),
    body=None,
)
CALLS: dict[str, Callable[[Line], object]] = {
    "get_topic": lambda line: line.store.get_topic(line.uid),
    "create": lambda line: line.create(new("b")),
    "replace": lambda line: line.create(new("a"), if_exists="replace"),
    "reschedule": lambda line: line.reschedule(("a", LATER)),
    "cancel": lambda line: line.cancel("a"),
    "reserve": lambda line: line.reserve(),
    "reserve_for": lambda line: line.store.reserve_for(
        line.uid,
        [Recipient(each, "", line.topic.all_buckets, 1) for each in ("c", "d")],
        lease_ms=LEASE_MS,
        now_ms=line.now,
    ),
    "lease": lambda line: line.lease(("a", NOW)),
    "resume": lambda line: line.resume(),
    "extend": lambda line: line.extend(LEASE, LATER),
    "release": lambda line: line.release(LEASE, LATER),
    "retry": lambda line: line.retry(LEASE, LATER),
    "bury": lambda line: line.bury(LEASE),
    "unreserve": lambda line: line.unreserve(LEASE),
    "ack": lambda line: line.ack(LEASE),
    "apply": lambda line: line.apply(lease_change(Operation.ACK, LEASE)),
    "select": lambda line: line.store.select(
        line.uid, line.topic.all_buckets, limit=10, max_ts=LATER
    ),
    "lookup": lambda line: line.store.lookup(line.uid, ["a"]),
    "bodies": lambda line: line.store.bodies(line.uid, ["a"], actor=System(), now_ms=NOW),
    "select_held": lambda line: line.store.select_held(line.uid, "c", limit=10),
    "select_owned": lambda line: line.store.select_owned(line.uid, OWNERS, limit=10),
    "select_prefix": lambda line: line.store.select_prefix(line.uid, "a", limit=10),
    "select_between": lambda line: line.store.select_between(line.uid, limit=10),
    "restore": lambda line: line.store.restore(line.uid, [SAVED], now_ms=NOW),
    "rows": lambda line: line.store.rows(line.uid, ["a"]),
    "next_group": lambda line: line.store.next_group(line.uid),
    "count_owned": lambda line: line.store.count_owned(line.uid, OWNERS, most=10),
    "next_ts": lambda line: line.next_ts(),
    "next_times": lambda line: line.store.next_times(line.uid, [line.topic.all_buckets]),
    "count": lambda line: line.store.count(
        line.uid, line.topic.all_buckets, start=0, end=LATER, now_ms=NOW
    ),
    "forecast": lambda line: line.store.forecast(
        line.uid, line.topic.all_buckets, start=NOW, end=LATER, step_ms=100, now_ms=NOW
    ),
    "scan": lambda line: line.store.scan(
        line.uid, line.topic.all_buckets, start=0, end=LATER, limit=10
    ),
    "scan_held": lambda line: line.store.scan_held(line.uid, limit=10),
    "dead_letters": lambda line: line.dead(),
    "redrive": lambda line: line.redrive("dead", due=NOW),
    "discard": lambda line: line.discard("dead"),
}
"""Calls that find something in the topic of `fill`, except those that name an id that is free."""


def fill(line: Line) -> None:
    line.put("dead")
    line.retry(line.take(), LATER)
    line.put("leased")
    assert line.take() == LEASE
    line.put("a")


def test_every_method_that_takes_a_topic_is_called_here() -> None:
    public = {
        name: each
        for name, each in vars(Store).items()
        if not name.startswith("_") and callable(each)
    }
    of_topics = {name for name in public if "topic_uid" in signature(public[name]).parameters}
    # A topic that is deleted takes nothing in: tests/stores/test_conformance_inputs.py
    assert set(CALLS) - {"replace", "get_topic"} == of_topics - {"take_in"}


@pytest.mark.parametrize("call", CALLS)
def test_calls_on_a_deleted_topic(make_line: MakeLine, call: str) -> None:
    line = make_line(max_attempts=1)
    fill(line)
    line.drop()
    with pytest.raises(TopicNotFound):
        CALLS[call](line)


@pytest.mark.parametrize("call", CALLS)
def test_calls_on_a_topic_that_another_store_purged(
    other_store: Store, make_line: MakeLine, call: str
) -> None:
    line = make_line(max_attempts=1)
    fill(line)
    other_store.delete_topic(line.uid, now_ms=NOW)
    while other_store.purge(now_ms=NOW):
        pass
    with pytest.raises(TopicNotFound):
        CALLS[call](line)


@pytest.mark.parametrize("call", CALLS)
def test_calls_on_a_topic_that_never_was(line: Line, call: str) -> None:
    line.topic = type(line.topic)(uid=7, name="never", settings=line.topic.settings)
    with pytest.raises(TopicNotFound):
        CALLS[call](line)


@pytest.mark.parametrize("call", CALLS)
def test_old_uid_does_not_reach_a_recreated_topic(make_line: MakeLine, call: str) -> None:
    old = make_line(max_attempts=1)
    fill(old)
    old.drop()
    while old.purge():
        pass
    settings = old.topic.settings
    young = Line(old.store, old.store.create_topic(old.topic.name, settings, now_ms=NOW))
    fill(young)
    before = young.store.lookup(young.uid, ["a", "leased"])
    with pytest.raises(TopicNotFound):
        CALLS[call](old)
    assert young.store.lookup(young.uid, ["a", "leased"]) == before
    assert len(before) == 2
    assert len(young.dead()) == 1
