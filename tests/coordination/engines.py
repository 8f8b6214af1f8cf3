"""The engines as the tests see them, and what makes them fail."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import pytest

from chronoline.coordination.contract import (
    BrokerSession,
    CommitResult,
    Condition,
    Coordination,
    KeyValue,
    KeyWatch,
    ServerOffset,
    View,
    Write,
)
from chronoline.coordination.embedded import EmbeddedCoordination, EmbeddedHub
from chronoline.coordination.factory import open_coordination
from chronoline.core.errors import CommitUnknown
from chronoline.testing.etcd import EtcdServer

_PREFIXES = itertools.count()


class ManualMonotonic:
    """A monotonic clock that only the test moves."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.on_read: Callable[[], None] = lambda: None

    def __call__(self) -> float:
        self.on_read()
        return self.now_s


class Engine(ABC):
    """One engine, and the entries of this test."""

    name: str

    @abstractmethod
    def connect(self) -> Coordination:
        """One more connection to the same entries; start it before use."""

    @abstractmethod
    def let_ttl_pass(self, session: BrokerSession) -> None:
        """The TTL of a session passes, now or in real time."""


class EmbeddedEngine(Engine):
    name = "embedded"

    def __init__(self) -> None:
        self.clock = ManualMonotonic()
        self.hub = EmbeddedHub(self.clock)

    def connect(self) -> EmbeddedCoordination:
        return EmbeddedCoordination(self.hub)

    def let_ttl_pass(self, session: BrokerSession) -> None:
        self.clock.now_s += session.ttl_ms / 1_000
        self.hub.expire()


class EtcdEngine(Engine):
    name = "etcd"

    def __init__(self, url: str) -> None:
        self.url = url

    def connect(self) -> Coordination:
        return open_coordination(self.url)

    def let_ttl_pass(self, session: BrokerSession) -> None:
        """The server counts by itself."""


class LossyCoordination(Coordination):
    """A connection that loses the answers of commits, made or not made."""

    def __init__(self, inner: Coordination) -> None:
        self._inner = inner
        self.skip = 0
        """The number of commits before the first loss."""
        self.losses: list[bool] = []
        """For each of the next commits: whether it is made before its answer is lost."""
        self.refusal: Exception | None = None
        """Raised by all commits."""
        self._lost: list[tuple[Sequence[Write], Sequence[Condition]]] = []

    async def commit(
        self, writes: Sequence[Write], *, when: Sequence[Condition] = ()
    ) -> CommitResult:
        if self.refusal is not None:
            raise self.refusal
        if self.skip or not self.losses:
            self.skip = max(0, self.skip - 1)
            return await self._inner.commit(writes, when=when)
        if self.losses.pop(0):
            await self._inner.commit(writes, when=when)
        else:
            self._lost.append((writes, when))
        raise CommitUnknown

    async def deliver_lost(self) -> None:
        """The commits that were lost before they were made arrive after all."""
        lost, self._lost = self._lost, []
        for writes, when in lost:
            await self._inner.commit(writes, when=when)

    async def open_session(self, ttl_ms: int = 2_000, margin_ms: int = 300) -> BrokerSession:
        return await self._inner.open_session(ttl_ms, margin_ms)

    async def read(self, prefix: str) -> View:
        return await self._inner.read(prefix)

    async def get(self, key: str) -> KeyValue | None:
        return await self._inner.get(key)

    def watch(self, prefix: str) -> KeyWatch:
        return self._inner.watch(prefix)

    async def clock_offset(self) -> ServerOffset | None:
        return await self._inner.clock_offset()

    async def _start(self) -> None:
        await self._inner.start()

    async def _stop(self) -> None:
        await self._inner.stop()


async def view_where(watch: KeyWatch, holds: Callable[[View], bool]) -> View:
    """The first view of a watch for which this holds, the one of now included."""
    if watch.view.revision and holds(watch.view):
        return watch.view
    async for view in watch:
        if holds(view):
            return view
    raise AssertionError("the watch ended")


def keys(view: View) -> list[str]:
    return list(view.entries)


@pytest.fixture(params=["embedded", "etcd"])
def engine(request: pytest.FixtureRequest) -> Engine:
    """An engine with no entries; a test that uses it runs on every engine. For `conftest.py`."""
    if request.param == "embedded":
        return EmbeddedEngine()
    server: EtcdServer = request.getfixturevalue("etcd_server")
    return EtcdEngine(server.url(f"test-{next(_PREFIXES)}"))
