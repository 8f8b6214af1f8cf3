"""A firing lane in real time: everything once, nothing early, whatever happens around it."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest

from chronoline.clock import Clock, SystemClock
from chronoline.core.agenda import Agenda
from chronoline.core.errors import (
    InvalidInput,
    OutcomeUnknown,
    StoreUnavailable,
    TopicNotFound,
)
from chronoline.core.message import LeasedMessage, Message, NewMessage
from chronoline.core.ranges import BucketRange
from chronoline.core.topic import Topic, TopicSettings
from chronoline.lanes import firing as firing_lane
from chronoline.lanes.firing import Deliver, FiringLane
from chronoline.stores.contract import MAX_BATCH, Store
from chronoline.stores.opening import open_store
from tests.lanes.stores import PATIENCE_S, Tap

HOUR_MS = 3_600_000

now_ms = SystemClock().now_ms


class Inbox:
    """What was delivered, and when."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self.messages: list[LeasedMessage] = []
        self.early: list[str] = []
        self._changed = threading.Condition()

    def __call__(self, message: LeasedMessage) -> None:
        moment = self._clock.now_ms()
        with self._changed:
            self.messages.append(message)
            if message.message.due > moment:
                self.early.append(message.lease.id)
            self._changed.notify_all()

    def wait_for(self, *ids: str) -> None:
        """Waits until all of these were delivered."""
        with self._changed:
            self._changed.wait_for(lambda: set(ids) <= self.counts().keys(), PATIENCE_S)
            missing = sorted(set(ids) - self.counts().keys())
        assert not missing, f"{len(missing)} were not delivered, {missing[0]} among them"

    def counts(self) -> Counter[str]:
        return Counter(each.lease.id for each in self.messages)


@pytest.fixture
def inbox() -> Inbox:
    return Inbox()


@contextmanager
def firing(
    store: Store | Tap, topic: Topic, deliver: Deliver, **named: Any
) -> Iterator[FiringLane]:
    """A lane that does not look by itself within the test: only the agenda and notices wake it."""
    given: dict[str, Any] = {"consumer": "c", "agenda": Agenda(max_sleep_ms=HOUR_MS)} | named
    lane = FiringLane(cast(Store, store), topic, deliver, **given)
    lane.start()
    try:
        yield lane
    finally:
        lane.stop()


class Ledger(Agenda):
    """An agenda that remembers how many bytes it held at most."""

    most_held_bytes = 0

    def reserved(
        self, leased: Iterable[LeasedMessage], *, next_ts: int | None, more: bool, now_ms: int
    ) -> None:
        super().reserved(leased, next_ts=next_ts, more=more, now_ms=now_ms)
        self.most_held_bytes = max(self.most_held_bytes, self.held_bytes)


class ShiftedClock(SystemClock):
    """The machine's clock, put back by so much."""

    back_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() - self.back_ms

    def seconds_until(self, moment_ms: int) -> float:
        return super().seconds_until(moment_ms + self.back_ms)


def times(number: int, name: str, error: Exception) -> Callable[[str], None]:
    """Raises for so many changes of this name."""
    left = [error] * number

    def fail(asked: str) -> None:
        if asked == name and left:
            raise left.pop()

    return fail


def create(store: Store, topic: Topic, *ids: str, in_ms: int) -> int:
    """Puts messages so far ahead, and answers when they are due."""
    now = now_ms()
    messages = [NewMessage(id=each, due=now + in_ms) for each in ids]
    assert all(outcome.done for outcome in store.create(topic.uid, messages, now_ms=now))
    return now + in_ms


def wait_until(condition: Callable[[], bool]) -> None:
    """Asks again and again: for what only the store can tell."""
    give_up = now_ms() + PATIENCE_S * 1000
    while not condition():
        assert now_ms() < give_up
        time.sleep(0.001)  # lets the others work


def remaining(store: Store, topic: Topic) -> int:
    end = now_ms() + 10 * HOUR_MS
    return store.count(topic.uid, topic.all_buckets, start=0, end=end, now_ms=now_ms()).total


def waiting(store: Store, topic: Topic) -> int:
    end = now_ms() + 10 * HOUR_MS
    return store.count(topic.uid, topic.all_buckets, start=0, end=end, now_ms=now_ms()).waiting


# Once, and not early


