"""A rolling upgrade: brokers of the previous release are replaced one by one, under load."""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import psycopg

from chronoline.databases.queries import load_migrations
from chronoline.runtime.child_process import free_ports
from chronoline.testing.cluster import BrokerPlan, BrokerProcess, in_parallel
from chronoline.testing.cluster_load import ClusterLoad
from chronoline.testing.etcd import EtcdServer
from chronoline.testing.postgres import PostgresServer
from tests.upgrade.previous import PROGRAM, run

_PATIENCE_S = 60.0
_CONSUMERS = ("ada", "bob", "cleo", "dan")
_PER_S = 200
_LOOK_EVERY_S = 0.05


def _schema_version(url: str) -> int:
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT version FROM chronoline.schema_version").fetchone()
    assert row is not None
    return int(row[0])


async def _all_healthy(brokers: list[BrokerProcess]) -> None:
    names = {broker.name for broker in brokers}
    async with asyncio.timeout(_PATIENCE_S):
        while not all([names <= await asyncio.to_thread(each.healthy) for each in brokers]):
            await asyncio.sleep(_LOOK_EVERY_S)  # another process sends no signal


async def _upgrade(brokers: list[BrokerProcess], exits: ExitStack, load: ClusterLoad) -> None:
    """Replaces each broker by one of the present release, while messages flow."""
    for number, old in enumerate(brokers):
        await asyncio.to_thread(old.stop)
        new = BrokerProcess(
            replace(old.plan, program=(sys.executable, "-m", "chronoline")),
            log_path=old.plan.data.with_suffix(".new.log"),
        )
        exits.callback(new.kill)
        await asyncio.to_thread(new.start)
        brokers[number] = new
        await _all_healthy(brokers)
        mixed_s = time.monotonic()
        assert await load.until(lambda s=mixed_s: load.were_served(_CONSUMERS, s), _PATIENCE_S)  # type: ignore[misc]  # a default binds it


async def _play(brokers: list[BrokerProcess], exits: ExitStack) -> ClusterLoad:
    await _all_healthy(brokers)
    addresses = [broker.address for broker in brokers]
    load = ClusterLoad(addresses, topic="upgrade", consumers=_CONSUMERS, per_s=_PER_S)
    async with load:
        assert await load.until(lambda: load.served == set(_CONSUMERS), _PATIENCE_S)
        await _upgrade(brokers, exits, load)
        await load.end_sending()
        assert await load.until(lambda: load.is_complete, _PATIENCE_S)
    return load


def test_nothing_is_lost_early_or_double_in_a_rolling_upgrade(
    previous: dict[str, str],
    postgres_server: PostgresServer,
    etcd_server: EtcdServer,
    tmp_path: Path,
) -> None:
    prefix = f"upgrade-{uuid4()}"
    store = postgres_server.create_database(prefix)
    ports = free_ports(4)
    with ExitStack() as exits:
        brokers = []
        for number in range(2):
            plan = BrokerPlan(
                name=f"broker-{number}",
                grpc=f"127.0.0.1:{ports[2 * number]}",
                http=f"127.0.0.1:{ports[2 * number + 1]}",
                data=tmp_path / f"broker-{number}",
                store=store,
                coordination=etcd_server.url(prefix),
                program=PROGRAM,
            )
            log = tmp_path / f"broker-{number}.log"
            brokers.append(BrokerProcess(plan, log_path=log, environment=previous))
            exits.callback(brokers[-1].kill)
        in_parallel(brokers)
        before = _schema_version(store)
        load = asyncio.run(_play(brokers, exits))
        tally = load.tally()
        assert (tally.lost, tally.early, tally.double) == (0, 0, 0)
        assert tally.delivered == tally.sent > _PER_S
        assert load.troubles == {}
        known = len(load_migrations("chronoline.stores.postgres"))
        assert before <= known == _schema_version(store)
        # Clients of the previous release go on with the brokers of this one.
        address = ("--address", brokers[0].address)
        sent = run(previous, "-m", "chronoline", "send", "upgrade", "--id", "old", *address)
        assert sent.strip() == "old"
