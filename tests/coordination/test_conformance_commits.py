"""Commits and reads, on every engine."""

from __future__ import annotations

import asyncio

import pytest

from chronoline.coordination.contract import (
    MOST_BYTES,
    MOST_OPERATIONS,
    Absent,
    Condition,
    Delete,
    HeldBy,
    Put,
    Unchanged,
    Write,
    key_of,
    parts_of,
    prefix_of,
    split,
)
from chronoline.core.errors import CoordinationUnavailable, InvalidInput
from tests.coordination.engines import Engine, keys
from tests.deadline import run_scene


def test_put_entry_is_read(engine: Engine) -> None:
    async def scene() -> None:
        async with engine.connect() as one, engine.connect() as other:
            done = await one.commit([Put("a/1", b"x")])
            entry = await other.get("a/1")
            assert entry is not None
            assert (entry.key, entry.value, entry.session) == ("a/1", b"x", 0)
            assert done.is_made
            assert entry.version == done.revision
            assert (await other.read("a/")).entries == {"a/1": entry}
            assert await other.get("a/2") is None

    run_scene(scene)


def test_prefix_ends_where_it_should(engine: Engine) -> None:
    async def scene() -> None:
        async with engine.connect() as one:
            names = ["a/2", "a/10", "ab/1", "a0", "b/1", "A/1"]
            await one.commit([Put(name, b"") for name in names])
            view = await one.read("a/")
            assert view.is_current
            assert keys(view) == ["a/10", "a/2"]
            assert keys(await one.read("")) == sorted(names)
            assert keys(await one.read("none/")) == []

    run_scene(scene)


def test_conditions_are_checked(engine: Engine) -> None:
    async def scene() -> None:
        async with engine.connect() as one:
            mine, others = await one.open_session(), await one.open_session()
            await one.commit([Put("k", b"1"), Put("held", b"", mine)])
            found = await one.get("k")
            assert found is not None
            version = found.version
            cases: list[tuple[list[Condition], bool]] = [
                ([Absent("k")], False),
                ([Absent("none")], True),
                ([Unchanged("k", version)], True),
                ([Unchanged("k", version - 1)], False),
                ([Unchanged("none", version)], False),
                ([HeldBy("held", mine)], True),
                ([HeldBy("held", others)], False),
                ([HeldBy("k", mine)], False),
                ([HeldBy("none", mine)], False),
                ([Absent("none"), Absent("k")], False),
                ([], True),
            ]
            for number, (when, holds) in enumerate(cases):
                done = await one.commit([Put(f"case/{number}", b"")], when=when)
                assert (number, done.is_made) == (number, holds)
                assert (await one.get(f"case/{number}") is not None) == holds

    run_scene(scene)


def test_refused_commit_changes_nothing(engine: Engine) -> None:
    async def scene() -> None:
        async with engine.connect() as one:
            await one.commit([Put("k", b"1")])
            before = await one.read("")
            done = await one.commit([Put("k", b"2"), Delete("k2")], when=[Absent("k")])
            assert not done.is_made
            assert await one.read("") == before

    run_scene(scene)


def test_writes_of_a_commit_share_a_version(engine: Engine) -> None:
    async def scene() -> None:
        async with engine.connect() as one:
            first = await one.commit([Put("k", b"1"), Put("l", b"1"), Put("m", b"")])
            second = await one.commit([Put("k", b"2"), Delete("m"), Delete("none")])
            assert second.revision == first.revision + 1
            view = await one.read("")
            versions = {key: entry.version for key, entry in view.entries.items()}
            assert versions == {"k": second.revision, "l": first.revision}
            assert view.revision == second.revision

    run_scene(scene)


def test_version_is_never_used_again(engine: Engine) -> None:
    async def scene() -> None:
        async with engine.connect() as one:
            first = await one.commit([Put("k", b"1")])
            await one.commit([Delete("k")])
            await one.commit([Put("k", b"1")])
            done = await one.commit([Delete("k")], when=[Unchanged("k", first.revision)])
            assert not done.is_made

    run_scene(scene)


def test_one_of_many_takes_a_free_key(engine: Engine) -> None:
    async def scene() -> None:
        async with engine.connect() as one, engine.connect() as other:
            tries = [
                connection.commit([Put("k", str(number).encode())], when=[Absent("k")])
                for number, connection in enumerate([one, other] * 8)
            ]
            done = await asyncio.gather(*tries)
            assert sum(each.is_made for each in done) == 1

    run_scene(scene)


def test_largest_commit_is_made_and_larger_ones_are_refused(engine: Engine) -> None:
    async def scene() -> None:
        async with engine.connect() as one:
            most = [Put(f"k/{n}", b"") for n in range(MOST_OPERATIONS)]
            absent = [Absent(f"k/{n}") for n in range(MOST_OPERATIONS)]
            assert (await one.commit(most, when=absent)).is_made
            assert (await one.commit([Put("big", bytes(MOST_BYTES - 3))])).is_made
            wrong: list[list[Write]] = [
                [*most, Put("one", b"")],
                [Put("big", bytes(MOST_BYTES))],
                [Put("k", b"1"), Delete("k")],
                [Put("", b"")],
                [Put("a b", b"")],
                [Put("ä", b"")],
                [Put("a\n", b"")],
            ]
            for writes in wrong:
                with pytest.raises(InvalidInput):
                    await one.commit(writes)
            for call in (one.get(""), one.read("ä"), one.read("a b")):
                with pytest.raises(InvalidInput):
                    await call
            with pytest.raises(InvalidInput):
                one.watch("ä")

    run_scene(scene)


def test_batches_are_split_and_committed(engine: Engine) -> None:
    async def scene() -> None:
        async with engine.connect() as one:
            writes = [Put(f"k/{n:04}", b"v") for n in range(300)]
            batches = list(split(writes))
            assert [len(batch) for batch in batches] == [128, 128, 44]
            for batch in batches:
                await one.commit(batch)
            assert keys(await one.read("k/")) == [write.key for write in writes]

    run_scene(scene)


def test_batches_are_split_by_bytes() -> None:
    large = [Put(f"k/{n}", bytes(MOST_BYTES // 3)) for n in range(7)]
    assert [len(batch) for batch in split(large)] == [2, 2, 2, 1]
    assert list(split([])) == []


def test_stopped_connection_is_unavailable(engine: Engine) -> None:
    async def scene() -> None:
        one = engine.connect()
        with pytest.raises(CoordinationUnavailable):
            await one.read("")
        await one.start()
        await one.stop()
        for call in (one.read(""), one.get("k"), one.commit([Put("k", b"")]), one.open_session()):
            with pytest.raises(CoordinationUnavailable):
                await call

    run_scene(scene)


def test_keys_keep_any_text() -> None:
    parts = ("consumers", "7", "a/b c", "ü\n%2F")
    assert parts_of(key_of(*parts)) == parts
    assert key_of(*parts).startswith(prefix_of("consumers", 7))
    assert key_of(*parts).isascii()
