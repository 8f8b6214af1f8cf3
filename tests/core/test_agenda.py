"""The agenda in simulated time: when to reserve, deliver, give up and wake."""

import pytest

from chronoline.core.agenda import FROM_START_MS, MOST_GATHER_MS, Agenda, gather_ms
from tests.core.leased import ids, leased

NOW = 1_000_000
AHEAD = 100
TICK = AHEAD // 2
MAX_SLEEP = 10_000


def agenda_at(next_ts: int | None, *, now_ms: int = NOW, capacity: int = 10) -> Agenda:
    """Returns an agenda that has just reserved everything within reach, with the next ts."""
    agenda = Agenda(capacity=capacity, reserve_ahead_ms=AHEAD, max_sleep_ms=MAX_SLEEP)
    agenda.reserved([], next_ts=next_ts, more=False, now_ms=now_ms)
    return agenda


# Reserving


def test_the_first_thing_to_do_is_to_reserve() -> None:
    agenda = Agenda()
    assert agenda.reserve_at(NOW) == NOW
    assert agenda.wake_at(NOW) == NOW


def test_sparse_traffic_waits_for_the_next_message() -> None:
    agenda = agenda_at(NOW + 5_000)
    assert agenda.reserve_at(NOW) == NOW + 5_000 - AHEAD
    assert agenda.wake_at(NOW) == NOW + 5_000 - AHEAD


@pytest.mark.parametrize("next_in_ms", [-5, 0, 1, AHEAD, AHEAD + 1, AHEAD + TICK])
def test_dense_traffic_ticks_at_half_of_reserve_ahead(next_in_ms: int) -> None:
    assert agenda_at(NOW + next_in_ms).reserve_at(NOW) == NOW + TICK


def test_right_behind_the_tick_the_next_one_decides() -> None:
    assert agenda_at(NOW + AHEAD + TICK + 1).reserve_at(NOW) == NOW + TICK + 1


@pytest.mark.parametrize("next_ts", [None, NOW + AHEAD + MAX_SLEEP + 1, NOW + 10**9])
def test_reservation_repeats_after_max_sleep_without_notices(next_ts: int | None) -> None:
    assert agenda_at(next_ts).wake_at(NOW) == NOW + MAX_SLEEP


def test_when_there_is_more_it_reserves_at_once() -> None:
    agenda = agenda_at(None)
    agenda.reserved([leased("a", due=NOW + 50)], next_ts=NOW + 9_000, more=True, now_ms=NOW)
    assert agenda.reserve_at(NOW) == NOW
    assert agenda.wake_at(NOW) == NOW


def test_failed_reservation_is_retried_at_the_given_time() -> None:
    agenda = Agenda()
    agenda.postponed(NOW + 250, now_ms=NOW)
    assert agenda.reserve_at(NOW) == NOW + 250


# Notices


@pytest.mark.parametrize("due", [0, NOW, NOW + 1, NOW + AHEAD])
def test_a_notice_inside_the_covered_stretch_reserves_at_once(due: int) -> None:
    agenda = agenda_at(NOW + 5_000)
    assert agenda.noticed(due)
    assert agenda.reserve_at(NOW + 3) == NOW + 3


def test_a_notice_of_an_unknown_place_reserves_at_once() -> None:
    agenda = agenda_at(None)
    assert agenda.noticed(None)
    assert not agenda.noticed(None)  # it is planned already
    assert agenda.reserve_at(NOW + 3) == NOW + 3


def test_an_earlier_notice_wakes_earlier() -> None:
    agenda = agenda_at(NOW + 5_000)
    assert agenda.noticed(NOW + 2_000)
    assert agenda.wake_at(NOW) == NOW + 2_000 - AHEAD


def test_a_later_notice_changes_nothing() -> None:
    agenda = agenda_at(NOW + 5_000)
    assert not agenda.noticed(NOW + 7_000)
    assert agenda.wake_at(NOW) == NOW + 5_000 - AHEAD


