"""Scenarios of moving timers, as texts with the expected trace."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.timers.scenario import Scenario, read_scenario

_TEXTS = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))


@pytest.mark.parametrize("path", _TEXTS, ids=lambda path: path.stem)
def test_the_trace_is_as_written(path: Path) -> None:
    scenario = Scenario()
    steps = read_scenario(path)
    assert [(command, scenario.run(command)) for command, _ in steps] == steps
