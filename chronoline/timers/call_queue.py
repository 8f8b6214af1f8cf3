"""The queue of timers that are ready to be called and wait for a free place at their host. It holds ids only.

It reads no clock and starts nothing. The node takes the next timer that may be called, and reports the end of
that call. Hosts take turns, so that a slow one delays no other.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator

from chronoline.callbacks.caller import CallLimits, Endpoint


class CallQueue:
    """Ids in order of arrival, for each host; an id is queued once."""

    def __init__(self, limits: CallLimits) -> None:
        self.limits = limits
        self._hosts: dict[Endpoint, _HostQueue] = {}
        self._queued: dict[int, Endpoint] = {}
        # Hosts with a queued id and room for a call, each once.
        self._ready: deque[Endpoint] = deque()
        self._under_way = 0

    def __len__(self) -> int:
        """How many ids are queued."""
        return len(self._queued)

    def put(self, place: Endpoint, timer_id: int) -> None:
        """Queues a timer at the end; one that is queued at the same host keeps its place."""
        if self._queued.get(timer_id) == place:
            return
        self.remove(timer_id)
        self._queued[timer_id] = place
        host = self._hosts.setdefault(place, _HostQueue())
        host.ids[timer_id] = None
        self._note(place, host)

    def remove(self, timer_id: int) -> None:
        """Removes a timer, if it is queued."""
        place = self._queued.pop(timer_id, None)
        if place is not None:
            host = self._hosts[place]
            del host.ids[timer_id]
            self._forget_if_idle(place, host)

    def take(self) -> tuple[Endpoint, int] | None:
        """The next timer that may be called; call `end` when its call is over."""
        while self._ready and self._under_way < self.limits.in_all:
            place = self._ready.popleft()
            host = self._hosts[place]
            host.is_ready = False
            if not host.ids:  # they have been removed
                self._forget_if_idle(place, host)
                continue
            timer_id, _ = host.ids.popitem(last=False)
            del self._queued[timer_id]
            host.under_way += 1
            self._under_way += 1
            self._note(place, host)
            return place, timer_id
        return None

    def end(self, place: Endpoint) -> None:
        """A call that was taken is over, or was not made."""
        host = self._hosts[place]
        host.under_way -= 1
        self._under_way -= 1
        self._note(place, host)
        self._forget_if_idle(place, host)

    def crowded(self) -> Iterator[Endpoint]:
        """Hosts for which more calls are queued than may be under way at a time."""
        return (
            place
            for place, host in self._hosts.items()
            if len(host.ids) > self.limits.for_each_host
        )

    def waiting(self, place: Endpoint) -> int:
        """How many ids are queued for a host."""
        host = self._hosts.get(place)
        return 0 if host is None else len(host.ids)

    def last(self, place: Endpoint) -> Iterator[int]:
        """The ids that are queued for a host, the last one first."""
        host = self._hosts.get(place)
        return iter(()) if host is None else reversed(host.ids)

    def clear(self) -> list[int]:
        """Removes and returns all ids."""
        ids = list(self._queued)
        for timer_id in ids:
            self.remove(timer_id)
        return ids

    def _note(self, place: Endpoint, host: _HostQueue) -> None:
        if host.ids and not host.is_ready and host.under_way < self.limits.for_each_host:
            host.is_ready = True
            self._ready.append(place)

    def _forget_if_idle(self, place: Endpoint, host: _HostQueue) -> None:
        if not host.ids and not host.under_way and not host.is_ready:
            del self._hosts[place]


class _HostQueue:
    """The calls that are queued for one server, and how many calls to it are under way."""

    __slots__ = ("ids", "is_ready", "under_way")

    def __init__(self) -> None:
        self.ids: OrderedDict[int, None] = OrderedDict()
        self.is_ready = False
        self.under_way = 0
