"""The connection to an etcd: a channel for each member, fail-over between them, log-in, and errors.

Calls go to one member until it fails; then the next one has its turn. The client of `aetcd` connects to one
member, without TLS, and its watches end with their stream; so only its generated messages and stubs are used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc
from aetcd import rpc

from chronoline.coordination.etcd.url import EtcdAddress
from chronoline.core.errors import (
    CommitUnknown,
    CoordinationError,
    CoordinationRefused,
    CoordinationUnavailable,
    SessionLost,
)
from chronoline.runtime.partner_traffic import PartnerTraffic
from chronoline.runtime.tasks import is_cancelled

Answer = TypeVar("Answer")
Metadata = Sequence[tuple[str, str]]

_CHANNEL_OPTIONS = [
    # A member that is back is found within a second; the default grows to two minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # In spite of its name the time that one attempt has; the default is 20 s.
    ("grpc.min_reconnect_backoff_ms", 1_000),
    # A large prefix comes in one message.
    ("grpc.max_receive_message_length", -1),
    # Otherwise connections of one process to one member share a socket, and its faults.
    ("grpc.use_local_subchannel_pool", 1),
]
_WITH_LEADER = ("hasleader", "true")
"""Asks a member to refuse, and to end streams, while it knows no leader, since it may be cut off."""
_STALE_TOKEN = ("invalid auth token", "revision of auth store is old", "revision in header is old")
_MOMENTARY = ("no leader", "too many requests", "database space exceeded", "not capable", "stopped")
"""Refusals that came before anything was changed, and that a later call may not meet."""
_LEASE_NOT_FOUND = "requested lease not found"
_REFUSALS = {
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.OUT_OF_RANGE,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.UNIMPLEMENTED,
}
"""The member answered, and changed nothing."""


@dataclass(frozen=True, kw_only=True)
class EtcdTimes:
    """How long the engine waits, in seconds."""

    answer_s: float = 2.0
    """For the answer of one member to one call."""
    connect_s: float = 1.0
    """For the connection to one member, before a commit."""
    silence_s: float = 1.0
    """For a sign of life on a watch; after one more of these its view is not current."""


class _StaleToken(CoordinationError):
    """The log-in is forgotten; nothing was changed."""


class _CountedChannel:
    """A channel for stubs that counts the bytes of their messages."""

    def __init__(self, channel: grpc.aio.Channel, traffic: PartnerTraffic) -> None:
        self._channel = channel
        self._traffic = traffic

    def unary_unary(self, method: str, **given: Any) -> Any:
        return self._channel.unary_unary(method, **self._counted(**given))

    def unary_stream(self, method: str, **given: Any) -> Any:
        return self._channel.unary_stream(method, **self._counted(**given))

    def stream_stream(self, method: str, **given: Any) -> Any:
        return self._channel.stream_stream(method, **self._counted(**given))

    def _counted(
        self,
        *,
        request_serializer: Callable[[Any], bytes],
        response_deserializer: Callable[[bytes], Any],
        **others: Any,
    ) -> dict[str, Any]:
        def write(request: Any) -> bytes:
            written = request_serializer(request)
            self._traffic.moved(out_bytes=len(written))
            return written

        def read(came: bytes) -> Any:
            self._traffic.moved(in_bytes=len(came))
            return response_deserializer(came)

        return {**others, "request_serializer": write, "response_deserializer": read}


class EtcdMember:
    """One member of an etcd: its channel and its stubs. They have no types."""

    def __init__(
        self, address: str, credentials: grpc.ChannelCredentials | None, traffic: PartnerTraffic
    ) -> None:
        self.address = address
        if credentials is None:
            self.channel = grpc.aio.insecure_channel(address, options=_CHANNEL_OPTIONS)
        else:
            self.channel = grpc.aio.secure_channel(address, credentials, options=_CHANNEL_OPTIONS)
        counted = _CountedChannel(self.channel, traffic)
        self.auth: Any = rpc.AuthStub(counted)
        self.kv: Any = rpc.KVStub(counted)
        self.lease: Any = rpc.LeaseStub(counted)
        self.watch: Any = rpc.WatchStub(counted)

    async def is_ready(self, within_s: float) -> bool:
        """Whether it is connected, or can be in this time."""
        if self.channel.get_state(try_to_connect=True) is grpc.ChannelConnectivity.READY:
            return True
        try:
            await asyncio.wait_for(self.channel.channel_ready(), within_s)
        except TimeoutError:
            return False
        return True


Send = Callable[[EtcdMember, Metadata, float], Awaitable[Answer]]
"""Sends one request to a member, with this metadata and time-out."""


class EtcdConnection:
    """Channels to all members of an etcd. Opened and closed once, by its event loop."""

    def __init__(self, address: EtcdAddress, times: EtcdTimes) -> None:
        self.address = address
        self.times = times
        self.traffic = PartnerTraffic()
        self._members: list[EtcdMember] = []
        self._turn = 0
        self._token: str | None = None

    def open(self) -> None:
        credentials = self.address.credentials()
        self._members = [
            EtcdMember(member, credentials, self.traffic) for member in self.address.members
        ]

    async def close(self) -> None:
        members, self._members = self._members, []
        for member in members:
            await member.channel.close()

    @property
    def member(self) -> EtcdMember:
        """The member whose turn it is. Raises `CoordinationUnavailable` while the connection is closed."""
        if not self._members:
            raise CoordinationUnavailable("the connection to etcd is closed")
        return self._members[self._turn % len(self._members)]

    def turn_from(self, member: EtcdMember) -> None:
        """A member failed: the next one has its turn, unless it has it already."""
        if self._members and member is self.member:
            self._turn += 1

    async def metadata(self, member: EtcdMember) -> Metadata:
        """The metadata of a call; logs in if needed. Raises `grpc.aio.AioRpcError`."""
        if self.address.user is None:
            return (_WITH_LEADER,)
        if self._token is None:
            request = rpc.AuthenticateRequest(
                name=self.address.user, password=self.address.password
            )
            answer = await member.auth.Authenticate(request, timeout=self.times.answer_s)
            self._token = answer.token
        return (_WITH_LEADER, ("token", str(self._token)))

    async def ask(self, send: Send[Answer], *, answer_s: float | None = None) -> Answer:
        """Sends a request that may be repeated: to each member in turn until one answers."""
        failure: grpc.aio.AioRpcError | None = None
        try:
            for _ in range(len(self._members) + 1):
                member = self.member
                try:
                    metadata = await self.metadata(member)
                    return await send(member, metadata, answer_s or self.times.answer_s)
                except grpc.aio.AioRpcError as error:
                    failure = error
                    if not self._renews_token(error):
                        if _is_final(error):
                            break
                        self.turn_from(member)
                except asyncio.CancelledError:
                    if is_cancelled():
                        raise
                    self.turn_from(member)
            if failure is None:
                raise CoordinationUnavailable(
                    "the connection to etcd is closed, or its calls are cancelled"
                )
            raise error_of(failure) from failure
        finally:
            # Otherwise error and frame hold each other until a garbage collection, which is seldom.
            del failure

    async def ask_once(self, send: Send[Answer]) -> Answer:
        """Sends a request that must not be repeated, to a member that is connected.

        Raises `CommitUnknown` if it was sent and not answered.
        """
        try:
            return await self._send_once(send)
        except _StaleToken:
            return await self._send_once(send)

    async def _send_once(self, send: Send[Answer]) -> Answer:
        member = await self._ready_member()
        try:
            metadata = await self.metadata(member)
        except grpc.aio.AioRpcError as error:
            self.turn_from(member)
            raise error_of(error) from error
        try:
            return await send(member, metadata, self.times.answer_s)
        except grpc.aio.AioRpcError as error:
            if self._renews_token(error):
                raise _StaleToken(f"etcd refused: {error.details()}") from error
            if not _is_final(error):
                self.turn_from(member)
            if _changed_nothing(error):
                raise error_of(error) from error
            raise CommitUnknown from error
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            self.turn_from(member)
            raise CommitUnknown from None

    async def _ready_member(self) -> EtcdMember:
        for _ in range(len(self._members)):
            member = self.member
            if await member.is_ready(self.times.connect_s):
                return member
            self.turn_from(member)
        raise CoordinationUnavailable(f"no member of etcd is reachable: {self._addresses()}")

    def _addresses(self) -> str:
        return ", ".join(self.address.members)

    def _renews_token(self, error: grpc.aio.AioRpcError) -> bool:
        """Whether a new log-in may help: the token is stale, and it is forgotten."""
        is_stale = self._token is not None and _says(error, *_STALE_TOKEN)
        if is_stale:
            self._token = None
        return is_stale


def error_of(error: grpc.aio.AioRpcError) -> CoordinationError:
    """The error for one of etcd's that left everything as it was."""
    details = str(error.details() or error.code().name)
    if _says(error, _LEASE_NOT_FOUND):
        return SessionLost()
    if _is_final(error):
        return CoordinationRefused(f"etcd refused: {details}")
    if error.code() in _REFUSALS:
        return CoordinationUnavailable(f"etcd refused for now: {details}; nothing was changed")
    return CoordinationUnavailable(f"etcd cannot be reached: {details}; nothing was changed")


def _is_final(error: grpc.aio.AioRpcError) -> bool:
    """Whether all members would answer so, now and later."""
    return error.code() in _REFUSALS and not _says(error, *_MOMENTARY)


def _changed_nothing(error: grpc.aio.AioRpcError) -> bool:
    return error.code() in _REFUSALS or _says(error, "no leader")


def _says(error: grpc.aio.AioRpcError, *texts: str) -> bool:
    details = str(error.details() or "")
    return any(text in details for text in texts)
