"""A worker that hangs: what other tasks serve goes on, and they serve its messages too."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

import psutil  # type: ignore[import-untyped]  # it ships no types
import pytest
from pyspark.sql import SparkSession

from chronoline.pipe.lane_tasks import LaneTask, lane_tasks
from chronoline.pipe.spark.pipe import Pipe
from tests.spark.pipes.places import OnServers
from tests.spark.pipes.scene import Scene, now_ms, over, spread, until

pytestmark = pytest.mark.timeout(300)


def test_frozen_worker_stops_no_other_and_is_replaced(
    servers: OnServers, spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    with Scene(servers) as scene:
        # Much is held at any moment, and lapses soon.
        settings = scene.settings(ranges=2, hold_ms=1_500, reserve_ahead_ms=400)
        with Pipe(settings, spark) as pipe:
            until(lambda: len({each.share for each in _serving(pipe, scene)}) == 2, "both serve")
            holder: list[tuple[LaneTask, psutil.Process]] = []
            tags = scene.send_all(spread(scene, "m", over(8_000, 1_600)))
            scene.wait_out(tags[:200])
            until(lambda: _freeze_a_holder(pipe, scene, holder), "a task that holds messages")
            first, frozen = holder[0]
            try:
                scene.wait_out(tags)  # those that it held, and those of its piece, by the others
                assert frozen.status() == psutil.STATUS_STOPPED
                # Its lane waits for it, and is replaced; the other lane serves on meanwhile.
                until(lambda: pipe.counters.restarts, "the lane is restarted")
            finally:
                with suppress(psutil.NoSuchProcess):
                    frozen.resume()
            until(partial(_has_begun, pipe, scene, first), "the lane serves again")
            tags = scene.send_all(spread(scene, "after", over(2_000, 100)))
            scene.wait_out(tags)
            twice = scene.account()
            until(lambda: pipe.counters.redelivered >= twice.total(), "the repeated are counted")
            until(lambda: pipe.counters.fired >= 1_700, "all are counted")
        assert f"suspected failure of {first.name}: " in caplog.text
        assert scene.letters() == []
        assert scene.held() == 0
        assert lane_tasks(scene.store, pipe.topic) == []


def _serving(pipe: Pipe, scene: Scene) -> list[LaneTask]:
    return [each for each in lane_tasks(scene.store, pipe.topic) if each.serves(now_ms())]


def _freeze_a_holder(
    pipe: Pipe, scene: Scene, holder: list[tuple[LaneTask, psutil.Process]]
) -> bool:
    """Freezes the process of a task, if it holds messages then: others take them over."""
    task = min(_serving(pipe, scene), key=lambda each: each.turn, default=None)
    if task is None:
        return False
    process = psutil.Process(int(task.process.rpartition(":")[2]))
    process.suspend()
    if scene.store.select_held(pipe.topic.uid, task.name, limit=1).messages:
        holder.append((task, process))
    else:
        process.resume()
    return bool(holder)


def _has_begun(pipe: Pipe, scene: Scene, before: LaneTask) -> bool:
    return any(
        each.lane == before.lane and each.first > before.first for each in _serving(pipe, scene)
    )
