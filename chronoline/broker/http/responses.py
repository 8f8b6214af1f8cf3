"""The response schemas.

Each moment has two fields, RFC 3339 and milliseconds. Bytes are text where they are valid UTF-8, and base64
under another name where they are not. Fields that are null are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, Field, WithJsonSchema

from chronoline.broker.bulk_changes import BulkAnswer
from chronoline.broker.http.requests import HEADERS_SCHEMA, in_slices
from chronoline.broker.message_states import KnownState
from chronoline.core.errors import Refused, StoreBusy
from chronoline.core.limits import MAX_TIME_MS
from chronoline.core.message import DeadLetter, LeasedMessage, Message
from chronoline.core.outcome import Outcome, Refusal
from chronoline.core.status import status_of
from chronoline.core.topic import Topic
from chronoline.runtime.json_bytes import json_fields, json_headers
from chronoline.runtime.timestamps import show_moment
from chronoline.stores.contract import Counts, ForecastStep

Moment = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
ShownHeaders = Annotated[list[tuple[str, Any]], WithJsonSchema(HEADERS_SCHEMA)]


def moments(**named_ms: int | None) -> dict[str, Any]:
    """The two fields of each moment that is not None."""
    fields: dict[str, Any] = {}
    for name, moment_ms in named_ms.items():
        if moment_ms is not None:
            shown_ms = max(0, min(moment_ms, MAX_TIME_MS))
            fields |= {name: show_moment(shown_ms), f"{name}_ms": moment_ms}
    return fields


# Outcomes


class OutcomeResponse(BaseModel):
    """The outcome of a change for one id."""

    id: str
    done: bool
    version: int | None = Field(default=None, description="The new version.")
    due: Moment | None = None
    due_ms: int | None = None
    until: Moment | None = None
    until_ms: int | None = None
    refusal: str | None = Field(
        default=None, description="Why nothing was changed; new names may be added."
    )
    unknown: Literal[True] | None = Field(
        default=None,
        description="An earlier request was not answered, and the store cannot tell its outcome.",
    )
    reason: str | None = Field(default=None, description="Why it is not done, as text.")
    retry_after_ms: int | None = Field(
        default=None, description="When to try again, of a refusal that passes."
    )
    warning: str | None = Field(
        default=None, description="Of a created message: what its producer should know."
    )

    @classmethod
    def of(cls, outcome: Outcome, **named_ms: int | None) -> Self:
        """The moments are of a change that is done."""
        if outcome.refusal is not None:
            return cls(
                id=outcome.id,
                done=False,
                refusal=outcome.refusal.value,
                reason=outcome.reason,
                retry_after_ms=outcome.retry_after_ms,
            )
        if outcome.unknown:
            return cls(id=outcome.id, done=False, unknown=True, reason=outcome.reason)
        version = outcome.version or None
        warning = outcome.warning or None
        return cls(
            id=outcome.id, done=True, version=version, warning=warning, **moments(**named_ms)
        )


class OutcomesResponse(BaseModel):
    """An outcome for each item, in the order of the request."""

    outcomes: list[OutcomeResponse]


def only_outcome(outcomes: Sequence[Outcome]) -> Outcome:
    """The outcome of a change of one message. Raises `Refused` or `StoreBusy` if it is not done."""
    (outcome,) = outcomes
    if outcome.refusal is Refusal.BUSY:
        raise StoreBusy(outcome.reason)
    if not outcome.done:
        raise Refused([outcome])
    return outcome


async def outcomes_response(
    outcomes: Sequence[Outcome], moment: str = "", moments_ms: Sequence[int] = ()
) -> OutcomesResponse:
    """The answer to a batch. `moment` names a moment of each outcome: the store's own, or `moments_ms`."""

    def response(place: int) -> OutcomeResponse:
        outcome = outcomes[place]
        moment_ms = outcome.at or (moments_ms[place] if moments_ms else None)
        return OutcomeResponse.of(outcome, **({moment: moment_ms} if moment else {}))

    return OutcomesResponse(outcomes=await in_slices(range(len(outcomes)), response))


# Messages


class MessageResponse(BaseModel):
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
    consumer: str | None = Field(
        default=None, description="The consumer that holds the lease, or held it last."
    )
    expires: Moment | None = None
    expires_ms: int | None = None
    key: str | None = None
    key_base64: str | None = None
    headers: ShownHeaders

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


