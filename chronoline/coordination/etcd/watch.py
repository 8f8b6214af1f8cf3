"""Watches of the etcd engine: a snapshot, then the changes after it; again after each break.

Since a reader gets views and not events, a new snapshot continues a broken watch as well as the server's
history would, and needs no history: a disconnect and a compaction are one case. A view is current only
after a read that the leader has confirmed, never by a stream that merely opened again.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Any, Protocol

import grpc
from aetcd import rpc

from chronoline.coordination.contract import KeyValue, KeyWatch, View
from chronoline.coordination.etcd.connection import EtcdConnection, error_of
from chronoline.core.errors import CoordinationError, CoordinationUnavailable
from chronoline.runtime.backoff import Backoff, Waits
from chronoline.runtime.log_summary import LogSummary
from chronoline.runtime.tasks import is_cancelled

logger = logging.getLogger(__name__)
_summary = LogSummary(logger)

_BACKOFF = Backoff(first=0.05, longest=1.0, spread=0.5)


class WatchSource(Protocol):
    """The engine, as a watch needs it."""

    connection: EtcdConnection

    async def read(self, prefix: str) -> View: ...

    def range_of(self, prefix: str) -> tuple[bytes, bytes]:
        """The first key of a prefix, and the first one after it, as etcd has them."""
        ...

    def entry_of(self, kv: Any) -> KeyValue:
        """An entry of etcd's."""
        ...


class EtcdWatch(KeyWatch):
    """A watch on a prefix of an etcd, followed by a task of its own."""

    def __init__(self, prefix: str, source: WatchSource) -> None:
        super().__init__(prefix)
        self._source = source
        self._silence_s = source.connection.times.silence_s
        self._entries: dict[str, KeyValue] = {}
        self._waits = Waits(_BACKOFF)
        self._task = asyncio.create_task(self._run(), name=f"watch of {prefix!r}")

    async def close(self) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        await super().close()

    async def _run(self) -> None:
        was_current = True
        while True:
            try:
                await self._follow()
            except CoordinationError as error:
                was_current = was_current or self.view.is_current
                if was_current:
                    _summary.warning(
                        "watch_interrupted", "watch of %r is interrupted: %s", self.prefix, error
                    )
                was_current = False
            except asyncio.CancelledError:
                if is_cancelled():
                    raise
                _summary.warning(
                    "watch_interrupted",
                    "watch of %r is interrupted: gRPC cancelled a call",
                    self.prefix,
                )
            except Exception:
                logger.exception("watch of %r failed; it goes on", self.prefix)
            self.show_silence()
            await asyncio.sleep(self._waits.next())

    async def _follow(self) -> None:
        """Shows a snapshot and the changes after it, until the stream breaks, which raises."""
        connection = self._source.connection
        snapshot = await self._source.read(self.prefix)
        member = connection.member
        call = None
        try:
            call = member.watch.Watch(metadata=await connection.metadata(member))
            await call.write(self._create_request(snapshot.revision + 1))
            await self._follow_stream(call, snapshot)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError, TimeoutError) as error:
            connection.turn_from(member)
            raise _as_coordination_error(error) from error
        finally:
            if call is not None:
                call.cancel()

    async def _follow_stream(self, call: Any, snapshot: View) -> None:
        stream = _Stream(call, self._silence_s)
        try:
            await stream.next()  # it is created
            self._entries = dict(snapshot.entries)
            self.show(snapshot)
            self._waits.reset()
            while True:
                self._take(await stream.next())
        finally:
            stream.close()

    def _take(self, response: Any) -> None:
        """Applies the changes of a response; one without any is a sign of life."""
        if not response.events:
            return
        for event in response.events:
            entry = self._source.entry_of(event.kv)
            if event.type == event.DELETE:
                self._entries.pop(entry.key, None)
            else:
                self._entries[entry.key] = entry
        self.show(View.of(self._entries, response.header.revision))

    def _create_request(self, revision: int) -> Any:
        begin, end = self._source.range_of(self.prefix)
        create = rpc.WatchCreateRequest(key=begin, range_end=end, start_revision=revision)
        return rpc.WatchRequest(create_request=create)


class _Stream:
    """The responses of a watch stream. A member that is silent is asked for a sign of life."""

    def __init__(self, call: Any, silence_s: float) -> None:
        self._call = call
        self._silence_s = silence_s
        self._read: asyncio.Future[Any] | None = None

    async def next(self) -> Any:
        """The next response.

        Raises `TimeoutError` if the member is silent, `CoordinationUnavailable` if it ends the watch.
        """
        # A cancelled read would cancel the stream: the same one is awaited again.
        self._read = self._read or asyncio.ensure_future(self._call.read())
        for may_ask in (True, False):
            await asyncio.wait([self._read], timeout=self._silence_s)
            if self._read.done():
                return self._taken()
            if may_ask:
                progress = rpc.WatchRequest(progress_request=rpc.WatchProgressRequest())
                await asyncio.wait_for(self._call.write(progress), self._silence_s)
        raise TimeoutError

    def _taken(self) -> Any:
        assert self._read is not None
        read, self._read = self._read, None
        try:
            response = read.result()
        finally:
            # Otherwise its error and this frame hold each other until a garbage collection.
            del read
        if response is grpc.aio.EOF:
            raise CoordinationUnavailable("etcd ended the watch")
        if response.canceled or response.compact_revision:
            reason = response.cancel_reason or "its history was compacted"
            raise CoordinationUnavailable(f"etcd cancelled the watch: {reason}")
        return response

    def close(self) -> None:
        if self._read is not None:
            self._read.cancel()


def _as_coordination_error(error: Exception) -> CoordinationError:
    if isinstance(error, grpc.aio.AioRpcError):
        return error_of(error)
    return CoordinationUnavailable("etcd gives no sign of life")
