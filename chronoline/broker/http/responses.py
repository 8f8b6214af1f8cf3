"""The shapes of answers.

A moment is told twice: as RFC 3339, and in milliseconds. What is not there is left out. Bytes are
text where they are valid UTF-8, and else base64 under another name.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, Field, WithJsonSchema

from chronoline.broker.http.fields import HEADERS_SCHEMA
from chronoline.core.limits import MAX_TIME_MS
from chronoline.core.message import DeadLetter, LeasedMessage, Message
from chronoline.core.outcome import Outcome
from chronoline.core.status import status_of
from chronoline.core.topic import Topic
from chronoline.runtime.json_bytes import json_fields, json_headers
from chronoline.runtime.timestamps import show_moment
from chronoline.stores.contract import Counts, ForecastStep

Moment = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
HeadersTold = Annotated[list[tuple[str, Any]], WithJsonSchema(HEADERS_SCHEMA)]


def moments(**named_ms: int | None) -> dict[str, Any]:
    """Each that there is, as text and in milliseconds."""
    told: dict[str, Any] = {}
    for name, moment_ms in named_ms.items():
        if moment_ms is not None:
            shown_ms = max(0, min(moment_ms, MAX_TIME_MS))
            told |= {name: show_moment(shown_ms), f"{name}_ms": moment_ms}
    return told


# Outcomes


class OutcomeTold(BaseModel):
    """What became of one id."""

    id: str
    done: bool
    version: int | None = Field(default=None, description="The new one.")
    due: Moment | None = None
    due_ms: int | None = None
    until: Moment | None = None
    until_ms: int | None = None
    refusal: str | None = Field(
        default=None, description="Why nothing was changed; new names may come."
    )
    unknown: Literal[True] | None = Field(
        default=None,
        description="An earlier request was not answered, and the store cannot tell what became of it.",
    )
    reason: str | None = Field(default=None, description="Why it is not done, in words.")

    @classmethod
    def of(cls, outcome: Outcome, **named_ms: int | None) -> Self:
        """With moments that count if it is done."""
        if outcome.refusal is not None:
            return cls(
                id=outcome.id, done=False, refusal=outcome.refusal.value, reason=outcome.reason
            )
        if outcome.unknown:
            return cls(id=outcome.id, done=False, unknown=True, reason=outcome.reason)
        version = outcome.version or None
        return cls(id=outcome.id, done=True, version=version, **moments(**named_ms))


class OutcomesTold(BaseModel):
    """An outcome for each, in the order of the request."""

    outcomes: list[OutcomeTold]


# Messages


class MessageTold(BaseModel):
    """A message on its timeline, without its body."""

    id: str
    status: Literal["available", "processing", "waiting"]
    version: int
    due: Moment
    due_ms: int
    ts: Moment = Field(description="Its position: the due, or the end of its lease.")
    ts_ms: int
    bucket: int
    attempts: int
    producer_group: str
    consumer: str | None = Field(default=None, description="Who holds the lease, or held it last.")
    expires: Moment | None = None
    expires_ms: int | None = None
    key: str | None = None
    key_base64: str | None = None
    headers: HeadersTold

    @classmethod
    def of(cls, message: Message, now_ms: int) -> Self:
        return cls(
            id=message.id,
            status=status_of(message.ts, message.lock_consumer is not None, now_ms).value,
            bucket=message.bucket,
            consumer=message.lock_consumer,
            **_common(message),
            **moments(ts=message.ts),
        )


def _common(message: Message) -> dict[str, Any]:
    return {
        "version": message.version,
        "attempts": message.attempts,
        "producer_group": message.producer_group,
        "headers": json_headers(message.headers),
        **json_fields(key=message.key),
        **moments(due=message.due, expires=message.expires),
    }


class DeliveryTold(BaseModel):
    """A message under a lease."""

    id: str
    version: int = Field(description="Of the lease: the fencing token.")
    due: Moment
    due_ms: int
    until: Moment = Field(description="At this millisecond the lease is over.")
    until_ms: int
    late_ms: int = Field(description="How long after its due it is handed over.")
    attempts: int
    redelivered: bool
    producer_group: str
    expires: Moment | None = None
    expires_ms: int | None = None
    key: str | None = None
    key_base64: str | None = None
    headers: HeadersTold
    body: str | None = None
    body_base64: str | None = None

    @classmethod
    def of(cls, leased: LeasedMessage, now_ms: int) -> Self:
        lease, message = leased.lease, leased.message
        return cls(
            id=lease.id,
            late_ms=max(0, now_ms - message.due),
            redelivered=leased.redelivered,
            **_common(message) | {"version": lease.version},
            **moments(until=lease.until),
            **json_fields(body=leased.body),
        )


class ReceivedTold(BaseModel):
    """What a poll came to."""

    consumer: str = Field(description="Who holds the leases: say it when they are settled.")
    now: Moment = Field(description="By the broker's clock.")
    now_ms: int
    messages: list[DeliveryTold]


class LetterTold(BaseModel):
    """A dead letter."""

    id: str
    reason: str
    died: Moment
    died_ms: int
    version: int
    due: Moment
    due_ms: int
    attempts: int
    producer_group: str
    expires: Moment | None = None
    expires_ms: int | None = None
    key: str | None = None
    key_base64: str | None = None
    headers: HeadersTold

    @classmethod
    def of(cls, letter: DeadLetter) -> Self:
        return cls(
            id=letter.message.id,
            reason=letter.reason,
            **_common(letter.message),
            **moments(died=letter.died),
        )


class LettersTold(BaseModel):
    """A page of dead letters, oldest first."""

    letters: list[LetterTold]
    next: str | None = Field(
        default=None, description="Where the next page begins, if there may be one."
    )


# Counts


class CountsTold(BaseModel):
    """How many messages are in each status."""

    available: int
    processing: int
    waiting: int
    total: int

    @classmethod
    def of(cls, counts: Counts) -> Self:
        return cls(**asdict(counts), total=counts.total)


class StepTold(CountsTold):
    """What lies on the timeline from `start` until the next step."""

    start: Moment
    start_ms: int

    @classmethod
    def of_step(cls, step: ForecastStep) -> Self:
        return cls(**asdict(step.counts), total=step.counts.total, **moments(start=step.start))


class ForecastTold(BaseModel):
    """The load ahead."""

    now: Moment
    now_ms: int
    step_ms: int
    steps: list[StepTold]


# Topics


class SettingsTold(BaseModel):
    """How a topic behaves."""

    buckets: int
    window_ms: int
    default_lease_ms: int
    max_attempts: int
    max_lateness_ms: int | None = None
    dedupe_ms: int
    dead_letters: bool
    largest_body_bytes: int
    target: str | None = None


class TopicTold(BaseModel):
    """A topic."""

    name: str
    uid: str = Field(description="As text: it has more digits than JavaScript's numbers.")
    settings: SettingsTold

    @classmethod
    def of(cls, topic: Topic) -> Self:
        settings = SettingsTold(**asdict(topic.settings))
        return cls(name=topic.name, uid=str(topic.uid), settings=settings)


class TopicsTold(BaseModel):
    """All topics, by name."""

    topics: list[TopicTold]


class DroppedTold(BaseModel):
    """What became of a topic."""

    dropped: bool = Field(description="False if it was gone already.")


# The node


class BrokerTold(BaseModel):
    """One broker."""

    id: str
    version: str
    roles: list[str]
    address: str


class SubscriberTold(BaseModel):
    """A consumer, and the buckets that it serves: from the first up to, but not including, the second."""

    consumer: str
    topic: str
    start_bucket: int
    stop_bucket: int
    busy: bool


class DegradationTold(BaseModel):
    """Why a broker does less than it should."""

    type: str = Field(description="`storage`, `clock` or `stopping`; new types may come.")
    reason: str


class InfoTold(BaseModel):
    """Who is here."""

    now: Moment
    now_ms: int
    brokers: list[BrokerTold]
    subscribers: list[SubscriberTold]
    degradations: list[DegradationTold] = Field(description="Empty while the broker is ready.")
    store_problem: str = Field(description="Empty while the store answers.")
    clock_problem: str = Field(
        description="Empty while the broker's clock agrees with the store's."
    )


class StateTold(BaseModel):
    """Whether it runs."""

    status: Literal["ok", "ready"]
