"""The spans of messages at the broker: `schedule`, `wait` and `deliver`.

Only messages that carry the context of a sender have any: the broker begins no trace of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from chronoline.core.message import LeasedMessage, NewMessage
from chronoline.core.outcome import Outcome
from chronoline.runtime.timestamps import show_moment
from chronoline.runtime.traces import Attributes, TraceStep, context_of, tracer


def record_created(
    topic: str,
    messages: Sequence[NewMessage],
    outcomes: Sequence[Outcome],
    *,
    begin_ms: int,
    end_ms: int,
) -> None:
    """Records how messages were made durable, or refused."""
    if (found := tracer()) is None:
        return
    for message, outcome in zip(messages, outcomes, strict=True):
        if context := context_of(message.headers):
            about = {
                "messaging.message.id": message.id,
                "messaging.chronoline.due": show_moment(message.due),
                "messaging.chronoline.producer_group": message.producer_group,
            }
            if outcome.done:
                about["messaging.chronoline.version"] = str(outcome.version)
            kind = str(outcome.refusal or "unknown")
            problem = None if outcome.done else (kind, outcome.reason)
            found.record(
                TraceStep.SCHEDULE,
                topic,
                about,
                parent=context,
                begin_ms=begin_ms,
                end_ms=end_ms,
                problem=problem,
            )


def record_delivered(topic: str, leased: Sequence[LeasedMessage], now_ms: int) -> None:
    """Records how long messages waited, and how late they leave for their consumer."""
    if (found := tracer()) is None:
        return
    for each in leased:
        message = each.message
        if not (context := context_of(message.headers)):
            continue
        about: Attributes = {
            "messaging.message.id": message.id,
            "messaging.client.id": each.lease.consumer,
            "messaging.chronoline.due": show_moment(message.due),
            "messaging.chronoline.attempts": message.attempts,
            "messaging.chronoline.redelivered": each.redelivered,
            "messaging.chronoline.version": each.lease.version,
        }
        is_first = not each.redelivered and not message.attempts
        if is_first:
            found.record(
                TraceStep.WAIT,
                topic,
                about,
                parent=context,
                begin_ms=min(_created_ms(each), message.due),
                end_ms=message.due,
            )
        found.record(
            TraceStep.DELIVER,
            topic,
            about,
            parent=context,
            # A later attempt has no moment at which it was meant to leave.
            begin_ms=min(message.due, now_ms) if is_first else now_ms,
            end_ms=now_ms,
        )


def _created_ms(leased: LeasedMessage) -> int:
    """When a message was created: its first version is that moment, and each change added 1."""
    return (leased.lease.since or leased.lease.version) - 1