class DeliveryResponse(BaseModel):
    """A message under a lease."""

    id: str
    version: int = Field(description="The version of the lease: the fencing token.")
    due: Moment
    due_ms: int
    until: Moment = Field(description="At this millisecond the lease is over.")
    until_ms: int
    late_ms: int = Field(description="How long after its due it is delivered.")
    attempts: int
    redelivered: bool
    producer_group: str
    expires: Moment | None = None
    expires_ms: int | None = None
    key: str | None = None
    key_base64: str | None = None
    headers: ShownHeaders
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


class ReceiveResponse(BaseModel):
    """The messages that a poll leased."""

    consumer: str = Field(description="The holder of the leases: use it to settle them.")
    now: Moment = Field(description="By the broker's clock.")
    now_ms: int
    messages: list[DeliveryResponse]
    paused: str | None = Field(default=None, description="Why nothing comes: the topic is paused.")


class DeadLetterResponse(BaseModel):
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
    headers: ShownHeaders

    @classmethod
    def of(cls, letter: DeadLetter) -> Self:
        return cls(
            id=letter.message.id,
            reason=letter.reason,
            **_common(letter.message),
            **moments(died=letter.died),
        )


class DeadLettersResponse(BaseModel):
    """A page of dead letters, oldest first."""

    letters: list[DeadLetterResponse]
    next: str | None = Field(
        default=None, description="Where the next page begins, if there may be one."
    )


# Operators


class MessagesResponse(BaseModel):
    """A page of messages, without their bodies."""

    now: Moment
    now_ms: int
    messages: list[MessageResponse]
    next: str | None = Field(
        default=None,
        description="Where the next page begins. A page may be short, or empty, and have one.",
    )


class MessageStateResponse(BaseModel):
    """The state of a message, on its timeline or after it."""

    id: str
    state: str = Field(
        description="`available`, `processing`, `waiting`, `delivered`, `cancelled` or `dead`; new ones may "
        "be added."
    )
    producer_group: str
    message: MessageResponse | None = None
    consumer: str | None = Field(default=None, description="The one that acked it.")
    until: Moment | None = Field(
        default=None, description="When a deleted message is forgotten, and its id is free."
    )
    until_ms: int | None = None
    died: Moment | None = None
    died_ms: int | None = None
    reason: str | None = Field(default=None, description="Why it died.")

    @classmethod
    def of(cls, known: KnownState, now_ms: int) -> Self:
        message = known.message
        return cls(
            id=known.id,
            state=known.state,
            producer_group=known.producer_group,
            message=None if message is None else MessageResponse.of(message, now_ms),
            consumer=known.consumer or None,
            reason=known.reason or None,
            **moments(until=known.until or None, died=known.died or None),
        )


class ChangedBatchResponse(BaseModel):
    """One batch of a change of all messages that match."""

    looked: int = Field(description="The messages that were compared with the filter.")
    matched: int
    done: int
    refused: dict[str, int] = Field(description="The others, by the name of their refusal.")
    sample: list[str] = Field(description="Some ids that matched.")
    next: str | None = Field(default=None, description="For the next batch; missing at the end.")
    due: Moment | None = None
    due_ms: int | None = None

    @classmethod
    def of(cls, answer: BulkAnswer) -> Self:
        return cls(
            looked=answer.looked,
            matched=answer.matched,
            done=answer.done,
            refused=dict(answer.refused),
            sample=list(answer.sample),
            next=None if answer.next is None else answer.next.to_text(),
            **moments(due=answer.due),
        )


# Counts


class CountsResponse(BaseModel):
    """The number of messages in each status."""

    available: int
    processing: int
    waiting: int
    total: int

    @classmethod
    def of(cls, counts: Counts) -> Self:
        return cls(**asdict(counts), total=counts.total)


class ForecastStepResponse(CountsResponse):
    """The messages of the timeline from `start` until the next step."""

    start: Moment
    start_ms: int

    @classmethod
    def of_step(cls, step: ForecastStep) -> Self:
        return cls(**asdict(step.counts), total=step.counts.total, **moments(start=step.start))


class ForecastResponse(BaseModel):
    """The load ahead."""

    now: Moment
    now_ms: int
    step_ms: int
    steps: list[ForecastStepResponse]


# Topics


