"""Conversion of datetimes to milliseconds."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from chronoline.store import InvalidInput, to_ms


def test_moments_are_rounded_up_and_know_their_zone() -> None:
    assert to_ms(datetime(1970, 1, 1, tzinfo=UTC)) == 0
    assert to_ms(datetime(1970, 1, 1, microsecond=1, tzinfo=UTC)) == 1
    east = timezone(timedelta(hours=2))
    assert to_ms(datetime(1970, 1, 1, 2, 0, 1, tzinfo=east)) == 1_000


def test_a_moment_without_a_zone_is_refused() -> None:
    with pytest.raises(InvalidInput, match="no time zone"):
        to_ms(datetime(2026, 1, 1))
