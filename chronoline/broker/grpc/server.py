"""The gRPC server of a node."""

from __future__ import annotations

import asyncio
import logging
import re
import time
import urllib.parse
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import grpc
from grpc import aio

from chronoline.broker.auth import Door, Shown, token_hash
from chronoline.broker.context import BrokerContext
from chronoline.broker.grpc.client_stream import STOPPING, ClientStream
from chronoline.broker.grpc.connections import GrpcConnections
from chronoline.broker.grpc.consumer_stream import ConsumerClientStream
from chronoline.broker.grpc.consumers import ConsumerNames
from chronoline.broker.grpc.producer_stream import ProducerClientStream
from chronoline.broker.grpc.schedule_calls import ScheduleCalls
from chronoline.broker.grpc.unary_calls import UnaryCalls
from chronoline.broker.metrics import BrokerMetrics
from chronoline.broker.overseer import LocalClients, MoveNotice
from chronoline.broker.principals import Principal
from chronoline.core.addresses import is_loopback
from chronoline.core.errors import (
    BrokerUnavailable,
    CertificateExpired,
    ChronolineError,
    Forbidden,
    InvalidInput,
    NodeBusy,
    TooMuch,
    Unauthenticated,
    WrongBroker,
)
from chronoline.core.rights import RightKind
from chronoline.core.selector import ClientKind
from chronoline.runtime import audit, descriptors
from chronoline.runtime.admission import Admitted, client_key, work_for
from chronoline.runtime.certificates import PeerCertificate
from chronoline.runtime.service import AsyncService
from chronoline.runtime.tasks import supervise
from chronoline.wire.codes import BROKERS_KEY, FAILURE_KEY, STATUS, failure_of
from chronoline.wire.message_bounds import parse_message
from chronoline.wire.v1 import chronoline_pb2 as pb

logger = logging.getLogger(__name__)

