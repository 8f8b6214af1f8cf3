"""Gives back messages that were reserved for a consumer and did not reach it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence

from chronoline.broker.store_access import StoreAccess
from chronoline.core.change import lease_change
from chronoline.core.errors import ChronolineError, OutcomeUnknown, TopicNotFound
from chronoline.core.message import Lease
from chronoline.core.outcome import Outcome
from chronoline.core.permissions import Operation
from chronoline.core.topic import Topic
from chronoline.runtime.backoff import Backoff, Waits
from chronoline.stores.contract import Store

logger = logging.getLogger(__name__)

_BACKOFF = Backoff(0.2, 2.0)
"""The waits after failures of the store that give no time to try again, in seconds."""


async def give_back(access: StoreAccess, topic: Topic, leases: Sequence[Lease]) -> None:
    """Undoes a reservation, as if it had never been made. Repeats it while the leases live.

    If the broker's clock is not trusted, the store's clock decides whether they live.
    """
    until_ms = max(lease.until for lease in leases)
    lapses_s = time.monotonic() + access.clock.seconds_until(until_ms)
    waits = Waits(_BACKOFF)
    again = False
    while True:
        try:
            await unreserve(access, topic, leases, again=again)
            return
        except TopicNotFound:
            return  # there is no topic to give them back to
        except ChronolineError as error:
            again = again or isinstance(error, OutcomeUnknown)
            grown_s, problem = waits.next(), error
            rest_s = error.retry_after_ms / 1000 if error.retry_after_ms else grown_s
        if time.monotonic() + rest_s >= lapses_s:
            break
        await asyncio.sleep(rest_s)  # nothing tells when the store answers again
    logger.warning(
        "%d messages of topic %r could not be given back; their leases lapse: %s",
        len(leases),
        topic.name,
        problem,
    )


async def unreserve(
    access: StoreAccess, topic: Topic, leases: Sequence[Lease], *, again: bool
) -> None:
    """Gives leases back once. If the broker's clock is not trusted, the store's decides whether they live."""
    changes = [lease_change(Operation.UNRESERVE, each) for each in leases]

    def by_the_stores_clock(store: Store) -> list[Outcome]:
        now_ms = store.clock_ms()
        assert now_ms is not None  # a clock that is not trusted was compared with the store's
        return store.apply(topic.uid, changes, again=again, now_ms=now_ms)

    if access.clock.problem:
        await access.look("unreserve", by_the_stores_clock, topic=topic.name, changes=True)
    else:
        await access.change(
            "unreserve",
            lambda threads: threads.apply(topic.uid, changes, again=again),
            topic=topic.name,
        )
