"""The contract of a coordination service: sessions, conditional commits, views and watches.

An engine is a small, strongly consistent map from keys to values. It says who is there and who works on
what. Its word is a hint: what must not happen twice is guarded by the store's conditional writes.

- **Keys** are printable ASCII without spaces; `key_of` makes one of parts. Values are bytes.
- **Order**: every commit that changes something gets a *revision*, one greater for each. All that is read
  or shown is the state at one revision.
- **Versions**: the version of an entry is the revision at which it was last written. It is never used
  again, also after the entry was deleted and written anew.
- **Errors**: `CoordinationUnavailable`: nothing was changed, try again. `CommitUnknown`: the commit may have
  been made or not, or be made yet; `settlement.commit_surely` finds out. `SessionLost`: the session has
  ended, nothing was changed. `InvalidInput`: the call is wrong. Other refusals of a server, such as a wrong
  password, are `CoordinationRefused`.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Self
from urllib.parse import quote, unquote

from chronoline.core.errors import InvalidInput
from chronoline.runtime.partner_traffic import PartnerTraffic
from chronoline.runtime.service import AsyncService

MOST_OPERATIONS = 128
"""The most conditions, and the most writes, of one commit."""
MOST_BYTES = 1_000_000
"""The most bytes of keys and values in one commit."""
SHORTEST_TTL_MS = 2_000
"""The shortest time to live of a session: etcd grants no shorter one."""
DEFAULT_MARGIN_MS = 300
_SPARE_BYTES = 1_000
_MS = 1_000


# Keys


def key_of(*parts: str | int) -> str:
    """The key of these parts, each of which may hold any text."""
    return "/".join(quote(str(part), safe="") for part in parts)


def prefix_of(*parts: str | int) -> str:
    """The prefix of all keys that begin with these parts and have more."""
    return f"{key_of(*parts)}/"


def parts_of(key: str) -> tuple[str, ...]:
    """The parts of a key."""
    return tuple(unquote(part) for part in key.split("/"))


# Entries and views


@dataclass(frozen=True, slots=True)
class KeyValue:
    """One entry."""

    key: str
    value: bytes
    version: int
    session: int = 0
    """The id of the session with which it vanishes; 0 for an entry that stays."""
    decoded: dict[type, object] = field(default_factory=dict, compare=False, repr=False)
    """The value as records of these types, for `records`."""


@dataclass(frozen=True, slots=True)
class View:
    """All entries under a prefix at one revision. Immutable."""

    entries: Mapping[str, KeyValue]
    """By key, in the order of keys."""
    revision: int
    is_current: bool
    """False while the service is not heard from: entries may have come and gone since then."""

    def under(self, prefix: str) -> View:
        """The part of the view under a longer prefix."""
        found = {key: each for key, each in self.entries.items() if key.startswith(prefix)}
        return replace(self, entries=MappingProxyType(found))

    @classmethod
    def of(cls, entries: Mapping[str, KeyValue], revision: int) -> Self:
        """A current view of these entries."""
        in_order = {key: entries[key] for key in sorted(entries)}
        return cls(MappingProxyType(in_order), revision, is_current=True)


NOTHING_SEEN = View(MappingProxyType({}), 0, is_current=False)
"""The view of a watch before its first snapshot."""


class KeyWatch:
    """The current view of a prefix, and an iterator over its changes, for one reader.

    The first view that it yields is a snapshot. After that it yields one for each change or burst of
    changes, and one when `is_current` changes. A slow reader gets the newest view alone. After a
    disconnect, and after a compaction of the server's history, it goes on with a new snapshot: a reader
    never has a hole. While the service is not heard from, the view keeps its entries and is not current:
    not seeing peers differs from peers that are gone.

    A reader that does not iterate can look at `view` at any time. `close` ends the iteration.
    """

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self._view = self._given = NOTHING_SEEN
        self._is_closed = False
        self._news = asyncio.Event()

    @property
    def view(self) -> View:
        """The newest view; `NOTHING_SEEN` before the first snapshot."""
        return self._view

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    async def close(self) -> None:
        """Ends the watch. May be called twice."""
        self._is_closed = True
        self._news.set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __aiter__(self) -> AsyncIterator[View]:
        return self

    async def __anext__(self) -> View:
        while not self._is_closed:
            if self._view is not self._given:
                self._given = self._view
                return self._given
            self._news.clear()
            await self._news.wait()
        raise StopAsyncIteration

    # For engines

    def show(self, view: View) -> None:
        """Shows a view to the reader, unless it sees the same already."""
        if view != self._view:
            self._view = view
            self._news.set()

    def show_silence(self) -> None:
        """The service is not heard from: the view is no longer current."""
        if self._view.is_current:
            self.show(replace(self._view, is_current=False))


# Sessions


class BrokerSession(ABC):
    """The presence of one broker: entries that are written under it vanish when it ends.

    Its holder keeps it alive by itself; no call is needed. It ends by `close`, or when the service has had no
    keep-alive for its TTL.

    *Trusted* is less than *not lost*: the service may hold a session that its holder cannot trust, and a
    lost session is noticed only when the service answers. So a holder acts only while `is_trusted`. Trust
    that ended returns if a keep-alive succeeds after all, since then the entries were there all the time.
    Loss is final: open another session and write the entries again.
    """

    id: int
    """Never used again."""
    ttl_ms: int
    """As granted, which may be more than was asked for."""

    @property
    @abstractmethod
    def trusted_until(self) -> float:
        """The sending of the last keep-alive that succeeded, plus TTL, minus margin, by the monotonic clock.

        The sending counts, not the answer: the service counts from a moment between the two. In the past once
        the session is lost.
        """

    @property
    @abstractmethod
    def is_trusted(self) -> bool:
        """Whether `trusted_until` is in the future."""

    @property
    @abstractmethod
    def is_lost(self) -> bool:
        """Whether the session is known to have ended."""

    @abstractmethod
    async def wait_lost(self) -> None:
        """Returns when the session is known to have ended, by whatever cause."""

    @abstractmethod
    async def keep_alive(self) -> None:
        """Sends one keep-alive now. Raises `SessionLost`, `CoordinationUnavailable`."""

    @abstractmethod
    def abandon(self) -> None:
        """Stops the keep-alives: the session ends after its TTL, as that of a crashed broker does."""

    @abstractmethod
    async def close(self) -> None:
        """Ends the session and its entries, at once if the service is reachable, else after its TTL.

        May be called twice. Does not raise `CoordinationUnavailable`.
        """


# Commits


@dataclass(frozen=True, slots=True)
class Absent:
    """The condition that there is no entry with this key."""

    key: str


@dataclass(frozen=True, slots=True)
class Unchanged:
    """The condition that the entry exists and has this version."""

    key: str
    version: int


@dataclass(frozen=True, slots=True)
class HeldBy:
    """The condition that the entry exists and vanishes with this session."""

    key: str
    session: BrokerSession


@dataclass(frozen=True, slots=True)
class Put:
    """Writes an entry. It belongs to this session from now on, or to none, whatever it did before."""

    key: str
    value: bytes
    session: BrokerSession | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    """Deletes an entry; one that does not exist is no error."""

    key: str


Condition = Absent | Unchanged | HeldBy
Write = Put | Delete


@dataclass(frozen=True, slots=True)
class CommitResult:
    """The answer to a commit."""

    is_made: bool
    revision: int
    """If it was made, also the version of all entries that it wrote."""


def split(writes: Sequence[Write], *, spare: int = 0) -> Iterator[Sequence[Write]]:
    """Splits writes into batches that one commit takes each, in their order.

    `spare` is the number of small writes for which each commit has room left.
    """
    most_bytes = MOST_BYTES - spare * _SPARE_BYTES
    batch: list[Write] = []
    room = most_bytes
    for write in writes:
        room -= _size(write)
        if batch and (room < 0 or len(batch) == MOST_OPERATIONS - spare):
            yield batch
            batch, room = [], most_bytes - _size(write)
        batch.append(write)
    if batch:
        yield batch


def check_commit(writes: Sequence[Write], when: Sequence[Condition]) -> None:
    """Raises `InvalidInput` for a commit that an engine must not accept."""
    if max(len(writes), len(when)) > MOST_OPERATIONS:
        raise InvalidInput(
            f"a commit has at most {MOST_OPERATIONS} conditions and writes each; split it"
        )
    if sum(map(_size, writes)) > MOST_BYTES:
        raise InvalidInput(f"a commit writes at most {MOST_BYTES} bytes; split it")
    keys = [write.key for write in writes]
    if len(set(keys)) < len(keys):
        raise InvalidInput("a commit writes a key twice")
    for key in (*keys, *(condition.key for condition in when)):
        check_key(key)


def check_key(key: str) -> None:
    """Raises `InvalidInput` unless this is a key."""
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise InvalidInput(
            f"{key!r} is not a key: use printable ASCII without spaces, as key_of makes"
        )


def check_prefix(prefix: str) -> None:
    """Raises `InvalidInput` unless keys can begin with this."""
    if prefix:
        check_key(prefix)


def check_times(ttl_ms: int, margin_ms: int) -> None:
    """Raises `InvalidInput` for times that a session cannot have."""
    if ttl_ms < SHORTEST_TTL_MS or ttl_ms % _MS:
        raise InvalidInput(
            f"the TTL of a session is whole seconds from {SHORTEST_TTL_MS} ms, not {ttl_ms} ms"
        )
    if not 0 <= margin_ms < ttl_ms:
        raise InvalidInput(f"the margin of a session is from 0 to its TTL, not {margin_ms} ms")


def _size(write: Write) -> int:
    return len(write.key) + (len(write.value) if isinstance(write, Put) else 0)


# Engines


@dataclass(frozen=True, slots=True)
class ServerOffset:
    """The clock of the coordination service beside ours."""

    ahead_ms: float
    """By this much it is ahead; negative if it is behind."""
    error_ms: float
    """The truth is at most this far away."""


class Coordination(AsyncService):
    """A connection to a coordination service. Owned by one event loop.

    It starts also while the service is away; its calls raise `CoordinationUnavailable` then. Its stop ends
    its watches and closes its sessions.
    """

    traffic: PartnerTraffic | None = None
    """That with the service; None for an engine within the process."""

    @abstractmethod
    async def open_session(
        self, ttl_ms: int = SHORTEST_TTL_MS, margin_ms: int = DEFAULT_MARGIN_MS
    ) -> BrokerSession:
        """A new session. Its TTL is in whole seconds, at least `SHORTEST_TTL_MS`.

        The margin covers clocks that run at different speeds, and the time between a look at `is_trusted` and
        the deed.
        """

    @abstractmethod
    async def read(self, prefix: str) -> View:
        """All entries whose keys begin with `prefix`, as they are now: no earlier commit is missed."""

    @abstractmethod
    async def get(self, key: str) -> KeyValue | None:
        """One entry, as it is now."""

    @abstractmethod
    async def commit(
        self, writes: Sequence[Write], *, when: Sequence[Condition] = ()
    ) -> CommitResult:
        """Makes all writes in one step if all conditions hold; else changes nothing.

        Raises `CommitUnknown` if no answer came, and `SessionLost` if a session of a write has ended. A
        commit has at most `MOST_OPERATIONS` conditions and as many writes, of `MOST_BYTES`, each with a key
        of its own; else it raises `InvalidInput`. `split` makes batches.
        """

    @abstractmethod
    def watch(self, prefix: str) -> KeyWatch:
        """Watches the entries whose keys begin with `prefix`, until it is closed."""

    @abstractmethod
    async def clock_offset(self) -> ServerOffset | None:
        """The clock of the service beside ours; None if the engine cannot measure it."""
