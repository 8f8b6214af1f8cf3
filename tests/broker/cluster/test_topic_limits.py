"""The limits of a topic that several brokers serve: each keeps the part of its consumers' buckets."""

from __future__ import annotations

from chronoline.wire.v1 import chronoline_pb2 as pb
from tests.broker.cluster.scene import IDS, cluster, in_buckets, receive, send_all
from tests.broker.raw_streams import raw_consumer
from tests.broker.test_topic_limits import Pushes, throttled
from tests.coordination.engines import EmbeddedEngine
from tests.deadline import run_scene, until


def test_brokers_share_the_rate() -> None:
    async def scene() -> None:
        async with cluster(EmbeddedEngine(), "one", "two") as brokers:
            topic = await brokers.create_topic("one", most_per_s=20)
            first = await brokers.join("one", topic, "a")
            second = await brokers.join("two", topic, "b")
            await brokers.shares_are(a=(0, 4), b=(4, 8))
            pushes = [Pushes(each) for each in brokers.brokers.values()]
            await send_all(await brokers.client("one"), IDS)
            assert sorted(await receive(first, 20)) == in_buckets(0, 4)
            assert sorted(await receive(second, 20)) == in_buckets(4, 8)
            assert all(each.most_in_a_second <= 10 for each in pushes)

    run_scene(scene)


def test_brokers_share_the_messages_in_flight() -> None:
    async def scene() -> None:
        async with cluster(EmbeddedEngine(), "one", "two") as brokers:
            topic = await brokers.create_topic("one", most_in_flight=8)
            first = await brokers.join("one", topic, "a")
            second = await brokers.join("two", topic, "b")
            await brokers.shares_are(a=(0, 4), b=(4, 8))
            client = await brokers.client("one")
            await send_all(client, IDS)
            await receive(first, 4)
            await receive(second, 4)
            for each in brokers.brokers.values():
                await until(lambda each=each: throttled(each, "in_flight", "jobs") > 0)
            assert (await client.count("jobs")).processing == 8

    run_scene(scene)


def test_what_a_consumer_settles_at_another_broker_is_not_in_flight() -> None:
    async def scene() -> None:
        async with cluster(EmbeddedEngine(), "one", "two") as brokers:
            topic = await brokers.create_topic("one", most_in_flight=8, default_lease=3_600)
            await send_all(await brokers.client("one"), IDS)
            moving = await brokers.join("one", topic, "a", credit=8)
            await receive(moving, 8)
            stays = await brokers.join("one", topic, "b")
            moving.call.cancel()
            await until(
                lambda: [each.name for each in brokers.brokers["one"].subscriptions] == ["b"]
            )
            async with raw_consumer(brokers.brokers["two"].address, "a", "1") as moved:
                await moved.subscribe(topic.uid, 8)
                resumed: list[pb.Delivery] = []
                while len(resumed) < 8:
                    resumed += (await moved.hears("push")).deliveries
                await until(lambda: throttled(brokers.brokers["one"], "in_flight", "jobs") > 0)
                leases = [pb.LeaseRef(id=each.id, version=each.version) for each in resumed]
                await moved.say(ack=pb.AckBatch(topic_uid=topic.uid, leases=leases), seq=2)
                settled = (await moved.hears("outcomes")).outcomes
                assert not any(each.refusal for each in settled)
                assert await receive(stays, 1)

    run_scene(scene)
