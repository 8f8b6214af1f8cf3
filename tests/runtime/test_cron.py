"""Cron expressions: their times in a zone, daylight saving, and what is wrong with them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import given
from hypothesis import strategies as st

from chronoline.core.errors import InvalidInput
from chronoline.core.schedule import Recurrence
from chronoline.runtime.cron import Cron, cron_of, times_of, zone_named

BERLIN = "Europe/Berlin"


def ms(text: str, zone: str, fold: int = 0) -> int:
    at = datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold)
    return round(at.timestamp() * 1000)


def times(cron: str, after: str, count: int, zone: str = BERLIN, fold: int = 0) -> list[str]:
    """The next times as the clock of the zone shows them, with the offset."""
    found: list[str] = []
    moment: int | None = ms(after, zone, fold)
    for _ in range(count):
        assert moment is not None
        moment = Cron(cron, zone).next_after(moment)
        assert moment is not None
        shown = datetime.fromtimestamp(moment / 1000, ZoneInfo(zone))
        found.append(shown.strftime("%d %H:%M:%S %z").replace(":00 ", " "))
    return found


# Fields


def test_five_fields_begin_with_the_minute_and_six_with_the_second() -> None:
    assert times("30 9 * * MON-FRI", "2026-11-20 10:00", 2) == ["23 09:30 +0100", "24 09:30 +0100"]
    assert times("*/20 30 9 * * *", "2026-11-20 09:30:10", 3) == [
        "20 09:30:20 +0100",
        "20 09:30:40 +0100",
        "21 09:30 +0100",
    ]
    assert times("@daily", "2026-11-20 10:00", 1) == ["21 00:00 +0100"]


def test_days_of_month_and_week_are_alternatives_if_both_are_named() -> None:
    assert times("0 0 13 * FRI", "2026-11-10 00:00", 3) == [
        "13 00:00 +0100",
        "20 00:00 +0100",
        "27 00:00 +0100",
    ]
    assert times("0 0 L * *", "2028-02-10 00:00", 1) == ["29 00:00 +0100"]
    assert times("0 0 * * MON#2", "2026-11-01 00:00", 1) == ["09 00:00 +0100"]


def test_a_time_is_strictly_later() -> None:
    every = Cron("* * * * * *", "UTC")
    assert [every.next_after(each) for each in (999, 1_000, 1_001)] == [1_000, 2_000, 2_000]


# Daylight saving


@pytest.mark.parametrize("cron", ["30 2 * * *", "0 30 2 * * *"])
def test_a_time_that_the_clock_leaves_out_is_the_moment_of_the_change(cron: str) -> None:
    assert times(cron, "2026-03-28 12:00", 2) == ["29 03:00 +0200", "30 02:30 +0200"]


def test_several_times_that_are_left_out_are_one() -> None:
    assert times("15,45 2,3 * * *", "2026-03-28 12:00", 4) == [
        "29 03:00 +0200",
        "29 03:15 +0200",
        "29 03:45 +0200",
        "30 02:15 +0200",
    ]


@pytest.mark.parametrize("cron", ["30 2 * * *", "0 30 2 * * *"])
def test_a_time_that_the_clock_shows_twice_counts_once(cron: str) -> None:
    assert times(cron, "2026-10-24 12:00", 2) == ["25 02:30 +0200", "26 02:30 +0100"]
    assert times(cron, "2026-10-25 02:10", 1, fold=1) == ["26 02:30 +0100"]


def test_intervals_go_on_through_the_changes() -> None:
    assert times("0 * * * *", "2026-03-29 00:30", 3) == [
        "29 01:00 +0100",
        "29 03:00 +0200",
        "29 04:00 +0200",
    ]
    assert times("0 * * * *", "2026-10-25 01:30", 3) == [
        "25 02:00 +0200",
        "25 02:00 +0100",
        "25 03:00 +0100",
    ]
    assert times("*/15 * * * * *", "2026-10-25 02:59:40", 2) == [
        "25 02:59:45 +0200",
        "25 02:00 +0100",
    ]


def test_an_interval_within_an_hour_that_is_left_out_is_left_out() -> None:
    assert times("*/30 2 * * *", "2026-03-28 12:00", 2) == ["30 02:00 +0200", "30 02:30 +0200"]
    assert times("*/30 0 * * *", "2024-04-25 12:00", 1, "Africa/Cairo") == ["27 00:00 +0300"]


def test_changes_at_midnight_of_half_an_hour_and_of_a_day() -> None:
    assert times("30 0 * * *", "2024-04-25 12:00", 2, "Africa/Cairo") == [
        "26 01:00 +0300",
        "27 00:30 +0300",
    ]
    assert times("15 2 * * *", "2026-10-03 12:00", 2, "Australia/Lord_Howe") == [
        "04 02:30 +1100",
        "05 02:15 +1100",
    ]
    assert times("45 1 * * *", "2026-04-04 12:00", 2, "Australia/Lord_Howe") == [
        "05 01:45 +1100",
        "06 01:45 +1030",
    ]
    assert times("0 12 * * *", "2011-12-29 11:00", 3, "Pacific/Apia") == [
        "29 12:00 -1000",
        "31 00:00 +1400",
        "31 12:00 +1400",
    ]


ZONES = ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Cairo", "UTC"]
EXPRESSIONS = [
    "*/7 * * * *",
    "5 * * * *",
    "30 2 * * *",
    "0 0 * * *",
    "15,45 1-3 * * *",
    "*/9 2 * * *",
]


@given(
    st.sampled_from(EXPRESSIONS),
    st.sampled_from(ZONES),
    st.integers(
        int(datetime(2024, 1, 1, tzinfo=UTC).timestamp()),
        int(datetime(2027, 1, 1, tzinfo=UTC).timestamp()),
    ),
)
def test_times_grow_and_each_is_shown_by_the_clock_or_ends_a_gap(
    text: str, zone: str, after_s: int
) -> None:
    cron, tz = cron_of(text, zone), ZoneInfo(zone)
    moment = after_s * 1000
    for _ in range(5):
        found = cron.next_after(moment)
        assert found is not None
        assert found > moment
        moment = found
        wall = datetime.fromtimestamp(found / 1000, tz).replace(tzinfo=None)
        matches = next(CronSim(text, wall - timedelta(seconds=1))) == wall
        before = datetime.fromtimestamp(found / 1000 - 1, tz).utcoffset()
        after = datetime.fromtimestamp(found / 1000, tz).utcoffset()
        assert matches or (before is not None and after is not None and after > before)


# Recurrences


def test_an_interval_without_a_start_counts_from_its_making_at_whole_seconds() -> None:
    found = times_of(Recurrence(every_ms=90_000), 1_000_400)
    assert (found(0), found(1_091_000)) == (1_091_000, 1_181_000)
    started = times_of(Recurrence(every_ms=90_000, start_ms=5), 1_000_400)
    assert started(0) == 5


def test_an_expression_waits_for_its_start() -> None:
    found = times_of(Recurrence(cron="0 0 * * *", start_ms=86_400_000 * 3), 0)
    assert (found(0), found(86_400_000 * 3)) == (86_400_000 * 3, 86_400_000 * 4)


# Errors


@pytest.mark.parametrize(
    ("cron", "problem"),
    [
        ("0 25 * * *", "the hour field '25'"),
        ("61 * * * *", "the minute field '61'"),
        ("60 * * * * *", "the second field '60'"),
        ("0 9 * * MON-FRII", "the day-of-week field 'MON-FRII'"),
        ("0 0 * * MON#2/2", "the day-of-week field 'MON#2/2'"),
        ("0 0 0 * *", "the day-of-month field '0'"),
        ("0 0 1 13 *", "the month field '13'"),
        ("*/0 * * * *", "the minute field"),
        ("? * * * *", "the minute field"),
        ("0 9 * *", "needs 5 or 6 fields, not 4"),
        ("0 0 9 * * * 2027", "fields, not 7"),
        ("", "fields, not 0"),
        ("@reboot", "fields, not 1"),
        ("0 0 30 2 *", "never fires"),
        ("0 0 31 4,6,9,11 *", "never fires"),
        ("1," * 200 + "1 * * * *", "at most 255 characters"),
    ],
)
def test_bad_expressions_say_what_is_wrong(cron: str, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem.replace("*", r"\*").replace("?", r"\?")):
        Cron(cron, "UTC")


def test_an_expression_without_a_time_in_50_years_has_none() -> None:
    assert Cron("* * */20 * 1L", "UTC").next_after(0) is None
    assert Cron("* * * * *", "UTC").next_after(253_402_300_799_000) is None


def test_bad_zones_are_refused_with_those_that_are_similar() -> None:
    with pytest.raises(InvalidInput, match="did you mean Europe/Berlin"):
        zone_named("europe/berlin")
    for name in ("", "../../etc/passwd", "/etc/localtime", "America", "a\0b", "+02:00", "x" * 500):
        with pytest.raises(InvalidInput, match="there is no time zone"):
            zone_named(name)