def test_notices_beyond_the_covered_stretch_wait_for_the_tick() -> None:
    agenda = agenda_at(NOW + 5_000)
    agenda.noticed(NOW + AHEAD + 1)
    assert agenda.reserve_at(NOW) == NOW + TICK


def test_notice_does_not_delay_an_immediate_reservation() -> None:
    agenda = Agenda(reserve_ahead_ms=AHEAD)
    assert not agenda.noticed(NOW + 5_000)
    assert agenda.reserve_at(NOW) == NOW


# Capacity


def test_room_is_what_is_left_of_the_capacity() -> None:
    agenda = agenda_at(None, capacity=3)
    assert agenda.room() == 3
    agenda.reserved([leased("a", due=NOW + 1)], next_ts=None, more=False, now_ms=NOW)
    assert agenda.room() == 2
    assert len(agenda) == 1


def test_a_full_agenda_reserves_nothing_until_it_has_delivered() -> None:
    agenda = agenda_at(None, capacity=2)
    held = [leased("a", due=NOW + 10), leased("b", due=NOW + 20)]
    agenda.reserved(held, next_ts=None, more=True, now_ms=NOW)
    agenda.noticed(NOW)
    assert agenda.room() == 0
    assert agenda.reserve_at(NOW) is None
    assert agenda.wake_at(NOW) == NOW + 10
    agenda.deliver(NOW + 10)
    assert agenda.reserve_at(NOW + 10) == NOW + 10


def test_an_agenda_without_room_makes_no_sense() -> None:
    with pytest.raises(ValueError, match="capacity must be at least 1"):
        Agenda(capacity=0)


# Bytes


def agenda_of(most_bytes: int, largest_bytes: int) -> Agenda:
    agenda = Agenda(capacity=100, reserve_ahead_ms=AHEAD, most_bytes=most_bytes)
    agenda.largest_bytes = largest_bytes
    return agenda


def hold(agenda: Agenda, *sizes: int) -> None:
    held = [leased(f"m{size}", due=NOW + size, body=bytes(size)) for size in sizes]
    agenda.reserved(held, next_ts=None, more=True, now_ms=NOW)


def test_room_assumes_messages_of_the_largest_size() -> None:
    agenda = agenda_of(1_000, largest_bytes=300)
    assert agenda.room() == 3
    hold(agenda, 10, 20)  # they turned out to be small
    assert agenda.room() == 3
    hold(agenda, 300)
    assert agenda.room() == 2


def test_body_key_and_headers_count() -> None:
    agenda = agenda_of(1_000, largest_bytes=300)
    headers = (("name", b"value"), ("nothing", None))
    whole = leased("a", due=NOW, body=b"body", key=b"key", headers=headers)
    agenda.reserved([whole], next_ts=None, more=True, now_ms=NOW)
    assert agenda.held_bytes == len("bodykeynamevaluenothing")
    bare = leased("b", due=NOW, body=None)
    agenda.reserved([bare], next_ts=None, more=True, now_ms=NOW)
    assert agenda.held_bytes == len("bodykeynamevaluenothing")


def test_agenda_full_by_bytes_reserves_nothing() -> None:
    agenda = agenda_of(1_000, largest_bytes=300)
    hold(agenda, 299, 300, 200)
    assert agenda.room() == 0
    assert agenda.reserve_at(NOW) is None
    agenda.deliver(NOW + 200)
    assert agenda.room() == 1
    assert agenda.reserve_at(NOW + 200) == NOW + 200


def test_empty_agenda_takes_one_oversized_message() -> None:
    agenda = agenda_of(1_000, largest_bytes=5_000)
    assert agenda.room() == 1
    hold(agenda, 5_000)
    assert agenda.room() == 0


