"""The contracts of the log's two parts: objects, which hold events, and the index, which gives them order.

Both are synchronous and thread-safe. Time is an argument.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from chronoline.core.errors import ChronolineError

MAX_PARTITIONS = 4_096


class ObjectMissing(ChronolineError, LookupError):
    """There is no such object."""


class ObjectSwept(ChronolineError):
    """The object was taken for an orphan and swept before its commit: nothing was appended. Try again."""


class StoredObject(NamedTuple):
    """An object as a listing shows it."""

    name: str
    size_bytes: int
    modified_ms: int


class Objects(ABC):
    """Immutable objects by name. A name that was put is durable when `put` returns."""

    @abstractmethod
    def put(self, name: str, data: bytes) -> None:
        """Makes an object. A name is used once."""

    @abstractmethod
    def get(self, name: str, offset: int, length: int) -> bytes:
        """A part of an object. Raises `ObjectMissing`."""

    @abstractmethod
    def list(self) -> Iterator[StoredObject]:
        """All objects, in no order."""

    @abstractmethod
    def delete(self, names: Sequence[str]) -> None:
        """Removes objects; those that are not there are passed over."""

    @abstractmethod
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTopic:
    """A topic of the log."""

    uid: int
    name: str
    partitions: int


class NewChunk(NamedTuple):
    """A chunk of an object that is about to be committed."""

    topic_uid: int
    partition: int
    events: int
    offset: int
    length: int


class Chunk(NamedTuple):
    """Events of one partition, in sequence, and where they lie."""

    partition: int
    first_sequence: int
    events: int
    object_name: str
    offset: int
    length: int
    appended_ms: int
    """When it was committed; it never falls within a partition."""


class Head(NamedTuple):
    """The ends of a partition: events from `first_sequence` up to, not including, `next_sequence`."""

    partition: int
    first_sequence: int
    next_sequence: int


class Hold(NamedTuple):
    """A reader's right to one partition of a topic for a group, until a moment."""

    group: str
    topic_uid: int
    partition: int
    holder: str
    fence: int
    """Grows with each new holder, and names the hold."""
    until_ms: int
    sequence: int
    """The group's progress: the next sequence to read."""


class GroupState(NamedTuple):
    """A group's progress on one partition."""

    group: str
    partition: int
    sequence: int
    holder: str | None
    until_ms: int


class Index(ABC):
    """Order and progress."""

    max_chunks_per_commit: int
    """How many chunks one commit takes."""

    # Topics

    @abstractmethod
    def create_topic(self, topic: LogTopic) -> None:
        """Raises `TopicExists` if the name is taken."""

    @abstractmethod
    def find_topic(self, name: str) -> LogTopic | None: ...

    @abstractmethod
    def list_topics(self) -> list[LogTopic]: ...

    # Appending and reading

    @abstractmethod
    def commit(self, object_name: str, chunks: Sequence[NewChunk], *, now_ms: int) -> list[int]:
        """Gives each chunk its first sequence, all in one transaction.

        A name that was committed before is answered as it was then: so a commit whose outcome is
        unknown is settled by asking again. One that was swept raises `ObjectSwept`. If the store does not
        answer: `OutcomeUnknown`.
        """

    @abstractmethod
    def heads(self, topic_uid: int) -> list[Head]:
        """The ends of all partitions, by partition."""

    @abstractmethod
    def chunks(
        self, topic_uid: int, partition: int, *, from_sequence: int, limit: int
    ) -> list[Chunk]:
        """Chunks in sequence, beginning with the one that holds `from_sequence`, or the next after it."""

    @abstractmethod
    def sequence_at(self, topic_uid: int, partition: int, ts: int) -> int:
        """The first sequence of the first chunk that was committed at `ts` or later, else the next one."""

    # Groups

    @abstractmethod
    def join(
        self, group: str, topic_uid: int, member: str, *, until_ms: int, now_ms: int
    ) -> list[str]:
        """Says that a reader is there until a moment; answers who is, by name."""

    @abstractmethod
    def leave(self, group: str, topic_uid: int, member: str) -> None: ...

    @abstractmethod
    def hold(
        self, group: str, topic_uid: int, partition: int, holder: str, *, until_ms: int, now_ms: int
    ) -> Hold | None:
        """Takes a partition that nobody holds, or takes one's own again under a new fence."""

    @abstractmethod
    def renew(self, hold: Hold, *, until_ms: int, now_ms: int) -> Hold | None:
        """Moves the end of a live hold; None if it is over or lost."""

    @abstractmethod
    def progress(self, hold: Hold, sequence: int, *, now_ms: int) -> Hold | None:
        """Notes the next sequence to read. Only for a live hold, and never backwards; else None."""

    @abstractmethod
    def let_go(self, hold: Hold) -> None:
        """Gives a partition up, if it is still one's own."""

    @abstractmethod
    def groups(self, topic_uid: int) -> list[GroupState]: ...

    @abstractmethod
    def seek(self, group: str, topic_uid: int, partition: int, sequence: int) -> None:
        """Sets a group's progress, also backwards. Whoever holds the partition loses it."""

    # Upkeep

    @abstractmethod
    def sweep(self, names: Sequence[str], *, now_ms: int) -> list[str]:
        """Of these objects, those that no commit refers to; from now on none can."""

    @abstractmethod
    def trim(self, topic_uid: int, partition: int, *, before_sequence: int) -> int:
        """Drops whole chunks that end before a sequence; answers how many events went."""

    @abstractmethod
    def replace(
        self,
        topic_uid: int,
        partition: int,
        old: Sequence[Chunk],
        object_name: str,
        new: NewChunk,
    ) -> bool:
        """Puts one chunk in the place of neighbouring ones; false if they are no longer all there."""

    @abstractmethod
    def unreferenced(self, limit: int) -> list[str]:
        """Objects that were committed once and that no chunk lies in any more."""

    @abstractmethod
    def forget(self, names: Sequence[str]) -> None:
        """Forgets unreferenced objects, after they were deleted."""

    @abstractmethod
    def close(self) -> None: ...
