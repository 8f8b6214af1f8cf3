"""The contracts of the log's two parts: objects, which hold events, and the index, which gives them order.

Both are synchronous and thread-safe. Time is an argument.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from chronoline.core.errors import ChronolineError, StoreError, StoreUnavailable

MAX_PARTITIONS = 4_096
MARK = "chronoline-log"
"""The name of the object that holds the log's id."""
_MARK_BYTES = 100


class ObjectMissing(ChronolineError, LookupError):
    """There is no such object."""


class BucketMissing(StoreUnavailable):
    """The bucket does not exist."""


class ObjectSwept(ChronolineError):
    """The object was swept as an orphan before its commit: nothing was appended. Try again."""


class ObjectTooOld(ChronolineError):
    """The object's name is below the floor: it can no longer be committed.

    The index may have forgotten an earlier commit of it, so only the first attempt knows that nothing was
    appended.
    """

    def __init__(self, floor: str) -> None:
        super().__init__(
            f"the index has forgotten names before {floor!r}, and commits none of them"
        )
        self.floor = floor


class GroupNotFound(ChronolineError, LookupError):
    """There is no such group of readers, or it was deleted, and another of its name is not the same."""


class StoredObject(NamedTuple):
    """An object as a listing shows it."""

    name: str
    size_bytes: int
    modified_ms: int


class Objects(ABC):
    """Immutable objects by name. An object is durable when `put` returns.

    The same bytes may be put under the same name again; other bytes raise `StoreError`.
    """

    @abstractmethod
    def put(self, name: str, data: bytes) -> None:
        """Makes an object. A name is used once."""

    @abstractmethod
    def get(self, name: str, offset: int, length: int) -> bytes:
        """A part of an object. Raises `ObjectMissing`."""

    @abstractmethod
    def list(self) -> Iterator[StoredObject]:
        """All objects, in no order; not the mark."""

    @abstractmethod
    def delete(self, names: Sequence[str]) -> None:
        """Removes objects; missing ones are ignored."""

    def marked(self) -> str | None:
        """The id of the log of these objects; None without a mark, or with a half made, empty one."""
        try:
            return self.get(MARK, 0, _MARK_BYTES).decode(errors="replace") or None
        except ObjectMissing:
            return None

    def mark(self, log_id: str) -> str:
        """Marks these objects with the id of their log; returns the mark that was left first."""
        try:
            self.put(MARK, log_id.encode())
        except StoreError:
            if (first := self.marked()) is None:
                raise
            return first  # another process was faster
        return log_id

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


class Source(NamedTuple):
    """The source of a numbered commit, and the floor of its names after that commit."""

    topic_uid: int
    prefix: str
    """The names of its objects begin with it."""
    floor: str
    """From this commit on, its names before this one are refused unless the index knows them."""


class Chunk(NamedTuple):
    """Events of one partition, in sequence, and where they lie."""

    partition: int
    first_sequence: int
    events: int
    object_name: str
    offset: int
    length: int
    appended_ms: int
    """When the last of them was committed; it never decreases within a partition."""


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


class AppendNotice(NamedTuple):
    """The right to notify of new events of a partition, and the duty to look again after a while."""

    topic_uid: int
    partition: int
    sequence: int
    """Events before it have been notified."""
    since_ms: int
    """When the wait began; it names the notice."""


