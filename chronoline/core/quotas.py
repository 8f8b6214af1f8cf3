"""Quotas of producer groups: most messages on a topic's timeline, and most creates a second.

How many messages a group has is counted by the store, up to the quota. Between two counts the broker adds
what it creates itself, so the estimate is never below the count, and misses only the creates of other brokers
since. A message that is delivered or cancelled is subtracted by the next count. So a create is refused only
after a recent count: an older one is repeated first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from chronoline.core.token_bucket import TokenBucket
from chronoline.core.topic import TopicSettings

COUNT_LIVES_MS = 10_000
"""A count that is older is repeated beside the creates, which do not wait for it."""
_SOONEST_RECOUNT_MS = 200
_LATEST_RECOUNT_MS = 60_000
_COUNTING_PART = 20
"""Counts before refusals take at most one part in 20 of the time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLimits:
    """The quotas of one producer group on one topic. None is no quota."""

    waiting: int | None = None
    creates_per_s: int | None = None

    @property
    def are_set(self) -> bool:
        return self.waiting is not None or self.creates_per_s is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOverrides:
    """Quotas of a node by producer group, on all topics. They replace those of a topic; 0 is no quota."""

    waiting: Mapping[str, int] = field(default_factory=dict)
    creates_per_s: Mapping[str, int] = field(default_factory=dict)

    def limits(self, settings: TopicSettings, group: str) -> GroupLimits:
        waiting = self.waiting.get(group, settings.group_waiting)
        per_s = self.creates_per_s.get(group, settings.group_creates_per_s)
        return GroupLimits(waiting=waiting or None, creates_per_s=per_s or None)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaRefusal:
    """Why the rest of a batch is refused."""

    type: str
    """`waiting` or `creates`, for metrics."""
    reason: str
    retry_after_ms: int


class GroupQuota:
    """The use of one producer group on one topic, as one broker knows it."""

    def __init__(self) -> None:
        self._bucket: TokenBucket | None = None
        self._per_s = 0
        self._counted: int | None = None
        self._counted_up_to = 0
        self._counted_ms = 0
        self._took_ms = 0
        # Created by this broker since the count began, and sent to the store without an answer yet.
        self._created = 0
        self._pending = 0

    @property
    def estimate(self) -> int:
        """The number of its messages, as far as is known."""
        return (self._counted or 0) + self._created + self._pending

    def count_begins(self) -> int:
        """Marks the moment at which the store begins to count, for `counted`."""
        return self._created

    def counted(self, count: int, *, most: int, begun: int, took_ms: int, now_ms: int) -> None:
        """The store has counted up to `most`."""
        self._counted, self._counted_up_to = count, most
        self._created -= begun
        self._counted_ms, self._took_ms = now_ms, took_ms

    def must_count(self, wanted: int, limits: GroupLimits, now_ms: int) -> bool:
        """Whether a create of this number of messages has to wait for a count."""
        if limits.waiting is None:
            return False
        if self._counted is None or self._counted_up_to <= limits.waiting:
            return True  # it is unknown, or was counted for a smaller quota
        is_full = self.estimate + wanted > limits.waiting
        return is_full and not self._counted_ms <= now_ms < self._recount_at

    def should_count(self, limits: GroupLimits, now_ms: int) -> bool:
        """Whether the count is old. Creates need not wait for the next."""
        lives_ms = max(COUNT_LIVES_MS, self._recount_ms)
        is_fresh = self._counted_ms <= now_ms < self._counted_ms + lives_ms
        return limits.waiting is not None and not is_fresh

    @property
    def _recount_ms(self) -> int:
        wait_ms = max(_SOONEST_RECOUNT_MS, self._took_ms * _COUNTING_PART)
        return min(wait_ms, _LATEST_RECOUNT_MS)

    @property
    def _recount_at(self) -> int:
        return self._counted_ms + self._recount_ms

    def admit(
        self, wanted: int, limits: GroupLimits, now_ms: int
    ) -> tuple[int, QuotaRefusal | None]:
        """How many of a batch may be created, and why the rest is refused."""
        allowed, refusal = wanted, None
        if limits.waiting is not None and self.estimate + wanted > limits.waiting:
            allowed = max(0, limits.waiting - self.estimate)
            refusal = QuotaRefusal(
                type="waiting",
                reason=f"it has about {self.estimate + allowed:,} messages there, and may have "
                f"{limits.waiting:,}: wait until some are handled, cancel some, or have the quota raised "
                "(group_waiting)",
                retry_after_ms=max(1_000, self._recount_at - now_ms),
            )
        if limits.creates_per_s is not None:
            bucket = self._bucket_of(limits.creates_per_s, now_ms)
            tokens = max(0, int(bucket.tokens(now_ms)))
            within, allowed = allowed, min(allowed, tokens)
            bucket.take(allowed, now_ms)
            if allowed < within:
                next_ones = min(wanted - allowed, limits.creates_per_s)
                refusal = QuotaRefusal(
                    type="creates",
                    reason=f"it may create {limits.creates_per_s:,} messages a second there: send fewer, or "
                    "have the quota raised (group_creates_per_s)",
                    retry_after_ms=max(1, bucket.wait_ms(next_ones, now_ms) or 0),
                )
        self._pending += allowed
        return allowed, refusal

    def _bucket_of(self, per_s: int, now_ms: int) -> TokenBucket:
        if self._bucket is None or self._per_s != per_s:
            # The use counts on: an unused quota that is raised or lowered stays unused.
            used = 0.0 if self._bucket is None else self._per_s - self._bucket.tokens(now_ms)
            self._bucket, self._per_s = TokenBucket(per_s, per_s), per_s
            self._bucket.take(min(used, per_s), now_ms)
        return self._bucket

    def created(self, admitted: int, done: int) -> None:
        """The store has answered for admitted messages."""
        self._pending -= admitted
        self._created += done
