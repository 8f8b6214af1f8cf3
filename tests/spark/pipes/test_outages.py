"""Servers that go away, and workers that are killed: nothing is lost, and nothing is dead-lettered by it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import psutil  # type: ignore[import-untyped]  # it ships no types
import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession

from chronoline.pipe.spark.pipe import Pipe
from chronoline.runtime.child_process import Server
from chronoline.testing.postgres import PostgresServer
from chronoline_bench.servers.kafka import KafkaServer
from tests.spark.pipes.places import OnServers, Place
from tests.spark.pipes.scene import Scene, now_ms, over, spread, until

pytestmark = pytest.mark.timeout(600)

HOLD_MS = 1_500


@pytest.fixture(scope="module")
def own_postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    with PostgresServer(tmp_path_factory.mktemp("own-postgres") / "data") as server:
        yield server


def test_outage_beyond_the_hold_time_loses_nothing(
    spare_kafka: KafkaServer, own_postgres: PostgresServer, spark: SparkSession
) -> None:
    with OnServers(spare_kafka, own_postgres) as place, Scene(place) as scene:
        settings = scene.settings(hold_ms=HOLD_MS, dead_letters=place.table(scene.dead_letters))
        with Pipe(settings, spark) as pipe:
            for server in (own_postgres, spare_kafka):
                tags = scene.send_all(spread(scene, f"{server.name}-", over(6_000, 300)))
                scene.wait_out(tags[:20])
                _be_away(server)
                scene.wait_out(tags)
                scene.wait_out([scene.send(f"after-{server.name}", now_ms())])
                twice = scene.account()
                if server is own_postgres:
                    # A message that the output did not answer for is given back, and is not redelivered.
                    until(partial(_knows, pipe, twice.total()), "those that came twice are counted")
        assert scene.relayed() == {}
        assert scene.letters() == []
        assert scene.held() == 0
        assert scene.waiting() == {}


def _knows(pipe: Pipe, redelivered: int) -> bool:
    return pipe.counters.redelivered >= redelivered


def _be_away(server: Server) -> None:
    server.stop()
    until(partial(_is_past, now_ms() + 2 * HOLD_MS), "the hold time is over")
    server.start()


def test_killed_python_workers_lose_nothing(
    place: Place, spark: SparkSession, tmp_path: Path
) -> None:
    with Scene(place) as scene:
        settings = scene.settings(
            hold_ms=HOLD_MS, reserve_ahead_ms=400, receipts=str(tmp_path / "receipts")
        )
        with Pipe(settings, spark) as pipe:
            tags = scene.send_all(spread(scene, "m", over(5_000, 300)))
            scene.wait_out(tags[:20])
            killed = _kill_workers()
            assert killed
            scene.wait_out(tags)
            scene.wait_out([scene.send("after", now_ms())])
            twice = scene.account()
            until(partial(_knows, pipe, twice.total()), "those that came twice are counted")
        assert scene.letters() == []
        assert scene.held() == 0
        receipts = parquet.read_table(tmp_path / "receipts").column("id").to_pylist()
        assert set(receipts) == {"after", *(f"m{number}" for number in range(300))}


def test_a_hung_intake_is_restarted(place: Place, spark: SparkSession) -> None:
    with Scene(place) as scene, Pipe(scene.settings(), spark) as pipe:
        scene.wait_out([scene.send("before", now_ms())])

        def hangs() -> bool:
            # The judgement is private to the supervisor; its tests show how it comes about.
            pipe._upkeep.intake.still_s = 1_000.0
            return pipe.counters.restarts > 0

        until(hangs, "the intake is restarted")
        scene.wait_out([scene.send("after", now_ms())])
        assert not scene.account()


def _kill_workers() -> int:
    """SIGKILL to all that run tasks of the shared session; the process that forks them stays."""
    killed = 0
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):  # one that has ended meanwhile
            parent = process.parent()
            if parent and all("pyspark.worker" in each.cmdline() for each in (process, parent)):
                process.kill()
                killed += 1
    return killed


def _is_past(moment_ms: int) -> bool:
    return now_ms() >= moment_ms
