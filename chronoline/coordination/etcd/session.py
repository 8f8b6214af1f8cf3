"""Sessions of the etcd engine: a lease of etcd, and the task that keeps it alive."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

import grpc
from aetcd import rpc

from chronoline.coordination.contract import BrokerSession
from chronoline.coordination.etcd.connection import EtcdConnection, EtcdMember, Metadata
from chronoline.core.errors import CoordinationError, CoordinationUnavailable, SessionLost

logger = logging.getLogger(__name__)

Monotonic = Callable[[], float]

_MS = 1_000
_LONG_AGO = float("-inf")
_BEATS = 4
"""Keep-alives in a TTL: three may be lost before the session is. Each has that time for its answer."""
_REST_PART = 5
"""After a failed keep-alive the next one comes after this part of the usual time."""


async def open_session(
    connection: EtcdConnection, *, ttl_ms: int, margin_ms: int, monotonic: Monotonic
) -> EtcdSession:
    """Opens a session. A lease whose answer was lost holds nothing, and ends by itself."""

    async def grant(member: EtcdMember, metadata: Metadata, answer_s: float) -> EtcdSession:
        sent_at = monotonic()
        request = rpc.LeaseGrantRequest(TTL=ttl_ms // _MS)
        lease = await member.lease.LeaseGrant(request, metadata=metadata, timeout=answer_s)
        return EtcdSession(
            connection,
            lease.ID,
            ttl_ms=lease.TTL * _MS,
            margin_ms=margin_ms,
            monotonic=monotonic,
            sent_at=sent_at,
        )

    session = await connection.ask(grant)
    session.start()
    return session


class EtcdSession(BrokerSession):
    """A lease of etcd."""

    def __init__(
        self,
        connection: EtcdConnection,
        number: int,
        *,
        ttl_ms: int,
        margin_ms: int,
        monotonic: Monotonic,
        sent_at: float,
    ) -> None:
        self.id = number
        self.ttl_ms = ttl_ms
        self._margin_ms = margin_ms
        self._connection = connection
        self._monotonic = monotonic
        self._sent_at = sent_at
        self._lost = asyncio.Event()
        self._beat: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Starts the task that keeps it alive."""
        self._beat = asyncio.create_task(self._keep(), name="keep-alives of a session")

    @property
    def trusted_until(self) -> float:
        if self.is_lost:
            return _LONG_AGO
        return self._sent_at + (self.ttl_ms - self._margin_ms) / _MS

    @property
    def is_trusted(self) -> bool:
        return self._monotonic() < self.trusted_until

    @property
    def is_lost(self) -> bool:
        return self._lost.is_set()

    async def wait_lost(self) -> None:
        await self._lost.wait()

    async def keep_alive(self) -> None:
        if self.is_lost:
            raise SessionLost
        try:
            sent_at = await self._connection.ask(self._renew, answer_s=self._beat_s)
        except SessionLost:
            self._lost.set()
            raise
        self._sent_at = max(self._sent_at, sent_at)

    def abandon(self) -> None:
        if self._beat is not None:
            self._beat.cancel()

    async def close(self) -> None:
        self.abandon()
        if not self.is_lost:
            self._lost.set()
            with suppress(CoordinationError):  # it ends by itself
                await self._connection.ask(self._revoke)

    @property
    def _beat_s(self) -> float:
        return self.ttl_ms / _MS / _BEATS

    async def _keep(self) -> None:
        rest_s = self._beat_s
        while True:
            await asyncio.sleep(rest_s)
            try:
                await self.keep_alive()
            except SessionLost:
                logger.warning("session %x with etcd is lost", self.id)
                return
            except CoordinationError as error:
                if rest_s == self._beat_s:
                    logger.warning("session %x with etcd: no keep-alive: %s", self.id, error)
                rest_s = self._beat_s / _REST_PART
            except Exception:
                logger.exception("session %x with etcd: a keep-alive failed; it goes on", self.id)
                rest_s = self._beat_s / _REST_PART
            else:
                rest_s = self._beat_s

    async def _renew(self, member: EtcdMember, metadata: Metadata, answer_s: float) -> float:
        """One keep-alive on a stream of its own, so that no answer is taken for that to another request.

        Returns the moment of the sending.
        """
        sent_at = self._monotonic()
        requests = [rpc.LeaseKeepAliveRequest(ID=self.id)]
        call = member.lease.LeaseKeepAlive(requests, metadata=metadata, timeout=answer_s)
        answer = await call.read()
        if answer is grpc.aio.EOF:
            raise CoordinationUnavailable("etcd ended a keep-alive without an answer")
        self._connection.traffic.answered(self._monotonic() - sent_at)
        if answer.TTL <= 0:
            raise SessionLost
        return sent_at

    async def _revoke(self, member: EtcdMember, metadata: Metadata, answer_s: float) -> None:
        request = rpc.LeaseRevokeRequest(ID=self.id)
        await member.lease.LeaseRevoke(request, metadata=metadata, timeout=answer_s)
