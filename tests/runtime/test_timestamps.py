"""Moments, as people write and read them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from chronoline.core.errors import InvalidInput
from chronoline.core.limits import MAX_TIME_MS
from chronoline.runtime.timestamps import parse_moment_ms, parse_when_ms, show_moment, to_ms

NOW_MS = 1_767_225_600_000


def test_a_moment_is_shown_to_the_millisecond() -> None:
    assert show_moment(NOW_MS + 1) == "2026-01-01T00:00:00.001Z"
    assert show_moment(MAX_TIME_MS + 1) == "9999-12-31T23:59:59.999Z"


@pytest.mark.parametrize("moment_ms", [0, 1, 999, NOW_MS, NOW_MS + 7, MAX_TIME_MS])
def test_shown_moment_is_read_back(moment_ms: int) -> None:
    assert parse_moment_ms(show_moment(moment_ms), "due") == moment_ms


@pytest.mark.parametrize(
    ("text", "moment_ms"),
    [
        ("2026-01-01T00:00:00Z", NOW_MS),
        ("2026-01-01t01:00:00+01:00", NOW_MS),
        ("2025-12-31 23:59:59.9991z", NOW_MS),
    ],
)
def test_moment_is_read_with_zone_and_rounded_up(text: str, moment_ms: int) -> None:
    assert parse_moment_ms(text, "due") == moment_ms
    assert parse_when_ms(text, "from", 0) == moment_ms


@pytest.mark.parametrize(
    "text",
    [
        *("", "soon", "+", "-", "+1", "2026-01-01", "20260131T12Z", "2026-01-01T00:00:00"),
        *("2026-13-01T00:00:00Z", "2026-02-30T00:00:00Z", "1969-12-31T00:00:00Z"),
    ],
)
def test_invalid_moment_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="due"):
        parse_moment_ms(text, "due")
    with pytest.raises(InvalidInput, match=r"write now, \+1h, -10m"):
        parse_when_ms(text, "due", NOW_MS)


@pytest.mark.parametrize(
    ("text", "moment_ms"),
    [
        ("now", NOW_MS),
        ("+1h", NOW_MS + 3_600_000),
        (" 1h", NOW_MS + 3_600_000),  # as + comes out of a URL
        ("250ms", NOW_MS + 250),
        ("-10m", NOW_MS - 600_000),
        ("-9000w", 0),
        ("+418000w", MAX_TIME_MS),
    ],
)
def test_moment_may_be_relative(text: str, moment_ms: int) -> None:
    assert parse_when_ms(text, "from", NOW_MS) == moment_ms


def test_moments_are_rounded_up_and_know_their_zone() -> None:
    assert to_ms(datetime(1970, 1, 1, tzinfo=UTC)) == 0
    assert to_ms(datetime(1970, 1, 1, microsecond=1, tzinfo=UTC)) == 1
    east = timezone(timedelta(hours=2))
    assert to_ms(datetime(1970, 1, 1, 2, 0, 1, tzinfo=east)) == 1_000


def test_a_moment_without_a_zone_is_refused() -> None:
    with pytest.raises(InvalidInput, match="no time zone"):
        to_ms(datetime(2026, 1, 1))
