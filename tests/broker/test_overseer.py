"""The overseer: the brokers of the cluster, preferences, and suggestions to move."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from chronoline.broker.cluster.member import MemberOptions
from chronoline.broker.overseer import ClientPlacement, LoadMeter, MoveNotice
from chronoline.client.aio import AsyncClient
from chronoline.client.topics import Topic, TopicSettings
from chronoline.coordination.embedded import EmbeddedCoordination, EmbeddedHub
from chronoline.coordination.membership import BrokerLoad, BrokerRecord, ConsumerRecord
from chronoline.core.errors import StoreUnavailable
from chronoline.core.selector import BrokerHealth, ClientKind, MoveReason, SuggestedMove
from chronoline.node.broker_service import BrokerService
from chronoline.stores.memory import MemoryStore
from tests.broker.nodes import Running, running
from tests.deadline import until

CONSUMER, PRODUCER = ClientKind.CONSUMER, ClientKind.PRODUCER
_ROLES = ("overseer", "carrier")
_STREAMS = {"7": 1}
"""The streams of broker a; the coordination service may show more consumers."""


def _record(name: str, *problems: str, percent: int = 0, rack: str = "") -> BrokerRecord:
    load = BrokerLoad(core_percent=percent)
    return BrokerRecord(name, f"{name}:7400", _ROLES, rack, load, problems)


def _placement(*records: BrokerRecord) -> ClientPlacement:
    placement = ClientPlacement("a")
    placement.saw_brokers({each.name: each for each in records}, 0)
    return placement


def _consumers(**brokers: int) -> dict[int, dict[str, ConsumerRecord]]:
    """Consumers of topic 7, as many at each broker."""
    names = [
        (broker, f"{broker}{each}") for broker, count in brokers.items() for each in range(count)
    ]
    return {7: {name: ConsumerRecord(7, name, broker, "s") for broker, name in names}}


# Preferences


def test_eight_consumers_that_ask_at_once_fill_two_of_four_brokers() -> None:
    placement = _placement(*map(_record, "abcd"))
    sent = Counter(placement.prefer("7", CONSUMER, "", 0)[0].record.name for _ in range(8))
    assert sorted(sent.values()) == [4, 4]


def test_client_that_is_shown_counts_once() -> None:
    placement = _placement(*map(_record, "ab"))
    first = placement.prefer("7", CONSUMER, "", 0)[0].record.name
    assert placement.prefer("7", CONSUMER, "", 0)[0].record.name == first
    placement.saw_consumers(_consumers(**{first: 2}))
    later = [placement.prefer("7", CONSUMER, "", 1)[0].record.name for _ in range(3)]
    other = "b" if first == "a" else "a"
    assert later == [first, first, other]


def test_client_that_never_came_is_forgotten() -> None:
    placement = _placement(*map(_record, "ab"))
    first = placement.prefer("7", CONSUMER, "", 0)[0].record.name
    for _ in range(3):
        placement.prefer("7", CONSUMER, "", 0)
    assert placement.prefer("7", CONSUMER, "", 9_999)[0].record.name != first
    assert placement.prefer("8", CONSUMER, "", 30_000)[0].record.name == first


def test_rack_decides_between_equal_brokers() -> None:
    placement = _placement(_record("a", rack="r1"), _record("b", rack="r2"))
    assert placement.prefer("7", PRODUCER, "r2", 0)[0].record.name == "b"


def test_degraded_broker_comes_last_and_overseers_not_at_all() -> None:
    overseer = BrokerRecord("c", "c:7400", ("overseer",))
    placement = _placement(_record("a", "storage"), _record("b"), overseer)
    assert [each.record.name for each in placement.prefer("7", CONSUMER, "", 0)] == ["b", "a"]


def test_broker_with_a_notice_is_as_good_as_any() -> None:
    placement = _placement(_record("a", "peers", "drift"), _record("b"))
    assert placement.prefer("7", CONSUMER, "", 0)[0].record.name == "a"
    placement.saw_consumers(_consumers(a=4))
    for now_ms in (0, 2_000, 4_000):
        assert placement.moves(_STREAMS, 2, now_ms) == []
    assert placement.known(0)[0].health is BrokerHealth.HEALTHY


# The list of brokers


def test_vanished_broker_is_inactive_for_ten_minutes() -> None:
    placement = _placement(_record("a"), _record("b"))
    placement.saw_brokers({"a": _record("a")}, 1_000)
    shown = {each.record.name: each.health for each in placement.known(600_999)}
    assert shown == {"a": BrokerHealth.HEALTHY, "b": BrokerHealth.INACTIVE}
    assert placement.others == []
    assert [each.record.name for each in placement.known(601_000)] == ["a"]


def test_vanished_broker_is_forgotten() -> None:
    placement = _placement(_record("a"), _record("b"))
    placement.saw_brokers({"a": _record("a")}, 1_000)
    placement.saw_brokers({"a": _record("a")}, 700_000)
    assert [each.record.name for each in placement.known(1_001)] == ["a"]


def test_stopped_broker_is_not_shown_as_inactive() -> None:
    placement = _placement(_record("a"), _record("b", "stopping"))
    placement.saw_brokers({"a": _record("a")}, 1_000)
    assert [each.record.name for each in placement.known(1_000)] == ["a"]


def test_returned_broker_is_active_again() -> None:
    placement = _placement(_record("b"), _record("a"))
    placement.saw_brokers({"a": _record("a")}, 1_000)
    placement.saw_brokers({"a": _record("a"), "b": _record("b", "clock")}, 2_000)
    found = [(each.record.name, each.health) for each in placement.known(2_000)]
    assert found == [("a", BrokerHealth.HEALTHY), ("b", BrokerHealth.DEGRADED)]


# Moves


def test_all_clients_leave_a_broker_that_is_degraded_for_half_a_second() -> None:
    placement = _placement(_record("a", "clock"), _record("b"))
    placement.saw_consumers(_consumers(a=3))
    assert placement.moves(_STREAMS, 2, 0) == []
    assert placement.moves(_STREAMS, 2, 499) == []
    moves = placement.moves(_STREAMS, 2, 2_000)
    assert [(each.kind, each.to, each.clients) for each in moves] == [
        (CONSUMER, "b", 3),
        (PRODUCER, "b", 2),
    ]
    assert {each.reason for each in moves} == {MoveReason.DEGRADED}


def test_consumers_that_no_view_shows_yet_leave_a_degraded_broker() -> None:
    placement = _placement(_record("a", "storage"), _record("b"))
    assert placement.moves({"7": 2}, 0, 0) == []
    (move,) = placement.moves({"7": 2}, 0, 2_000)
    assert (move.to, move.clients) == ("b", 2)


def test_producers_stay_without_the_coordination_service() -> None:
    placement = _placement(_record("a", "coordination"), _record("b"))
    for now_ms in (0, 2_000, 4_000):
        assert placement.moves({}, 2, now_ms) == []


def test_client_that_only_looks_is_not_counted() -> None:
    placement = _placement(*map(_record, "ab"))
    looks = [placement.prefer("7", CONSUMER, "", 0, only_look=True) for _ in range(9)]
    assert {each[0].record.name for each in looks} == {"a"}


def test_producers_stay_where_only_the_load_is_uneven() -> None:
    placement = _placement(_record("a", percent=90), _record("b"))
    for now_ms in (0, 30_000, 60_000):
        assert placement.moves({}, 9, now_ms) == []


def test_few_consumers_join_those_of_another_broker_after_thirty_seconds() -> None:
    placement = _placement(_record("a"), _record("b"))
    placement.saw_consumers(_consumers(a=1, b=2))
    assert placement.moves(_STREAMS, 0, 0) == []
    (move,) = placement.moves(_STREAMS, 0, 30_000)
    assert (move.to, move.reason) == ("b", MoveReason.SPREAD)


def test_load_is_measured_over_five_seconds_in_round_figures() -> None:
    meter = LoadMeter(100.0, 7.0)
    assert meter.measure(104.9, 9.0, 600) == (0, 0)
    assert meter.measure(105.0, 9.0, 6_170) == (1_200, 40)
    assert meter.measure(106.0, 9.9, 9_000) == (1_200, 40)


# With real brokers


@asynccontextmanager
async def _cluster(
    folder: Path, count: int, roles: Sequence[tuple[str, ...]] = (_ROLES,) * 4
) -> AsyncIterator[list[Running]]:
    hub = EmbeddedHub()
    async with AsyncExitStack() as exits:
        yield [
            await exits.enter_async_context(
                running(
                    folder,
                    coordination=EmbeddedCoordination(hub),
                    member=MemberOptions(name=f"b{each}", roles=roles[each]),
                )
            )
            for each in range(count)
        ]


async def _see_each_other(brokers: list[Running]) -> None:
    addresses = {each.address for each in brokers}
    for each in brokers:
        assert each.node.parts is not None
        overseer = each.node.parts.overseer
        await until(lambda: {*overseer.others, each.address} == addresses)  # noqa: B023 - awaited here


def test_consumers_fill_two_of_four_brokers(tmp_path: Path) -> None:
    async def play() -> None:
        async with _cluster(tmp_path, 4) as brokers, AsyncExitStack() as exits:
            await _see_each_other(brokers)
            clients = [
                await exits.enter_async_context(brokers[0].client(timeout=60)) for _ in range(8)
            ]
            await clients[0].create_topic("t")
            streams = [await each.subscribe(["t"]) for each in clients]
            counted = Counter(each.address for each in streams)
            assert sorted(counted.values()) == [4, 4]

    asyncio.run(play())


def test_info_of_one_broker_shows_the_shares_at_all(tmp_path: Path) -> None:
    async def play() -> None:
        async with _cluster(tmp_path, 2) as brokers, AsyncExitStack() as exits:
            await _see_each_other(brokers)
            client = await exits.enter_async_context(brokers[0].client(timeout=60))
            topic = await client.create_topic("t", TopicSettings(buckets=12, window=0.2))
            streams = [await client.subscribe(["t"], consumer=f"c{each}") for each in range(5)]
            assert len({each.address for each in streams}) == 2

            async def all_are_shown() -> bool:
                shown = (await client.cluster()).subscribers
                buckets = [n for each in shown for one in each.own for n in range(*one)]
                return sorted(buckets) == list(range(topic.settings.buckets))

            await until(all_are_shown)
            found = await client.cluster()
            assert {each.broker for each in found.subscribers} == {"b0", "b1"}
            assert {each.health for each in found.brokers} == {"healthy"}
            assert found.brokers[0].clock_ahead_ms == 0

    asyncio.run(play())


def test_consumers_are_read_once_for_each_view(tmp_path: Path) -> None:
    async def play() -> None:
        async with _cluster(tmp_path, 1) as (broker,), broker.client(timeout=60) as client:
            assert broker.node.parts is not None
            overseer = broker.node.parts.overseer
            await client.create_topic("t")
            for name in ("a", "b"):
                before = overseer.consumers
                assert overseer.consumers is before
                await client.subscribe(["t"], consumer=name)
                await until(lambda: overseer.consumers is not before)  # noqa: B023 - awaited here
                assert any(name in each for each in overseer.consumers.values())

    asyncio.run(play())


def test_calls_go_to_the_broker_that_has_the_role(tmp_path: Path) -> None:
    async def play() -> None:
        async with _cluster(tmp_path, 2, roles=[("carrier",), ("overseer",)]) as brokers:
            await _see_each_other(brokers)
            async with AsyncClient([each.address for each in brokers], timeout=60) as client:
                await client.create_topic("t")
                await client.send("t", id="a")
                assert (await client.count("t")).total == 1
                await client.delete_topic("t")

    asyncio.run(play())


def test_only_carrier_is_found_by_way_of_an_overseer(tmp_path: Path) -> None:
    async def play() -> None:
        async with _cluster(tmp_path, 2, roles=[("carrier",), ("overseer",)]) as brokers:
            await _see_each_other(brokers)
            carrier, overseer = brokers
            async with overseer.client(timeout=60) as client:
                await client.create_topic("t")
                await client.send("t", id="a")
                stream = await client.subscribe(["t"])
                assert (await stream.next()).id == "a"
                assert stream.address == carrier.address

    asyncio.run(play())


def test_stream_moves_for_its_first_topic_alone(tmp_path: Path) -> None:
    async def play() -> None:
        async with _cluster(tmp_path, 2) as brokers:
            await _see_each_other(brokers)
            async with brokers[0].client(timeout=60) as client:
                first, second = [await client.create_topic(each) for each in ("t", "u")]
                stream = await client.subscribe(["t", "u"])
                here, other = sorted(brokers, key=lambda each: each.address != stream.address)
                assert here.node.parts is not None
                clients = here.node.parts.overseer.clients
                assert clients.consumers() == {str(first.uid): 1}

                def suggest(topic: Topic) -> None:
                    move = SuggestedMove(
                        topic=str(topic.uid),
                        kind=CONSUMER,
                        to="other",
                        clients=1,
                        reason=MoveReason.SPREAD,
                    )
                    clients.suggest(MoveNotice(move, other.address))

                suggest(second)
                for each in ("a", "b"):  # the suggestion would come before the first answer
                    await client.send("t", id=each)
                    await (await stream.next()).ack()
                assert stream.address == here.address
                suggest(first)
                await until(lambda: stream.address == other.address)

    asyncio.run(play())


class _NoResumption(MemoryStore):
    """A store that accepts no consumer."""

    def resume(self, *_: Any, **__: Any) -> Any:
        raise StoreUnavailable


def test_consumer_that_is_not_subscribed_yet_can_be_sent_away() -> None:
    async def play() -> None:
        with _NoResumption() as store:
            async with BrokerService(store, grpc_address=("127.0.0.1", 0)) as node:
                assert node.grpc is not None
                assert node.parts is not None
                async with AsyncClient(f"127.0.0.1:{node.grpc.port}") as client:
                    topic = await client.create_topic("t")
                    subscribing = asyncio.create_task(client.subscribe(["t"]))
                    counted = node.parts.overseer.clients.consumers
                    await until(lambda: counted() == {str(topic.uid): 1})
                    subscribing.cancel()

    asyncio.run(play())


def test_streams_stay_while_the_whole_cluster_is_cut_off(tmp_path: Path) -> None:
    """No broker knows then that the others are degraded, too."""

    async def play() -> None:
        async with _cluster(tmp_path, 3) as brokers, AsyncExitStack() as exits:
            await _see_each_other(brokers)
            client = await exits.enter_async_context(brokers[0].client(timeout=60))
            await client.create_topic("t")
            streams = [await client.subscribe(["t"], consumer=f"c{each}") for each in range(5)]
            before = [each.address for each in streams]
            questions = _questions(brokers)
            for each in brokers:
                assert each.node.parts is not None
                coordination = each.node.parts.member.coordination
                assert isinstance(coordination, EmbeddedCoordination)
                coordination.cut()
            # Each stream asks both of the others; one more question comes after all have decided.
            await until(lambda: _questions(brokers) > questions + 2 * len(streams))
            assert [each.address for each in streams] == before

    asyncio.run(play())


def _questions(brokers: list[Running]) -> int:
    """The questions for preferences that brokers have answered."""
    return sum(
        int(value)
        for each in brokers
        for name, labels, value in each.node.metrics.snapshot().samples
        if name == "broker_commands_count" and labels[0] == "prefer"
    )


def test_clients_leave_a_broker_that_is_cut_off(tmp_path: Path) -> None:
    async def play() -> None:
        async with _cluster(tmp_path, 2) as brokers:
            await _see_each_other(brokers)
            async with brokers[0].client(timeout=60) as client:
                await client.create_topic("t")
                stream = await client.subscribe(["t"], consumer="me")
                await client.send("t", id="held")
                held = await stream.next()
                (first,) = (each for each in brokers if each.address == stream.address)
                assert first.node.parts is not None
                coordination = first.node.parts.member.coordination
                assert isinstance(coordination, EmbeddedCoordination)
                coordination.cut()
                await until(lambda: stream.address != first.address)
                await held.ack()
                await client.send("t", id="later")
                assert (await stream.next()).id == "later"

    asyncio.run(play())


def test_clients_go_on_at_the_other_broker(tmp_path: Path) -> None:
    async def play() -> None:
        async with _cluster(tmp_path, 2) as brokers:
            await _see_each_other(brokers)
            async with brokers[0].client(timeout=60) as client:
                await client.create_topic("t")
                stream = await client.subscribe(["t"], consumer="me")
                await client.send("t", id="held")
                held = await stream.next()
                (first,) = (each for each in brokers if each.address == stream.address)
                await first.node.stop()
                assert await client.send("t", id="later") == "later"
                later = await stream.next()
                assert (held.id, later.id) == ("held", "later")
                await held.ack()
                await later.ack()
                assert stream.address != first.address
                assert (await client.count("t")).total == 0

    asyncio.run(play())
