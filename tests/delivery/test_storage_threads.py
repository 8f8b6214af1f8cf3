"""Storage threads: group commit, fair turns, bounded queues, and errors for each caller."""

import itertools
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

import pytest

from chronoline.core.change import Change, lease_change, letter_changes
from chronoline.core.errors import (
    InvalidInput,
    OutcomeUnknown,
    StoreBusy,
    StoreClosed,
    StoreError,
    StoreUnavailable,
    TopicNotFound,
)
from chronoline.core.ids import bucket_of
from chronoline.core.message import Header, Lease, NewMessage
from chronoline.core.outcome import Outcome
from chronoline.core.permissions import Operation
from chronoline.core.ranges import BucketRange
from chronoline.core.topic import Topic
from chronoline.delivery.storage_threads import StorageThreads
from chronoline.stores.contract import Recipient, Store
from tests.delivery.stores import PATIENCE_S, Tap

CALLERS = 64


def messages(prefix: str, count: int) -> list[NewMessage]:
    return [NewMessage(id=f"{prefix}-{number}", due=0) for number in range(count)]


def cancels(*ids: str, group: str = "default") -> list[Change]:
    return [Change(Operation.CANCEL, each, group) for each in ids]


def answer(future: Future[list[Outcome]]) -> list[str]:
    """The outcomes as words; raises what the call raised."""
    return [outcome.refusal or "done" for outcome in future.result(PATIENCE_S)]


@pytest.fixture
def busy(tap: Tap, threads: StorageThreads, topic: Topic) -> Future[list[Outcome]]:
    """A commit that waits at the closed gate, so that later calls gather."""
    tap.gate.clear()
    first = threads.create(topic.uid, messages("first", 1))
    tap.wait_until_entered()
    return first


# Group commit


def test_calls_from_many_threads_are_all_answered(
    tap: Tap, threads: StorageThreads, topic: Topic
) -> None:
    def call(number: int) -> list[str]:
        return [
            word
            for each in range(10)
            for word in answer(threads.create(topic.uid, messages(f"{number}-{each}", 1)))
        ]

    with ThreadPoolExecutor(CALLERS) as callers:
        answers = list(callers.map(call, range(CALLERS)))
    assert answers == [["done"] * 10] * CALLERS
    assert sum(rows for _, rows in tap.commits) == CALLERS * 10


def test_calls_during_a_commit_share_the_next_one(
    tap: Tap, threads: StorageThreads, topic: Topic, busy: Future[list[Outcome]]
) -> None:
    behind = [threads.create(topic.uid, messages(f"m{number}", 2)) for number in range(20)]
    tap.gate.set()
    assert answer(busy) == ["done"]
    assert [answer(each) for each in behind] == [["done", "done"]] * 20
    assert tap.commits == [("create", 1), ("create", 40)]


def test_each_caller_gets_its_own_outcomes(
    tap: Tap, threads: StorageThreads, topic: Topic, busy: Future[list[Outcome]]
) -> None:
    tap.store.create(topic.uid, messages("taken", 2), now_ms=0)
    calls = [
        threads.create(topic.uid, messages("a", 1)),
        threads.create(topic.uid, [*messages("taken", 2), *messages("b", 1)]),
        threads.create(topic.uid, [NewMessage(id="", due=0)]),
        threads.create(topic.uid, messages("a", 1)),
    ]
    tap.gate.set()
    assert [answer(each) for each in calls] == [
        ["done"],
        ["exists", "exists", "done"],
        ["invalid"],
        ["exists"],
    ]
    assert [[each.id for each in call.result()] for call in calls] == [
        ["a-0"],
        ["taken-0", "taken-1", "b-0"],
        [""],
        ["a-0"],
    ]
    assert len(tap.commits) == 2


def test_different_kinds_are_not_mixed(
    tap: Tap, threads: StorageThreads, store: Store, topic: Topic, busy: Future[list[Outcome]]
) -> None:
    other = store.create_topic("other", now_ms=0)
    calls = [
        threads.create(topic.uid, messages("a", 1)),
        threads.create(other.uid, messages("a", 1)),
        threads.create(topic.uid, messages("a", 1), if_exists="replace"),
        threads.apply(topic.uid, cancels("first-0")),
        threads.apply(topic.uid, cancels("a-0", group="others"), again=True),
    ]
    tap.gate.set()
    assert [answer(each) for each in calls] == [["done"]] * 4 + [["not_owner"]]
    assert len(tap.commits) == 1 + len(calls)


