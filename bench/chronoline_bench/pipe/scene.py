"""A scene: two topics, the side between them, and their agents.

A scene counts lost and duplicated messages when it is closed, since a message may come late, or again after
its load has ended.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Generic, TypeVar

from chronoline.runtime.control import Control
from chronoline.runtime.service import Closable
from chronoline_bench.harness.agent import Figures
from chronoline_bench.harness.passage import Arrivals, Passage, count_up, take_pairs
from chronoline_bench.harness.stage import Stage, await_count
from chronoline_bench.pipe import agent
from chronoline_bench.pipe.agent import Load
from chronoline_bench.pipe.sides import Side, Topics
from chronoline_bench.servers.kafka import KafkaServer
from chronoline_bench.tally import Tally

PARTITIONS = 4
QUIET_S = 20.0
"""A message is lost if none came for this time: the hold of a dead node, and a retry."""
_START_S = 180.0
_LOAD_S = 600.0
_SETTLE_S = 1.0

AnySide = TypeVar("AnySide", bound=Side)


class Scene(Closable, Generic[AnySide]):
    """The topics of one side, with a watcher of the output."""

    def __init__(
        self, stage: Stage, kafka: KafkaServer, side: AnySide, name: str, tally: Tally
    ) -> None:
        self.side = side
        self.name = name
        self.stage = stage
        self._tally = tally
        self._topics = Topics(bootstrap=kafka.bootstrap, input=f"{name}.in", output=f"{name}.out")
        for topic in (self._topics.input, self._topics.output):
            kafka.create_topic(topic, PARTITIONS)
        self._arrivals = Arrivals()
        self._due_us: dict[int, int] = {}
        with ExitStack() as opened:
            opened.callback(side.close)
            self.loader = opened.enter_context(stage.new_agent(agent))
            self._watcher = opened.enter_context(stage.new_agent(agent))
            self._watcher.ask("watch", bootstrap=self._topics.bootstrap, topic=self._topics.output)
            opened.callback(self._settle)
            self._opened = opened.pop_all()

    def close(self) -> None:
        self._opened.close()

    @contextmanager
    def serving(self, nodes: int = 1) -> Iterator[None]:
        """Runs nodes within the block, warmed up by a few messages."""
        with ExitStack() as opened:
            started = [
                opened.enter_context(self.stage.new_agent(self.side.agent)) for _ in range(nodes)
            ]
            for node in started:
                node.begin("serve", **self.side.arguments(self._topics))
            for node in started:
                node.answer(_START_S)
            self.run(count=200, rate=200, shortest_ms=200, longest_ms=1_500)
            yield

    def run(self, **load: Any) -> Passage:
        """Publishes a load, and waits until it has come out, or no more messages come."""
        return self.begin(**load).finish()

    def begin(self, *, count: int, **load: Any) -> Flight:
        """Starts to publish a load in the background."""
        made = Load(
            bootstrap=self._topics.bootstrap,
            topic=self._topics.input,
            path=str(self.stage.path()),
            first=self.stage.reserve(count),
            count=count,
            scene=self.name,
            **load,
        )
        return Flight(self, made)

    def expect_later(self, due_us: Mapping[int, int]) -> None:
        """Expects these messages: those that have not come at the end are lost."""
        self._due_us |= due_us

    def expect(self, due_us: Mapping[int, int]) -> Arrivals:
        """Waits until these have come, or no more messages come; returns all arrivals."""
        self.expect_later(due_us)
        missing = due_us.keys() - self._arrivals.first_us.keys()
        while missing:
            wait_s = max(0.0, max(due_us.values()) / 1_000_000 - time.time())
            have_come = await_count(
                lambda: int(self._watcher.ask("count")["came"]),
                self._arrivals.times.total() + len(missing),
                quiet_s=QUIET_S,
                busy_until_s=time.monotonic() + wait_s,
            )
            self._take()
            missing -= self._arrivals.first_us.keys()
            if not have_come:
                break
        return self._arrivals

    def _take(self) -> None:
        path = self.stage.path()
        self._watcher.ask("take", path=str(path))
        self._arrivals.add(take_pairs(path))

    def _settle(self) -> None:
        time.sleep(_SETTLE_S)  # for messages that come twice
        self._take()
        self._tally.add(count_up(self._due_us, self._arrivals))


class Flight:
    """A load in progress, beside the control."""

    def __init__(self, scene: Scene[Any], load: Load) -> None:
        self._scene = scene
        self._load = load
        self._control = Control()
        self._control.start()
        scene.loader.begin("load", **asdict(load))

    def leave(self) -> Figures:
        """Waits until all messages are published; they are due far ahead and not expected to come out."""
        try:
            return self._scene.loader.answer(_LOAD_S)
        finally:
            self._control.stop()

    def finish(self) -> Passage:
        """Waits until all messages have come out."""
        try:
            sent = self._scene.loader.answer(_LOAD_S)
            due_us = dict(take_pairs(Path(self._load.path)))
            arrivals = self._scene.expect(due_us)
        finally:
            self._control.stop()
        started_us, ended_us = int(sent["started_us"]), int(sent["ended_us"])
        load = self._load
        return Passage(
            started_us=started_us,
            ended_us=ended_us,
            steady_us=(started_us + load.longest_ms * 1_000, ended_us + load.shortest_ms * 1_000),
            due_us=due_us,
            arrivals=arrivals.of(due_us),
            control=self._control.lateness,
        )
