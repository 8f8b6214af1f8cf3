"""The timeline of a pipe, and its fixed settings."""

from dataclasses import replace
from typing import Any

import pytest

from chronoline.core.topic import Topic
from chronoline.pipe.settings import PipeSettings, fixed_problem, topic_settings


def settings(**more: object) -> PipeSettings:
    place = {"topic": "t", "log": "file:///tmp/log"}
    flags = {"name": "p", "input": place, "output": place | {"topic": "out"}}
    return PipeSettings.load(None, {}, flags | more)


MADE = Topic(uid=1, name="p", settings=topic_settings(settings()))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"buckets": 7}, "was made with buckets = 64, which is fixed, not with 7; write"),
        ({"dedupe": "5m"}, "was made with dedupe = 0ms, which is fixed, not with 300000ms; write"),
        ({"largest_value_bytes": 10}, "with largest_value_bytes = 1048576, which is fixed, not"),
    ],
)
def test_fixed_setting_cannot_change(changed: dict[str, object], said: str) -> None:
    assert said in str(fixed_problem(settings(**changed), MADE))


@pytest.mark.parametrize("limit", ["most_per_s", "most_in_flight"])
def test_timeline_with_a_limit_of_brokers_is_refused(limit: str) -> None:
    limits: dict[str, Any] = {limit: 5}
    limited = replace(MADE, settings=replace(MADE.settings, **limits))
    said = f"the timeline 'p' has {limit} = 5, which brokers keep and a pipe does not"
    assert said in str(fixed_problem(settings(), limited))
    spread = replace(MADE, settings=replace(MADE.settings, spread_ms=5))
    assert fixed_problem(settings(), spread) is None


def test_other_settings_may_change() -> None:
    assert fixed_problem(settings(), MADE) is None
    assert fixed_problem(settings(window_ms=1_000, hold_ms=9_000), MADE) is None