def test_a_big_call_is_cut_and_lets_others_through(
    tap: Tap, threads: StorageThreads, topic: Topic, busy: Future[list[Outcome]]
) -> None:
    big = threads.create(topic.uid, messages("big", 20_000))
    small = threads.apply(topic.uid, cancels("first-0"))
    tap.gate.set()
    assert answer(small) == ["done"]
    assert answer(big) == ["done"] * 20_000
    assert [each.id for each in big.result()] == [f"big-{number}" for number in range(20_000)]
    creates = [rows for name, rows in tap.commits[1:] if name == "create"]
    assert sum(creates) == 20_000
    assert max(creates) <= 5_000
    assert tap.commits.index(("cancel", 1)) < 3  # it did not wait for all of the big one


def test_deadline_work_takes_turns_with_bulk_work(
    tap: Tap, threads: StorageThreads, topic: Topic, busy: Future[list[Outcome]]
) -> None:
    bulk = [
        threads.create(topic.uid, messages("a", 1)),
        threads.apply(topic.uid, cancels("x")),
        threads.apply(topic.uid, [Change(Operation.RESCHEDULE, "x", "default")]),
    ]
    deadline = threads.apply(topic.uid, [])
    assert answer(deadline) == []  # nothing to do needs no turn
    released = threads.reserve(topic.uid, [taker(topic)], lease_ms=1_000)
    tap.gate.set()
    released.result(PATIENCE_S)
    assert [answer(each) for each in bulk] == [["done"], ["not_found"], ["not_found"]]
    assert [name for name, _ in tap.commits].index("reserve") <= 2


def taker(topic: Topic, limit: int = 1) -> Recipient:
    return Recipient("c", "", topic.all_buckets, limit)


def test_one_write_reserves_for_several_consumers(
    tap: Tap, threads: StorageThreads, topic: Topic
) -> None:
    answer(threads.create(topic.uid, messages("m", 9)))
    middle = topic.settings.buckets // 2
    halves = [BucketRange(0, middle), BucketRange(middle, topic.settings.buckets)]
    takers = [Recipient(f"c{place}", "", [half], 9) for place, half in enumerate(halves)]
    grants = threads.reserve(topic.uid, takers, lease_ms=1_000).result(PATIENCE_S)
    found = [(each.lease.consumer, each.lease.id) for grant in grants for each in grant.leased]
    wanted = {f"m-{number}" for number in range(9)}
    assert {message_id for _, message_id in found} == wanted
    assert all(
        (bucket_of(message_id, topic.settings.buckets) >= middle) == (consumer == "c1")
        for consumer, message_id in found
    )
    assert [name for name, _ in tap.commits] == ["create", "reserve_for"]


def test_leases_go_through_all_their_operations(
    threads: StorageThreads, store: Store, topic: Topic
) -> None:
    answer(threads.create(topic.uid, messages("m", 6)))
    (grant,) = threads.reserve(topic.uid, [taker(topic, 6)], lease_ms=60_000).result(PATIENCE_S)
    leases = [each.lease for each in grant.leased]
    assert len(leases) == 6
    later = leases[0].until + 60_000

    def change(operation: Operation, *changed: Lease, **given: Any) -> list[str]:
        changes = [lease_change(operation, each, **given) for each in changed]
        return answer(threads.apply(topic.uid, changes))

    extension = lease_change(Operation.EXTEND, leases[0], later)
    (extended,) = threads.apply(topic.uid, [extension]).result(PATIENCE_S)
    assert store.lookup(topic.uid, [leases[0].id])[leases[0].id].ts == later
    held = replace(leases[0], version=extended.version)
    assert change(Operation.ACK, held, leases[0]) == ["done", "deleted"]
    assert change(Operation.RELEASE, leases[1], to=later) == ["done"]
    assert change(Operation.RETRY, leases[2], to=later) == ["done"]
    assert change(Operation.BURY, leases[3], reason="no use") == ["done"]
    assert [each.reason for each in store.dead_letters(topic.uid, limit=2)] == ["no use"]
    assert change(Operation.UNRESERVE, *leases[4:]) == ["done", "done"]
    move = Change(Operation.RESCHEDULE, leases[1].id, "default", to=5)
    assert answer(threads.apply(topic.uid, [move])) == ["done"]
    redrive = letter_changes(Operation.REDRIVE, [leases[3].id], to=5)
    assert answer(threads.apply(topic.uid, redrive)) == ["done"]