UNARY: dict[str, dict[str, Any]] = {
    "chronoline.v1.Overseer": {
        "Info": pb.InfoRequest,
        "CreateTopic": pb.CreateTopicRequest,
        "DropTopic": pb.TopicRef,
        "GetTopic": pb.GetTopicRequest,
        "ListTopics": pb.ListTopicsRequest,
        "Prefer": pb.PreferRequest,
        "PauseTopic": pb.PauseTopicRequest,
        "ResumeTopic": pb.TopicRef,
        "ChangeTopic": pb.ChangeTopicRequest,
    },
    "chronoline.v1.Carrier": {
        "Lookup": pb.LookupRequest,
        "ReadBodies": pb.BodiesRequest,
        "Count": pb.CountRequest,
        "Forecast": pb.ForecastRequest,
        "DeadLetters": pb.DeadLettersRequest,
        "Redrive": pb.RedriveRequest,
        "Discard": pb.DiscardRequest,
        "List": pb.ListRequest,
        "States": pb.LookupRequest,
        "ChangeMatching": pb.ChangeMatchingRequest,
        "Export": pb.ExportRequest,
        "Import": pb.ImportRequest,
    },
    "chronoline.v1.Schedules": {
        "PutSchedule": pb.PutScheduleRequest,
        "GetSchedule": pb.GetScheduleRequest,
        "ListSchedules": pb.ListSchedulesRequest,
        "PauseSchedule": pb.ScheduleRef,
        "ResumeSchedule": pb.ScheduleRef,
        "DeleteSchedule": pb.ScheduleRef,
    },
}
_ROLES = {
    **dict.fromkeys(
        ("CreateTopic", "DropTopic", "PauseTopic", "ResumeTopic", "ChangeTopic"), "overseer"
    ),
    **dict.fromkeys(UNARY["chronoline.v1.Carrier"], "carrier"),
    **dict.fromkeys(UNARY["chronoline.v1.Schedules"], "carrier"),
}
"""The role of the broker that answers a call; every broker answers the others."""
_LOOK = (RightKind.PRODUCE, RightKind.OBSERVE)
_CHANGE = (RightKind.ADMINISTER, RightKind.PRODUCE)
_ADMINISTER = (RightKind.ADMINISTER,)
_ANY = (RightKind.PRODUCE, RightKind.CONSUME, RightKind.OBSERVE)
NEEDED_RIGHTS: dict[str, tuple[RightKind, ...]] = {
    **dict.fromkeys(("Info", "Count", "Forecast"), (RightKind.OBSERVE,)),
    **dict.fromkeys(("GetTopic", "Prefer"), _ANY),
    **dict.fromkeys(("CreateTopic", "DropTopic", "PauseTopic"), _ADMINISTER),
    **dict.fromkeys(("ResumeTopic", "ChangeTopic", "Export", "Import"), _ADMINISTER),
    **dict.fromkeys(("Lookup", "States", "DeadLetters", "List"), _LOOK),
    "ReadBodies": (RightKind.PRODUCE, RightKind.CONSUME),
    **dict.fromkeys(("Redrive", "Discard", "ChangeMatching"), _CHANGE),
    **dict.fromkeys(("PutSchedule", "PauseSchedule", "ResumeSchedule", "DeleteSchedule"), _CHANGE),
    # They answer what the client may see: nothing of it is there for the others.
    **dict.fromkeys(("ListTopics", "ListSchedules", "GetSchedule"), ()),
}
"""The kinds of rights of which a client has one, to any topic, or its request is not read."""
_LOOK_AFTER_S = 0.5
"""The interval between two checks of all streams: neither silence nor a revoked token has an event."""
_FRAME_SPARE_BYTES = 64 * 1024
_MOST_CALLS = 1_000
"""The most calls on one connection; gRPC lets the client wait with more."""
_WINDOW_BYTES = 128 * 1024
"""The most bytes of a call that are in memory before it is admitted and read."""
_TO_BE_TOLD = 16
"""The connections beyond the bound of streams: their clients get the answer that there are too many."""
_CLOSE_EVERY_S = 0.25
"""The interval between two looks for connections of strangers."""
_BURST = 2_000
"""The connections of strangers that find room until the next look, beyond the bound."""
_HANDSHAKE_MS = 5_000
"""A connection that sends nothing within this time is closed."""
_IDLE_MS = 60_000
"""A connection without a call is closed after this time; clients open another one by themselves."""

_STOPPING = "the broker is stopping; reconnect, to this broker or another"
_CHANGED = "the rights of the token have changed; reconnect"
_REVOKED = "the broker asks for a token; the one of this stream was revoked, or has expired"

_MOST_ADDRESS_BYTES = 4_000
"""The addresses of brokers in the metadata of an answer: gRPC takes 8 KB of it in all."""

_CAPITAL = re.compile(r"(?<!^)([A-Z])")
AnyClientStream = ClientStream[Any, Any]
Metadata = tuple[tuple[str, bytes], ...]


