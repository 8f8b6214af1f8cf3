"""The shapes of requests.

Unknown fields are refused, numbers are numbers and text is text: a typing error is told, not passed over.
Long lists are left as they came, to be checked piece by piece (`slicing`).
"""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, SkipValidation, model_validator

from chronoline.broker.http.fields import (
    AsJson,
    Base64,
    ConsumerName,
    Count,
    DurationMs,
    Headers,
    Id,
    IfExists,
    Milliseconds,
    MomentMs,
    ProducerGroup,
    Reason,
    Version,
    Whole,
)
from chronoline.core.limits import MAX_NAME_BYTES
from chronoline.core.message import DEFAULT_PRODUCER_GROUP, After, LeaseTime, NewMessage
from chronoline.core.topic import TopicSettings
from chronoline.core.urls import MAX_URL_CHARACTERS
from chronoline.runtime.message_ids import new_id


def _given(*names: str) -> dict[str, Any]:
    """In the words of a schema: all of these are given. Null is as good as nothing."""
    something = {"not": {"type": "null"}}
    return {"required": list(names), "properties": dict.fromkeys(names, something)}


def _at_most_one(*names: str) -> dict[str, Any]:
    """In the words of a schema: no two of these are given."""
    pairs = [_given(one, other) for place, one in enumerate(names) for other in names[place + 1 :]]
    return {"not": {"anyOf": pairs}}


def _exactly_one(*names: str) -> dict[str, Any]:
    return {"allOf": [_at_most_one(*names), {"anyOf": [_given(name) for name in names]}]}


class Asked(BaseModel):
    """What all requests have in common."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    def _check_at_most_one(self, *names: str) -> None:
        given = {
            name.rstrip("_") for name in self.model_fields_set if getattr(self, name) is not None
        }
        both = [name for name in names if name in given]
        if len(both) > 1:
            raise ValueError(f"give {' or '.join(both)}, not both")


# When

_WHEN = ("due", "due_ms", "in", "delay_ms")


class AskedWhen(Asked):
    """A moment, or how long from now; relative times are made absolute by the broker's clock."""

    model_config = ConfigDict(json_schema_extra=_at_most_one(*_WHEN))

    due: MomentMs | None = None
    due_ms: Milliseconds | None = None
    in_: DurationMs | None = Field(default=None, alias="in")
    delay_ms: Milliseconds | None = None

    @model_validator(mode="after")
    def _check_when(self) -> Self:
        self._check_at_most_one(*_WHEN)
        return self

    def at_ms(self, now_ms: int) -> int | None:
        """None if nothing is said of it."""
        return _at_ms(
            self.due if self.due is not None else self.due_ms,
            self.in_ if self.in_ is not None else self.delay_ms,
            now_ms,
        )

    @property
    def time(self) -> LeaseTime | None:
        """Relative times are left to the store's write; None if nothing is said of it."""
        return _time(
            self.due if self.due is not None else self.due_ms,
            self.in_ if self.in_ is not None else self.delay_ms,
        )


def _time(moment_ms: int | None, delay_ms: int | None) -> LeaseTime | None:
    if moment_ms is not None:
        return moment_ms
    return None if delay_ms is None else After(delay_ms)


def _at_ms(moment_ms: int | None, delay_ms: int | None, now_ms: int) -> int | None:
    if moment_ms is not None:
        return moment_ms
    return None if delay_ms is None else now_ms + delay_ms


# Producers


