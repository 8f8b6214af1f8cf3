"""The servers of a run, and the scenes that are set up on them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace

from chronoline.core.closing import Closing
from chronoline_bench.engines.postgres import PostgresEngine
from chronoline_bench.pipes.child import Child
from chronoline_bench.pipes.passage import Passage
from chronoline_bench.pipes.scene import AnySide, Scene
from chronoline_bench.pipes.sides import PipeSide, PublishedSide
from chronoline_bench.report import Wanted
from chronoline_bench.servers.kafka import KafkaServer
from chronoline_bench.session import Session
from chronoline_bench.tally import Tally

PUBLISHED = "the published algorithm"
CONTROL = "the control"
NONE = Wanted(value_at_most=0)
_JOBS = "chronoline_bench.pipes.jobs"
_JOB_S = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Delays:
    """Deadlines lie so far ahead, evenly spread."""

    shortest_ms: int = 3_000
    longest_ms: int = 10_000

    def seconds(self, steady_s: float) -> float:
        """How long a load must last so that for so long as much falls due as is published."""
        return (self.longest_ms - self.shortest_ms) / 1000 + steady_s


class Stage(Closing):
    """Kafka and PostgreSQL for a whole run; each scene has topics and a database of its own."""

    def __init__(self, session: Session, delays: Delays) -> None:
        self.session = session
        self.delays = delays
        self.published_tally = Tally()
        """What the published algorithm lost, repeated or gave out early: no fault of ours."""
        with ExitStack() as opened:
            self.kafka = opened.enter_context(KafkaServer(session.folder / "kafka"))
            self.postgres = opened.enter_context(PostgresEngine(session.folder))
            self._opened = opened.pop_all()

    def close(self) -> None:
        self._opened.close()

    # Scenes

    @contextmanager
    def pipe(
        self, name: str, case: str, *, side: PipeSide | None = None, may_repeat: bool = False
    ) -> Iterator[Scene[PipeSide]]:
        """A scene for our pipe. At its end a row says what was lost, came twice or early.

        Where a server is taken away a message may come twice: that is in its row, and no failure.
        """
        tally = Tally()
        side = side or PipeSide(self.postgres, name)
        with Scene(self.kafka, side, self.session.folder, name, tally) as scene:
            yield scene
        if tally.lost:
            self.session.notes.append(f"the last words of {name}:\n{scene.last_words}")
        self.session.add(case, "lost or early", tally.lost + tally.early, "messages", wanted=NONE)
        wanted = None if may_repeat else NONE
        self.session.add(case, "came twice", tally.duplicated, "messages", wanted=wanted)
        self._merge(self.session.tally, replace(tally, duplicated=0) if may_repeat else tally)

    @contextmanager
    def published(self, name: str) -> Iterator[Scene[PublishedSide]]:
        """A scene for the published algorithm."""
        side = PublishedSide(self.postgres.server, name)
        with Scene(self.kafka, side, self.session.folder, name, self.published_tally) as scene:
            yield scene

    def steady(self, scene: Scene[AnySide], rate: int, steady_s: float) -> Passage:
        """A load at a rate that is steady for so long at the output."""
        return scene.run(
            count=round(rate * self.delays.seconds(steady_s)), rate=rate, **asdict(self.delays)
        )

    def job(self, kind: str, **arguments: object) -> dict[str, list[float]]:
        """Runs a Spark job in a process of its own; the figures that it answers."""
        log_path = self.session.folder / f"{kind}.said"
        with Child(_JOBS, kind, json.dumps(arguments), log_path=log_path) as child:
            answer: dict[str, list[float]] = json.loads(child.await_line("{", _JOB_S))
        return answer

    @staticmethod
    def _merge(total: Tally, tally: Tally) -> None:
        total.lost += tally.lost
        total.duplicated += tally.duplicated
        total.early += tally.early
