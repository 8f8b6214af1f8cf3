"""Membership: what a broker shows of itself and its consumers, on every engine."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from chronoline.coordination.contract import BrokerSession, KeyValue, Put, View
from chronoline.coordination.membership import (
    BROKERS,
    CLOCKS,
    CONSUMERS,
    NAMES,
    BrokerLoad,
    BrokerRecord,
    ClockStamp,
    ConsumerRecord,
    Registration,
    brokers_of,
    consumers_of,
    stamps_of,
)
from chronoline.core.errors import CoordinationRefused, SessionLost
from tests.coordination.engines import (
    EmbeddedEngine,
    Engine,
    LossyCoordination,
    ManualMonotonic,
    keys,
    view_where,
)
from tests.deadline import run_scene, until

BROKER = BrokerRecord("b", "host:7400")


def consumer(name: str, *, uid: int = 7, broker: str = "b", session: str = "s") -> ConsumerRecord:
    return ConsumerRecord(uid, name, broker, session)


def test_broker_and_consumers_are_seen_by_others(engine: Engine) -> None:
    async def scene() -> None:
        async with engine.connect() as one, engine.connect() as other, Registration(one) as mine:
            many = [consumer(f"c{n:03}") for n in range(300)]
            mine.show(BROKER, ClockStamp("b", 5), *many)
            await mine.wait_written()
            assert brokers_of(await other.read(BROKERS)) == {"b": BROKER}
            assert stamps_of(await other.read(CLOCKS)) == {"b": ClockStamp("b", 5)}
            found = consumers_of(await other.read(CONSUMERS))
            assert found == {7: {each.name: each for each in many}}
            assert mine.session is not None

    run_scene(scene)


def test_only_changes_are_written(engine: Engine) -> None:
    async def scene() -> None:
        async with engine.connect() as one, Registration(one) as mine:
            mine.show(BROKER, consumer("c"), consumer("d"))
            await mine.wait_written()
            before = await one.read("")
            mine.show(BROKER, consumer("c"))
            busy = ConsumerRecord(7, "d", "b", "s", busy=True)
            mine.show(busy)
            mine.hide(consumer("c").key)
            await mine.wait_written()
            after = await one.read("")
            assert after.entries[BROKER.key] == before.entries[BROKER.key]
            assert after.revision == before.revision + 1
            assert consumers_of(await one.read(CONSUMERS)) == {7: {"d": busy}}

    run_scene(scene)


def test_registration_ends_with_its_broker(engine: Engine) -> None:
    async def scene() -> None:
        async with engine.connect() as other, other.watch("") as watch:
            async with engine.connect() as one, Registration(one) as mine:
                mine.show(BROKER)
                await view_where(watch, lambda view: bool(view.entries))
            await view_where(watch, lambda view: not view.entries)

    run_scene(scene)


def test_everything_is_written_again_after_a_lost_session(engine: Engine) -> None:
    async def scene() -> None:
        sessions: list[BrokerSession] = []
        async with (
            engine.connect() as one,
            one.watch("") as watch,
            Registration(one, on_session=sessions.append) as mine,
        ):
            mine.show(BROKER, consumer("c"))
            await mine.wait_written()
            await sessions[0].close()
            await view_where(
                watch,
                lambda view: (
                    {BROKER.key, consumer("c").key} <= view.entries.keys()
                    and all(each.session != sessions[0].id for each in view.entries.values())
                ),
            )
            assert len(sessions) == 2
            assert mine.session is sessions[1]

    run_scene(scene)


def test_unknown_outcomes_are_repeated(engine: Engine) -> None:
    async def scene() -> None:
        async with LossyCoordination(engine.connect()) as one:
            one.losses = [True, False, True]
            async with Registration(one) as mine:
                mine.show(BROKER)
                await mine.wait_written()
                assert keys(await one.read(BROKERS)) == [BROKER.key]
                one.losses = [True, False]
                mine.hide(BROKER.key)
                await mine.wait_written()
                assert keys(await one.read(BROKERS)) == []

    run_scene(scene)


def test_consumer_that_leaves_before_a_repetition_has_no_entry(engine: Engine) -> None:
    async def scene() -> None:
        async with LossyCoordination(engine.connect()) as one, Registration(one) as mine:
            mine.show(BROKER)
            await mine.wait_written()
            one.losses = [True]
            mine.show(consumer("c"))
            await until(lambda: not one.losses)
            mine.hide(consumer("c").key)
            await mine.wait_written()
            assert keys(await one.read(CONSUMERS)) == []

    run_scene(scene)


def test_change_that_is_taken_back_before_a_repetition_leaves_no_trace(engine: Engine) -> None:
    async def scene() -> None:
        async with LossyCoordination(engine.connect()) as one, Registration(one) as mine:
            mine.show(consumer("c"))
            await mine.wait_written()
            one.losses = [True]
            mine.show(replace(consumer("c"), busy=True))
            await until(lambda: not one.losses)
            mine.show(consumer("c"))
            await mine.wait_written()
            assert consumers_of(await one.read(CONSUMERS)) == {7: {"c": consumer("c")}}

    run_scene(scene)


def test_delayed_write_does_not_replace_a_newer_one(engine: Engine) -> None:
    """A server that hung makes a commit whose answer was given up long ago."""

    async def scene() -> None:
        async with LossyCoordination(engine.connect()) as one, Registration(one) as mine:
            mine.show(consumer("c"), consumer("d"))
            await mine.wait_written()
            one.losses = [False]
            mine.show(replace(consumer("c"), busy=True), consumer("e"))
            mine.hide(consumer("d").key)
            await until(lambda: not one.losses)
            mine.show(consumer("c"), consumer("d"))
            mine.hide(consumer("e").key)
            await mine.wait_written()
            await one.deliver_lost()
            found = consumers_of(await one.read(CONSUMERS))
            assert found == {7: {"c": consumer("c"), "d": consumer("d")}}

    run_scene(scene)


def test_delayed_write_of_a_lost_session_changes_nothing(engine: Engine) -> None:
    async def scene() -> None:
        sessions: list[BrokerSession] = []
        async with (
            LossyCoordination(engine.connect()) as one,
            Registration(one, on_session=sessions.append) as mine,
        ):
            mine.show(consumer("c"))
            await mine.wait_written()
            one.losses = [False]
            mine.hide(consumer("c").key)
            await until(lambda: not one.losses)
            await sessions[0].close()
            mine.show(consumer("c"))
            await until(lambda: len(sessions) == 2)
            await mine.wait_written()
            with suppress(SessionLost):
                await one.deliver_lost()
            assert keys(await one.read(CONSUMERS)) == [consumer("c").key]

    run_scene(scene)


def test_registration_waits_for_the_service() -> None:
    async def scene() -> None:
        engine = EmbeddedEngine()
        async with engine.connect() as one, engine.connect() as other, Registration(one) as mine:
            one.cut()
            mine.show(BROKER)
            one.heal()
            await mine.wait_written()
            assert keys(await other.read(BROKERS)) == [BROKER.key]

    run_scene(scene)


def test_entries_that_are_refused_for_longer_than_the_ttl_are_late() -> None:
    async def scene() -> None:
        clock = ManualMonotonic()
        async with (
            LossyCoordination(EmbeddedEngine().connect()) as one,
            Registration(one, monotonic=clock) as mine,
        ):
            one.refusal = CoordinationRefused("no rights")
            mine.show(BROKER)
            await until(lambda: mine.failure == "no rights")
            assert not mine.is_late
            clock.now_s += 2.1
            assert mine.is_late
            one.refusal = None
            await mine.wait_written()
            await until(lambda: not mine.is_late)
            assert mine.failure == ""

    run_scene(scene)


def test_later_entry_of_a_name_counts() -> None:
    first, second = consumer("c", broker="z"), consumer("c", broker="a", session="t")
    entries = {
        first.key: KeyValue(first.key, first.encode(), 5),
        second.key: KeyValue(second.key, second.encode(), 6),
    }
    assert consumers_of(View.of(entries, 6)) == {7: {"c": second}}


def test_later_broker_of_a_name_writes_nothing_before_the_first_has_left(engine: Engine) -> None:
    async def scene() -> None:
        async with engine.connect() as one, engine.connect() as other:
            later = Registration(other, name="b")
            async with Registration(one, name="b") as first:
                first.show(BROKER)
                await first.wait_written()
                await later.start()
                again = BrokerRecord("b", "host:7401", load=BrokerLoad(topics=1))
                later.show(again)
                await until(lambda: later.name_taken is not None)
                assert later.session is None
                assert brokers_of(await one.read(BROKERS)) == {"b": BROKER}
            await later.wait_written()
            assert later.name_taken is None
            assert brokers_of(await one.read(BROKERS)) == {"b": again}
            await later.stop()

    run_scene(scene)


def test_broker_of_an_earlier_release_has_its_name(engine: Engine) -> None:
    """It has no entry of the name, but that of the broker."""

    async def scene() -> None:
        async with engine.connect() as one, engine.connect() as other:
            earlier = await one.open_session()
            await one.commit([Put(BROKER.key, BROKER.encode(), earlier)])
            async with Registration(other, name="b") as mine:
                await until(lambda: mine.name_taken is not None)
                assert "host:7400" in mine.failure
                await earlier.close()
                mine.show(BROKER)
                await mine.wait_written()

    run_scene(scene)


def test_broker_has_its_name_at_once_under_its_next_session(engine: Engine) -> None:
    async def scene() -> None:
        sessions: list[BrokerSession] = []
        async with (
            engine.connect() as one,
            Registration(one, name="b", on_session=sessions.append) as mine,
        ):
            mine.show(BROKER)
            await mine.wait_written()
            (name,) = (await one.read(NAMES)).entries.values()
            old = await one.open_session()  # the session of before, as if it had not ended yet
            await one.commit([Put(name.key, name.value, old)])
            await sessions[0].close()
            await until(lambda: len(sessions) == 2)
            (name,) = (await one.read(NAMES)).entries.values()
            assert name.session == sessions[1].id

    run_scene(scene)