class AskedContent(AskedWhen):
    """A message to create: when, and what is in it."""

    body: str | None = Field(default=None, description="As text.")
    body_base64: Base64 | None = None
    json_: AsJson | None = Field(
        default=None, alias="json", description="Any JSON, which is the body."
    )
    key: str | None = None
    key_base64: Base64 | None = None
    headers: Headers = ()
    expires: MomentMs | None = None
    expires_ms: Milliseconds | None = None

    @model_validator(mode="after")
    def _check_content(self) -> Self:
        self._check_at_most_one("body", "body_base64", "json")
        self._check_at_most_one("key", "key_base64")
        self._check_at_most_one("expires", "expires_ms")
        return self

    def to_message(self, message_id: str, producer_group: str, now_ms: int) -> NewMessage:
        at_ms = self.at_ms(now_ms)
        return NewMessage(
            id=message_id,
            due=now_ms if at_ms is None else at_ms,
            body=self._body(),
            key=self.key.encode() if self.key is not None else self.key_base64,
            headers=self.headers,
            expires=self.expires if self.expires is not None else self.expires_ms,
            producer_group=producer_group,
        )

    def _body(self) -> bytes | None:
        """Without a word of it, it is empty. Null is a message without one as `body`, and JSON as `json`."""
        if self.body is not None:
            return self.body.encode()
        if self.body_base64 is not None:
            return self.body_base64
        if self.json_ is not None:
            return self.json_
        if "body" in self.model_fields_set:
            return None
        return b"null" if "json_" in self.model_fields_set else b""


_CONTENT_RULES: dict[str, Any] = {
    "allOf": [
        _at_most_one(*_WHEN),
        _at_most_one("body", "body_base64", "json"),
        _at_most_one("key", "key_base64"),
        _at_most_one("expires", "expires_ms"),
    ]
}


class AskedCreate(AskedContent):
    """One message, whose id stands in the path."""

    model_config = ConfigDict(
        json_schema_extra={
            **_CONTENT_RULES,
            "examples": [
                {"in": "5s", "body": "hello"},
                {"due": "2030-01-31T12:00:00Z", "json": {"user": 7}, "headers": {"kind": "mail"}},
            ],
        }
    )

    if_exists: IfExists = "refuse"
    producer_group: ProducerGroup = DEFAULT_PRODUCER_GROUP


class AskedNew(AskedContent):
    """One message of a batch."""

    model_config = ConfigDict(json_schema_extra=_CONTENT_RULES)

    id: Id | None = Field(
        default=None,
        description="Without it one is made: then a repeated request creates the message again.",
    )

    def to_new(self, producer_group: str, now_ms: int) -> NewMessage:
        return self.to_message(self.id or new_id(), producer_group, now_ms)


class AskedBatch(Asked):
    """Messages to create."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"messages": [{"id": "a", "in": "1m", "body": "one"}, {"id": "b", "in": "2m"}]}
            ]
        }
    )

    messages: list[SkipValidation[AskedNew]]
    if_exists: IfExists = "refuse"
    producer_group: ProducerGroup = DEFAULT_PRODUCER_GROUP


class AskedReschedule(AskedWhen):
    """Another due."""

    model_config = ConfigDict(
        json_schema_extra={**_exactly_one(*_WHEN), "examples": [{"in": "10m"}]}
    )

    producer_group: ProducerGroup = DEFAULT_PRODUCER_GROUP


class AskedCancel(Asked):
    """Messages to cancel."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"ids": ["u1", "u2"]}]})

    ids: list[Id]
    producer_group: ProducerGroup = DEFAULT_PRODUCER_GROUP
    again: bool = Field(
        default=False,
        description="An earlier request for the same was not answered, or its outcome was unknown.",
    )


# Consumers


class AskedReceive(Asked):
    """A poll."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"consumer": "worker-1", "count": 10, "lease": "30s", "wait": "1s"}]
        }
    )

    consumer: ConsumerName | None = Field(
        default=None, description="A name that nobody else has; without it one is made and told."
    )
    count: Count = Field(default=1, description="The most messages to get.")
    lease: DurationMs | None = Field(default=None, description="Without it, the topic's own.")
    wait: DurationMs | None = Field(
        default=None, description="For how long to wait for the first; 20s if it is not given."
    )
    resume: bool = Field(
        default=False,
        description="The consumer was started anew: it gets what it still has under lease first, under new "
        "versions.",
    )


class AskedLease(Asked):
    """A lease, by its name."""

    id: Id
    version: Version


class AskedExtend(AskedLease):
    """A lease, and its new end; without one, the topic's own duration from now."""

    model_config = ConfigDict(json_schema_extra=_at_most_one("until", "until_ms", "in", "delay_ms"))

    until: MomentMs | None = None
    until_ms: Milliseconds | None = None
    in_: DurationMs | None = Field(default=None, alias="in")
    delay_ms: Milliseconds | None = None

    @model_validator(mode="after")
    def _check_until(self) -> Self:
        self._check_at_most_one("until", "until_ms", "in", "delay_ms")
        return self

    @property
    def time(self) -> LeaseTime | None:
        """None if nothing is said of it."""
        return _time(
            self.until if self.until is not None else self.until_ms,
            self.in_ if self.in_ is not None else self.delay_ms,
        )


