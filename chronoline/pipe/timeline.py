"""The timeline of a pipe: how it is made, and what of it is fixed from then on."""

from __future__ import annotations

from chronoline.core.topic import Topic, TopicSettings
from chronoline.pipe.settings import PipeSettings

_FIXED = {
    "buckets": "buckets",
    "dedupe_ms": "dedupe",
    "largest_body_bytes": "largest_value_bytes",
}
"""Of the timeline, and what a pipe calls it."""


def topic_settings(settings: PipeSettings) -> TopicSettings:
    """How the timeline of a pipe behaves: ids are forgotten when they have fired, unless asked otherwise."""
    return TopicSettings(
        buckets=settings.buckets,
        window_ms=settings.window_ms,
        dedupe_ms=settings.dedupe_ms,
        largest_body_bytes=settings.largest_value_bytes,
    )


def fixed_problem(settings: PipeSettings, topic: Topic) -> str | None:
    """What a timeline that was made before cannot be any more."""
    if topic.settings.target is not None:
        return (
            f"the timeline {topic.name!r} has a target, which gets its messages; name another pipe"
        )
    wanted = topic_settings(settings)
    for name, called in _FIXED.items():
        made, asked = getattr(topic.settings, name), getattr(wanted, name)
        if made != asked:
            unit = "ms" if name.endswith("_ms") else ""
            return (
                f"the timeline {topic.name!r} was made with {called} = {made}{unit}, which is fixed, not with"
                f" {asked}{unit}; write {called} = {made}{unit}, or name another pipe"
            )
    return None
