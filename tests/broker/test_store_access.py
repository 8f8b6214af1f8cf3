"""The broker's access to its store: a late change is unknown, a late query unavailable."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from typing import Any

import pytest

from chronoline.broker.metrics import BrokerMetrics
from chronoline.broker.store_access import StoreAccess
from chronoline.core.errors import OutcomeUnknown, StoreBusy, StoreError, StoreUnavailable
from chronoline.core.message import NewMessage
from chronoline.core.outcome import Outcome
from chronoline.runtime.admission import work_for
from chronoline.runtime.clock import SystemClock
from chronoline.stores.contract import IfExists, Store
from chronoline.stores.memory import MemoryStore
from tests.broker.gated_store import Permits
from tests.deadline import run_scene, until

_MANY = 50
_SHORT_S = 0.05


class _SlowStore(MemoryStore):
    """Has a clock of its own. Questions that wait begin, and are answered when the gate is opened."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.holds_creates = False
        self.begun = 0
        self.ended = 0

    def clock_ms(self) -> int | None:
        return SystemClock().now_ms()

    def create(
        self,
        topic_uid: int,
        messages: Sequence[NewMessage],
        *,
        if_exists: IfExists = "refuse",
        now_ms: int,
    ) -> list[Outcome]:
        if self.holds_creates:
            self.wait()
        return super().create(topic_uid, messages, if_exists=if_exists, now_ms=now_ms)

    def wait(self, _: Store | None = None) -> None:
        self.begun += 1
        self.gate.wait(60)
        self.ended += 1


@asynccontextmanager
async def _slow(patience_s: float = 60) -> AsyncIterator[tuple[_SlowStore, StoreAccess]]:
    with _SlowStore() as store:
        access = StoreAccess(store, SystemClock(), BrokerMetrics(), patience_s=patience_s)
        try:
            yield store, access
        finally:
            store.gate.set()
            await access.stop()


def test_late_change_is_unknown_and_late_query_unavailable() -> None:
    async def play() -> None:
        async with _slow(_SHORT_S) as (store, access):
            with pytest.raises(StoreUnavailable):
                await access.call("topics", store.wait)
            with pytest.raises(OutcomeUnknown, match="may have happened or not"):
                await access.call("drop_topic", store.wait, changes=True)
            never: Future[None] = Future()
            assert never.set_running_or_notify_cancel()
            with pytest.raises(OutcomeUnknown):
                await access.change("ack", lambda _: never)

    run_scene(play)


def test_late_change_that_is_in_no_commit_is_withdrawn() -> None:
    async def play() -> None:
        async with _slow(_SHORT_S) as (store, access):
            topic = store.create_topic("jobs", now_ms=0)

            async def create(name: str) -> BaseException | None:
                messages = [NewMessage(id=name, due=0)]
                try:
                    await access.change(
                        "create", lambda threads: threads.create(topic.uid, messages)
                    )
                except StoreError as error:
                    return error
                return None

            store.holds_creates = True
            taken = asyncio.create_task(create("taken"))
            await until(lambda: store.begun == 1)
            errors = [await create("waiting"), await taken][::-1]
            assert isinstance(errors[0], OutcomeUnknown)
            assert isinstance(errors[1], StoreUnavailable)
            assert "nothing was changed. Try again" in str(errors[1])
            store.gate.set()
            await access.stop()  # finishes all that waits
            found = store.lookup(topic.uid, ["taken", "waiting"])
            assert list(found) == ["taken"]

    run_scene(play)


def test_late_rare_change_that_did_not_begin_is_withdrawn() -> None:
    async def play() -> None:
        async with _slow(_SHORT_S) as (store, access):
            calls = [access.call("drop_topic", store.wait, changes=True) for _ in range(5)]
            errors = await asyncio.gather(*calls, return_exceptions=True)
            assert [type(each) for each in errors] == [OutcomeUnknown] * 3 + [StoreUnavailable] * 2
            store.gate.set()
            await access.stop()
            assert store.ended == 3

    run_scene(play)


# The broker's own queries


@pytest.mark.parametrize("own", ["next_ts", "held", "members", "topic", "purge"])
def test_own_queries_do_not_wait_for_clients(own: str) -> None:
    async def play() -> None:
        answered: list[str] = []

        async def ask(query: str, read: Callable[[Store], Any]) -> None:
            await access.call(query, read)
            answered.append(query)

        async with _slow() as (store, access):
            counts = [asyncio.ensure_future(ask("count", store.wait)) for _ in range(_MANY)]
            await until(lambda: store.begun > 0)
            await ask(own, lambda _: None)
            await access.compare_clocks()
            assert access.clock.ahead_ms is not None
            store.gate.set()
            await asyncio.gather(*counts)
            assert answered == [own] + ["count"] * _MANY

    run_scene(play)


