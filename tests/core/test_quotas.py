"""The quotas of producer groups, in simulated time."""

from __future__ import annotations

from chronoline.core.quotas import GroupLimits, GroupOverrides, GroupQuota
from chronoline.core.topic import TopicSettings

NOW = 1_800_000_000_000
WAITING = GroupLimits(waiting=100)


def counted(quota: GroupQuota, count: int, *, now_ms: int = NOW, took_ms: int = 0) -> None:
    begun = quota.count_begins()
    quota.counted(count, most=101, begun=begun, took_ms=took_ms, now_ms=now_ms)


def test_first_create_waits_for_a_count() -> None:
    quota = GroupQuota()
    assert quota.must_count(1, WAITING, NOW)
    counted(quota, 60)
    assert not quota.must_count(40, WAITING, NOW)
    assert quota.admit(40, WAITING, NOW) == (40, None)


def test_batch_is_admitted_up_to_the_quota() -> None:
    quota = GroupQuota()
    counted(quota, 60)
    allowed, refusal = quota.admit(50, WAITING, NOW)
    assert allowed == 40
    assert refusal is not None
    assert refusal.type == "waiting"
    assert refusal.retry_after_ms == 1_000
    assert "has about 100 messages there, and may have 100" in refusal.reason


def test_own_creates_count_until_the_next_count() -> None:
    quota = GroupQuota()
    counted(quota, 60)
    quota.admit(30, WAITING, NOW)
    assert quota.estimate == 90
    quota.created(30, done=20)
    assert quota.estimate == 80
    counted(quota, 75)
    assert quota.estimate == 75


def test_creates_during_a_count_stay_in_the_estimate() -> None:
    quota = GroupQuota()
    counted(quota, 10)
    begun = quota.count_begins()
    quota.admit(5, WAITING, NOW)
    quota.created(5, done=5)
    quota.counted(10, most=101, begun=begun, took_ms=0, now_ms=NOW)
    assert quota.estimate == 15


def test_refusal_needs_a_recent_count() -> None:
    quota = GroupQuota()
    counted(quota, 100)
    assert not quota.must_count(1, WAITING, NOW + 100)
    assert quota.must_count(1, WAITING, NOW + 200)
    counted(quota, 100, took_ms=500)
    assert not quota.must_count(1, WAITING, NOW + 9_999), "counting takes a twentieth of the time"
    assert quota.must_count(1, WAITING, NOW + 10_000)
    assert quota.must_count(1, WAITING, NOW - 1), "the clock was put back"


def test_old_count_is_repeated_beside_the_creates() -> None:
    quota = GroupQuota()
    counted(quota, 10)
    assert not quota.should_count(WAITING, NOW + 9_999)
    assert quota.should_count(WAITING, NOW + 10_000)
    assert not quota.must_count(1, WAITING, NOW + 10_000)


def test_larger_quota_than_was_counted_up_to_needs_a_count() -> None:
    quota = GroupQuota()
    counted(quota, 101)
    assert quota.must_count(1, GroupLimits(waiting=1_000), NOW)


def test_rate_admits_a_second_at_once_and_names_the_wait() -> None:
    limits = GroupLimits(creates_per_s=10)
    quota = GroupQuota()
    allowed, refusal = quota.admit(15, limits, NOW)
    assert allowed == 10
    assert refusal is not None
    assert (refusal.type, refusal.retry_after_ms) == ("creates", 500)
    assert quota.admit(5, limits, NOW + 500) == (5, None)
    allowed, _ = quota.admit(5, limits, NOW + 500)
    assert allowed == 0


def test_raised_rate_holds_from_the_next_create_on() -> None:
    quota = GroupQuota()
    assert quota.admit(10, GroupLimits(creates_per_s=10), NOW) == (10, None)
    raised = GroupLimits(creates_per_s=1_000)
    assert quota.admit(990, raised, NOW) == (990, None)
    assert quota.admit(1, raised, NOW)[0] == 0
    lowered = GroupLimits(creates_per_s=5)
    assert quota.admit(1, lowered, NOW)[0] == 0
    assert quota.admit(5, lowered, NOW + 1_000) == (5, None)


def test_full_timeline_takes_nothing_from_the_rate() -> None:
    limits = GroupLimits(waiting=100, creates_per_s=10)
    quota = GroupQuota()
    counted(quota, 100)
    assert quota.admit(10, limits, NOW)[0] == 0
    counted(quota, 0)
    assert quota.admit(10, limits, NOW) == (10, None)


def test_settings_of_a_node_replace_those_of_a_topic() -> None:
    settings = TopicSettings(group_waiting=10, group_creates_per_s=5)
    overrides = GroupOverrides(waiting={"big": 1_000, "free": 0}, creates_per_s={"free": 0})
    assert overrides.limits(settings, "any") == GroupLimits(waiting=10, creates_per_s=5)
    assert overrides.limits(settings, "big") == GroupLimits(waiting=1_000, creates_per_s=5)
    assert not overrides.limits(settings, "free").are_set