# The number of threads


@pytest.mark.parametrize(("beside", "threads_expected"), [(False, 1), (True, 3)])
def test_concurrent_writers_have_a_thread_per_queue(
    store: Store, beside: bool, threads_expected: int
) -> None:
    before = set(threading.enumerate())
    tap = Tap(store, replace(store.capabilities, concurrent_writers=beside))
    threads = StorageThreads(cast(Store, tap))
    started = set(threading.enumerate()) - before
    threads.close()
    assert len(started) == threads_expected
    assert not any(thread.is_alive() for thread in started)


def test_deadline_thread_does_not_wait_for_bulk_work(store: Store) -> None:
    topic = store.create_topic("t", now_ms=0)
    tap = Tap(store, replace(store.capabilities, concurrent_writers=True))
    threads = StorageThreads(cast(Store, tap))
    stuck = threading.Event()

    def wait_in_creates(name: str) -> None:
        if name == "create":
            assert stuck.wait(PATIENCE_S)

    tap.fail = wait_in_creates
    created = threads.create(topic.uid, messages("m", 1))
    tap.wait_until_entered()
    grant = threads.reserve(topic.uid, [taker(topic)], lease_ms=1_000)
    assert [each.leased for each in grant.result(PATIENCE_S)] == [()]
    assert not created.done()
    stuck.set()
    assert answer(created) == ["done"]
    threads.close()


# Bounds


def test_a_full_queue_refuses_at_once(store: Store, topic: Topic) -> None:
    tap = Tap(store)
    threads = StorageThreads(cast(Store, tap), most_waiting=100)
    tap.gate.clear()
    first = threads.create(topic.uid, messages("first", 1))
    tap.wait_until_entered()
    waiting = threads.create(topic.uid, messages("a", 100))
    with pytest.raises(StoreBusy, match="nothing was changed"):
        threads.create(topic.uid, messages("b", 1))
    tap.gate.set()
    assert (answer(first), answer(waiting)) == (["done"], ["done"] * 100)
    assert answer(threads.create(topic.uid, messages("b", 1))) == ["done"]
    threads.close()


def test_message_bytes_can_fill_a_queue(store: Store, topic: Topic) -> None:
    tap = Tap(store)
    threads = StorageThreads(cast(Store, tap), most_bytes=1_000)
    tap.gate.clear()
    first = threads.create(topic.uid, messages("first", 1))
    tap.wait_until_entered()
    heavy = NewMessage(
        id="a", due=0, body=bytes(600), key=bytes(200), headers=(("name", bytes(100)), ("n", None))
    )
    waiting = threads.create(topic.uid, [heavy])
    with pytest.raises(StoreBusy, match=r"905 bytes wait .* nothing was changed"):
        threads.create(topic.uid, [NewMessage(id="b", due=0, body=bytes(96))])
    beside = threads.create(topic.uid, [NewMessage(id="b", due=0, body=bytes(95))])
    tap.gate.set()
    assert [answer(each) for each in (first, waiting, beside)] == [["done"]] * 3
    threads.close()


def test_reason_bytes_can_fill_a_queue(store: Store, topic: Topic) -> None:
    tap = Tap(store)
    threads = StorageThreads(cast(Store, tap), most_bytes=1_000)
    tap.gate.clear()
    first = threads.create(topic.uid, messages("first", 1))
    tap.wait_until_entered()
    lease = Lease(id="a", consumer="c", version=1, until=1)

    def burial(reason: Any) -> Change:
        return lease_change(Operation.BURY, lease, reason=reason)

    waiting = threads.apply(topic.uid, [burial("x" * 600)])
    with pytest.raises(StoreBusy, match=r"600 bytes wait .* nothing was changed"):
        threads.apply(topic.uid, [burial("x" * 401)])
    wrong = cast(list[Change], [lease, "ab", burial(5)])
    beside = threads.apply(topic.uid, wrong)
    tap.gate.set()
    assert [answer(each) for each in (first, waiting)] == [["done"], ["not_found"]]
    assert answer(beside) == ["invalid"] * 3
    threads.close()