class GrpcEdge(AsyncService):
    """Listens from `start` to `stop`; then it does not start again."""

    grace_s = 2.0
    """The longest time for calls under way when it stops."""

    def __init__(self, parts: BrokerContext, door: Door, *, host: str, port: int) -> None:
        """Port 0 picks a free port."""
        self._parts = parts
        self._host = host
        self._door = door
        # By stream, the proof of its client.
        self._sessions: dict[AnyClientStream, Shown] = {}
        self._names = ConsumerNames()
        self._server: aio.Server | None = None
        self._connections: GrpcConnections | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = False
        self.port = port

    @property
    def sessions(self) -> tuple[AnyClientStream, ...]:
        return tuple(self._sessions)

    async def _start(self) -> None:
        """Raises `InvalidInput` if it cannot listen at the address."""
        most_bytes = self._parts.limits.frame_bytes + _FRAME_SPARE_BYTES
        server = aio.server(
            interceptors=[_Doorkeeper(self._door, self._parts.metrics)],
            options=[
                ("grpc.max_receive_message_length", most_bytes),
                ("grpc.max_send_message_length", -1),  # answers have bounds of their own
                ("grpc.so_reuseport", 0),
                (
                    "grpc.max_allowed_incoming_connections",
                    self._parts.limits.connections
                    + _TO_BE_TOLD
                    + min(_BURST, descriptors.limit() // 8),
                ),
                ("grpc.max_concurrent_streams", _MOST_CALLS),
                ("grpc.http2.lookahead_bytes", _WINDOW_BYTES),
                ("grpc.http2.bdp_probe", 0),  # it would let windows grow, whatever is read
                ("grpc.server_handshake_timeout_ms", _HANDSHAKE_MS),
                ("grpc.max_connection_idle_ms", _IDLE_MS),
            ],
        )
        of_messages, of_schedules = UnaryCalls(self._parts), ScheduleCalls(self._parts)
        for service, questions in UNARY.items():
            calls = of_schedules if service.endswith("Schedules") else of_messages
            handlers = {
                name: self._question(name, getattr(calls, name), request)
                for name, request in questions.items()
            }
            if service.endswith("Carrier"):
                handlers |= self._streams()
            server.add_generic_rpc_handlers(
                (grpc.method_handlers_generic_handler(service, handlers),)
            )
        address = f"{self._host}:{self.port}"
        credentials = self._door.grpc_credentials()
        try:
            if credentials is None:
                self.port = server.add_insecure_port(address)
            else:
                self.port = server.add_secure_port(address, credentials)
        except RuntimeError as error:
            raise InvalidInput(
                f"gRPC cannot listen at {address}: is it taken by another process? {error}"
            ) from None
        await server.start()
        self._server = server
        self._parts.overseer.clients = _StreamClients(lambda: self.sessions)
        most = self._parts.limits.connections
        self._connections = GrpcConnections(self.port, most_strangers=most - most // 4)
        failed = self._parts.metrics.failed
        self._tasks = [
            supervise("looking after streams", self._check_streams, failed),
            supervise("looking after connections", self._check_connections, failed),
        ]

    async def _stop(self) -> None:
        """Disconnects all streams, to which nothing more is leased, and returns when they have ended."""
        self.go_away()
        for task in self._tasks:
            task.cancel()
        if self._server is not None:
            await self._server.stop(self.grace_s)

    def go_away(self) -> None:
        """Disconnects all streams: nothing more is leased to them, and new ones are refused."""
        self._stopping = True
        for session in self.sessions:
            session.go_away(STOPPING, _STOPPING)

    def _streams(self) -> dict[str, grpc.RpcMethodHandler[Any, Any]]:
        return {
            "Produce": grpc.stream_stream_rpc_method_handler(self._produce),
            "Consume": grpc.stream_stream_rpc_method_handler(self._consume),
        }

    def _question(
        self, name: str, answer: Callable[[Any, Principal], Awaitable[Any]], request: Any
    ) -> grpc.RpcMethodHandler[Any, Any]:
        """The handler of a method with one request and one reply.

        For gRPC it is a stream: gRPC reads the request of any other method before the token is checked.
        """
        role, act = _ROLES.get(name, ""), _CAPITAL.sub(r"_\1", name).lower()
        needed = NEEDED_RIGHTS[name]

        async def handle(_: AsyncIterator[bytes], context: Any) -> None:
            others: Metadata = ()
            with audit.AuditedRequest(act, _address_of(context)):
                try:
                    principal = self._principal(context)
                    others = self._others(principal)
                    if role:
                        self._parts.member.check_role(role)
                    context.set_trailing_metadata(others)
                    audit.by(principal.who)
                    if needed:
                        principal.check_one_of(needed)
                    await self._answer(answer, request, context, principal)
                except ChronolineError as error:
                    failure = failure_of(error)
                except Exception as error:
                    logger.exception("a unary call failed")
                    failure = failure_of(error)
                else:
                    return
                audit.refused(failure.code)
            # Not within `except`: gRPC would keep the error, whose traceback holds the request.
            await _abort(context, failure, others)

        return grpc.stream_stream_rpc_method_handler(handle)

    def _others(self, principal: Principal) -> Metadata:
        """The addresses of the other brokers, for a client that may use them."""
        if not principal.rights.touches():
            return ()
        others, room_bytes = pb.KnownBrokers(), _MOST_ADDRESS_BYTES
        for address in self._parts.overseer.others:
            room_bytes -= len(address)
            if room_bytes < 0:
                break
            others.others.append(address)
        return ((BROKERS_KEY, others.SerializeToString()),)

    async def _answer(
        self,
        answer: Callable[[Any, Principal], Awaitable[Any]],
        request: Any,
        context: Any,
        principal: Principal,
    ) -> None:
        limits = self._parts.limits
        work_for(self._client_of(context))
        with await self._admit(context) as admitted:
            try:
                async with asyncio.timeout(limits.ping_timeout_ms / 1000):
                    received = await context.read()
            except TimeoutError:
                raise InvalidInput("the request did not arrive in time") from None
            if received is aio.EOF:
                raise InvalidInput("the call ended without a request")
            admitted.shrink(len(received))
            reply = await answer(parse_message(request, received), principal)
            await context.write(reply.SerializeToString())

    def _principal(self, context: Any) -> Principal:
        """Raises `Unauthenticated` for a client that is not known any more, and `CertificateExpired`."""
        try:
            principal = _let_in(self._door, _shown(context))
        except CertificateExpired:
            self._parts.metrics.refused("grpc", "unauthenticated")
            raise
        if principal is None:
            self._parts.metrics.refused("grpc", "unauthenticated")
            raise Unauthenticated
        assert self._connections is not None
        self._connections.know(_address_of(context))
        return principal

    def _client_of(self, context: Any) -> str:
        """The client whose share of the node a call takes: its token, if that was checked, and its host."""
        shown = token_hash(_authorization(context.invocation_metadata())) if self._door.asks else ""
        address = _address_of(context)
        return client_key(shown, address, is_local=is_loopback(address.rpartition(":")[0]))

    async def _admit(self, context: Any) -> Admitted:
        """Waits for room, before a request is read: it can be as large as a frame."""
        try:
            return await self._parts.admission.admit(
                self._client_of(context), self._parts.limits.frame_bytes
            )
        except NodeBusy:
            self._parts.metrics.refused("grpc", "node_busy")
            raise

    async def _produce(self, frames: AsyncIterator[Any], context: Any) -> None:
        session = ProducerClientStream(self._parts, self._client_of(context))
        await self._serve(session, frames, context)

    async def _consume(self, frames: AsyncIterator[Any], context: Any) -> None:
        session = ConsumerClientStream(self._parts, self._names, self._client_of(context))
        await self._serve(session, frames, context)

    async def _serve(
        self, session: AnyClientStream, frames: AsyncIterator[Any], context: Any
    ) -> None:
        most = self._parts.limits.connections
        if len(self._sessions) >= most:
            self._parts.metrics.refused("grpc", "streams")
            too_many = TooMuch(f"{most} streams are open already; try again later")
            await _abort(context, failure_of(too_many))
        if self._stopping:
            await _abort(context, failure_of(BrokerUnavailable(_STOPPING)))
        shown = _shown(context)
        try:
            session.principal = self._principal(context)
            self._parts.member.check_role("carrier")
            session.principal.check_one_of((session.right,))
        except (BrokerUnavailable, Forbidden, Unauthenticated, WrongBroker) as error:
            await _abort(context, failure_of(error))
        session.count_streams = lambda: len(self._sessions)
        session.origin = _address_of(context)
        self._sessions[session] = shown
        try:
            await session.serve(frames, context.write)
        finally:
            del self._sessions[session]

    async def _check_connections(self) -> None:
        assert self._connections is not None
        while True:
            await asyncio.sleep(_CLOSE_EVERY_S)
            self._connections.check(time.monotonic())

    async def _check_streams(self) -> None:
        now_s = time.monotonic()
        while True:
            await asyncio.sleep(_LOOK_AFTER_S)
            before_s, now_s = now_s, time.monotonic()
            self._check_tokens()
            if now_s - before_s > 2 * _LOOK_AFTER_S:
                continue  # the broker itself was frozen: frames that came meanwhile are read first
            for session in self.sessions:
                session.check_alive(now_s)

    def _check_tokens(self) -> None:
        for session, shown in list(self._sessions.items()):
            try:
                principal = self._door.principal(shown)
            except CertificateExpired as error:
                session.go_away("certificate_expired", str(error))
                continue
            except (InvalidInput, BrokerUnavailable):  # it cannot be said: until then, streams stay
                continue
            if principal is None:
                session.go_away("unauthenticated", _REVOKED)
            elif principal != session.principal:
                # It may have lost the right to its topics: it subscribes again, and is checked.
                session.go_away("rights_changed", _CHANGED)


class _StreamClients(LocalClients):
    """The streams of a node, as the overseer sees them."""

    def __init__(self, sessions: Callable[[], Sequence[AnyClientStream]]) -> None:
        self._sessions = sessions

    def consumers(self) -> dict[str, int]:
        firsts = (each.first_topic for each in self._consumers)
        found = Counter(str(each) for each in firsts if each is not None)
        return dict(sorted(found.items()))

    def producers(self) -> int:
        return len(self._producers)

    def suggest(self, notice: MoveNotice) -> None:
        """The latest clients are asked first."""
        move = notice.move
        asked: list[AnyClientStream] = self._producers
        if move.kind is ClientKind.CONSUMER:
            asked = [each for each in self._consumers if each.first_topic == int(move.topic)]
        for each in asked[-move.clients :]:
            each.suggest_move(
                pb.MoveTo(reason=move.reason, address=notice.address, message=notice.message)
            )

    def brokers_changed(self, others: Sequence[str]) -> None:
        for each in self._sessions():
            each.brokers_changed(others)

    @property
    def _consumers(self) -> list[ConsumerClientStream]:
        return [each for each in self._sessions() if isinstance(each, ConsumerClientStream)]

    @property
    def _producers(self) -> list[AnyClientStream]:
        return [each for each in self._sessions() if isinstance(each, ProducerClientStream)]


def _address_of(context: Any) -> str:
    # Such as ipv6:%5B::1%5D:50000.
    _, _, address = urllib.parse.unquote(context.peer()).partition(":")
    return address


def _shown(context: Any) -> Shown:
    certificate = PeerCertificate.of_grpc(context.auth_context())
    return Shown(_authorization(context.invocation_metadata()), certificate)


def _let_in(door: Door, shown: Shown) -> Principal | None:
    """None for a client that is not known. Raises `BrokerUnavailable` while that cannot be said."""
    try:
        return door.principal(shown)
    except InvalidInput as error:  # the file of tokens cannot be read
        raise door.unreadable(error) from None


def _authorization(metadata: Any) -> str | bytes:
    given: str | bytes = dict(metadata or ()).get("authorization", "")
    return given


async def _abort(context: Any, failure: pb.Failure, others: Metadata = ()) -> None:
    metadata = ((FAILURE_KEY, failure.SerializeToString()), *others)
    await context.abort(STATUS[failure.kind], failure.message, metadata)


class _Doorkeeper(aio.ServerInterceptor):
    """Checks the token of each call. Nothing of a call without one is read."""

    def __init__(self, door: Door, metrics: BrokerMetrics) -> None:
        self._door = door
        self._metrics = metrics

    async def intercept_service(self, continuation: Any, details: Any) -> Any:
        shown = Shown(_authorization(details.invocation_metadata))
        try:
            is_known = _let_in(self._door, shown) is not None
        except BrokerUnavailable as error:
            return _refusing(error)
        # The certificate of the connection is not known here; the handlers look at it before they read.
        if is_known or (not shown.authorization and self._door.knows_certificates):
            return await continuation(details)
        self._metrics.refused("grpc", "unauthenticated")
        return _refusing(Unauthenticated())


def _refusing(error: ChronolineError) -> grpc.RpcMethodHandler[Any, Any]:
    failure = failure_of(error)

    async def refuse(_: Any, context: Any) -> None:
        await _abort(context, failure)

    return grpc.stream_stream_rpc_method_handler(refuse)
