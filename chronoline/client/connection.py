"""The connection to one broker: a channel for the streams and unary calls of a client."""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import grpc
from grpc import aio

from chronoline.client.tls import Tls
from chronoline.core.addresses import (
    INSECURE_VARIABLE,
    check_token_in_clear,
    is_insecure_allowed,
)
from chronoline.core.errors import (
    BrokerUnavailable,
    CertificateExpired,
    ChronolineError,
    ClientClosed,
    InvalidInput,
    OutcomeUnknown,
    Unauthenticated,
)
from chronoline.runtime.tasks import TaskSet, is_cancelled
from chronoline.wire.codes import BROKERS_KEY, FAILURE_KEY, error_of
from chronoline.wire.v1 import chronoline_pb2 as pb

logger = logging.getLogger(__name__)

DEFAULT_ADDRESS = "127.0.0.1:7400"
ADDRESS_VARIABLE = "CHRONOLINE_ADDRESS"
TOKEN_VARIABLE = "CHRONOLINE_TOKEN"
_MOST_BYTES = 80 * 1024 * 1024

_UNKNOWN_TOKEN = (
    "The broker does not know this token: it was revoked, has expired, or is another broker's. "
    "`chronoline token create` makes one"
)

Answer = TypeVar("Answer")


def _checked(token: str) -> str | None:
    """The token without the line end of its file."""
    token = token.strip()
    if not token.isascii() or not token.isprintable() or " " in token:
        raise InvalidInput("the token has invalid characters; use it exactly as it was printed")
    return token or None


@dataclass(frozen=True, slots=True)
class ClientAccess:
    """How a client shows who it is, to every broker alike."""

    token: str | None
    tls: Tls | None
    """None means no TLS."""
    insecure: bool

    @classmethod
    def given(
        cls, token: str | None, tls: bool | str | Path | Tls, *, insecure: bool
    ) -> ClientAccess:
        """Raises `InvalidInput` for a token that cannot be one."""
        checked = _checked(token or os.environ.get(TOKEN_VARIABLE) or "")
        return cls(checked, Tls.given(tls), insecure or is_insecure_allowed(os.environ))

    def check(self, address: str) -> None:
        """Raises `InvalidInput` if others could read the token on the way to this address."""
        if self.token and self.tls is None and not self.insecure:
            check_token_in_clear(
                address, allow=f"use insecure=True (--insecure, {INSECURE_VARIABLE}=1)"
            )


class Connection:
    """A connection that opens at its first use, and again by itself when it was lost."""

    def __init__(
        self,
        address: str,
        access: ClientAccess,
        named: Callable[[str, Sequence[str]], None] = lambda by, others: None,
    ) -> None:
        """`named` gets the address and the other brokers that an answer names."""
        self.address = address
        self._access = access
        self._named = named
        self._channel: aio.Channel | None = None
        self._closed = False
        self.generation = 0
        """The number of the current channel; each new one has the next."""
        self._calls = 0
        # When the files of the channel's certificate were written.
        self._marks: tuple[int, ...] = ()
        self._unfit_marks: tuple[int, ...] | None = None
        self._dropping = TaskSet()

    @property
    def is_used(self) -> bool:
        """Whether a stream or a call is under way."""
        return self._calls > 0

    def _count(self, call: Any) -> None:
        self._calls += 1
        call.add_done_callback(self._ended)

    def _ended(self, _: Any) -> None:
        self._calls -= 1

    def _open(self) -> aio.Channel:
        if self._closed:
            raise ClientClosed
        self._drop_outdated()
        if self._channel is None:
            options = [
                ("grpc.max_receive_message_length", _MOST_BYTES),
                ("grpc.max_send_message_length", _MOST_BYTES),
                ("grpc.initial_reconnect_backoff_ms", 50),
                # The time in which a connection has to open, however busy the machine is.
                ("grpc.min_reconnect_backoff_ms", 5_000),
                ("grpc.max_reconnect_backoff_ms", 2_000),
                # Two clients of one process share neither a socket nor its errors.
                ("grpc.use_local_subchannel_pool", 1),
            ]
            tls = self._access.tls
            if tls is None:
                self._channel = aio.insecure_channel(self.address, options)
            else:
                credentials = tls.channel_credentials()
                self._channel = aio.secure_channel(self.address, credentials, options)
                self._marks = tls.marks()
        return self._channel

    def _drop_outdated(self) -> None:
        """A channel keeps its certificate for life: when it was renewed, the next call opens another.

        Files are replaced one after the other. Until they fit together the channel stays.
        """
        tls, channel = self._access.tls, self._channel
        if tls is None or tls.certificate is None or channel is None or self.is_used:
            return
        marks = tls.marks()
        if marks in (self._marks, self._unfit_marks):
            return
        try:
            tls.channel_credentials()
        except InvalidInput as error:
            self._unfit_marks = marks
            fields = {"action": "reload_failed"}
            logger.warning("the old certificate of this client stays: %s", error, extra=fields)
            return
        self._drop()

    def _drop(self) -> None:
        """The next call opens another channel."""
        channel, self._channel = self._channel, None
        if channel is not None:
            self.generation += 1
            self._dropping.start(channel.close())

    @property
    def _metadata(self) -> tuple[tuple[str, str], ...]:
        token = self._access.token
        return (("authorization", f"Bearer {token}"),) if token else ()

    def stream(self, method: str, reply: Any) -> aio.StreamStreamCall[Any, Any]:
        """Opens a new stream to the carrier."""
        call: Any = self._open().stream_stream(
            f"/chronoline.v1.Carrier/{method}",
            request_serializer=lambda frame: frame.SerializeToString(),
            response_deserializer=reply.FromString,
        )
        opened: aio.StreamStreamCall[Any, Any] = call(metadata=self._metadata)
        self._count(opened)
        return opened

    async def call(
        self, method: str, question: Any, answer: Callable[[bytes], Answer], timeout_s: float
    ) -> Answer:
        """One request, one answer, once. Raises the error of gRPC, or `ChannelGivenUp`."""
        call: Any = self._open().unary_unary(
            f"/chronoline.v1.{method}",
            request_serializer=lambda asked: asked.SerializeToString(),
            response_deserializer=answer,
        )
        try:
            made = call(question, timeout=timeout_s, metadata=self._metadata)
            self._count(made)
            found: Answer = await made
            self._learn(await made.trailing_metadata())
        except aio.AioRpcError as error:
            self._learn(error.trailing_metadata())
            raise
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            raise (ClientClosed() if self._closed else ChannelGivenUp()) from None
        return found

    def _learn(self, metadata: aio.Metadata | None) -> None:
        if (named := _value_of(BROKERS_KEY, metadata)) is not None:
            self._named(self.address, pb.KnownBrokers.FromString(named).others)

    def error_of(self, error: aio.AioRpcError) -> ChronolineError:
        """The error for a gRPC error."""
        code, details = error.code(), error.details() or ""
        failure = failure_in(error)
        known = None if failure is None else error_of(failure)
        if code is grpc.StatusCode.UNAUTHENTICATED or isinstance(known, Unauthenticated):
            return Unauthenticated(_UNKNOWN_TOKEN) if self._access.token else Unauthenticated()
        if isinstance(known, CertificateExpired):
            self._drop()  # the next one shows the certificate that is in the files then
        if known is not None:
            return known
        if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
            return InvalidInput(f"the request is larger than the broker allows: {details}")
        if code is grpc.StatusCode.DEADLINE_EXCEEDED:
            return OutcomeUnknown(f"the broker at {self.address} did not answer in time")
        is_reached = not re.search("failed to connect|errors resolving", details, re.IGNORECASE)
        if hint := _hint(details, self._access.tls):
            cause = f": {_cause(details)}" if "CERTIFICATE" in details else ""
            unavailable = BrokerUnavailable(f"the broker at {self.address} {hint}{cause}")
        else:
            unavailable = BrokerUnavailable(
                f"no broker answers at {self.address}; start one with `chronoline up`, or name another by "
                f"{ADDRESS_VARIABLE} (--address): {_cause(details)}"
            )
        unavailable.was_reached = is_reached
        return unavailable

    async def give_up(self, generation: int) -> None:
        """Abandons a channel that is silent: the next stream or unary call opens another."""
        if generation == self.generation:
            self.generation += 1
            channel, self._channel = self._channel, None
            if channel is not None:
                await channel.close()

    async def close(self) -> None:
        """May be called twice."""
        self._closed = True
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()