def test_everything_is_delivered_once_and_not_early_and_acked(
    store: Store, topic: Topic, inbox: Inbox
) -> None:
    now = now_ms()
    ids = [f"m{number}" for number in range(1_000)]
    messages = [
        NewMessage(id=each, due=now - 100 + place, body=each.encode())
        for place, each in enumerate(ids)
    ]
    store.create(topic.uid, messages, now_ms=now)
    with firing(store, topic, inbox):
        inbox.wait_for(*ids)
    assert inbox.counts() == dict.fromkeys(ids, 1)
    assert inbox.early == []
    assert all(each.body == each.lease.id.encode() for each in inbox.messages)
    assert [each.message.due for each in inbox.messages] == sorted(each.due for each in messages)
    assert remaining(store, topic) == 0


def test_several_lanes_share_a_timeline(store: Store, topic: Topic, inbox: Inbox) -> None:
    ids = [f"m{number}" for number in range(300)]
    with (
        firing(store, topic, inbox, consumer="a"),
        firing(store, topic, inbox, consumer="b"),
        firing(store, topic, inbox, consumer="c"),
    ):
        for place in range(0, 300, 30):
            create(store, topic, *ids[place : place + 30], in_ms=place)
        inbox.wait_for(*ids)
    assert inbox.counts() == dict.fromkeys(ids, 1)
    assert inbox.early == []
    assert remaining(store, topic) == 0


def test_more_than_an_agenda_holds(store: Store, topic: Topic, inbox: Inbox) -> None:
    ids = [f"m{number}" for number in range(200)]
    create(store, topic, *ids, in_ms=50)
    agenda = Agenda(capacity=7, max_sleep_ms=HOUR_MS)
    with firing(store, topic, inbox, agenda=agenda):
        inbox.wait_for(*ids)
    assert inbox.counts() == dict.fromkeys(ids, 1)
    assert inbox.early == []
    assert remaining(store, topic) == 0


def test_of_a_flood_of_large_bodies_no_more_is_held_than_the_bound(
    store: Store, inbox: Inbox
) -> None:
    largest = TopicSettings(largest_body_bytes=100_000)
    topic = store.create_topic("large", largest, now_ms=now_ms())
    ids = [f"m{number}" for number in range(60)]
    now = now_ms()
    flood = [NewMessage(id=each, due=now, body=bytes(100_000)) for each in ids]
    store.create(topic.uid, flood, now_ms=now)
    agenda = Ledger(max_sleep_ms=HOUR_MS, most_bytes=1_000_000)
    with firing(store, topic, inbox, agenda=agenda):
        inbox.wait_for(*ids)
    assert inbox.counts() == dict.fromkeys(ids, 1)
    assert 100_000 < agenda.most_held_bytes <= 1_000_000
    assert agenda.held_bytes == 0
    assert remaining(store, topic) == 0


# What changes while it runs


def test_what_is_created_while_it_runs(store: Store, topic: Topic, inbox: Inbox) -> None:
    with firing(store, topic, inbox):
        create(store, topic, "far", in_ms=HOUR_MS)
        for number in range(20):
            create(store, topic, f"m{number}", in_ms=number % 3 * 60)
            inbox.wait_for(f"m{number}")
    assert inbox.early == []
    assert inbox.counts() == {f"m{number}": 1 for number in range(20)}
    assert remaining(store, topic) == 1


def test_what_another_store_on_the_same_file_creates(
    store: Store, url: str, topic: Topic, inbox: Inbox
) -> None:
    if not store.capabilities.shared:
        pytest.skip("memory is not shared: capabilities.shared is false")
    with open_store(url) as other, firing(store, topic, inbox):
        for number in range(10):
            create(other, topic, f"m{number}", in_ms=number % 2 * 150)
            inbox.wait_for(f"m{number}")
    assert inbox.early == []
    assert inbox.counts() == {f"m{number}": 1 for number in range(10)}


def test_rescheduled_and_cancelled_messages_do_not_come_at_the_old_time(
    store: Store, topic: Topic, inbox: Inbox
) -> None:
    with firing(store, topic, inbox):
        due = create(store, topic, "later", "sooner", "never", "control", in_ms=700)
        moves = [("later", due + 200), ("sooner", due - 200)]
        moved = store.reschedule(topic.uid, moves, producer_group="default", now_ms=now_ms())
        gone = store.cancel(topic.uid, ["never"], producer_group="default", now_ms=now_ms())
        assert [outcome.done for outcome in (*moved, *gone)] == [True] * 3
        inbox.wait_for("later")
    delivered = [(each.lease.id, each.message.due) for each in inbox.messages]
    assert delivered == [("sooner", due - 200), ("control", due), ("later", due + 200)]
    assert inbox.early == []


