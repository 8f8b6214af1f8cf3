"""Pipes that share the work, are killed, taken over from, and told to stop: each a process of its own."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path

import pytest

from chronoline.testing import jars
from tests.spark.pipes.child import Child, flags
from tests.spark.pipes.places import Embedded, OnServers
from tests.spark.pipes.scene import HOUR_MS, ID, Scene, now_ms, spread, until

pytestmark = pytest.mark.timeout(600)


def test_pipes_share_the_work_and_take_over_from_those_that_are_killed(
    servers: OnServers, tmp_path: Path
) -> None:
    with Scene(servers, partitions=4) as scene, ExitStack() as exits:

        def start() -> Child:
            # Much is held at any moment, and lapses soon.
            settings = scene.flags(hold_ms=2_000, reserve_ahead_ms=400)
            settings["spark"] = {"jars": jars.resolve("spark-kafka")}
            return exits.enter_context(Child(tmp_path, "run", *flags(settings)))

        one, two = start(), start()
        nodes = {one.wait_running(), two.wait_running()}
        until(lambda: _holders(scene) == nodes, "each has its share of the input")

        # Two that are well.
        scene.wait_out(scene.send_all(spread(scene, "well", _over(4_000, 600))))
        assert not scene.account()
        until(lambda: len(_busy(scene)) == 2, "both have fired")

        # The driver of one of them is killed.
        tags = scene.send_all(spread(scene, "one", _over(6_000, 600)))
        scene.wait_out(tags[:50])
        one.kill()
        scene.wait_out(tags)
        twice = scene.account()
        assert _ids(scene, twice) <= _suspected(two)

        # The other is killed with everything that it started, and nobody is left.
        tags = scene.send_all(spread(scene, "two", _over(6_000, 600)))
        scene.wait_out(tags[:50])
        two.kill_all()
        tags += scene.send_all(spread(scene, "alone", _over(2_000, 100)))
        three = start()
        last = three.wait_running()
        scene.wait_out(tags)
        twice = scene.account()
        suspected = _suspected(three)
        assert suspected
        assert _ids(scene, twice) <= _suspected(two) | suspected

        # SIGTERM: what is far is left as it is, and nothing is held.
        far = scene.send_all(spread(scene, "far", [now_ms() + HOUR_MS] * 10))
        soon = scene.send_all(spread(scene, "soon", _over(3_000, 300)))
        scene.wait_out(soon[:50])
        assert three.terminate() == 0, three.words
        assert scene.held() == 0
        assert set(far) <= set(scene.waiting())
        assert _holders(scene) == {None}
        assert last not in [node.name for node in scene.status().nodes]
        scene.account()


def test_a_pipe_whose_spark_dies_says_so_and_ends(embedded: Embedded, tmp_path: Path) -> None:
    with Scene(embedded) as scene, Child(tmp_path, "run", *flags(scene.flags())) as child:
        node = child.wait_running()
        fired, far = scene.send("fired", now_ms()), scene.send("far", now_ms() + HOUR_MS)
        scene.wait_out([fired])
        until(lambda: set(scene.waiting()) == {far}, "what was fired is deleted")
        child.kill_spark()
        assert child.wait() == 1
        assert "Spark has died" in child.words
        assert "start the pipe again" in child.words
        assert node not in [each.name for each in scene.status().nodes]
        assert _holders(scene) == {None}
        assert not scene.account()


def _over(ms: int, count: int) -> list[int]:
    """Moments that lie evenly in a time that begins soon."""
    start_ms = now_ms() + 1_500
    return [start_ms + ms * number // count for number in range(count)]


def _holders(scene: Scene) -> set[str | None]:
    return {each.account.holder for each in scene.status().partitions}


def _busy(scene: Scene) -> list[str]:
    return [node.name for node in scene.status().nodes if node.counters.fired]


def _ids(scene: Scene, tags: object) -> set[str]:
    assert isinstance(tags, dict)
    return {(dict(scene.sent[tag].headers)[ID] or b"").decode() for tag in tags}


def _suspected(child: Child) -> set[str]:
    """The messages that it took over, as it said."""
    return set(re.findall(r"suspected failure of [0-9a-f-]{36} for message (\S+)", child.words))
