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

from chronoline.runtime.child_process import LineProcess
from chronoline.runtime.control import Control
from chronoline.runtime.service import Closable
from chronoline_bench.harness.agent import AgentProcess, Figures
from chronoline_bench.harness.cores import CoreMeter, Part, is_jvm, is_no_jvm
from chronoline_bench.harness.passage import Arrivals, Passage, count_up, take_pairs
from chronoline_bench.harness.slices import SECOND_US
from chronoline_bench.harness.stage import Stage, await_count
from chronoline_bench.pipe import agent
from chronoline_bench.pipe.agent import Load
from chronoline_bench.pipe.sides import Side
from chronoline_bench.pipe.transport import Place, Topics
from chronoline_bench.tally import Tally

PARTITIONS = 4
QUIET_S = 60.0
"""A message is lost if none came for this time: a cold start on a busy machine takes almost as long."""
_LOAD_S = 1_800.0
_SETTLE_S = 1.0

AnySide = TypeVar("AnySide", bound=Side)


class Scene(Closable, Generic[AnySide]):
    """The topics of one side, with a watcher of the output."""

    def __init__(
        self,
        stage: Stage,
        place: Place,
        side: AnySide,
        name: str,
        tally: Tally,
        *,
        partitions: int = PARTITIONS,
    ) -> None:
        self.side = side
        self.name = name
        self.stage = stage
        self.started_s = 0.0
        """The seconds from the last start of its nodes until all said that they run."""
        self._tally = tally
        self._topics = Topics(place=place.url, input=f"{name}.in", output=f"{name}.out")
        place.create_topic(self._topics.input, partitions)
        place.create_topic(self._topics.output, PARTITIONS)
        self._nodes: list[LineProcess] = []
        self._arrivals = Arrivals()
        self._due_us: dict[int, int] = {}
        with ExitStack() as opened:
            opened.callback(side.close)
            self.loader = opened.enter_context(stage.new_agent(agent))
            self._watcher = opened.enter_context(stage.new_agent(agent))
            self._watcher.ask("watch", place=self._topics.place, topic=self._topics.output)
            opened.callback(self._settle)
            self._opened = opened.pop_all()

    def close(self) -> None:
        self._opened.close()

    @contextmanager
    def serving(self, nodes: int = 1, *, cold: bool = False) -> Iterator[list[LineProcess]]:
        """Runs nodes within the block, warmed up by a few messages, or cold: from their first moment on."""
        before_s = time.monotonic()
        with ExitStack() as opened:
            self._nodes = [opened.enter_context(self.start_node()) for _ in range(nodes)]
            for node in self._nodes:
                self.side.await_node(node)
            self.started_s = time.monotonic() - before_s
            if not cold:
                self.run(count=200, rate=200, shortest_ms=200, longest_ms=1_500)
            yield self._nodes

    def start_node(self) -> LineProcess:
        """Starts one more node, which the caller stops."""
        return self.side.start_node(self.stage, self._topics)

    @property
    def logs(self) -> list[str]:
        """The logs of its nodes."""
        return [node.log for node in self._nodes]

    def parts(self) -> dict[str, Part]:
        """Returns the processes of each part of a measurement."""
        servers = self.stage.server_pids().items()
        nodes = [node.pid for node in self._nodes if node.pid is not None]
        load = [each.pid for each in (self.loader, self._watcher) if each.pid is not None]
        return {
            **{name: Part(pids=[pid]) for name, pid in servers},
            "Spark's JVM": Part(pids=nodes, wanted=is_jvm),
            "the pipe's Python": Part(pids=nodes, wanted=is_no_jvm),
            "load and watcher": Part(pids=load),
        }

    def run(self, **load: Any) -> Passage:
        """Publishes a load, and waits until it has come out, or no more messages come."""
        return self.begin(**load).finish()

    def begin(self, *, count: int, loader: AgentProcess | None = None, **load: Any) -> Flight:
        """Starts to publish a load in the background, by another loader if the scene's is busy."""
        made = Load(
            place=self._topics.place,
            topic=self._topics.input,
            path=str(self.stage.path()),
            first=self.stage.reserve(count),
            count=count,
            scene=self.name,
            **load,
        )
        return Flight(self, made, loader or self.loader)

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

    def __init__(self, scene: Scene[Any], load: Load, loader: AgentProcess) -> None:
        self._scene = scene
        self._load = load
        self._loader = loader
        self._sent: Figures | None = None
        self._answers = 1
        self._cores: dict[str, float] = {}
        self._control = Control()
        self._control.start()
        self._meter = CoreMeter(scene.parts())
        loader.begin("load", **asdict(load))

    def end(self) -> None:
        """Ends a load with a rate before all of its messages are published."""
        self._loader.begin("end_load")
        self._answers += 1

    def await_sent(self) -> Figures:
        """Waits until all messages are published."""
        if self._sent is None:
            self._sent = {}
            for _ in range(self._answers):  # only that of the load has figures
                self._sent |= self._loader.answer(_LOAD_S)
            self._cores = self._meter.read()
        return self._sent

    def leave(self) -> Figures:
        """Waits until all messages are published; they are due far ahead and not expected to come out."""
        try:
            return self.await_sent()
        finally:
            self._control.stop()

    def finish(self) -> Passage:
        """Waits until all messages have come out."""
        try:
            sent = self.await_sent()
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
            control_points=[
                (round(moment_s * SECOND_US), late_ms)
                for moment_s, late_ms in self._control.samples
            ],
            cores=self._cores,
        )
