"""The list of failures in `docs/delivery.md`: one test for each.

Brokers and consumers are processes that die by SIGKILL at a chosen moment.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from chronoline.client import TopicSettings
from chronoline.client.aio import AsyncClient
from chronoline.client.leases import AsyncLease
from chronoline.core.errors import OutcomeUnknown, Refused, StoreUnavailable
from chronoline.core.outcome import Refusal
from chronoline.node.broker_service import BrokerService
from chronoline.stores.memory import MemoryStore
from tests.broker.consumer_process import consumer_process
from tests.broker.doomed_broker import DoomedBroker, doomed_broker
from tests.broker.nodes import running
from tests.delivery.stores import Tap

_ROOT = Path(__file__).parents[2]
_QUICK = TopicSettings(window=0.1)


class _Consumer:
    """A consumer that stays until its client is closed, with the one message of a topic."""

    def __init__(self, client: AsyncClient, consumer: str = "c", *, lease_s: float = 30) -> None:
        self._client = client
        self._leases = client.consume("jobs", consumer=consumer, lease=lease_s)

    async def take(self) -> AsyncLease:
        await self._client.create_topic("jobs", _QUICK)
        await self._client.send("jobs", b"work", id="a")
        return await self.next()

    async def next(self) -> AsyncLease:
        async with asyncio.timeout(60):
            return await anext(self._leases)


async def _over(lease: AsyncLease) -> None:
    """Waits until the time of a lease is over."""
    while not lease.is_lost:
        await asyncio.sleep(lease.seconds_left)


async def _next(client: AsyncClient, consumer: str, **given: Any) -> AsyncLease:
    async with asyncio.timeout(60):
        return await anext(client.consume("jobs", consumer=consumer, **given))


# The broker fails


def test_unsent_lease_reaches_its_returning_consumer(tmp_path: Path) -> None:
    async def play() -> None:
        async with doomed_broker(tmp_path, "push") as dying, dying.client() as client:
            consumer = _Consumer(client)
            taking = asyncio.ensure_future(consumer.take())
            await dying.died()
            async with running(tmp_path, dying.port):
                lease = await taking  # it comes back with its name, and gets what is its own
                assert (lease.id, lease.attempts, lease.redelivered) == ("a", 0, True)
                await lease.ack()
                assert (await client.count("jobs")).total == 0

    asyncio.run(play())


def test_unsent_lease_lapses_without_its_consumer(tmp_path: Path) -> None:
    async def play() -> None:
        async with doomed_broker(tmp_path, "push") as dying:
            async with dying.client() as client:
                consumer = _Consumer(client, "gone", lease_s=2)
                taking = asyncio.ensure_future(consumer.take())
                await dying.died()
                taking.cancel()
                await asyncio.gather(taking, return_exceptions=True)
            async with running(tmp_path, dying.port) as broker, broker.client() as other:
                lease = await _next(other, "other")
                assert (lease.id, lease.redelivered) == ("a", True)
                await lease.ack()

    asyncio.run(play())


@pytest.mark.parametrize("where", ["extend before", "extend after"])
def test_extend_is_repeated_after_a_short_broker_failure(tmp_path: Path, where: str) -> None:
    async def play() -> None:
        async with doomed_broker(tmp_path, where) as dying, dying.client() as client:
            consumer = _Consumer(client)
            lease = await consumer.take()
            version = lease.version
            extending = asyncio.ensure_future(lease.extend(60))
            await dying.died()
            async with running(tmp_path, dying.port):
                await extending  # the SDK repeats it
                assert not lease.is_lost
                assert lease.version > version
                await lease.ack()
                assert (await client.count("jobs")).total == 0

    asyncio.run(play())


def test_extend_fails_when_broker_outage_outlasts_lease(tmp_path: Path) -> None:
    async def play() -> None:
        async with doomed_broker(tmp_path, "extend before") as dying, dying.client() as client:
            consumer = _Consumer(client, lease_s=2)
            lease = await consumer.take()
            extending = asyncio.ensure_future(lease.extend())
            await dying.died()
            await _over(lease)  # the handler can know, and has to stop
            async with running(tmp_path, dying.port):
                # Refused if another consumer has it; else the first attempt stays unknown.
                with pytest.raises((Refused, OutcomeUnknown)):
                    await extending
                with pytest.raises((Refused, OutcomeUnknown)):
                    await lease.ack()
                again = await consumer.next()  # to any consumer
                assert (again.id, again.redelivered) == ("a", True)
                assert again.version > lease.version
                await again.ack()

    asyncio.run(play())


def test_ack_is_repeated_after_a_short_broker_failure(tmp_path: Path) -> None:
    async def play() -> None:
        async with doomed_broker(tmp_path, "ack before") as dying, dying.client() as client:
            consumer = _Consumer(client)
            lease = await consumer.take()
            acking = asyncio.ensure_future(lease.ack())
            await dying.died()
            async with running(tmp_path, dying.port):
                await acking  # the SDK repeats it
                assert (await client.count("jobs")).total == 0

    asyncio.run(play())


def test_ack_fails_when_broker_outage_outlasts_lease(tmp_path: Path) -> None:
    async def play() -> None:
        async with doomed_broker(tmp_path, "ack before") as dying, dying.client() as client:
            consumer = _Consumer(client, lease_s=2)
            lease = await consumer.take()
            acking = asyncio.ensure_future(lease.ack())
            await dying.died()
            await asyncio.sleep(lease.seconds_left)  # until it is over
            async with running(tmp_path, dying.port):
                with pytest.raises((Refused, OutcomeUnknown)):
                    await acking
                assert lease.is_lost
                again = await consumer.next()  # to any consumer
                assert (again.id, again.redelivered) == ("a", True)
                await again.ack()

    asyncio.run(play())


def test_repeated_ack_of_a_stored_ack_is_done(tmp_path: Path) -> None:
    async def play() -> None:
        async with doomed_broker(tmp_path, "ack after") as dying, dying.client() as client:
            consumer = _Consumer(client)
            lease = await consumer.take()
            acking = asyncio.ensure_future(lease.ack())
            await dying.died()
            async with running(tmp_path, dying.port):
                await acking  # asking again is done, and changes nothing
                assert not lease.is_lost
                assert (await client.count("jobs")).total == 0
                with pytest.raises(Refused) as refused:  # and the id stays taken
                    await client.send("jobs", b"work", id="a")
                assert refused.value.outcomes[0].refusal is Refusal.EXISTS

    asyncio.run(play())


def test_repeated_retry_of_a_stored_retry_counts_once(tmp_path: Path) -> None:
    async def play() -> None:
        async with doomed_broker(tmp_path, "retry after") as dying, dying.client() as client:
            consumer = _Consumer(client)
            lease = await consumer.take()
            retrying = asyncio.ensure_future(lease.retry(delay=3_600))
            await dying.died()
            async with running(tmp_path, dying.port):
                await retrying  # the row names the session of the change
                found = await client.lookup("jobs", "a")
                assert found is not None
                assert (found.attempts, found.lock_consumer) == (1, None)  # counted once

    asyncio.run(play())


# A producer's broker fails


async def _sent_through(dying: DoomedBroker, tmp_path: Path, message_id: str | None) -> list[str]:
    """Send a message to a broker that dies at it, start another broker, and return the stored messages."""
    async with dying.client() as client:
        await client.create_topic("jobs")
        sending = asyncio.ensure_future(client.send("jobs", b"work", id=message_id, delay=3_600))
        await dying.died()
        async with running(tmp_path, dying.port):
            sent = await sending
            assert (await client.count("jobs")).total == 1
            found = await client.lookup("jobs", sent)
            assert found is not None
            return [found.id]


@pytest.mark.parametrize("where", ["create before", "create after"])
def test_failed_create_with_generated_id_is_repeated(tmp_path: Path, where: str) -> None:
    async def play() -> None:
        async with doomed_broker(tmp_path, where) as dying:
            assert len(await _sent_through(dying, tmp_path, None)) == 1

    asyncio.run(play())


def test_failed_create_with_own_id_is_repeated(tmp_path: Path) -> None:
    async def play() -> None:
        async with doomed_broker(tmp_path, "create before") as dying:
            assert await _sent_through(dying, tmp_path, "mine") == ["mine"]

    asyncio.run(play())


def test_stored_create_with_own_id_is_refused_as_existing(
    tmp_path: Path,
) -> None:
    async def play() -> None:
        async with doomed_broker(tmp_path, "create after") as dying:
            with pytest.raises(Refused, match="perhaps by an earlier attempt") as refused:
                await _sent_through(dying, tmp_path, "mine")
            assert refused.value.outcomes[0].refusal is Refusal.EXISTS
            async with running(tmp_path, dying.port) as broker, broker.client() as client:
                assert (await client.count("jobs")).total == 1

    asyncio.run(play())


def test_create_without_a_broker_is_unknown(tmp_path: Path) -> None:
    async def play() -> None:
        async with (
            doomed_broker(tmp_path, "create after") as dying,
            dying.client(timeout=2) as client,
        ):
            await client.create_topic("jobs")
            with pytest.raises(OutcomeUnknown, match="ask again with the same ids"):
                await client.send("jobs", b"work", id="mine", delay=3_600)

    asyncio.run(play())


# The store fails


def test_broker_without_its_store_grants_no_lease() -> None:
    async def play() -> None:
        def cut(name: str) -> None:
            if not healed.is_set():
                if name == "reserve":
                    asked.release()
                raise StoreUnavailable

        healed, asked = asyncio.Event(), asyncio.Semaphore(0)
        with MemoryStore() as store:
            tap = Tap(store)
            # The tap has every method of a store.
            node = BrokerService(tap, grpc_address=("127.0.0.1", 0))  # type: ignore[arg-type]
            await node.start()
            assert node.grpc is not None
            async with AsyncClient(f"127.0.0.1:{node.grpc.port}") as client:
                await client.create_topic("jobs")
                await client.send("jobs", b"work", id="a")
                tap.fail = cut
                leases = client.consume("jobs")
                waiting = asyncio.ensure_future(anext(leases))
                for _ in range(3):
                    await asyncio.wait_for(asked.acquire(), 60)
                assert not waiting.done()
                sending = asyncio.ensure_future(client.send("jobs", b"more", id="b"))
                healed.set()
                assert await sending == "b"  # by itself
                lease = await waiting
                assert lease.id == "a"
                await lease.ack()
                await leases.aclose()
            await node.stop()

    asyncio.run(play())


# The consumer fails


def test_dead_consumer_loses_its_lease_to_another(tmp_path: Path) -> None:
    async def play() -> None:
        async with running(tmp_path) as broker, broker.client() as client:
            await client.create_topic("jobs", _QUICK)
            await client.send("jobs", b"work", id="a")
            async with consumer_process(broker.address, "dies", 1) as holder:
                await holder.took()
            again = await _next(client, "other")
            assert (again.id, again.attempts, again.redelivered) == ("a", 1, True)
            assert again.version > holder.version
            await again.ack()

    asyncio.run(play())


def test_frozen_consumer_is_refused_after_its_lease(tmp_path: Path) -> None:
    async def play() -> None:
        async with running(tmp_path) as broker, broker.client() as client:
            await client.create_topic("jobs", _QUICK)
            await client.send("jobs", b"work", id="a")
            async with consumer_process(broker.address, "frozen", 1) as holder:
                await holder.took()
                holder.pause()
                again = await _next(client, "other", lease=60)
                holder.resume()
                assert await holder.ack() in ("lapsed", "not_holder", "stale")
                assert not again.is_lost
                await again.ack()
                assert (await client.count("jobs")).total == 0

    asyncio.run(play())


def test_frozen_consumer_is_fenced_by_its_twin(tmp_path: Path) -> None:
    async def play() -> None:
        async with running(tmp_path) as broker, broker.client() as client:
            await client.create_topic("jobs", _QUICK)
            await client.send("jobs", b"work", id="a")
            async with consumer_process(broker.address, "c", 60) as twin:
                await twin.took()
                twin.pause()
                lease = await _next(client, "c")  # at once, long before the lease is over
                assert (lease.id, lease.attempts, lease.redelivered) == ("a", 0, True)
                assert lease.version > twin.version
                twin.resume()
                assert await twin.ack() in ("ConsumerReplaced", "OutcomeUnknown", "stale")
                assert (await client.count("jobs")).total == 1
                await lease.ack()
                assert (await client.count("jobs")).total == 0

    asyncio.run(play())


def test_restarted_consumer_gets_its_leases_back(tmp_path: Path) -> None:
    async def play() -> None:
        async with running(tmp_path) as broker, broker.client() as client:
            await client.create_topic("jobs", _QUICK)
            await client.send("jobs", b"work", id="a")
            async with consumer_process(broker.address, "c", 60) as before:
                await before.took()
            async with consumer_process(broker.address, "c", 60) as after:
                await after.took()
                assert (after.held, after.version > before.version) == ("a", True)
                assert await after.ack() == "done"
            assert (await client.count("jobs")).total == 0

    asyncio.run(play())


# The table


def test_every_test_named_in_the_table_exists() -> None:
    page = (_ROOT / "docs" / "delivery.md").read_text("utf-8")
    named = re.findall(r'\(\.\./(tests/[\w/]+\.py) "(\w+)"\)', page)
    here = {name for name in globals() if name.startswith("test_")}
    assert {name for _, name in named} >= here - {"test_every_test_named_in_the_table_exists"}
    for path, name in named:
        assert f"def {name}(" in (_ROOT / path).read_text("utf-8"), f"{path}::{name}"
