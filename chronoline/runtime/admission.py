"""Admission of requests to a node: bytes and requests under way, over all clients, each with its share.

A request is admitted before it is read, or at the latest before it is processed, and counts until it is
answered. One client gets a quarter of the node at most, so that its flood delays only itself. While the node
is full, the client with the least under way comes first.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextvars import ContextVar
from dataclasses import dataclass
from typing import NamedTuple, Self

from chronoline.core.errors import NodeBusy

_SHARES = 4
_MOST_WAITING = 1_000
"""The most waiting requests of one client; more are refused."""
_client: ContextVar[str] = ContextVar("chronoline_client", default="")
PATIENCE_S = 10.0
"""A request that is not admitted within this time is refused."""


@dataclass(slots=True)
class _Waiter:
    size_bytes: int
    is_admitted: asyncio.Future[None]


class Admission:
    """The admission of one node. Owned by the event loop."""

    def __init__(
        self,
        *,
        most_bytes: int = 256 * 1024 * 1024,
        most_requests: int = 4_000,
        largest_bytes: int = 16 * 1024 * 1024,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """`largest_bytes` is the largest request: a client always has room for two of them."""
        self._patience_s = patience_s
        self._most_bytes = most_bytes
        self._share_bytes = max(most_bytes // _SHARES, 2 * largest_bytes)
        # The least that a request counts, however small: so bytes bound the number too.
        self.least_bytes = max(1, most_bytes // most_requests)
        self._waiting: dict[str, deque[_Waiter]] = {}
        self._waiting_bytes = 0
        self._held_bytes: dict[str, int] = {}
        self.under_way_bytes = 0

    async def admit(self, client: str, size_bytes: int, *, read_bytes: int = 0) -> Admitted:
        """Waits for room. `read_bytes` of the request are in memory already.

        Raises `NodeBusy` if there is no room in time, or too much waits already.
        """
        size_bytes = max(size_bytes, self.least_bytes)
        if self._fits(client, size_bytes) and not self._is_behind(client):
            self._take(client, size_bytes)
        else:
            await self._wait(client, size_bytes, read_bytes)
        return Admitted(self, client, size_bytes)

    async def _wait(self, client: str, size_bytes: int, read_bytes: int) -> None:
        queue = self._waiting.get(client, deque())
        if len(queue) >= _MOST_WAITING or self._waiting_bytes + read_bytes > self._most_bytes:
            raise self._refusal("too many requests wait already")
        one = _Waiter(size_bytes, asyncio.get_running_loop().create_future())
        queue.append(one)
        self._waiting[client] = queue
        self._waiting_bytes += read_bytes
        try:
            await asyncio.wait([one.is_admitted], timeout=self._patience_s)
        except asyncio.CancelledError:
            if one.is_admitted.done():
                self.give_back(client, size_bytes)
            raise
        finally:
            self._waiting_bytes -= read_bytes
            if not one.is_admitted.done():
                queue.remove(one)
                self._forget_empty(client)
                self._admit_waiting()  # requests behind it may fit
        if not one.is_admitted.done():
            raise self._refusal(f"no room came within {self._patience_s:g} s")

    def _refusal(self, why: str) -> NodeBusy:
        return NodeBusy(
            f"the node has its limit of requests under way, and {why}; nothing was changed. "
            "Try again later, or with less at a time"
        )

    def _fits(self, client: str, size_bytes: int) -> bool:
        has_room = self.under_way_bytes + size_bytes <= self._most_bytes
        return self._has_share(client, size_bytes) and (has_room or not self.under_way_bytes)

    def _has_share(self, client: str, size_bytes: int) -> bool:
        held_bytes = self._held_bytes.get(client, 0)
        return not held_bytes or held_bytes + size_bytes <= self._share_bytes

    def _is_behind(self, client: str) -> bool:
        """Whether a waiting request comes first: of this client, or of one that is served before it."""
        next_client = self._next_client()
        return client in self._waiting or (
            next_client is not None
            and self._held_bytes.get(next_client, 0) <= self._held_bytes.get(client, 0)
        )

    def _next_client(self) -> str | None:
        """The client with the least under way that does not wait for its own share."""
        able = [
            client
            for client, queue in self._waiting.items()
            if self._has_share(client, queue[0].size_bytes)
        ]
        return min(able, key=lambda each: self._held_bytes.get(each, 0), default=None)

    def _take(self, client: str, size_bytes: int) -> None:
        self.under_way_bytes += size_bytes
        self._held_bytes[client] = self._held_bytes.get(client, 0) + size_bytes

    def give_back(self, client: str, size_bytes: int) -> None:
        """Releases bytes of an ended request."""
        self.under_way_bytes -= size_bytes
        self._held_bytes[client] -= size_bytes
        if not self._held_bytes[client]:
            del self._held_bytes[client]
        self._admit_waiting()

    def _admit_waiting(self) -> None:
        while (client := self._next_client()) is not None:
            one = self._waiting[client][0]
            if not self._fits(client, one.size_bytes):
                return  # smaller requests must not keep it out forever
            self._waiting[client].popleft()
            self._forget_empty(client)
            self._take(client, one.size_bytes)
            one.is_admitted.set_result(None)

    def _forget_empty(self, client: str) -> None:
        if not self._waiting[client]:
            del self._waiting[client]


class Admitted:
    """A request under way, until `end` or the end of its context. Ending it twice is fine."""

    def __init__(self, admission: Admission, client: str, size_bytes: int) -> None:
        self._admission = admission
        self._client = client
        self._size_bytes = size_bytes

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """The request was answered, or abandoned."""
        self._keep(0)

    def shrink(self, size_bytes: int) -> None:
        """The request is no larger than this."""
        self._keep(max(size_bytes, self._admission.least_bytes))

    def _keep(self, size_bytes: int) -> None:
        freed_bytes = self._size_bytes - size_bytes
        if freed_bytes > 0:
            self._size_bytes = size_bytes
            self._admission.give_back(self._client, freed_bytes)


class BodyRoom:
    """The room for a body while it is read, until `end` or the end of its context.

    A body that is only announced has little room. When the client has sent as much, all of the rest is
    admitted at once, so that of two half-read bodies neither waits for the other.
    """

    def __init__(self, admission: Admission, clients: BodyClients, size_bytes: int) -> None:
        self._admission = admission
        self._clients = clients
        self._size_bytes = size_bytes
        self.small_bytes = min(size_bytes, admission.least_bytes)
        self._small: Admitted | None = None
        self._rest: Admitted | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    async def begin(self) -> None:
        """Waits for the first part, before anything is read. Raises `NodeBusy`."""
        if self._size_bytes:
            self._small = await self._admission.admit(self._clients.small, self.small_bytes)

    async def grow(self, read_bytes: int, *, is_complete: bool) -> None:
        """Waits for room for the rest when more than the first part has been read. Raises `NodeBusy`."""
        if read_bytes <= self.small_bytes:
            return
        if self._rest is None:
            whole_bytes = read_bytes if is_complete else self._size_bytes
            rest_bytes = max(whole_bytes - self.small_bytes, 0)
            self._rest = await self._admission.admit(
                self._clients.large, rest_bytes, read_bytes=read_bytes - self.small_bytes
            )
        elif is_complete:
            self._rest.shrink(read_bytes - self.small_bytes)

    def end(self) -> None:
        for part in (self._small, self._rest):
            if part is not None:
                part.end()


class BodyClients(NamedTuple):
    """The clients whose shares a body takes."""

    small: str
    """For its first part."""
    large: str
    """For the rest. On a node that asks for no token, all connections of a host share it."""

    @classmethod
    def of(cls, who: str, address: str, *, is_local: bool, is_proven: bool) -> BodyClients:
        own = client_key(who, address, is_local=is_local)
        return cls(own, own if is_proven else shared_key(who, address))


def work_for(client: str) -> None:
    """Names the client for which this task works from now on, and those that it starts."""
    _client.set(client)


def served_client() -> str:
    """The client for which this task works; empty for the node itself."""
    return _client.get()


def client_key(who: str, address: str, *, is_local: bool) -> str:
    """The identity of a client: the name of its token, and its host. It has one share of the node.

    On loopback each connection is a client: all processes of the machine have the same host.
    """
    return f"{who}@{address}" if is_local else shared_key(who, address)


def shared_key(who: str, address: str) -> str:
    """The identity of all connections of a host."""
    return f"{who}@{address.rpartition(':')[0]}"
