"""Settings in the rows of a database: later versions read them, and earlier ones if they may."""

from __future__ import annotations

import json

import pytest

from chronoline.core.errors import StoreError
from chronoline.core.topic import TopicSettings
from chronoline.stores.sql import pack_settings, unpack_settings

_BEFORE_TARGETS = {
    "buckets": 64,
    "dead_letters": True,
    "dedupe_ms": 300000,
    "default_lease_ms": 30000,
    "largest_body_bytes": 1048576,
    "max_attempts": 20,
    "max_lateness_ms": None,
    "window_ms": 2000,
}


def test_settings_without_a_target_are_read() -> None:
    assert unpack_settings(json.dumps(_BEFORE_TARGETS)) == TopicSettings()


def test_settings_without_a_target_are_kept_as_before() -> None:
    packed = json.loads(pack_settings(TopicSettings()))
    assert {**packed, "max_lateness_ms": None} == _BEFORE_TARGETS


def test_a_target_is_kept() -> None:
    settings = TopicSettings(target="https://example.com/", max_lateness_ms=5)
    assert unpack_settings(pack_settings(settings)) == settings


def test_settings_of_a_later_version_are_refused() -> None:
    with pytest.raises(StoreError, match="cannot be read"):
        unpack_settings(json.dumps({**_BEFORE_TARGETS, "later": 1}))
