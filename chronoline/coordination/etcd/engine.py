"""Coordination by an etcd: the contract over etcd's calls."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from aetcd import rpc

from chronoline.coordination.contract import (
    DEFAULT_MARGIN_MS,
    SHORTEST_TTL_MS,
    Absent,
    CommitResult,
    Condition,
    Coordination,
    KeyValue,
    Put,
    ServerOffset,
    Unchanged,
    View,
    Write,
    check_commit,
    check_key,
    check_prefix,
    check_times,
)
from chronoline.coordination.etcd.connection import EtcdConnection, EtcdMember, EtcdTimes, Metadata
from chronoline.coordination.etcd.server_clock import measure_offset
from chronoline.coordination.etcd.session import EtcdSession, Monotonic, open_session
from chronoline.coordination.etcd.url import EtcdAddress
from chronoline.coordination.etcd.watch import EtcdWatch

_DEFAULT_TIMES = EtcdTimes()


class EtcdCoordination(Coordination):
    """A connection to an etcd."""

    def __init__(
        self,
        address: EtcdAddress,
        *,
        times: EtcdTimes = _DEFAULT_TIMES,
        monotonic: Monotonic = time.monotonic,
    ) -> None:
        """`monotonic` is the clock of `trusted_until`."""
        self.connection = EtcdConnection(address, times)
        self.traffic = self.connection.traffic
        self._root = f"{address.prefix}/"
        self._monotonic = monotonic
        self._sessions: list[EtcdSession] = []
        self._watches: list[EtcdWatch] = []

    # The contract

    async def open_session(
        self, ttl_ms: int = SHORTEST_TTL_MS, margin_ms: int = DEFAULT_MARGIN_MS
    ) -> EtcdSession:
        check_times(ttl_ms, margin_ms)
        self._sessions = [each for each in self._sessions if not each.is_lost]
        session = await open_session(
            self.connection, ttl_ms=ttl_ms, margin_ms=margin_ms, monotonic=self._monotonic
        )
        self._sessions.append(session)
        return session

    async def read(self, prefix: str) -> View:
        check_prefix(prefix)
        begin, end = self.range_of(prefix)
        answer = await self._range(rpc.RangeRequest(key=begin, range_end=end))
        entries = {entry.key: entry for entry in map(self.entry_of, answer.kvs)}
        return View.of(entries, answer.header.revision)

    async def get(self, key: str) -> KeyValue | None:
        check_key(key)
        answer = await self._range(rpc.RangeRequest(key=self._full(key)))
        return self.entry_of(answer.kvs[0]) if answer.kvs else None

    async def commit(
        self, writes: Sequence[Write], *, when: Sequence[Condition] = ()
    ) -> CommitResult:
        check_commit(writes, when)
        request = rpc.TxnRequest(
            compare=[self._comparison(each) for each in when],
            success=[self._operation(each) for each in writes],
        )

        async def send(member: EtcdMember, metadata: Metadata, answer_s: float) -> Any:
            return await member.kv.Txn(request, metadata=metadata, timeout=answer_s)

        answer = await self.connection.ask_once(send)
        return CommitResult(bool(answer.succeeded), int(answer.header.revision))

    def watch(self, prefix: str) -> EtcdWatch:
        check_prefix(prefix)
        watch = EtcdWatch(prefix, self)
        self._watches = [*(each for each in self._watches if not each.is_closed), watch]
        return watch

    async def clock_offset(self) -> ServerOffset | None:
        return await measure_offset(self.connection.address, self.connection.member.address)

    async def _start(self) -> None:
        self.connection.open()

    async def _stop(self) -> None:
        for watch in self._watches:
            await watch.close()
        for session in self._sessions:
            await session.close()
        self._watches, self._sessions = [], []
        await self.connection.close()

    # For watches

    def range_of(self, prefix: str) -> tuple[bytes, bytes]:
        """The first key of a prefix, and the first one after it. Keys are ASCII: no byte overflows."""
        begin = self._full(prefix)
        return begin, begin[:-1] + bytes([begin[-1] + 1])

    def entry_of(self, kv: Any) -> KeyValue:
        key = kv.key.decode("ascii", "replace").removeprefix(self._root)
        return KeyValue(key, kv.value, kv.mod_revision, kv.lease)

    # Inside

    def _full(self, key: str) -> bytes:
        return f"{self._root}{key}".encode("ascii")

    async def _range(self, request: Any) -> Any:
        async def send(member: EtcdMember, metadata: Metadata, answer_s: float) -> Any:
            return await member.kv.Range(request, metadata=metadata, timeout=answer_s)

        return await self.connection.ask(send)

    def _comparison(self, condition: Condition) -> Any:
        key = self._full(condition.key)
        equal = rpc.Compare.EQUAL
        match condition:
            case Absent():
                return rpc.Compare(
                    key=key, result=equal, target=rpc.Compare.CREATE, create_revision=0
                )
            case Unchanged(version=version):
                return rpc.Compare(
                    key=key, result=equal, target=rpc.Compare.MOD, mod_revision=version
                )
        return rpc.Compare(
            key=key, result=equal, target=rpc.Compare.LEASE, lease=condition.session.id
        )

    def _operation(self, write: Write) -> Any:
        key = self._full(write.key)
        if isinstance(write, Put):
            lease = write.session.id if write.session else 0
            return rpc.RequestOp(
                request_put=rpc.PutRequest(key=key, value=write.value, lease=lease)
            )
        return rpc.RequestOp(request_delete_range=rpc.DeleteRangeRequest(key=key))