def test_removed_message_frees_its_bytes() -> None:
    agenda = agenda_of(1_000, largest_bytes=300)
    hold(agenda, 1, 10, 100, 2_000)
    agenda.deliver(NOW + 1)
    assert agenda.held_bytes == 2_110
    agenda.ending(NOW + 10 + 1_000)
    assert agenda.held_bytes == 2_100
    agenda.deliver(NOW + 100 + 1_000)  # too late
    assert agenda.held_bytes == 2_000
    agenda.give_back()
    assert agenda.held_bytes == 0


def test_capacity_alone_bounds_messages_without_a_size() -> None:
    agenda = agenda_of(1_000, largest_bytes=0)
    hold(agenda, 5_000)
    assert agenda.room() == 99


# Delivering


def test_nothing_leaves_before_its_due() -> None:
    agenda = agenda_at(None)
    agenda.reserved([leased("a", due=NOW + 50)], next_ts=None, more=False, now_ms=NOW)
    assert agenda.deliver_at() == NOW + 50
    assert agenda.deliver(NOW + 49) == []
    assert ids(agenda.deliver(NOW + 50)) == ["a"]
    assert agenda.deliver(NOW + 51) == []
    assert agenda.deliver_at() is None


def test_due_messages_leave_in_order_of_due_and_arrival() -> None:
    agenda = agenda_at(None)
    first = [leased("late", due=NOW + 30), leased("twin 1", due=NOW + 20)]
    second = [leased("early", due=NOW + 10), leased("twin 2", due=NOW + 20)]
    agenda.reserved(first, next_ts=None, more=False, now_ms=NOW)
    agenda.reserved(second, next_ts=None, more=False, now_ms=NOW)
    assert ids(agenda.deliver(NOW + 30)) == ["early", "twin 1", "twin 2", "late"]


def test_the_wake_is_the_earlier_of_delivery_and_reservation() -> None:
    agenda = agenda_at(None)
    agenda.reserved([leased("a", due=NOW + 20)], next_ts=NOW, more=False, now_ms=NOW)
    assert agenda.wake_at(NOW) == NOW + 20
    agenda.deliver(NOW + 20)
    assert agenda.wake_at(NOW + 20) == NOW + TICK


# Lapsing


@pytest.mark.parametrize(
    ("margin_ms", "now_ms", "delivered"),
    [
        (0, NOW + 499, True),
        (0, NOW + 500, False),
        (0, NOW + 501, False),
        (20, NOW + 479, True),
        (20, NOW + 480, False),
    ],
)
def test_only_while_the_lease_lives(margin_ms: int, now_ms: int, delivered: bool) -> None:
    agenda = Agenda(margin_ms=margin_ms)
    message = leased("a", due=NOW, until=NOW + 500)
    agenda.reserved([message], next_ts=None, more=False, now_ms=NOW)
    assert agenda.deliver(now_ms) == ([message] if delivered else [])
    assert agenda.lapsed() == ([] if delivered else [message.lease])
    assert len(agenda) == 0


def test_lapsed_lease_is_reported_once_and_frees_room() -> None:
    agenda = agenda_at(None, capacity=1)
    agenda.reserved([leased("a", due=NOW)], next_ts=None, more=False, now_ms=NOW)
    agenda.deliver(NOW + 60_000)
    assert agenda.room() == 1
    assert [lease.id for lease in agenda.lapsed()] == ["a"]
    assert agenda.lapsed() == []


def test_expired_message_under_a_live_lease_is_reported_apart() -> None:
    agenda = agenda_at(None)
    held = [
        leased("expired", due=NOW, until=NOW + 500, expires=NOW + 100),
        leased("lapsed", due=NOW, until=NOW + 100, expires=NOW + 100),
        leased("lives", due=NOW, until=NOW + 500, expires=NOW + 101),
    ]
    agenda.reserved(held, next_ts=None, more=False, now_ms=NOW)
    assert agenda.deliver(NOW + 100) == [held[2]]
    assert agenda.expired() == [held[0].lease]
    assert agenda.lapsed() == [held[1].lease]
    assert agenda.expired() == agenda.lapsed() == []


