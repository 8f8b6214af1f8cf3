"""No message leaves the broker before its lease is in the store, where it outlives the broker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from chronoline.broker.grpc.consumer_stream import ConsumerClientStream
from chronoline.broker.http.poller import Poller
from chronoline.client import TopicSettings
from chronoline.client.aio import AsyncClient, ToSend
from chronoline.core.errors import OutcomeUnknown
from chronoline.core.message import LeasedMessage
from chronoline.core.topic import Topic
from chronoline.runtime.clock import SystemClock
from chronoline.stores.contract import Store
from chronoline.stores.factory import open_store
from tests.broker.doomed_broker import doomed_broker
from tests.broker.http.served import Served, serving
from tests.delivery.stores import Tap

_IDS = [f"m{number:02}" for number in range(30)]
_LONG = timedelta(minutes=10)


class _Witness:
    """Looks into the file, as another process would, whenever something is pushed."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.pushed: list[tuple[str, int]] = []
        """Id and version."""
        self.without_lease: list[str] = []

    def watch(self, monkeypatch: pytest.MonkeyPatch, kind: type[Any]) -> None:
        """Stands before the `push` of a receiver."""
        pass_on = kind.push

        def push(receiver: Any, topic: Topic, leased: Sequence[LeasedMessage]) -> None:
            self._look(receiver.name, topic, leased)
            pass_on(receiver, topic, leased)

        monkeypatch.setattr(kind, "push", push)

    def _look(self, consumer: str, topic: Topic, leased: Sequence[LeasedMessage]) -> None:
        stored = self._store.lookup(topic.uid, [each.lease.id for each in leased])
        for each in leased:
            lease, found = each.lease, stored.get(each.lease.id)
            self.pushed.append((lease.id, lease.version))
            if found is None or (found.lock_consumer, found.version, found.ts) != (
                consumer,
                lease.version,
                lease.until,
            ):
                self.without_lease.append(f"{lease} was pushed, and there is {found}")


def _doubt_reservations(tap: Tap) -> None:
    """One reservation fails; the next is stored without an answer."""
    reservations = 0

    def fail(name: str) -> None:
        nonlocal reservations
        reservations += name == "reserve"
        if name == "reserve" and reservations == 1:
            raise OutcomeUnknown

    def lose(name: str) -> None:
        if name == "reserve" and reservations == 2:
            raise OutcomeUnknown

    tap.fail, tap.lose = fail, lose


def _to_send() -> list[ToSend]:
    """Some are overdue, some due while they are consumed."""
    now = datetime.now(UTC)
    return [
        ToSend(id=each, due=now + timedelta(milliseconds=30 * (number - 10)))
        for number, each in enumerate(_IDS)
    ]


async def _stream(served: Served) -> None:
    """One takes them all; its twin, which comes under its name, gets them again and acks them."""
    async with served.client() as client:
        leases = client.consume("jobs", consumer="c", lease=_LONG, prefetch=len(_IDS))
        for _ in _IDS:
            await anext(leases)
        async with served.client() as twin:
            await _ack_all(twin)


async def _ack_all(client: AsyncClient) -> None:
    leases = client.consume("jobs", consumer="c", lease=_LONG, prefetch=len(_IDS))
    for _ in _IDS:
        lease = await anext(leases)
        assert lease.redelivered
        await lease.ack()
    await leases.aclose()


async def _poll(served: Served) -> None:
    left = set(_IDS)
    while left:
        got = await served.receive("jobs", consumer="c", count=10, lease="10m", wait="5s")
        leases = [{"id": each["id"], "version": each["version"]} for each in got["messages"]]
        if leases:
            await served.settle("ack", "jobs", consumer="c", leases=leases)
        left -= {each["id"] for each in leases}


@pytest.mark.parametrize(("kind", "consume"), [(ConsumerClientStream, _stream), (Poller, _poll)])
def test_pushed_message_is_already_leased_in_the_store(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: type[Any],
    consume: Callable[[Served], Awaitable[None]],
) -> None:
    url = f"sqlite:///{tmp_path / 'timeline.db'}"

    async def play() -> None:
        with open_store(url) as store, open_store(url) as beside:
            witness = _Witness(beside)
            witness.watch(monkeypatch, kind)
            tap: Any = Tap(store)
            _doubt_reservations(tap)
            async with serving(tap) as served, served.client() as client:
                await client.create_topic("jobs", TopicSettings(window=0.1))
                assert not (await client.send_many("jobs", _to_send())).refused
                async with asyncio.timeout(60):
                    await consume(served)
                assert (await client.count("jobs")).total == 0
            assert witness.without_lease == []
            assert {each for each, _ in witness.pushed} == set(_IDS)
            assert len(set(witness.pushed)) == len(witness.pushed)  # each under its own lease

    asyncio.run(play())


def test_broker_killed_at_a_push_has_stored_the_lease(tmp_path: Path) -> None:
    async def play() -> None:
        async with doomed_broker(tmp_path, "push") as dying, dying.client() as client:
            topic = await client.create_topic("jobs")
            taking = asyncio.ensure_future(anext(client.consume("jobs", consumer="c", lease=_LONG)))
            # The broker may die before it answers this.
            sending = asyncio.ensure_future(client.send("jobs", b"work", id="a"))
            await dying.died()
            with open_store(f"sqlite:///{tmp_path / 'timeline.db'}") as store:
                found = store.lookup(topic.uid, ["a"])["a"]
            assert found.lock_consumer == "c"
            assert found.ts > SystemClock().now_ms()  # the end of the lease
            assert not taking.done()
            for task in (taking, sending):
                task.cancel()
            await asyncio.gather(taking, sending, return_exceptions=True)

    asyncio.run(play())
