"""Creates in batches beside the raw engine; leases and acks beside the creates."""

from __future__ import annotations

import gc
from dataclasses import dataclass

from chronoline.core.topic import Topic, TopicSettings
from chronoline_bench.engines.contract import Database, Engine, insert_batches
from chronoline_bench.report import Wanted
from chronoline_bench.rounds import Stopwatch, in_turn, medians
from chronoline_bench.session import Session
from chronoline_bench.tally import Served
from chronoline_bench.workload import (
    BODY_BYTES,
    SERVE_BATCH,
    count_all,
    in_batches,
    make_due,
    make_waiting,
    serve,
)

CREATE_BATCH = 1_000
CREATE_FLOOR = Wanted(at_least=0.5)
SERVE_FLOOR = Wanted(at_least=0.3)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSizes:
    rounds: int
    messages: int
    """Messages in each round, by each measure."""


def measure_batches(session: Session, engine: Engine, sizes: BatchSizes) -> None:
    """Measures create, raw insert, and lease + ack with and without the dedupe time, in turn."""
    with engine.open("batches") as own, engine.open("batches_raw") as raw:
        now_ms = session.clock.now_ms()
        topics = {
            "waiting": own.store.create_topic("waiting", now_ms=now_ms),
            "dedupe": own.store.create_topic("dedupe", now_ms=now_ms),
            "no dedupe": own.store.create_topic(
                "no dedupe", TopicSettings(dedupe_ms=0), now_ms=now_ms
            ),
        }
        work = _Batches(session, own, sizes.messages)
        title = f"{engine.name}: batches"
        measures = {
            "create": lambda: work.create(topics["waiting"]),
            "raw": lambda: insert_batches(raw, topics["waiting"], sizes.messages, CREATE_BATCH),
            "dedupe": lambda: work.serve(topics["dedupe"]),
            "no dedupe": lambda: work.serve(topics["no dedupe"]),
        }
        rates = medians(in_turn(session, title, sizes.rounds, measures))
        created = (sizes.rounds + 1) * sizes.messages
        found = count_all(own.store, topics["waiting"], session.clock.now_ms())
        session.tally.expect(created, found)
        _report(session, engine, raw.bulk_name, rates)


class _Batches:
    def __init__(self, session: Session, own: Database, messages: int) -> None:
        self._session = session
        self._own = own
        self._messages = messages

    def create(self, topic: Topic) -> float:
        now_ms = self._session.clock.now_ms()
        batches = list(in_batches(make_waiting(self._messages, now_ms), CREATE_BATCH))
        watch = Stopwatch()
        gc.collect()
        for batch in batches:
            with watch.running():
                outcomes = self._own.store.create(topic.uid, batch, now_ms=now_ms)
            self._session.tally.expect_done(outcomes)
        return self._messages / watch.seconds

    def serve(self, topic: Topic) -> float:
        now_ms = self._session.clock.now_ms()
        messages = make_due(self._messages, now_ms)
        for batch in in_batches(messages, CREATE_BATCH):
            outcomes = self._own.store.create(topic.uid, batch, now_ms=now_ms)
            self._session.tally.expect_done(outcomes)
        served = Served(self._session.tally)
        gc.collect()
        batches_s = serve(
            self._own.store, topic, self._session.clock, served, most=2 * self._messages
        )
        served.expect({message.id for message in messages})
        return self._messages / sum(batches_s)


def _report(session: Session, engine: Engine, bulk_name: str, rates: dict[str, float]) -> None:
    case = f"{engine.name}: batches"
    session.add(
        case,
        f"create, batches of {CREATE_BATCH:,}, bodies of {BODY_BYTES} bytes",
        rates["create"],
        "messages/s",
        beside=(bulk_name, rates["raw"]),
        wanted=CREATE_FLOOR,
    )
    for name in ("dedupe", "no dedupe"):
        session.add(
            case,
            f"lease + ack, batches of {SERVE_BATCH}, {name}",
            rates[name],
            "messages/s",
            beside=("create", rates["create"]),
            wanted=SERVE_FLOOR,
        )
