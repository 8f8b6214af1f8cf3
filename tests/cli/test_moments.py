from datetime import UTC, datetime

import pytest

from chronoline.cli.moments import parse_moment_ms, parse_start, parse_when_ms, show_moment
from chronoline.core.errors import InvalidInput
from chronoline.core.limits import MAX_TIME_MS

NOON_MS = 1_769_860_800_000
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("2026-01-31T12:00:00Z", NOON_MS),
        ("2026-01-31t12:00:00z", NOON_MS),
        ("2026-01-31 13:00:00+01:00", NOON_MS),
        ("2026-01-31T12:00:00.25Z", NOON_MS + 250),
        ("2026-01-31T12:00:00.0001Z", NOON_MS + 1),
        ("1970-01-01T00:00:00Z", 0),
    ],
)
def test_moments(text: str, ms: int) -> None:
    assert parse_moment_ms(text, "ts") == ms


@pytest.mark.parametrize(
    "text", ["", "now", "2026-01-31", "2026-01-31T12:00:00", "2026-02-30T00:00:00Z", "20260131T12Z"]
)
def test_what_is_no_moment_is_said(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"^ts '.*' is not a time"):
        parse_moment_ms(text, "ts")


@pytest.mark.parametrize("ms", [0, 1, 999, NOON_MS, NOON_MS + 7, MAX_TIME_MS])
def test_a_moment_that_was_shown_is_read_as_it_was(ms: int) -> None:
    assert parse_moment_ms(show_moment(ms), "ts") == ms


def test_a_moment_is_shown_in_utc_to_the_millisecond() -> None:
    assert show_moment(NOON_MS + 7) == "2026-01-31T12:00:00.007Z"


def test_starts() -> None:
    assert parse_start("earliest", "--from", NOON_MS) == "earliest"
    assert parse_start("latest", "--from", NOON_MS) == "latest"
    assert parse_start("0", "--from", NOON_MS) == 0
    assert parse_start("1200", "--from", NOON_MS) == 1200
    assert parse_start("2026-01-31T13:00:00+01:00", "--from", 0) == NOON
    assert parse_start("-10m", "--from", NOON_MS + 600_000) == NOON
    assert parse_start("-9w", "--from", 0) == datetime(1970, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    "text",
    ["", "first", "-5", "-", "1.5", "1_000", "9" * 5_000, "2026-01-31T12:00:00", "-10 parsecs"],
)
def test_what_is_no_start_is_said_with_what_would_be(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"^--from .* is not a start: write earliest, latest,"):
        parse_start(text, "--from", NOON_MS)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("now", NOON_MS),
        ("+1h", NOON_MS + 3_600_000),
        ("-10m", NOON_MS - 600_000),
        ("2026-01-31T12:00:00Z", NOON_MS),
        ("+418000w", MAX_TIME_MS),
        ("-9999w", 0),
    ],
)
def test_moments_from_now(text: str, ms: int) -> None:
    assert parse_when_ms(text, "--to", NOON_MS) == ms


@pytest.mark.parametrize("text", ["", "soon", "1h", "+", "-", "+1", "2026-01-31"])
def test_what_is_no_moment_from_now_is_said_with_what_would_be(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"^--to '.*' is no moment: write now, \+1h, -10m,"):
        parse_when_ms(text, "--to", NOON_MS)
