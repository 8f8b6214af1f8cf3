"""An etcd of three members: its leader is killed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from chronoline.coordination.contract import Absent, BrokerSession, Coordination, Put
from chronoline.coordination.factory import open_coordination
from chronoline.coordination.settlement import commit_surely
from chronoline.core.errors import CoordinationUnavailable, MissingExtra
from chronoline_bench.servers.etcd import EtcdCluster
from tests.conftest import miss
from tests.coordination.engines import view_where
from tests.coordination.etcd_admin import leader_of
from tests.deadline import run_scene, until


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[EtcdCluster]:
    members = EtcdCluster(tmp_path)
    try:
        members.start()
    except MissingExtra as error:
        miss("etcd", error)
    yield members
    members.stop()


def test_session_and_watch_survive_all_but_the_majority(cluster: EtcdCluster) -> None:
    async def scene() -> None:
        url = cluster.url("leader")
        async with open_coordination(url) as one, one.watch("") as watch:
            # An election takes its seconds; the shortest session would not outlive a slow one.
            session = await one.open_session(30_000)
            await one.commit([Put("k", b"", session)])
            await view_where(watch, lambda view: "k" in view.entries)
            leader = await leader_of(cluster.members)
            await asyncio.to_thread(leader.kill)
            await put_surely(one, "after")
            view = await view_where(watch, lambda view: view.is_current and "after" in view.entries)
            assert list(view.entries) == ["after", "k"]
            await until_kept(session)
            assert session.is_trusted

            second, last = (each for each in cluster.members if each is not leader)
            async with open_coordination(last.url("leader")) as other, other.watch("") as lonely:
                await view_where(lonely, lambda view: view.is_current)
                await asyncio.to_thread(second.kill)
                # The last member answers, but has no leader: its view may be old.
                await view_where(lonely, lambda view: not view.is_current)
                await asyncio.gather(*(asyncio.to_thread(each.start) for each in (leader, second)))
                await view_where(lonely, lambda view: view.is_current)
            await view_where(watch, lambda view: view.is_current)

    run_scene(scene)


async def put_surely(one: Coordination, key: str) -> None:
    """Writes an entry, also while the members elect a leader."""

    async def is_put() -> bool:
        try:
            done = await commit_surely(
                one, [Put(key, b"")], when=[Absent(key)], is_ours=lambda found: found is not None
            )
        except CoordinationUnavailable:
            return False
        return done.is_made

    await until(is_put)


async def until_kept(session: BrokerSession) -> None:
    async def is_kept() -> bool:
        try:
            await session.keep_alive()
        except CoordinationUnavailable:
            return False
        return True

    await until(is_kept)
