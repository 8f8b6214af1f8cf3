"""Racks, from the SDK to the shares of other brokers: a lost rack is served by another one."""

from __future__ import annotations

from chronoline.broker.overseer import MoveNotice
from chronoline.client.aio import AsyncClient
from chronoline.client.consumer_stream import ConsumerStream
from chronoline.core.ranges import BucketRange
from chronoline.core.selector import ClientKind, MoveReason, SuggestedMove
from tests.broker.clocks import MovableClock
from tests.broker.cluster.scene import IDS, Cluster, cluster, in_buckets, send_all
from tests.coordination.engines import EmbeddedEngine
from tests.deadline import run_scene, until

_HOUR_S = 3_600


async def _subscribe(client: AsyncClient, *names: str) -> list[ConsumerStream]:
    return [await client.subscribe(["jobs"], consumer=each, prefetch=40) for each in names]


async def _move(brokers: Cluster, topic_uid: int, streams: list[ConsumerStream], to: str) -> None:
    """The latest consumers at a broker move to another one."""
    parts = brokers.brokers["one"].node.parts
    assert parts is not None
    move = SuggestedMove(
        topic=str(topic_uid),
        kind=ClientKind.CONSUMER,
        to=to,
        clients=len(streams),
        reason=MoveReason.FULL,
    )
    parts.overseer.clients.suggest(MoveNotice(move, brokers.brokers[to].address))
    await until(lambda: {each.address for each in streams} == {brokers.brokers[to].address})


def test_lost_rack_is_served_by_its_backups_at_another_broker() -> None:
    """Before the next window: none ends by itself during the test."""
    clock = MovableClock()

    async def scene() -> None:
        async with cluster(EmbeddedEngine(), "one", "two", clock=clock) as brokers:
            topic = await brokers.create_topic("one", window=_HOUR_S)
            address = brokers.brokers["one"].address
            async with AsyncClient(address, rack="A") as client:
                kept = await _subscribe(client, "a1", "a2")
                async with AsyncClient(address, rack="B") as lost:
                    await _move(brokers, topic.uid, await _subscribe(lost, "b1", "b2"), "two")
                    await until(lambda: len(brokers.planned("one", topic)) == 4)
                    clock.ahead_ms += 2 * _HOUR_S * 1_000
                    await brokers.shares_are(a1=(0, 2), a2=(2, 4), b1=(4, 6), b2=(6, 8))
                    found = (await client.cluster()).subscribers
                    assert {(each.consumer, each.broker, each.rack) for each in found} == {
                        ("a1", "one", "A"),
                        ("a2", "one", "A"),
                        ("b1", "two", "B"),
                        ("b2", "two", "B"),
                    }
                    backups = {each.consumer: each.backups for each in found}
                    assert backups["a1"] == (BucketRange(4, 6),)
                await until(lambda: not brokers.shares("two"))
                await send_all(client, IDS)
                came = [sorted([(await each.next()).id for _ in range(20)]) for each in kept]
                assert came == [
                    sorted(in_buckets(0, 2) + in_buckets(4, 6)),
                    sorted(in_buckets(2, 4) + in_buckets(6, 8)),
                ]

    run_scene(scene)