# Giving back


def test_everything_can_be_given_back_by_due() -> None:
    agenda = agenda_at(None)
    held = [leased("b", due=NOW + 20), leased("a", due=NOW + 10), leased("c", due=NOW + 20)]
    agenda.reserved(held, next_ts=None, more=False, now_ms=NOW)
    assert [lease.id for lease in agenda.give_back()] == ["a", "b", "c"]
    assert len(agenda) == 0
    assert agenda.deliver(NOW + 100) == []


def test_held_leases_are_listed_and_stay() -> None:
    agenda = agenda_at(None)
    held = [leased("b", due=NOW + 20), leased("a", due=NOW + 10)]
    agenda.reserved(held, next_ts=None, more=False, now_ms=NOW)
    assert sorted(lease.id for lease in agenda.leases()) == ["a", "b"]
    assert len(agenda) == 2


# Clock rollback


@pytest.mark.parametrize("back_ms", [1, TICK, MAX_SLEEP - 1, MAX_SLEEP + 1, 3_600_000])
def test_clock_rollback_reserves_at_once(back_ms: int) -> None:
    agenda = agenda_at(None)
    assert agenda.reserve_at(NOW - back_ms) == NOW - back_ms
    assert agenda.wake_at(NOW - back_ms) == NOW - back_ms


def test_clock_rollback_retries_a_failed_reservation_at_once() -> None:
    agenda = agenda_at(None)
    agenda.postponed(NOW + 250, now_ms=NOW + 50)
    assert agenda.reserve_at(NOW + 49) == NOW + 49


def test_agenda_follows_the_clock_after_a_rollback() -> None:
    agenda = agenda_at(None)
    then = NOW - 3_600_000
    agenda.reserved([], next_ts=then + AHEAD, more=False, now_ms=then)
    assert agenda.reserve_at(then) == then + TICK
    agenda.noticed(then + AHEAD + 1)
    assert agenda.reserve_at(then) == then + TICK
    agenda.noticed(then + AHEAD)
    assert agenda.reserve_at(then) == then


def test_clock_rollback_fires_nothing_early() -> None:
    agenda = agenda_at(None)
    message = leased("a", due=NOW + 50)
    agenda.reserved([message], next_ts=None, more=False, now_ms=NOW)
    assert agenda.deliver(NOW - 3_600_000) == []
    assert agenda.deliver(NOW + 49) == []
    assert agenda.deliver(NOW + 50) == [message]


# Ahead of the due time


@pytest.mark.parametrize("lease_ms", [10, 15, 60_000])
def test_early_delivery_checks_lease_and_expiry_at_due(lease_ms: int) -> None:
    agenda = agenda_at(None)
    soon = leased("soon", due=NOW + 40, until=NOW + 40 + lease_ms, expires=NOW + 50)
    agenda.reserved([soon, leased("late", due=NOW + 60)], next_ts=None, more=False, now_ms=NOW)
    assert ids(agenda.deliver(NOW, ahead_ms=50)) == ["soon"]
    assert (agenda.lapsed(), agenda.expired()) == ([], [])


def test_overdue_delivery_checks_lease_and_expiry_now() -> None:
    agenda = agenda_at(None)
    over = leased("over", due=NOW - 40, until=NOW)
    expired = leased("expired", due=NOW - 40, expires=NOW)
    agenda.reserved([over, expired], next_ts=None, more=False, now_ms=NOW)
    assert agenda.deliver(NOW, ahead_ms=50) == []
    assert [lease.id for lease in agenda.lapsed()] == ["over"]
    assert [lease.id for lease in agenda.expired()] == ["expired"]


