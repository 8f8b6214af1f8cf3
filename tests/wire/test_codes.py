"""Error codes: both directions, and codes of a newer broker."""

from __future__ import annotations

import pytest

import chronoline.wire.v1.chronoline_pb2 as pb
from chronoline.client.outcomes import outcomes_from_wire
from chronoline.core.errors import (
    BrokerUnavailable,
    ChronolineError,
    InvalidInput,
    OutcomeUnknown,
)
from chronoline.core.outcome import Refusal
from chronoline.wire.codes import CODES, error_of, failure_of


@pytest.mark.parametrize("code", CODES)
def test_every_error_comes_back_as_itself(code: str) -> None:
    kind_of_error, kind = CODES[code]
    failure = failure_of(kind_of_error("why"))
    assert (failure.code, failure.kind) == (code, kind.value)
    error = error_of(failure)
    assert type(error) is kind_of_error
    assert str(error) == "why"


def test_unexpected_error_is_unknown_and_hides_its_text() -> None:
    failure = failure_of(ZeroDivisionError("a secret"))
    assert failure.kind == "unknown"
    assert "secret" not in failure.message


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("refused", InvalidInput),
        ("try_again", BrokerUnavailable),
        ("unknown", OutcomeUnknown),
        ("of another world", OutcomeUnknown),
    ],
)
def test_unknown_code_maps_by_its_kind(kind: str, expected: type[ChronolineError]) -> None:
    assert type(error_of(pb.Failure(code="new", kind=kind, message="m"))) is expected


def test_text_of_a_failure_is_bounded() -> None:
    assert len(failure_of(InvalidInput("x" * 100_000)).message) == 4_000


def test_a_refusal_of_a_newer_broker_is_a_refusal() -> None:
    (outcome,) = outcomes_from_wire([pb.Outcome(id="a", refusal="too_blue", detail="blue")])
    assert outcome.refusal is Refusal.NOT_ALLOWED
    assert outcome.reason == "blue"
