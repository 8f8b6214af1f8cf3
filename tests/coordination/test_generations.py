"""Generations in the coordination service."""

from __future__ import annotations

import json

import pytest

from chronoline.coordination.contract import MOST_BYTES, KeyValue, Put, View
from chronoline.coordination.generations import (
    GENERATIONS,
    NOTHING_AGREED,
    GenerationRecord,
    Members,
    forget_generation,
    write_generation,
)
from chronoline.coordination.membership import MEMBERS, ConsumerRecord, Registration
from chronoline.coordination.records import record_of
from chronoline.coordination.topics import TopicRegistry
from chronoline.core.errors import TopicNotReady
from chronoline.core.generation import NO_MEMBERS, Generation, TopicMember
from chronoline.core.topic import Topic
from tests.coordination.engines import Engine, keys
from tests.deadline import run_scene

_TOPIC = Topic(uid=7, name="t")
_A = TopicMember("a", "one", "r1")
_B = TopicMember("b", "two", busy=True)
_PLANNED = Generation(
    number=3, window=9, members=(_A, _B), before=(_A,), lost=frozenset({"a", "b"})
)
_SETTLED = Generation(number=4, window=9, members=(_A,), before=(_A,))


@pytest.mark.parametrize("generation", [_PLANNED, _SETTLED])
def test_generation_is_kept_as_it_is(engine: Engine, generation: Generation) -> None:
    async def scene() -> None:
        async with engine.connect() as one:
            await TopicRegistry(one).adopt("t", uid=7)
            assert await write_generation(one, _TOPIC, NOTHING_AGREED, generation)
            members = Members.of(await one.read(MEMBERS))
            assert members.generations.keys() == {7}
            assert members.generations[7].generation == generation
            await forget_generation(one, 7)
            await forget_generation(one, 7)
            assert keys(await one.read(GENERATIONS)) == []

    run_scene(scene)


def test_deleted_topic_gets_no_generation(engine: Engine) -> None:
    """A broker that hears of the deletion last still has consumers of the topic."""

    async def scene() -> None:
        async with engine.connect() as one:
            registry = TopicRegistry(one)
            with pytest.raises(TopicNotReady):
                await write_generation(one, _TOPIC, NOTHING_AGREED, _SETTLED)
            registered = await registry.adopt("t", uid=7)
            assert registered is not None
            assert await write_generation(one, _TOPIC, NOTHING_AGREED, _SETTLED)
            await registry.delete("t", uid=7)
            await forget_generation(one, 7)
            with pytest.raises(TopicNotReady):
                await write_generation(one, _TOPIC, NOTHING_AGREED, _SETTLED)
            await registry.remove("t", request=registered.request)
            await registry.adopt("t", uid=8)
            with pytest.raises(TopicNotReady):
                await write_generation(one, _TOPIC, NOTHING_AGREED, _SETTLED)
            assert keys(await one.read(GENERATIONS)) == []

    run_scene(scene)


def test_generation_of_many_members_fits_into_an_entry() -> None:
    members = tuple(
        TopicMember(f"worker-{n:05}.orders", f"b{n % 20}.example", f"rack-{n % 3}", n % 7 == 0)
        for n in range(15_000)
    )
    large = Generation(number=1, window=9, members=members, before=members[1:])
    record = GenerationRecord.of(7, large)
    assert len(record.encode()) < MOST_BYTES
    assert record.generation == large


@pytest.mark.parametrize(
    "wrong", [{"brokers": []}, {"racks": []}, {"members": {"consumers": ["a"]}}], ids=str
)
def test_generation_that_contradicts_itself_is_malformed(wrong: dict[str, object]) -> None:
    value = {**json.loads(GenerationRecord.of(7, _SETTLED).encode()), **wrong}
    entry = KeyValue("k", json.dumps(value).encode(), 1)
    assert record_of(GenerationRecord, entry) is None


@pytest.mark.parametrize("value", [b'{"v":1,"topic_uid":7,"number":3,"window":9}', b"?"])
def test_unreadable_generation_is_replaced(engine: Engine, value: bytes) -> None:
    """An earlier release wrote it, with members in another form."""

    async def scene() -> None:
        async with engine.connect() as one:
            await TopicRegistry(one).adopt("t", uid=7)
            await one.commit([Put(f"{GENERATIONS}7", value)])
            present = Members.of(await one.read(MEMBERS)).generations[7]
            assert present.generation == NO_MEMBERS
            assert await write_generation(one, _TOPIC, present, _SETTLED)
            assert Members.of(await one.read(MEMBERS)).generations[7].generation == _SETTLED

    run_scene(scene)


def test_generation_of_a_newer_release_is_left_alone() -> None:
    newer = KeyValue(f"{GENERATIONS}7", b'{"v":99}', 5)
    assert Members.of(View.of({newer.key: newer}, 5)).generations == {}


def test_equal_members_are_written_once() -> None:
    assert GenerationRecord.of(7, _SETTLED).before is None
    assert GenerationRecord.of(7, _PLANNED).before is not None


def test_generation_has_one_successor(engine: Engine) -> None:
    async def scene() -> None:
        async with engine.connect() as one, engine.connect() as two:
            await TopicRegistry(one).adopt("t", uid=7)
            assert await write_generation(one, _TOPIC, NOTHING_AGREED, _PLANNED)
            assert not await write_generation(two, _TOPIC, NOTHING_AGREED, _SETTLED)
            agreed = Members.of(await two.read(MEMBERS)).generations[7]
            assert await write_generation(two, _TOPIC, agreed, _SETTLED)
            assert not await write_generation(one, _TOPIC, agreed, _PLANNED)
            found = Members.of(await one.read(MEMBERS)).generations[7]
            assert found.generation == _SETTLED

    run_scene(scene)


def test_one_view_has_consumers_and_generations(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene() -> None:
        async with engine.connect() as one, Registration(one) as registration:
            registration.show(ConsumerRecord(7, "a", "one", "i/p.1", rack="r1", since_ms=5))
            await registration.wait_written()
            await TopicRegistry(one).adopt("t", uid=7)
            await write_generation(one, _TOPIC, NOTHING_AGREED, _SETTLED)
            members = Members.of(await one.read(MEMBERS))
            assert members.observed(7) == [_A]
            assert members.observed(8) == []
            assert members.generations[7].generation == _SETTLED

    run_scene(scene)
    assert not [each for each in caplog.messages if "is skipped" in each]


def test_later_subscription_has_the_name(engine: Engine) -> None:
    """Also if the earlier one was written last."""

    async def scene() -> None:
        async with engine.connect() as one, Registration(one) as registration:
            registration.show(ConsumerRecord(7, "a", "two", "j/p.1", since_ms=6))
            await registration.wait_written()
            registration.show(ConsumerRecord(7, "a", "one", "i/p.1", since_ms=5))
            await registration.wait_written()
            members = Members.of(await one.read(MEMBERS))
            assert [each.broker for each in members.observed(7)] == ["two"]

    run_scene(scene)
