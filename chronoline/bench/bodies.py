"""The bench `bodies`: from which size on bodies should lie apart from the rows that move.

A lease rewrites its row. A body inside it is rewritten too; one apart costs a second read, a second write
when it is created and a second delete. The border lies where the one begins to cost more than the other.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from chronoline.bench.engines.contract import Database, Engine, Place
from chronoline.bench.engines.postgres import PostgresEngine
from chronoline.bench.engines.sqlite import SqliteEngine
from chronoline.bench.messages import in_batches, make_due
from chronoline.bench.report import Row
from chronoline.bench.rounds import Stopwatch, interleave
from chronoline.bench.serving import SERVE_BATCH, serve
from chronoline.bench.session import Session
from chronoline.bench.tally import Served
from chronoline.core.topic import Topic

KIB = 1024
BODY_SIZES = (256, KIB, 2 * KIB, 4 * KIB, 8 * KIB, 16 * KIB, 64 * KIB)
PLACES: tuple[Place, ...] = ("inline", "apart")
LIFE = "create + lease + ack"
SERVE = "lease + ack"


@dataclass(frozen=True, slots=True, kw_only=True)
class BodySizes:
    rounds: int
    messages: int
    """In each round; fewer if their bodies are large."""
    most_bytes: int
    sizes: Sequence[int] = BODY_SIZES

    def count(self, body_bytes: int) -> int:
        return max(1, min(self.messages, self.most_bytes // body_bytes))


FULL = BodySizes(rounds=9, messages=2_000, most_bytes=32 * KIB * KIB)
QUICK = BodySizes(rounds=5, messages=500, most_bytes=4 * KIB * KIB)
NOTE = (
    "PostgreSQL keeps bodies inline up to about 2 KiB and apart from about 8 KiB on, whatever it is asked"
    " for: below and above, both figures measure the same"
)


def measure(session: Session) -> None:
    sizes = QUICK if session.quick else FULL
    session.notes.append(NOTE)
    with PostgresEngine(session.folder) as postgres:
        engines: Sequence[Engine] = (SqliteEngine(session.folder), postgres)
        for engine in engines:
            measure_engine(session, engine, sizes)


def measure_engine(session: Session, engine: Engine, sizes: BodySizes) -> None:
    """Every size, kept inline and apart in turn; then where the border lies by these figures."""
    ratios: dict[str, dict[int, float]] = {LIFE: {}, SERVE: {}}
    for body_bytes in sizes.sizes:
        rates = _measure_size(session, engine, body_bytes, sizes)
        for metric, values in rates.items():
            ratios[metric][body_bytes] = values["apart"] / values["inline"]
            session.rows.append(
                Row(
                    case=f"{engine.name}: bodies of {_size(body_bytes)}",
                    metric=f"{metric}, body apart",
                    value=values["apart"],
                    unit="messages/s",
                    reference="body inline",
                    reference_value=values["inline"],
                )
            )
    for metric, by_size in ratios.items():
        session.notes.append(f"{engine.name}, {metric}: {_border(by_size)}")


def _measure_size(
    session: Session, engine: Engine, body_bytes: int, sizes: BodySizes
) -> dict[str, dict[Place, float]]:
    count = sizes.count(body_bytes)
    lives: dict[Place, list[_Life]] = {place: [] for place in PLACES}
    name = f"bodies_{body_bytes}"
    title = f"{engine.name}: bodies of {_size(body_bytes)}"
    # A database for each place: the one must not clean up after the other.
    with engine.open(f"{name}_inline") as inline, engine.open(f"{name}_apart") as apart:
        databases: dict[Place, Database] = {"inline": inline, "apart": apart}
        measures: dict[str, Callable[[], float]] = {
            place: _living(session, database, place, (count, body_bytes), lives[place])
            for place, database in databases.items()
        }
        with session.show.work(title, (sizes.rounds + 1) * len(measures)) as advance:
            interleave(sizes.rounds, measures, after_each=lambda: advance(1))
    return {
        LIFE: {
            place: count / median(life.create_s + life.serve_s for life in lives[place][1:])
            for place in PLACES
        },
        SERVE: {
            place: count / median(life.serve_s for life in lives[place][1:]) for place in PLACES
        },
    }


@dataclass(frozen=True, slots=True)
class _Life:
    """How long some messages took from the create to the ack."""

    create_s: float
    serve_s: float


def _living(
    session: Session, database: Database, place: Place, load: tuple[int, int], lives: list[_Life]
) -> Callable[[], float]:
    """A measure that notes each of its rounds in `lives`, the warm-up too."""
    topic = database.store.create_topic("bodies", now_ms=session.clock.now_ms())

    def live() -> float:
        with database.keeping_bodies(place):
            lives.append(_live(session, database, topic, load))
        return lives[-1].serve_s

    return live


def _live(session: Session, database: Database, topic: Topic, load: tuple[int, int]) -> _Life:
    count, body_bytes = load
    now_ms = session.clock.now_ms()
    messages = make_due(count, now_ms, body_bytes)
    watch = Stopwatch()
    gc.collect()
    for batch in in_batches(messages, SERVE_BATCH):
        with watch.running():
            outcomes = database.store.create(topic.uid, batch, now_ms=now_ms)
        session.tally.expect_done(outcomes)
    served = Served(session.tally)
    batches_s = serve(database.store, topic, session.clock, served, most=2 * count)
    served.expect({message.id for message in messages})
    return _Life(watch.seconds, sum(batches_s))


def _border(ratios: dict[int, float]) -> str:
    """From which size on bodies apart are never the slower choice."""
    border = None
    for body_bytes, ratio in sorted(ratios.items(), reverse=True):
        if ratio < 1:
            break
        border = body_bytes
    if border is None:
        return "inline was the faster at the largest size that was measured"
    return f"apart was the faster from {_size(border)} on"


def _size(body_bytes: int) -> str:
    return f"{body_bytes // KIB} KiB" if body_bytes >= KIB else f"{body_bytes} B"