def test_full_query_queue_refuses_clients_only() -> None:
    async def play() -> None:
        async with _slow() as (store, access):
            asking: list[asyncio.Future[None]] = []

            async def flood() -> bool:
                asking.extend(
                    asyncio.ensure_future(access.call("count", store.wait)) for _ in range(100)
                )
                await asyncio.sleep(0)  # they have their turn
                return any(each.done() for each in asking)

            await until(flood)
            assert await access.call("next_ts", lambda _: 1) == 1
            store.gate.set()
            answers = await asyncio.gather(*asking, return_exceptions=True)
            refused = [each for each in answers if each is not None]
            assert 0 < len(refused) < len(answers)
            assert {type(each) for each in refused} == {StoreBusy}

    run_scene(play)


def test_reads_of_one_client_do_not_wait_for_the_flood_of_another() -> None:
    async def play() -> None:
        async def ask(client: str, read: Callable[[Store], Any]) -> None:
            work_for(client)
            await access.call("count", read)

        async with _slow() as (store, access):
            permits = store.gate = Permits()
            flood = [asyncio.ensure_future(ask("flood", store.wait)) for _ in range(_MANY)]
            await until(lambda: store.begun > 0)
            other = asyncio.ensure_future(ask("other", lambda _: None))
            await asyncio.sleep(0)  # it has its turn
            permits.give(_MANY // 2)
            await other
            permits.set()
            await asyncio.gather(*flood)

    run_scene(play)


def test_flood_of_one_client_leaves_room_for_the_reads_of_another() -> None:
    async def play() -> None:
        async with _slow() as (store, access):

            async def ask(client: str) -> None:
                work_for(client)
                await access.call("count", store.wait)

            flood = [asyncio.ensure_future(ask("flood")) for _ in range(1_100)]
            await until(lambda: any(each.done() for each in flood))
            other = asyncio.ensure_future(ask("other"))
            await asyncio.sleep(0)  # it has its turn
            store.gate.set()
            answers = await asyncio.gather(*flood, return_exceptions=True)
            refused = [each for each in answers if each is not None]
            assert 0 < len(refused) < len(answers)
            assert {type(each) for each in refused} == {StoreBusy}
            await other

    run_scene(play)


def test_abandoned_queries_are_not_run() -> None:
    async def play() -> None:
        async with _slow(_SHORT_S) as (store, access):
            many = (access.call("count", store.wait) for _ in range(_MANY))
            late = await asyncio.gather(*many, return_exceptions=True)
            assert {type(each) for each in late} == {StoreUnavailable}
            begun = store.begun
            store.gate.set()
            await access.stop()
            assert store.begun == begun < _MANY

    run_scene(play)


# Whether the store is away


def test_slow_client_queries_do_not_mark_the_store_away() -> None:
    async def play() -> None:
        async with _slow(1) as (store, access):
            many = (access.call("count", store.wait) for _ in range(_MANY))
            counts = asyncio.gather(*many, return_exceptions=True)
            await asyncio.sleep(0)  # all of them have begun to wait
            await access.compare_clocks()
            assert {type(each) for each in await counts} == {StoreUnavailable}
            assert access.problem == ""

    run_scene(play)


@pytest.mark.parametrize("query", ["count", "next_ts"])
def test_store_without_answers_is_away(query: str) -> None:
    async def play() -> None:
        async with _slow(_SHORT_S) as (store, access):
            for _ in range(3):
                with pytest.raises(StoreUnavailable):
                    await access.call(query, store.wait)
            assert "did not answer" in access.problem

    run_scene(play)


# The end


def test_stop_finishes_queries_outside_the_event_loop() -> None:
    async def play() -> None:
        async with _slow() as (store, access):
            counts = [asyncio.ensure_future(access.call("count", store.wait)) for _ in range(_MANY)]
            await until(lambda: store.begun > 0)
            stopping = asyncio.ensure_future(access.stop())
            await asyncio.wait([stopping], timeout=_SHORT_S)  # the event loop continues
            assert not stopping.done()
            store.gate.set()
            await asyncio.gather(stopping, *counts)
            await access.stop()

    run_scene(play)


@pytest.mark.parametrize("query", ["count", "next_ts"])
def test_stop_leaves_a_hanging_store_behind(query: str) -> None:
    async def play() -> None:
        async with _slow(_SHORT_S) as (store, access):
            with pytest.raises(StoreUnavailable):
                await access.call(query, store.wait)
            await access.stop()
            assert (store.begun, store.ended) == (1, 0)

    run_scene(play)


_HANGING = """
import asyncio, threading
from chronoline.broker.store_access import StoreAccess
from chronoline.broker.metrics import BrokerMetrics
from chronoline.runtime.clock import SystemClock
from chronoline.core.errors import StoreUnavailable
from chronoline.stores.memory import MemoryStore

async def play():
    access = StoreAccess(MemoryStore(), SystemClock(), BrokerMetrics(), patience_s=0.05)
    try:
        await access.call("count", lambda _: threading.Event().wait())
    except StoreUnavailable:
        await access.stop()
        print("stopped")

asyncio.run(play())
"""


def test_process_ends_while_its_store_hangs() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _HANGING], stdout=subprocess.PIPE, text=True, timeout=60, check=True
    )
    assert done.stdout == "stopped\n"
