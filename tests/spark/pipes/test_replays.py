"""A checkpoint decides nothing: what runs again adds nothing, also when its messages have been fired."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from chronoline.pipe.claims import InputClaims, source_name
from chronoline.pipe.inputs import open_input
from chronoline.pipe.intake_work import IntakeWork
from chronoline.pipe.settings import topic_settings
from chronoline.pipe.spark.intake_query import start_intake
from chronoline.pipe.spark.pipe import Pipe, contract_of
from chronoline.stores.members import pipe_group
from tests.spark.pipes.places import Place
from tests.spark.pipes.scene import HOUR_MS, Scene, now_ms, spread, until

pytestmark = pytest.mark.timeout(300)

NODE = "test"


@contextmanager
def taking_in(
    spark: SparkSession, scene: Scene, source: str, checkpoint: Path
) -> Iterator[StreamingQuery]:
    settings = scene.settings()
    work = IntakeWork(
        pipe=settings.name,
        node=NODE,
        store=settings.store,
        topic_uid=scene.topic.uid,
        input=settings.input,
        source=source,
        contract=contract_of(settings, scene.topic),
        intakes=2,
        window_ms=500,
        look_ms=100,
        linger_ms=10,
        batch_records=10,
    )
    query = start_intake(spark, work, checkpoint=checkpoint.as_uri())
    try:
        yield query
    finally:
        query.stop()


def test_lost_checkpoint_adds_nothing_after_firing(
    spark: SparkSession, place: Place, tmp_path: Path
) -> None:
    with Scene(place) as scene:
        settings = scene.settings()
        topic = scene.store.ensure_topic(scene.name, topic_settings(settings), now_ms=now_ms())
        group, until_ms = pipe_group(topic), now_ms() + HOUR_MS
        scene.store.beat(group, NODE, until_ms=until_ms, now_ms=now_ms())
        with open_input(settings.input, scene.name) as source:
            name = source_name(settings, source.identity())
            claiming = InputClaims(
                scene.store,
                topic,
                source,
                name=name,
                node=NODE,
                start="earliest",
                claim_ms=HOUR_MS,
            )
            claiming.share([NODE], source.partitions(), now_ms())
        checkpoint = tmp_path / "checkpoint"
        scene.send_all(spread(scene, "m", [now_ms()] * 40))  # at least four batches
        with taking_in(spark, scene, name, checkpoint) as query:
            scene.wait_taken_in()
            until(lambda: (query.lastProgress or {"batchId": 0})["batchId"] >= 2, "windows ended")
        taken_in = scene.tally
        assert taken_in.accepted == len(scene.sent) == 40
        _fire_all(scene)
        assert scene.waiting() == {}

        _cut_back(checkpoint, batches=2)
        _check_nothing_is_added(spark, scene, name, checkpoint)
        shutil.rmtree(checkpoint)
        _check_nothing_is_added(spark, scene, name, checkpoint)


def _fire_all(scene: Scene) -> None:
    """Fires messages as the lanes of a pipe do, without an output."""
    topic = scene.topic
    leased = scene.store.reserve(
        topic.uid, topic.all_buckets, consumer="test", limit=100, lease_ms=60_000, now_ms=now_ms()
    ).leased
    outcomes = scene.store.ack(topic.uid, [each.lease for each in leased], now_ms=now_ms())
    assert len(outcomes) == len(scene.sent)
    assert all(outcome.done for outcome in outcomes)


def _cut_back(checkpoint: Path, batches: int) -> None:
    last = max(int(each.name) for each in (checkpoint / "offsets").iterdir() if each.name.isdigit())
    assert last >= batches
    for kind in ("offsets", "commits"):
        for number in range(last - batches + 1, last + 1):
            for name in (str(number), f".{number}.crc"):
                (checkpoint / kind / name).unlink(missing_ok=True)


def _check_nothing_is_added(
    spark: SparkSession, scene: Scene, source: str, checkpoint: Path
) -> None:
    before = scene.tally
    with taking_in(spark, scene, source, checkpoint):
        (marker,) = scene.send_all([scene.record(f"marker-{now_ms()}", now_ms() + HOUR_MS)])
        scene.wait_taken_in()
    after = scene.tally
    assert after.accepted == before.accepted + 1
    assert after.total == before.total + 1
    assert marker in scene.waiting()
    assert len(scene.waiting()) == after.accepted - 40


def test_deleted_records_are_skipped_and_logged(
    spark: SparkSession, place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """Between two runs of a pipe, and while it runs, between two of its polls."""
    with Scene(place, partitions=1) as scene:
        settings = scene.settings()
        with Pipe(settings, spark):
            scene.wait_out([scene.send("first", now_ms())])
            lost = _lose(scene)
            scene.wait_out([scene.send("second", now_ms())])
        lost += _lose(scene)
        with Pipe(settings, spark):
            scene.wait_out([scene.send("last", now_ms())])
        said = [each.getMessage() for each in caplog.records if "are lost" in each.getMessage()]
        positions = [each.account.position for each in scene.status().partitions]
        assert positions == [3 + lost]
        # While it runs, the worker that reads them says so, in the log of its own process.
        assert said
        assert sum(int(each.split()[0]) for each in said) <= 3 + lost - scene.tally.total


def _lose(scene: Scene) -> int:
    """Records that retention deletes, as far as the pipe does not come before it."""
    count = 3
    scene.send_all(spread(scene, f"lost-{now_ms()}-", [now_ms() + HOUR_MS] * count))
    scene.place.truncate(scene.input, 0)
    return count
