"""Notices of the store's watch reach the event loop, also when a lookup fails."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from queue import SimpleQueue

import pytest

from chronoline.broker import store_watch
from chronoline.broker.metrics import BrokerMetrics
from chronoline.broker.store_access import StoreAccess
from chronoline.broker.store_watch import StoreWatch
from chronoline.core.errors import StoreUnavailable
from chronoline.core.message import NewMessage
from chronoline.core.ranges import BucketRange
from chronoline.core.topic import Topic
from chronoline.runtime.clock import SystemClock
from chronoline.stores.contract import Notice, Watch
from chronoline.stores.memory import MemoryStore
from tests.deadline import run_scene

_SHORT_S = 0.05
_FAILURES = [StoreUnavailable("gone"), RuntimeError("dictionary changed size during iteration")]


class _SpokenWatch(Watch):
    """A watch with the notices or the error that a test gives."""

    def __init__(self) -> None:
        self.said: SimpleQueue[list[Notice] | Exception] = SimpleQueue()
        self.is_deaf = False
        self.closed = threading.Event()

    def wait(self, timeout_s: float) -> list[Notice]:
        heard = self.said.get()
        if isinstance(heard, Exception):
            raise heard
        return heard

    def wake(self) -> None:
        if not self.is_deaf:
            self.said.put([])

    def close(self) -> None:
        self.closed.set()


class _Store(MemoryStore):
    """A store whose watch a test controls. `next_ts` can fail, or wait at a gate."""

    def __init__(self) -> None:
        super().__init__()
        self.spoken = _SpokenWatch()
        self.error: Exception | None = None
        self.gate = threading.Event()
        self.gate.set()
        self.begun = threading.Semaphore(0)

    def watch(self) -> Watch:
        return self.spoken

    def next_ts(self, topic_uid: int, ranges: Sequence[BucketRange]) -> int | None:
        self.begun.release()
        self.gate.wait(60)
        if self.error is not None:
            raise self.error
        return super().next_ts(topic_uid, ranges)


class _Scene:
    """A store with two topics, the first of which has something at 1,000; what is heard of it."""

    def __init__(self, store: _Store) -> None:
        self.store = store
        self.first, self.second = (store.create_topic(name, now_ms=0) for name in ("a", "b"))
        store.create(self.first.uid, [NewMessage(id="x", due=1_000)], now_ms=0)
        self.told: asyncio.Queue[Sequence[Notice]] = asyncio.Queue()
        self.asked_by: set[int] = set()

    def served(self) -> list[Topic]:
        self.asked_by.add(threading.get_ident())
        return [self.first, self.second]

    def say(self, heard: list[Notice] | Exception) -> None:
        self.store.spoken.said.put(heard)

    async def next(self) -> Sequence[Notice]:
        return await self.told.get()


@asynccontextmanager
async def _noticing(patience_s: float = 60) -> AsyncIterator[_Scene]:
    with _Store() as store:
        access = StoreAccess(store, SystemClock(), BrokerMetrics(), patience_s=patience_s)
        scene = _Scene(store)
        try:
            async with StoreWatch(store, access, scene.told.put_nowait, scene.served):
                yield scene
        finally:
            store.gate.set()
            await access.stop()


def test_complete_notice_is_passed_on_unchanged() -> None:
    async def play() -> None:
        async with _noticing() as scene:
            heard = [Notice(topic_uid=7, due=5), Notice(due=6)]
            scene.say(heard)
            assert await scene.next() == heard

    run_scene(play)


def test_deleted_topic_hides_no_other(caplog: pytest.LogCaptureFixture) -> None:
    async def play() -> None:
        async with _noticing() as scene:
            scene.store.delete_topic(scene.second.uid, now_ms=0)
            scene.say([Notice()])
            assert await scene.next() == [
                Notice(topic_uid=scene.first.uid, due=1_000),
                Notice(topic_uid=scene.second.uid),  # its loader finds that it is deleted
            ]

    run_scene(play)
    assert caplog.messages == []


@pytest.mark.parametrize("named", [True, False], ids=["a topic is named", "it may be any topic"])
def test_notice_without_due_is_looked_up(
    named: bool,
) -> None:
    async def play() -> None:
        async with _noticing() as scene:
            scene.say([Notice(topic_uid=scene.first.uid if named else None)])
            assert await scene.next() == [Notice(topic_uid=scene.first.uid, due=1_000)]
            assert scene.asked_by == {threading.get_ident()}

    run_scene(play)


def test_topic_without_consumers_is_not_looked_up() -> None:
    async def play() -> None:
        async with _noticing() as scene:
            scene.say([Notice(topic_uid=-1)])
            scene.say([Notice(due=1)])
            assert await scene.next() == [Notice(due=1)]
            assert not scene.store.begun.acquire(blocking=False)

    run_scene(play)


@pytest.mark.parametrize("error", _FAILURES, ids=["foreseen", "not foreseen"])
def test_failed_lookup_passes_on_the_incomplete_notice(error: Exception) -> None:
    async def play() -> None:
        async with _noticing() as scene:
            scene.store.error = error
            scene.say([Notice(topic_uid=scene.first.uid)])
            assert await scene.next() == [Notice(topic_uid=scene.first.uid)]
            scene.store.error = None
            scene.say([Notice()])
            assert await scene.next() == [Notice(topic_uid=scene.first.uid, due=1_000)]

    run_scene(play)


@pytest.mark.parametrize("error", _FAILURES, ids=["foreseen", "not foreseen"])
def test_failed_watch_looks_everything_up_and_continues(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No setting: the test does not wait for the usual time.
    monkeypatch.setattr(store_watch, "_REST_S", 0)

    async def play() -> None:
        async with _noticing() as scene:
            scene.say(error)
            assert await scene.next() == [Notice(topic_uid=scene.first.uid, due=1_000)]
            scene.say([Notice(due=5)])
            assert await scene.next() == [Notice(due=5)]

    run_scene(play)


def test_notices_during_a_lookup_are_looked_up_together() -> None:
    async def play() -> None:
        async with _noticing() as scene:
            scene.store.gate.clear()
            scene.say([Notice(topic_uid=scene.second.uid)])
            assert await asyncio.to_thread(scene.store.begun.acquire, timeout=60)
            for _ in range(3):
                scene.say([Notice(topic_uid=scene.first.uid)])
            scene.say([Notice(due=5)])
            assert await scene.next() == [Notice(due=5)]  # it does not wait for the lookup
            scene.store.gate.set()
            assert await scene.next() == [Notice(topic_uid=scene.first.uid, due=1_000)]
            scene.say([Notice(due=6)])
            assert await scene.next() == [Notice(due=6)]  # the three notices were one lookup

    run_scene(play)


def test_stop_during_a_lookup_passes_on_nothing() -> None:
    async def play() -> None:
        async with _noticing() as scene:
            scene.store.gate.clear()
            scene.say([Notice()])
            assert await asyncio.to_thread(scene.store.begun.acquire, timeout=60)
        assert scene.store.spoken.closed.is_set()
        assert scene.told.empty()

    run_scene(play)


def test_stop_leaves_a_hanging_watch_behind() -> None:
    async def play() -> None:
        async with _noticing(_SHORT_S) as scene:
            scene.store.spoken.is_deaf = True
        assert not scene.store.spoken.closed.is_set()
        scene.say([])
        assert await asyncio.to_thread(scene.store.spoken.closed.wait, 60)

    run_scene(play)
