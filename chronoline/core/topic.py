"""A topic: its name, its uid, its settings, and whether it is paused."""

from __future__ import annotations

from dataclasses import dataclass, fields

from chronoline.core.callback_url import url_problem
from chronoline.core.errors import InvalidInput
from chronoline.core.ids import HASH_VALUES, spread_of
from chronoline.core.limits import (
    MAX_BODY_BYTES,
    MAX_TIME_MS,
    MIN_LEASE_MS,
    name_problem,
    new_name_problem,
    reason_problem,
)
from chronoline.core.ranges import BucketRange


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    """How a topic behaves. `check_settings_change` says which settings can change later.

    An invalid setting raises `InvalidInput`, which names everything that is wrong.
    """

    buckets: int = 64
    """The number of buckets of its messages: the most consumers that can share it."""
    window_ms: int = 2_000
    """Changes of membership take effect at the next window of this length."""
    default_lease_ms: int = 30_000
    """The lease of a consumer that asks for none in particular."""
    max_attempts: int = 20
    """After this number of failed attempts a message goes to the dead letters."""
    max_lateness_ms: int | None = None
    """A message that is later than this goes to the dead letters instead of to a handler."""
    dedupe_ms: int = 300_000
    """How long the id stays taken after an ack or a cancel."""
    dead_letters: bool = True
    """Keep dead letters until someone puts them back or discards them; if not, purge them."""
    largest_body_bytes: int = 1024 * 1024
    target: str | None = None
    """A URL that is called with each message at its due, instead of consumers."""
    most_per_s: int | None = None
    """At most this number of messages is delivered in any second; the others wait as available."""
    most_in_flight: int | None = None
    """At most this number of messages is under a live lease at a time."""
    spread_ms: int | None = None
    """Each message falls due up to this much later than its producer says, always the same for one id."""
    group_waiting: int | None = None
    """The most messages of one producer group on the timeline; further creates are refused."""
    group_creates_per_s: int | None = None
    """The most creates of one producer group a second, at each broker; others are refused."""

    def __post_init__(self) -> None:
        found = [_setting_problem(each.name, getattr(self, each.name)) for each in fields(self)]
        if problems := [each for each in found if each is not None]:
            raise InvalidInput("topic settings: " + "; ".join(problems))


_BOUNDS = {
    "buckets": (1, HASH_VALUES),
    "window_ms": (1, 3_600_000),
    "default_lease_ms": (MIN_LEASE_MS, MAX_TIME_MS),
    "max_attempts": (1, 1_000_000),
    "max_lateness_ms": (0, MAX_TIME_MS),
    "dedupe_ms": (0, MAX_TIME_MS),
    "largest_body_bytes": (0, MAX_BODY_BYTES),
    "most_per_s": (1, 1_000_000),
    "most_in_flight": (1, 1_000_000),
    "spread_ms": (0, 86_400_000),
    "group_waiting": (1, 1_000_000_000),
    "group_creates_per_s": (1, 1_000_000),
}
_OPTIONAL = frozenset(each.name for each in fields(TopicSettings) if each.default is None)


def _setting_problem(name: str, value: object) -> str | None:
    if value is None and name in _OPTIONAL:
        return None
    if name == "target":
        return _target_problem(value)
    if name == "dead_letters":
        fits = isinstance(value, bool)
        return None if fits else f"dead_letters must be true or false, not {value!r}"
    if not isinstance(value, int) or isinstance(value, bool):
        return f"{name} must be a whole number, not {value!r}"
    low, high = _BOUNDS[name]
    return None if low <= value <= high else f"{name} must be from {low} to {high}, not {value}"


def _target_problem(value: object) -> str | None:
    if isinstance(value, str) and "#" in value:
        return "target must have no fragment: what follows # is never sent"
    return url_problem("target", value)


DEFAULT_SETTINGS = TopicSettings()


FIXED_SETTINGS = {
    "buckets": "the bucket of each message follows from it",
    "window_ms": "all brokers count the same windows",
}
"""Settings that never change, and why."""


def check_settings_change(before: TopicSettings, after: TopicSettings) -> None:
    """Raises `InvalidInput` if a setting would change that cannot."""
    problems = [
        f"{name} never changes: {reason}"
        for name, reason in FIXED_SETTINGS.items()
        if getattr(before, name) != getattr(after, name)
    ]
    if (before.target is None) != (after.target is None):
        problems.append(
            "a topic has consumers or a target from its creation on; only the URL of a target changes"
        )
    if problems:
        raise InvalidInput("; ".join(problems) + ". Create another topic instead")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """A pause of a topic: its consumers get nothing, and producers may send."""

    since: int
    """UTC ms."""
    by: str = ""
    """The one that asked for it, if that is known."""
    reason: str = ""

    def __post_init__(self) -> None:
        if problem := reason_problem(self.reason):
            raise InvalidInput(problem)
        if self.by and (problem := name_problem("who pauses", self.by)):
            raise InvalidInput(problem)


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic as the store knows it. A name can be used again after a deletion; a uid never is."""

    uid: int
    name: str
    settings: TopicSettings = DEFAULT_SETTINGS
    revision: int = 1
    """Grows with every change of the settings, pause and resumption."""
    pause: Pause | None = None
    """None while its messages are delivered."""

    @property
    def all_buckets(self) -> tuple[BucketRange, ...]:
        """One range over every bucket."""
        return (BucketRange(0, self.settings.buckets),)

    def spread(self, message_id: str, due: int, expires: int | None = None) -> int:
        """When a message falls due that its producer put at `due`: never earlier, and before it expires."""
        span_ms = self.settings.spread_ms
        if not span_ms:
            return due
        if expires is not None and expires > due:
            span_ms = min(span_ms, expires - due)
        return min(due + spread_of(message_id, span_ms), MAX_TIME_MS)


def check_topic_name(name: str) -> None:
    """Raises `InvalidInput` unless this can name a new topic."""
    problem = new_name_problem("topic name", name)
    if problem is None and any(not c.isprintable() for c in name):
        problem = "topic name contains a character that cannot be printed"
    if problem:
        raise InvalidInput(problem)
