"""Watches, on every engine."""

from __future__ import annotations

import asyncio

import pytest

from chronoline.coordination.contract import NOTHING_SEEN, Delete, Put
from tests.coordination.engines import Engine, keys, view_where
from tests.deadline import run_scene


def test_watch_begins_with_a_snapshot(engine: Engine) -> None:
    async def scene() -> None:
        async with engine.connect() as one:
            await one.commit([Put("a/1", b"x"), Put("b/1", b"")])
            async with one.watch("a/") as watch:
                first = await anext(watch)
                assert first == await one.read("a/")
                assert watch.view is first

    run_scene(scene)


def test_watch_of_nothing_shows_an_empty_snapshot(engine: Engine) -> None:
    async def scene() -> None:
        async with engine.connect() as one, one.watch("a/") as watch:
            first = await anext(watch)
            assert first.is_current
            assert keys(first) == []
            assert first.revision > NOTHING_SEEN.revision

    run_scene(scene)


def test_watch_shows_each_change_whole(engine: Engine) -> None:
    async def scene() -> None:
        async with engine.connect() as one, engine.connect() as other, other.watch("a/") as watch:
            await anext(watch)
            done = await one.commit([Put("a/1", b"x"), Put("a/2", b"y"), Put("b/1", b"")])
            view = await anext(watch)
            assert view == await one.read("a/")
            assert view.revision == done.revision
            await one.commit([Delete("a/1"), Put("a/2", b"z")])
            view = await anext(watch)
            assert {key: entry.value for key, entry in view.entries.items()} == {"a/2": b"z"}

    run_scene(scene)


def test_views_do_not_change(engine: Engine) -> None:
    async def scene() -> None:
        async with engine.connect() as one, one.watch("") as watch:
            first = await anext(watch)
            await one.commit([Put("k", b"")])
            second = await anext(watch)
            assert (keys(first), keys(second)) == ([], ["k"])
            with pytest.raises(TypeError):
                second.entries["l"] = second.entries["k"]  # type: ignore[index]  # on purpose

    run_scene(scene)


def test_changes_elsewhere_wake_nobody(engine: Engine) -> None:
    async def scene() -> None:
        async with engine.connect() as one, one.watch("a/") as watch:
            await anext(watch)
            await one.commit([Put("b/1", b"")])
            await one.commit([Put("a/1", b"")])
            assert keys(await anext(watch)) == ["a/1"]

    run_scene(scene)


def test_slow_reader_gets_the_newest_view(engine: Engine) -> None:
    async def scene() -> None:
        async with engine.connect() as one, one.watch("a/") as slow, one.watch("a/") as quick:
            await anext(slow)
            for number in range(20):
                await one.commit([Put(f"a/{number}", b"")])
            await view_where(quick, lambda view: len(view.entries) == 20)
            await view_where(slow, lambda view: len(view.entries) == 20)
            assert slow.view == quick.view

    run_scene(scene)


def test_last_view_is_the_truth_after_many_changes(engine: Engine) -> None:
    async def scene() -> None:
        async with engine.connect() as one, engine.connect() as other, other.watch("a/") as watch:
            for number in range(60):
                place = f"a/{number % 7}"
                await one.commit([Delete(place) if number % 3 else Put(place, bytes([number]))])
            last = await one.commit([Put("a/end", b"")])
            view = await view_where(watch, lambda view: view.revision >= last.revision)
            assert view == await one.read("a/")

    run_scene(scene)


def test_closed_watch_ends_its_reader(engine: Engine) -> None:
    async def scene() -> None:
        async with engine.connect() as one:
            watch = one.watch("")
            await anext(watch)
            reader = asyncio.create_task(_read_all(watch.__aiter__()))
            await asyncio.sleep(0)  # the reader waits now
            await watch.close()
            assert await reader == 0
            await watch.close()

    run_scene(scene)


def test_watches_end_with_their_connection(engine: Engine) -> None:
    async def scene() -> None:
        async with engine.connect() as one:
            watch = one.watch("")
            await anext(watch)
        with pytest.raises(StopAsyncIteration):
            await anext(watch)

    run_scene(scene)


async def _read_all(watch: object) -> int:
    return len([view async for view in watch])  # type: ignore[attr-defined]  # an iterator
