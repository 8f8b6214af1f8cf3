"""Making and dropping topics, for whichever edge was asked."""

from __future__ import annotations

from chronoline.broker.context import Parts
from chronoline.core.errors import InvalidInput
from chronoline.core.topic import Topic, TopicSettings, check_topic_name


async def create_topic(
    parts: Parts, name: str, settings: TopicSettings, *, if_missing: bool
) -> Topic:
    """Raises `InvalidInput`, also for bodies that could not travel, and `TopicExists`."""
    check_topic_name(name)
    largest_bytes = parts.limits.frame_bytes // 2
    if settings.largest_body_bytes > largest_bytes:
        raise InvalidInput(
            f"bodies of {settings.largest_body_bytes} bytes do not fit into this broker's frames; at "
            f"most {largest_bytes}: raise frame_bytes in its settings"
        )
    with parts.metrics.topic_command("create", name):
        topic = await parts.topics.create(name, settings, if_missing=if_missing)
    if topic.settings.target is not None:
        parts.topic_made.ring()
    return topic


async def delete_topic(parts: Parts, uid: int) -> bool:
    """False if it was gone already. Raises `TopicNotFound`."""
    topic = await parts.topics.get(uid)
    with parts.metrics.topic_command("delete", topic.name):
        dropped = await parts.topics.drop(uid)
    if dropped:
        parts.metrics.forget_topic(topic.name)
    return dropped