def _cause(details: str) -> str:
    """The words of gRPC without its own states: `Connection refused` of a dozen words around it."""
    if details.startswith("errors resolving"):
        return details.rpartition(": ")[2].rstrip("]")
    words = details.rpartition("last error: ")[2]
    return re.sub(r"^[A-Z_]+: (ipv[46]|unix):\S+: (Failed to connect to remote host: )?", "", words)


def _hint(details: str, tls: Tls | None) -> str:
    """The likely mistake if a connection failed because of TLS or the port, or empty; gRPC has only texts."""
    if "CERTIFICATE_VERIFY_FAILED" in details:
        if "has expired" in details:
            return "shows a certificate that has expired; renew it there"
        return "shows a certificate that is not trusted; name its authority by tls=… (--ca)"
    if "failed to connect" not in details:
        return ""
    if "Expected SETTINGS frame" in details:
        return "does not speak gRPC; name the broker's address of gRPC, not that of HTTP"
    if "WRONG_VERSION_NUMBER" in details:
        return "does not speak TLS; leave out tls=… (--tls, --ca)"
    return _closed_hint(tls) if "Socket closed" in details else ""


def _closed_hint(tls: Tls | None) -> str:
    """The likely reason for which a broker closes connections in the handshake."""
    if tls is None:
        return "closes the connection; if it speaks TLS, use tls=… (--tls or --ca)"
    if tls.certificate is None:
        return "closes the connection; it may ask for a certificate of the client: Tls(…) (--certificate)"
    return (
        f"closes the connection; the certificate {str(tls.certificate)!r} may have expired, or be of an "
        "authority that it does not trust (tls_client_ca)"
    )


class ChannelGivenUp(BrokerUnavailable):
    """The broker sent nothing for too long, and the client closed the connection."""


def failure_in(error: aio.AioRpcError) -> pb.Failure | None:
    """The failure that the broker itself sent."""
    sent = _value_of(FAILURE_KEY, error.trailing_metadata())
    return None if sent is None else pb.Failure.FromString(sent)


def _value_of(wanted: str, metadata: aio.Metadata | None) -> bytes | None:
    """The bytes of an entry of the metadata."""
    for key, value in metadata or ():
        if key == wanted:
            return value if isinstance(value, bytes) else value.encode()
    return None


def may_have_left(error: ChronolineError) -> bool:
    """Whether the request may have reached a broker."""
    return isinstance(error, BrokerUnavailable) and error.was_reached
