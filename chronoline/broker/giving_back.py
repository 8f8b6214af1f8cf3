"""Giving back what was reserved for a consumer and did not get to it."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from chronoline.broker.access import StoreAccess
from chronoline.core.errors import ChronolineError, TopicNotFound
from chronoline.core.message import Lease
from chronoline.core.outcome import Outcome
from chronoline.core.topic import Topic
from chronoline.stores.contract import Store

logger = logging.getLogger(__name__)


async def give_back(access: StoreAccess, topic: Topic, leases: Sequence[Lease]) -> None:
    """As if it had never been reserved. If that fails, the leases lapse.

    If our clock cannot be gone by, the store's says whether they have.
    """

    def by_the_stores_clock(store: Store) -> list[Outcome]:
        now_ms = store.clock_ms()
        assert now_ms is not None  # with what else would ours have been compared
        return store.unreserve(topic.uid, leases, now_ms=now_ms)

    try:
        if access.clock.problem:
            await access.look("unreserve", by_the_stores_clock, topic=topic.name, changes=True)
        else:
            await access.change(
                "unreserve", lambda lanes: lanes.unreserve(topic.uid, leases), topic=topic.name
            )
    except TopicNotFound:
        pass  # it was dropped, and everything on it
    except ChronolineError as error:
        logger.warning(
            "%d messages of topic %r could not be given back, their leases will lapse: %s",
            len(leases),
            topic.name,
            error,
        )
