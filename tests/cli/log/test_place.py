"""Where reading begins, as people write it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from chronoline.cli.log.place import parse_start
from chronoline.core.errors import InvalidInput

NOON_MS = 1_769_860_800_000
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def test_starts_are_parsed() -> None:
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
def test_bad_start_is_refused_with_the_valid_forms(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"^--from .* is not a start: write earliest, latest,"):
        parse_start(text, "--from", NOON_MS)
