"""A process that writes until it is killed, and reports each change: `python -m tests.stores.writer`.

Before a change it says "try", and when the store has answered "done", each time as one line of JSON that is
on its way to the parent before it goes on. The parent relies on the lines with "done".
"""

import json
import sys
from collections.abc import Iterable

from chronoline.core.message import Lease
from chronoline.runtime.clock import SystemClock
from chronoline.stores.contract import Store
from chronoline.stores.factory import open_store
from tests.stores.line import OWNERS, new

BATCH = 20


def say(step: str, did: str, ids: Iterable[str]) -> None:
    sys.stdout.write(json.dumps([step, did, list(ids)]) + "\n")
    sys.stdout.flush()


def create(store: Store, uid: int, ids: list[str], now_ms: int) -> None:
    say("try", "create", ids)
    body = bytes(4_000)  # large enough to lie apart
    outcomes = store.create(uid, [new(each, now_ms, body=body) for each in ids], now_ms=now_ms)
    say("done", "create", (each.id for each in outcomes if each.done))


def cancel(store: Store, uid: int, ids: list[str], now_ms: int) -> None:
    say("try", "cancel", ids)
    outcomes = store.cancel(uid, ids, producer_group=OWNERS, now_ms=now_ms)
    say("done", "cancel", (each.id for each in outcomes if each.done))


def ack(store: Store, uid: int, leases: list[Lease], now_ms: int) -> None:
    say("try", "ack", (lease.id for lease in leases))
    outcomes = store.ack(uid, leases, now_ms=now_ms)
    say("done", "ack", (each.id for each in outcomes if each.done))


def write(store: Store, uid: int, run: str) -> None:
    """Creates a batch, cancels a quarter of it, leases and acks some of what is left, forever."""
    clock, number = SystemClock(), 0
    topic = store.get_topic(uid)
    while True:
        now_ms = clock.now_ms()
        ids = [f"{run}-{number}-{place}" for place in range(BATCH)]
        number += 1
        create(store, uid, ids, now_ms)
        cancel(store, uid, ids[: BATCH // 4], now_ms)
        grant = store.reserve(
            uid,
            topic.all_buckets,
            consumer=run,
            limit=BATCH // 2,
            lease_ms=60_000,
            now_ms=now_ms,
        )
        ack(store, uid, [each.lease for each in grant.leased], now_ms)


if __name__ == "__main__":
    with open_store(sys.argv[1]) as opened:
        write(opened, int(sys.argv[2]), sys.argv[3])