def test_queued_bodies_stay_within_the_byte_bound(store: Store, topic: Topic) -> None:
    tap = Tap(store)
    threads = StorageThreads(cast(Store, tap), most_bytes=10_000)
    tap.gate.clear()
    first = threads.create(topic.uid, messages("first", 1))
    tap.wait_until_entered()

    def flood(number: int) -> list[Future[list[Outcome]]]:
        taken = []
        for each in range(50):
            heavy = NewMessage(id=f"{number}-{each}", due=0, body=bytes(900))
            with suppress(StoreBusy):
                taken.append(threads.create(topic.uid, [heavy]))
        return taken

    with ThreadPoolExecutor(8) as callers:
        held = [call for calls in callers.map(flood, range(8)) for call in calls]
    assert len(held) == 10_000 // 900
    tap.gate.set()
    assert answer(first) == ["done"]
    assert [answer(call) for call in held] == [["done"]] * len(held)
    threads.close()


@pytest.mark.parametrize(
    "wrong",
    [
        NewMessage(id="x", due=0, body=cast(bytes, "text")),
        NewMessage(id="x", due=0, body=cast(bytes, 5)),
        NewMessage(id="x", due=0, headers=cast(tuple[Header, ...], 5)),
        NewMessage(id="x", due=0, headers=cast(tuple[Header, ...], (5, ("a", b"b")))),
        NewMessage(id="x", due=0, headers=(("a", cast(bytes, 5)),)),
        cast(NewMessage, "x"),
    ],
)
def test_message_without_a_size_is_refused_alone(
    threads: StorageThreads, topic: Topic, wrong: NewMessage
) -> None:
    assert answer(threads.create(topic.uid, [wrong, *messages("m", 1)])) == ["invalid", "done"]


def test_failed_calls_free_their_queue_space(store: Store, topic: Topic) -> None:
    tap = Tap(store)
    threads = StorageThreads(cast(Store, tap), most_waiting=1_000)
    tap.fail = unavailable
    for number in range(20):
        with pytest.raises(StoreError):
            answer(threads.create(topic.uid, messages(f"failed{number}", 1_000)))
    tap.fail = lambda _: None
    tap.gate.clear()
    first = threads.create(topic.uid, messages("first", 1))
    while not tap.entered.acquire(timeout=0.01) or tap.commits[-1] != ("create", 1):
        pass
    waiting = threads.create(topic.uid, messages("a", 1_000))
    try:
        with pytest.raises(StoreBusy):
            threads.create(topic.uid, messages("b", 1))
    finally:
        tap.gate.set()
        threads.close()
    assert answer(first) == ["done"]
    assert answer(waiting) == ["done"] * 1_000


# Errors


def unavailable(_: str) -> None:
    raise StoreUnavailable("the store is gone")


def failing_on(number: int, error: Exception) -> Callable[[str], None]:
    """Fails the change of this number, counted from now."""
    seen = itertools.count(1)

    def fail(_: str) -> None:
        if next(seen) == number:
            raise error

    return fail


@pytest.mark.parametrize("error", [StoreUnavailable("gone"), OutcomeUnknown("lost")], ids=repr)
def test_error_reaches_only_the_callers_of_its_commit(
    tap: Tap,
    threads: StorageThreads,
    topic: Topic,
    busy: Future[list[Outcome]],
    error: Exception,
) -> None:
    together = [threads.create(topic.uid, messages(f"m{number}", 1)) for number in range(3)]
    other = threads.apply(topic.uid, cancels("first-0"))
    tap.fail = failing_on(2, error)
    tap.gate.set()
    assert answer(busy) == ["done"]
    for call in together:
        with pytest.raises(type(error)) as raised:
            answer(call)
        assert raised.value is error
    assert answer(other) == ["done"]
    assert answer(threads.create(topic.uid, messages("m0", 1))) == ["done"]


def test_bad_call_does_not_fail_its_neighbours(
    tap: Tap, threads: StorageThreads, topic: Topic, busy: Future[list[Outcome]]
) -> None:
    good = threads.create(topic.uid, messages("good", 1))
    wrong = threads.create(topic.uid, messages("wrong", 1))
    also_good = threads.create(topic.uid, messages("also", 1))

    def fail(_: str) -> None:
        if "wrong-0" in tap.ids:
            raise ValueError("a bug")

    tap.fail = fail
    tap.gate.set()
    assert answer(busy) == answer(good) == answer(also_good) == ["done"]
    with pytest.raises(ValueError, match="a bug"):
        answer(wrong)


