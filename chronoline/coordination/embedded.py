"""The embedded engine: coordination inside one process, for single nodes and for tests.

An `EmbeddedHub` holds the entries, each `EmbeddedCoordination` is one connection to it. Several connections
to one hub are a cluster in one process. A connection can be cut and healed, as a network is.

A keep-alive inside a process cannot be late, so a session counts as renewed at every moment while its
connection is not cut: a stalled event loop costs a single node nothing. When the connection is cut, or the
session abandoned, its TTL runs by the clock that was passed in.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from chronoline.coordination.contract import (
    DEFAULT_MARGIN_MS,
    SHORTEST_TTL_MS,
    Absent,
    BrokerSession,
    CommitResult,
    Condition,
    Coordination,
    Delete,
    KeyValue,
    KeyWatch,
    Put,
    ServerOffset,
    Unchanged,
    View,
    Write,
    check_commit,
    check_key,
    check_prefix,
    check_times,
)
from chronoline.core.errors import CoordinationUnavailable, SessionLost

_MS = 1_000
_LONG_AGO = float("-inf")

Monotonic = Callable[[], float]


class EmbeddedSession(BrokerSession):
    """A session with a hub."""

    def __init__(
        self, owner: EmbeddedCoordination, number: int, ttl_ms: int, margin_ms: int
    ) -> None:
        self.id = number
        self.ttl_ms = ttl_ms
        self._margin_ms = margin_ms
        self._owner = owner
        self._hub = owner.hub
        self._is_abandoned = False
        self._renewed_at: float | None = None  # None: at every moment
        self._lost = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def trusted_until(self) -> float:
        self._hub.expire()
        if self.is_lost:
            return _LONG_AGO
        return self._last_renewal() + (self.ttl_ms - self._margin_ms) / _MS

    @property
    def is_trusted(self) -> bool:
        return self._hub.monotonic() < self.trusted_until

    @property
    def is_lost(self) -> bool:
        return self._lost.is_set()

    async def wait_lost(self) -> None:
        await self._lost.wait()

    async def keep_alive(self) -> None:
        self._owner.check_reachable()
        self._hub.expire()
        if self.is_lost:
            raise SessionLost
        if self._is_abandoned:
            self._renewed_at = self._hub.monotonic()
            self._set_timer()

    def abandon(self) -> None:
        self._is_abandoned = True
        self.stop_renewals()

    async def close(self) -> None:
        if self._owner.is_cut:
            self.abandon()
        else:
            self._hub.end_session(self)
        self._lost.set()

    # For the hub and the connection

    def stop_renewals(self) -> None:
        """From now on the TTL runs."""
        if self._renewed_at is None:
            self._renewed_at = self._hub.monotonic()
            self._set_timer()

    def resume_renewals(self) -> None:
        """The connection is healed; a session that has ended meanwhile is known to be lost."""
        if not self._hub.has_session(self):
            self._lost.set()
        elif not self._is_abandoned:
            self._renewed_at = None
            self._cancel_timer()

    def is_over(self) -> bool:
        """Whether its TTL has run out."""
        at = self._renewed_at
        return at is not None and self._hub.monotonic() >= at + self.ttl_ms / _MS

    def end(self) -> None:
        """The hub has ended it. A holder that is cut off learns of it when the connection is healed."""
        self._cancel_timer()
        if not self._owner.is_cut:
            self._lost.set()

    def _last_renewal(self) -> float:
        return self._hub.monotonic() if self._renewed_at is None else self._renewed_at

    def _set_timer(self) -> None:
        self._cancel_timer()
        with suppress(RuntimeError):  # no event loop: the next look at the hub finds it
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self.ttl_ms / _MS, self._hub.expire)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class EmbeddedHub:
    """The entries, sessions and watches that connections share. Owned by one event loop."""

    def __init__(self, monotonic: Monotonic = time.monotonic) -> None:
        self.monotonic = monotonic
        self._entries: dict[str, KeyValue] = {}
        self._revision = 1
        self._sessions: dict[int, EmbeddedSession] = {}
        self._last_session = 0
        self._watches: dict[KeyWatch, EmbeddedCoordination] = {}

    def expire(self) -> None:
        """Ends the sessions whose TTL has run out. Every operation calls it first."""
        for session in [each for each in self._sessions.values() if each.is_over()]:
            self.end_session(session)

    # For connections

    def open_session(
        self, owner: EmbeddedCoordination, ttl_ms: int, margin_ms: int
    ) -> EmbeddedSession:
        self._last_session += 1
        session = EmbeddedSession(owner, self._last_session, ttl_ms, margin_ms)
        self._sessions[session.id] = session
        return session

    def has_session(self, session: BrokerSession) -> bool:
        return session.id in self._sessions

    def end_session(self, session: EmbeddedSession) -> None:
        """Ends a session and its entries, in one step. May be called twice."""
        if self._sessions.pop(session.id, None) is not None:
            keys = [each.key for each in self._entries.values() if each.session == session.id]
            self._write([Delete(key) for key in keys])
            session.end()

    def get(self, key: str) -> KeyValue | None:
        return self._entries.get(key)

    def view(self, prefix: str) -> View:
        found = {key: each for key, each in self._entries.items() if key.startswith(prefix)}
        return View.of(found, self._revision)

    def commit(self, writes: Sequence[Write], when: Sequence[Condition]) -> CommitResult:
        self.expire()
        if not all(map(self._holds, when)):
            return CommitResult(False, self._revision)
        for write in writes:
            if isinstance(write, Put) and write.session and not self.has_session(write.session):
                raise SessionLost
        self._write(writes)
        return CommitResult(True, self._revision)

    def add_watch(self, watch: KeyWatch, owner: EmbeddedCoordination) -> None:
        self._watches[watch] = owner

    def remove_watch(self, watch: KeyWatch) -> None:
        self._watches.pop(watch, None)

    # Inside

    def _holds(self, condition: Condition) -> bool:
        found = self._entries.get(condition.key)
        match condition:
            case Absent():
                return found is None
            case Unchanged(version=version):
                return found is not None and found.version == version
        return found is not None and found.session == condition.session.id

    def _write(self, writes: Sequence[Write]) -> None:
        effective = [each for each in writes if isinstance(each, Put) or each.key in self._entries]
        if not effective:
            return
        self._revision += 1
        for write in effective:
            if isinstance(write, Put):
                session = write.session.id if write.session else 0
                entry = KeyValue(write.key, write.value, self._revision, session)
                self._entries[write.key] = entry
            else:
                del self._entries[write.key]
        self._show_changes([each.key for each in effective])

    def _show_changes(self, keys: Sequence[str]) -> None:
        for watch, owner in list(self._watches.items()):
            if not owner.is_cut and any(key.startswith(watch.prefix) for key in keys):
                watch.show(self.view(watch.prefix))


class EmbeddedWatch(KeyWatch):
    """A watch on a hub."""

    def __init__(self, prefix: str, hub: EmbeddedHub) -> None:
        super().__init__(prefix)
        self._hub = hub

    async def close(self) -> None:
        self._hub.remove_watch(self)
        await super().close()


class EmbeddedCoordination(Coordination):
    """A connection to a hub; without one it makes its own, for a single node."""

    def __init__(self, hub: EmbeddedHub | None = None) -> None:
        self.hub = hub or EmbeddedHub()
        self._is_open = False
        self._is_cut = False
        self._sessions: list[EmbeddedSession] = []
        self._watches: list[EmbeddedWatch] = []

    # Faults, for tests

    @property
    def is_cut(self) -> bool:
        return self._is_cut

    def cut(self) -> None:
        """Cuts the connection: calls fail, views are not current, sessions are no longer renewed."""
        self._is_cut = True
        for session in self._sessions:
            session.stop_renewals()
        for watch in self._watches:
            watch.show_silence()

    def heal(self) -> None:
        """Ends the cut."""
        self._is_cut = False
        self.hub.expire()
        for session in self._sessions:
            session.resume_renewals()
        for watch in self._watches:
            watch.show(self.hub.view(watch.prefix))

    def check_reachable(self) -> None:
        """Raises `CoordinationUnavailable` while the connection is cut, or not started."""
        if self._is_cut or not self._is_open:
            raise CoordinationUnavailable

    # The contract

    async def open_session(
        self, ttl_ms: int = SHORTEST_TTL_MS, margin_ms: int = DEFAULT_MARGIN_MS
    ) -> EmbeddedSession:
        check_times(ttl_ms, margin_ms)
        self.check_reachable()
        self._sessions = [each for each in self._sessions if not each.is_lost]
        session = self.hub.open_session(self, ttl_ms, margin_ms)
        self._sessions.append(session)
        return session

    async def read(self, prefix: str) -> View:
        check_prefix(prefix)
        self.check_reachable()
        self.hub.expire()
        return self.hub.view(prefix)

    async def get(self, key: str) -> KeyValue | None:
        check_key(key)
        self.check_reachable()
        self.hub.expire()
        return self.hub.get(key)

    async def commit(
        self, writes: Sequence[Write], *, when: Sequence[Condition] = ()
    ) -> CommitResult:
        check_commit(writes, when)
        self.check_reachable()
        return self.hub.commit(writes, when)

    def watch(self, prefix: str) -> EmbeddedWatch:
        check_prefix(prefix)
        watch = EmbeddedWatch(prefix, self.hub)
        self._watches = [*(each for each in self._watches if not each.is_closed), watch]
        self.hub.add_watch(watch, self)
        if not self._is_cut:
            self.hub.expire()
            watch.show(self.hub.view(prefix))
        return watch

    async def clock_offset(self) -> ServerOffset | None:
        return None  # the hub has no clock of its own

    async def _start(self) -> None:
        self._is_open = True

    async def _stop(self) -> None:
        for watch in self._watches:
            await watch.close()
        for session in self._sessions:
            await session.close()
        self._watches, self._sessions = [], []
        self._is_open = False