class TopicSettingsResponse(BaseModel):
    """The settings of a topic."""

    buckets: int
    window_ms: int
    default_lease_ms: int
    max_attempts: int
    max_lateness_ms: int | None = None
    dedupe_ms: int
    dead_letters: bool
    largest_body_bytes: int
    target: str | None = Field(
        default=None,
        description="Ends with `?...` in the place of its query, unless the token administers the topic.",
    )
    most_per_s: int | None = None
    most_in_flight: int | None = None
    spread_ms: int | None = None
    group_waiting: int | None = None
    group_creates_per_s: int | None = None


class PauseResponse(BaseModel):
    """A pause of a topic."""

    since: Moment
    since_ms: int
    by: str = Field(description="The name of the token that paused it; empty if there was none.")
    reason: str


class TopicResponse(BaseModel):
    """A topic."""

    name: str
    uid: str = Field(description="As text: it has more digits than JavaScript's numbers.")
    revision: int = Field(
        description="Grows with every change of the settings, pause and resumption."
    )
    pause: PauseResponse | None = Field(
        default=None, description="While it is there, consumers get nothing."
    )
    settings: TopicSettingsResponse

    @classmethod
    def of(cls, topic: Topic) -> Self:
        pause = None
        if (at := topic.pause) is not None:
            pause = PauseResponse(by=at.by, reason=at.reason, **moments(since=at.since))
        return cls(
            name=topic.name,
            uid=str(topic.uid),
            revision=topic.revision,
            pause=pause,
            settings=TopicSettingsResponse(**asdict(topic.settings)),
        )


class TopicsResponse(BaseModel):
    """All topics, by name."""

    topics: list[TopicResponse]


class PreferredBrokerResponse(BaseModel):
    """A broker to which clients of a topic go."""

    id: str
    address: str = Field(description="Of its gRPC.")
    rack: str
    health: str = Field(description="`degraded` if it serves clients worse than others do.")


class PreferredBrokersResponse(BaseModel):
    """The brokers in the order in which clients of a topic should try them; there is at least one."""

    brokers: list[PreferredBrokerResponse]


class DropTopicResponse(BaseModel):
    """The outcome of deleting a topic."""

    dropped: bool = Field(description="False if it was deleted already.")


# The node


class BrokerResponse(BaseModel):
    """A broker of the cluster."""

    id: str
    version: str = Field(description="Empty for a broker of a release that does not tell it.")
    roles: list[str]
    address: str
    rack: str
    health: str = Field(
        description="`healthy`, `degraded`, or `inactive`: it was connected a while ago."
    )
    problems: list[str] = Field(description="Why it is degraded.")
    notices: list[str] = Field(
        description="Its notices of other brokers. They are not its own state."
    )
    topics: int
    consumers: int
    messages_per_s: int
    load_percent: int = Field(description="The part of one core that it uses.")
    clock_ahead_ms: float | None = Field(
        description="The time by which its clock is ahead of that of the broker that answers."
    )


class SubscriberResponse(BaseModel):
    """A consumer, and the buckets that it serves: from the first up to, but not including, the second."""

    consumer: str
    topic: str
    start_bucket: int
    stop_bucket: int
    busy: bool
    broker: str
    rack: str
    own: list[tuple[int, int]] = Field(description="All ranges that it has in this window.")
    backups: list[tuple[int, int]] = Field(
        description="The ranges that it serves while its own ones give nothing, in order."
    )


class DegradationResponse(BaseModel):
    """A reason why a broker is degraded."""

    type: str = Field(
        description="The broker is not ready: `storage`, `coordination`, `clock`, `stopping`. It is ready: "
        "`drift`, `peers`, `consumers`, `producers`. New types may be added."
    )
    reason: str


class InfoResponse(BaseModel):
    """The brokers of the cluster, all consumers, and why the broker that answers is not ready."""

    now: Moment
    now_ms: int
    answered_by: str
    brokers: list[BrokerResponse]
    subscribers: list[SubscriberResponse]
    degradations: list[DegradationResponse] = Field(
        description="Empty while nothing is wrong with the broker."
    )
    store_problem: str = Field(description="Empty while the store answers.")
    clock_problem: str = Field(
        description="Empty while the broker's clock agrees with the store's."
    )
    coordination_problem: str = Field(
        description="Empty while the coordination service answers; else other brokers may have changed."
    )


class StatusResponse(BaseModel):
    """The state of the node."""

    status: Literal["ok", "ready"]
