"""Claims to tasks, on every engine."""

from __future__ import annotations

import pytest

from chronoline.coordination import claims
from chronoline.coordination.contract import Put
from chronoline.core.errors import CommitUnknown, SessionLost
from tests.coordination.engines import EmbeddedEngine, Engine, LossyCoordination, view_where
from tests.deadline import run_scene

TASK = ("delete", "topic/7")


def test_one_broker_has_a_task(engine: Engine) -> None:
    async def scene() -> None:
        async with engine.connect() as one, engine.connect() as other:
            mine, theirs = await one.open_session(), await other.open_session()
            claim = await claims.take(one, mine, *TASK, broker="a")
            assert claim is not None
            assert claim.is_trusted
            assert await claims.take(other, theirs, *TASK, broker="b") is None
            assert claims.claims_of(await other.read(claims.CLAIMS)) == {TASK: "a"}
            assert await claims.take(one, mine, *TASK, broker="a") == claim

    run_scene(scene)


def test_task_is_taken_over_when_its_session_ends(engine: Engine) -> None:
    async def scene() -> None:
        async with engine.connect() as one, engine.connect() as other:
            mine, theirs = await one.open_session(), await other.open_session()
            claim = await claims.take(one, mine, *TASK, broker="a")
            assert claim is not None
            async with other.watch(claims.CLAIMS) as watch:
                await mine.close()
                await view_where(watch, lambda view: not view.entries)
            later = await claims.take(other, theirs, *TASK, broker="b")
            assert later is not None
            assert later.number > claim.number
            assert not claim.is_trusted
            done = await one.commit([Put("k", b"")], when=[claim.condition])
            assert not done.is_made
            assert (await other.commit([Put("k", b"")], when=[later.condition])).is_made
            await claims.give_up(one, claim)  # it is another's
            assert claims.claims_of(await one.read(claims.CLAIMS)) == {TASK: "b"}
            with pytest.raises(SessionLost):
                await claims.take(one, mine, "another", broker="a")

    run_scene(scene)


def test_task_that_is_given_up_is_free(engine: Engine) -> None:
    async def scene() -> None:
        async with engine.connect() as one:
            mine, theirs = await one.open_session(), await one.open_session()
            claim = await claims.take(one, mine, *TASK, broker="a")
            assert claim is not None
            await claims.give_up(one, claim)
            assert await claims.take(one, theirs, *TASK, broker="b") is not None

    run_scene(scene)


@pytest.mark.parametrize("losses", [[True], [False, False, True]], ids=str)
def test_lost_answers_are_settled(engine: Engine, losses: list[bool]) -> None:
    async def scene() -> None:
        async with LossyCoordination(engine.connect()) as one:
            session = await one.open_session()
            one.losses = list(losses)
            claim = await claims.take(one, session, *TASK, broker="a")
            assert claim is not None
            entry = await one.get(claim.key)
            assert entry is not None
            assert claim.number == entry.version
            one.losses = list(losses)
            await claims.give_up(one, claim)
            assert await one.get(claim.key) is None

    run_scene(scene)


def test_service_that_never_answers_leaves_the_outcome_unknown() -> None:
    async def scene() -> None:
        async with LossyCoordination(EmbeddedEngine().connect()) as one:
            session = await one.open_session(30_000)
            one.losses = [True] * 20
            with pytest.raises(CommitUnknown):
                await claims.take(one, session, *TASK, broker="a")
            one.losses = []
            assert await claims.take(one, session, *TASK, broker="a") is not None

    run_scene(scene)
