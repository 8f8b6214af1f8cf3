"""The plan of a timer: its interval, repetitions and callback, and when each pop is due.

`check_plan` has the bounds of a plan, for requests of clients and for records of other nodes alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from chronoline.core.callback_url import url_problem
from chronoline.core.errors import InvalidInput

LONGEST_MS = 100 * 366 * 24 * 3_600_000
MOST_POPS = 1 << 31
MOST_REPLICAS = 32
MOST_OPAQUE_BYTES = 1024 * 1024
MOST_TAGS = 64
MOST_TAG_CHARACTERS = 256
MOST_TAGGED = 1 << 40
"""The highest count of one tag."""
_MOST_SHARED = 1_000
LONGEST_STEP_MS = 2_000
"""How much later each replica pops than the one before it, for long timers."""
LEAST_GRACE_MS = 10_000
"""How long after its `repeat-for` a timer of a short interval may still be called."""
SHORT_MS = 400
"""A shorter interval is over before a node that stood still for a moment can have answered."""
SHORT_DOUBT_MS = 500
"""How long after the due time of a short interval a replica waits at least for answers."""
SHORT_STEP_MS = 100
"""How much longer each replica waits for them than the one before it."""
LONGEST_HOLD_MS = 30_000
"""The longest time that the other replicas wait for news of a call that is late already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerPlan:
    """When to call which URL with what, and on how many nodes."""

    interval_ms: int
    repeat_for_ms: int
    uri: str
    opaque: str
    factor: int
    tags: tuple[tuple[str, int], ...] = ()
    traceparent: str | None = None
    """The trace of the client, which goes with each callback."""

    @property
    def characters(self) -> int:
        """The size of its texts."""
        texts = len(self.uri) + len(self.opaque) + len(self.traceparent or "")
        return texts + sum(len(tag) for tag, _ in self.tags)

    @property
    def pops(self) -> int:
        """The number of its pops. The last may fall on the very end; 0 if the end comes before the first."""
        return self.repeat_for_ms // self.interval_ms if self.interval_ms else 1

    def due_ms(self, start_ms: int, pop: int) -> int:
        """When a pop is due; the first is number 1."""
        return start_ms + pop * self.interval_ms

    def skew_ms(self, level: int, replicas: int) -> int:
        """How long a replica waits for those before it, whose level is 0 for the first.

        Less than half of the interval for the last one too: the timer pops within twice its interval. One
        of no interval at all is late for any wait, and is treated as a long one.
        """
        if not self.interval_ms:
            return level * LONGEST_STEP_MS
        return -(-level * min(LONGEST_STEP_MS * 2 * replicas, self.interval_ms) // (2 * replicas))

    def doubt_ms(self, level: int, replicas: int) -> int:
        """How long after the due time a replica waits for the answers of those before it.

        Less than the interval, if that is not short: it calls within twice the interval although they are
        silent. It is longer than a standstill after which a node asks the others.
        """
        if self.interval_ms < SHORT_MS:
            return SHORT_DOUBT_MS + SHORT_STEP_MS * level
        return self.interval_ms // 2 + self.skew_ms(level, replicas)

    def end_ms(self, start_ms: int) -> int:
        """When its last pop is due; its start if there is none."""
        return self.due_ms(start_ms, self.pops)

    def last_call_ms(self, start_ms: int) -> int:
        """The last moment at which it may be called: one interval after `repeat-for`, at least 10 s."""
        return start_ms + self.repeat_for_ms + max(self.interval_ms, LEAST_GRACE_MS)

    def latest_pop(self, start_ms: int, now_ms: int) -> int:
        """The number of the latest pop that is due; 0 if none is."""
        if not self.interval_ms:
            return int(now_ms >= start_ms)
        return max(0, min(self.pops, (now_ms - start_ms) // self.interval_ms))

    def hold_ms(self, late_ms: int, replicas: int, timeout_ms: int) -> int:
        """How long the other replicas wait for news of a call that is `late_ms` late and not over.

        As long as a call may take, but not longer than half an interval. If the node that calls dies, another
        pops within twice the interval, unless it is too late for that: then the lateness at most doubles.
        """
        hold_ms = timeout_ms
        if self.interval_ms:
            hold_ms = min(hold_ms, self.interval_ms // 2)
        hold_ms = max(hold_ms, min(late_ms, LONGEST_HOLD_MS))
        left_ms = self.interval_ms - self.skew_ms(replicas - 1, replicas) - late_ms
        return min(hold_ms, left_ms) if left_ms > 0 else hold_ms


def check_plan(plan: TimerPlan) -> None:
    """Raises `InvalidInput`, in the words of a request, for a plan that is out of bounds.

    Its URI and its tags come from `checked_uri` and `checked_tags`.
    """
    _check_timing(plan.interval_ms, plan.repeat_for_ms)
    try:
        opaque_bytes = len(plan.opaque.encode())
    except UnicodeEncodeError:
        raise InvalidInput(
            "callback.http.opaque has half of a surrogate pair: it is no text"
        ) from None
    if opaque_bytes > MOST_OPAQUE_BYTES:
        raise InvalidInput(f"callback.http.opaque is larger than {MOST_OPAQUE_BYTES} bytes")
    check_factor(plan.factor)


def _check_timing(interval_ms: int, repeat_for_ms: int) -> None:
    for name, duration_ms in (("interval", interval_ms), ("repeat-for", repeat_for_ms)):
        if not 0 <= duration_ms <= LONGEST_MS:
            raise InvalidInput(f"timing.{name} must be from 0 to a hundred years")
    if not interval_ms and repeat_for_ms:
        raise InvalidInput(
            "timing.repeat-for must be 0, or be left out, where timing.interval is 0"
        )
    if interval_ms and repeat_for_ms // interval_ms > MOST_POPS:
        raise InvalidInput(f"the timer would pop more than {MOST_POPS:,} times")


def check_factor(factor: int) -> int:
    """Raises `InvalidInput` for a number of replicas that is out of bounds."""
    if not 1 <= factor <= MOST_REPLICAS:
        raise InvalidInput(f"the replication factor must be from 1 to {MOST_REPLICAS}")
    return factor


# Thousands of timers have the same URI and the same tags, and keep one copy of them. Clients choose both, so
# the caches are bounded; they hold no value that was refused.


@lru_cache(_MOST_SHARED)
def checked_uri(uri: str) -> str:
    """Raises `InvalidInput` for a URI that cannot be called."""
    if problem := url_problem("callback.http.uri", uri):
        raise InvalidInput(problem)
    return uri


@lru_cache(_MOST_SHARED)
def checked_tags(tags: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
    """Raises `InvalidInput` for tags that are out of bounds."""
    if len(tags) > MOST_TAGS:
        raise InvalidInput(f"statistics.tag-info has more than {MOST_TAGS} different tags")
    for tag, count in tags:
        if not 0 < len(tag) <= MOST_TAG_CHARACTERS or not tag.isprintable():
            raise InvalidInput(
                f"the type of a tag must be of 1 to {MOST_TAG_CHARACTERS} printable characters"
            )
        if not 0 < count <= MOST_TAGGED:
            raise InvalidInput(f"the counts of the tag {tag!r} must be from 1 to {MOST_TAGGED}")
    return tags