class Index(ABC):
    """Order and progress. Batches are done as a whole, or not at all."""

    max_chunks_per_commit: int
    """The most chunks of one commit, one replacement and one trim."""

    # The log

    @abstractmethod
    def log_id(self) -> str | None:
        """The log that this index belongs to; None if it was never tied to one."""

    @abstractmethod
    def tie(self, log_id: str) -> str:
        """Ties it to a log, for good; returns the one that it was tied to first."""

    # Topics

    @abstractmethod
    def create_topic(self, topic: LogTopic) -> None:
        """Raises `TopicExists` if the name is taken."""

    @abstractmethod
    def find_topic(self, name: str) -> LogTopic | None: ...

    @abstractmethod
    def list_topics(self) -> list[LogTopic]: ...

    @abstractmethod
    def delete_topic(self, topic_uid: int) -> bool:
        """Deletes a topic: when this returns, its name is free and nothing can be appended to it.

        It has no heads from then on, by which its readers know. False if there is none. Its chunks and groups
        stay until `purge_topic` has removed them.
        """

    @abstractmethod
    def deleted_topics(self) -> list[int]:
        """Deleted topics with remains."""

    @abstractmethod
    def purge_topic(self, topic_uid: int) -> bool:
        """Removes a part of the remains of a deleted topic; true while there is more.

        Objects in which none of its chunks is the last are left alone; the others become unreferenced.
        """

    # Appending and reading

    @abstractmethod
    def commit(
        self,
        object_name: str,
        chunks: Sequence[NewChunk],
        *,
        now_ms: int,
        source: Source | None = None,
    ) -> list[int]:
        """Gives each chunk its first sequence, all in one transaction. A partition comes once.

        A repeated commit of a name returns the first answer, also when its chunks have been compacted or
        trimmed meanwhile, and its object collected: so a commit of unknown outcome is settled by repeating
        it. One that was swept raises `ObjectSwept`. One that the index does not know
        and that is below the floor, or below that of its source, raises `ObjectTooOld`. A topic or
        partition that is not there: `TopicNotFound`, and nothing was appended. If the store does not
        answer: `OutcomeUnknown`.
        """

    @abstractmethod
    def was_committed(self, object_name: str) -> bool | None:
        """Whether a name was committed; None if the index does not know it, or has forgotten it."""

    @abstractmethod
    def heads(self, topic_uid: int) -> list[Head]:
        """The ends of all partitions, by partition; none if there is no such topic."""

    @abstractmethod
    def chunks(
        self, topic_uid: int, partition: int, *, from_sequence: int, limit: int
    ) -> list[Chunk]:
        """Chunks in sequence, beginning with the one that holds `from_sequence`, or the next after it."""

    @abstractmethod
    def sequence_at(self, topic_uid: int, partition: int, ts: int) -> int:
        """The first sequence of the first chunk that was committed at `ts` or later, else the next one."""

    @property
    def hearing(self) -> bool:
        """Whether notifications of other processes' appends arrive now; if not, waiting readers must poll."""
        return False

    def listen(self, heard: Callable[[set[int] | None], None]) -> None:
        """Calls back with the topics in which other processes append, if the engine has notifications.

        None stands for all topics: something may have been missed. Called once at most.
        """
        return

    # Groups

    @abstractmethod
    def open_group(self, group: str, topic_uid: int, *, uid: int) -> int:
        """The uid of a group; makes the group under `uid` if there is none. Raises `TopicNotFound`.

        It tells a group from a later one of its name: with `group_uid`, `join` and `hold` raise
        `GroupNotFound` once that group was deleted.
        """

    @abstractmethod
    def delete_group(self, group: str, topic_uid: int) -> bool:
        """Deletes a group, its progress and its members; false if there was none.

        The holders of its partitions hold nothing any more.
        """

    @abstractmethod
    def join(
        self,
        group: str,
        topic_uid: int,
        member: str,
        *,
        until_ms: int,
        now_ms: int,
        group_uid: int | None = None,
    ) -> list[str]:
        """Registers a reader until a moment; returns the names of all live readers."""

    @abstractmethod
    def leave(self, group: str, topic_uid: int, member: str) -> None: ...

    @abstractmethod
    def hold(
        self,
        group: str,
        topic_uid: int,
        partitions: Sequence[int],
        holder: str,
        *,
        until_ms: int,
        now_ms: int,
        group_uid: int | None = None,
    ) -> list[Hold]:
        """Takes the partitions without a holder, and one's own again under a new fence.

        Where a group is new its progress begins at the first event that there is.
        """

    @abstractmethod
    def renew(self, holds: Sequence[Hold], *, until_ms: int, now_ms: int) -> list[Hold]:
        """Extends the live holds; the others are over or lost."""

    @abstractmethod
    def progress(self, hold: Hold, sequence: int, *, now_ms: int) -> Hold | None:
        """Stores the next sequence to read. Only for a live hold, and never backwards; else None."""

    def progress_all(self, notes: Sequence[tuple[Hold, int]], *, now_ms: int) -> list[Hold | None]:
        """Like `progress` for several partitions, each by itself; in one write where the engine can."""
        return [self.progress(hold, sequence, now_ms=now_ms) for hold, sequence in notes]

    @abstractmethod
    def let_go(self, holds: Sequence[Hold]) -> None:
        """Gives up the partitions that are still one's own."""

    @abstractmethod
    def groups(self, topic_uid: int) -> list[GroupState]:
        """The progress by group and partition."""

    @abstractmethod
    def seek(self, group: str, topic_uid: int, sequences: Mapping[int, int]) -> None:
        """Sets a group's progress by partition, also backwards. Holders of these partitions lose them."""

    # Notices (the debounce of notifications; see `notifier`)

    @abstractmethod
    def begin_notice(
        self, topic_uid: int, partition: int, *, max_latency_ms: int, now_ms: int
    ) -> AppendNotice | int | None:
        """Claims the right to notify of a partition's new events.

        None if all were notified. If another process waits and will notify: the end of its wait, which is
        `max_latency_ms` after its start, so that a dead process is replaced; a wait that starts further
        ahead than that was stored by a clock that has been put back, and is over too.
        """

    @abstractmethod
    def end_notice(self, notice: AppendNotice, *, now_ms: int) -> AppendNotice | None:
        """Stores that a notice was sent, if it is still ours.

        If more was appended meanwhile: the next notice, whose wait begins now. Else the wait is ended in
        the same write, so that an append is either seen by it or begins a notice of its own.
        """

    @abstractmethod
    def untell(self, topic_uid: int, partition: int, *, sequence: int) -> None:
        """Marks everything from a sequence on as not notified; no wait that has begun covers it.

        A waiting process finds that its notice is over, and claims another.
        """

    @abstractmethod
    def untold(self, topic_uid: int) -> list[int]:
        """The partitions with events that were not notified."""

    # Upkeep

    @abstractmethod
    def sweep(self, names: Sequence[str], *, now_ms: int) -> list[str]:
        """The objects among these that no commit refers to; from now on none can.

        Names below the floor that the index does not know are among them, and are not noted.
        """

    @abstractmethod
    def trim(self, topic_uid: int, partition: int, *, before_sequence: int) -> int:
        """Deletes whole chunks that end before a sequence; returns the number of deleted events.

        One call takes the oldest `max_chunks_per_commit`: repeat until none is left.
        """

    @abstractmethod
    def replace(
        self,
        topic_uid: int,
        partition: int,
        old: Sequence[Chunk],
        object_name: str,
        new: NewChunk,
    ) -> bool:
        """Puts one chunk in the place of at most `max_chunks_per_commit` neighbouring ones.

        It counts as committed when the last of them was. False if they are no longer all there, or if the
        object was swept.
        """

    @abstractmethod
    def unreferenced(self, limit: int) -> list[str]:
        """Committed objects in which no chunk lies any more."""

    @abstractmethod
    def forget(self, names: Sequence[str]) -> None:
        """Forgets unreferenced objects, after they were deleted. Their names stay taken."""

    @abstractmethod
    def raise_floor(self, floor: str) -> None:
        """Raises the floor: from now on no name before it can be committed, unless it is known.

        It stays as it is if `forget_names` would have nothing to do.
        """

    @abstractmethod
    def forget_names(self, limit: int) -> int:
        """Forgets some names below the floors without data; returns their number."""

    @abstractmethod
    def close(self) -> None: ...
