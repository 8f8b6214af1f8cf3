"""Topic settings are checked as a whole, and a topic's name can be printed."""

from collections import Counter
from typing import Any

import pytest

from chronoline.core.errors import InvalidInput
from chronoline.core.ids import bucket_of
from chronoline.core.ranges import BucketRange
from chronoline.core.topic import Topic, TopicSettings, check_topic_name


def test_default_settings() -> None:
    settings = TopicSettings()
    assert settings.max_attempts == 20
    assert settings.dedupe_ms == 5 * 60 * 1_000
    assert settings.max_lateness_ms is None
    assert settings.dead_letters


@pytest.mark.parametrize(
    "fields",
    [
        {"buckets": 1},
        {"buckets": 65_536},
        {"max_lateness_ms": 0},
        {"dedupe_ms": 0},
        {"default_lease_ms": 10},
        {"largest_body_bytes": 0},
        {"dead_letters": False},
        {"target": "http://127.0.0.1:9000"},
        {"target": "https://example.com/" + "x" * 4_076},
    ],
)
def test_settings_at_their_bounds(fields: dict[str, Any]) -> None:
    settings = TopicSettings(**fields)
    assert {name: getattr(settings, name) for name in fields} == fields


@pytest.mark.parametrize(
    "fields",
    [
        {"buckets": 0},
        {"buckets": 65_537},
        {"window_ms": 0},
        {"default_lease_ms": 9},
        {"max_attempts": 0},
        {"max_lateness_ms": -1},
        {"dedupe_ms": -1},
        {"dedupe_ms": None},
        {"largest_body_bytes": 64 * 1024 * 1024 + 1},
        {"buckets": 1.5},
        {"buckets": True},
        {"dead_letters": 1},
        {"target": ""},
        {"target": 5},
        {"target": "https://example.com/" + "x" * 4_077},
    ],
)
def test_settings_out_of_bounds_are_named(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=f"topic settings: {next(iter(fields))} must be"):
        TopicSettings(**fields)


def test_everything_that_is_wrong_is_named_at_once() -> None:
    with pytest.raises(InvalidInput, match=r"buckets must be .*; max_attempts must be"):
        TopicSettings(buckets=0, max_attempts=0)


def test_all_buckets_is_one_range() -> None:
    topic = Topic(uid=1, name="t", settings=TopicSettings(buckets=7))
    assert topic.all_buckets == (BucketRange(0, 7),)


@pytest.mark.parametrize("name", ["t", "a topic", "größe/2", "x" * 255])
def test_names_of_topics(name: str) -> None:
    check_topic_name(name)


@pytest.mark.parametrize("name", ["", "x" * 256, "a\nb", "a\0b", "\x1b[1m", "\ud800", ".", ".."])
def test_names_that_no_topic_may_have(name: str) -> None:
    with pytest.raises(InvalidInput, match="topic name"):
        check_topic_name(name)


# Spread dues


def spread(span_ms: int | None, **given: int) -> list[int]:
    topic = Topic(uid=1, name="t", settings=TopicSettings(buckets=64, spread_ms=span_ms))
    return [topic.spread(f"m{number}", 1_000, **given) for number in range(1_000)]


def test_topic_without_a_spread_keeps_the_dues() -> None:
    assert set(spread(None)) == set(spread(0)) == {1_000}


def test_dues_are_spread_evenly_and_never_early() -> None:
    dues = spread(10_000)
    assert dues == spread(10_000), "the same for every create of one id"
    assert min(dues) >= 1_000
    assert max(dues) < 11_000
    in_each_second = Counter(due // 1_000 for due in dues)
    assert len(in_each_second) == 10
    assert max(in_each_second.values()) < 150


def test_each_bucket_is_spread() -> None:
    in_bucket = [due for number, due in enumerate(spread(64)) if bucket_of(f"m{number}", 64) == 5]
    assert len(set(in_bucket)) > 5


def test_spread_message_does_not_expire_before_its_due() -> None:
    assert max(spread(10_000, expires=1_010)) < 1_010
    assert set(spread(10_000, expires=1_001)) == {1_000}
