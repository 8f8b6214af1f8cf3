"""Shares of a broker's consumers: they change with the window, and a returning consumer keeps its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from chronoline.broker.shares import ConnectedConsumer, LocalShares
from chronoline.client import TopicSettings
from chronoline.client.aio import ToSend
from chronoline.core.dealer import Share
from chronoline.core.generation import TopicMember
from chronoline.core.ids import bucket_of
from chronoline.core.ranges import BucketRange
from chronoline.core.topic import Topic
from tests.broker.clocks import MovableClock
from tests.broker.nodes import Running, running
from tests.broker.raw_streams import raw_consumer
from tests.deadline import run_scene, until

_WINDOW_S = 3_600
"""No window ends by itself during a test."""


def shares(broker: Running) -> dict[str, tuple[int, int]]:
    return {each.name: each.share for each in broker.subscriptions}


def test_returning_consumer_keeps_its_share(tmp_path: Path) -> None:
    clock = MovableClock()

    async def scene() -> None:
        async with running(tmp_path, clock=clock) as broker, broker.client() as client:
            settings = TopicSettings(window=_WINDOW_S, buckets=8)
            topic = await client.create_topic("jobs", settings)
            async with raw_consumer(broker.address, "a", "1") as staying:
                await staying.subscribe(topic.uid, 10)
                await until(lambda: shares(broker) == {"a": (0, 8)})
                async with raw_consumer(broker.address, "b", "1") as leaving:
                    await leaving.subscribe(topic.uid, 10)
                    await leaving.hears("subscribed")
                    assert shares(broker) == {"a": (0, 8), "b": (0, 0)}
                    clock.ahead_ms += _WINDOW_S * 1000
                    await until(lambda: shares(broker) == {"a": (0, 4), "b": (4, 8)})
                await until(lambda: shares(broker) == {"a": (0, 4)})
                async with raw_consumer(broker.address, "b", "1") as returning:
                    await returning.subscribe(topic.uid, 10)
                    heard = await returning.hears("share")
                    assert (heard.start_bucket, heard.stop_bucket) == (4, 8)

    run_scene(scene)


_HALVES = Share((BucketRange(0, 4),), (BucketRange(4, 6), BucketRange(6, 8)))


class _OneRack:
    """The shares of the consumer a, whose other rack is lost: nobody owns buckets 4 to 7."""

    def __init__(self, *_: object) -> None:
        self._shares = {"a": _HALVES}

    def observe(self, connected: Sequence[ConnectedConsumer]) -> None:
        pass

    def close(self) -> None:
        pass

    def shares(self, observed: frozenset[TopicMember], now_ms: int) -> Mapping[str, Share]:
        return self._shares

    def changes_at(self, now_ms: int) -> int | None:
        return None


def test_idle_consumer_is_served_from_its_backup_ranges(tmp_path: Path) -> None:
    ids = [f"m{number}" for number in range(40)]
    assert {bucket_of(each, 8) for each in ids} == set(range(8))

    async def scene() -> None:
        async with running(tmp_path, shares=_OneRack) as broker, broker.client() as client:
            await client.create_topic("jobs", TopicSettings(buckets=8))
            leases = client.consume("jobs", consumer="a", prefetch=100)
            await client.send_many("jobs", [ToSend(id=each) for each in ids])
            came = []
            for _ in ids:
                lease = await anext(leases)
                came.append(lease.id)
                await lease.ack()
            assert sorted(came) == sorted(ids)
            assert [each.dealt for each in broker.subscriptions] == [_HALVES]
            await leases.aclose()

    run_scene(scene)


# The shares of a broker that is alone

_TOPIC = Topic(uid=1, name="t", settings=TopicSettings(window=2, buckets=8).in_ms())
_AT = 1_000_000


def members(*names: str, busy: str = "") -> frozenset[TopicMember]:
    return frozenset(TopicMember(name, busy=name == busy) for name in names)


def test_local_shares_change_with_the_window() -> None:
    source = LocalShares(_TOPIC)
    first = source.shares(members("a"), _AT + 10)
    assert first == {"a": Share((BucketRange(0, 8),))}
    assert source.changes_at(_AT + 10) is None
    assert source.shares(members("a", "b"), _AT + 20) is first
    assert source.changes_at(_AT + 20) == _AT + 2_000
    second = source.shares(members("a", "b"), _AT + 2_000)
    assert second == {"a": Share((BucketRange(0, 4),)), "b": Share((BucketRange(4, 8),))}
    assert source.changes_at(_AT + 2_000) is None
    assert source.shares(members("a", "b"), _AT + 9_000) is second


def test_local_shares_of_busy_consumers_go_to_others() -> None:
    source = LocalShares(_TOPIC)
    source.shares(members("a"), _AT)
    source.shares(members("a", "b"), _AT)
    both = source.shares(members("a", "b"), _AT + 2_000)
    assert source.shares(members("a", "b", busy="b"), _AT + 2_001) is both
    alone = source.shares(members("a", "b", busy="b"), _AT + 4_000)
    assert alone == {"a": Share((BucketRange(0, 8),))}


def test_local_shares_survive_a_clock_that_is_put_back() -> None:
    source = LocalShares(_TOPIC)
    source.shares(members("a"), _AT)
    source.shares(members("a", "b"), _AT)
    back = _AT - 100_000
    source.shares(members("a", "b"), back)
    assert source.changes_at(back) == back + 2_000
    assert source.shares(members("a", "b"), back + 2_000).keys() == {"a", "b"}
