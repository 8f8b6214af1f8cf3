"""The agenda of a window: its start, reach and end, and messages in flight."""

import pytest

from chronoline.core.agenda import Agenda
from tests.core.leased import ids, leased

NOW = 1_000_000
AHEAD = 100
TICK = AHEAD // 2
START, END = NOW + 5_000, NOW + 7_000


def window(*, advance_ms: int = 0) -> Agenda:
    agenda = Agenda(reserve_ahead_ms=AHEAD, timing_advance_ms=advance_ms)
    agenda.serve(START, END)
    return agenda


# The window


@pytest.mark.parametrize("advance_ms", [0, 30])
def test_window_begins_when_its_start_is_within_reach(advance_ms: int) -> None:
    agenda = window(advance_ms=advance_ms)
    agenda.noticed(NOW)
    assert agenda.reserve_at(NOW) == START - AHEAD - advance_ms
    assert agenda.reserve_at(START + 1) == START + 1


@pytest.mark.parametrize(
    ("now_ms", "reach_ms"),
    [(START, AHEAD), (END - 1 - AHEAD, AHEAD), (END - AHEAD, AHEAD - 1), (END - 1, 0), (END, -1)],
)
def test_window_reaches_up_to_its_end(now_ms: int, reach_ms: int) -> None:
    assert window().reach_ms(now_ms) == reach_ms


def test_reach_without_a_window_is_the_setting() -> None:
    assert Agenda(reserve_ahead_ms=AHEAD, timing_advance_ms=30).reach_ms(NOW) == AHEAD + 30


@pytest.mark.parametrize(("now_ms", "reserve_at"), [(END - 1, END - 1), (END, None)])
def test_ended_window_reserves_nothing(now_ms: int, reserve_at: int | None) -> None:
    assert window().reserve_at(now_ms) == reserve_at


def test_message_of_a_later_window_does_not_wake() -> None:
    agenda = window()
    agenda.reserved([], next_ts=END, more=False, now_ms=START)
    assert (agenda.reserve_at(START) or 0) > END
    agenda.noticed(END + 5)
    assert (agenda.reserve_at(START) or 0) > END
    agenda.noticed(END - 1)
    assert agenda.reserve_at(START) == END - 1 - AHEAD


def test_the_next_window_begins_anew() -> None:
    agenda = window()
    agenda.reserved([], next_ts=None, more=False, now_ms=START)
    agenda.serve(END, END + 2_000)
    assert agenda.reserve_at(END - AHEAD - 1) == END - AHEAD
    assert agenda.reserve_at(END) == END
    assert agenda.reach_ms(END) == AHEAD


# Timing advance


def test_timing_advance_delivers_before_due() -> None:
    agenda = Agenda(reserve_ahead_ms=AHEAD, timing_advance_ms=30)
    agenda.reserved([leased("a", due=NOW + 50)], next_ts=None, more=False, now_ms=NOW)
    assert agenda.deliver_at() == NOW + 20
    assert agenda.deliver(NOW + 19) == []
    assert ids(agenda.deliver(NOW + 20)) == ["a"]


def test_a_timing_advance_reserves_that_much_earlier() -> None:
    agenda = Agenda(reserve_ahead_ms=AHEAD, timing_advance_ms=30)
    agenda.reserved([], next_ts=NOW + 5_000, more=False, now_ms=NOW)
    assert agenda.reserve_at(NOW) == NOW + 5_000 - AHEAD - 30
    agenda.noticed(NOW + AHEAD + 30)
    assert agenda.reserve_at(NOW) == NOW


# The tick


@pytest.mark.parametrize(("poll_ms", "tick_ms"), [(20, 20), (TICK, TICK), (AHEAD, TICK)])
def test_poll_interval_only_shortens_the_tick(poll_ms: int, tick_ms: int) -> None:
    agenda = Agenda(reserve_ahead_ms=AHEAD, poll_ms=poll_ms)
    agenda.reserved([], next_ts=NOW, more=False, now_ms=NOW)
    assert agenda.reserve_at(NOW) == NOW + tick_ms


@pytest.mark.parametrize(("jitter", "tick_ms"), [(0.0, 40), (0.5, 35), (1.0, 30)])
def test_jitter_shortens_the_tick_by_a_quarter_at_most(jitter: float, tick_ms: int) -> None:
    agenda = Agenda(reserve_ahead_ms=AHEAD, poll_ms=40, jitter=lambda: jitter)
    agenda.reserved([], next_ts=NOW, more=False, now_ms=NOW)
    assert agenda.reserve_at(NOW) == NOW + tick_ms


# Messages in flight


def test_messages_in_flight_take_room() -> None:
    agenda = Agenda(capacity=5)
    agenda.reserved([leased("a", due=NOW)], next_ts=None, more=False, now_ms=NOW)
    agenda.away = 3
    assert agenda.room() == 1
    agenda.away = 4
    assert agenda.room() == 0
    assert agenda.reserve_at(NOW) is None


def test_bytes_in_flight_take_room() -> None:
    agenda = Agenda(most_bytes=1_000)
    agenda.largest_bytes = 300
    agenda.away, agenda.away_bytes = 1, 500
    assert agenda.room() == 1
    agenda.away_bytes = 900
    assert agenda.room() == 0
    agenda.away = agenda.away_bytes = 0
    assert agenda.room() == 3


# Giving back


def test_later_messages_can_be_taken_out() -> None:
    agenda = Agenda()
    held = [leased(each, due=NOW + place) for place, each in enumerate("abc")]
    agenda.reserved(held, next_ts=None, more=False, now_ms=NOW)
    assert agenda.beyond(NOW) == [held[1].lease, held[2].lease]
    assert agenda.beyond(NOW) == []
    assert len(agenda) == 1
    assert agenda.held_bytes == 0
