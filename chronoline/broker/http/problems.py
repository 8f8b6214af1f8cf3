"""Errors as problem+json (RFC 9457), and the HTTP status of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Literal

from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

from chronoline.core.errors import CertificateExpired, OutcomeUnknown, Refused
from chronoline.core.outcome import Refusal
from chronoline.runtime import audit
from chronoline.wire.codes import FailureKind, failure_of

MEDIA_TYPE = "application/problem+json"
_SHOWN = 5
"""The most faults of one request that an answer names."""
_SHOWN_CHARACTERS = 100
"""The most of a field's name: the client has chosen it."""

STATUS_OF_CODE: Mapping[str, HTTPStatus] = {
    "invalid_input": HTTPStatus.BAD_REQUEST,
    "topic_not_found": HTTPStatus.NOT_FOUND,
    "topic_exists": HTTPStatus.CONFLICT,
    "topic_changed": HTTPStatus.CONFLICT,
    "topic_not_ready": HTTPStatus.SERVICE_UNAVAILABLE,
    "topic_piped": HTTPStatus.CONFLICT,
    "already_subscribed": HTTPStatus.CONFLICT,
    "not_subscribed": HTTPStatus.CONFLICT,
    "consumer_replaced": HTTPStatus.CONFLICT,
    "unauthenticated": HTTPStatus.UNAUTHORIZED,
    "certificate_expired": HTTPStatus.UNAUTHORIZED,
    "forbidden": HTTPStatus.FORBIDDEN,
    "wrong_broker": HTTPStatus.MISDIRECTED_REQUEST,
    "node_busy": HTTPStatus.TOO_MANY_REQUESTS,
    "too_much": HTTPStatus.TOO_MANY_REQUESTS,
    "store_busy": HTTPStatus.SERVICE_UNAVAILABLE,
    "store_full": HTTPStatus.SERVICE_UNAVAILABLE,
    "store_unavailable": HTTPStatus.SERVICE_UNAVAILABLE,
    "coordination_unavailable": HTTPStatus.SERVICE_UNAVAILABLE,
    "coordination_refused": HTTPStatus.BAD_GATEWAY,
    "unavailable": HTTPStatus.SERVICE_UNAVAILABLE,
    "outcome_unknown": HTTPStatus.GATEWAY_TIMEOUT,
    "schedule_not_found": HTTPStatus.NOT_FOUND,
    "schedule_exists": HTTPStatus.CONFLICT,
    "too_many_schedules": HTTPStatus.CONFLICT,
}
"""The status of a failed request, by the code that gRPC uses too."""
STATUS_OF_REFUSAL: Mapping[Refusal, HTTPStatus] = {
    Refusal.EXISTS: HTTPStatus.CONFLICT,
    Refusal.NOT_FOUND: HTTPStatus.NOT_FOUND,
    Refusal.DELETED: HTTPStatus.GONE,
    Refusal.DEAD: HTTPStatus.CONFLICT,
    Refusal.NOT_DEAD: HTTPStatus.CONFLICT,
    Refusal.NOT_OWNER: HTTPStatus.FORBIDDEN,
    Refusal.NOT_HOLDER: HTTPStatus.FORBIDDEN,
    Refusal.NOT_ALLOWED: HTTPStatus.FORBIDDEN,
    Refusal.LEASED: HTTPStatus.CONFLICT,
    Refusal.LAPSED: HTTPStatus.CONFLICT,
    Refusal.STALE: HTTPStatus.CONFLICT,
    Refusal.NOT_DUE: HTTPStatus.CONFLICT,
    Refusal.EXPIRED: HTTPStatus.CONFLICT,
    Refusal.IMMUTABLE: HTTPStatus.CONFLICT,
    Refusal.TOO_SOON: HTTPStatus.BAD_REQUEST,
    Refusal.INVALID: HTTPStatus.BAD_REQUEST,
    Refusal.PAUSED: HTTPStatus.CONFLICT,
    Refusal.BUSY: HTTPStatus.SERVICE_UNAVAILABLE,
    Refusal.QUOTA: HTTPStatus.TOO_MANY_REQUESTS,
}
"""The status of a refused change of one message."""
CODE_OF_STATUS: Mapping[int, str] = {
    HTTPStatus.BAD_REQUEST: "invalid_input",
    HTTPStatus.NOT_FOUND: "no_such_path",
    HTTPStatus.METHOD_NOT_ALLOWED: "no_such_method",
    HTTPStatus.REQUEST_TIMEOUT: "too_slow",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "too_large",
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: "not_json",
    HTTPStatus.MISDIRECTED_REQUEST: "wrong_host",
}
"""The codes of problems that only HTTP has."""