def test_a_message_from_far_away_that_is_brought_near(
    store: Store, topic: Topic, inbox: Inbox
) -> None:
    create(store, topic, "a", in_ms=HOUR_MS)
    with firing(store, topic, inbox):
        moves = [("a", now_ms() + 50)]
        store.reschedule(topic.uid, moves, producer_group="default", now_ms=now_ms())
        inbox.wait_for("a")
    assert inbox.early == []


# Failures


def test_what_could_not_be_delivered_is_tried_again(
    store: Store, topic: Topic, inbox: Inbox
) -> None:
    failures = iter([ValueError("no"), ValueError("not yet")])

    def fail_twice(message: LeasedMessage) -> None:
        for failure in failures:
            raise failure
        inbox(message)

    with firing(store, topic, fail_twice, retry_ms=30):
        create(store, topic, "a", in_ms=0)
        inbox.wait_for("a")
    assert [each.message.attempts for each in inbox.messages] == [2]
    assert inbox.early == []
    assert remaining(store, topic) == 0


def test_a_message_that_always_fails_does_not_harm_its_neighbours(
    store: Store, inbox: Inbox
) -> None:
    topic = store.create_topic("poisoned", TopicSettings(max_attempts=3), now_ms=now_ms())

    def deliver(message: LeasedMessage) -> None:
        if message.lease.id == "poison":
            raise SystemExit("no")
        inbox(message)

    with firing(store, topic, deliver, retry_ms=20):
        create(store, topic, "a", "poison", "b", in_ms=0)
        inbox.wait_for("a", "b")
        wait_until(lambda: bool(store.dead_letters(topic.uid, limit=10)))
    (dead,) = store.dead_letters(topic.uid, limit=10)
    assert (dead.message.id, dead.reason) == ("poison", "attempts")
    assert inbox.counts() == {"a": 1, "b": 1}


def test_a_slow_delivery_keeps_its_lease_and_others_serve_the_rest(
    store: Store, inbox: Inbox
) -> None:
    topic = store.create_topic("slow", TopicSettings(max_attempts=2), now_ms=now_ms())
    go_on = threading.Event()
    other = Inbox()

    def slow(message: LeasedMessage) -> None:
        if message.lease.id == "slow":
            assert go_on.wait(PATIENCE_S)
        inbox(message)

    create(store, topic, "slow", in_ms=0)
    create(store, topic, "behind", in_ms=20)
    with firing(store, topic, slow, hold_ms=600):
        first = store.lookup(topic.uid, ["slow"])["slow"].version
        wait_until(lambda: store.lookup(topic.uid, ["slow"])["slow"].version > first + 2)
        with firing(store, topic, other, consumer="other"):
            other.wait_for("behind")
            go_on.set()
            inbox.wait_for("slow")
    assert inbox.counts() + other.counts() == {"slow": 1, "behind": 1}
    assert store.dead_letters(topic.uid, limit=10) == []
    assert remaining(store, topic) == 0


def test_a_delivery_that_lost_its_lease_still_keeps_its_lane_from_reserving(
    tap: Tap, topic: Topic, inbox: Inbox
) -> None:
    begun, go_on, lost = threading.Event(), threading.Event(), threading.Event()

    def stuck(_: LeasedMessage) -> None:
        begun.set()
        assert go_on.wait(PATIENCE_S)

    def note(name: str) -> None:
        if name == "extend":
            lost.set()

    tap.fail = times(1_000, "extend", StoreUnavailable("the store is gone"))
    tap.lose = note
    create(tap.store, topic, "slow", in_ms=0)
    with firing(tap, topic, stuck, hold_ms=200):
        assert begun.wait(PATIENCE_S)
        wait_until(lambda: tap.store.lookup(topic.uid, ["slow"])["slow"].ts <= now_ms())
        tap.fail = lambda _: None
        assert lost.wait(PATIENCE_S)
        commits = len(tap.commits)
        create(tap.store, topic, "behind", in_ms=0)
        with firing(tap.store, topic, inbox, consumer="other"):
            inbox.wait_for("slow", "behind")
        assert ("reserve", 1) not in tap.commits[commits:]
        go_on.set()
    assert inbox.counts() == {"slow": 1, "behind": 1}
    assert remaining(tap.store, topic) == 0


