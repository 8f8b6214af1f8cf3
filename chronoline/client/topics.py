"""Topics and their settings, with durations as timedeltas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import datetime, timedelta
from typing import Any, Self

from chronoline.client.times import Delay, duration_ms
from chronoline.core import topic as core
from chronoline.core.errors import InvalidInput
from chronoline.runtime.timestamps import from_ms

_DEFAULT = core.TopicSettings()


@dataclass(frozen=True, slots=True, init=False)
class TopicSettings:
    """How a topic behaves. `AsyncClient.change_topic` changes most settings of a topic that exists.

    Durations are given in seconds or as timedeltas, and are timedeltas here. An invalid setting raises
    `InvalidInput`, which names everything that is wrong.
    """

    buckets: int
    """The number of buckets of its messages: the most consumers that can share it."""
    window: timedelta
    """Changes of membership take effect at the next window of this length."""
    default_lease: timedelta
    """The lease of a consumer that asks for none in particular."""
    max_attempts: int
    """After this number of failed attempts a message goes to the dead letters."""
    max_lateness: timedelta | None
    """A message that is later than this goes to the dead letters instead of to a handler."""
    dedupe: timedelta
    """How long the id stays taken after an ack or a cancel."""
    dead_letters: bool
    """Keep dead letters until someone puts them back or discards them; if not, purge them."""
    largest_body_bytes: int
    target: str | None
    """A URL that is called with each message at its due, instead of consumers."""
    most_per_s: int | None
    """At most this number of messages is delivered in any second; the others wait as available."""
    most_in_flight: int | None
    """At most this number of messages is under a live lease at a time."""
    spread: timedelta | None
    """Each message falls due up to this much later than its producer says, always the same for one id."""
    group_waiting: int | None
    """The most messages of one producer group on the timeline; further creates are refused."""
    group_creates_per_s: int | None
    """The most creates of one producer group a second, at each broker; others are refused."""

    def __init__(  # noqa: PLR0913 - the settings, by name
        self,
        *,
        buckets: int = _DEFAULT.buckets,
        window: Delay = _DEFAULT.window_ms / 1000,
        default_lease: Delay = _DEFAULT.default_lease_ms / 1000,
        max_attempts: int = _DEFAULT.max_attempts,
        max_lateness: Delay | None = None,
        dedupe: Delay = _DEFAULT.dedupe_ms / 1000,
        dead_letters: bool = _DEFAULT.dead_letters,
        largest_body_bytes: int = _DEFAULT.largest_body_bytes,
        target: str | None = None,
        most_per_s: int | None = None,
        most_in_flight: int | None = None,
        spread: Delay | None = None,
        group_waiting: int | None = None,
        group_creates_per_s: int | None = None,
    ) -> None:
        self._set(
            core.TopicSettings(
                buckets=buckets,
                window_ms=duration_ms(window, "window"),
                default_lease_ms=duration_ms(default_lease, "default_lease"),
                max_attempts=max_attempts,
                max_lateness_ms=(
                    None if max_lateness is None else duration_ms(max_lateness, "max_lateness")
                ),
                dedupe_ms=duration_ms(dedupe, "dedupe"),
                dead_letters=dead_letters,
                largest_body_bytes=largest_body_bytes,
                target=target,
                most_per_s=most_per_s,
                most_in_flight=most_in_flight,
                spread_ms=None if spread is None else duration_ms(spread, "spread"),
                group_waiting=group_waiting,
                group_creates_per_s=group_creates_per_s,
            )
        )

    @classmethod
    def of(cls, settings: core.TopicSettings) -> Self:
        """The settings as a broker knows them, in milliseconds."""
        made = cls.__new__(cls)
        made._set(settings)
        return made

    def _set(self, settings: core.TopicSettings) -> None:
        for name, value in asdict(settings).items():
            is_duration = name.endswith("_ms") and value is not None
            shown = timedelta(milliseconds=value) if is_duration else value
            object.__setattr__(self, name.removesuffix("_ms"), shown)

    def differing(self, other: TopicSettings) -> list[str]:
        """The names of the settings that `other` has otherwise."""
        return [name for name in self.__slots__ if getattr(self, name) != getattr(other, name)]

    def in_ms(self) -> core.TopicSettings:
        """The settings as a broker knows them, in milliseconds."""
        given: dict[str, Any] = {}
        for each in fields(core.TopicSettings):
            name = each.name.removesuffix("_ms")
            value = getattr(self, name)
            given[each.name] = duration_ms(value, name) if isinstance(value, timedelta) else value
        return core.TopicSettings(**given)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """A pause of a topic: its consumers get nothing, and producers may send."""

    since: datetime
    by: str
    """The name of the token that paused it; empty if there was none."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic as the broker knows it. A name can be used again after a deletion; a uid never is."""

    uid: int
    name: str
    settings: TopicSettings
    revision: int
    """Grows with every change of the settings, pause and resumption."""
    pause: Pause | None = None
    """None while its messages are delivered."""

    @classmethod
    def of(cls, topic: core.Topic) -> Self:
        pause = None
        if (at := topic.pause) is not None:
            pause = Pause(since=from_ms(at.since), by=at.by, reason=at.reason)
        return cls(
            uid=topic.uid,
            name=topic.name,
            settings=TopicSettings.of(topic.settings),
            revision=topic.revision,
            pause=pause,
        )


def settings_in_ms(given: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Changed settings by their names on the wire, and the names of those that are removed.

    Raises `InvalidInput` for a setting that there is not.
    """
    known = {each.name.removesuffix("_ms"): each.name for each in fields(core.TopicSettings)}
    changed, unset = dict[str, Any](), list[str]()
    for name, value in given.items():
        if name not in known:
            raise InvalidInput(
                f"there is no topic setting {name!r}; those there are: {', '.join(known)}"
            )
        if value is None:
            unset.append(known[name])
        else:
            is_duration = known[name].endswith("_ms")
            changed[known[name]] = duration_ms(value, name) if is_duration else value
    return changed, unset
