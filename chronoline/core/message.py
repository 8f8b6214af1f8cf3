"""Messages and leases, as values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self

Header = tuple[str, bytes | None]
"""A header's name and value. Headers keep their order, and names may repeat."""

DEFAULT_PRODUCER_GROUP = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMessage:
    """A message to create. The store validates it."""

    id: str
    due: int
    """When it is meant to fire, UTC ms."""
    body: bytes | None = b""
    key: bytes | None = None
    headers: tuple[Header, ...] = ()
    expires: int | None = None
    """From this moment on it goes to the dead letters instead of to a handler."""
    producer_group: str = DEFAULT_PRODUCER_GROUP
    """The owner: a producer that names this group may reschedule and cancel it."""
    digest: bytes | None = None
    """A digest of what the producer wrote, which distinguishes a repeated create from another message."""

    @property
    def content_bytes(self) -> int:
        """The size of body, key and headers."""
        return content_bytes(self.body, self.key, self.headers)


def content_bytes(body: bytes | None, key: bytes | None, headers: Iterable[Header]) -> int:
    """The size of the content of a message or an event; its other fields are small."""
    size = len(body or b"") + len(key or b"")
    for name, value in headers:
        size += len(name) + len(value or b"")
    return size


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message on a timeline, without its body.

    `id`, `bucket`, `producer_group`, `key`, `headers` and the body never change.
    """

    id: str
    ts: int
    """Its position: the due time, or the end of its lease."""
    due: int
    """When it is meant to fire; a lease does not move it."""
    bucket: int
    producer_group: str
    lock_consumer: str | None
    """The consumer that holds the lease, or held it when it lapsed."""
    version: int
    """Grows with every change."""
    attempts: int
    """Leases that lapsed, or ended by `retry` or `bury`."""
    expires: int | None
    key: bytes | None
    headers: tuple[Header, ...]

    @classmethod
    def place(cls, message_id: str, ts: int = 0, bucket: int = 0) -> Self:
        """A place among messages, for `Store.scan(after=…)`."""
        return cls(
            id=message_id,
            ts=ts,
            due=0,
            bucket=bucket,
            producer_group="",
            lock_consumer=None,
            version=0,
            attempts=0,
            expires=None,
            key=None,
            headers=(),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """One consumer's right to one message until a moment; `version` is the fencing token."""

    id: str
    consumer: str
    version: int
    until: int
    """At this millisecond the lease is over."""
    session: str = field(default="", compare=False)
    """The session that it was granted to (`core.session`), by which a repeated change is recognized."""
    since: int = field(default=0, compare=False)
    """The version at which it was granted. Extensions of the lease keep it."""

    def extended(self, version: int, until: int) -> Lease:
        """The lease from now on, after an `extend` was answered with this version."""
        return replace(self, version=version, until=until)


class After(NamedTuple):
    """A new time relative to the store's write, which makes it absolute and answers it in `Outcome.at`.

    A message that is given back becomes due at the soonest moment the rules allow if that is later.
    """

    delay_ms: int


LeaseTime = int | After
"""A new end of a lease, or a new due: UTC ms, or relative to the write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasedMessage:
    """A message with its body, handed out under a lease."""

    lease: Lease
    message: Message
    body: bytes | None
    redelivered: bool
    """An earlier lease on it lapsed since it fell due; its lateness is counted apart."""
    taken_from: str | None = None
    """The consumer whose lease lapsed, and which may have failed."""
    resumed_from: str | None = None
    """Which session held the lease before it was resumed."""

    @property
    def content_bytes(self) -> int:
        """The size of body, key and headers."""
        return content_bytes(self.body, self.message.key, self.message.headers)


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedMessage:
    """A message or a dead letter with everything that is kept in an export. A lease is not part of it."""

    id: str
    due: int
    expires: int | None
    attempts: int
    producer_group: str
    key: bytes | None
    headers: tuple[Header, ...]
    body: bytes | None
    reason: str = ""
    """Why a dead letter died; empty for a message, and for a letter that was buried without a reason."""
    died: int = 0

    @property
    def is_dead(self) -> bool:
        return bool(self.died or self.reason)

    def to_new(self) -> NewMessage:
        """The message to create. One that was moved behind its `expires` gets its due afterwards."""
        due = self.due if self.expires is None else min(self.due, max(0, self.expires - 1))
        return NewMessage(
            id=self.id,
            due=due,
            body=self.body,
            key=self.key,
            headers=self.headers,
            expires=self.expires,
            producer_group=self.producer_group,
        )

    @property
    def content_bytes(self) -> int:
        """The size of body, key and headers."""
        return content_bytes(self.body, self.key, self.headers)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A message that could not be delivered, kept until it is put back or discarded."""

    message: Message
    reason: str
    """A `DeathReason`, or what the consumer said that buried it."""
    died: int

    @classmethod
    def place(cls, message_id: str, died: int) -> Self:
        """A place in the list of dead letters, for `Store.dead_letters(after=…)`."""
        return cls(message=Message.place(message_id), reason="", died=died)
