"""Renewal of leases: extends leases that wait for their due or for a handler, and those under work.

A lease is renewed when a third of it is over, so that two more attempts fit into the rest. One that ends
nevertheless is lost, and its place is free for another.
"""

from __future__ import annotations

import asyncio
import logging

from chronoline.client.consumer_stream import ConsumerStream
from chronoline.client.leases import AsyncLease
from chronoline.core.errors import ChronolineError
from chronoline.runtime.log_summary import LogSummary

logger = logging.getLogger(__name__)
_summary = LogSummary(logger)

_PARTS = 3
_SHORTEST_S = 0.005
"""The shortest interval between two checks of the leases."""


async def renew(stream: ConsumerStream, *, in_hand: bool) -> None:
    """Runs until it is cancelled. With `in_hand` it renews leases after the hand-over too."""
    while True:
        await asyncio.sleep(max(stream.shortest_lease_s / _PARTS / 2, _SHORTEST_S))
        await asyncio.gather(
            *(_look_after(stream, lease, in_hand=in_hand) for lease in stream.held)
        )


async def _look_after(stream: ConsumerStream, lease: AsyncLease, *, in_hand: bool) -> None:
    left_s = lease.seconds_left
    if lease.is_settled:
        return
    if left_s == 0:
        _lose(stream, lease)
    elif in_hand or not lease.in_hand:
        enough_s = stream.lease_ms(lease.topic_uid) / 1000 * (1 - 1 / _PARTS)
        if left_s <= enough_s:
            await _extend(stream, lease, left_s)


async def _extend(stream: ConsumerStream, lease: AsyncLease, left_s: float) -> None:
    """Without an answer before its end, the lease counts as lost. A later answer is still processed.

    Then the lease is valid nevertheless, and the next change names the right version.
    """
    extending = asyncio.ensure_future(lease.extend())
    extending.add_done_callback(lambda each: None if each.cancelled() else each.exception())
    await asyncio.wait([extending], timeout=left_s)
    if lease.is_settled:
        return  # its ack is under way, and its answer decides
    if not extending.done():
        _lose(stream, lease)
    elif lease.lost.is_set():
        _summary.warning(
            "lease_lost", "the lease of message %r was lost: %s", lease.id, extending.exception()
        )
    elif isinstance(error := extending.exception(), ChronolineError):
        _summary.warning(
            "lease_not_renewed", "the lease of message %r could not be renewed: %s", lease.id, error
        )


def _lose(stream: ConsumerStream, lease: AsyncLease) -> None:
    _summary.warning("lease_lost", "the lease of message %r was lost", lease.id)
    stream.lose(lease)
