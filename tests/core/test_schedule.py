"""Schedules: what is created now, what is left out, and what a change takes back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chronoline.core.errors import InvalidInput
from chronoline.core.schedule import (
    AHEAD_MS,
    CatchUpRule,
    Plan,
    Recurrence,
    Schedule,
    changes_from,
    created_ahead,
    interval_times,
    not_before,
    occurrence,
    occurrence_id,
    plan,
)

NOW = 1_800_000_000_000
SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000
MINUTELY = interval_times(MINUTE, NOW - 1_000 * HOUR)


def planned(
    first: int, catch_up: CatchUpRule = CatchUpRule.ONE, *, ahead: int = AHEAD_MS, most: int = 100
) -> Plan:
    return plan(first, MINUTELY, catch_up, now_ms=NOW, until_ms=NOW + ahead, most=most)


def test_occurrences_are_created_as_far_as_the_horizon() -> None:
    found = planned(NOW + MINUTE, ahead=3 * MINUTE)
    times = (NOW + MINUTE, NOW + 2 * MINUTE, NOW + 3 * MINUTE)
    assert found == Plan(times, NOW + 4 * MINUTE, skipped=False)
    assert planned(NOW + 5 * MINUTE) == Plan((), NOW + 5 * MINUTE, skipped=False)


def test_a_plan_is_bounded_and_goes_on_where_it_ended() -> None:
    found = planned(NOW, ahead=HOUR, most=2)
    assert found == Plan((NOW, NOW + MINUTE), NOW + 2 * MINUTE, skipped=False)


@pytest.mark.parametrize("late_ms", [0, 1, SECOND])
def test_a_second_late_is_not_missed(late_ms: int) -> None:
    times = interval_times(HOUR, NOW - late_ms)
    found = plan(NOW - late_ms, times, CatchUpRule.NONE, now_ms=NOW, until_ms=NOW, most=9)
    assert found == Plan((NOW - late_ms,), NOW - late_ms + HOUR, skipped=False)


@pytest.mark.parametrize(
    ("catch_up", "made", "skipped"),
    [
        (CatchUpRule.NONE, (), True),
        (CatchUpRule.ONE, (-2,), True),
        (CatchUpRule.ALL, (-4, -3, -2), False),
    ],
)
def test_catch_up_decides_about_what_was_missed(
    catch_up: CatchUpRule, made: tuple[int, ...], skipped: bool
) -> None:
    times = interval_times(HOUR, NOW - 4 * HOUR)
    until = NOW - 2 * HOUR + 2_000
    found = plan(NOW - 4 * HOUR, times, catch_up, now_ms=until, until_ms=until, most=9)
    assert found == Plan(tuple(NOW + each * HOUR for each in made), NOW - HOUR, skipped)


def test_one_that_was_missed_alone_is_created_without_skipping() -> None:
    times = interval_times(HOUR, NOW - MINUTE)
    found = plan(NOW - MINUTE, times, CatchUpRule.ONE, now_ms=NOW, until_ms=NOW, most=9)
    assert found == Plan((NOW - MINUTE,), NOW - MINUTE + HOUR, skipped=False)


@pytest.mark.parametrize("every_ms", [1_000, 7_000, MINUTE, 11 * HOUR, 400 * 24 * HOUR])
def test_the_latest_of_a_long_outage_is_found_without_walking_through_it(every_ms: int) -> None:
    first = NOW - 3 * 365 * 24 * HOUR
    asked: list[int] = []
    times = interval_times(every_ms, first)

    def counted(moment_ms: int) -> int | None:
        asked.append(moment_ms)
        return times(moment_ms)

    found = plan(first, counted, CatchUpRule.ONE, now_ms=NOW, until_ms=NOW - HOUR, most=9)
    last = first + (NOW - SECOND - 1 - first) // every_ms * every_ms
    assert found == Plan((last,), last + every_ms, skipped=last > first)
    assert len(asked) < 1_000


def test_a_schedule_that_ends_has_no_next_time() -> None:
    def once(moment_ms: int) -> int | None:
        return NOW if moment_ms < NOW else None

    found = plan(NOW, once, CatchUpRule.ALL, now_ms=NOW, until_ms=NOW + AHEAD_MS, most=9)
    assert found == Plan((NOW,), None, skipped=False)


def test_a_plan_is_cut_behind_its_first_occurrences() -> None:
    whole = Plan((NOW, NOW + 1, NOW + 2), NOW + 3, skipped=True)
    assert whole.first(3) == whole
    assert whole.first(2) == Plan((NOW, NOW + 1), NOW + 2, skipped=True)


def test_intervals_count_from_their_start() -> None:
    times = interval_times(90_000, NOW)
    assert [times(NOW - 5), times(NOW), times(NOW + 89_999), times(NOW + 90_000)] == [
        NOW,
        NOW + 90_000,
        NOW + 90_000,
        NOW + 180_000,
    ]
    late = not_before(MINUTELY, NOW + HOUR)
    assert (late(NOW), late(NOW + HOUR)) == (NOW + HOUR, NOW + HOUR + MINUTE)


# Occurrences


def schedule(next_ms: int | None) -> Schedule:
    return Schedule(
        name="report",
        topic_uid=1,
        recurrence=Recurrence(every_ms=MINUTE),
        next_ms=next_ms,
        headers=(("own", b"1"),),
        body=b"x",
    )


def test_an_occurrence_is_named_by_schedule_and_time() -> None:
    made = occurrence(schedule(NOW), NOW, NOW - HOUR)
    assert made.id == occurrence_id("report", NOW) == "report@2027-01-15T08:00:00.000Z"
    assert made.due == NOW
    assert made.headers == (
        ("own", b"1"),
        ("chronolineSchedule", b"report"),
        ("chronolineScheduledFor", b"2027-01-15T08:00:00.000Z"),
    )


def test_an_occurrence_that_is_caught_up_is_due_now() -> None:
    made = occurrence(schedule(NOW), NOW - HOUR, NOW)
    assert (made.due, made.id) == (NOW, occurrence_id("report", NOW - HOUR))


def test_a_change_takes_back_what_was_created_from_a_second_ahead_on() -> None:
    times = interval_times(SECOND, NOW)
    created = created_ahead(schedule(NOW + 4 * SECOND), times, NOW)
    assert created == [NOW + 2 * SECOND, NOW + 3 * SECOND]
    assert changes_from(NOW) == NOW + SECOND
    assert created_ahead(schedule(NOW), times, NOW) == []
    # All were created, by a broker whose clock may be ahead.
    assert len(created_ahead(schedule(None), times, NOW)) == 61


# Input


def test_bad_recurrences_are_refused() -> None:
    with pytest.raises(InvalidInput, match="and not both"):
        Recurrence()
    with pytest.raises(InvalidInput, match="and not both"):
        Recurrence(cron="* * * * *", every_ms=MINUTE)
    with pytest.raises(InvalidInput, match="at least 1 second, not 999 ms"):
        Recurrence(every_ms=999)
    with pytest.raises(InvalidInput, match="an interval has no time zone"):
        Recurrence(every_ms=MINUTE, zone="Europe/Berlin")
    with pytest.raises(InvalidInput, match="at most 255 are allowed"):
        Recurrence(cron="* * * * *", zone="Europe/" * 40)
    with pytest.raises(InvalidInput, match="start -1 is not between"):
        Recurrence(every_ms=MINUTE, start_ms=-1)
    with pytest.raises(InvalidInput, match="one of none, one, all, not 'some'"):
        CatchUpRule.parse("some")


def test_schedules_that_say_the_same_are_recognized() -> None:
    stored = replace(schedule(NOW), uid=7, version=3, paused=True, made_ms=NOW)
    assert stored.says_the_same(schedule(None))
    assert not stored.says_the_same(replace(schedule(None), body=b"y"))
