"""Pipes that share the work, are killed, and taken over from: each a process of its own."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.spark.pipes.child import Child, flags
from tests.spark.pipes.places import OnServers
from tests.spark.pipes.scene import HOUR_MS, Scene, now_ms, over, spread, until

pytestmark = pytest.mark.timeout(600)


def test_pipes_share_work_and_replace_killed_ones(servers: OnServers, tmp_path: Path) -> None:
    with Scene(servers, partitions=4) as scene, ExitStack() as exits:

        def start() -> Child:
            # Much is held at any moment, and lapses soon.
            settings = scene.flags(hold_ms=2_000, reserve_ahead_ms=400)
            return exits.enter_context(Child(tmp_path, "run", *flags(settings)))

        one, two = start(), start()
        nodes = {one.wait_running(), two.wait_running()}
        until(lambda: scene.holders() == nodes, "each has its share of the input")

        # Two that are well.
        scene.wait_out(scene.send_all(spread(scene, "well", over(2_000, 300))))
        # On a busy machine a hold may lapse, which the one that takes over says.
        until_suspected(len(scene.account()), one, two)
        until(lambda: len(_busy(scene)) == 2, "both have fired")

        # The driver of one of them is killed.
        tags = scene.send_all(spread(scene, "one", over(4_000, 400)))
        scene.wait_out(tags[:50])
        one.kill_driver()
        scene.wait_out(tags)
        twice = scene.account()
        until_suspected(len(twice), two)

        # The other is killed with everything that it started, and nobody is left.
        tags = scene.send_all(spread(scene, "two", over(4_000, 400)))
        scene.wait_out(tags[:50])
        two.kill()
        tags += scene.send_all(spread(scene, "alone", over(2_000, 100)))
        three = start()
        last = three.wait_running()
        scene.wait_out(tags)
        twice = scene.account()
        until_suspected(1, three)
        until_suspected(len(twice), two, three)

        # The Spark of the last dies: it says so and ends, and leaves nothing behind.
        far = scene.send("far", now_ms() + HOUR_MS)
        until(lambda: set(scene.waiting()) == {far}, "all else is fired and deleted")
        three.kill_spark()
        assert three.wait() == 1
        assert "Spark has died" in three.log
        assert "start the pipe again" in three.log
        assert last not in [node.name for node in scene.status().nodes]
        assert scene.holders() == {None}
        assert scene.account() == twice


def _busy(scene: Scene) -> list[str]:
    return [node.name for node in scene.status().nodes if node.counters.fired]


def until_suspected(number: int, *children: Child) -> None:
    """Waits until they have said that they took over at least this number of messages."""

    def is_said() -> bool:
        said = "".join(child.log for child in children)
        counts = re.findall(r"suspected failure of \S+: (\d+) of its messages", said)
        return sum(map(int, counts)) >= number

    until(is_said, f"{number} messages were taken over")