def test_room_for_a_message_counts_bytes_and_places() -> None:
    small, large = (
        leased("small", due=NOW, body=b"x" * 10),
        leased("large", due=NOW, body=b"x" * 91),
    )
    agenda = Agenda(capacity=2, most_bytes=100)
    assert agenda.has_room_for(leased("huge", due=NOW, body=b"x" * 1_000))  # an empty one takes any
    agenda.reserved([small], next_ts=None, more=True, now_ms=NOW)
    assert not agenda.has_room_for(large)
    assert agenda.has_room_for(small)
    agenda.reserved([small], next_ts=None, more=True, now_ms=NOW)
    assert not agenda.has_room_for(small)


# Where a search begins


def cleared(agenda: Agenda, until_ms: int = NOW, since_ms: int = 0) -> Agenda:
    agenda.reserved((), next_ts=None, more=False, now_ms=NOW)
    agenda.cleared(until_ms, since_ms=since_ms, now_ms=NOW)
    return agenda


def test_next_search_begins_where_nothing_is_left() -> None:
    assert Agenda().since_ms(NOW) == 0
    assert cleared(Agenda()).since_ms(NOW + 50) == NOW


def test_unknown_past_is_searched_again() -> None:
    assert cleared(cleared(Agenda()), until_ms=0).since_ms(NOW + 50) == 0


@pytest.mark.parametrize("due", [None, NOW - 60_000, NOW, NOW + 100])
def test_notice_of_the_past_begins_from_the_start(due: int | None) -> None:
    agenda = cleared(Agenda())
    agenda.noticed(due)
    assert agenda.since_ms(NOW + 50) == 0


def test_second_notice_counts_before_the_reservation_of_the_first() -> None:
    agenda = Agenda()
    agenda.reserved((), next_ts=None, more=True, now_ms=NOW)
    agenda.cleared(NOW, since_ms=0, now_ms=NOW)
    assert agenda.noticed(NOW - 1) is False  # it reserves at once anyway
    assert agenda.since_ms(NOW + 50) == 0


def test_notice_of_the_future_keeps_the_beginning() -> None:
    agenda = cleared(Agenda())
    agenda.noticed(NOW + 3_000)
    assert agenda.since_ms(NOW + 50) == NOW


def test_search_begins_from_the_start_again_after_a_time() -> None:
    agenda = cleared(Agenda())
    assert agenda.since_ms(NOW + FROM_START_MS - 1) == NOW
    assert agenda.since_ms(NOW + FROM_START_MS) == 0


def test_search_from_a_moment_does_not_put_off_one_from_the_start() -> None:
    agenda = cleared(Agenda())
    agenda.cleared(NOW + 1_000, since_ms=NOW, now_ms=NOW + 1_000)
    assert agenda.since_ms(NOW + FROM_START_MS) == 0


@pytest.mark.parametrize("event", ["another window", "a failure", "a clock that was put back"])
def test_uncertain_past_is_searched_again(event: str) -> None:
    agenda = cleared(Agenda())
    if event == "another window":
        agenda.serve(NOW, NOW + 4_000)
    elif event == "a failure":
        agenda.postponed(NOW + 10, now_ms=NOW)
    assert agenda.since_ms(NOW - 1 if event.startswith("a clock") else NOW + 50) == 0


# Gathering


@pytest.mark.parametrize(
    ("delivered", "since_ms", "expected_ms"),
    [
        pytest.param(1, 1, 0, id="one a millisecond"),
        pytest.param(20, 10, 0, id="a few that waited for a core"),
        pytest.param(5, 1, 0, id="not dense enough"),
        pytest.param(6, 1, 6, id="dense"),
        pytest.param(80, 10, 8, id="dense, and gathered before"),
        pytest.param(400, 1, MOST_GATHER_MS, id="a burst"),
        pytest.param(7, 0, 7, id="twice in a millisecond"),
        pytest.param(2, -3_600_000, 0, id="the clock was put back"),
    ],
)
def test_messages_gather_only_in_dense_traffic(
    delivered: int, since_ms: int, expected_ms: int
) -> None:
    assert gather_ms(delivered, since_ms) == expected_ms