def test_what_answers_something_to_await_is_not_taken_for_done(
    store: Store, topic: Topic, inbox: Inbox
) -> None:
    async def handle(message: LeasedMessage) -> None:
        inbox(message)

    with pytest.raises(InvalidInput, match="plain function"):
        FiringLane(store, topic, handle, consumer="c")
    awaited: list[Any] = []

    def deliver(message: LeasedMessage) -> Any:
        awaited.append(handle(message))
        return awaited[-1]

    create(store, topic, "a", in_ms=0)
    with firing(store, topic, deliver, retry_ms=HOUR_MS):
        wait_until(lambda: bool(awaited))
    awaited[0].close()
    assert store.lookup(topic.uid, ["a"])["a"].attempts == 1


@pytest.mark.parametrize(
    "wrong",
    [{"consumer": ""}, {"hold_ms": 5}, {"retry_ms": 0}, {"ranges": [BucketRange(0, 1_000)]}],
)
def test_wrong_arguments_are_refused_at_once(
    store: Store, topic: Topic, inbox: Inbox, wrong: dict[str, Any]
) -> None:
    with pytest.raises(InvalidInput):
        FiringLane(store, topic, inbox, **({"consumer": "c"} | wrong))


def test_a_lane_can_be_started_again_but_not_twice_at_once(
    store: Store, topic: Topic, inbox: Inbox
) -> None:
    lane = FiringLane(store, topic, inbox, consumer="c")
    with lane, pytest.raises(InvalidInput, match="runs already"):
        lane.start()
    create(store, topic, "a", in_ms=0)
    with lane:
        inbox.wait_for("a")
    assert remaining(store, topic) == 0


def test_a_lane_that_ended_by_itself_can_be_started_again(
    tap: Tap, topic: Topic, inbox: Inbox
) -> None:
    ended = times(1, "reserve", TopicNotFound("it is not there yet"))
    before = set(threading.enumerate())
    tap.fail = ended
    lane = FiringLane(cast(Store, tap), topic, inbox, consumer="c")
    lane.start()
    wait_until(lambda: set(threading.enumerate()) <= before)
    create(tap.store, topic, "a", in_ms=0)
    with lane:
        inbox.wait_for("a")
    assert remaining(tap.store, topic) == 0


def test_a_store_that_fails_for_a_while_is_survived(tap: Tap, topic: Topic, inbox: Inbox) -> None:
    left = Counter({"reserve": 2, "ack": 2})

    def fail(name: str) -> None:
        if left[name]:
            left[name] -= 1
            raise StoreUnavailable("the store is gone")

    tap.fail = fail
    create(tap.store, topic, "a", "b", in_ms=0)
    with firing(tap, topic, inbox):
        inbox.wait_for("a", "b")
        wait_until(lambda: remaining(tap.store, topic) == 0)
        create(tap.store, topic, "c", in_ms=50)
        inbox.wait_for("c")
    assert not +left
    assert inbox.counts() == {"a": 1, "b": 1, "c": 1}
    assert inbox.early == []


def test_whatever_the_store_raises_no_ack_is_lost(tap: Tap, topic: Topic, inbox: Inbox) -> None:
    tap.fail = times(1, "ack", RuntimeError("a bug"))
    create(tap.store, topic, "a", in_ms=0)
    with firing(tap, topic, inbox, hold_ms=HOUR_MS):
        inbox.wait_for("a")
        wait_until(lambda: remaining(tap.store, topic) == 0)
    assert inbox.counts() == {"a": 1}


def test_what_expired_behind_a_slow_delivery_is_dead_without_waiting_for_its_lease(
    store: Store,
) -> None:
    topic = store.create_topic("expiring", TopicSettings(max_attempts=1), now_ms=now_ms())
    now = now_ms()
    batch = [NewMessage(id="slow", due=now), NewMessage(id="b", due=now + 20, expires=now + 250)]
    store.create(topic.uid, batch, now_ms=now)
    agenda = Agenda(reserve_ahead_ms=1_000, max_sleep_ms=HOUR_MS)

    def slow(message: LeasedMessage) -> None:
        assert message.lease.id == "slow"
        wait_until(lambda: now_ms() >= now + 250)

    with firing(store, topic, slow, agenda=agenda, hold_ms=HOUR_MS):
        wait_until(lambda: bool(store.dead_letters(topic.uid, limit=10)))
    (dead,) = store.dead_letters(topic.uid, limit=10)
    assert (dead.message.id, dead.reason, dead.message.attempts) == ("b", "expired", 0)


