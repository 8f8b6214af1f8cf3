"""The queue balancer shares the queued calls of one node with the other nodes that keep its timers.

A node with more queued calls for a host than it may make at a time asks the others for the length of their
queues. A node with a shorter one gets half of the difference, from the end of the queue: those would wait the
longest. A timer is ceded only to a node that keeps it, and only if its call has not begun. While the request
is under way no node may call it; without an answer, as if the other had taken it and died, this node calls it
after the wait.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any

from chronoline.callbacks.caller import Endpoint, endpoint_of
from chronoline.core.errors import InvalidInput
from chronoline.timers.call_queue import CallQueue
from chronoline.timers.peers import MOST_RECORDS, PROBLEMS, Peer, PeerRefused, listed
from chronoline.timers.records import id_of, to_record
from chronoline.timers.replica import Replica
from chronoline.timers.timer import Timer

CEDED_PATH = "/cluster/ceded"
_EVERY_MS = 250
_MOST_LOOKED_AT = 1_000
"""The number of queued timers of one host that are searched for those that another node keeps."""


class QueueBalancer:
    """Cedes queued calls, and takes calls that others cede. Owned by the event loop."""

    def __init__(
        self,
        replica: Replica,
        queue: CallQueue,
        peers: Mapping[str, Peer],
        now_ms: Callable[[], int],
    ) -> None:
        self._replica = replica
        self._queue = queue
        self._peers = peers
        self._now_ms = now_ms
        self._is_running = False
        self._again_ms = 0

    @property
    def is_due(self) -> bool:
        """Whether `run` may have something to do."""
        return (
            bool(self._peers)
            and not self._is_running
            and len(self._queue) > self._queue.limits.for_each_host
            and self._now_ms() >= self._again_ms
        )

    async def run(self) -> None:
        """Goes once through the hosts with long queues."""
        self._is_running = True
        try:
            for place in list(self._queue.crowded()):
                for address, peer in list(self._peers.items()):
                    if not peer.is_away and not peer.has_left:
                        await self._offer(place, address, peer)
        finally:
            self._is_running = False
            self._again_ms = self._now_ms() + _EVERY_MS

    async def _offer(self, place: Endpoint, address: str, peer: Peer) -> None:
        ids = self._kept_by(address, place)[:MOST_RECORDS]
        if not ids:
            return
        try:
            theirs = _waiting(await self._ask(peer, place, []))
        except PROBLEMS:
            return  # nothing was ceded
        number = _share(self._queue.waiting(place), theirs, self._queue)
        ceded = self._replica.cede(ids[:number], self._now_ms())
        for timer in ceded:
            self._queue.remove(timer.id)
        if not ceded:
            return
        try:
            answer = await self._ask(peer, place, ceded)
            taken = {id_of(each) for each in listed(answer, "taken")}
        except PeerRefused:
            taken = set[int | None]()
        except PROBLEMS:
            return  # it may have taken them
        # From the last one: they were the last ones of the queue, and come back in their order.
        for timer in reversed(ceded):
            if timer.id not in taken and self._replica.take_over(timer, self._now_ms()):
                self._queue.put(place, timer.id)

    def _kept_by(self, address: str, place: Endpoint) -> Sequence[int]:
        return [
            timer_id
            for timer_id in islice(self._queue.last(place), _MOST_LOOKED_AT)
            if self._replica.may_cede(timer_id, address)
        ]

    async def _ask(self, peer: Peer, place: Endpoint, timers: Sequence[Timer]) -> dict[str, Any]:
        now_ms = self._now_ms()
        host, port = place
        body = {
            "host": host,
            "port": port,
            "waiting": self._queue.waiting(place) + len(timers),
            "records": [to_record(timer, now_ms) for timer in timers],
        }
        return await peer.link.ask("POST", CEDED_PATH, body)

    def take(self, place: Endpoint, waiting: int, timers: Sequence[Timer]) -> list[int]:
        """Queues calls that another node cedes, which has `waiting` itself; returns the taken ids."""
        taken: list[int] = []
        room = _share(waiting, self._queue.waiting(place), self._queue)
        for timer in timers[:room]:
            try:
                if timer.plan is not None and self._replica.take_over(timer, self._now_ms()):
                    self._queue.put(endpoint_of(timer.plan.uri), timer.id)
                    taken.append(timer.id)
            except Exception as error:  # of one timer: the others are taken
                self._replica.set_aside(timer.id, error)
        return taken


def _waiting(answer: Mapping[str, Any]) -> int:
    """The length of the other's queue. Raises `InvalidInput` for an answer without it."""
    waiting = answer.get("waiting")
    if type(waiting) is not int or waiting < 0:
        raise InvalidInput("its answer has no number as waiting")
    return waiting


def _share(more: int, fewer: int, queue: CallQueue) -> int:
    """The number of calls to cede: none for less than one round of calls."""
    difference = more - fewer
    return difference // 2 if difference > queue.limits.for_each_host else 0
