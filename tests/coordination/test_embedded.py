"""The embedded engine: several connections to one hub, cut and healed."""

from __future__ import annotations

import pytest

from chronoline.coordination.contract import Put
from chronoline.core.errors import CoordinationUnavailable
from tests.coordination.engines import EmbeddedEngine, keys
from tests.deadline import run_scene


def test_stalled_holder_keeps_its_session() -> None:
    async def scene() -> None:
        engine = EmbeddedEngine()
        async with engine.connect() as one:
            session = await one.open_session()
            await one.commit([Put("k", b"", session)])
            engine.clock.now_s += 3_600
            assert session.is_trusted
            assert keys(await one.read("")) == ["k"]

    run_scene(scene)


def test_cut_connection_is_unavailable_and_says_so() -> None:
    async def scene() -> None:
        engine = EmbeddedEngine()
        async with engine.connect() as one, engine.connect() as other, one.watch("") as watch:
            await other.commit([Put("k", b"")])
            one.cut()
            assert (keys(watch.view), watch.view.is_current) == (["k"], False)
            await other.commit([Put("l", b"")])
            assert keys(watch.view) == ["k"]
            with pytest.raises(CoordinationUnavailable):
                await one.read("")
            one.heal()
            assert (keys(watch.view), watch.view.is_current) == (["k", "l"], True)

    run_scene(scene)


def test_trust_ends_before_a_cut_session_does() -> None:
    async def scene() -> None:
        engine = EmbeddedEngine()
        async with engine.connect() as one, engine.connect() as other:
            session = await one.open_session(2_000, 500)
            await one.commit([Put("k", b"", session)])
            one.cut()
            engine.clock.now_s += 1.4
            assert session.is_trusted
            engine.clock.now_s += 0.1
            assert not session.is_trusted
            assert keys(await other.read("")) == ["k"]
            engine.clock.now_s += 0.4
            one.heal()
            assert session.is_trusted  # in time after all
            one.cut()
            engine.clock.now_s += 2
            assert keys(await other.read("")) == []
            assert not session.is_lost  # its holder cannot know
            assert not session.is_trusted
            one.heal()
            assert session.is_lost

    run_scene(scene)


def test_session_that_is_closed_while_cut_ends_with_its_ttl() -> None:
    async def scene() -> None:
        engine = EmbeddedEngine()
        async with engine.connect() as one, engine.connect() as other:
            session = await one.open_session()
            await one.commit([Put("k", b"", session)])
            one.cut()
            await session.close()
            assert session.is_lost
            assert keys(await other.read("")) == ["k"]
            engine.let_ttl_pass(session)
            assert keys(await other.read("")) == []

    run_scene(scene)