def test_invalid_batch_is_refused_at_once(threads: StorageThreads, topic: Topic) -> None:
    answer(threads.create(topic.uid, [NewMessage(id=each, due=0) for each in ("a", "b", "ab")]))
    for wrong in ("ab", b"ab", 5, iter(["a"])):
        with pytest.raises(InvalidInput, match="a batch must be a list or a tuple"):
            threads.apply(topic.uid, cast(list[Change], wrong))
    changes = cast(list[Change], set(cancels("a", "b", "ab")))
    assert answer(threads.apply(topic.uid, changes)) == ["done"] * 3


def test_changes_of_producer_groups_share_a_commit(
    tap: Tap, threads: StorageThreads, topic: Topic, busy: Future[list[Outcome]]
) -> None:
    others = threads.apply(topic.uid, cancels("first-0", group="others"))
    own = threads.apply(topic.uid, cancels("first-0"))
    tap.gate.set()
    assert (answer(others), answer(own)) == (["not_owner"], ["done"])
    assert tap.commits == [("create", 1), ("cancel", 2)]


def test_batch_without_an_operation_is_refused_at_once(
    threads: StorageThreads, topic: Topic
) -> None:
    with pytest.raises(InvalidInput, match="must have one of these operations"):
        threads.apply(topic.uid, cast(list[Change], ["a", 5]))


def test_batch_is_copied_when_submitted(
    tap: Tap, threads: StorageThreads, topic: Topic, busy: Future[list[Outcome]]
) -> None:
    batch = messages("m", 2)
    call = threads.create(topic.uid, batch)
    batch.clear()
    tap.gate.set()
    assert answer(call) == ["done", "done"]


def test_missing_topic_fails_only_its_call(threads: StorageThreads, topic: Topic) -> None:
    with pytest.raises(TopicNotFound):
        answer(threads.create(topic.uid + 1, messages("m", 1)))
    assert answer(threads.create(topic.uid, messages("m", 1))) == ["done"]


def test_partly_done_call_has_an_unknown_outcome(
    tap: Tap, threads: StorageThreads, topic: Topic
) -> None:
    def fail_later(_: str) -> None:
        if len(tap.commits) > 1:
            raise StoreUnavailable("gone")

    tap.fail = fail_later
    with pytest.raises(OutcomeUnknown, match="a part of the batch is done"):
        answer(threads.create(topic.uid, messages("m", 20_000)))
    tap.fail = lambda _: None
    again = answer(threads.create(topic.uid, messages("m", 20_000)))
    assert again.count("exists") == tap.commits[0][1]
    assert again.count("done") == 20_000 - tap.commits[0][1]


def test_cancelled_call_does_not_stop_the_thread(
    tap: Tap, threads: StorageThreads, topic: Topic, busy: Future[list[Outcome]]
) -> None:
    given_up = threads.create(topic.uid, messages("a", 1))
    assert given_up.cancel()  # as asyncio does at a time-out
    beside = threads.create(topic.uid, messages("b", 1))
    tap.gate.set()
    assert answer(busy) == ["done"]
    assert answer(beside) == ["done"]
    assert answer(threads.create(topic.uid, messages("c", 1))) == ["done"]


def test_cancelled_reservation_does_not_stop_the_thread(
    tap: Tap, threads: StorageThreads, topic: Topic, busy: Future[list[Outcome]]
) -> None:
    given_up = threads.reserve(topic.uid, [taker(topic)], lease_ms=1_000)
    given_up.cancel()
    tap.gate.set()
    assert answer(busy) == ["done"]
    assert answer(threads.create(topic.uid, messages("c", 1))) == ["done"]


# Closing


def test_closing_finishes_what_waits(
    tap: Tap, threads: StorageThreads, topic: Topic, busy: Future[list[Outcome]]
) -> None:
    waiting = [threads.create(topic.uid, messages(f"m{number}", 1_000)) for number in range(5)]
    closing = threading.Thread(target=threads.close)
    closing.start()
    tap.gate.set()
    closing.join(PATIENCE_S)
    assert not closing.is_alive()
    assert all(call.done() for call in (busy, *waiting))
    assert [answer(call) for call in waiting] == [["done"] * 1_000] * 5


def test_closing_twice_is_fine_and_later_calls_are_refused(
    threads: StorageThreads, topic: Topic
) -> None:
    threads.close()
    threads.close()
    with pytest.raises(StoreClosed):
        threads.create(topic.uid, messages("m", 1))
