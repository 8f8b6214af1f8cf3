"""The limits of a topic's deliveries, at a broker: most a second, and most in flight."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from chronoline.client import TopicSettings
from chronoline.client.aio import AsyncClient
from chronoline.client.leases import AsyncLease
from chronoline.client.messages import ToSend
from chronoline.core.message import LeasedMessage
from tests.broker.nodes import Running, running
from tests.broker.targets.receivers import answers, calling, receiving
from tests.deadline import run_scene, until

_LEASE_S = 600


def messages(count: int) -> list[ToSend]:
    return [ToSend(id=f"m{number}") for number in range(count)]


def throttled(it: Running, limit: str, topic: str = "t") -> float:
    """How often a limit of the topic held its deliveries up."""
    named = "topic_throttled_count", (limit, topic)
    return sum(value for *name, value in it.node.metrics.snapshot().samples if (*name,) == named)


class Pushes:
    """The moments at which messages leave the broker, by its own clock."""

    def __init__(self, it: Running) -> None:
        self.moments: list[int] = []
        self._pushed = it.node.metrics.pushed
        it.node.metrics.pushed = self._push  # type: ignore[method-assign]  # each push passes here

    def _push(self, topic: str, leased: Sequence[LeasedMessage], now_ms: int) -> None:
        self.moments += [now_ms] * len(leased)
        self._pushed(topic, leased, now_ms)

    @property
    def most_in_a_second(self) -> int:
        return max(
            bisect_left(self.moments, each + 1_000) - at for at, each in enumerate(self.moments)
        )


@asynccontextmanager
async def consuming(
    it: Running, name: str, came: list[AsyncLease], *, acks: bool, lease: float = _LEASE_S
) -> AsyncIterator[AsyncClient]:
    """A consumer that collects its messages."""

    async def consume(client: AsyncClient) -> None:
        async for each in client.consume("t", consumer=name, lease=lease, prefetch=100):
            came.append(each)
            if acks:
                await each.ack()

    async with it.client() as client:
        task = asyncio.create_task(consume(client))
        try:
            yield client
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def test_no_second_has_more_deliveries_than_the_rate(tmp_path: Path) -> None:
    async def scene() -> None:
        async with running(tmp_path) as it, it.client() as client:
            await client.create_topic("t", TopicSettings(most_per_s=100))
            pushes = Pushes(it)
            came: dict[str, list[AsyncLease]] = {name: [] for name in ("a", "b", "c")}
            async with (
                consuming(it, "a", came["a"], acks=True),
                consuming(it, "b", came["b"], acks=True),
                consuming(it, "c", came["c"], acks=True),
            ):
                await until(lambda: len([each for each in it.subscriptions if each.ranges]) == 3)
                await client.send_many("t", messages(160))
                await until(lambda: sum(map(len, came.values())) == 160)
            assert pushes.most_in_a_second <= 100
            assert throttled(it, "rate")
            assert all(came.values()), "each consumer gets its part"
            assert len({lease.id for each in came.values() for lease in each}) == 160

    run_scene(scene)


def test_messages_beyond_the_rate_stay_available(tmp_path: Path) -> None:
    async def scene() -> None:
        async with running(tmp_path) as it, it.client() as client:
            await client.create_topic("t", TopicSettings(most_per_s=1))
            await client.create_topic("other")
            await client.send_many("t", messages(50))
            came: list[AsyncLease] = []
            async with consuming(it, "c", came, acks=False):
                await until(lambda: len(came) == 2)
                counts = await client.count("t")
                assert counts.processing <= 3
                assert counts.available >= 47
                await client.send("other", b"x", id="o")
                other = client.consume("other", consumer="d")
                assert (await anext(other)).id == "o", "another topic has its own limits"
                await other.aclose()

    run_scene(scene)


def test_no_more_are_in_flight_than_allowed(tmp_path: Path) -> None:
    async def scene() -> None:
        async with running(tmp_path) as it, it.client() as client:
            await client.create_topic("t", TopicSettings(most_in_flight=5))
            await client.send_many("t", messages(20))
            came: list[AsyncLease] = []
            async with (
                consuming(it, "a", came, acks=False),
                consuming(it, "b", came, acks=False),
            ):
                for done in range(20):
                    await until(lambda done=done: len(came) == min(20, done + 5))
                    assert (await client.count("t")).processing <= 5
                    await came[done].ack()
                assert throttled(it, "in_flight")
                await until(lambda: _is_empty(client))

    run_scene(scene)


async def _is_empty(client: AsyncClient) -> bool:
    return (await client.count("t")).total == 0


def test_leases_of_a_consumer_that_has_left_are_in_flight(tmp_path: Path) -> None:
    """Also for the loader of the next consumer, and for the next run of the broker."""

    async def scene() -> None:
        first: list[AsyncLease] = []
        async with running(tmp_path) as it, it.client() as client:
            await client.create_topic("t", TopicSettings(most_in_flight=5))
            await client.send_many("t", messages(20))
            stays: list[AsyncLease] = []
            async with consuming(it, "gone", first, acks=False):
                await until(lambda: len(first) == 5)
                async with consuming(it, "stays", stays, acks=False):
                    await until(lambda: len(it.subscriptions) == 2)
            assert not stays
        async with running(tmp_path) as it, it.client() as client:
            second: list[AsyncLease] = []
            async with consuming(it, "other", second, acks=False):
                await until(lambda: throttled(it, "in_flight") > 0)
                assert (await client.count("t")).processing == 5
                assert not second
                async with consuming(it, "gone", first, acks=False):
                    await until(lambda: len(first) == 10)  # it has them again
                    await first[-1].ack()
                    await until(lambda: len(second) + len(first) == 11)
                    assert (await client.count("t")).processing == 5

    run_scene(scene)


def test_a_limit_set_later_counts_older_leases(tmp_path: Path) -> None:
    async def scene() -> None:
        async with running(tmp_path) as it, it.client() as client:
            await client.create_topic("t")
            gone: list[AsyncLease] = []
            stays: list[AsyncLease] = []
            async with consuming(it, "stays", stays, acks=False):
                async with consuming(it, "gone", gone, acks=False):
                    await until(
                        lambda: len([each for each in it.subscriptions if each.ranges]) == 2
                    )
                    await client.send_many("t", messages(20))
                    await until(lambda: len(gone) + len(stays) == 20)
                await until(lambda: len(it.subscriptions) == 1)
                assert gone, "each consumer gets its part"
                await client.change_topic("t", most_in_flight=20)
                await client.send("t", b"x", id="one more")
                await until(lambda: throttled(it, "in_flight") > 0)
                assert (await client.count("t")).processing == 20
                await stays[0].ack()
                await until(lambda: len(gone) + len(stays) == 21)

    run_scene(scene)


def test_lapsed_leases_are_not_in_flight(tmp_path: Path) -> None:
    async def scene() -> None:
        async with running(tmp_path) as it, it.client() as client:
            await client.create_topic("t", TopicSettings(most_in_flight=2, max_attempts=100))
            await client.send_many("t", messages(2))
            came: list[AsyncLease] = []
            async with consuming(it, "gone", came, acks=False, lease=0.5):
                await until(lambda: len(came) == 2)
            async with consuming(it, "other", came, acks=True):
                await until(lambda: _is_empty(client))

    run_scene(scene)


def test_limits_change_while_consumers_wait(tmp_path: Path) -> None:
    async def scene() -> None:
        async with running(tmp_path) as it, it.client() as client:
            await client.create_topic("t", TopicSettings(most_in_flight=2))
            await client.send_many("t", messages(9))
            came: list[AsyncLease] = []
            async with consuming(it, "c", came, acks=False):
                await until(lambda: len(came) == 2 and throttled(it, "in_flight") > 0)
                await client.change_topic("t", most_in_flight=5)
                await until(lambda: len(came) == 5)
                assert (await client.count("t")).processing == 5
                await client.change_topic("t", most_in_flight=None)
                await until(lambda: len(came) == 9)

    run_scene(scene)


def test_target_obeys(tmp_path: Path) -> None:
    async def scene() -> None:
        async with (
            receiving(answers(204)) as receiver,
            calling() as calls,
            running(tmp_path, calls=calls) as it,
            it.client() as client,
        ):
            settings = TopicSettings(target=receiver.url("/"), most_per_s=50, most_in_flight=3)
            await client.create_topic("t", settings)
            pushes = Pushes(it)
            await client.send_many("t", messages(70))
            await until(lambda: _is_empty(client))
            assert len(receiver.calls) == 70
            assert pushes.most_in_a_second <= 50
            assert throttled(it, "rate") + throttled(it, "in_flight")

    run_scene(scene)