class Problem(BaseModel):
    """Why nothing was changed, or why it is unknown whether it was."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "type": "urn:chronoline:problem:store_unavailable",
                    "title": "Store unavailable",
                    "status": 503,
                    "detail": "the store is unavailable; nothing was changed",
                    "code": "store_unavailable",
                    "kind": "try_again",
                    "retry_after_ms": 200,
                }
            ]
        }
    )

    type: str = Field(description="A URN that ends with the code.")
    title: str = Field(description="The code, in words.")
    status: int = Field(description="The HTTP status.")
    detail: str = Field(description="The problem, for people.")
    code: str = Field(description="The problem, for programs. New codes may be added.")
    kind: Literal["refused", "try_again", "unknown"] = Field(
        description="Nothing was changed; nothing was changed and the request can be repeated; or it may "
        "have happened or not: repeat it with the same ids."
    )
    retry_after_ms: int | None = Field(description="When to try again; null if never.")


class ProblemResponse(JSONResponse):
    """A JSON response with a problem."""

    media_type = MEDIA_TYPE


def problem_response(
    status: int,
    code: str,
    detail: str,
    *,
    kind: FailureKind = FailureKind.REFUSED,
    retry_after_ms: int | None = None,
    headers: Mapping[str, str] | None = None,
) -> ProblemResponse:
    """The response with a problem. `Retry-After` is in whole seconds, rounded up."""
    audit.refused(code)
    problem = Problem(
        type=f"urn:chronoline:problem:{code}",
        title=code.replace("_", " ").capitalize(),
        status=status,
        detail=detail,
        code=code,
        kind=kind.value,
        retry_after_ms=retry_after_ms,
    )
    sent = dict(headers or {})
    if kind is FailureKind.TRY_AGAIN and retry_after_ms is not None:
        sent["retry-after"] = str(max(1, -(-retry_after_ms // 1000)))
    if status == HTTPStatus.UNAUTHORIZED:
        sent["www-authenticate"] = 'Bearer realm="chronoline"'
    return ProblemResponse(problem.model_dump(), status_code=status, headers=sent)


def problem_of(error: BaseException) -> ProblemResponse:
    """The response for an error."""
    if isinstance(error, Refused):
        outcome = error.outcomes[0]
        refusal = outcome.refusal or Refusal.INVALID
        passes = error.retry_after_ms is not None
        return problem_response(
            STATUS_OF_REFUSAL[refusal],
            refusal.value,
            outcome.reason,
            kind=FailureKind.TRY_AGAIN if passes else FailureKind.REFUSED,
            retry_after_ms=error.retry_after_ms,
        )
    if isinstance(error, RequestValidationError):
        return problem_response(
            HTTPStatus.BAD_REQUEST, "invalid_input", _faults_in_words(error.errors())
        )
    if isinstance(error, HTTPException):
        code = CODE_OF_STATUS.get(error.status_code, "invalid_input")
        return problem_response(error.status_code, code, error.detail, headers=error.headers)
    return _problem_of_failure(error)


def _problem_of_failure(error: BaseException) -> ProblemResponse:
    failure = failure_of(error)
    status = STATUS_OF_CODE[failure.code]
    if status == HTTPStatus.GATEWAY_TIMEOUT and not isinstance(error, OutcomeUnknown):
        status = HTTPStatus.INTERNAL_SERVER_ERROR  # a defect
    kind = FailureKind(failure.kind)
    return problem_response(
        status,
        failure.code,
        failure.message,
        kind=kind,
        retry_after_ms=None if kind is FailureKind.REFUSED else failure.retry_after_ms,
        # The next connection shows the certificate that the client has then.
        headers={"connection": "close"} if isinstance(error, CertificateExpired) else None,
    )


def _faults_in_words(faults: Sequence[Mapping[str, Any]]) -> str:
    shown = "; ".join(_in_words(fault) for fault in faults[:_SHOWN])
    more = len(faults) - _SHOWN
    return shown + (f"; and {more} more" if more > 0 else "")


def _in_words(fault: Mapping[str, Any]) -> str:
    """The place of a fault and its kind; never the value, which can be long or a secret."""
    place, *inside = fault["loc"]
    where = ".".join(str(each)[:_SHOWN_CHARACTERS] for each in inside) or f"the {place}"
    match fault["type"]:
        case "missing":
            return f"{where} is missing"
        case "extra_forbidden":
            return f"{where} is unknown"
        case "model_type" | "model_attributes_type":
            return f"{where} must be an object"
    own = fault.get("ctx", {}).get("error")
    return f"{where}: {own or fault['msg']}"
