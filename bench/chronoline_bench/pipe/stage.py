"""The stage of the bench `pipe`: Kafka, and scenes for the pipe and the polling queue."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial

from chronoline_bench.engines.postgres import drop_database
from chronoline_bench.harness.agent import Figures
from chronoline_bench.harness.passage import Passage
from chronoline_bench.harness.stage import Stage
from chronoline_bench.pipe import jobs
from chronoline_bench.pipe.scene import PARTITIONS, AnySide, Scene
from chronoline_bench.pipe.sides import PipeSide, PollingQueueSide
from chronoline_bench.pipe.transport import KafkaPlace, Place
from chronoline_bench.report import Wanted
from chronoline_bench.servers.kafka import KafkaServer
from chronoline_bench.session import Session
from chronoline_bench.tally import Tally

POLLING_QUEUE = "a polling queue"
NONE = Wanted(value_at_most=0)
_JOB_S = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Delays:
    """The range of the delays, which are evenly spread."""

    shortest_ms: int = 3_000
    longest_ms: int = 10_000

    def seconds(self, steady_s: float) -> float:
        """Returns the duration of a load whose output is steady for `steady_s`."""
        return (self.longest_ms - self.shortest_ms) / 1000 + steady_s


class PipeStage(Stage):
    """Each scene has its own topics and database."""

    def __init__(self, session: Session, delays: Delays) -> None:
        super().__init__(session)
        self.delays = delays

    @cached_property
    def kafka(self) -> KafkaServer:
        return self._opened.enter_context(KafkaServer(self.session.folder / "kafka"))

    def server_pids(self) -> dict[str, int]:
        pids = super().server_pids()
        if "kafka" in vars(self) and self.kafka.pid is not None:
            pids["Kafka"] = self.kafka.pid
        return pids

    @contextmanager
    def pipe(
        self,
        name: str,
        case: str,
        *,
        side: PipeSide | None = None,
        place: Place | None = None,
        partitions: int = PARTITIONS,
        may_repeat: bool = False,
    ) -> Iterator[Scene[PipeSide]]:
        """Opens a scene for the pipe. At its end rows have the counts of lost, duplicated and early messages.

        If a server is taken away, a message may come twice: its row has the count, and it is no failure.
        """
        tally = Tally()
        place = place or KafkaPlace(self.kafka)
        side = side or self._fresh(name)
        with Scene(self, place, side, name, tally, partitions=partitions) as scene:
            yield scene
        if tally.lost:
            for log in scene.logs:
                self.session.notes.append(f"the log of {name} ends with:\n{log[-2_000:]}")
        self.session.add(case, "lost or early", tally.lost + tally.early, "messages", wanted=NONE)
        wanted = None if may_repeat else NONE
        self.session.add(case, "came twice", tally.duplicated, "messages", wanted=wanted)
        self.add_tally(replace(tally, duplicated=0) if may_repeat else tally)

    @contextmanager
    def polling_queue(self, name: str) -> Iterator[Scene[PollingQueueSide]]:
        """Opens a scene for the polling queue."""
        side = PollingQueueSide(self.postgres.server, name)
        with Scene(self, KafkaPlace(self.kafka), side, name, self.peers) as scene:
            yield scene

    def _fresh(self, name: str) -> PipeSide:
        """Returns a pipe with an empty database, without tables."""
        server = self.postgres.server
        url = server.create_database(name)
        return PipeSide(name, url, on_close=partial(drop_database, server, name))

    def steady(self, scene: Scene[AnySide], rate: int, steady_s: float) -> Passage:
        """Runs a load at a rate, which is steady at the output for `steady_s`."""
        return scene.run(
            count=round(rate * self.delays.seconds(steady_s)), rate=rate, **asdict(self.delays)
        )

    def job(self, kind: str, **arguments: object) -> Figures:
        """Runs a Spark job in its own process; returns its figures."""
        with self.new_agent(jobs) as agent:
            return agent.ask(kind, _JOB_S, **arguments)
