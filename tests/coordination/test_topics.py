"""The topic registry, on every engine."""

from __future__ import annotations

import asyncio

import pytest

from chronoline.coordination.topics import TOPICS, TopicRegistry, TopicState, topics_of
from chronoline.core.errors import TopicExists, TopicNotFound
from tests.coordination.engines import Engine, LossyCoordination
from tests.deadline import run_scene


def test_topic_goes_from_creating_to_open_to_deleting(engine: Engine) -> None:
    async def scene() -> None:
        async with engine.connect() as one:
            registry = TopicRegistry(one)
            made = await registry.register("t/ä", request="r", settings={"buckets": 8})
            assert (made.state, made.uid) == (TopicState.CREATING, None)
            opened = await registry.open("t/ä", request="r", uid=7)
            assert (opened.state, opened.uid) == (TopicState.OPEN, 7)
            assert opened.settings == {"buckets": 8}
            assert topics_of(await one.read(TOPICS)) == {"t/ä": opened}
            deleted = await registry.delete("t/ä", uid=7)
            assert deleted.state is TopicState.DELETING
            with pytest.raises(TopicExists):
                await registry.register("t/ä", request="another")
            await registry.remove("t/ä", request="r")
            assert await registry.find("t/ä") is None
            await registry.register("t/ä", request="another")

    run_scene(scene)


def test_every_step_can_be_repeated(engine: Engine) -> None:
    async def scene() -> None:
        async with engine.connect() as one:
            registry = TopicRegistry(one)
            first = await registry.register("t", request="r")
            assert await registry.register("t", request="r") == first
            opened = await registry.open("t", request="r", uid=7)
            assert await registry.open("t", request="r", uid=7) == opened
            assert await registry.register("t", request="r") == opened
            deleted = await registry.delete("t", uid=7)
            assert await registry.delete("t", uid=7) == deleted
            await registry.remove("t", request="r")
            await registry.remove("t", request="r")
            assert topics_of(await one.read(TOPICS)) == {}

    run_scene(scene)


def test_steps_of_another_topic_are_refused(engine: Engine) -> None:
    async def scene() -> None:
        async with engine.connect() as one:
            registry = TopicRegistry(one)
            await registry.register("t", request="r")
            for wrong in (
                registry.open("t", request="another", uid=8),
                registry.open("none", request="r", uid=8),
                registry.delete("t", uid=8),
                registry.abort("t", request="another"),
            ):
                with pytest.raises(TopicNotFound):
                    await wrong
            opened = await registry.open("t", request="r", uid=7)
            with pytest.raises(TopicNotFound):
                await registry.open("t", request="r", uid=8)
            await registry.remove("t", request="r")  # it is not being deleted
            assert await registry.find("t") == opened

    run_scene(scene)


def test_deleted_topic_does_not_open_again(engine: Engine) -> None:
    async def scene() -> None:
        async with engine.connect() as one:
            registry = TopicRegistry(one)
            await registry.register("t", request="r")
            await registry.abort("t", request="r")
            with pytest.raises(TopicNotFound):
                await registry.open("t", request="r", uid=7)

    run_scene(scene)


def test_one_of_two_requests_gets_the_name(engine: Engine) -> None:
    async def scene() -> None:
        async with engine.connect() as one, engine.connect() as other:
            tries = [
                TopicRegistry(connection).register("t", request=request)
                for connection, request in ((one, "r1"), (other, "r2"))
            ]
            done = await asyncio.gather(*tries, return_exceptions=True)
            assert sorted(type(each).__name__ for each in done) == [
                "RegisteredTopic",
                "TopicExists",
            ]

    run_scene(scene)


@pytest.mark.parametrize("losses", [[True], [False, True]], ids=str)
def test_lost_answers_are_settled(engine: Engine, losses: list[bool]) -> None:
    async def scene() -> None:
        async with LossyCoordination(engine.connect()) as one:
            registry = TopicRegistry(one)
            one.losses = list(losses)
            await registry.register("t", request="r")
            one.losses = list(losses)
            assert (await registry.open("t", request="r", uid=7)).state is TopicState.OPEN
            one.losses = list(losses)
            await registry.delete("t", uid=7)
            one.losses = list(losses)
            await registry.remove("t", request="r")
            assert await registry.find("t") is None

    run_scene(scene)
