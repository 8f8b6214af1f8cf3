"""Values for operators: selections of messages, pages, states, and the results of bulk changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Self

from chronoline.client.messages import Message
from chronoline.core.errors import InvalidInput
from chronoline.core.filters import MessageFilter, statuses_of
from chronoline.runtime.timestamps import from_ms, to_ms
from chronoline.wire.v1 import chronoline_pb2 as pb

KINDS = {
    "cancel": pb.ChangeMatchingRequest.KIND_CANCEL,
    "reschedule": pb.ChangeMatchingRequest.KIND_RESCHEDULE,
    "redrive": pb.ChangeMatchingRequest.KIND_REDRIVE,
    "discard": pb.ChangeMatchingRequest.KIND_DISCARD,
}
"""The changes of all messages of a selection. The last two change dead letters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The messages of a topic for which all given conditions hold; without one, all of them."""

    producer_group: str = ""
    consumer: str = ""
    """The holder of the lease, or of the last one if it lapsed."""
    prefix: str = ""
    """The beginning of the id."""
    start: datetime | None = None
    """The earliest position: the due, or the end of the lease. Of dead letters: when they died."""
    end: datetime | None = None
    """The position before which they lie."""
    statuses: Sequence[str] = ()
    """`available`, `processing` or `waiting`."""
    reason: str = ""
    """Why dead letters died."""

    def to_wire(self) -> pb.MessageFilter:
        """Raises `InvalidInput`."""
        start_ms = 0 if self.start is None else to_ms(self.start, "start")
        end_ms = None if self.end is None else to_ms(self.end, "end")
        if isinstance(self.statuses, str):
            raise InvalidInput("statuses must be a list, such as ['waiting']")
        MessageFilter(
            producer_group=self.producer_group,
            consumer=self.consumer,
            prefix=self.prefix,
            start=start_ms,
            end=end_ms,
            statuses=statuses_of(list(self.statuses)),
            reason=self.reason,
        )
        return pb.MessageFilter(
            producer_group=self.producer_group,
            consumer=self.consumer,
            prefix=self.prefix,
            start_ms=start_ms,
            end_ms=end_ms,
            statuses=self.statuses,
            reason=self.reason,
        )


ALL_MESSAGES = Selection()


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagePage:
    """Some messages, and where the next page begins."""

    messages: list[Message]
    next: str
    """Empty at the end. A page may have fewer messages than the limit, or none, although there are more."""

    @classmethod
    def from_wire(cls, wire: pb.MessagePage) -> Self:
        return cls(messages=[Message.from_wire(each) for each in wire.messages], next=wire.next)


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageState:
    """The state of a message, on its timeline or after it."""

    id: str
    state: str
    """`available`, `processing` or `waiting` on its timeline; else `delivered`, `cancelled` or `dead`."""
    producer_group: str
    message: Message | None
    """While it is on its timeline."""
    consumer: str
    """The one that acked it."""
    until: datetime | None
    """When a delivered or cancelled message is forgotten, and its id is free."""
    died: datetime | None
    reason: str
    """Why it died."""

    @classmethod
    def from_wire(cls, wire: pb.MessageState) -> Self:
        return cls(
            id=wire.id,
            state=wire.state,
            producer_group=wire.producer_group,
            message=Message.from_wire(wire.message) if wire.HasField("message") else None,
            consumer=wire.consumer,
            until=from_ms(wire.until_ms) if wire.until_ms else None,
            died=from_ms(wire.died_ms) if wire.died_ms else None,
            reason=wire.reason,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkResult:
    """The result of a change of a selection so far, done or dry."""

    looked: int = 0
    """The messages that were compared with the selection."""
    matched: int = 0
    done: int = 0
    refused: Mapping[str, int] = field(default_factory=dict)
    """The others, by the name of their refusal: `leased` are those that a consumer holds."""
    sample: Sequence[str] = ()
    """Some ids that matched."""
    next: str = ""
    """Where the change goes on; empty when it is complete."""
    due: datetime | None = None

    def plus(self, wire: pb.ChangedBatch) -> BulkResult:
        """The result with one more batch."""
        refused = dict(self.refused)
        for name, count in wire.refused.items():
            refused[name] = refused.get(name, 0) + count
        return BulkResult(
            looked=self.looked + wire.looked,
            matched=self.matched + wire.matched,
            done=self.done + wire.done,
            refused=refused,
            sample=self.sample or list(wire.sample),
            next=wire.next,
            due=from_ms(wire.due_ms) if wire.due_ms else self.due,
        )


Progress = Callable[[BulkResult], None]
"""Gets the result so far after each batch."""
