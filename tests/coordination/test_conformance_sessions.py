"""Sessions, on every engine."""

from __future__ import annotations

import pytest

from chronoline.coordination.contract import Put
from chronoline.core.errors import InvalidInput, SessionLost
from tests.coordination.engines import Engine, keys, view_where
from tests.deadline import run_scene


def test_new_session_is_trusted(engine: Engine) -> None:
    async def scene() -> None:
        async with engine.connect() as one:
            session, other = await one.open_session(), await one.open_session(5_000, 100)
            assert session.is_trusted
            assert not session.is_lost
            assert session.ttl_ms >= 2_000
            assert session.id != other.id
            assert other.trusted_until > session.trusted_until
            await session.keep_alive()

    run_scene(scene)


def test_closed_session_takes_its_entries_along(engine: Engine) -> None:
    async def scene() -> None:
        async with engine.connect() as one, engine.connect() as other:
            session = await one.open_session()
            await one.commit([Put("a/1", b"", session), Put("a/2", b"", session), Put("a/3", b"")])
            async with other.watch("a/") as watch:
                await view_where(watch, lambda view: len(view.entries) == 3)
                await session.close()
                # Both vanish in one step.
                assert keys(await anext(watch)) == ["a/3"]
            await session.wait_lost()
            assert session.is_lost
            assert not session.is_trusted
            await session.close()

    run_scene(scene)


def test_abandoned_session_ends_with_its_ttl(engine: Engine) -> None:
    async def scene() -> None:
        async with engine.connect() as one, engine.connect() as other:
            session = await one.open_session()
            await one.commit([Put("k", b"", session)])
            async with other.watch("") as watch:
                session.abandon()
                assert keys(await other.read("")) == ["k"]
                engine.let_ttl_pass(session)
                await view_where(watch, lambda view: not view.entries)
            with pytest.raises(SessionLost):
                await session.keep_alive()
            await session.wait_lost()
            assert not session.is_trusted

    run_scene(scene)


def test_lost_session_writes_nothing(engine: Engine) -> None:
    async def scene() -> None:
        async with engine.connect() as one:
            session = await one.open_session()
            await session.close()
            with pytest.raises(SessionLost):
                await one.commit([Put("k", b"", session), Put("l", b"")])
            with pytest.raises(SessionLost):
                await session.keep_alive()
            assert keys(await one.read("")) == []
            another = await one.open_session()
            assert (await one.commit([Put("k", b"", another)])).is_made

    run_scene(scene)


def test_entry_belongs_to_the_session_of_its_last_write(engine: Engine) -> None:
    async def scene() -> None:
        async with engine.connect() as one:
            first, second = await one.open_session(), await one.open_session()
            await one.commit([Put(key, b"", first) for key in ("moved", "freed", "left")])
            await one.commit([Put("moved", b"", second), Put("freed", b"")])
            await first.close()
            assert keys(await one.read("")) == ["freed", "moved"]
            await second.close()
            assert keys(await one.read("")) == ["freed"]

    run_scene(scene)


def test_session_ends_with_its_connection(engine: Engine) -> None:
    async def scene() -> None:
        async with engine.connect() as other:
            async with engine.connect() as one:
                session = await one.open_session()
                await one.commit([Put("k", b"", session)])
            assert session.is_lost
            assert keys(await other.read("")) == []

    run_scene(scene)


@pytest.mark.parametrize(
    ("ttl_ms", "margin_ms"), [(1_000, 0), (2_500, 0), (2_000, 2_000), (2_000, -1)]
)
def test_impossible_times_are_refused(engine: Engine, ttl_ms: int, margin_ms: int) -> None:
    async def scene() -> None:
        async with engine.connect() as one:
            with pytest.raises(InvalidInput):
                await one.open_session(ttl_ms, margin_ms)

    run_scene(scene)
