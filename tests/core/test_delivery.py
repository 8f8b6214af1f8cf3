"""The delivery to one consumer: simulated histories, events in and commands out."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronoline.core.agenda import Agenda
from chronoline.core.change import lease_change
from chronoline.core.delivery import (
    Command,
    Delivery,
    DeliveryOptions,
    Extend,
    How,
    Look,
    Reserve,
    Settle,
    is_unknown,
)
from chronoline.core.errors import OutcomeUnknown, StoreUnavailable, TopicNotFound
from chronoline.core.limits import WRITE_BOUND_MS
from chronoline.core.message import Lease, LeasedMessage
from chronoline.core.output_gate import DEFAULT_SHUT_MS, OutputGate
from chronoline.core.permissions import Operation
from chronoline.core.ranges import BucketRange
from chronoline.core.session import Session
from tests.core.leased import ids, leased

NOW = 1_000_000
LEASE_MS = 10_000
KEEPS = DeliveryOptions(extends=True)
REST_MS = 200
ALL = (BucketRange(0, 8),)


def delivery(
    *,
    agenda: Agenda | None = None,
    credit: int = 1_000_000,
    gate: OutputGate | None = None,
    options: DeliveryOptions | None = None,
) -> Delivery:
    return Delivery(
        Agenda() if agenda is None else agenda,
        Session("me", "lane"),
        consumer="c",
        lease_ms=LEASE_MS,
        ranges=ALL,
        credit=credit,
        gate=gate,
        options=options,
    )


def reserve(work: Delivery, now_ms: int = NOW) -> Reserve:
    command = work.reserve(now_ms)
    assert command is not None
    return command


def take(work: Delivery, *dues: int, now_ms: int = NOW) -> None:
    """Reserves messages that fall due after these milliseconds, which are also their ids."""
    command = reserve(work, now_ms)
    messages = [leased(f"+{due}", due=now_ms + due, until=now_ms + LEASE_MS) for due in dues]
    assert work.reserved(command, messages)
    work.completed(command, next_ts=None, more=False)


def chore(work: Delivery, now_ms: int = NOW, *, at_once: bool = False) -> Command:
    command = work.next_chore(now_ms, at_once=at_once)
    assert command is not None
    return command


def fail(work: Delivery, command: Command, *, unknown: bool, now_ms: int = NOW) -> list[Lease]:
    return work.failed(command, unknown=unknown, rest_ms=REST_MS, now_ms=now_ms)


def given_back(work: Delivery, now_ms: int = NOW) -> list[str]:
    """Returns the ids that are unreserved now."""
    settle = work.next_chore(now_ms)
    if settle is None:
        return []
    assert isinstance(settle, Settle)
    assert settle.how == "unreserve"
    work.settled(settle)
    return [lease.id for lease in settle.leases]


# Reserving


def test_reservation_names_limit_reach_and_a_new_session() -> None:
    work = delivery(credit=3)
    first = reserve(work)
    assert (first.limit, first.reach_ms, first.lease_ms, first.ranges) == (3, 100, LEASE_MS, ALL)
    assert work.reserve(NOW) is None  # one at a time
    work.completed(first, next_ts=NOW, more=False)
    assert work.reserve(NOW) is None
    second = reserve(work, NOW + 50)
    assert second.session != first.session


def test_held_messages_count_against_the_credit() -> None:
    work = delivery(credit=3)
    take(work, 50, 60)
    work.noticed(None)
    assert reserve(work).limit == 1


def test_without_credit_room_or_ranges_nothing_is_reserved() -> None:
    assert delivery(credit=0).reserve(NOW) is None
    full = delivery(agenda=Agenda(capacity=1))
    take(full, 50)
    full.noticed(None)
    assert full.reserve_at(NOW) is None
    nowhere = delivery()
    nowhere.cover(())
    assert nowhere.reserve(NOW) is None
    nowhere.cover(ALL)
    assert reserve(nowhere).ranges == ALL


def test_notice_during_a_reservation_is_heeded_after_it() -> None:
    work = delivery()
    command = reserve(work)
    work.noticed(NOW + 10)
    work.reserved(command, ())
    work.completed(command, next_ts=None, more=False)
    assert work.reserve_at(NOW) == NOW


def test_delivery_covers_its_own_ranges_and_its_backups() -> None:
    work = delivery()
    work.cover([BucketRange(0, 2), BucketRange(6, 8)], [BucketRange(4, 5)])
    assert [bucket for bucket in range(8) if work.covers([bucket])] == [0, 1, 4, 6, 7]
    assert work.covers([2, 3, 7])
    assert not work.covers([2, 3, 5])
    assert work.covers(None)  # it may be any bucket


def test_slow_hand_over_keeps_from_reserving() -> None:
    work = delivery()
    work.handing_since = NOW
    assert work.reserve_at(NOW + LEASE_MS // 4 - 1) is not None
    assert work.reserve_at(NOW + LEASE_MS // 4) is None
    work.handing_since = None
    assert work.reserve_at(NOW + LEASE_MS // 4) is not None


def test_many_overdue_messages_keep_from_reserving() -> None:
    work = delivery(options=DeliveryOptions(most_overdue=2))
    take(work, 10, 20)
    work.noticed(None)
    assert work.reserve_at(NOW) == NOW
    assert work.reserve_at(NOW + 10) is None
    work.deliver(NOW + 10, 1)
    assert work.reserve_at(NOW + 10) is not None


def test_failed_reservation_is_repeated_after_a_rest() -> None:
    work = delivery()
    fail(work, reserve(work), unknown=False)
    assert work.reserve_at(NOW) == NOW + REST_MS
    assert work.next_chore(NOW) is None  # nothing was changed


# Unknown outcomes


def test_unanswered_reservation_is_looked_for_twice_and_given_back() -> None:
    work = delivery()
    command = reserve(work)
    fail(work, command, unknown=True)
    look = chore(work)
    assert look == Look(session=command.session, is_last=False)
    assert work.next_chore(NOW) is None
    work.found(look, [leased("a", due=NOW).message])
    assert given_back(work) == ["a"]
    assert work.is_settled  # though it looks once more
    assert work.chore_at(NOW) == NOW + WRITE_BOUND_MS
    last = chore(work, NOW + WRITE_BOUND_MS)
    assert last == Look(session=command.session, is_last=True)
    work.found(last, [])
    assert work.chore_at(NOW) is None
    assert reserve(work, NOW + WRITE_BOUND_MS).session != command.session  # never the same again


def test_first_look_is_not_the_last_after_the_clock_was_put_back() -> None:
    work = delivery()
    command = reserve(work)
    fail(work, command, unknown=True)
    assert chore(work, NOW - 60_000) == Look(session=command.session, is_last=False)


def test_failed_look_is_repeated_until_the_leases_are_over() -> None:
    work = delivery()
    fail(work, reserve(work), unknown=True)
    fail(work, chore(work), unknown=False)
    assert work.next_chore(NOW) is None
    assert not work.is_settled
    look = chore(work, NOW + REST_MS)
    over = NOW + WRITE_BOUND_MS + 100 + LEASE_MS
    fail(work, look, unknown=False, now_ms=over)
    assert work.next_chore(over + REST_MS) is None


def test_failed_look_ahead_is_no_unanswered_reservation() -> None:
    work = delivery()
    command = reserve(work)
    work.reserved(command, [leased("a", due=NOW)])
    fail(work, command, unknown=True)  # the question for the next one, which came after the grant
    assert work.next_chore(NOW) is None
    assert ids(work.deliver(NOW)) == ["a"]


@pytest.mark.parametrize("answered", [True, False])
def test_late_reservation_goes_back(answered: bool) -> None:
    work = delivery()
    late = reserve(work)
    work.late(late, rest_ms=REST_MS, now_ms=NOW)
    assert work.reserve(NOW) is None
    assert reserve(work, NOW + REST_MS).session != late.session
    if answered:
        assert not work.reserved(late, [leased("a", due=NOW)])
    else:
        fail(work, late, unknown=True)
        look = chore(work)
        assert isinstance(look, Look)
        work.found(look, [leased("a", due=NOW).message])
    assert given_back(work) == ["a"]
    assert work.deliver(NOW) == []


def test_unanswered_settling_is_repeated_and_marked() -> None:
    work = delivery()
    take(work, 0)
    (message,) = work.deliver(NOW)
    work.settle("ack", [message.lease], now_ms=NOW)
    ack = chore(work)
    fail(work, ack, unknown=True)
    assert work.next_chore(NOW + REST_MS - 1) is None
    assert chore(work, NOW + REST_MS) == Settle(how="ack", leases=(message.lease,), again=True)


def test_giving_back_is_tried_while_the_lease_lives() -> None:
    work = delivery()
    take(work, 50)
    work.close()
    back = chore(work)
    assert fail(work, back, unknown=False) == []
    back = chore(work, NOW + REST_MS)
    (lapsing,) = fail(work, back, unknown=False, now_ms=NOW + LEASE_MS - REST_MS)
    assert lapsing.id == "+50"
    assert work.is_finished


def test_unexpected_error_leaves_the_outcome_unknown() -> None:
    assert is_unknown(OutcomeUnknown())
    assert is_unknown(RuntimeError("a bug"))
    assert not is_unknown(StoreUnavailable())
    assert not is_unknown(TopicNotFound())


# Delivering


def test_message_leaves_at_its_due_and_uses_up_credit() -> None:
    work = delivery(credit=1)
    take(work, 50)
    assert work.deliver(NOW + 49) == []
    assert work.deliver_at(NOW) == NOW + 50
    assert ids(work.deliver(NOW + 50)) == ["+50"]
    assert (work.credit, list(work.outstanding)) == (0, ["+50"])
    assert work.deliver_at(NOW + 50) is None


def test_expired_message_goes_back() -> None:
    work = delivery()
    command = reserve(work)
    work.reserved(command, [leased("a", due=NOW, until=NOW + LEASE_MS, expires=NOW + 5)])
    work.completed(command, next_ts=None, more=False)
    assert work.deliver(NOW + 5) == []
    assert given_back(work, NOW + 5) == ["a"]
    assert work.take_lapsed() == []


@pytest.mark.parametrize(("after_ms", "back"), [(LEASE_MS - 10, ["+0"]), (LEASE_MS, [])])
def test_late_message_goes_back_under_a_live_lease(after_ms: int, back: list[str]) -> None:
    work = delivery(agenda=Agenda(margin_ms=10))
    take(work, 0)
    assert work.deliver(NOW + after_ms) == []
    assert [lease.id for lease in work.take_lapsed()] == ["+0"]
    assert given_back(work, NOW + after_ms) == back


def test_message_behind_a_stuck_handover_goes_back() -> None:
    work = delivery()
    take(work, 50)
    work.give_back_waiting(NOW + LEASE_MS // 2 - 1)
    assert given_back(work) == []
    work.give_back_waiting(NOW + LEASE_MS // 2)
    assert given_back(work) == ["+50"]


def test_outstanding_messages_take_room_until_they_are_settled() -> None:
    work = delivery(agenda=Agenda(capacity=2), options=DeliveryOptions(bounds_outstanding=True))
    command = reserve(work)
    work.reserved(command, [leased("a", due=NOW, body=b"12345"), leased("b", due=NOW, key=b"123")])
    work.completed(command, next_ts=None, more=False)
    first, second = work.deliver(NOW)
    agenda = work.agenda
    assert (agenda.away, agenda.away_bytes, agenda.room()) == (2, 8, 0)
    work.settle("ack", [first.lease, first.lease], now_ms=NOW)  # the second one comes too late
    assert (agenda.away, agenda.away_bytes, agenda.room()) == (1, 3, 1)
    assert work.abandon() == 1
    assert (agenda.away, agenda.away_bytes, second.lease.id in work.outstanding) == (0, 0, False)


def test_message_granted_again_takes_its_room_once() -> None:
    """Its lease lapsed, and the lane reserved it again before it forgot the first delivery."""
    work = delivery(agenda=Agenda(capacity=2), options=DeliveryOptions(bounds_outstanding=True))
    agenda, deliveries = work.agenda, []
    for turn in range(3):
        now_ms = NOW + turn * 2 * LEASE_MS
        work.noticed(None)
        command = reserve(work, now_ms)
        message = leased("a", due=NOW, until=now_ms + LEASE_MS, body=b"x" * (turn + 1))
        lease = replace(message.lease, version=turn + 1)
        work.reserved(command, [replace(message, lease=lease)])
        work.completed(command, next_ts=None, more=False)
        deliveries += work.deliver(now_ms)
        assert (agenda.away, agenda.away_bytes, agenda.room()) == (1, turn + 1, 1)
    for each in deliveries:
        work.settle("ack", [each.lease], now_ms=NOW)
    assert not work.outstanding
    assert (agenda.away, agenda.away_bytes, agenda.room()) == (0, 0, 2)


def test_later_lease_of_a_settled_message_stays_outstanding() -> None:
    work = delivery()
    take(work, 0)
    (message,) = work.deliver(NOW)
    work.moved(message.lease.id, 7, NOW + 2 * LEASE_MS)
    work.forget(message.lease)
    assert work.outstanding[message.lease.id].version == 7
    change = lease_change(Operation.ACK, message.lease)
    assert work.with_session(change).version == message.lease.version
    assert work.ending_by(NOW + LEASE_MS) == []
    assert len(work.ending_by(NOW + 2 * LEASE_MS)) == 1


def test_returning_consumer_keeps_what_it_has_in_hand() -> None:
    work = delivery(agenda=Agenda(capacity=1))
    for name in ("in hand", "to deliver", "too many"):
        work.resumed(leased(name, due=NOW - 5), in_hand=name == "in hand", now_ms=NOW)
    assert list(work.outstanding) == ["in hand"]
    assert given_back(work) == ["too many"]
    assert ids(work.deliver(NOW)) == ["to deliver"]


# An output that fails


def test_shut_gate_lets_one_message_through_at_a_time() -> None:
    gate = OutputGate()
    work = delivery(gate=gate)
    take(work, 0, 10, 20)
    gate.failed(NOW)
    opens = NOW + DEFAULT_SHUT_MS
    assert work.deliver(NOW + 30) == []
    assert work.deliver_at(NOW + 30) == opens
    assert ids(work.deliver(opens)) == ["+0"]
    assert work.deliver(opens) == []  # one is on trial
    assert work.deliver_at(opens) is None
    gate.succeeded()
    assert ids(work.deliver(opens)) == ["+10", "+20"]


def test_shut_gate_reserves_one_message_when_none_is_held() -> None:
    gate = OutputGate()
    gate.failed(NOW)
    work = delivery(gate=gate)
    opens = NOW + DEFAULT_SHUT_MS
    assert work.reserve_at(NOW) == opens
    command = reserve(work, opens)
    assert command.limit == 1
    work.reserved(command, [leased("a", due=opens)])
    work.completed(command, next_ts=None, more=True)
    assert work.reserve_at(opens) is None


# Settling


def test_acks_are_gathered_and_releases_are_immediate() -> None:
    work = delivery(options=DeliveryOptions(gather_ms=50))
    take(work, 0, 1, 2)
    acked, retried, unwanted = (each.lease for each in work.deliver(NOW + 2))
    work.settle("ack", [acked], now_ms=NOW)
    work.settle("retry", [retried], now_ms=NOW + 40)
    assert work.chore_at(NOW) == NOW + 50
    assert work.next_chore(NOW + 49) is None
    work.settle("unreserve", [unwanted], now_ms=NOW + 49)
    commands = [chore(work, NOW + 49) for _ in range(3)]
    assert [each.how for each in commands if isinstance(each, Settle)] == [
        "ack",
        "retry",
        "unreserve",
    ]
    assert not work.is_settled  # they are under way


def test_clock_put_back_does_not_hold_up_what_waits() -> None:
    work = delivery(options=DeliveryOptions(gather_ms=50))
    take(work, 0)
    work.settle("ack", [each.lease for each in work.deliver(NOW)], now_ms=NOW)
    assert isinstance(chore(work, NOW - 3_600_000), Settle)


def test_released_message_is_reserved_again() -> None:
    work = delivery()
    take(work, 50)
    assert work.reserve_at(NOW) != NOW
    work.pause("a pipe fires the topic")
    assert given_back(work) == ["+50"]
    work.pause("")
    assert work.reserve_at(NOW) == NOW


# A slow delivery


def slow_delivery() -> tuple[Delivery, Extend]:
    work = delivery(options=DeliveryOptions(extends=True))
    take(work, 0)
    work.deliver(NOW)
    assert work.chore_at(NOW) == NOW + LEASE_MS // 2
    extend = chore(work, NOW + LEASE_MS // 2)
    assert isinstance(extend, Extend)
    return work, extend


def test_later_settlements_use_the_extended_lease() -> None:
    work, extend = slow_delivery()
    (lease,) = extend.leases
    work.settle("ack", [lease], now_ms=NOW)  # it ended meanwhile
    work.extended(extend, [lease.extended(3, NOW + 2 * LEASE_MS)])
    settle = chore(work)
    assert isinstance(settle, Settle)
    assert [lease.version for lease in settle.leases] == [3]


def test_settlement_waits_for_an_unanswered_extension() -> None:
    work, extend = slow_delivery()
    at = NOW + LEASE_MS // 2
    fail(work, extend, unknown=True, now_ms=at)
    (lease,) = extend.leases
    work.settle("ack", [lease], now_ms=at)
    assert work.next_chore(at, at_once=True) is None
    again = chore(work, at + REST_MS)
    assert again == replace(extend, again=True)
    fail(work, again, unknown=False, now_ms=at + REST_MS)
    again = chore(work, at + 2 * REST_MS)
    assert isinstance(again, Extend)
    work.extended(again, [lease.extended(3, NOW + 2 * LEASE_MS)])
    assert isinstance(chore(work, at + 2 * REST_MS), Settle)


def test_leases_that_end_soon_are_extended_together() -> None:
    work = delivery(options=KEEPS)
    take(work, *range(5))
    work.deliver(NOW + 4)
    assert work.next_chore(NOW + LEASE_MS // 2 - 1) is None
    extend = chore(work, NOW + LEASE_MS // 2)
    assert isinstance(extend, Extend)
    assert len(extend.leases) == 5
    until = NOW + 3 * LEASE_MS // 2
    assert work.extended(extend, [lease.extended(3, until) for lease in extend.leases]) == []
    assert work.next_chore(until - LEASE_MS // 2 - 1) is None
    assert work.chore_at(NOW) == until - LEASE_MS // 2


def test_message_is_not_extended_for_ever() -> None:
    work = delivery(options=DeliveryOptions(extends=True, most_extensions=2))
    take(work, 0)
    work.deliver(NOW)
    until = NOW + LEASE_MS
    for _ in range(2):
        extend = chore(work, until)
        assert isinstance(extend, Extend)
        assert work.keeps_any(until - 1)
        until += LEASE_MS
        (lease,) = extend.leases
        assert work.unanswered_by(until) == []
        work.extended(extend, [lease.extended(lease.version + 1, until)])
    assert work.next_chore(until) is None
    assert len(work.unanswered_by(until)) == 1
    assert not work.keeps_any(until - 1)


# Overload


def retake(work: Delivery, *before: Lease, now_ms: int, versions: int = 1) -> bool:
    """The lapsed leases come back by a reservation. True if a message of them is held again."""
    work.noticed(None)
    command = reserve(work, now_ms)
    held = len(work.agenda)
    messages = []
    for lease in before:
        message = leased(lease.id, due=NOW, until=now_ms + LEASE_MS)
        version = lease.version + versions
        taken = replace(message.lease, version=version, since=version)
        messages.append(replace(message, lease=taken, taken_from="c", redelivered=True))
    work.reserved(command, messages)
    work.completed(command, next_ts=None, more=False)
    return len(work.agenda) > held


def test_slow_rounds_make_leases_longer_and_the_margin_larger() -> None:
    work = delivery(agenda=Agenda(margin_ms=10), options=KEEPS)
    work.took(20)
    assert (work.lease_span_ms, work.agenda.margin_ms) == (LEASE_MS, 40)
    work.took(LEASE_MS)
    assert (work.lease_span_ms, work.agenda.margin_ms) == (6 * LEASE_MS, 2 * LEASE_MS)
    assert reserve(work).lease_ms == 6 * LEASE_MS
    work.took(100 * LEASE_MS)
    assert (work.lease_span_ms, work.agenda.margin_ms) == (12 * LEASE_MS, 4 * LEASE_MS)
    for _ in range(1_000):
        work.took(1)
    assert (work.lease_span_ms, work.agenda.margin_ms) == (LEASE_MS, 10)


def test_message_does_not_leave_if_its_ack_would_come_too_late() -> None:
    work = delivery(options=KEEPS)
    take(work, 0)
    work.took(LEASE_MS // 4)
    assert work.deliver(NOW + LEASE_MS // 2) == []
    assert [lease.id for lease in work.take_lapsed()] == ["+0"]
    assert given_back(work, NOW + LEASE_MS // 2) == ["+0"]


@pytest.mark.parametrize("is_noticed", [True, False])
def test_outstanding_message_goes_on_under_the_lease_that_came_back(is_noticed: bool) -> None:
    work = delivery(options=KEEPS)
    take(work, 0)
    (message,) = work.deliver(NOW)
    over = NOW + 2 * LEASE_MS
    if is_noticed:
        extend = chore(work, over)
        assert isinstance(extend, Extend)
        assert work.extended(extend, []) == [message.lease]
        assert work.next_chore(over) is None
    assert not retake(work, message.lease, now_ms=over)
    lease = work.current(message.lease)
    assert lease is not None
    assert lease.version == message.lease.version + 1
    work.settle("ack", [lease], now_ms=over)
    assert chore(work, over) == Settle(how="ack", leases=(lease,))


@pytest.mark.parametrize("versions", [1, 2])
def test_message_whose_ack_came_too_late_is_acked_when_it_comes_back(versions: int) -> None:
    work = delivery(options=KEEPS)
    take(work, 0)
    (message,) = work.deliver(NOW)
    work.settle("ack", [message.lease], now_ms=NOW)
    ack = chore(work)
    assert isinstance(ack, Settle)
    work.settled(ack, refused={message.lease.id})
    over = NOW + 2 * LEASE_MS
    assert not retake(work, message.lease, now_ms=over, versions=versions)
    again = chore(work, over)
    assert isinstance(again, Settle)
    assert [lease.version for lease in again.leases] == [message.lease.version + versions]
    work.settled(again)
    assert retake(work, message.lease, now_ms=over)  # once


def test_message_that_others_had_meanwhile_leaves_again() -> None:
    work = delivery(options=KEEPS)
    take(work, 0)
    (message,) = work.deliver(NOW)
    assert retake(work, message.lease, now_ms=NOW + 2 * LEASE_MS, versions=3)


# Pausing and ending


def test_paused_delivery_reserves_and_delivers_nothing() -> None:
    work = delivery()
    under_way = reserve(work)
    work.pause("the clock is off")
    assert not work.reserved(under_way, [leased("a", due=NOW)])
    work.completed(under_way, next_ts=None, more=False)
    assert given_back(work) == ["a"]
    assert work.reserve_at(NOW) is work.deliver_at(NOW) is None
    work.pause("")
    assert work.reserve_at(NOW) == NOW


def test_ending_delivery_keeps_what_is_due_soon() -> None:
    work = delivery()
    take(work, 50, 150)
    work.end(NOW + 100)
    assert given_back(work) == ["+150"]
    assert work.reserve_at(NOW) is None
    assert ids(work.deliver(NOW + 50)) == ["+50"]
    work.begin()
    assert work.reserve_at(NOW) == NOW


def test_closed_delivery_is_finished_when_the_store_knows_everything() -> None:
    work = delivery()
    take(work, 50)
    work.noticed(None)
    under_way = reserve(work)
    work.close()
    assert given_back(work) == ["+50"]
    assert not work.is_finished
    work.reserved(under_way, [leased("a", due=NOW)])
    work.completed(under_way, next_ts=None, more=False)
    assert given_back(work) == ["a"]
    assert work.is_finished


# Any history


@dataclass
class _Row:
    due: int
    ts: int
    version: int = 1
    session: str = ""
    """Empty while it is not leased."""


class _World:
    """A store of a few rows, a delivery, and a shell with random steps."""

    def __init__(self, seed: int, options: DeliveryOptions, credit: int) -> None:
        self.dice = random.Random(seed)
        self.now_ms = NOW
        self.rows = {f"m{number}": self._new_row() for number in range(12)}
        self.credit = credit
        self.is_bounded = options.bounds_outstanding
        self.extends = options.extends
        self.in_flight: dict[str, Lease] = {}
        """Messages that have left, without a result or with a good one: by their first lease."""
        self.work = delivery(
            credit=credit, options=options, agenda=Agenda(capacity=6, max_sleep_ms=300)
        )
        self.late: list[tuple[Reserve, list[LeasedMessage]]] = []
        self.sessions: set[str] = set()
        self.lapsed: set[tuple[str, int]] = set()
        """Leases that were over by the clock of that moment, which may have been put back since."""

    def _new_row(self) -> _Row:
        due = NOW + self.dice.randrange(-500, 30_000)
        return _Row(due, due)

    # The store

    def grant(self, command: Reserve) -> list[LeasedMessage]:
        ahead = self.now_ms + command.reach_ms
        free = [
            (row.ts, name)
            for name, row in self.rows.items()
            if row.ts <= self.now_ms or (not row.session and row.ts <= ahead)
        ]
        granted = []
        for _, name in sorted(free)[: command.limit]:
            row = self.rows[name]
            taken_from = "c" if row.session else None
            row.ts = max(row.due, self.now_ms) + command.lease_ms
            row.version += 1
            row.session = command.session
            granted.append(replace(self._leased(name), taken_from=taken_from))
        return granted

    def _leased(self, name: str) -> LeasedMessage:
        row = self.rows[name]
        message = leased(name, due=row.due, until=row.ts)
        lease = replace(message.lease, version=row.version, session=row.session, since=row.version)
        return replace(message, lease=lease, message=replace(message.message, version=row.version))

    def owns(self, lease: Lease) -> bool:
        row = self.rows.get(lease.id)
        return row is not None and row.version == lease.version and row.ts > self.now_ms

    def change(self, command: Settle) -> set[str]:
        """Returns the ids of refused changes. A repeated ack of a message that is gone was done before."""
        refused = set()
        for lease in command.leases:
            known = self.work.outstanding.get(lease.id)
            assert known is None or known.version != lease.version, "it is in somebody's hands"
            if not self.owns(lease):
                refused.add(lease.id)
                continue
            if command.how == "ack":
                del self.rows[lease.id]
            else:
                row = self.rows[lease.id]
                row.ts, row.session, row.version = row.due, "", row.version + 1
        return refused

    def extend(self, command: Extend) -> list[Lease]:
        """Returns the leases that live on."""
        kept = []
        for lease in command.leases:
            row = self.rows.get(lease.id)
            if row is None:
                continue
            is_next = row.version == lease.version + 1 and row.session == lease.session
            if not (command.again and is_next and row.ts > self.now_ms):  # else it was done
                if not self.owns(lease):
                    continue
                row.version, row.ts = row.version + 1, self.now_ms + command.lease_ms
            kept.append(lease.extended(row.version, row.ts))
        return kept

    # The shell

    def step(self, *, healthy: bool = False) -> None:
        work = self.work
        self.now_ms += self.dice.choice([1, 10, 30] if healthy else [1, 10, 60, 400, 3_000])
        for message in work.deliver(self.now_ms, self.dice.choice([None, 1])):
            assert message.message.due <= self.now_ms, "early"
            assert message.lease.until > self.now_ms, "its lease is over"
            assert self.owns(message.lease), "it is another's"
            if self.extends:
                assert message.lease.id not in self.in_flight, "doubled"
                self.in_flight[message.lease.id] = message.lease
        work.take_lapsed()
        if self.dice.random() < 0.2:
            work.took(self.dice.choice([5, 500, 5_000]))
        self._reserve("done" if healthy else self._fate())
        self._do_chore("done" if healthy else self._fate())
        self._hear_late()
        for lease in list(work.outstanding.values()):
            if self.dice.random() < 0.3:
                how: How = self.dice.choice(["ack", "retry", "unreserve"])
                work.settle(how, [lease], now_ms=self.now_ms)
                if how != "ack":
                    self.in_flight.pop(lease.id, None)
        if not healthy:
            self._disturb()
        held = len(work.agenda)
        assert held <= 6
        assert work.agenda.away == (len(work.outstanding) if self.is_bounded else 0)
        assert held <= max(work.credit, 0), "more than the credit is held"

    def _note_lapsed(self, leases: Iterable[Lease]) -> None:
        self.lapsed.update((lease.id, lease.version) for lease in leases)

    def _fail(self, command: Command, *, unknown: bool) -> None:
        self._note_lapsed(fail(self.work, command, unknown=unknown, now_ms=self.now_ms))

    def _fate(self) -> str:
        return self.dice.choice(["done", "done", "done", "failed", "lost", "not done", "late"])

    def _reserve(self, fate: str) -> None:
        command = self.work.reserve(self.now_ms)
        if command is None:
            return
        assert command.session not in self.sessions, "a reservation was repeated"
        self.sessions.add(command.session)
        granted = self.grant(command) if fate in ("done", "lost", "late") else []
        if fate == "late":
            self.work.late(command, rest_ms=REST_MS, now_ms=self.now_ms)
            self.late.append((command, granted))
        elif fate == "done":
            self.work.reserved(command, granted)
            next_ts = min((row.ts for row in self.rows.values()), default=None)
            self.work.completed(command, next_ts=next_ts, more=len(granted) == command.limit)
        else:
            self._fail(command, unknown=fate != "failed")

    def _hear_late(self) -> None:
        if self.late and self.dice.random() < 0.5:
            command, granted = self.late.pop()
            if self.dice.random() < 0.5:
                self.work.reserved(command, granted)
            else:
                self._fail(command, unknown=True)

    def _do_chore(self, fate: str) -> None:
        command = self.work.next_chore(self.now_ms, at_once=self.dice.random() < 0.2)
        if command is None:
            return
        if fate in ("failed", "not done"):
            self._fail(command, unknown=fate == "not done")
        elif isinstance(command, Look):
            named = [
                self._leased(name)
                for name, row in self.rows.items()
                if row.session == command.session
            ]
            self.work.found(command, [each.message for each in named])
        elif isinstance(command, Settle):
            refused = self.change(command)
            if fate == "done":
                self.work.settled(command, refused)
            else:
                self._fail(command, unknown=True)
        else:
            self._extend(command, fate)

    def _extend(self, command: Extend, fate: str) -> None:
        kept = self.extend(command)
        if fate != "done":
            self._fail(command, unknown=True)
        else:
            self.work.extended(command, kept)

    def _disturb(self) -> None:
        work = self.work
        event = self.dice.randrange(12)
        if event == 0:
            work.pause("" if work.paused else "a pipe fires the topic")
        elif event == 1:
            work.end(self.now_ms + 100)
        elif event == 2:
            work.begin()
        elif event == 3:
            over = [name for name, row in self.rows.items() if row.ts <= self.now_ms]
            self._note_lapsed(self._leased(name).lease for name in over)
            self.now_ms -= self.dice.choice([5, 500, 20_000])
        elif event == 4:
            work.credit += 2
        elif event == 5:
            work.noticed(self.dice.choice([None, self.now_ms]))
        elif event == 6:
            work.give_back_waiting(self.now_ms)

    def finish(self) -> None:
        """The consumer leaves, and the store is well again."""
        work = self.work
        work.close()
        for _ in range(1_000):
            if work.is_finished and not work.outstanding:
                break
            self.step(healthy=True)
        assert work.is_finished
        assert not work.agenda
        held = [
            name
            for name, row in self.rows.items()
            if row.session and row.ts > self.now_ms and (name, row.version) not in self.lapsed
        ]
        assert held == [], "reserved, and neither delivered nor given back nor lapsed"


@given(
    seed=st.integers(0, 2**32),
    steps=st.integers(1, 120),
    credit=st.sampled_from([0, 1, 4, 1_000_000]),
    options=st.sampled_from(
        [
            DeliveryOptions(),
            DeliveryOptions(gather_ms=50, most_overdue=3, extends=True),
            DeliveryOptions(bounds_outstanding=True, extends=True),
            DeliveryOptions(bounds_outstanding=True, rows=2),
        ]
    ),
)
def test_any_history_keeps_the_rules(
    seed: int, steps: int, credit: int, options: DeliveryOptions
) -> None:
    world = _World(seed, options, credit)
    for _ in range(steps):
        world.step()
    world.finish()
