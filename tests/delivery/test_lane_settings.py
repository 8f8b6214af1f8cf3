"""The settings of a publishing lane."""

import pickle
from typing import Any

import pytest

from chronoline.core.errors import InvalidInput
from chronoline.delivery.lane_settings import LaneSettings


def test_settings_travel_to_other_processes() -> None:
    settings = LaneSettings(hold_ms=1_000, timing_advance_ms=50)
    assert pickle.loads(pickle.dumps(settings)) == settings


@pytest.mark.parametrize(
    "wrong",
    [
        {"reserve_ahead_ms": 0},
        {"reserve_ahead_ms": 60_001},
        {"reserve_ahead_ms": 59_990, "timing_advance_ms": 11},
        {"timing_advance_ms": -1},
        {"poll_ms": 0},
        {"max_in_flight": 0},
    ],
)
def test_invalid_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="must be at"):
        LaneSettings(**wrong)
