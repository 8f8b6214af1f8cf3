"""The error codes of the wire. They are stable, and each has a kind, which says what the caller can do.

*refused*: nothing was changed, and a repeated request gets the same answer. *try_again*: nothing was changed,
and a later request may succeed. *unknown*: the change may have happened or not; repeat the request with the
same ids.
"""

from __future__ import annotations

from enum import StrEnum

import grpc

from chronoline.core.errors import (
    AlreadySubscribed,
    BrokerUnavailable,
    CertificateExpired,
    ChronolineError,
    ConsumerReplaced,
    CoordinationRefused,
    CoordinationUnavailable,
    Forbidden,
    InvalidInput,
    NodeBusy,
    NotSubscribed,
    OutcomeUnknown,
    ScheduleExists,
    ScheduleNotFound,
    StoreBusy,
    StoreFull,
    StoreUnavailable,
    TooManySchedules,
    TooMuch,
    TopicChanged,
    TopicExists,
    TopicNotFound,
    TopicNotReady,
    TopicPiped,
    Unauthenticated,
    WrongBroker,
)
from chronoline.wire.v1 import chronoline_pb2 as pb

_MOST_CHARACTERS = 4_000
"""The most of an error's text that travels: a text can repeat what the client has sent."""


class FailureKind(StrEnum):
    REFUSED = "refused"
    TRY_AGAIN = "try_again"
    UNKNOWN = "unknown"


CODES: dict[str, tuple[type[ChronolineError], FailureKind]] = {
    "topic_piped": (TopicPiped, FailureKind.REFUSED),
    "invalid_input": (InvalidInput, FailureKind.REFUSED),
    "topic_not_found": (TopicNotFound, FailureKind.REFUSED),
    "topic_exists": (TopicExists, FailureKind.REFUSED),
    "topic_changed": (TopicChanged, FailureKind.REFUSED),
    "topic_not_ready": (TopicNotReady, FailureKind.TRY_AGAIN),
    "already_subscribed": (AlreadySubscribed, FailureKind.REFUSED),
    "not_subscribed": (NotSubscribed, FailureKind.REFUSED),
    "consumer_replaced": (ConsumerReplaced, FailureKind.REFUSED),
    "unauthenticated": (Unauthenticated, FailureKind.REFUSED),
    "forbidden": (Forbidden, FailureKind.REFUSED),
    "wrong_broker": (WrongBroker, FailureKind.REFUSED),
    "node_busy": (NodeBusy, FailureKind.TRY_AGAIN),
    "too_much": (TooMuch, FailureKind.TRY_AGAIN),
    "store_busy": (StoreBusy, FailureKind.TRY_AGAIN),
    "store_full": (StoreFull, FailureKind.TRY_AGAIN),
    "store_unavailable": (StoreUnavailable, FailureKind.TRY_AGAIN),
    "coordination_unavailable": (CoordinationUnavailable, FailureKind.TRY_AGAIN),
    "coordination_refused": (CoordinationRefused, FailureKind.REFUSED),
    "certificate_expired": (CertificateExpired, FailureKind.TRY_AGAIN),
    "unavailable": (BrokerUnavailable, FailureKind.TRY_AGAIN),
    "outcome_unknown": (OutcomeUnknown, FailureKind.UNKNOWN),
    "schedule_not_found": (ScheduleNotFound, FailureKind.REFUSED),
    "schedule_exists": (ScheduleExists, FailureKind.REFUSED),
    "too_many_schedules": (TooManySchedules, FailureKind.REFUSED),
}
"""Error classes and kinds by code; a subclass is listed before its parent."""
STATUS: dict[str, grpc.StatusCode] = {
    FailureKind.REFUSED: grpc.StatusCode.FAILED_PRECONDITION,
    FailureKind.TRY_AGAIN: grpc.StatusCode.UNAVAILABLE,
    FailureKind.UNKNOWN: grpc.StatusCode.UNKNOWN,
}
"""The gRPC status of failed calls, for generic clients; the trailing metadata has the failure."""
_BY_KIND: dict[str, type[ChronolineError]] = {
    FailureKind.REFUSED: InvalidInput,
    FailureKind.TRY_AGAIN: BrokerUnavailable,
}
"""Error classes for unknown codes; an unknown kind is `OutcomeUnknown`."""
FAILURE_KEY = "chronoline-failure-bin"
BROKERS_KEY = "chronoline-brokers-bin"
"""The trailing metadata with the other brokers, as `KnownBrokers`."""
_OTHER = "outcome_unknown"
_RETRY_AFTER_MS = 200


def failure_of(error: BaseException) -> pb.Failure:
    """The failure for an error. An unexpected error is *unknown*, since it may have come after the change."""
    for code, (kind_of_error, kind) in CODES.items():
        if isinstance(error, kind_of_error):
            after_ms = getattr(error, "retry_after_ms", None)
            if after_ms is None:
                after_ms = 0 if kind is FailureKind.REFUSED else _RETRY_AFTER_MS
            return pb.Failure(
                code=code,
                message=str(error)[:_MOST_CHARACTERS],
                kind=kind.value,
                retry_after_ms=after_ms,
                brokers=error.brokers if isinstance(error, WrongBroker) else (),
            )
    return pb.Failure(
        code=_OTHER,
        message="the broker failed during the request; its log has the reason",
        kind=FailureKind.UNKNOWN.value,
        retry_after_ms=_RETRY_AFTER_MS,
    )


def error_of(failure: pb.Failure) -> ChronolineError:
    """The error for a failure. For an unknown code, of a newer broker, the kind decides."""
    known = CODES.get(failure.code)
    kind = _BY_KIND.get(failure.kind, OutcomeUnknown) if known is None else known[0]
    error = kind(failure.message)
    error.retry_after_ms = failure.retry_after_ms or None
    if isinstance(error, WrongBroker):
        error.brokers = tuple(failure.brokers)
    return error