class AskedGiveBack(AskedWhen, AskedLease):
    """A lease, and when its message is due again."""

    model_config = ConfigDict(json_schema_extra=_exactly_one(*_WHEN))

    @model_validator(mode="after")
    def _check_given(self) -> Self:
        if self.at_ms(0) is None:
            raise ValueError(f"say when it is due again: {', '.join(_WHEN)}")
        return self


class AskedBury(AskedLease):
    """A lease, and why its message is given up."""

    reason: Reason = ""


_LEASE: dict[str, Any] = {"id": "u1", "version": 1767225600000}


class AskedSettlement(Asked):
    """Who settles leases."""

    consumer: ConsumerName
    again: bool = Field(
        default=False,
        description="An earlier request for the same was not answered, or its outcome was unknown.",
    )


class AskedAcks(AskedSettlement):
    """Leases whose messages are done with."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"consumer": "worker-1", "leases": [_LEASE]}]}
    )

    leases: list[SkipValidation[AskedLease]]


class AskedExtends(AskedSettlement):
    """Leases to extend."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"consumer": "worker-1", "leases": [{**_LEASE, "in": "1m"}]}]
        }
    )

    leases: list[SkipValidation[AskedExtend]]


class AskedGiveBacks(AskedSettlement):
    """Leases whose messages are given back into the future."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"consumer": "worker-1", "leases": [{**_LEASE, "in": "5m"}]}]
        }
    )

    leases: list[SkipValidation[AskedGiveBack]]


class AskedBuries(AskedSettlement):
    """Leases whose messages are given up."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"consumer": "worker-1", "leases": [{**_LEASE, "reason": "no such user"}]}]
        }
    )

    leases: list[SkipValidation[AskedBury]]


# Topics and dead letters


class AskedSettings(Asked):
    """How a topic behaves; what is not given is the default. It never changes."""

    buckets: Whole | None = Field(
        default=None, description="Into how many buckets its messages fall."
    )
    window_ms: Whole | None = None
    default_lease_ms: Whole | None = None
    max_attempts: Whole | None = None
    max_lateness_ms: Whole | None = None
    dedupe_ms: Whole | None = None
    dead_letters: bool | None = None
    largest_body_bytes: Whole | None = None
    target: Annotated[str, Field(max_length=MAX_URL_CHARACTERS)] | None = Field(
        default=None,
        description="A URL that is called with each message at its due, instead of consumers.",
        examples=["https://example.com/remind"],
    )

    def to_settings(self) -> TopicSettings:
        return TopicSettings(**self.model_dump(exclude_none=True))


class AskedTopic(Asked):
    """A topic to make."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"name": "reminders", "settings": {"default_lease_ms": 60000}}]
        }
    )

    name: Annotated[str, Field(min_length=1, max_length=MAX_NAME_BYTES)]
    settings: AskedSettings = AskedSettings()
    if_missing: bool = Field(
        default=False, description="A topic that is there already is answered as it is."
    )


class AskedRedrive(AskedWhen):
    """Dead letters to put back; without a time, at once."""

    model_config = ConfigDict(
        json_schema_extra={**_at_most_one(*_WHEN), "examples": [{"ids": ["u1"], "in": "1m"}]}
    )

    ids: list[Id]


class AskedDiscard(Asked):
    """Dead letters to delete."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"ids": ["u1"]}]})

    ids: list[Id]
