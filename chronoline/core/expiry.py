"""Expiry: when a message goes to the dead letters instead of to a handler."""

from __future__ import annotations

from enum import StrEnum

from chronoline.core.message import Message
from chronoline.core.topic import TopicSettings


class DeathReason(StrEnum):
    """Why the store made a message a dead letter. A consumer that buries one gives its own reason."""

    ATTEMPTS = "attempts"
    """Too many attempts failed."""
    EXPIRED = "expired"
    """Past its `expires`."""
    MAX_LATENESS = "max_lateness"
    """Later than the topic's `max_lateness_ms` allows."""
    REJECTED = "rejected"
    """It came in as a record from which no message can be made."""


def death_of(
    message: Message, attempts: int, settings: TopicSettings, now_ms: int
) -> DeathReason | None:
    """Why a message that is about to be leased, or given back, must go to the dead letters instead."""
    if attempts >= settings.max_attempts:
        return DeathReason.ATTEMPTS
    if message.expires is not None and message.expires <= max(message.due, now_ms):
        return DeathReason.EXPIRED
    lateness_ms = settings.max_lateness_ms
    if lateness_ms is not None and message.due + lateness_ms < now_ms:
        return DeathReason.MAX_LATENESS
    return None