# Changes without an answer


UNANSWERED = OutcomeUnknown("the answer was lost")


@pytest.mark.parametrize("made", [True, False])
def test_an_unanswered_extension_does_not_cost_the_lease(
    tap: Tap, topic: Topic, inbox: Inbox, made: bool
) -> None:
    def slow(message: LeasedMessage) -> None:
        inbox(message)
        wait_until(lambda: tap.commits.count(("extend", 1)) == 3)

    unanswered = times(1, "extend", UNANSWERED)
    if made:
        tap.lose = unanswered
    else:
        tap.fail = unanswered
    create(tap.store, topic, "a", in_ms=0)
    with firing(tap, topic, slow, hold_ms=1_000):
        wait_until(lambda: remaining(tap.store, topic) == 0)
    assert inbox.counts() == {"a": 1}


def test_a_delivery_that_ends_while_its_extension_is_not_answered_is_acked(
    tap: Tap, topic: Topic, inbox: Inbox
) -> None:
    unanswered = threading.Event()

    def lose(name: str) -> None:
        if name == "extend":
            unanswered.set()
            raise UNANSWERED

    def slow(message: LeasedMessage) -> None:
        inbox(message)
        assert unanswered.wait(PATIENCE_S)

    tap.lose = lose
    create(tap.store, topic, "a", in_ms=0)
    with firing(tap, topic, slow, hold_ms=600):
        wait_until(lambda: remaining(tap.store, topic) == 0)
    assert inbox.counts() == {"a": 1}


def test_what_an_unanswered_reservation_took_is_found_behind_much_that_is_held(
    tap: Tap, topic: Topic, inbox: Inbox
) -> None:
    create(tap.store, topic, *(f"a{number:04}" for number in range(1_200)), in_ms=0)
    tap.store.reserve(
        topic.uid,
        topic.all_buckets,
        consumer="c",
        limit=1_200,
        lease_ms=2 * HOUR_MS,
        now_ms=now_ms(),
    )
    tap.lose = times(1, "reserve", UNANSWERED)
    create(tap.store, topic, "z", in_ms=0)
    with firing(tap, topic, inbox, hold_ms=HOUR_MS):
        inbox.wait_for("z")
    assert inbox.counts() == {"z": 1}


def test_what_an_unanswered_reservation_took_is_delivered_without_waiting_for_its_lease(
    tap: Tap, topic: Topic, inbox: Inbox
) -> None:
    tap.lose = times(2, "reserve", UNANSWERED)
    create(tap.store, topic, "a", "b", in_ms=0)
    with firing(tap, topic, inbox, hold_ms=HOUR_MS):
        inbox.wait_for("a", "b")
    assert inbox.counts() == {"a": 1, "b": 1}
    assert {each.message.attempts for each in inbox.messages} == {0}
    assert remaining(tap.store, topic) == 0


def test_an_unanswered_reservation_leaves_alone_what_it_did_not_take(
    tap: Tap, topic: Topic, inbox: Inbox
) -> None:
    def version(message_id: str) -> int:
        return tap.store.lookup(topic.uid, [message_id])[message_id].version

    create(tap.store, topic, "elsewhere", in_ms=0)
    tap.store.reserve(
        topic.uid,
        topic.all_buckets,
        consumer="c",
        limit=1,
        lease_ms=2 * HOUR_MS,
        now_ms=now_ms(),
    )
    agenda = Agenda(reserve_ahead_ms=60_000, max_sleep_ms=HOUR_MS)
    create(tap.store, topic, "held", in_ms=50_000)
    with firing(tap, topic, inbox, agenda=agenda, hold_ms=HOUR_MS):
        wait_until(lambda: len(agenda) == 1)
        before = version("held"), version("elsewhere")
        tap.lose = times(1, "reserve", UNANSWERED)
        create(tap.store, topic, "lost", in_ms=0)
        inbox.wait_for("lost")
        assert (version("held"), version("elsewhere")) == before
    assert inbox.counts() == {"lost": 1}


