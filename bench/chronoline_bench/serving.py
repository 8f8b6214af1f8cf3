"""Consuming what is due, batch by batch: lease, then ack."""

from __future__ import annotations

import time

from chronoline.core.topic import Topic
from chronoline.runtime.clock import Clock
from chronoline.stores.contract import Store
from chronoline_bench.tally import Served

SERVE_BATCH = 500
CONSUMER = "bench"
LEASE_MS = 30_000


def serve(store: Store, topic: Topic, clock: Clock, served: Served, most: int) -> list[float]:
    """Leases and acks up to `most` messages that are due; the seconds that each batch took.

    What was served is noted outside of that time.
    """
    batches_s: list[float] = []
    left = most
    while left > 0:
        started = time.perf_counter()
        now_ms = clock.now_ms()
        grant = store.reserve(
            topic.uid,
            topic.all_buckets,
            consumer=CONSUMER,
            limit=min(SERVE_BATCH, left),
            lease_ms=LEASE_MS,
            now_ms=now_ms,
        )
        if not grant.leased:
            break
        leases = [leased.lease for leased in grant.leased]
        acked = store.ack(topic.uid, leases, now_ms=clock.now_ms())
        batches_s.append(time.perf_counter() - started)
        served.add(grant, acked, now_ms)
        left -= len(grant.leased)
    return batches_s
