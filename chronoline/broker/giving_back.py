"""Giving back what was reserved for a consumer and did not get to it."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from chronoline.broker.access import StoreAccess
from chronoline.core.errors import ChronolineError
from chronoline.core.message import Lease
from chronoline.core.topic import Topic

logger = logging.getLogger(__name__)


async def give_back(access: StoreAccess, topic: Topic, leases: Sequence[Lease]) -> None:
    """As if it had never been reserved. If that fails, the leases lapse."""
    try:
        await access.change("unreserve", lambda lanes: lanes.unreserve(topic.uid, leases))
    except ChronolineError as error:
        logger.warning(
            "%d messages of topic %r could not be given back, their leases will lapse: %s",
            len(leases),
            topic.name,
            error,
        )
