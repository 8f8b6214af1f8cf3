"""The resync moves timers after the list of nodes has changed, without waiting until they pop.

A node asks every other for the timers that it must keep by the new list, a hundred at a time, applies the
three rules to each, and tells the leaving nodes which ones it has dealt with. Before that it does the same
with its own timers whose first replica it is and stays.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from chronoline.callbacks.caller import words_of
from chronoline.core.errors import InvalidInput
from chronoline.timers.node import TimerNode
from chronoline.timers.peers import MOST_CHARACTERS, Peer, listed, next_cursor
from chronoline.timers.records import id_of, names_of, to_record
from chronoline.timers.replica import Offer
from chronoline.timers.timer import Timer

logger = logging.getLogger(__name__)

BATCH = 100
_MOST_LOOKED_AT = 200
"""Timers handled in one turn of the event loop, which must stay responsive."""
_REST = 1.0
"""After each step it rests this multiple of the step's duration."""


@dataclass(slots=True)
class Progress:
    """The progress of a resync."""

    is_running: bool = False
    asked: int = 0
    of: int = 0
    offered: int = 0
    problems: tuple[str, ...] = ()


class Resync:
    """The resyncs of one node, one at a time."""

    def __init__(self, node: TimerNode) -> None:
        self._node = node
        self.progress = Progress()

    async def run(self) -> Progress:
        """Asks everybody, and again if the list of nodes changed meanwhile.

        One that is running already goes on, and its progress is answered.
        """
        if self.progress.is_running:
            return self.progress
        replica, view = self._node.replica, ""
        try:
            while view != replica.membership.view:
                view = replica.membership.view
                await self._go_through()
        finally:
            self.progress.is_running = False
        return self.progress

    async def _go_through(self) -> None:
        peers = list(self._node.peers.values())
        self.progress = Progress(is_running=True, of=len(peers))
        await self._try(self._node.me, self._take_own())
        for peer in peers:
            await self._try(peer.address, self._ask(peer))
            self.progress.asked += 1

    async def _try(self, address: str, step: Awaitable[object]) -> None:
        try:
            await step
        except Exception as error:  # of one node: the others are asked
            logger.debug("asking %s failed", address, exc_info=error)
            self._note(address, error)

    def _note(self, address: str, error: Exception) -> None:
        problem = f"{address}: {words_of(error)}"
        if problem not in self.progress.problems:
            self.progress.problems = (*self.progress.problems, problem)
            logger.warning("resync: %s", problem, extra={"action": "resync_failed"})

    async def _take_own(self) -> None:
        node = self._node
        ids = node.replica.ids()
        for at in range(0, len(ids), _MOST_LOOKED_AT):
            async with _resting():
                own = node.replica.take_own(ids[at : at + _MOST_LOOKED_AT], node.now_ms())
                await self._dismiss(own)

    async def _ask(self, peer: Peer) -> None:
        view = self._node.replica.membership.view
        cursor: int | None = 0
        while cursor is not None:
            async with _resting():
                cursor = await self._take_page(peer, view, cursor)

    async def _take_page(self, peer: Peer, view: str, cursor: int) -> int | None:
        """Handles one page of a peer's offers; returns the next cursor."""
        node = self._node
        params = {"node-for-replicas": node.me, "cluster-view-id": view, "cursor": str(cursor)}
        answer = await peer.link.ask("GET", "/timers", params=params)
        listing = listed(answer, "timers")
        following = next_cursor(answer, cursor)
        old = _old_keepers(listing)
        levels: dict[int, int] = {}

        def take(timer: Timer) -> Offer:
            if timer.id not in old:
                raise InvalidInput("it is offered without the nodes that keep it")
            offer = Offer(timer, old[timer.id])
            level = node.replica.take_offer(offer, node.now_ms())
            if level is not None:
                levels[timer.id] = level
            return offer

        records = [entry.get("Timer") for entry in listing if isinstance(entry, dict)]
        taken, refused = node.intake.take(records, peer.address, take)
        for each in refused:
            self._note(peer.address, InvalidInput(f"a record was refused: {each.reason}"))
        self.progress.offered += len(listing)
        node.metrics.offered(len(listing))
        await self._dismiss([offer for _, offer in taken])
        await self._dealt_with(
            [{"ID": timer_id, "ReplicaIndex": level} for timer_id, level in levels.items()]
        )
        return following

    async def _dismiss(self, offers: list[Offer]) -> None:
        """Dismisses former keepers once this node has the timers on disk and has informed the others.

        Earlier, a single node that dies could be the only one that has them.
        """
        node = self._node
        node.act()
        await node.told()
        for offer in offers:
            node.replica.dismiss(offer)
        node.act()
        await node.told()

    async def _dealt_with(self, taken: list[dict[str, int]]) -> None:
        """Informs all leaving nodes, not only the one that was asked: each may hold the timer.

        A dead one does not keep the others from being asked.
        """
        leaving = [
            each
            for address in self._node.replica.membership.leaving
            if (each := self._node.peers.get(address))
        ]
        for peer in leaving if taken else ():
            await self._try(
                peer.address, peer.link.ask("DELETE", "/timers/references", {"IDs": taken})
            )


@asynccontextmanager
async def _resting() -> AsyncIterator[None]:
    loop = asyncio.get_running_loop()
    begun_s = loop.time()
    yield
    await asyncio.sleep(_REST * (loop.time() - begun_s))  # due timers come first


def _old_keepers(listing: list[Any]) -> dict[int, tuple[str, ...]]:
    """The nodes that keep each offered timer by the old list; without the entries that are wrong."""
    old: dict[int, tuple[str, ...]] = {}
    for entry in listing:
        with suppress(AttributeError, TypeError, ValueError):
            if (timer_id := id_of(entry.get("TimerID"))) is not None:
                old[timer_id] = names_of(entry.get("OldReplicas"))
    return old


def page_of_offers(node: TimerNode, asker: str, ids: list[int], cursor: int) -> dict[str, Any]:
    """The answer to a resyncing node: at most a hundred timers, bounded in size, and the next cursor."""
    now_ms = node.now_ms()
    offers: list[dict[str, Any]] = []
    end = min(len(ids), cursor + _MOST_LOOKED_AT)
    characters = 0
    while cursor < end and len(offers) < BATCH and characters < MOST_CHARACTERS:
        for offer in node.replica.offers(asker, ids[cursor : cursor + 1]):
            offers.append(
                {
                    "TimerID": offer.timer.id,
                    "OldReplicas": offer.old,
                    "Timer": to_record(offer.timer, now_ms),
                }
            )
            characters += offer.timer.characters
        cursor += 1
    return {"timers": offers, "cursor": cursor if cursor < len(ids) else None}
