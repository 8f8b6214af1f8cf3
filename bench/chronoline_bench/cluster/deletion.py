"""The case `deletion`: a topic is deleted at a broker, and its name is used again."""

from __future__ import annotations

import time
from dataclasses import dataclass

from chronoline.client import Client
from chronoline.core.errors import ChronolineError, TopicExists
from chronoline.stores.factory import open_store
from chronoline.testing.cluster import LocalCluster
from chronoline_bench.engines.postgres import fill_table
from chronoline_bench.report import Wanted
from chronoline_bench.session import Session
from chronoline_bench.workload import Filling

FREE = Wanted(value_at_most=30)
_TOPIC, _OTHER = "deleted", "other"
_PATIENCE_S = 120.0
_LOOK_EVERY_S = 0.02
_HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionSizes:
    messages: int


@dataclass(frozen=True, slots=True)
class Deletion:
    answered_s: float
    free_s: float
    """From the deletion until a topic of that name could be created."""
    slowest_send_s: float
    """The slowest send to another topic meanwhile."""


def measure_deletion(session: Session, sizes: DeletionSizes) -> None:
    with (
        session.show.work("deleting a topic", sizes.messages) as advance,
        LocalCluster(session.folder / "deletion", 1) as cluster,
        Client(cluster.addresses) as client,
    ):
        client.create_topic(_TOPIC)
        client.create_topic(_OTHER)
        with open_store(cluster.store) as store:
            topic = store.find_topic(_TOPIC)
            assert topic is not None
            now_ms = time.time_ns() // 1_000_000
            filling = Filling(
                total=sizes.messages,
                start_ms=now_ms + _HOUR_MS,
                span_ms=_HOUR_MS,
                now_ms=now_ms,
            )
            fill_table(cluster.store, topic, filling, advance)
        found = _delete(client)
    report_deletion(session, sizes, found)


def _delete(client: Client) -> Deletion:
    began_s = time.monotonic()
    client.delete_topic(_TOPIC)
    answered_s = time.monotonic() - began_s
    slowest_s = 0.0
    while True:
        sent_s = time.monotonic()
        client.send(_OTHER)
        slowest_s = max(slowest_s, time.monotonic() - sent_s)
        try:
            client.create_topic(_TOPIC)
        except TopicExists:
            if time.monotonic() - began_s > _PATIENCE_S:
                raise ChronolineError(f"the name was not free within {_PATIENCE_S:g} s") from None
            time.sleep(_LOOK_EVERY_S)  # another process sends no signal
        else:
            return Deletion(answered_s, time.monotonic() - began_s, slowest_s)


def report_deletion(session: Session, sizes: DeletionSizes, found: Deletion) -> None:
    case = f"deleting a topic of {sizes.messages:,} messages at a broker"
    session.add(case, "the user is answered after", found.answered_s * 1_000, "ms")
    session.add(case, "its name is free after", found.free_s, "s", wanted=FREE)
    session.add(case, "slowest send to another topic meanwhile", found.slowest_send_s * 1_000, "ms")
