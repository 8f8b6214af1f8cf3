"""What an engine supplies.

Primitives get valid input in which no id occurs twice, and answer what they did.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

from chronoline.core.message import DeadLetter, Message, NewMessage
from chronoline.core.permissions import Operation
from chronoline.core.ranges import BucketRange
from chronoline.core.topic import Topic
from chronoline.stores.changes import (
    Change,
    LeaseRequest,
    ResumeRequest,
    Span,
    StoredRow,
    Taken,
)
from chronoline.stores.contract import Counts, Notice
from chronoline.stores.stripes import Cell

Key = tuple[int, str]
"""Where a row lies within its topic: bucket and id."""


class Primitives(ABC):
    """The operations of one engine, without the contract's checks."""

    @abstractmethod
    def _insert_topic(self, topic: Topic) -> bool:
        """False if its name or its uid is taken."""

    @abstractmethod
    def _is_name_taken(self, name: str) -> bool:
        """Whether a topic of that name is there, or is still being dropped."""

    @abstractmethod
    def _fetch_topic(self, uid: int) -> Topic | None:
        """The live topic."""

    @abstractmethod
    def _find_topic(self, name: str) -> Topic | None: ...

    @abstractmethod
    def _drop_topic(self, uid: int, now_ms: int) -> bool: ...

    @abstractmethod
    def _create(
        self, topic: Topic, messages: Sequence[tuple[int, NewMessage]], replace: bool, now_ms: int
    ) -> dict[str, int]:
        """Creates (bucket, message) and answers the versions of those it made."""

    @abstractmethod
    def _change(
        self, operation: Operation, topic: Topic, changes: Sequence[Change], now_ms: int
    ) -> dict[str, int]:
        """Makes the changes whose guards hold and answers their new versions."""

    @abstractmethod
    def _reserve(
        self, topic: Topic, ranges: Sequence[BucketRange], limit: int, request: LeaseRequest
    ) -> tuple[list[Taken], bool]:
        """What it took, and whether there may be more."""

    @abstractmethod
    def _lease(
        self, topic: Topic, changes: Sequence[Change], request: LeaseRequest
    ) -> list[Taken]: ...

    @abstractmethod
    def _resume(self, topic: Topic, request: ResumeRequest) -> list[Taken]: ...

    @abstractmethod
    def _announce(self, notice: Notice) -> None:
        """Tells the watches of this store, in this process and others."""

    @abstractmethod
    def _rows(self, topic: Topic, keys: Sequence[Key]) -> dict[str, StoredRow]:
        """The rows at these keys by id, marks and dead letters included; none of a dropped topic."""

    @abstractmethod
    def _lookup(self, topic: Topic, keys: Sequence[Key]) -> Iterable[Message]: ...

    @abstractmethod
    def _bodies(
        self, topic: Topic, keys: Sequence[Key]
    ) -> dict[str, tuple[StoredRow, bytes | None]]: ...

    @abstractmethod
    def _select(
        self, topic: Topic, ranges: Sequence[BucketRange], limit: int, max_ts: int
    ) -> list[Message]: ...

    @abstractmethod
    def _select_held(
        self, topic: Topic, consumer: str, session: str | None, after: str, limit: int
    ) -> list[Message]: ...

    @abstractmethod
    def _select_owned(
        self, topic: Topic, producer_group: str, after: str, limit: int
    ) -> list[Message]: ...

    @abstractmethod
    def _next_ts(self, topic: Topic, ranges: Sequence[BucketRange]) -> int | None:
        """None also if the topic was dropped."""

    @abstractmethod
    def _dead_letters(self, topic: Topic, after: tuple[int, str], limit: int) -> list[DeadLetter]:
        """Those whose (died, id) lies behind `after`."""

    @abstractmethod
    def _raise_floors(self, uids: Sequence[int], now_ms: int) -> None:
        """Lets rows of these topics be removed without a mark whose versions are settled.

        New messages begin above a topic's floor. An engine raises it, too, when it purges marks and dead
        letters, in the same transaction.
        """

    @abstractmethod
    def _purge(self, limit: int, now_ms: int) -> int: ...

    @abstractmethod
    def _forecast(
        self,
        topic: Topic,
        ranges: Sequence[BucketRange],
        span: Span,
    ) -> dict[int, Counts]:
        """Counts by the number of the step; empty steps may be missing."""

    @abstractmethod
    def _scan(
        self, topic: Topic, cell: Cell, after: tuple[int, str], end: int, limit: int
    ) -> list[Message]:
        """Messages of a cell in the order of (ts, id), behind `after` and before the moment `end`."""