def test_a_message_in_delivery_is_not_given_back_by_an_unanswered_reservation(
    tap: Tap, topic: Topic, inbox: Inbox
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(message: LeasedMessage) -> None:
        if message.lease.id == "slow":
            begun.set()
            assert go_on.wait(PATIENCE_S)
        inbox(message)

    create(tap.store, topic, "slow", in_ms=0)
    agenda = Agenda(max_sleep_ms=HOUR_MS)
    with firing(tap, topic, slow, agenda=agenda, hold_ms=HOUR_MS):
        assert begun.wait(PATIENCE_S)
        version = tap.store.lookup(topic.uid, ["slow"])["slow"].version
        tap.lose = times(1, "reserve", UNANSWERED)
        create(tap.store, topic, "lost", in_ms=0)
        wait_until(lambda: [lease.id for lease in agenda.leases()] == ["lost"])
        assert tap.store.lookup(topic.uid, ["slow"])["slow"].version == version
        go_on.set()
        inbox.wait_for("slow", "lost")
    assert inbox.counts() == {"slow": 1, "lost": 1}
    assert remaining(tap.store, topic) == 0


def test_what_an_unanswered_reservation_took_is_given_back_by_a_stop(
    tap: Tap, topic: Topic, inbox: Inbox
) -> None:
    lost = threading.Event()

    def lose(name: str) -> None:
        if name == "reserve":
            lost.set()
            raise UNANSWERED

    tap.lose = lose
    create(tap.store, topic, "a", in_ms=50_000)
    agenda = Agenda(reserve_ahead_ms=60_000, max_sleep_ms=HOUR_MS)
    with firing(tap, topic, inbox, agenda=agenda, hold_ms=HOUR_MS):
        assert lost.wait(PATIENCE_S)
    assert waiting(tap.store, topic) == 1
    assert inbox.messages == []


# A clock that is put back


@pytest.fixture
def clock() -> ShiftedClock:
    return ShiftedClock()


def test_a_clock_that_is_put_back_does_not_hold_up_acks(
    store: Store, topic: Topic, clock: ShiftedClock
) -> None:
    def deliver(message: LeasedMessage) -> None:
        if message.lease.id == "second":  # the first waits for its ack by now
            clock.back_ms = HOUR_MS

    create(store, topic, "first", in_ms=-1)
    create(store, topic, "second", in_ms=0)
    # Acks gather for half a minute.
    agenda = Agenda(reserve_ahead_ms=60_000, max_sleep_ms=HOUR_MS)
    with firing(store, topic, deliver, agenda=agenda, clock=clock, hold_ms=400):
        wait_until(lambda: remaining(store, topic) == 0)
    assert clock.back_ms == HOUR_MS


def test_a_clock_that_is_put_back_fires_nothing_early(
    store: Store, topic: Topic, clock: ShiftedClock
) -> None:
    inbox = Inbox(clock)
    agenda = Agenda(reserve_ahead_ms=60_000, max_sleep_ms=HOUR_MS)
    create(store, topic, "held", in_ms=500)
    with firing(store, topic, inbox, agenda=agenda, clock=clock):
        wait_until(lambda: len(agenda) == 1)
        clock.back_ms = 300
        inbox.wait_for("held")
    assert inbox.early == []
    assert inbox.counts() == {"held": 1}


def test_a_clock_that_is_put_back_does_not_stall_the_lane(
    store: Store, topic: Topic, clock: ShiftedClock
) -> None:
    inbox = Inbox(clock)
    agenda = Agenda(max_sleep_ms=HOUR_MS)
    with firing(store, topic, inbox, agenda=agenda, clock=clock, hold_ms=400):
        wait_until(lambda: (agenda.reserve_at(now_ms()) or 0) > now_ms() + HOUR_MS // 2)
        # Its creator's clock was so wrong that nobody took notice.
        unnoticed = NewMessage(id="unnoticed", due=now_ms() - 1_000)
        store.create(topic.uid, [unnoticed], now_ms=0)
        clock.back_ms = 500
        inbox.wait_for("unnoticed")
    assert inbox.early == []
    assert remaining(store, topic) == 0


@pytest.mark.parametrize("url", ["memory"], indirect=True)
def test_more_at_one_moment_than_a_store_takes_in_one_batch(
    store: Store, topic: Topic, inbox: Inbox
) -> None:
    ids = [f"m{number}" for number in range(MAX_BATCH + 1_000)]
    for place in range(0, len(ids), 1_000):
        create(store, topic, *ids[place : place + 1_000], in_ms=0)
    # Acks gather for half of what is reserved ahead: long enough for all of them.
    agenda = Agenda(reserve_ahead_ms=10_000, max_sleep_ms=HOUR_MS)
    with firing(store, topic, inbox, agenda=agenda, hold_ms=HOUR_MS):
        inbox.wait_for(*ids)
    assert inbox.counts() == dict.fromkeys(ids, 1)
    assert remaining(store, topic) == 0


@pytest.mark.parametrize("url", ["memory"], indirect=True)
def test_more_to_give_back_than_a_store_takes_in_one_batch(
    store: Store, topic: Topic, inbox: Inbox
) -> None:
    ids = [f"m{number}" for number in range(MAX_BATCH + 1_000)]
    for place in range(0, len(ids), 1_000):
        create(store, topic, *ids[place : place + 1_000], in_ms=50_000)
    agenda = Agenda(capacity=len(ids), reserve_ahead_ms=60_000, max_sleep_ms=HOUR_MS)
    with firing(store, topic, inbox, agenda=agenda):
        wait_until(lambda: waiting(store, topic) == 0)
    assert waiting(store, topic) == len(ids)
    assert inbox.messages == []


def test_a_topic_that_is_dropped_ends_in_peace(store: Store, topic: Topic, inbox: Inbox) -> None:
    with firing(store, topic, inbox):
        create(store, topic, "a", in_ms=0)
        inbox.wait_for("a")
        store.drop_topic(topic.uid, now_ms=now_ms())
        other = store.create_topic("other", now_ms=now_ms())
        create(store, other, "wakes the lane", in_ms=0)
        store.purge(now_ms=now_ms())
    assert inbox.counts() == {"a": 1}


# Stopping


def test_a_lane_works_on_the_agenda_that_it_is_given(
    store: Store, topic: Topic, inbox: Inbox
) -> None:
    create(store, topic, "a", in_ms=30_000)
    agenda = Agenda(reserve_ahead_ms=60_000)
    with firing(store, topic, inbox, agenda=agenda):
        wait_until(lambda: len(agenda) == 1)


def test_stopping_gives_back_what_is_held(store: Store, topic: Topic, inbox: Inbox) -> None:
    due = create(store, topic, "a", "b", in_ms=30_000)
    agenda = Agenda(reserve_ahead_ms=60_000)

    def held() -> dict[str, Message]:
        return store.lookup(topic.uid, ["a", "b"])

    with firing(store, topic, inbox, agenda=agenda):
        wait_until(lambda: all(each.lock_consumer for each in held().values()))
        version = held()["a"].version
    after = held()
    assert {(each.ts, each.due, each.lock_consumer) for each in after.values()} == {
        (due, due, None)
    }
    assert {each.attempts for each in after.values()} == {0}
    assert after["a"].version == version + 1
    assert inbox.messages == []


def test_stopping_waits_for_what_is_being_delivered_and_acks_it(store: Store, topic: Topic) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(_: LeasedMessage) -> None:
        begun.set()
        assert go_on.wait(PATIENCE_S)

    create(store, topic, "a", in_ms=0)
    with firing(store, topic, slow) as lane:
        assert begun.wait(PATIENCE_S)
        stopping = threading.Thread(target=lane.stop)
        stopping.start()
        assert remaining(store, topic) == 1
        go_on.set()
        stopping.join(PATIENCE_S)
        assert not stopping.is_alive()
    assert remaining(store, topic) == 0


def test_stopping_tries_again_while_the_store_fails(tap: Tap, topic: Topic, inbox: Inbox) -> None:
    left = Counter({"ack": 2, "unreserve": 2})

    def fail(name: str) -> None:
        if left[name]:
            left[name] -= 1
            raise StoreUnavailable("the store is gone")

    agenda = Agenda(reserve_ahead_ms=60_000, max_sleep_ms=HOUR_MS)
    create(tap.store, topic, "delivered", in_ms=0)
    create(tap.store, topic, "held", in_ms=50_000)
    with firing(tap, topic, inbox, agenda=agenda):
        inbox.wait_for("delivered")
        wait_until(lambda: len(agenda) == 1)
        tap.fail = fail
    assert not +left
    held = tap.store.lookup(topic.uid, ["delivered", "held"])
    assert [(each.id, each.lock_consumer, each.attempts) for each in held.values()] == [
        ("held", None, 0)
    ]


def test_stopping_ends_although_the_store_never_comes_back(
    tap: Tap, topic: Topic, inbox: Inbox
) -> None:
    def gone(_: str) -> None:
        raise StoreUnavailable("the store is gone")

    before = set(threading.enumerate())
    create(tap.store, topic, "a", in_ms=0)
    with firing(tap, topic, inbox, agenda=Agenda(reserve_ahead_ms=60_000), hold_ms=100):
        inbox.wait_for("a")
        tap.fail = gone
    assert set(threading.enumerate()) <= before
    assert remaining(tap.store, topic) == 1


def test_a_delivery_may_stop_its_lane(store: Store, topic: Topic, inbox: Inbox) -> None:
    before = set(threading.enumerate())
    stopped = threading.Event()

    def stop(message: LeasedMessage) -> None:
        lane.stop()
        inbox(message)
        stopped.set()

    agenda = Agenda(reserve_ahead_ms=60_000, max_sleep_ms=HOUR_MS)
    lane = FiringLane(store, topic, stop, consumer="c", agenda=agenda)
    create(store, topic, "last", in_ms=0)
    create(store, topic, "held", in_ms=50_000)
    with lane:
        assert stopped.wait(PATIENCE_S)
        wait_until(lambda: set(threading.enumerate()) <= before)
        assert remaining(store, topic) == waiting(store, topic) == 1
    assert inbox.counts() == {"last": 1}


def test_a_lane_that_a_delivery_stopped_can_be_started_again_but_not_from_there(
    store: Store, topic: Topic, inbox: Inbox
) -> None:
    def stop_once(message: LeasedMessage) -> None:
        if not inbox.messages:
            lane.stop()
            with pytest.raises(InvalidInput, match="runs already"):
                lane.start()
        inbox(message)

    lane = FiringLane(store, topic, stop_once, consumer="c")
    create(store, topic, "last", in_ms=0)
    lane.start()
    inbox.wait_for("last")
    create(store, topic, "next", in_ms=0)
    with lane:
        inbox.wait_for("next")
    assert inbox.counts() == {"last": 1, "next": 1}
    assert remaining(store, topic) == 0


def test_a_long_last_delivery_outlives_more_failures_than_one_lease_could(
    tap: Tap, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(firing_lane, "_STORE_FAILED_MS", 100)
    failures = 0
    begun, go_on = threading.Event(), threading.Event()

    def slow(_: LeasedMessage) -> None:
        begun.set()
        assert go_on.wait(PATIENCE_S)

    def fail_every_other(name: str) -> None:
        nonlocal failures
        if name == "extend" and tap.commits.count(("extend", 1)) % 2:
            failures += 1
            raise StoreUnavailable("the store is gone")
        if failures == 6:
            go_on.set()

    create(tap.store, topic, "a", in_ms=0)
    with firing(tap, topic, slow, hold_ms=400):
        assert begun.wait(PATIENCE_S)
        tap.fail = fail_every_other
    assert remaining(tap.store, topic) == 0


def test_stopping_twice_or_before_the_start_is_fine(
    store: Store, topic: Topic, inbox: Inbox
) -> None:
    FiringLane(store, topic, inbox, consumer="c").stop()
    with firing(store, topic, inbox) as lane:
        lane.stop()
        lane.stop()


def test_a_stopped_lane_leaves_no_threads(store: Store, topic: Topic, inbox: Inbox) -> None:
    before = set(threading.enumerate())
    with firing(store, topic, inbox):
        assert len(set(threading.enumerate()) - before) == 2
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize(
    ("max_attempts", "said"), [(1, "goes to the dead letters"), (2, "is tried again")]
)
def test_a_failure_says_what_becomes_of_the_message(
    max_attempts: int, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(message: LeasedMessage) -> None:
        raise ValueError("bad")

    with open_store("memory:") as store:
        topic = store.create_topic("t", TopicSettings(max_attempts=max_attempts), now_ms=now_ms())
        store.create(topic.uid, [NewMessage(id="a", due=now_ms())], now_ms=now_ms())
        (leased,) = store.reserve(
            topic.uid, topic.all_buckets, consumer="c", limit=1, lease_ms=1_000, now_ms=now_ms()
        ).leased
        assert not FiringLane(store, topic, fail, consumer="c")._fire(leased)
    assert caplog.messages == [f"delivering message 'a' failed; it {said}"]
